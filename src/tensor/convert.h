// SPDX-License-Identifier: Apache-2.0
// Scalar conversions per dtype: the definition that every faster loop is held against.
// Float formats are taken apart as integers, so the thread's float modes do not matter.
#ifndef USC_DTYPE_CONVERT_H
#define USC_DTYPE_CONVERT_H

#include <ulpscope/dtype.h>

typedef void usc_widen_function(const void *src, double *dst, size_t n);
typedef void usc_narrow_function(const double *src, void *dst, size_t n);

/* One per dtype; USC_DTYPE_NONE reads and writes bytes as uint8. */
extern usc_widen_function *const usc_widen_scalar[USC_N_DTYPES];
extern usc_narrow_function *const usc_narrow_scalar[USC_N_DTYPES];

#endif
