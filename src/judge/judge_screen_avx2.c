// SPDX-License-Identifier: Apache-2.0
// The quick form of the score kernel for AVX2: reads the device's output in its own dtype
// and leaves bins instead of scores. It sees ordinary elements only and says where it
// saw another; the scores themselves have the bits of judge_kernels.inc.
#include "judge/judge_kernels.h"

#if defined(__x86_64__)
#include "base/compiler.h"

#include <immintrin.h>

#include <float.h>

/* What is carried from one step to the next. */
typedef struct running {
    __m256d max, sum; /* of scores; the sum is NaN or Inf where any is */
    __m256d size;     /* largest |R| */
    __m256d dark;     /* above 0 where S or N exceeds 2^20 |R| */
    __m256i matches;  /* minus the number of mismatches */
} running;

typedef struct constants {
    __m256d min_power, half_ulp, unit, floor, factor;
    __m256i edges; /* by the upper three bits of a significand */
} constants;

static USC_ALWAYS_INLINE __m256d size_of(__m256d x)
{
    return _mm256_andnot_pd(_mm256_set1_pd(-0.0), x);
}

/* Half an ulp of d towards r. A number just below d has the ulp that counts on that side,
 * also where d is a power of two: `beside` is d or the double below it. */
static USC_ALWAYS_INLINE __m256d reach_of(const constants *c, __m256d size, __m256d r)
{
    const __m256i exponent = _mm256_set1_epi64x(INT64_C(0x7ff0000000000000));
    const __m256d below = _mm256_mul_pd(size, _mm256_set1_pd(1 - 0x1p-53));
    const __m256d beside = _mm256_max_pd(_mm256_min_pd(r, size), below);
    const __m256d power = _mm256_and_pd(beside, _mm256_castsi256_pd(exponent));
    return _mm256_mul_pd(_mm256_max_pd(power, c->min_power), c->half_ulp);
}

/* Scores of four elements; `larger` is the larger of S and N as stored. max() gives its
 * second operand where one is NaN, so that NaN reaches the sum. */
static USC_ALWAYS_INLINE __m128 score_four(const constants *c, __m256d d, __m256d r,
                                           __m128 larger, running *t)
{
    const __m256d size = size_of(r);
    const __m256d sn = _mm256_mul_pd(_mm256_cvtps_pd(larger), c->factor);
    const __m256d scale = _mm256_max_pd(c->floor, _mm256_max_pd(size, sn));
    const __m256d unit = _mm256_mul_pd(c->unit, scale);
    const __m256d towards =
        _mm256_xor_pd(r, _mm256_and_pd(d, _mm256_set1_pd(-0.0))); /* r sign(d) */
    const __m256d d_size = size_of(d);
    const __m256d beyond = size_of(_mm256_sub_pd(towards, d_size));
    const __m256d zero = _mm256_setzero_pd();
    const __m256d e =
        _mm256_max_pd(zero, _mm256_sub_pd(beyond, reach_of(c, d_size, towards)));
    const __m256d x = _mm256_div_pd(e, unit);
    t->max = _mm256_max_pd(x, t->max);
    t->sum = _mm256_add_pd(t->sum, x);
    t->size = _mm256_max_pd(size, t->size);
    t->dark = _mm256_max_pd(_mm256_fnmadd_pd(size, _mm256_set1_pd(0x1p20), sn), t->dark);
    t->matches = _mm256_add_epi64(
        t->matches, _mm256_castpd_si256(_mm256_cmp_pd(e, zero, _CMP_GT_OQ)));
    return _mm256_cvtpd_ps(x);
}

static USC_ALWAYS_INLINE __m256 load_eight(usc_dtype dtype, const void *d, size_t i)
{
    if (dtype == USC_F32) return _mm256_loadu_ps((const float *)d + i);
    const __m128i words = _mm_loadu_si128((const __m128i *)((const uint16_t *)d + i));
    if (dtype == USC_F16) return _mm256_cvtph_ps(words);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
}

/* Four times the exponent field plus the quarter octave, of eight scores: adding an edge
 * carries a significand into the next quarter of its octave exactly from 2^(k/4) on. */
static USC_ALWAYS_INLINE __m256i quarters_of(const constants *c, __m128 low, __m128 high)
{
    const __m256i bits = _mm256_castps_si256(_mm256_set_m128(high, low));
    const __m256i edge =
        _mm256_permutevar8x32_epi32(c->edges, _mm256_srli_epi32(bits, 20));
    return _mm256_srli_epi32(_mm256_add_epi32(bits, edge), 21);
}

