// SPDX-License-Identifier: Apache-2.0
// Scalar loops between every dtype and double. Neighbours: dtype.c (the table), and
// kernels/, which overrides some of the widening loops.
#include "tensor/convert.h"

#include <math.h>
#include <string.h>

static const uint64_t F64_SIGN = 0x8000000000000000u;
static const uint64_t F64_INF = 0x7ff0000000000000u;
static const uint64_t F64_QUIET = 0x0008000000000000u;

/* A binary format of at most 32 bits: exponent field above `fraction_bits`. */
typedef struct format {
    int fraction_bits;
    int emin;
    uint32_t beyond; /* least encoding above all numbers: Inf, or NaN without Inf */
    usc_top top;
} format;

static const format FLOAT32 = {23, -126, 0x7f800000, USC_TOP_INF};
static const format FLOAT16 = {10, -14, 0x7c00, USC_TOP_INF};
static const format BFLOAT16 = {7, -126, 0x7f80, USC_TOP_INF};
static const format E5M2 = {2, -14, 0x7c, USC_TOP_INF};
static const format E4M3FN = {3, -6, 0x7f, USC_TOP_NAN};
static const format E5M2FNUZ = {2, -15, 0x80, USC_TOP_NUMBER};
static const format E4M3FNUZ = {3, -7, 0x80, USC_TOP_NUMBER};

static double double_of_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t bits_of_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The value of an encoding without its sign. */
static uint64_t widen_magnitude(uint32_t magnitude, const format f)
{
    const uint32_t field = magnitude >> f.fraction_bits;
    const uint64_t fraction = magnitude & ((1u << f.fraction_bits) - 1);
    if (magnitude >= f.beyond) {
        const bool nan = f.top != USC_TOP_INF || fraction != 0;
        return F64_INF | (nan ? F64_QUIET : 0) | (fraction << (52 - f.fraction_bits));
    }
    if (field != 0)
        return ((uint64_t)((int)field - 1 + f.emin + 1023) << 52) |
               (fraction << (52 - f.fraction_bits));
    /* zero and subnormal: an integer times a power of two, exact and normal in double */
    const uint64_t unit = (uint64_t)(f.emin - f.fraction_bits + 1023) << 52;
    return bits_of_double((double)fraction * double_of_bits(unit));
}

/* Rounds once, to nearest even, from the 53 bits that are there: no step in between. What
 * overflows is f.beyond. */
static uint32_t narrow_magnitude(uint64_t magnitude, const format f)
{
    const uint32_t quiet = f.top == USC_TOP_INF ? 1u << (f.fraction_bits - 1) : 0;
    if (magnitude > F64_INF) return f.beyond | quiet;
    if (magnitude == F64_INF) return f.beyond;

    const int exponent = (int)(magnitude >> 52) - 1023;
    const int below = exponent < f.emin ? f.emin - exponent : 0;
    const int drop = 52 - f.fraction_bits + below;
    if (drop > 53) return 0; /* below half of the smallest; double's subnormals as well */

    const uint64_t significand = (magnitude & (F64_QUIET * 2 - 1)) | (F64_QUIET * 2);
    const uint64_t kept = significand >> drop;
    const uint64_t rest = significand & (((uint64_t)1 << drop) - 1);
    const uint64_t half = (uint64_t)1 << (drop - 1);
    const uint64_t up = rest > half || (rest == half && (kept & 1) != 0);
    /* The hidden bit in `kept` adds one to the field, as does a carry out of it. */
    const uint64_t field = below > 0 ? 0 : (uint64_t)(exponent - f.emin);
    const uint64_t result = (field << f.fraction_bits) + kept + up;
    return result < f.beyond ? (uint32_t)result : f.beyond;
}

static double widen_bits(uint32_t bits, uint32_t sign_bit, const format f)
{
    const uint64_t sign = (bits & sign_bit) != 0 ? F64_SIGN : 0;
    return double_of_bits(widen_magnitude(bits & ~sign_bit, f) | sign);
}

