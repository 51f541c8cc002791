// SPDX-License-Identifier: Apache-2.0
// AVX-512 on a processor that has AVX2 only: put in front of judge_*_avx512.c
// (-include), it turns their intrinsics into those of SIMDe, which emulates them, and
// renames what they define, so that a test links the emulated kernels beside the real
// ones. What SIMDe 0.7 lacks is here, by halves.
#ifndef USC_TESTS_AVX512_BY_SIMDE_H
#define USC_TESTS_AVX512_BY_SIMDE_H

#include <immintrin.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/avx512/movm.h>

#define usc_judge_kernels_avx512 usc_judge_kernels_emulated
#define usc_judge_screen_avx512 usc_judge_screen_emulated
#define usc_judge_screen_f32_avx512 usc_judge_screen_f32_emulated

static inline __m512d emulated_cvtps_pd(__m256 x)
{
    simde__m512d_private y;
    y.m256d[0] = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    y.m256d[1] = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    return simde__m512d_from_private(y);
}
#undef _mm512_cvtps_pd
#define _mm512_cvtps_pd(x) emulated_cvtps_pd(x)

static inline __m256 emulated_cvtpd_ps(__m512d x)
{
    const simde__m512d_private y = simde__m512d_to_private(x);
    return _mm256_set_m128(_mm256_cvtpd_ps(y.m256d[1]), _mm256_cvtpd_ps(y.m256d[0]));
}
#undef _mm512_cvtpd_ps
#define _mm512_cvtpd_ps(x) emulated_cvtpd_ps(x)

static inline __m128i emulated_cvtepi32_epi8(__m512i x)
{
    const simde__m512i_private y = simde__m512i_to_private(x);
    char bytes[16];
    for (int k = 0; k < 16; k++)
        bytes[k] = (char)(y.i32[k] & 0xff);
    return _mm_loadu_si128((const __m128i *)bytes);
}
#undef _mm512_cvtepi32_epi8
#define _mm512_cvtepi32_epi8(x) emulated_cvtepi32_epi8(x)

/* As bad as an approximate reciprocal may be, relative error 2^-14, in turns too small
 * and too large, and 0 for a subnormal: a processor is free to give anything in between.
 */
static inline __m512 emulated_rcp14_ps(__m512 x)
{
    simde__m512_private y = simde__m512_to_private(x);
    for (int k = 0; k < 16; k++) {
        const double inverse = (1 + (k % 2 ? -0x1p-14 : 0x1p-14)) / (double)y.f32[k];
        y.f32[k] = inverse < 0x1p-126 ? 0 : (float)inverse;
    }
    return simde__m512_from_private(y);
}
#undef _mm512_rcp14_ps
#define _mm512_rcp14_ps(x) emulated_rcp14_ps(x)

#endif
