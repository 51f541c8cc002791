// SPDX-License-Identifier: Apache-2.0
// The scalar kernels: the definition of the statistics (docs/reference/metrics.md, 1)
// that every other instruction set must meet bit for bit.
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

static void count_special(double x, usc_stats_lanes *lanes)
{
    lanes->n_nan += isnan(x) != 0;
    lanes->n_pos_inf += x > 0.0;
    lanes->n_neg_inf += x < 0.0;
}

static void add_to_range(double x, usc_stats_lanes *lanes)
{
    if (x < lanes->min) lanes->min = x;
    if (x > lanes->max) lanes->max = x;
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
        add_to_range(x[i], lanes);
    }
}

static void range_of_doubles(const double *x, size_t n, usc_stats_lanes *lanes)
{
    for (size_t i = 0; i < n; i++) {
        if (fabs(x[i]) <= 0x1.fffffffffffffp1023)
            add_to_range(x[i], lanes);
        else
            count_special(x[i], lanes);
    }
}

static void range_of_floats(usc_dtype dtype, const void *src, size_t n,
                            usc_stats_lanes *lanes)
{
    const unsigned char *at = src;
    const size_t size = usc_dtype_info_of(dtype)->size;
    double wide[64];
    for (size_t i = 0; i < n; i += 64) {
        const size_t n_now = n - i < 64 ? n - i : 64;
        usc_widen_scalar[dtype](at + i * size, wide, n_now);
        range_of_doubles(wide, n_now, lanes);
    }
}

static void add_floats(usc_dtype dtype, const void *src, size_t n, double smallest,
                       usc_stats_lanes *lanes)
{
    const unsigned char *at = src;
    const size_t size = usc_dtype_info_of(dtype)->size;
    if (dtype == USC_F64) {
        add_doubles(src, n, smallest, lanes);
        return;
    }
    double wide[64]; /* a multiple of the lanes, within a kernel's 1 KiB of stack */
    for (size_t i = 0; i < n; i += 64) {
        const size_t n_now = n - i < 64 ? n - i : 64;
        usc_widen_scalar[dtype](at + i * size, wide, n_now);
        add_doubles(wide, n_now, smallest, lanes);
    }
}

/* Of each row of the list that is a float, its loop. */
#define OF_USC_KIND_FLOAT(id, emin)                                                      \
    static void stats_##id(const void *src, size_t n, usc_stats_lanes *lanes)            \
    {                                                                                    \
        add_floats(USC_##id, src, n, ldexp(1, emin), lanes);                             \
    }                                                                                    \
    static void range_##id(const void *src, size_t n, usc_stats_lanes *lanes)            \
    {                                                                                    \
        range_of_floats(USC_##id, src, n, lanes);                                        \
    }
#define OF_USC_KIND_INT(id, emin)
#define OF_USC_KIND_UINT(id, emin)
#define OF_USC_KIND_BOOL(id, emin)
#define LOOP(id, name, st_name, size, kind, sig, emin, ...) OF_##kind(id, emin)
USC_DTYPE_LIST(LOOP)

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
#define NAME stats_BOOL
#include "kernels/stats_int.inc"

#define T int64_t
#define LOAD load_i64
#define NAME stats_I64
#include "kernels/stats_int.inc"

#define T int64_t
#define LOAD load_i32
#define NAME stats_I32
#include "kernels/stats_int.inc"

#define T int64_t
#define LOAD load_i16
#define NAME stats_I16
#include "kernels/stats_int.inc"

#define T int64_t
#define LOAD load_i8
#define NAME stats_I8
#include "kernels/stats_int.inc"

#define T uint64_t
#define LOAD load_u64
#define NAME stats_U64
#include "kernels/stats_int.inc"

#define T int64_t
#define LOAD load_u32
#define NAME stats_U32
#include "kernels/stats_int.inc"

#define T int64_t
#define LOAD load_u16
#define NAME stats_U16
#include "kernels/stats_int.inc"

#define T int64_t
#define LOAD load_u8
#define NAME stats_U8
#include "kernels/stats_int.inc"

void usc_kernels_fill_scalar(usc_kernels *kernels)
{
    memcpy(kernels->widen, usc_widen_scalar, sizeof kernels->widen);
#define ROW(id, ...) [USC_##id] = stats_##id,
    usc_stats_function *const rows[USC_N_DTYPES] = {[USC_DTYPE_NONE] = stats_U8,
                                                    USC_DTYPE_LIST(ROW)};
#undef ROW
    memcpy(kernels->stats, rows, sizeof rows);
    memcpy(kernels->range, rows, sizeof rows);
#define RANGE_OF_USC_KIND_FLOAT(id) kernels->range[USC_##id] = range_##id;
#define RANGE_OF_USC_KIND_INT(id)
#define RANGE_OF_USC_KIND_UINT(id)
#define RANGE_OF_USC_KIND_BOOL(id)
#define RANGE(id, name, st_name, size, kind, ...) RANGE_OF_##kind(id)
    USC_DTYPE_LIST(RANGE)
#undef RANGE
}
