// SPDX-License-Identifier: Apache-2.0
// Exponent histograms. Counting needs no wide registers, so there is one form for every
// instruction set; the counts are exact whatever the order.
#include "kernels/kernels.h"

#include "base/compiler.h"

#include <math.h>
#include <string.h>

/* x is not 0. */
static int log2_floor(uint64_t x)
{
    return 63 - USC_CLZ64(x);
}

static int sum_of(const uint16_t counters[8])
{
    int sum = 0;
    for (int i = 0; i < 8; i++)
        sum += counters[i];
    return sum;
}

/* Whether two groups of eight counters, which follow each other, are all zero. */
static bool all_zero(const void *counters)
{
    uint64_t words[4];
    memcpy(words, counters, sizeof words);
    return (words[0] | words[1] | words[2] | words[3]) == 0;
}

#define T uint32_t
#define FIELD_BITS 8
#define FRACTION_BITS 23
#define EMIN (-126)
#define NAME histogram_F32
#define TINY tiny_f32
#define FOLD fold_f32
#include "kernels/histogram_float.inc"

#define T uint16_t
#define FIELD_BITS 8
#define FRACTION_BITS 7
#define EMIN (-126)
#define NAME histogram_BF16
#define TINY tiny_bf16
#define FOLD fold_bf16
#include "kernels/histogram_float.inc"

#define T uint16_t
#define FIELD_BITS 5
#define FRACTION_BITS 10
#define EMIN (-14)
#define NAME histogram_F16
#define TINY tiny_f16
#define FOLD fold_f16
#include "kernels/histogram_float.inc"

static int clamped_bin(int exponent)
{
    const int bin = exponent - USC_BINADE_MIN;
    if (bin < 0) return 0;
    return bin < USC_N_BINADES ? bin : USC_N_BINADES - 1;
}

static void histogram_F64(const void *src, size_t n, usc_binades *b)
{
    const uint64_t *bits = src;
    for (size_t i = 0; i < n; i++) {
        const uint64_t magnitude = bits[i] & 0x7fffffffffffffffu;
        const int field = (int)(magnitude >> 52);
        if (magnitude == 0 || field == 0x7ff) continue;
        /* a subnormal (field 0) lands in the first bin like all below it */
        b->histogram[bits[i] >> 63][clamped_bin(field - 1023)]++;
    }
}

/* Counts encodings first: there are 256. */
static void count_bytes(usc_dtype dtype, const void *src, size_t n, usc_binades *b)
{
    const uint8_t *s = src;
    int32_t counts[256] = {0};
    for (size_t i = 0; i < n; i++)
        counts[s[i]]++;
    for (int code = 0; code < 256; code++) {
        const uint8_t byte = (uint8_t)code;
        double value;
        usc_widen_scalar[dtype](&byte, &value, 1);
        if (counts[code] == 0 || !isfinite(value) || !(fabs(value) > 0)) continue;
        b->histogram[signbit(value) != 0][clamped_bin(ilogb(value))] += counts[code];
    }
}

/* Of each row of the list that is a float of one byte, its loop. */
#define BYTE_1(id)                                                                       \
    static void histogram_##id(const void *src, size_t n, usc_binades *b)                \
    {                                                                                    \
        count_bytes(USC_##id, src, n, b);                                                \
    }
#define BYTE_2(id)
#define BYTE_4(id)
#define BYTE_8(id)
#define OF_USC_KIND_FLOAT(id, size) BYTE_##size(id)
#define OF_USC_KIND_INT(id, size)
#define OF_USC_KIND_UINT(id, size)
#define OF_USC_KIND_BOOL(id, size)
#define LOOP(id, name, st_name, size, kind, ...) OF_##kind(id, size)
USC_DTYPE_LIST(LOOP)

static void histogram_BOOL(const void *src, size_t n, usc_binades *b)
{
    const uint8_t *s = src;
    for (size_t i = 0; i < n; i++)
        b->histogram[0][0 - USC_BINADE_MIN] += s[i] != 0;
}

#define T int64_t
#define NAME histogram_I64
#include "kernels/histogram_int.inc"

#define T int32_t
#define NAME histogram_I32
#include "kernels/histogram_int.inc"

#define T int16_t
#define NAME histogram_I16
#include "kernels/histogram_int.inc"

#define T int8_t
#define NAME histogram_I8
#include "kernels/histogram_int.inc"

#define T uint64_t
#define NAME histogram_U64
#include "kernels/histogram_int.inc"

#define T uint32_t
#define NAME histogram_U32
#include "kernels/histogram_int.inc"

#define T uint16_t
#define NAME histogram_U16
#include "kernels/histogram_int.inc"

#define T uint8_t
#define NAME histogram_U8
#include "kernels/histogram_int.inc"

void usc_kernels_fill_histogram(usc_kernels *kernels)
{
#define ROW(id, ...) [USC_##id] = histogram_##id,
    usc_histogram_function *const rows[USC_N_DTYPES] = {[USC_DTYPE_NONE] = histogram_U8,
                                                        USC_DTYPE_LIST(ROW)};
#undef ROW
    memcpy(kernels->histogram, rows, sizeof rows);
    kernels->fold[USC_F32] = fold_f32;
    kernels->fold[USC_F16] = fold_f16;
    kernels->fold[USC_BF16] = fold_bf16;
}