static uint32_t narrow_bits(double value, uint32_t sign_bit, const format f)
{
    const uint64_t bits = bits_of_double(value);
    return narrow_magnitude(bits & ~F64_SIGN, f) |
           ((bits & F64_SIGN) != 0 ? sign_bit : 0);
}

static void widen_f64(const void *src, double *dst, size_t n)
{
    if (n > 0) memcpy(dst, src, n * sizeof *dst);
}

static void narrow_f64(const double *src, void *dst, size_t n)
{
    if (n > 0) memcpy(dst, src, n * sizeof *src);
}

static void widen_f32(const void *src, double *dst, size_t n)
{
    const uint32_t *s = src;
    for (size_t i = 0; i < n; i++)
        dst[i] = widen_bits(s[i], 0x80000000u, FLOAT32);
}

static void narrow_f32(const double *src, void *dst, size_t n)
{
    uint32_t *d = dst;
    for (size_t i = 0; i < n; i++)
        d[i] = narrow_bits(src[i], 0x80000000u, FLOAT32);
}

static void widen_f16(const void *src, double *dst, size_t n)
{
    const uint16_t *s = src;
    for (size_t i = 0; i < n; i++)
        dst[i] = widen_bits(s[i], 0x8000u, FLOAT16);
}

static void narrow_f16(const double *src, void *dst, size_t n)
{
    uint16_t *d = dst;
    for (size_t i = 0; i < n; i++)
        d[i] = (uint16_t)narrow_bits(src[i], 0x8000u, FLOAT16);
}

static void widen_bf16(const void *src, double *dst, size_t n)
{
    const uint16_t *s = src;
    for (size_t i = 0; i < n; i++)
        dst[i] = widen_bits(s[i], 0x8000u, BFLOAT16);
}

static void narrow_bf16(const double *src, void *dst, size_t n)
{
    uint16_t *d = dst;
    for (size_t i = 0; i < n; i++)
        d[i] = (uint16_t)narrow_bits(src[i], 0x8000u, BFLOAT16);
}

/* Without -0 the sign bit alone is NaN, in whose encoding no other sign is left. */
static double widen_byte(uint8_t bits, const format f)
{
    if (f.top == USC_TOP_NUMBER && bits == 0x80) return (double)NAN;
    return widen_bits(bits, 0x80u, f);
}

static uint8_t narrow_byte(double value, const format f)
{
    const uint64_t bits = bits_of_double(value);
    const uint32_t magnitude = narrow_magnitude(bits & ~F64_SIGN, f);
    if (f.top == USC_TOP_NUMBER && (magnitude == 0 || magnitude == f.beyond))
        return (uint8_t)magnitude;
    return (uint8_t)(magnitude | ((bits & F64_SIGN) != 0 ? 0x80u : 0));
}

static void widen_bool(const void *src, double *dst, size_t n)
{
    const uint8_t *s = src;
    for (size_t i = 0; i < n; i++)
        dst[i] = s[i] != 0 ? 1.0 : 0.0;
}

static void narrow_bool(const double *src, void *dst, size_t n)
{
    uint8_t *d = dst;
    for (size_t i = 0; i < n; i++)
        d[i] = (bits_of_double(src[i]) & ~F64_SIGN) != 0;
}

#define T int64_t
#define WIDEN widen_i64
#define NARROW narrow_i64
#define LOW -0x1p63
#define HIGH 0x1p63
#define LEAST INT64_MIN
#define MOST INT64_MAX
#include "tensor/convert_int.inc"

#define T int32_t
#define WIDEN widen_i32
#define NARROW narrow_i32
#define LOW -0x1p31
#define HIGH 0x1p31
#define LEAST INT32_MIN
#define MOST INT32_MAX
#include "tensor/convert_int.inc"

#define T int16_t
#define WIDEN widen_i16
#define NARROW narrow_i16
#define LOW -0x1p15
#define HIGH 0x1p15
#define LEAST INT16_MIN
#define MOST INT16_MAX
#include "tensor/convert_int.inc"

