// SPDX-License-Identifier: Apache-2.0
// Kernels of the simulated accelerator whose arithmetic can be chosen: in which dtype and
// in what order is added, and what factors are rounded to. Operators that nothing was
// chosen for are the CPU's.
//
// Threads: every function is safe to call from any thread.
#ifndef ULPSCOPE_SIM_NUMERICS_H
#define ULPSCOPE_SIM_NUMERICS_H

#include <ulpscope/dtype.h>

USC_BEGIN_DECLS

typedef enum usc_sim_order {
    USC_SIM_SERIAL,   /* one after the other */
    USC_SIM_PAIRWISE, /* halves, down to 8 */
    USC_SIM_BLOCKS,   /* blocks of n_parts terms, each serial, then their sums */
    USC_SIM_SPLIT_K,  /* n_parts parts, each serial, then their sums */
    USC_SIM_LANES,    /* term i goes to sum i % n_parts; sums in a tree */
    USC_SIM_RANDOM,   /* as atomics do; another order at each call */
} usc_sim_order;

#define USC_SIM_NUMERICS_TEXT 128

/** How an operator computes. */
typedef struct usc_sim_numerics {
    int64_t id;
    char pattern[USC_SIM_NUMERICS_TEXT]; /* of operators, as in usc_sim_fault */
    usc_dtype accumulate; /* float64, float32, float16 or bfloat16; none: float32, and
                             float64 of float64 */
    usc_sim_order order;
    int64_t n_parts;
    uint64_t seed;   /* of random */
    int factor_bits; /* of the significand, to which factors are rounded; 0: their own */
    int factor_emin; /* exponent of the smallest normal factor, where they are rounded */
    bool fma;        /* one rounding for a product and its sum */
    bool online;     /* softmax in one pass over its input */
} usc_sim_numerics;

/** What is computed where nothing is chosen; `pattern` is copied. Errors: USC_E_ARG for a
 * pattern that is none. */
USC_API USC_NODISCARD usc_status usc_sim_numerics_begin(const char *pattern,
                                                        usc_sim_numerics *out,
                                                        usc_error *err);

/**
 * Chooses by words: `accumulate` (a float dtype), `order` (serial, pairwise, blocks:N,
 * split-k:N, lanes:N, random[:SEED]), `factors` (own, tf32, bfloat16, float16), `fma` and
 * `online` (0, 1), `like` (a named set, see usc_sim_numerics_row()).
 *
 * Errors:  USC_E_ARG naming what is wrong and what there is; *n is as it was then.
 */
USC_API USC_NODISCARD usc_status usc_sim_numerics_choose(usc_sim_numerics *n,
                                                         const char *key,
                                                         const char *value,
                                                         usc_error *err);

/** The `i`-th named set: its name, what it chooses ("key=value key=value") and the document
 * that it is taken from; false beyond the last. Memory: static. */
USC_API bool usc_sim_numerics_row(size_t i, const char **name, const char **chooses,
                                  const char **source);

/** From now on operators of the pattern compute so; the last one added counts. n->id is
 * set. Errors: USC_E_ARG where as many are chosen as there is room for. */
USC_API USC_NODISCARD usc_status usc_sim_numerics_add(usc_sim_numerics *n,
                                                      usc_error *err);

/** Takes one back; false where there is none. */
USC_API bool usc_sim_numerics_remove(int64_t id);

/** Whether anything is chosen for any operator. Costs one atomic load. */
USC_API bool usc_sim_numerics_chosen(void);

/** What is chosen for an operator; false: nothing. Costs one atomic load while nothing is
 * chosen for any. */
USC_API bool usc_sim_numerics_of(const char *op, usc_sim_numerics *out);

/** Rounds factors as chosen, in place. */
USC_API void usc_sim_round_factors(const usc_sim_numerics *n, double *factors,
                                   size_t count);

/** The sum of a[i] * b[i], or of a[i] where b is NULL, by `n` for operands of `dtype`. */
USC_API double usc_sim_sum(const usc_sim_numerics *n, usc_dtype dtype, const double *a,
                           const double *b, size_t count);

/** Rounds to the dtype that sums of `dtype` are kept in. */
USC_API double usc_sim_round_sum(const usc_sim_numerics *n, usc_dtype dtype, double x);

/**
 * out[i * n_columns + j] = sum over k of a[i * depth + k] * b[j * depth + k], factors
 * rounded already.
 */
USC_API void usc_sim_products(const usc_sim_numerics *n, usc_dtype dtype, const double *a,
                              const double *b, size_t n_rows, size_t n_columns,
                              size_t depth, double *out);

/** Softmax of a row of numbers of `dtype`; exponentials are rounded to float32, or float64
 * of float64. */
USC_API void usc_sim_softmax(const usc_sim_numerics *n, usc_dtype dtype, const double *x,
                             size_t count, double *out);

USC_END_DECLS
#endif
