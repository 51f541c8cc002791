// SPDX-License-Identifier: Apache-2.0
// Magnitudes and the hash of a watch, scalar: the definition
// (docs/reference/metrics.md, 1.6) that every other instruction set must meet bit for
// bit.
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

static void add_magnitudes(const double *x, size_t n, usc_sums_lanes *lanes)
{
    for (size_t i = 0; i < n; i++) {
        const double magnitude = fabs(x[i]);
        if (!(magnitude <= 0x1.fffffffffffffp1023)) {
            lanes->n_nonfinite++;
            continue;
        }
        lanes->sum[i % USC_LANES] += magnitude;
        lanes->squares[i % USC_LANES] += magnitude * magnitude;
        lanes->n_zero += magnitude == 0.0;
        if (magnitude > lanes->max) lanes->max = magnitude;
    }
}

void usc_sums_scalar(usc_dtype dtype, const void *src, size_t n, usc_sums_lanes *lanes)
{
    const unsigned char *at = src;
    const size_t size = usc_dtype_info_of(dtype)->size;
    double wide[64]; /* a multiple of the lanes, within a kernel's 1 KiB of stack */
    for (size_t i = 0; i < n; i += 64) {
        const size_t n_now = n - i < 64 ? n - i : 64;
        usc_widen_scalar[dtype](at + i * size, wide, n_now);
        add_magnitudes(wide, n_now, lanes);
    }
}

/* Of each row of the list its loop. */
#define LOOP(id, ...)                                                                    \
    static void sums_##id(const void *src, size_t n, usc_sums_lanes *lanes)              \
    {                                                                                    \
        usc_sums_scalar(USC_##id, src, n, lanes);                                        \
    }
USC_DTYPE_LIST(LOOP)
#undef LOOP

/* (low + 2^32) (high + 1) - 2^32: no change of a single bit leaves it as it was. */
static uint64_t mixed(uint64_t word, uint64_t key)
{
    const uint64_t x = word ^ key;
    return (x & UINT32_MAX) * (x >> 32) + x;
}

uint64_t usc_mix_scalar(const void *src, size_t n_words, uint64_t first)
{
    const unsigned char *at = src;
    uint64_t sum = 0, key = (first + 1) * USC_MIX_STEP;
    for (size_t i = 0; i < n_words; i++, key += USC_MIX_STEP) {
        uint64_t word;
        memcpy(&word, at + 8 * i, 8);
        sum += mixed(word, key);
    }
    return sum;
}

void usc_kernels_fill_sums(usc_kernels *kernels)
{
#define ROW(id, ...) [USC_##id] = sums_##id,
    usc_sums_function *const rows[USC_N_DTYPES] = {[USC_DTYPE_NONE] = sums_U8,
                                                   USC_DTYPE_LIST(ROW)};
#undef ROW
    memcpy(kernels->sums, rows, sizeof rows);
    kernels->mix = usc_mix_scalar;
}
