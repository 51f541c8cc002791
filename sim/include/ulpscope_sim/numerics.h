// SPDX-License-Identifier: Apache-2.0
// Kernels of the simulated accelerator whose arithmetic can be chosen: in which dtype and
// in what order is added, and what factors are rounded to. Operators that nothing was
// chosen for are the CPU's.
//
// Threads: every function is safe to call from any thread.
#ifndef ULPSCOPE_SIM_NUMERICS_H
#define ULPSCOPE_SIM_NUMERICS_H

#include <ulpscope/dtype.h>
#include <ulpscope_sim/fault.h>

USC_BEGIN_DECLS

typedef enum usc_sim_order {
    USC_SIM_SERIAL,   /* one after the other */
    USC_SIM_PAIRWISE, /* halves, down to 8 */
    USC_SIM_BLOCKS,   /* blocks of n_parts terms, each serial, then their sums */
    USC_SIM_SPLIT_K,  /* n_parts parts, each serial, then their sums */
    USC_SIM_LANES,    /* term i goes to sum i % n_parts; sums in a tree */
    USC_SIM_RANDOM,   /* as atomics do; another order at each call */
} usc_sim_order;

/* How a norm takes its variance. */
typedef enum usc_sim_variance {
    USC_SIM_TWO_PASS, /* the mean first */
    USC_SIM_WELFORD,  /* in one pass, by what each value adds */
    USC_SIM_CHUNKS,   /* of parts of 64, put together (Chan) */
    USC_SIM_MOMENTS,  /* E[x^2] - E[x]^2 */
    USC_SIM_UNBIASED, /* by n - 1 */
} usc_sim_variance;

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
    usc_sim_variance variance;
    bool epsilon_outside; /* 1 / (sqrt(variance) + epsilon) */
    usc_dtype scale;      /* dtype of the factor of a row that is normed; none: sums' */
    int64_t degree; /* of the polynomial that exponentials are taken by; 0: exactly */
    int64_t tile;   /* attention: keys at a time, softmax going along; 0: all */
    /* What no honest kernel does. */
    bool lacks_term, has_twice;
    int64_t term;        /* of every sum: the term that it lacks, or has twice */
    int64_t group;       /* sums lack what is left over of whole groups; 0: they do not */
    int64_t causal_rows; /* queries that share one causal mask; 0: each has its own */
} usc_sim_numerics;

/** What is computed where nothing is chosen; `pattern` is copied. Errors: USC_E_ARG for a
 * pattern that is none. */
USC_API USC_NODISCARD usc_status usc_sim_numerics_begin(const char *pattern,
                                                        usc_sim_numerics *out,
                                                        usc_error *err);

/**
 * Chooses by words: `accumulate` (a float dtype), `order` (serial, pairwise, blocks:N,
 * split-k:N, lanes:N, random[:SEED]), `factors` (own, tf32, bfloat16, float16), `fma` and
 * `online` (0, 1), `variance` (two-pass, welford, chunks, moments, unbiased), `epsilon`
 * (inside, outside), `scale` (a float dtype), `tile` and `degree` (N, 0 for none), `like` (a named set,
 * see usc_sim_numerics_row()).
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

/** What a fault of USC_SIM_STAGE_NATIVE makes of it; false for other kinds. */
USC_API bool usc_sim_numerics_break(usc_sim_numerics *n, const usc_sim_fault *fault);

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

/** sums[i] = alpha * sums[i] + beta * self[i], each step rounded as sums are; beta 0: self is
 * not read. */
USC_API void usc_sim_add_self(const usc_sim_numerics *n, usc_dtype dtype, double alpha,
                              double beta, const double *self, size_t count,
                              double *sums);

/** out[i] = the sum of x up to i, one after the other. */
USC_API void usc_sim_running_sum(const usc_sim_numerics *n, usc_dtype dtype,
                                 const double *x, size_t count, double *out);

typedef enum usc_sim_function {
    USC_SIM_EXP,
    USC_SIM_TANH,
    USC_SIM_SIGMOID,
    USC_SIM_SILU,
    USC_SIM_GELU,      /* by erf */
    USC_SIM_GELU_TANH, /* by tanh */
} usc_sim_function;

/** A function of each number, each step rounded as sums are; exponentials by a polynomial,
 * where n->degree asks for one. */
USC_API void usc_sim_map(const usc_sim_numerics *n, usc_dtype dtype,
                         usc_sim_function function, const double *x, size_t count,
                         double *out);

/** Dropout: out[i] = x[i] * mask[i] * scale, the scale and the product rounded as sums are. */
USC_API void usc_sim_drop(const usc_sim_numerics *n, usc_dtype dtype, const double *x,
                          const bool *mask, double scale, size_t count, double *out);

