// SPDX-License-Identifier: Apache-2.0
// A matrix product held to the sums of its operands: how far its rows may be off by
// rounding alone, and whether one that is further off was computed wrongly. Who computes
// the sums, on whatever device, feeds a watch (watch.h) with what comes of it.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_WATCH_PRODUCTS_H
#define ULPSCOPE_X_WATCH_PRODUCTS_H

#include <ulpscope/dtype.h>

USC_BEGIN_DECLS

/* The columns that share a sum: errors of roundings grow with the square root of their
 * number, a single wrong element does not. */
#define USC_PRODUCT_COLUMNS 256

/* Y = A B^T (+ a bias by columns). */
typedef struct usc_product {
    usc_dtype dtype; /* of Y, and of A and B as they were multiplied */
    double unit;     /* unit roundoff of the accumulation; 0: 2^-24, of float64 2^-53 */
    int64_t n_inner; /* columns of A and B */
} usc_product;

/* Of one row of Y and some of its columns J, in double. Members in this order without
 * gaps: a table of four float64 a line is a list of these. */
typedef struct usc_product_sums {
    double sum;      /* sum over j in J of y_j */
    double expected; /* sum over k of a_k (sum over j of b_jk), and that of the bias */
    double squares;  /* sum over j of y_j^2 */
    double terms;    /* sum over j and k of (a_k b_jk)^2 */
} usc_product_sums;

/**
 * The largest |sum - expected| / bound of n of them; the bound is 8 standard deviations
 *
 *     sqrt(eps^2 / 12 squares + unit^2 n_inner (terms + squares))
 *
 * of the results' rounding and of the accumulation: a normal variable exceeds it with
 * 1e-15. Above 1 is a suspicion.
 *
 * Numbers: eps of the dtype; an operand that is not finite (expected or terms are not):
 *          nothing is said of that sum, 0. Results that are not finite of finite
 *          operands: Inf; whether the dtype overflowed is for usc_product_settle.
 * Memory:  allocates nothing; *worst is the place of the largest, -1 where there is none.
 *          NULL is allowed.
 * Threads: safe while nobody writes `sums`.
 */
USC_API double usc_product_over(const usc_product *p, const usc_product_sums *sums,
                                int64_t n, int64_t *worst);

typedef enum usc_product_verdict {
    USC_PRODUCT_RIGHT,   /* the suspicion is taken back */
    USC_PRODUCT_PASSING, /* wrong, and right when it is computed again */
    USC_PRODUCT_LASTING  /* wrong again when it is computed again */
} usc_product_verdict;

/* The sum `sum` of a suspect, computed anew: in the same way, by another route on the
 * same device (transposed), and in double and another order, rounded to the dtype. */
typedef struct usc_product_again {
    double same, other, wide;
} usc_product_again;

/**
 * Decides on a suspicion: what was computed is wrong where both other ways are within the
 * bound of each other and beyond it from the original. Without that it is taken back: who
 * is right is not known then. One that is not finite agrees with another that is not: the
 * dtype overflows for all.
 *
 * Memory:  allocates nothing.
 * Threads: safe.
 */
USC_API usc_product_verdict usc_product_settle(const usc_product *p,
                                               const usc_product_sums *suspect,
                                               const usc_product_again *again);

USC_END_DECLS
#endif
