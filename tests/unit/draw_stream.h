// SPDX-License-Identifier: Apache-2.0
// The stream that tests of draws are drawn from, which is none of the library's.
#ifndef USC_TESTS_DRAW_STREAM_H
#define USC_TESTS_DRAW_STREAM_H

#include <math.h>
#include <stdint.h>

/* xorshift64* (Vigna 2016) */

static uint64_t state_of_stream;

static inline void stream_seed(uint64_t s)
{
    state_of_stream = s * UINT64_C(0x9e3779b97f4a7c15) + 0x123456789;
}

static inline double stream_even(void)
{
    uint64_t x = state_of_stream;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    state_of_stream = x;
    return (double)((x * UINT64_C(0x2545f4914f6cdd1d)) >> 11) * 0x1p-53;
}

static inline double stream_normal(void)
{
    const double r = sqrt(-2 * log(1 - stream_even()));
    return r * cos(6.283185307179586 * stream_even());
}

static inline double stream_poisson(double rate)
{
    double left = exp(-rate), p = stream_even();
    int k = 0;
    for (double term = left; p > left && k < 1000; left += term)
        term *= rate / ++k;
    return k;
}

#endif
