// SPDX-License-Identifier: Apache-2.0
// Sums kept in float32, many at a time: each lane of a vector is a sum of its own, added in
// the order that kernels.c defines, bit by bit. What has no such form (sums of another dtype,
// sums that a fault breaks) is kernels.c's alone. fast_base.c, fast_avx2.c and fast_avx512.c
// are fast_lanes.h in three instruction sets; fast.c puts sums together.
#ifndef USC_SIM_FAST_H
#define USC_SIM_FAST_H

#include <ulpscope_sim/numerics.h>

/* The widest of the three; sums side by side in a product are two vectors. */
#define FAST_MOST_LANES 16
#define FAST_ROWS 6

typedef usc_sim_rows fast_rows;

/* A row of a norm whose gradient is wanted; mean and scale as the norm took them. */
typedef struct fast_norm_row {
    const float *x, *grad, *weight; /* weight NULL: 1 */
    size_t n;
    float mean, scale;
} fast_norm_row;

/* A function of each number of a block. The polynomials' terms are those that are rounded,
 * from the lowest: of e^r (n_terms 0: exactly), and of tanh near 0. */
#define FAST_BLOCK 64
#define FAST_MOST_TERMS 21
#define FAST_TANGENT_TERMS 7
typedef struct fast_map {
    usc_sim_function function;
    bool fma;
    size_t n_terms;
    float terms[FAST_MOST_TERMS], tangent[FAST_TANGENT_TERMS];
} fast_map;

/* A step of an optimizer: of Adam, whose moments are `mean` and `square`, the largest square
 * so far `most` (NULL: not wanted), `size` that of the step and `root` what squares are
 * divided by; or of SGD, whose momentum is `mean` (NULL: none). */
typedef struct fast_step {
    const usc_sim_step *step;
    bool fma;
    double size, root;
    const float *grad;
    float *param, *mean, *square, *most;
} fast_step;

/* What one instruction set has. */
typedef struct fast_isa {
    const char *name;
    size_t lanes;
    bool fused; /* it has a multiplication that rounds once with the addition */
    /* to[k * width + i] = row i, term walk[k] (NULL: k); rows beyond `n` are 0. */
    void (*pack)(const fast_rows *rows, size_t n, size_t width, const uint32_t *walk,
                 size_t n_terms, float *to);
    /* Serial sums from 0 of terms from..to; FAST_ROWS x 2 vectors of products. */
    void (*products)(const float *a, const float *b, size_t from, size_t to, bool fma,
                     float *sums);
    void (*sums)(const float *terms, size_t from, size_t to, float *sums); /* a vector */
    void (*add)(float *to, const float *more, size_t n); /* n: of whole vectors */
    /* out[i] = a[i] + b[i] */
    void (*plus)(const float *a, const float *b, size_t n, float *out);
    /* out[i] = float32 of exp(x[i] - less), the difference in float64. */
    void (*exponentials)(const float *x, double less, size_t n, float *out);
    void (*wide_exponentials)(double *x, double less, size_t n); /* in place */
    /* FAST_BLOCK numbers; false: one of them is to be asked one by one. */
    bool (*map)(const fast_map *m, const float *x, float *out);
    /* Of n numbers, but what is left over of whole vectors of doubles. */
    void (*adam)(const fast_step *f, size_t n);
    void (*sgd)(const fast_step *f, size_t n);
    /* out[i] = x[i] * mask[i] * scale */
    void (*dropped)(const float *x, const bool *mask, float scale, size_t n, float *out);
    void (*scaled)(const float *x, float less, float by, size_t n, float *out);
    void (*shifted)(float *x, float by, size_t n);
    void (*divided)(float *x, float by, size_t n);
    void (*squares)(const float *x, float less, size_t n, float *out);
    void (*affine)(float *x, const float *weight, const float *bias, size_t n);
    void (*norm_terms)(const fast_norm_row *row, float *out, float *along);
    void (*norm_gradient)(const fast_norm_row *row, float along, float sum, float *out);
    float (*most)(const float *x, size_t n, bool *has_nan);
} fast_isa;

extern const fast_isa usc_sim_fast_base, usc_sim_fast_avx2, usc_sim_fast_avx512;

/** That of usc_kernels_isa(). */
const fast_isa *usc_sim_fast_isa(void);

/** kernels.c: where a sum in random order begins, and how far it goes each time. */
void usc_sim_walk(uint64_t seed, size_t count, size_t *at, size_t *step);

/** Whether sums of `dtype` by `n` have a fast form. */
bool usc_sim_is_fast(const usc_sim_numerics *n, usc_dtype dtype);

/** out[i] = sum of row i; false: no memory. */
bool usc_sim_fast_sums(const fast_isa *isa, const usc_sim_numerics *n,
                       const fast_rows *rows, size_t n_rows, size_t n_terms, float *out);

/** out[i * out_row + j] = sum over k of a[i, k] * b[j, k]; false: no memory. */
bool usc_sim_fast_products(const fast_isa *isa, const usc_sim_numerics *n,
                           const fast_rows *a, const fast_rows *b, size_t n_rows,
                           size_t n_columns, size_t n_terms, float *out,
                           ptrdiff_t out_row);

/** The same of numbers in doubles; false also where one of them is no float32. */
bool usc_sim_fast_wide_products(const usc_sim_numerics *n, usc_dtype dtype,
                                const double *a, const double *b, size_t n_rows,
                                size_t n_columns, size_t n_terms, double *out);

#endif
