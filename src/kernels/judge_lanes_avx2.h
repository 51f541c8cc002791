// SPDX-License-Identifier: Apache-2.0
// What judge_screen.inc and judge_screen_f32.inc are written in, for AVX2: four doubles
// or eight floats at a time. The same names for AVX-512: judge_lanes_avx512.h. Masks are
// vectors here. Included by judge_screen_avx2.c only.
#ifndef USC_JUDGE_LANES_AVX2_H
#define USC_JUDGE_LANES_AVX2_H

#include "kernels/float8.h"
#include "kernels/judge_avx2.h"

enum { DOUBLES = 4, FLOATS = 8 };

typedef __m256d doubles, double_mask;
typedef __m256 floats, float_mask;
typedef __m128 narrow; /* as many floats as doubles */
typedef __m256i ints, doubt;

/* ---- doubles; where one is NaN, max and min give the second ---- */

static USC_ALWAYS_INLINE doubles d_all(double x)
{
    return _mm256_set1_pd(x);
}

static USC_ALWAYS_INLINE doubles d_load(const double *x)
{
    return _mm256_loadu_pd(x);
}

static USC_ALWAYS_INLINE narrow n_load(const float *x)
{
    return _mm_loadu_ps(x);
}

static USC_ALWAYS_INLINE narrow n_max(narrow a, narrow b)
{
    return _mm_max_ps(a, b);
}

static USC_ALWAYS_INLINE doubles d_of(narrow x)
{
    return _mm256_cvtps_pd(x);
}

static USC_ALWAYS_INLINE narrow n_of(doubles x)
{
    return _mm256_cvtpd_ps(x);
}

static USC_ALWAYS_INLINE doubles d_sub(doubles a, doubles b)
{
    return _mm256_sub_pd(a, b);
}

static USC_ALWAYS_INLINE doubles d_mul(doubles a, doubles b)
{
    return _mm256_mul_pd(a, b);
}

static USC_ALWAYS_INLINE doubles d_div(doubles a, doubles b)
{
    return _mm256_div_pd(a, b);
}

static USC_ALWAYS_INLINE doubles d_max(doubles a, doubles b)
{
    return _mm256_max_pd(a, b);
}

static USC_ALWAYS_INLINE doubles d_min(doubles a, doubles b)
{
    return _mm256_min_pd(a, b);
}

static USC_ALWAYS_INLINE doubles d_and(doubles a, doubles b)
{
    return _mm256_and_pd(a, b);
}

static USC_ALWAYS_INLINE doubles d_xor(doubles a, doubles b)
{
    return _mm256_xor_pd(a, b);
}

static USC_ALWAYS_INLINE doubles d_size(doubles x)
{
    return _mm256_andnot_pd(_mm256_set1_pd(-0.0), x);
}

static USC_ALWAYS_INLINE doubles d_exponent(doubles x)
{
    return _mm256_and_pd(
        x, _mm256_castsi256_pd(_mm256_set1_epi64x(INT64_C(0x7ff0000000000000))));
}

/* c - a b */
static USC_ALWAYS_INLINE doubles d_less(doubles a, doubles b, doubles c)
{
    return _mm256_fnmadd_pd(a, b, c);
}

/* Where x is above 0, or NaN. */
static USC_ALWAYS_INLINE double_mask d_above(doubles x)
{
    return _mm256_cmp_pd(x, _mm256_setzero_pd(), _CMP_NLE_UQ);
}

static USC_ALWAYS_INLINE doubles d_where(double_mask mask, doubles x)
{
    return _mm256_and_pd(mask, x);
}

static USC_ALWAYS_INLINE unsigned d_bits(double_mask mask)
{
    return (unsigned)_mm256_movemask_pd(mask);
}

static USC_ALWAYS_INLINE doubles d_load_half(usc_dtype dtype, const uint16_t *x)
{
    const __m128i words = _mm_loadl_epi64((const __m128i *)(const void *)x);
    if (dtype == USC_F16) return d_of(_mm_cvtph_ps(words));
    return d_of(_mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), words)));
}

static USC_ALWAYS_INLINE doubles d_load_byte(usc_dtype dtype, const uint8_t *x)
{
    int32_t word; /* _mm_loadu_si32 came with gcc 11 */
    memcpy(&word, x, sizeof word);
    const __m128i bytes = _mm_cvtsi32_si128(word);
    const narrow value = _mm_cvtph_ps(usc_half_of_bytes(dtype, bytes));
    return d_of(_mm_mul_ps(value, _mm_set1_ps(usc_half_factor(dtype))));
}

