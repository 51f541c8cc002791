// SPDX-License-Identifier: Apache-2.0
// Vector types of CUDA: float4 and its kin, aligned as they are there.
#pragma once

#include "grid_core.h"

// Kernels read four floats at once through a pointer of another type.
#define USC_GRID_MAY_ALIAS [[gnu::may_alias]]

#define USC_GRID_VECTORS(base, T, align2, align4)                                        \
    struct base##1                                                                       \
    {                                                                                    \
        T x;                                                                             \
    };                                                                                   \
    struct alignas(align2) USC_GRID_MAY_ALIAS base##2                                    \
    {                                                                                    \
        T x, y;                                                                          \
    };                                                                                   \
    struct base##3                                                                       \
    {                                                                                    \
        T x, y, z;                                                                       \
    };                                                                                   \
    struct alignas(align4) USC_GRID_MAY_ALIAS base##4                                    \
    {                                                                                    \
        T x, y, z, w;                                                                    \
    };                                                                                   \
    USC_GRID_MAKERS(base, T)

#define USC_GRID_MAKERS(base, T)                                                         \
    constexpr base##1 make_##base##1(T x)                                                \
    {                                                                                    \
        return {x};                                                                      \
    }                                                                                    \
    constexpr base##2 make_##base##2(T x, T y)                                           \
    {                                                                                    \
        return {x, y};                                                                   \
    }                                                                                    \
    constexpr base##3 make_##base##3(T x, T y, T z)                                      \
    {                                                                                    \
        return {x, y, z};                                                                \
    }                                                                                    \
    constexpr base##4 make_##base##4(T x, T y, T z, T w)                                 \
    {                                                                                    \
        return {x, y, z, w};                                                             \
    }

USC_GRID_VECTORS(char, signed char, 2, 4)
USC_GRID_VECTORS(uchar, unsigned char, 2, 4)
USC_GRID_VECTORS(short, short, 4, 8)
USC_GRID_VECTORS(ushort, unsigned short, 4, 8)
USC_GRID_VECTORS(int, int, 8, 16)
USC_GRID_VECTORS(long, long, 16, 16)
USC_GRID_VECTORS(ulong, unsigned long, 16, 16)
USC_GRID_VECTORS(longlong, long long, 16, 16)
USC_GRID_VECTORS(ulonglong, unsigned long long, 16, 16)
USC_GRID_VECTORS(float, float, 8, 16)
USC_GRID_VECTORS(double, double, 16, 16)

struct USC_GRID_MAY_ALIAS uint1 {
    unsigned x;
};
struct alignas(8) USC_GRID_MAY_ALIAS uint2 {
    unsigned x, y;
};
struct alignas(16) USC_GRID_MAY_ALIAS uint4 {
    unsigned x, y, z, w;
};
USC_GRID_MAKERS(uint, unsigned)
#undef USC_GRID_VECTORS
#undef USC_GRID_MAKERS
