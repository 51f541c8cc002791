// SPDX-License-Identifier: Apache-2.0
// Functions that CUDA has for every kernel: loads, bits, roundings, fast functions. The fast
// ones are the exact ones here: whoever asks for less precision gets no less.
#pragma once

#include "grid_core.h"

template <class T> inline T __ldg(const T *p)
{
    return *p;
}
template <class T> inline T __ldcg(const T *p)
{
    return *p;
}
template <class T> inline T __ldcs(const T *p)
{
    return *p;
}
template <class T> inline void __stcs(T *p, T v)
{
    *p = v;
}

// ---- bits

inline int __popc(unsigned v)
{
    return __builtin_popcount(v);
}
inline int __popcll(unsigned long long v)
{
    return __builtin_popcountll(v);
}
inline int __ffs(int v)
{
    return __builtin_ffs(v);
}
inline int __ffsll(long long v)
{
    return __builtin_ffsll(v);
}
inline int __clz(int v)
{
    return v == 0 ? 32 : __builtin_clz((unsigned)v);
}
inline int __clzll(long long v)
{
    return v == 0 ? 64 : __builtin_clzll((unsigned long long)v);
}
inline unsigned __brev(unsigned v)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++)
        r |= (v >> i & 1u) << (31 - i);
    return r;
}
inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
inline int __mulhi(int a, int b)
{
    return (int)((int64_t)a * b >> 32);
}
inline int __mul24(int a, int b)
{
    return a * b;
}

template <class To, class From> inline To usc_grid_bits(From v)
{
    static_assert(sizeof(To) == sizeof(From), "of the same size");
    To to;
    std::memcpy(&to, &v, sizeof to);
    return to;
}
inline int __float_as_int(float v)
{
    return usc_grid_bits<int>(v);
}
inline unsigned __float_as_uint(float v)
{
    return usc_grid_bits<unsigned>(v);
}
inline float __int_as_float(int v)
{
    return usc_grid_bits<float>(v);
}
inline float __uint_as_float(unsigned v)
{
    return usc_grid_bits<float>(v);
}
inline long long __double_as_longlong(double v)
{
    return usc_grid_bits<long long>(v);
}
inline double __longlong_as_double(long long v)
{
    return usc_grid_bits<double>(v);
}

// ---- arithmetic

inline float __fadd_rn(float a, float b)
{
    return a + b;
}
inline float __fsub_rn(float a, float b)
{
    return a - b;
}
inline float __fmul_rn(float a, float b)
{
    return a * b;
}
inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}
inline float __frcp_rn(float a)
{
    return 1.0f / a;
}
inline double __dadd_rn(double a, double b)
{
    return a + b;
}
inline double __dmul_rn(double a, double b)
{
    return a * b;
}
inline float __fdividef(float a, float b)
{
    return a / b;
}
inline float __saturatef(float v)
{
    return v > 0.0f ? (v < 1.0f ? v : 1.0f) : 0.0f; // NaN is 0
}
inline float rsqrtf(float v)
{
    return 1.0f / sqrtf(v);
}
inline double rsqrt(double v)
{
    return 1.0 / sqrt(v);
}
inline float rsqrt(float v)
{
    return rsqrtf(v);
}

#define USC_GRID_FAST(name, of)                                                          \
    inline float name(float v)                                                           \
    {                                                                                    \
        return of(v);                                                                    \
    }
#define __expf usc_grid_expf // the C library has names like these for itself
#define __logf usc_grid_logf
#define __log2f usc_grid_log2f
#define __log10f usc_grid_log10f
#define __sinf usc_grid_sinf
#define __cosf usc_grid_cosf
#define __tanf usc_grid_tanf
#define __exp10f usc_grid_exp10f
#define __powf usc_grid_powf
USC_GRID_FAST(usc_grid_expf, expf)
USC_GRID_FAST(usc_grid_logf, logf)
USC_GRID_FAST(usc_grid_log2f, log2f)
USC_GRID_FAST(usc_grid_log10f, log10f)
USC_GRID_FAST(usc_grid_sinf, sinf)
USC_GRID_FAST(usc_grid_cosf, cosf)
USC_GRID_FAST(usc_grid_tanf, tanf)
#undef USC_GRID_FAST
inline float usc_grid_exp10f(float v)
{
    return powf(10.0f, v);
}
inline float usc_grid_powf(float a, float b)
{
    return powf(a, b);
}

// ---- conversions

inline int __float2int_rn(float v)
{
    return (int)nearbyintf(v);
}
inline int __float2int_rd(float v)
{
    return (int)floorf(v);
}
inline int __float2int_ru(float v)
{
    return (int)ceilf(v);
}
inline int __float2int_rz(float v)
{
    return (int)v;
}
inline float __int2float_rn(int v)
{
    return (float)v;
}

// ---- the smaller and the larger, of numbers of two types too

template <class A, class B, class C = std::common_type_t<A, B>,
          std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, int> = 0>
constexpr C min(A a, B b)
{
    if constexpr (std::is_floating_point_v<C>)
        return (C)a != (C)a ? (C)b : (C)b != (C)b ? (C)a : (C)a < (C)b ? (C)a : (C)b;
    else
        return (C)a < (C)b ? (C)a : (C)b;
}

template <class A, class B, class C = std::common_type_t<A, B>,
          std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, int> = 0>
constexpr C max(A a, B b)
{
    if constexpr (std::is_floating_point_v<C>)
        return (C)a != (C)a ? (C)b : (C)b != (C)b ? (C)a : (C)a < (C)b ? (C)b : (C)a;
    else
        return (C)a < (C)b ? (C)b : (C)a;
}

/* Of a class that becomes a float by itself, as a half of torch's does: as that float. */
template <class A> using usc_number_of = std::conditional_t<std::is_class_v<A>, float, A>;

template <class A, class B>
constexpr bool usc_one_is_class = (std::is_class_v<A> ||
                                   std::is_class_v<B>)&&std::is_convertible_v<A, float>
    &&std::is_convertible_v<B, float>;

template <class A, class B, std::enable_if_t<usc_one_is_class<A, B>, int> = 0>
constexpr auto min(A a, B b)
{
    return min((usc_number_of<A>)a, (usc_number_of<B>)b);
}

template <class A, class B, std::enable_if_t<usc_one_is_class<A, B>, int> = 0>
constexpr auto max(A a, B b)
{
    return max((usc_number_of<A>)a, (usc_number_of<B>)b);
}
