// SPDX-License-Identifier: Apache-2.0
// Statistics of one tensor in one pass. Formulas and special cases:
// docs/reference/metrics.md, 1.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_STATS_H
#define ULPSCOPE_STATS_H

#include <ulpscope/tensor.h>

USC_BEGIN_DECLS

/* Binades of the exponent histogram: value v counts in bin floor(log2 |v|) -
 * USC_BINADE_MIN, clamped to the first and last bin (float64 alone can reach them from
 * outside). */
#define USC_N_BINADES 280
#define USC_BINADE_MIN (-150)

/* What the last two axes are like, as statistics see them (usc_stats.structure): rows run
 * along the last one, matrices are the last two. Bit, text in trace.db */
#define USC_STRUCTURE_LIST(X)                                                            \
    X(ROWS_RISE, 0, "rows_rise")       /* no row falls anywhere */                       \
    X(ROWS_FALL, 1, "rows_fall")       /* no row rises anywhere */                       \
    X(ROWS_UNIQUE, 2, "rows_unique")   /* integers: no row has a value twice */          \
    X(ROWS_SUM_ONE, 3, "rows_sum_one") /* not negative, the sum of each row is 1 */      \
    X(ROWS_NORM_ONE, 4, "rows_norm_one")                                                 \
    X(ROWS_ONE_HOT, 5, "rows_one_hot") /* zero but for one element, always the same */   \
    X(LOWER, 6, "lower")               /* above the diagonal stands `fill` alone */      \
    X(UPPER, 7, "upper")               /* below the diagonal stands `fill` alone */      \
    X(SYMMETRIC, 8, "symmetric")

enum {
#define USC_STRUCTURE_ENUM(id, bit, text) USC_##id = 1 << (bit),
    USC_STRUCTURE_LIST(USC_STRUCTURE_ENUM)
#undef USC_STRUCTURE_ENUM
};

typedef struct usc_stats {
    int64_t n; /* elements looked at: all of them */
    int64_t n_nan, n_pos_inf, n_neg_inf;
    int64_t n_zero;           /* +0 and -0 */
    int64_t n_subnormal;      /* in the tensor's own dtype */
    double min, max;          /* over finite elements; NaN where there is none */
    double mean;              /* over finite elements; NaN where there is none */
    double l2;                /* sqrt of the sum of squares of finite elements */
    int64_t int_min, int_max; /* integers and bool, exact; 0 for floats and empty;
                                 uint64: to be read as uint64_t */
    bool sorted;              /* integers: never falls in row-major order */
    bool unique;              /* integers: no value twice; false where not looked for
                                 (more than 2^16 elements that are not sorted). Both are
                                 false for floats */
    int64_t int_above_min; /* integers up to 2^14 elements that go below -1 or beyond */
    int64_t int_below_max; /* 2^24: the smallest value above int_min, the largest below
                              int_max; else those two */
    unsigned structure;    /* USC_STRUCTURE_LIST; found on samples of rows */
    double fill;           /* LOWER, UPPER: what stands beyond the diagonal */
    uint64_t fingerprint;  /* xxh3 of samples, as metrics.md has it: equal elements in
                              the walk's order have equal ones; 0: not taken */
    int64_t n_histogram;   /* finite non-zero elements counted below: all of them up to
                              2^13 elements, else those of every k-th block of 512;
                              floats: broadcast elements once */
    int32_t histogram[2][USC_N_BINADES]; /* [0] positive, [1] negative */
} usc_stats;

/** How large the elements of a tensor are, and how many are no numbers: fields as in
 * usc_stats. What a live session takes of every tensor. */
typedef struct usc_range {
    int64_t n, n_nan, n_pos_inf, n_neg_inf;
    double min, max;
} usc_range;

/* As a count of a range: there are some, nobody counted how many. */
#define USC_COUNT_SOME ((int64_t)1 << 48)

typedef struct usc_stats_options {
    int n_threads;     /* 0 and 1: the caller's thread only; above 16: 16 */
    bool no_histogram; /* leave out the histogram, the structure and the fingerprint */
} usc_stats_options;

/**
 * Computes the statistics of `t`.
 *
 * Shapes:  any, any strides; 0-d and empty are allowed. Float views are walked in memory
 *          order, so that a transposed tensor has the bits of its original; integers in
 *          row-major order.
 * Units:   the tensor's own; l2 likewise.
 * options: NULL: their zero value.
 * Numbers: docs/reference/metrics.md, 1. Sums in double over 16 lanes in blocks of 4096
 *          elements, blocks added in index order within at most 64 spans, spans in index
 *          order: same bits on every ISA, thread count and float mode of the caller.
 * Memory:  allocates nothing (threads: pthread's own), keeps no pointer.
 * Threads: safe while nobody writes `t`.
 * Errors:  USC_E_RANGE, USC_E_SHAPE for a bad view, USC_E_DTYPE for USC_DTYPE_NONE;
 *          *out is zero then.
 */
USC_API USC_NODISCARD usc_status usc_stats_compute(const usc_tensor *t,
                                                   const usc_stats_options *options,
                                                   usc_stats *out, usc_error *err);

/**
 * Computes the range alone, in one pass at the speed of memory.
 *
 * Threads: as usc_stats_compute, and so are shapes and memory; its fields are these bits.
 * Errors:  USC_E_RANGE, USC_E_SHAPE and USC_E_DTYPE as there; *out is zero then.
 */
USC_API USC_NODISCARD usc_status usc_range_compute(const usc_tensor *t, usc_range *out,
                                                   usc_error *err);

/** The range that statistics hold. Threads: any. */
USC_API usc_range usc_range_of(const usc_stats *stats);

USC_END_DECLS
#endif
