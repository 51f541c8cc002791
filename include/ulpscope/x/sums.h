// SPDX-License-Identifier: Apache-2.0
// What a watch wants of a tensor at each step, in one pass at the speed of memory: how
// large it is, what is not finite, and a hash of its bits.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_SUMS_H
#define ULPSCOPE_X_SUMS_H

#include <ulpscope/tensor.h>

USC_BEGIN_DECLS

typedef struct usc_sums {
    double max_abs;      /* over finite elements; 0 where there is none */
    double sum_abs;      /* over finite elements */
    double sum_sq;       /* over finite elements; of float64 it may be Inf */
    int64_t numel;       /* elements looked at: all of them */
    int64_t n_nonfinite; /* NaN and Inf */
    int64_t n_zero;      /* +0 and -0 */
    uint64_t hash64;     /* of the bytes, docs/reference/metrics.md, 1.6 */
} usc_sums;

/**
 * Computes them. Of a view the elements come in the order of memory, so that a transposed
 * tensor has the sums of its original; broadcast elements count once.
 *
 * Shapes:  any, any strides; 0-d and empty are allowed.
 * Units:   the tensor's own; integers and bool as numbers.
 * Numbers: docs/reference/metrics.md, 1.6: sums in double over 16 lanes in blocks of 4096
 * elements, blocks added in index order: same bits on every ISA. The hash is a sum over
 *          words of 8 bytes that depends on their places: of two parts of a tensor, cut
 *          where a word ends, it may be taken apart, in any order; any change of one bit
 *          changes it for certain.
 * Memory:  allocates nothing, keeps no pointer.
 * Threads: safe while nobody writes `t`.
 * Errors:  USC_E_RANGE, USC_E_SHAPE for a bad view, USC_E_DTYPE for USC_DTYPE_NONE;
 *          *out is zero then.
 */
USC_API USC_NODISCARD usc_status usc_sums_compute(const usc_tensor *t, usc_sums *out,
                                                  usc_error *err);

/**
 * The same without the hash, which stays 0: where nothing is compared bit by bit. It
 * takes two thirds of the time.
 *
 * Shapes:  as usc_sums_compute.
 * Units:   as there.
 * Numbers: as there: the same bits.
 * Memory:  allocates nothing, keeps no pointer.
 * Threads: safe while nobody writes `t`.
 * Errors:  as usc_sums_compute; *out is zero then.
 */
USC_API USC_NODISCARD usc_status usc_sums_magnitudes(const usc_tensor *t, usc_sums *out,
                                                     usc_error *err);

USC_END_DECLS
#endif