#define T int8_t
#define WIDEN widen_i8
#define NARROW narrow_i8
#define LOW -0x1p7
#define HIGH 0x1p7
#define LEAST INT8_MIN
#define MOST INT8_MAX
#include "tensor/convert_int.inc"

#define T uint64_t
#define WIDEN widen_u64
#define NARROW narrow_u64
#define LOW 0.0
#define HIGH 0x1p64
#define LEAST 0
#define MOST UINT64_MAX
#include "tensor/convert_int.inc"

#define T uint32_t
#define WIDEN widen_u32
#define NARROW narrow_u32
#define LOW 0.0
#define HIGH 0x1p32
#define LEAST 0
#define MOST UINT32_MAX
#include "tensor/convert_int.inc"

#define T uint16_t
#define WIDEN widen_u16
#define NARROW narrow_u16
#define LOW 0.0
#define HIGH 0x1p16
#define LEAST 0
#define MOST UINT16_MAX
#include "tensor/convert_int.inc"

#define T uint8_t
#define WIDEN widen_u8
#define NARROW narrow_u8
#define LOW 0.0
#define HIGH 0x1p8
#define LEAST 0
#define MOST UINT8_MAX
#include "tensor/convert_int.inc"

#define FORMAT E5M2
#define WIDEN widen_e5m2
#define NARROW narrow_e5m2
#include "tensor/convert_byte.inc"

#define FORMAT E4M3FN
#define WIDEN widen_e4m3fn
#define NARROW narrow_e4m3fn
#include "tensor/convert_byte.inc"

#define FORMAT E5M2FNUZ
#define WIDEN widen_e5m2fnuz
#define NARROW narrow_e5m2fnuz
#include "tensor/convert_byte.inc"

#define FORMAT E4M3FNUZ
#define WIDEN widen_e4m3fnuz
#define NARROW narrow_e4m3fnuz
#include "tensor/convert_byte.inc"

usc_widen_function *const usc_widen_scalar[USC_N_DTYPES] = {
    [USC_DTYPE_NONE] = widen_u8,
    [USC_F64] = widen_f64,
    [USC_F32] = widen_f32,
    [USC_F16] = widen_f16,
    [USC_BF16] = widen_bf16,
    [USC_I64] = widen_i64,
    [USC_I32] = widen_i32,
    [USC_I16] = widen_i16,
    [USC_I8] = widen_i8,
    [USC_U64] = widen_u64,
    [USC_U32] = widen_u32,
    [USC_U16] = widen_u16,
    [USC_U8] = widen_u8,
    [USC_BOOL] = widen_bool,
    [USC_F8_E5M2] = widen_e5m2,
    [USC_F8_E4M3] = widen_e4m3fn,
    [USC_F8_E5M2FNUZ] = widen_e5m2fnuz,
    [USC_F8_E4M3FNUZ] = widen_e4m3fnuz,
};

usc_narrow_function *const usc_narrow_scalar[USC_N_DTYPES] = {
    [USC_DTYPE_NONE] = narrow_u8,
    [USC_F64] = narrow_f64,
    [USC_F32] = narrow_f32,
    [USC_F16] = narrow_f16,
    [USC_BF16] = narrow_bf16,
    [USC_I64] = narrow_i64,
    [USC_I32] = narrow_i32,
    [USC_I16] = narrow_i16,
    [USC_I8] = narrow_i8,
    [USC_U64] = narrow_u64,
    [USC_U32] = narrow_u32,
    [USC_U16] = narrow_u16,
    [USC_U8] = narrow_u8,
    [USC_BOOL] = narrow_bool,
    [USC_F8_E5M2] = narrow_e5m2,
    [USC_F8_E4M3] = narrow_e4m3fn,
    [USC_F8_E5M2FNUZ] = narrow_e5m2fnuz,
    [USC_F8_E4M3FNUZ] = narrow_e4m3fnuz,
};