/** One step of an optimizer. */
typedef struct usc_sim_step {
    double lr, weight_decay, n_steps; /* n_steps: this one counted */
    double beta1, beta2, epsilon;     /* of Adam */
    double momentum, dampening;       /* of SGD */
    bool decoupled;                   /* AdamW: weights shrink, gradients do not grow */
    bool maximize, nesterov, first;   /* first: the momentum begins */
} usc_sim_step;

/** Adam and AdamW in place, each step rounded as sums are; `most` NULL: no amsgrad. */
USC_API void usc_sim_adam(const usc_sim_numerics *n, usc_dtype dtype,
                          const usc_sim_step *step, const double *grad, size_t count,
                          double *param, double *mean, double *square, double *most);

/** SGD in place; `momentum` NULL: without. */
USC_API void usc_sim_sgd(const usc_sim_numerics *n, usc_dtype dtype,
                         const usc_sim_step *step, const double *grad, size_t count,
                         double *param, double *momentum);

/** Softmax of a row of numbers of `dtype`; exponentials are rounded to float32, or float64
 * of float64. */
USC_API void usc_sim_softmax(const usc_sim_numerics *n, usc_dtype dtype, const double *x,
                             size_t count, double *out);

/** Its logarithm: x less the largest, less the logarithm of the sum. */
USC_API void usc_sim_log_softmax(const usc_sim_numerics *n, usc_dtype dtype,
                                 const double *x, size_t count, double *out);

/** A row that is normed. */
typedef struct usc_sim_norm {
    const double *x, *weight, *bias; /* NULL: 1, 0; weight[i * step] */
    size_t n, n_each;                /* values; and how many in a row have one weight */
    double epsilon;
    bool by_mean; /* less its mean; else the root of the mean square */
} usc_sim_norm;

/** Mean (0 without by_mean), variance and 1 / root of a row, and the row itself in `out`
 * (NULL: not wanted). weight and bias have n / n_each numbers. */
USC_API void usc_sim_norm_row(const usc_sim_numerics *n, usc_dtype dtype,
                              const usc_sim_norm *norm, double *mean, double *variance,
                              double *scale, double *out);

/** 1 / root of a variance that was taken before. */
USC_API double usc_sim_norm_scale(const usc_sim_numerics *n, usc_dtype dtype,
                                  double variance, double epsilon);

/** The same with a scale that was taken before. */
USC_API void usc_sim_norm_apply(const usc_sim_numerics *n, usc_dtype dtype,
                                const usc_sim_norm *norm, double mean, double scale,
                                double *out);

/** The gradient of a row's `x`: what comes back for it is `grad`; NULL weight: 1. */
USC_API void usc_sim_norm_back(const usc_sim_numerics *n, usc_dtype dtype,
                               const usc_sim_norm *norm, const double *grad, double mean,
                               double scale, double *out);

/* ---- rows of float32 ------------------------------------------------------------------- */

/* The same, bit for bit, of many rows at once, where they lie and as fast as the processor
 * allows. Each returns false where `n` has no such form for operands of `dtype` (sums that
 * are not kept in float32, or that a fault breaks) or there is no memory: nothing was done
 * that counts, and the functions above are to be taken. */

/** Whether `n` has such a form for operands of `dtype`. */
USC_API bool usc_sim_keeps_float32(const usc_sim_numerics *n, usc_dtype dtype);

/** Row i, term k lies at at[i * row + k * term]. */
typedef struct usc_sim_rows {
    const float *at;
    ptrdiff_t row, term;
} usc_sim_rows;

/** out[i] = usc_sim_sum() of row i. */
USC_API bool usc_sim_sum_rows(const usc_sim_numerics *n, usc_dtype dtype,
                              const usc_sim_rows *rows, size_t n_rows, size_t n_terms,
                              float *out);

/** out[i * n_columns + j] = sum over k of a[i, k] * b[j, k], factors rounded already. */
USC_API bool usc_sim_product_rows(const usc_sim_numerics *n, usc_dtype dtype,
                                  const usc_sim_rows *a, const usc_sim_rows *b,
                                  size_t n_rows, size_t n_columns, size_t n_terms,
                                  float *out);

/** usc_sim_map() of each number; `out` overlaps nothing. */
USC_API bool usc_sim_map_floats(const usc_sim_numerics *n, usc_dtype dtype,
                                usc_sim_function function, const float *x, size_t count,
                                float *out);

/** usc_sim_softmax() of rows that lie one behind the other. */
USC_API bool usc_sim_softmax_rows(const usc_sim_numerics *n, usc_dtype dtype,
                                  const float *x, size_t n_rows, size_t count,
                                  float *out);

