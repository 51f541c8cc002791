// SPDX-License-Identifier: Apache-2.0
// The scalar kernels: the definition of the statistics (docs/metrics.md, 1) that every
// other instruction set must meet bit for bit.
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

static void count_special(double x, usc_stats_lanes *lanes)
{
    lanes->n_nan += isnan(x) != 0;
    lanes->n_pos_inf += x > 0.0;
    lanes->n_neg_inf += x < 0.0;
}

/* `smallest` is the smallest normal magnitude of the tensor's dtype. */
static void add_doubles(const double *x, size_t n, double smallest,
                        usc_stats_lanes *lanes)
{
    for (size_t i = 0; i < n; i++) {
        const double magnitude = fabs(x[i]);
        if (!(magnitude <= 0x1.fffffffffffffp1023)) {
            count_special(x[i], lanes);
            continue;
        }
        lanes->sum[i % USC_LANES] += x[i];
        lanes->squares[i % USC_LANES] += x[i] * x[i];
        lanes->n_zero += magnitude == 0.0;
        lanes->n_subnormal += magnitude > 0.0 && magnitude < smallest;
        if (x[i] < lanes->min) lanes->min = x[i];
        if (x[i] > lanes->max) lanes->max = x[i];
    }
}

static void add_floats(usc_dtype dtype, const void *src, size_t n, double smallest,
                       usc_stats_lanes *lanes)
{
    const unsigned char *at = src;
    const size_t size = usc_dtype_info_of(dtype)->size;
    double wide[64]; /* a multiple of the lanes, within a kernel's 1 KiB of stack */
    for (size_t i = 0; i < n; i += 64) {
        const size_t n_now = n - i < 64 ? n - i : 64;
        usc_widen_scalar[dtype](at + i * size, wide, n_now);
        add_doubles(wide, n_now, smallest, lanes);
    }
}

static void stats_f64(const void *src, size_t n, usc_stats_lanes *lanes)
{
    add_doubles(src, n, 0x1p-1022, lanes);
}

static void stats_f32(const void *src, size_t n, usc_stats_lanes *lanes)
{
    add_floats(USC_F32, src, n, 0x1p-126, lanes);
}

static void stats_f16(const void *src, size_t n, usc_stats_lanes *lanes)
{
    add_floats(USC_F16, src, n, 0x1p-14, lanes);
}

static void stats_bf16(const void *src, size_t n, usc_stats_lanes *lanes)
{
    add_floats(USC_BF16, src, n, 0x1p-126, lanes);
}

#define BYTE_FLOAT(name, row, tiny)                                                      \
    static void stats_##name(const void *src, size_t n, usc_stats_lanes *lanes)          \
    {                                                                                    \
        add_floats(row, src, n, tiny, lanes);                                            \
    }
BYTE_FLOAT(e5m2, USC_F8_E5M2, 0x1p-14)
BYTE_FLOAT(e4m3fn, USC_F8_E4M3, 0x1p-6)
BYTE_FLOAT(e5m2fnuz, USC_F8_E5M2FNUZ, 0x1p-15)
BYTE_FLOAT(e4m3fnuz, USC_F8_E4M3FNUZ, 0x1p-7)
#undef BYTE_FLOAT

static bool load_bool(const void *src, size_t i)
{
    return ((const uint8_t *)src)[i] != 0;
}

static int64_t load_i64(const void *src, size_t i)
{
    return ((const int64_t *)src)[i];
}

static int32_t load_i32(const void *src, size_t i)
{
    return ((const int32_t *)src)[i];
}

static int16_t load_i16(const void *src, size_t i)
{
    return ((const int16_t *)src)[i];
}

static int8_t load_i8(const void *src, size_t i)
{
    return ((const int8_t *)src)[i];
}

static uint64_t load_u64(const void *src, size_t i)
{
    return ((const uint64_t *)src)[i];
}

static uint32_t load_u32(const void *src, size_t i)
{
    return ((const uint32_t *)src)[i];
}

static uint16_t load_u16(const void *src, size_t i)
{
    return ((const uint16_t *)src)[i];
}

static uint8_t load_u8(const void *src, size_t i)
{
    return ((const uint8_t *)src)[i];
}

#define T int64_t
#define LOAD load_bool
#define NAME stats_bool
#include "kernels/stats_int.inc"

#define T int64_t
#define LOAD load_i64
#define NAME stats_i64
#include "kernels/stats_int.inc"

#define T int64_t
#define LOAD load_i32
#define NAME stats_i32
#include "kernels/stats_int.inc"

#define T int64_t
#define LOAD load_i16
#define NAME stats_i16
#include "kernels/stats_int.inc"

#define T int64_t
#define LOAD load_i8
#define NAME stats_i8
#include "kernels/stats_int.inc"

#define T uint64_t
#define LOAD load_u64
#define NAME stats_u64
#include "kernels/stats_int.inc"

#define T int64_t
#define LOAD load_u32
#define NAME stats_u32
#include "kernels/stats_int.inc"

#define T int64_t
#define LOAD load_u16
#define NAME stats_u16
#include "kernels/stats_int.inc"

#define T int64_t
#define LOAD load_u8
#define NAME stats_u8
#include "kernels/stats_int.inc"

void usc_kernels_fill_scalar(usc_kernels *kernels)
{
    memcpy(kernels->widen, usc_widen_scalar, sizeof kernels->widen);
    usc_stats_function *const rows[USC_N_DTYPES] = {
        [USC_DTYPE_NONE] = stats_u8,
        [USC_F64] = stats_f64,
        [USC_F32] = stats_f32,
        [USC_F16] = stats_f16,
        [USC_BF16] = stats_bf16,
        [USC_I64] = stats_i64,
        [USC_I32] = stats_i32,
        [USC_I16] = stats_i16,
        [USC_I8] = stats_i8,
        [USC_U64] = stats_u64,
        [USC_U32] = stats_u32,
        [USC_U16] = stats_u16,
        [USC_U8] = stats_u8,
        [USC_BOOL] = stats_bool,
        [USC_F8_E5M2] = stats_e5m2,
        [USC_F8_E4M3] = stats_e4m3fn,
        [USC_F8_E5M2FNUZ] = stats_e5m2fnuz,
        [USC_F8_E4M3FNUZ] = stats_e4m3fnuz,
    };
    memcpy(kernels->stats, rows, sizeof rows);
}
