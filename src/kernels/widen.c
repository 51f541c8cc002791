// SPDX-License-Identifier: Apache-2.0
// Widening through the kernel table. Neighbour: tensor/dtype.c holds the definition and
// the way back, which has one form.
#include "kernels/kernels.h"

#include "base/float_env.h"

void usc_kernels_widen(usc_dtype dtype, const void *src, double *dst, size_t n)
{
    const bool listed = (int)dtype > 0 && dtype < USC_N_DTYPES;
    const usc_float_env env = usc_float_env_enter();
    usc_kernels_get()->widen[listed ? dtype : USC_DTYPE_NONE](src, dst, n);
    usc_float_env_leave(env);
}