/** usc_sim_drop(). */
USC_API bool usc_sim_drop_floats(const usc_sim_numerics *n, usc_dtype dtype,
                                 const float *x, const bool *mask, double scale,
                                 size_t count, float *out);

/** usc_sim_log_softmax() of rows that lie one behind the other. */
USC_API bool usc_sim_log_softmax_rows(const usc_sim_numerics *n, usc_dtype dtype,
                                      const float *x, size_t n_rows, size_t count,
                                      float *out);

/** usc_sim_running_sum() along the middle of n_rows x count x width numbers. */
USC_API bool usc_sim_running_sums(const usc_sim_numerics *n, usc_dtype dtype,
                                  const float *x, size_t n_rows, size_t count,
                                  size_t width, float *out);

/** What is added up by index: row i of `more` to row index[i] of n_rows rows, of `width`
 * numbers each; to none where there is no such row. */
typedef struct usc_sim_added {
    const int64_t *index;
    size_t n_index;
    const float *more;
    size_t width, n_rows;
    bool with_own; /* what a row held is its first term */
} usc_sim_added;

/** Each number of `out` that something is added to becomes usc_sim_sum() of its terms, as they
 * come; others stay. Where it returns false, rows may have been written. */
USC_API bool usc_sim_add_rows(const usc_sim_numerics *n, usc_dtype dtype,
                              const usc_sim_added *added, float *out);

/** usc_sim_adam() and usc_sim_sgd(). */
USC_API bool usc_sim_adam_floats(const usc_sim_numerics *n, usc_dtype dtype,
                                 const usc_sim_step *step, const float *grad,
                                 size_t count, float *param, float *mean, float *square,
                                 float *most);
USC_API bool usc_sim_sgd_floats(const usc_sim_numerics *n, usc_dtype dtype,
                                const usc_sim_step *step, const float *grad, size_t count,
                                float *param, float *momentum);

/** Rows that are normed, one behind the other. The weights of row i begin at
 * i % period * (n / n_each). */
typedef struct usc_sim_norms {
    const float *x, *weight, *bias; /* NULL: 1, 0 */
    size_t n_rows, n, n_each, period;
    double epsilon;
    bool by_mean;
} usc_sim_norms;

/** usc_sim_norm_row() of each; n_rows means, variances and scales. */
USC_API bool usc_sim_norm_rows(const usc_sim_numerics *n, usc_dtype dtype,
                               const usc_sim_norms *norms, float *mean, float *variance,
                               float *scale, float *out);

/** usc_sim_norm_apply() of each, in an arithmetic whose sums are kept in float32. */
USC_API void usc_sim_norm_apply_rows(const usc_sim_norms *norms, const float *mean,
                                     const float *scale, float *out);

/** What comes back for weights and bias, n_each = 1, period = 1: usc_sim_sum() over the rows of
 * grad * ((x - mean) * scale), each step rounded, and of grad. */
USC_API bool usc_sim_norm_back_weights(const usc_sim_numerics *n, usc_dtype dtype,
                                       const usc_sim_norms *norms, const float *grad,
                                       const float *mean, const float *scale,
                                       float *weight, float *bias);

/** usc_sim_norm_back() of each, n_each = 1. */
USC_API bool usc_sim_norm_back_rows(const usc_sim_numerics *n, usc_dtype dtype,
                                    const usc_sim_norms *norms, const float *grad,
                                    const float *mean, const float *scale, float *out);

/* ---- attention -------------------------------------------------------------------------- */

/** One head of attention: rows of queries, keys and values, row-major. */
typedef struct usc_sim_attention {
    const double *q, *k, *v, *mask; /* mask: n_queries x n_keys, added; NULL: none */
    size_t n_queries, n_keys, n_depth, n_out;
    double scale;
    bool causal;
} usc_sim_attention;

/** Its output, n_queries x n_out, and the logarithm of the sum of exponentials of each
 * query. Returns false where there is no memory. */
USC_API bool usc_sim_attend(const usc_sim_numerics *n, usc_dtype dtype,
                            const usc_sim_attention *a, double *out, double *logsumexp);

/** The gradients of q, k and v from that of the output, and what usc_sim_attend() gave.
 * Probabilities are computed anew from logsumexp. Returns false where there is no memory. */
USC_API bool usc_sim_attend_back(const usc_sim_numerics *n, usc_dtype dtype,
                                 const usc_sim_attention *a, const double *out,
                                 const double *logsumexp, const double *grad, double *q,
                                 double *k, double *v);

USC_END_DECLS
#endif
