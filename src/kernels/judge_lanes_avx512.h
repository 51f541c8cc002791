// SPDX-License-Identifier: Apache-2.0
// judge_lanes_avx2.h for AVX-512 (F, BW, DQ, VL): eight doubles or sixteen floats at a
// time; masks are bits. Included by judge_screen_avx512.c only.
#ifndef USC_JUDGE_LANES_AVX512_H
#define USC_JUDGE_LANES_AVX512_H

#include "kernels/float8.h"
#include "kernels/judge_avx512.h"

enum { DOUBLES = 8, FLOATS = 16 };

typedef __m512d doubles;
typedef __m512 floats;
typedef __m256 narrow; /* as many floats as doubles */
typedef __m512i ints;
typedef __mmask8 double_mask;
typedef __mmask16 float_mask;
typedef unsigned doubt;

/* ---- doubles; where one is NaN, max and min give the second ---- */

static USC_ALWAYS_INLINE doubles d_all(double x)
{
    return _mm512_set1_pd(x);
}

static USC_ALWAYS_INLINE doubles d_load(const double *x)
{
    return _mm512_loadu_pd(x);
}

static USC_ALWAYS_INLINE narrow n_load(const float *x)
{
    return _mm256_loadu_ps(x);
}

static USC_ALWAYS_INLINE narrow n_max(narrow a, narrow b)
{
    return _mm256_max_ps(a, b);
}

static USC_ALWAYS_INLINE doubles d_of(narrow x)
{
    return _mm512_cvtps_pd(x);
}

static USC_ALWAYS_INLINE narrow n_of(doubles x)
{
    return _mm512_cvtpd_ps(x);
}

static USC_ALWAYS_INLINE doubles d_sub(doubles a, doubles b)
{
    return _mm512_sub_pd(a, b);
}

static USC_ALWAYS_INLINE doubles d_mul(doubles a, doubles b)
{
    return _mm512_mul_pd(a, b);
}

static USC_ALWAYS_INLINE doubles d_div(doubles a, doubles b)
{
    return _mm512_div_pd(a, b);
}

static USC_ALWAYS_INLINE doubles d_max(doubles a, doubles b)
{
    return _mm512_max_pd(a, b);
}

static USC_ALWAYS_INLINE doubles d_min(doubles a, doubles b)
{
    return _mm512_min_pd(a, b);
}

static USC_ALWAYS_INLINE doubles d_and(doubles a, doubles b)
{
    return _mm512_and_pd(a, b);
}

static USC_ALWAYS_INLINE doubles d_xor(doubles a, doubles b)
{
    return _mm512_xor_pd(a, b);
}

static USC_ALWAYS_INLINE doubles d_size(doubles x)
{
    return size_of(x);
}

static USC_ALWAYS_INLINE doubles d_exponent(doubles x)
{
    return _mm512_and_pd(
        x, _mm512_castsi512_pd(_mm512_set1_epi64(INT64_C(0x7ff0000000000000))));
}

/* c - a b */
static USC_ALWAYS_INLINE doubles d_less(doubles a, doubles b, doubles c)
{
    return _mm512_fnmadd_pd(a, b, c);
}

/* Where x is above 0, or NaN. */
static USC_ALWAYS_INLINE double_mask d_above(doubles x)
{
    return _mm512_cmp_pd_mask(x, _mm512_setzero_pd(), _CMP_NLE_UQ);
}

static USC_ALWAYS_INLINE doubles d_where(double_mask mask, doubles x)
{
    return _mm512_maskz_mov_pd(mask, x);
}

static USC_ALWAYS_INLINE unsigned d_bits(double_mask mask)
{
    return mask;
}

static USC_ALWAYS_INLINE doubles d_load_half(usc_dtype dtype, const uint16_t *x)
{
    const __m128i words = _mm_loadu_si128((const __m128i *)(const void *)x);
    if (dtype == USC_F16) return d_of(_mm256_cvtph_ps(words));
    const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16);
    return d_of(_mm256_castsi256_ps(bits));
}

static USC_ALWAYS_INLINE doubles d_load_byte(usc_dtype dtype, const uint8_t *x)
{
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)x);
    const narrow value = _mm256_cvtph_ps(usc_half_of_bytes(dtype, bytes));
    return d_of(_mm256_mul_ps(value, _mm256_set1_ps(usc_half_factor(dtype))));
}

