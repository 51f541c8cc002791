// SPDX-License-Identifier: Apache-2.0
// The kernel table: one function pointer per loop and dtype, filled with the scalar
// definition first and overridden per instruction set. All levels give equal bits.
#ifndef USC_KERNELS_KERNELS_H
#define USC_KERNELS_KERNELS_H

#include <ulpscope/stats.h>
#include <ulpscope/x/kernels.h>

#include "tensor/convert.h"

enum {
    USC_LANES = 16,     /* element i of a block is added in lane i % 16 */
    USC_BLOCK = 4096,   /* elements after which lanes are folded */
    USC_SAMPLE = 512,   /* elements that the histogram counts or skips together */
    USC_COUNTED = 8192, /* elements of a tensor that the histogram counts at most */
};

/* What a statistics kernel adds to. The two arrays hold one block, the rest any number
 * of blocks. */
typedef struct usc_stats_lanes {
    double sum[USC_LANES], squares[USC_LANES];
    double min, max; /* floats, finite elements; +Inf and -Inf before the first */
    int64_t n_nan, n_pos_inf, n_neg_inf, n_zero, n_subnormal;
    /* integers, as their own type cast to int64_t */
    int64_t int_min, int_max, previous;
    bool has_range, has_previous; /* whether the fields above are set */
    bool falls, repeats;          /* element < previous, element == previous was seen */
} usc_stats_lanes;

/* Adds `n` <= USC_BLOCK elements to `*lanes`, element i in lane i % 16; several calls
 * for one block are allowed where all but the last have n % 16 == 0. */
typedef void usc_stats_function(const void *src, size_t n, usc_stats_lanes *lanes);

/* A range kernel has the same form and adds to min, max, n_nan, n_pos_inf and n_neg_inf
 * alone; of integers it is the statistics kernel. */

/* What a histogram kernel adds to; zero before the first. */
typedef struct usc_binades {
    int32_t histogram[2][USC_N_BINADES];
    /* Narrow floats count sign and exponent field, which FOLD sorts into the histogram.
     * Eight counters each, because equal exponents follow each other: adding to one again
     * and again would wait for the store each time. Side by side, so that the many empty
     * fields are skipped together. */
    uint16_t fields[512][8];
} usc_binades;

/* Counts `n` elements by sign and binade; up to USC_COUNTED elements before a fold. */
typedef void usc_histogram_function(const void *src, size_t n, usc_binades *b);

/* Adds the counted fields to the histogram; once, at the end. */
typedef void usc_fold_function(usc_binades *b);

/* What a kernel of magnitudes (ulpscope/x/sums.h) adds to: finite elements by their size.
 */
typedef struct usc_sums_lanes {
    double sum[USC_LANES], squares[USC_LANES]; /* of one block */
    double max;
    int64_t n_nonfinite, n_zero;
} usc_sums_lanes;

/* Adds `n` <= USC_BLOCK elements to `*lanes`, element i in lane i % 16. */
typedef void usc_sums_function(const void *src, size_t n, usc_sums_lanes *lanes);

/* The sum, modulo 2^64, of what words `first`, `first` + 1, ... of 8 bytes are with their
 * places. */
typedef uint64_t usc_mix_function(const void *src, size_t n_words, uint64_t first);

/* Distance of the keys of two words: 2^64 over the golden ratio. */
#define USC_MIX_STEP UINT64_C(0x9e3779b97f4a7c15)

typedef struct usc_kernels {
    const char *isa;
    usc_widen_function *widen[USC_N_DTYPES];
    usc_stats_function *stats[USC_N_DTYPES];
    usc_stats_function *range[USC_N_DTYPES];
    usc_histogram_function *histogram[USC_N_DTYPES];
    usc_fold_function *fold[USC_N_DTYPES]; /* NULL: nothing to fold */
    usc_sums_function *sums[USC_N_DTYPES];
    usc_mix_function *mix;
} usc_kernels;

/** The table in use. */
const usc_kernels *usc_kernels_get(void);

/** usc_dtype_widen by the fastest loops: the same bits. */
void usc_kernels_widen(usc_dtype dtype, const void *src, double *dst, size_t n);

/** Fills every row with the scalar definition. */
void usc_kernels_fill_scalar(usc_kernels *kernels);

/** Fills the histogram rows, which have one form for all instruction sets. */
void usc_kernels_fill_histogram(usc_kernels *kernels);

/** Fills the rows of magnitudes and the hash with the scalar definition. */
void usc_kernels_fill_sums(usc_kernels *kernels);

/** Overrides what AVX2, FMA and F16C, and what AVX-512 makes faster of these. */
void usc_kernels_fill_sums_avx2(usc_kernels *kernels);
void usc_kernels_fill_sums_avx512(usc_kernels *kernels);

/** The definitions, for what other kernels leave. */
void usc_sums_scalar(usc_dtype dtype, const void *src, size_t n, usc_sums_lanes *lanes);
uint64_t usc_mix_scalar(const void *src, size_t n_words, uint64_t first);

/** Overrides what AVX2, FMA and F16C make faster; false where not compiled in. */
bool usc_kernels_fill_avx2(usc_kernels *kernels);

#endif
