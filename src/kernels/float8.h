// SPDX-License-Identifier: Apache-2.0
// float8 by way of float16, which has instructions of its own. Included by files that are
// compiled for an instruction set.
#ifndef USC_KERNELS_FLOAT8_H
#define USC_KERNELS_FLOAT8_H

#include "base/compiler.h"

#include <immintrin.h>
#include <stdint.h>

#include <ulpscope/dtype.h>

/* What a float16 made by usc_half_of_bytes is to be multiplied by. */
static USC_ALWAYS_INLINE float usc_half_factor(usc_dtype dtype)
{
    return dtype == USC_F8_E4M3 ? 0x1p8f : 1.0f;
}

/* Eight float8 in the lower half of `bytes` as float16, up to the factor. float8_e5m2 is
 * the upper half of a float16. float8_e4m3fn has its fields moved to where float16 has
 * them, 2^8 too small since the biases differ; its only NaN gets the exponent of one. */
static USC_ALWAYS_INLINE __m128i usc_half_of_bytes(usc_dtype dtype, __m128i bytes)
{
    const __m128i high = _mm_unpacklo_epi8(_mm_setzero_si128(), bytes);
    if (dtype == USC_F8_E5M2) return high;
    const __m128i sign = _mm_and_si128(high, _mm_set1_epi16(INT16_MIN));
    const __m128i fields = _mm_srli_epi16(_mm_slli_epi16(high, 1), 2);
    const __m128i nan = _mm_cmpeq_epi16(fields, _mm_set1_epi16(0x3f80));
    const __m128i top = _mm_and_si128(nan, _mm_set1_epi16(0x4000));
    return _mm_or_si128(_mm_or_si128(sign, fields), top);
}

#endif