static inline double d_largest(doubles x)
{
    return largest_of(x);
}

/* ---- floats ---- */

static USC_ALWAYS_INLINE floats f_all(float x)
{
    return _mm256_set1_ps(x);
}

static USC_ALWAYS_INLINE floats f_load(const float *x)
{
    return _mm256_loadu_ps(x);
}

static USC_ALWAYS_INLINE floats f_join(narrow low, narrow high)
{
    return _mm256_set_m128(high, low);
}

static USC_ALWAYS_INLINE floats f_sub(floats a, floats b)
{
    return _mm256_sub_ps(a, b);
}

static USC_ALWAYS_INLINE floats f_mul(floats a, floats b)
{
    return _mm256_mul_ps(a, b);
}

static USC_ALWAYS_INLINE floats f_max(floats a, floats b)
{
    return _mm256_max_ps(a, b);
}

static USC_ALWAYS_INLINE floats f_size(floats x)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}

/* About 1 / x: relative error at most 1.5 * 2^-12. */
static USC_ALWAYS_INLINE floats f_inverse(floats x)
{
    return _mm256_rcp_ps(x);
}

static USC_ALWAYS_INLINE floats f_less(floats a, floats b, floats c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

static USC_ALWAYS_INLINE floats f_times_plus(floats a, floats b, floats c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static USC_ALWAYS_INLINE float_mask f_above(floats x)
{
    return _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_NLE_UQ);
}

static USC_ALWAYS_INLINE float_mask f_greater(floats a, floats b)
{
    return _mm256_cmp_ps(a, b, _CMP_GT_OQ);
}

static USC_ALWAYS_INLINE float_mask f_zero(floats x)
{
    return _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_EQ_OQ);
}

static USC_ALWAYS_INLINE float_mask f_nan(floats x)
{
    return _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
}

static USC_ALWAYS_INLINE floats f_where(float_mask mask, floats x)
{
    return _mm256_and_ps(mask, x);
}

static USC_ALWAYS_INLINE unsigned f_bits(float_mask mask)
{
    return (unsigned)_mm256_movemask_ps(mask);
}

/* The power of two at or below the float beside d, towards d + by; `size` is |d|. */
static USC_ALWAYS_INLINE floats f_power_towards(floats d, floats size, floats by)
{
    const ints below = _mm256_srli_epi32(_mm256_castps_si256(_mm256_xor_ps(d, by)), 31);
    const ints beside = _mm256_sub_epi32(_mm256_castps_si256(size), below);
    const ints normal = _mm256_max_epi32(beside, _mm256_set1_epi32(0x00800000));
    return _mm256_castsi256_ps(_mm256_and_si256(normal, _mm256_set1_epi32(0x7f800000)));
}

static inline double f_largest(floats x)
{
    return largest_of(_mm256_max_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(x)),
                                    _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))));
}

/* ---- what is gathered over a block ---- */

static USC_ALWAYS_INLINE doubt no_doubt(void)
{
    return _mm256_setzero_si256();
}

static USC_ALWAYS_INLINE doubt doubt_where(doubt x, float_mask mask)
{
    return _mm256_or_si256(x, _mm256_castps_si256(mask));
}

static USC_ALWAYS_INLINE doubt doubt_unequal(doubt x, ints a, ints b)
{
    return _mm256_or_si256(x, _mm256_xor_si256(a, b));
}

static USC_ALWAYS_INLINE bool is_doubted(doubt x)
{
    return !_mm256_testz_si256(x, x);
}

/* ---- bins ---- */

static USC_ALWAYS_INLINE ints bin_edges(void)
{
    return quarter_edges();
}

static USC_ALWAYS_INLINE ints edges_at(ints edges, floats scores)
{
    return edges_of(edges, scores);
}

static USC_ALWAYS_INLINE ints quarters_at(ints edge, floats scores)
{
    return quarters_from(edge, scores);
}

/* Bins of sixteen scores, a byte each, of their quarter octaves. */
static USC_ALWAYS_INLINE __m128i bins_from(const ints *quarters)
{
    return bins_of(quarters[0], quarters[1]);
}
#endif
