// SPDX-License-Identifier: Apache-2.0
// Statistics turned into bins: how many elements come from which range of values. Used by
// stand_in.c.
#ifndef USC_GENERATE_BINS_H
#define USC_GENERATE_BINS_H

#include <ulpscope/x/generate.h>

typedef enum usc_bin_kind {
    USC_BIN_NUMBER,
    USC_BIN_SPECIAL, /* one value for all: zero, NaN, Inf */
    USC_BIN_ANY,     /* no histogram: from lo to hi as they are, signs and all */
} usc_bin_kind;

/* Elements that are drawn from one range. */
typedef struct usc_bin {
    usc_bin_kind kind;
    bool negative;
    int64_t first, count;    /* ranks [first, first + count) */
    double lo, hi;           /* floats: magnitudes, both ends are taken */
    double quantum;          /* floats: they are multiples of it */
    uint64_t int_lo, int_hi; /* integers: the same */
} usc_bin;

enum { USC_MAX_BINS = 2 * USC_N_BINADES + 8 };

/* All elements by ascending value, NaN in front. */
typedef struct usc_bins {
    int n;
    int64_t n_elements;
    double tilt; /* -1 ... 1: how far draws lean to the lower or upper ends of bins, so
                    that the mean is met */
    int i_min, i_max; /* the bins that hold the smallest and the largest number; -1 */
    usc_bin bin[USC_MAX_BINS];
} usc_bins;

/* What is to be made. */
typedef struct usc_shape {
    usc_dtype dtype;
    bool is_float;
    int64_t n; /* elements that are made; broadcast ones once */
    int64_t rows, columns;
    int64_t n_drawn;    /* those not beyond a diagonal */
    unsigned structure; /* of the statistics, without what cannot be kept */
} usc_shape;

/**
 * Makes the bins of `shape->n_drawn` elements; takes LOWER and UPPER off the structure
 * where the counts have no room for what stands beyond the diagonal.
 *
 * Errors:  USC_E_CORRUPT: what does not go together, with its numbers.
 */
USC_NODISCARD usc_status usc_bins_make(const usc_stats *s, usc_shape *shape,
                                       usc_bins *out, usc_error *err);

/** The bin of a rank. */
const usc_bin *usc_bins_find(const usc_bins *b, int64_t rank);

#endif
