// SPDX-License-Identifier: Apache-2.0
// half and bfloat16 with their arithmetic: each operation is the exact one rounded once, as
// the hardware's. __half and __nv_bfloat16 lie in memory as torch's Half and BFloat16 do.
#pragma once

#include "grid_core.h"
#include "grid_vectors.h"

namespace usc_grid_cxx
{

inline uint32_t float_bits(float v)
{
    uint32_t bits;
    std::memcpy(&bits, &v, sizeof bits);
    return bits;
}

inline float float_of(uint32_t bits)
{
    float v;
    std::memcpy(&v, &bits, sizeof v);
    return v;
}

struct half_format {
    static uint16_t narrow(float v)
    {
        const uint32_t bits = float_bits(v), sign = bits >> 16 & 0x8000u;
        const float size = float_of(bits & 0x7fffffffu);
        if (size != size) return (uint16_t)(sign | 0x7e00u);
        if (size >= 65520.0f) return (uint16_t)(sign | 0x7c00u);
        if (size < 0x1p-14f) // the sum's last bit is the last one of a subnormal
            return (uint16_t)(sign | (float_bits(size + 0.5f) - float_bits(0.5f)));
        const uint32_t rounded = (bits & 0x7fffffffu) + 0xfffu + (bits >> 13 & 1u);
        return (uint16_t)(sign | ((rounded - (112u << 23)) >> 13));
    }
    static float widen(uint16_t h)
    {
        const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7fffu;
        if (rest < 0x400u) return float_of(sign | float_bits((float)rest * 0x1p-24f));
        if (rest >= 0x7c00u) return float_of(sign | 0x7f800000u | rest << 13);
        return float_of(sign | (rest << 13) + (112u << 23));
    }
};

struct bfloat16_format {
    static uint16_t narrow(float v)
    {
        const uint32_t bits = float_bits(v);
        if (v != v) return (uint16_t)(bits >> 16 | 0x40u);
        return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    }
    static float widen(uint16_t b)
    {
        return float_of((uint32_t)b << 16);
    }
};

// Rounds to odd in float, which is then rounded once more without harm.
inline float odd_float(double v)
{
    float f = (float)v;
    if ((double)f == v || f != f || isinf(f)) return f;
    uint32_t bits = float_bits(f);
    if (fabs((double)f) > fabs(v)) bits--; // towards zero
    return float_of(bits | 1u);
}

template <class Format> struct USC_GRID_MAY_ALIAS narrow {
    uint16_t bits;

    narrow() = default;
    narrow(float v) : bits(Format::narrow(v))
    {
    }
    narrow(double v) : bits(Format::narrow(odd_float(v)))
    {
    }
    template <class I, std::enable_if_t<std::is_integral_v<I>, int> = 0>
    narrow(I v) : narrow((double)v)
    {
    }
    // Of another type of two bytes with a conversion of its own: torch's.
    template <class O,
              std::enable_if_t<
                  std::is_class_v<O> && std::is_convertible_v<const O &, float>, int> = 0>
    explicit narrow(const O &v) : narrow((float)v)
    {
    }
    operator float() const
    {
        return Format::widen(bits);
    }
    narrow &operator+=(narrow o)
    {
        return *this = narrow((float)*this + (float)o);
    }
    narrow &operator-=(narrow o)
    {
        return *this = narrow((float)*this - (float)o);
    }
    narrow &operator*=(narrow o)
    {
        return *this = narrow((float)*this * (float)o);
    }
    narrow &operator/=(narrow o)
    {
        return *this = narrow((float)*this / (float)o);
    }
};

#define USC_GRID_OPERATOR(op)                                                            \
    template <class F> inline narrow<F> operator op(narrow<F> a, narrow<F> b)            \
    {                                                                                    \
        return narrow<F>((float)a op(float) b);                                          \
    }
USC_GRID_OPERATOR(+)
USC_GRID_OPERATOR(-)
USC_GRID_OPERATOR(*)
USC_GRID_OPERATOR(/)
#undef USC_GRID_OPERATOR
#define USC_GRID_RELATION(op, name)                                                      \
    template <class F> inline bool operator op(narrow<F> a, narrow<F> b)                 \
    {                                                                                    \
        return (float)a op(float) b;                                                     \
    }                                                                                    \
    template <class F> inline bool name(narrow<F> a, narrow<F> b)                        \
    {                                                                                    \
        return (float)a op(float) b;                                                     \
    }
USC_GRID_RELATION(==, __heq)
USC_GRID_RELATION(!=, __hne)
USC_GRID_RELATION(<, __hlt)
USC_GRID_RELATION(<=, __hle)
USC_GRID_RELATION(>, __hgt)
USC_GRID_RELATION(>=, __hge)
#undef USC_GRID_RELATION
template <class F> inline narrow<F> operator-(narrow<F> a)
{
    a.bits = (uint16_t)(a.bits ^ 0x8000u);
    return a;
}

template <class F> struct alignas(4) USC_GRID_MAY_ALIAS narrow2 {
    narrow<F> x, y;
};

// ---- functions of one and of two at a time

#define USC_GRID_BINARY(name, expression)                                                \
    template <class F> inline narrow<F> name(narrow<F> a, narrow<F> b)                   \
    {                                                                                    \
        return narrow<F>(expression);                                                    \
    }                                                                                    \
    template <class F> inline narrow2<F> name##2(narrow2<F> a, narrow2<F> b)             \
    {                                                                                    \
        return {name(a.x, b.x), name(a.y, b.y)};                                         \
    }
USC_GRID_BINARY(__hadd, (float)a + (float)b)
USC_GRID_BINARY(__hsub, (float)a - (float)b)
USC_GRID_BINARY(__hmul, (float)a *(float)b)
USC_GRID_BINARY(__hmax, fmaxf((float)a, (float)b))
USC_GRID_BINARY(__hmin, fminf((float)a, (float)b))
#undef USC_GRID_BINARY
template <class F> inline narrow<F> __hdiv(narrow<F> a, narrow<F> b)
{
    return a / b;
}
template <class F> inline narrow2<F> __h2div(narrow2<F> a, narrow2<F> b)
{
    return {a.x / b.x, a.y / b.y};
}
// The product is exact in double; one rounding there is to odd, the next the only one.
template <class F> inline narrow<F> __hfma(narrow<F> a, narrow<F> b, narrow<F> c)
{
    return narrow<F>(odd_float((double)(float)a * (float)b + (double)(float)c));
}
template <class F> inline narrow2<F> __hfma2(narrow2<F> a, narrow2<F> b, narrow2<F> c)
{
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
#define USC_GRID_UNARY(name, name2, of)                                                  \
    template <class F> inline narrow<F> name(narrow<F> a)                                \
    {                                                                                    \
        return narrow<F>(of((float)a));                                                  \
    }                                                                                    \
    template <class F> inline narrow2<F> name2(narrow2<F> a)                             \
    {                                                                                    \
        return {name(a.x), name(a.y)};                                                   \
    }
USC_GRID_UNARY(__habs, __habs2, fabsf)
USC_GRID_UNARY(__hneg, __hneg2, -)
USC_GRID_UNARY(hexp, h2exp, expf)
USC_GRID_UNARY(hexp2, h2exp2, exp2f)
USC_GRID_UNARY(hlog, h2log, logf)
USC_GRID_UNARY(hlog2, h2log2, log2f)
USC_GRID_UNARY(hsqrt, h2sqrt, sqrtf)
USC_GRID_UNARY(hrsqrt, h2rsqrt, 1.0f / sqrtf)
USC_GRID_UNARY(hrcp, h2rcp, 1.0f /)
USC_GRID_UNARY(hsin, h2sin, sinf)
USC_GRID_UNARY(hcos, h2cos, cosf)
USC_GRID_UNARY(hfloor, h2floor, floorf)
USC_GRID_UNARY(hceil, h2ceil, ceilf)
USC_GRID_UNARY(hrint, h2rint, nearbyintf)
USC_GRID_UNARY(htrunc, h2trunc, truncf)
#undef USC_GRID_UNARY
template <class F> inline bool __hisnan(narrow<F> a)
{
    return (float)a != (float)a;
}
template <class F> inline bool __hisinf(narrow<F> a)
{
    return isinf((float)a);
}

template <class F> inline float __low2float(narrow2<F> v)
{
    return (float)v.x;
}
template <class F> inline float __high2float(narrow2<F> v)
{
    return (float)v.y;
}

} // namespace usc_grid_cxx

// The functions are found by the types of their arguments, which lie in that namespace.
typedef usc_grid_cxx::narrow<usc_grid_cxx::half_format> __half;
typedef usc_grid_cxx::narrow2<usc_grid_cxx::half_format> __half2;
typedef __half half;
typedef __half2 half2;
typedef usc_grid_cxx::narrow<usc_grid_cxx::bfloat16_format> __nv_bfloat16;
typedef usc_grid_cxx::narrow2<usc_grid_cxx::bfloat16_format> __nv_bfloat162;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

#define USC_GRID_CONVERSIONS(T, T2, short_name, long_name)                               \
    inline T __float2##short_name(float v)                                               \
    {                                                                                    \
        return T(v);                                                                     \
    }                                                                                    \
    inline T __float2##short_name##_rn(float v)                                          \
    {                                                                                    \
        return T(v);                                                                     \
    }                                                                                    \
    inline T __double2##short_name(double v)                                             \
    {                                                                                    \
        return T(v);                                                                     \
    }                                                                                    \
    inline T __int2##short_name##_rn(int v)                                              \
    {                                                                                    \
        return T(v);                                                                     \
    }                                                                                    \
    inline float __##short_name##2float(T v)                                             \
    {                                                                                    \
        return (float)v;                                                                 \
    }                                                                                    \
    inline T2 __##short_name##2##short_name##2(T v)                                      \
    {                                                                                    \
        return {v, v};                                                                   \
    }                                                                                    \
    inline T2 __float2##short_name##2_rn(float v)                                        \
    {                                                                                    \
        return {T(v), T(v)};                                                             \
    }                                                                                    \
    inline T2 __floats2##short_name##2_rn(float a, float b)                              \
    {                                                                                    \
        return {T(a), T(b)};                                                             \
    }                                                                                    \
    inline T2 __halves2##short_name##2(T a, T b)                                         \
    {                                                                                    \
        return {a, b};                                                                   \
    }                                                                                    \
    inline float2 __##short_name##22float2(T2 v)                                         \
    {                                                                                    \
        return {(float)v.x, (float)v.y};                                                 \
    }                                                                                    \
    inline T2 __float22##short_name##2_rn(float2 v)                                      \
    {                                                                                    \
        return {T(v.x), T(v.y)};                                                         \
    }                                                                                    \
    inline T __low2##long_name(T2 v)                                                     \
    {                                                                                    \
        return v.x;                                                                      \
    }                                                                                    \
    inline T __high2##long_name(T2 v)                                                    \
    {                                                                                    \
        return v.y;                                                                      \
    }
USC_GRID_CONVERSIONS(__half, __half2, half, half)
USC_GRID_CONVERSIONS(__nv_bfloat16, __nv_bfloat162, bfloat16, bfloat16)
#undef USC_GRID_CONVERSIONS
inline __half2 make_half2(__half a, __half b)
{
    return {a, b};
}
