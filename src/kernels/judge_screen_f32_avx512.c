// SPDX-License-Identifier: Apache-2.0
// judge_screen_f32_avx2.c for AVX-512, sixteen scores at once in float. Its reciprocal is
// better than the one of AVX2 (2^-14 before the Newton step), so the bound of
// judge_screen_f32.h holds here as well. It may send away other blocks than that one;
// what either counts is what judge_kernels.inc defines.
#include "kernels/judge_kernels.h"

#if defined(__x86_64__)
#include "kernels/judge_avx512.h"
#include "kernels/judge_screen_f32.h"

/* What is carried from one step to the next. */
typedef struct running {
    __m512 max;      /* of scores */
    __m512 size;     /* largest |D| */
    __m128i bin;     /* largest: the last one for NaN and Inf */
    unsigned unsure; /* not 0 where the bound matters */
    int64_t n_mismatch;
} running;

typedef struct sixteen {
    __m512 e, size; /* how far outside what rounds to D; |D| */
    __mmask16 off;  /* where that is above 0, or NaN */
} sixteen;

static USC_ALWAYS_INLINE __m512 float_size_of(__m512 x)
{
    return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), x);
}

static USC_ALWAYS_INLINE __m256 difference(const float *d, const double *r)
{
    const __m512d wide = _mm512_cvtps_pd(_mm256_loadu_ps(d));
    const __m512d x = _mm512_sub_pd(_mm512_loadu_pd(r), wide);
    return _mm512_cvtpd_ps(_mm512_mul_pd(x, _mm512_set1_pd(0x1p24)));
}

/* The ulp of D towards R, times 2^23: the power of two at or below the float beside D. */
static USC_ALWAYS_INLINE __m512 power_towards(__m512 d, __m512 size, __m512 difference)
{
    const __m512i below = _mm512_srli_epi32(
        _mm512_xor_si512(_mm512_castps_si512(d), _mm512_castps_si512(difference)), 31);
    const __m512i beside = _mm512_sub_epi32(_mm512_castps_si512(size), below);
    const __m512i normal = _mm512_max_epi32(beside, _mm512_set1_epi32(0x00800000));
    return _mm512_castsi512_ps(_mm512_and_si512(normal, _mm512_set1_epi32(0x7f800000)));
}

static USC_ALWAYS_INLINE sixteen first_half(const float *d, const double *r, running *t)
{
    const __m512 by = join(difference(d, r), difference(d + 8, r + 8));
    const __m512 values = _mm512_loadu_ps(d), zero = _mm512_setzero_ps();
    sixteen x = {.size = float_size_of(values)};
    x.e = _mm512_sub_ps(float_size_of(by), power_towards(values, x.size, by));
    x.off = _mm512_cmp_ps_mask(x.e, zero, _CMP_NLE_UQ);
    t->unsure |= _mm512_cmp_ps_mask(x.e, zero, _CMP_EQ_OQ); /* a tie */
    t->size = _mm512_max_ps(x.size, t->size);
    return x;
}

/* Bins of sixteen scores. The lower end of what a score may be is given the edge of the
 * upper one: where that is another's, they differ all the more. */
static USC_ALWAYS_INLINE __m128i score_sixteen(__m512i edges, const sixteen *x,
                                               running *t)
{
    const __m512 scale = _mm512_max_ps(x->size, _mm512_set1_ps(0x1p-125f));
    const __m512 guess = _mm512_rcp14_ps(scale);
    const __m512 rest = _mm512_fnmadd_ps(scale, guess, _mm512_set1_ps(2));
    const __m512 y = _mm512_mul_ps(guess, rest);
    /* of its operands max() gives the second where one is NaN */
    const __m512 score =
        _mm512_max_ps(_mm512_set1_ps(USC_F32_TINY), _mm512_mul_ps(x->e, y));
    const __m512 absolute = _mm512_set1_ps(USC_F32_ABSOLUTE);
    const __m512 low =
        _mm512_fmsub_ps(score, _mm512_set1_ps(1 - USC_F32_RELATIVE), absolute);
    const __m512 high =
        _mm512_fmadd_ps(score, _mm512_set1_ps(1 + USC_F32_RELATIVE), absolute);
    const __m512i edge = wide_edges_of(edges, high);
    const __m512i quarters = wide_quarters_from(edge, high);
    const __m512i differ = _mm512_xor_si512(quarters, wide_quarters_from(edge, low));
    t->unsure |= _mm512_test_epi32_mask(differ, differ);
    t->max = _mm512_max_ps(high, t->max);
    return _mm512_cvtepi32_epi8(wide_bins_of(quarters));
}

/* Sixteen elements; their bins. */
static USC_ALWAYS_INLINE __m128i screen_sixteen(__m512i edges, const float *d,
                                                const double *r, running *t)
{
    const sixteen x = first_half(d, r, t);
    if (x.off == 0) /* an exact operator */
        return _mm_setzero_si128();
    t->n_mismatch += _mm_popcnt_u32(x.off);
    const __m128i bins = score_sixteen(edges, &x, t);
    t->bin = _mm_max_epu8(t->bin, bins);
    return bins;
}

/* Of numbers: max() has left NaN out. */
static double largest_of_sixteen(__m512 x)
{
    float lanes[16], largest = 0;
    _mm512_storeu_ps(lanes, x);
    for (int k = 0; k < 16; k++)
        largest = lanes[k] > largest ? lanes[k] : largest;
    return (double)largest;
}

bool usc_judge_screen_f32_avx512(const float *d, const double *r, size_t count,
                                 usc_screened *out)
{
    const __m512i edges = wide_quarter_edges();
    running t = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm_setzero_si128(), 0, 0};
    __m128i bins[USC_JUDGE_BLOCK / 16];
    for (size_t i = 0; i < count; i += 16)
        bins[i / 16] = screen_sixteen(edges, d + i, r + i, &t);
    const double most = largest_of_sixteen(t.max);
    const uint8_t highest = highest_of(t.bin);
    if (t.unsure != 0 || highest == USC_N_SCORE_BINS - 1 ||
        !(largest_of_sixteen(t.size) < USC_F32_MAX_SIZE) || !(most <= out->max) ||
        most > USC_F32_MAX_SCORE)
        return false;
    out->n_mismatch += t.n_mismatch;
    count_block(bins, count, highest, out);
    return true;
}
#endif