static inline double d_largest(doubles x)
{
    return largest_of_eight(x);
}

/* ---- floats ---- */

static USC_ALWAYS_INLINE floats f_all(float x)
{
    return _mm512_set1_ps(x);
}

static USC_ALWAYS_INLINE floats f_load(const float *x)
{
    return _mm512_loadu_ps(x);
}

static USC_ALWAYS_INLINE floats f_join(narrow low, narrow high)
{
    return join(low, high);
}

static USC_ALWAYS_INLINE floats f_sub(floats a, floats b)
{
    return _mm512_sub_ps(a, b);
}

static USC_ALWAYS_INLINE floats f_mul(floats a, floats b)
{
    return _mm512_mul_ps(a, b);
}

static USC_ALWAYS_INLINE floats f_max(floats a, floats b)
{
    return _mm512_max_ps(a, b);
}

static USC_ALWAYS_INLINE floats f_size(floats x)
{
    return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), x);
}

/* About 1 / x: relative error at most 2^-14. */
static USC_ALWAYS_INLINE floats f_inverse(floats x)
{
    return _mm512_rcp14_ps(x);
}

static USC_ALWAYS_INLINE floats f_less(floats a, floats b, floats c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

static USC_ALWAYS_INLINE floats f_times_plus(floats a, floats b, floats c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static USC_ALWAYS_INLINE float_mask f_above(floats x)
{
    return _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NLE_UQ);
}

static USC_ALWAYS_INLINE float_mask f_greater(floats a, floats b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}

static USC_ALWAYS_INLINE float_mask f_zero(floats x)
{
    return _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_EQ_OQ);
}

static USC_ALWAYS_INLINE float_mask f_nan(floats x)
{
    return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
}

static USC_ALWAYS_INLINE floats f_where(float_mask mask, floats x)
{
    return _mm512_maskz_mov_ps(mask, x);
}

static USC_ALWAYS_INLINE unsigned f_bits(float_mask mask)
{
    return mask;
}

/* The power of two at or below the float beside d, towards d + by; `size` is |d|. */
static USC_ALWAYS_INLINE floats f_power_towards(floats d, floats size, floats by)
{
    const ints below = _mm512_srli_epi32(_mm512_castps_si512(_mm512_xor_ps(d, by)), 31);
    const ints beside = _mm512_sub_epi32(_mm512_castps_si512(size), below);
    const ints normal = _mm512_max_epi32(beside, _mm512_set1_epi32(0x00800000));
    return _mm512_castsi512_ps(_mm512_and_si512(normal, _mm512_set1_epi32(0x7f800000)));
}

static inline double f_largest(floats x)
{
    float lanes[16], largest = 0;
    _mm512_storeu_ps(lanes, x);
    for (int k = 0; k < 16; k++)
        largest = lanes[k] > largest ? lanes[k] : largest;
    return (double)largest;
}

/* ---- what is gathered over a block ---- */

static USC_ALWAYS_INLINE doubt no_doubt(void)
{
    return 0;
}

static USC_ALWAYS_INLINE doubt doubt_where(doubt x, float_mask mask)
{
    return x | mask;
}

static USC_ALWAYS_INLINE doubt doubt_unequal(doubt x, ints a, ints b)
{
    const ints differ = _mm512_xor_si512(a, b);
    return x | _mm512_test_epi32_mask(differ, differ);
}

static USC_ALWAYS_INLINE bool is_doubted(doubt x)
{
    return x != 0;
}

/* ---- bins ---- */

static USC_ALWAYS_INLINE ints bin_edges(void)
{
    return wide_quarter_edges();
}

static USC_ALWAYS_INLINE ints edges_at(ints edges, floats scores)
{
    return wide_edges_of(edges, scores);
}

static USC_ALWAYS_INLINE ints quarters_at(ints edge, floats scores)
{
    return wide_quarters_from(edge, scores);
}

/* Bins of sixteen scores, a byte each, of their quarter octaves. */
static USC_ALWAYS_INLINE __m128i bins_from(const ints *quarters)
{
    return _mm512_cvtepi32_epi8(wide_bins_of(quarters[0]));
}
#endif