static USC_ALWAYS_INLINE __m256i screen_eight(const constants *c, __m256 d,
                                              const double *r, const float *s,
                                              const float *n, running *t)
{
    /* N is stored 2^6 times smaller than S; a NaN of N counts as none */
    const __m256 scaled = _mm256_mul_ps(
        _mm256_loadu_ps(n), _mm256_set1_ps((float)(USC_S_STORED / USC_N_STORED)));
    const __m256 larger = _mm256_max_ps(scaled, _mm256_loadu_ps(s));
    const __m128 a = score_four(c, _mm256_cvtps_pd(_mm256_castps256_ps128(d)),
                                _mm256_loadu_pd(r), _mm256_castps256_ps128(larger), t);
    const __m128 b =
        score_four(c, _mm256_cvtps_pd(_mm256_extractf128_ps(d, 1)),
                   _mm256_loadu_pd(r + 4), _mm256_extractf128_ps(larger, 1), t);
    return quarters_of(c, a, b);
}

/* Bin = quarters - 475, held within 0 and the last bin. */
static USC_ALWAYS_INLINE void store_bins(__m256i a, __m256i b, uint8_t *bins)
{
    const __m256i words = _mm256_subs_epu16(_mm256_packus_epi32(a, b),
                                            _mm256_set1_epi16((127 - 8) * 4 - 1));
    const __m256i bytes = _mm256_packus_epi16(words, words);
    const __m128i joined = _mm_unpacklo_epi64(_mm256_castsi256_si128(bytes),
                                              _mm256_extracti128_si256(bytes, 1));
    _mm_storeu_si128((__m128i *)bins,
                     _mm_min_epu8(joined, _mm_set1_epi8((char)(USC_N_SCORE_BINS - 1))));
}

static double largest_of(__m256d x)
{
    double lanes[4], largest = 0;
    _mm256_storeu_pd(lanes, x);
    for (int k = 0; k < 4; k++)
        largest = lanes[k] > largest ? lanes[k] : largest;
    return largest;
}

static bool settle(const usc_score_params *p, const running *t, usc_screened *out)
{
    double sums[4];
    int64_t counts[4];
    _mm256_storeu_pd(sums, t->sum);
    _mm256_storeu_si256((__m256i *)counts, t->matches);
    out->max = largest_of(t->max);
    out->n_mismatch = -(counts[0] + counts[1] + counts[2] + counts[3]);
    const double sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    return sum <= DBL_MAX && largest_of(t->size) < p->overflow &&
           !(largest_of(t->dark) > 0);
}

static USC_ALWAYS_INLINE bool screen(const usc_score_params *p, usc_dtype dtype,
                                     const usc_screen_operands *o, size_t count,
                                     uint8_t *bins, usc_screened *out)
{
    const constants c = {
        .min_power = _mm256_set1_pd(p->min_power),
        .half_ulp = _mm256_set1_pd(p->half_ulp),
        .unit = _mm256_set1_pd(p->unit),
        .floor = _mm256_set1_pd(p->floor),
        .factor = _mm256_set1_pd(p->s_factor),
        .edges = _mm256_setr_epi32(0, 0x200000 - 0x1837f1, 0, 0x400000 - 0x3504f4, 0,
                                   0x600000 - 0x5744fd, 0, 0),
    };
    const __m256d zero = _mm256_setzero_pd();
    running t = {zero, zero, zero, zero, _mm256_setzero_si256()};
    for (size_t i = 0; i < count; i += 16) {
        const __m256i a = screen_eight(&c, load_eight(dtype, o->d, i), o->r + i, o->s + i,
                                       o->n + i, &t);
        const __m256i b = screen_eight(&c, load_eight(dtype, o->d, i + 8), o->r + i + 8,
                                       o->s + i + 8, o->n + i + 8, &t);
        store_bins(a, b, bins + i);
    }
    return settle(p, &t, out);
}

bool usc_judge_screen_avx2(const usc_score_params *p, usc_dtype dtype,
                           const usc_screen_operands *o, size_t count, uint8_t *bins,
                           usc_screened *out)
{
    if (count % 16 != 0) return false;
    if (dtype == USC_F32) return screen(p, USC_F32, o, count, bins, out);
    if (dtype == USC_F16) return screen(p, USC_F16, o, count, bins, out);
    if (dtype == USC_BF16) return screen(p, USC_BF16, o, count, bins, out);
    return false;
}
#endif
