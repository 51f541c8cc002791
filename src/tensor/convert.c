// SPDX-License-Identifier: Apache-2.0
// Scalar loops between every dtype and double. Neighbours: dtype.c (the table), and
// kernels/, which overrides some of the widening loops.
#include "tensor/convert.h"

#include "base/compiler.h"

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
static USC_ALWAYS_INLINE uint64_t widen_magnitude(uint32_t magnitude, const format f)
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
static USC_ALWAYS_INLINE uint32_t narrow_magnitude(uint64_t magnitude, const format f)
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

static void widen_F64(const void *src, double *dst, size_t n)
{
    if (n > 0) memcpy(dst, src, n * sizeof *dst);
}

static void narrow_F64(const double *src, void *dst, size_t n)
{
    if (n > 0) memcpy(dst, src, n * sizeof *src);
}

/* The encoding without its sign bit, and the bit; without -0 the bit alone is NaN, in
 * whose encoding no other sign is left. */
static USC_ALWAYS_INLINE double widen_bits(uint32_t bits, uint32_t sign_bit,
                                           const format f)
{
    if (f.top == USC_TOP_NUMBER && bits == sign_bit) return (double)NAN;
    const uint64_t sign = (bits & sign_bit) != 0 ? F64_SIGN : 0;
    return double_of_bits(widen_magnitude(bits & ~sign_bit, f) | sign);
}

static USC_ALWAYS_INLINE uint32_t narrow_bits(double value, uint32_t sign_bit,
                                              const format f)
{
    const uint64_t bits = bits_of_double(value);
    const uint32_t magnitude = narrow_magnitude(bits & ~F64_SIGN, f);
    if (f.top == USC_TOP_NUMBER && (magnitude == 0 || magnitude == f.beyond))
        return magnitude;
    return magnitude | ((bits & F64_SIGN) != 0 ? sign_bit : 0);
}

#define T uint32_t
#define WIDEN widen_words
#define NARROW narrow_words
#include "tensor/convert_float.inc"

#define T uint16_t
#define WIDEN widen_halves
#define NARROW narrow_halves
#include "tensor/convert_float.inc"

#define T uint8_t
#define WIDEN widen_bytes
#define NARROW narrow_bytes
#include "tensor/convert_float.inc"

/* Least encoding that is no number, of `bits` with the sign and `sig` of significand. */
#define BEYOND(bits, sig, top)                                                           \
    ((top) == USC_TOP_INF   ? (1u << ((bits)-1)) - (1u << ((sig)-1))                     \
     : (top) == USC_TOP_NAN ? (1u << ((bits)-1)) - 1                                     \
                            : 1u << ((bits)-1))

/* Of each row of the list, by its kind and bytes, the loops of a float of up to 32 bits.
 */
#define FLOAT_LOOPS(id, all, bits, sig, emin, top)                                       \
    static void widen_##id(const void *src, double *dst, size_t n)                       \
    {                                                                                    \
        widen_##all(src, dst, n, (format){(sig)-1, emin, BEYOND(bits, sig, top), top});  \
    }                                                                                    \
    static void narrow_##id(const double *src, void *dst, size_t n)                      \
    {                                                                                    \
        narrow_##all(src, dst, n, (format){(sig)-1, emin, BEYOND(bits, sig, top), top}); \
    }
#define OF_1(id, sig, emin, top) FLOAT_LOOPS(id, bytes, 8, sig, emin, top)
#define OF_2(id, sig, emin, top) FLOAT_LOOPS(id, halves, 16, sig, emin, top)
#define OF_4(id, sig, emin, top) FLOAT_LOOPS(id, words, 32, sig, emin, top)
#define OF_8(id, sig, emin, top)
#define OF_USC_KIND_FLOAT(id, size, sig, emin, top) OF_##size(id, sig, emin, top)
#define OF_USC_KIND_INT(id, size, sig, emin, top)
#define OF_USC_KIND_UINT(id, size, sig, emin, top)
#define OF_USC_KIND_BOOL(id, size, sig, emin, top)
#define LOOPS(id, name, st_name, size, kind, sig, emin, emax, top, most)                 \
    OF_##kind(id, size, sig, emin, top)
USC_DTYPE_LIST(LOOPS)

static void widen_BOOL(const void *src, double *dst, size_t n)
{
    const uint8_t *s = src;
    for (size_t i = 0; i < n; i++)
        dst[i] = s[i] != 0 ? 1.0 : 0.0;
}

static void narrow_BOOL(const double *src, void *dst, size_t n)
{
    uint8_t *d = dst;
    for (size_t i = 0; i < n; i++)
        d[i] = (bits_of_double(src[i]) & ~F64_SIGN) != 0;
}

#define T int64_t
#define WIDEN widen_I64
#define NARROW narrow_I64
#define LOW -0x1p63
#define HIGH 0x1p63
#define LEAST INT64_MIN
#define MOST INT64_MAX
#include "tensor/convert_int.inc"

#define T int32_t
#define WIDEN widen_I32
#define NARROW narrow_I32
#define LOW -0x1p31
#define HIGH 0x1p31
#define LEAST INT32_MIN
#define MOST INT32_MAX
#include "tensor/convert_int.inc"

#define T int16_t
#define WIDEN widen_I16
#define NARROW narrow_I16
#define LOW -0x1p15
#define HIGH 0x1p15
#define LEAST INT16_MIN
#define MOST INT16_MAX
#include "tensor/convert_int.inc"

#define T int8_t
#define WIDEN widen_I8
#define NARROW narrow_I8
#define LOW -0x1p7
#define HIGH 0x1p7
#define LEAST INT8_MIN
#define MOST INT8_MAX
#include "tensor/convert_int.inc"

#define T uint64_t
#define WIDEN widen_U64
#define NARROW narrow_U64
#define LOW 0.0
#define HIGH 0x1p64
#define LEAST 0
#define MOST UINT64_MAX
#include "tensor/convert_int.inc"

#define T uint32_t
#define WIDEN widen_U32
#define NARROW narrow_U32
#define LOW 0.0
#define HIGH 0x1p32
#define LEAST 0
#define MOST UINT32_MAX
#include "tensor/convert_int.inc"

#define T uint16_t
#define WIDEN widen_U16
#define NARROW narrow_U16
#define LOW 0.0
#define HIGH 0x1p16
#define LEAST 0
#define MOST UINT16_MAX
#include "tensor/convert_int.inc"

#define T uint8_t
#define WIDEN widen_U8
#define NARROW narrow_U8
#define LOW 0.0
#define HIGH 0x1p8
#define LEAST 0
#define MOST UINT8_MAX
#include "tensor/convert_int.inc"

#define WIDEN_ROW(id, ...) [USC_##id] = widen_##id,
#define NARROW_ROW(id, ...) [USC_##id] = narrow_##id,

usc_widen_function *const usc_widen_scalar[USC_N_DTYPES] = {[USC_DTYPE_NONE] = widen_U8,
                                                            USC_DTYPE_LIST(WIDEN_ROW)};

usc_narrow_function *const usc_narrow_scalar[USC_N_DTYPES] = {
    [USC_DTYPE_NONE] = narrow_U8, USC_DTYPE_LIST(NARROW_ROW)};
