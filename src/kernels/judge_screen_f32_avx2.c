// SPDX-License-Identifier: Apache-2.0
// The quick kernel once more, for float32 outputs before any replay (S = N = 0), where
// nearly every element differs from the truth and none can be left out. It computes eight
// scores at once in float, with a bound of its own error, and sends a block away where
// that bound could change a bin, a match or the maximum: what it counts is what
// judge_kernels.inc defines. The bound: judge_screen_f32.h.
#include "kernels/judge_kernels.h"

#if defined(__x86_64__)
#include "kernels/judge_avx2.h"
#include "kernels/judge_screen_f32.h"

/* What is carried from one step to the next. */
typedef struct running {
    __m256 max;      /* of scores */
    __m256 size;     /* largest |D| */
    __m256i matches; /* minus the number of mismatches */
    __m256i unsure;  /* not 0 where the bound matters */
    __m128i bin;     /* largest: the last one for NaN and Inf */
} running;

typedef struct eight {
    __m256 e, off; /* how far outside what rounds to D; where that is above 0, or NaN */
    __m256 size;   /* |D| */
} eight;

static USC_ALWAYS_INLINE __m256 size_of(__m256 x)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}

static USC_ALWAYS_INLINE __m128 difference(const float *d, const double *r)
{
    const __m256d wide = _mm256_cvtps_pd(_mm_loadu_ps(d));
    const __m256d x = _mm256_sub_pd(_mm256_loadu_pd(r), wide);
    return _mm256_cvtpd_ps(_mm256_mul_pd(x, _mm256_set1_pd(0x1p24)));
}

/* The ulp of D towards R, times 2^23: the power of two at or below the float beside D. */
static USC_ALWAYS_INLINE __m256 power_towards(__m256 d, __m256 size, __m256 difference)
{
    const __m256i below = _mm256_srli_epi32(
        _mm256_xor_si256(_mm256_castps_si256(d), _mm256_castps_si256(difference)), 31);
    const __m256i beside = _mm256_sub_epi32(_mm256_castps_si256(size), below);
    const __m256i normal = _mm256_max_epi32(beside, _mm256_set1_epi32(0x00800000));
    return _mm256_castsi256_ps(_mm256_and_si256(normal, _mm256_set1_epi32(0x7f800000)));
}

static USC_ALWAYS_INLINE eight first_half(const float *d, const double *r, running *t)
{
    const __m256 by = _mm256_set_m128(difference(d + 4, r + 4), difference(d, r));
    const __m256 values = _mm256_loadu_ps(d), zero = _mm256_setzero_ps();
    eight x = {.size = size_of(values)};
    x.e = _mm256_sub_ps(size_of(by), power_towards(values, x.size, by));
    x.off = _mm256_cmp_ps(x.e, zero, _CMP_NLE_UQ);
    const __m256 tie = _mm256_cmp_ps(x.e, zero, _CMP_EQ_OQ);
    t->size = _mm256_max_ps(x.size, t->size);
    t->unsure = _mm256_or_si256(t->unsure, _mm256_castps_si256(tie));
    return x;
}

/* Eight scores as quarter octaves. The lower end of what a score may be is given the edge
 * of the upper one: where that is another's, they differ all the more. */
static USC_ALWAYS_INLINE __m256i score_eight(__m256i edges, const eight *x, running *t)
{
    const __m256 scale = _mm256_max_ps(x->size, _mm256_set1_ps(0x1p-125f));
    const __m256 guess = _mm256_rcp_ps(scale);
    const __m256 rest = _mm256_fnmadd_ps(scale, guess, _mm256_set1_ps(2));
    const __m256 y = _mm256_mul_ps(guess, rest);
    /* of its operands max() gives the second where one is NaN */
    const __m256 score =
        _mm256_max_ps(_mm256_set1_ps(USC_F32_TINY), _mm256_mul_ps(x->e, y));
    const __m256 absolute = _mm256_set1_ps(USC_F32_ABSOLUTE);
    const __m256 low =
        _mm256_fmsub_ps(score, _mm256_set1_ps(1 - USC_F32_RELATIVE), absolute);
    const __m256 high =
        _mm256_fmadd_ps(score, _mm256_set1_ps(1 + USC_F32_RELATIVE), absolute);
    const __m256i edge = edges_of(edges, high);
    const __m256i quarters = quarters_from(edge, high);
    t->max = _mm256_max_ps(high, t->max);
    t->matches = _mm256_add_epi32(t->matches, _mm256_castps_si256(x->off));
    t->unsure =
        _mm256_or_si256(t->unsure, _mm256_xor_si256(quarters, quarters_from(edge, low)));
    return quarters;
}

/* Sixteen elements; their bins. */
static USC_ALWAYS_INLINE __m128i screen_sixteen(__m256i edges, const float *d,
                                                const double *r, running *t)
{
    const eight x0 = first_half(d, r, t), x1 = first_half(d + 8, r + 8, t);
    if (_mm256_movemask_ps(_mm256_or_ps(x0.off, x1.off)) == 0) /* an exact operator */
        return _mm_setzero_si128();
    const __m256i q0 = score_eight(edges, &x0, t), q1 = score_eight(edges, &x1, t);
    const __m128i bins = bins_of(q0, q1);
    t->bin = _mm_max_epu8(t->bin, bins);
    return bins;
}

/* Of numbers: max() has left NaN out. */
static double largest_of_eight(__m256 x)
{
    return largest_of(_mm256_max_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(x)),
                                    _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))));
}

bool usc_judge_screen_f32_avx2(const float *d, const double *r, size_t count,
                               usc_screened *out)
{
    const __m256i edges = quarter_edges();
    running t = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_si256(),
                 _mm256_setzero_si256(), _mm_setzero_si128()};
    __m128i bins[USC_JUDGE_BLOCK / 16];
    for (size_t i = 0; i < count; i += 16)
        bins[i / 16] = screen_sixteen(edges, d + i, r + i, &t);
    const double most = largest_of_eight(t.max);
    const uint8_t highest = highest_of(t.bin);
    if (!_mm256_testz_si256(t.unsure, t.unsure) || highest == USC_N_SCORE_BINS - 1 ||
        !(largest_of_eight(t.size) < USC_F32_MAX_SIZE) || !(most <= out->max) ||
        most > USC_F32_MAX_SCORE)
        return false;
    int32_t counts[8];
    _mm256_storeu_si256((__m256i *)counts, t.matches);
    for (int k = 0; k < 8; k++)
        out->n_mismatch -= counts[k];
    count_block(bins, count, highest, out);
    return true;
}
#endif
