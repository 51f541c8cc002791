// SPDX-License-Identifier: Apache-2.0
// The strided view through which every tensor is seen. Borrows; is never freed.
//
// Threads: safe while nobody writes the view itself; none of these looks at elements.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_TENSOR_H
#define ULPSCOPE_TENSOR_H

#include <ulpscope/dtype.h>

USC_BEGIN_DECLS

#define USC_MAX_DIMS 32

typedef struct usc_tensor {
    const void *data; /* borrowed; no function of the library writes through a view */
    usc_dtype dtype;
    int ndim;
    int64_t sizes[USC_MAX_DIMS];
    int64_t strides[USC_MAX_DIMS]; /* in elements; any sign, 0 repeats an element */
} usc_tensor;

/**
 * Builds a contiguous view of `ndim` `sizes` over `data`.
 *
 * Errors:  USC_E_SHAPE for ndim outside [0, USC_MAX_DIMS] or a negative size (where: the
 *          axis), USC_E_RANGE where the element count or bytes overflow int64_t.
 */
USC_API USC_NODISCARD usc_status usc_tensor_make(usc_tensor *out, const void *data,
                                                 usc_dtype dtype, int ndim,
                                                 const int64_t *sizes, usc_error *err);

/**
 * Number of elements; 1 for 0-d.
 *
 * Errors:  USC_E_RANGE where the product overflows int64_t, USC_E_SHAPE for bad sizes;
 *          *out is 0 then.
 */
USC_API USC_NODISCARD usc_status usc_tensor_numel(const usc_tensor *t, int64_t *out,
                                                  usc_error *err);

/**
 * Bytes from the lowest to the end of the highest addressed element, and how many bytes
 * below `data` the lowest one lies (0 unless a stride is negative). Both 0 for empty.
 *
 * Errors:  USC_E_RANGE where a product overflows int64_t; outputs are 0 then.
 */
USC_API USC_NODISCARD usc_status usc_tensor_extent(const usc_tensor *t, int64_t *bytes,
                                                   int64_t *below, usc_error *err);

/** Whether elements lie in row-major order without gaps (axes of size 1 do not count). */
USC_API bool usc_tensor_contiguous(const usc_tensor *t);

USC_END_DECLS
#endif
