// SPDX-License-Identifier: Apache-2.0
// The dtype table, made from the one list, and the public doors to the conversions.
// Neighbour: kernels/widen.c widens faster, to the same bits.
#include <ulpscope/dtype.h>

#include "base/float_env.h"
#include "tensor/convert.h"

#include <string.h>

static const usc_dtype_info table[USC_N_DTYPES] = {
    [USC_DTYPE_NONE] = {.name = "unknown", .file_name = "U8", .size = 1},
#define ROW(id, torch_name, st_name, bytes, what, sig, low, high, what_top, most)        \
    [USC_##id] = {.name = (torch_name),                                                  \
                  .file_name = (st_name),                                                \
                  .size = (bytes),                                                       \
                  .kind = (what),                                                        \
                  .sig_bits = (sig),                                                     \
                  .emin = (low),                                                         \
                  .emax = (high),                                                        \
                  .top = (what_top),                                                     \
                  .largest = (most)},
    USC_DTYPE_LIST(ROW)
#undef ROW
};

static usc_dtype listed(usc_dtype dtype)
{
    return (int)dtype > 0 && dtype < USC_N_DTYPES ? dtype : USC_DTYPE_NONE;
}

const usc_dtype_info *usc_dtype_info_of(usc_dtype dtype)
{
    return &table[listed(dtype)];
}

usc_dtype usc_dtype_by_name(const char *name)
{
    if (name == NULL) return USC_DTYPE_NONE;
    if (strncmp(name, "torch.", 6) == 0) name += 6;
    for (int i = USC_DTYPE_NONE + 1; i < USC_N_DTYPES; i++)
        if (strcmp(name, table[i].name) == 0 || strcmp(name, table[i].file_name) == 0)
            return (usc_dtype)i;
    return USC_DTYPE_NONE;
}

void usc_dtype_widen(usc_dtype dtype, const void *src, double *dst, size_t n)
{
    const usc_float_env env = usc_float_env_enter();
    usc_widen_scalar[listed(dtype)](src, dst, n);
    usc_float_env_leave(env);
}

void usc_dtype_narrow(usc_dtype dtype, const double *src, void *dst, size_t n)
{
    const usc_float_env env = usc_float_env_enter(); /* rint() follows its rounding */
    usc_narrow_scalar[listed(dtype)](src, dst, n);
    usc_float_env_leave(env);
}
