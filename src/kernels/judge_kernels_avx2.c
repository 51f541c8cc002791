// SPDX-License-Identifier: Apache-2.0
// The judge's inner loops for AVX2: the operations of judge_kernels.inc, four elements at
// a time, eight per step; what is left over goes through the scalar table.
#include "kernels/judge_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <float.h>
#include <math.h>
#include <string.h>

/* The parameters in registers. */
typedef struct vectors {
    __m256d min_power, half_ulp, ulp_inverse, largest, overflow, unit, floor;
    __m256d s_factor, n_factor, s_unknown, expect, typical, leave_out;
} vectors;

static vectors spread(const usc_score_params *p)
{
    return (vectors){
        .min_power = _mm256_set1_pd(p->min_power),
        .half_ulp = _mm256_set1_pd(p->half_ulp),
        .ulp_inverse = _mm256_set1_pd(p->ulp_inverse),
        .largest = _mm256_set1_pd(p->largest),
        .overflow = _mm256_set1_pd(p->overflow),
        .unit = _mm256_set1_pd(p->unit),
        .floor = _mm256_set1_pd(p->floor),
        .s_factor = _mm256_set1_pd(p->s_factor),
        .n_factor = _mm256_set1_pd(p->n_factor),
        .s_unknown = _mm256_set1_pd(p->s_unknown),
        .expect = _mm256_set1_pd(p->expect),
        .typical = _mm256_set1_pd(p->typical),
        .leave_out = _mm256_set1_pd(p->leave_out),
    };
}

static __m256d size_of(__m256d x)
{
    return _mm256_andnot_pd(_mm256_set1_pd(-0.0), x);
}

static __m256d power_of(const vectors *v, __m256d x)
{
    const __m256i exponent = _mm256_set1_epi64x(INT64_C(0x7ff0000000000000));
    return _mm256_max_pd(_mm256_and_pd(x, _mm256_castsi256_pd(exponent)), v->min_power);
}

static __m256d ulp_inverse(const vectors *v, __m256d size)
{
    const __m256i bits = _mm256_castpd_si256(power_of(v, size));
    const __m256i top = _mm256_set1_epi64x(INT64_C(0x7fe0000000000000));
    return _mm256_mul_pd(_mm256_castsi256_pd(_mm256_sub_epi64(top, bits)),
                         v->ulp_inverse);
}

static inline __m256d distance(const vectors *v, __m256d d, __m256d r)
{
    const __m256d sign = _mm256_and_pd(d, _mm256_set1_pd(-0.0));
    const __m256d size = size_of(d), power = power_of(v, size);
    const __m256d above = _mm256_mul_pd(power, v->half_ulp);
    const __m256d edge = _mm256_and_pd(_mm256_cmp_pd(size, power, _CMP_EQ_OQ),
                                       _mm256_cmp_pd(size, v->min_power, _CMP_GT_OQ));
    const __m256d half = _mm256_mul_pd(above, _mm256_set1_pd(0.5));
    const __m256d below = _mm256_blendv_pd(above, half, edge);
    const __m256d beyond = _mm256_sub_pd(_mm256_xor_pd(r, sign), size);
    const __m256d up = _mm256_cmp_pd(beyond, _mm256_setzero_pd(), _CMP_GT_OQ);
    const __m256d reach = _mm256_blendv_pd(below, above, up);
    return _mm256_max_pd(_mm256_sub_pd(size_of(beyond), reach), _mm256_setzero_pd());
}

/* Running sums of one block in registers. The two halves of the lanes take turns: the
 * one whose turn it is is `expected`, the other waits. */
typedef struct sums {
    __m256d max, expected, waiting;
    int64_t n_ill;
    int special;
} sums;

static void score_four(const vectors *v, const double *d_at, const double *r_at,
                       const float *s_at, const float *n_at, double *score, sums *t)
{
    const __m256d d = _mm256_loadu_pd(d_at), r = _mm256_loadu_pd(r_at);
    const __m256d size = size_of(r), zero = _mm256_setzero_pd();
    const __m256d plain = _mm256_and_pd(_mm256_cmp_pd(size_of(d), v->largest, _CMP_LE_OQ),
                                        _mm256_cmp_pd(size, v->overflow, _CMP_LT_OQ));
    __m256d s = _mm256_mul_pd(_mm256_cvtps_pd(_mm_loadu_ps(s_at)), v->s_factor);
    __m256d n = _mm256_mul_pd(_mm256_cvtps_pd(_mm_loadu_ps(n_at)), v->n_factor);
    const __m256d known = _mm256_cmp_pd(s, _mm256_set1_pd(DBL_MAX), _CMP_LE_OQ);
    s = _mm256_blendv_pd(v->s_unknown, s, known);
    n = _mm256_max_pd(n, zero);
    const __m256d all = _mm256_max_pd(_mm256_max_pd(size, s), _mm256_max_pd(n, v->floor));
    const __m256d unit = _mm256_mul_pd(v->unit, all), off = distance(v, d, r);
    const __m256d least =
        _mm256_mul_pd(_mm256_set1_pd(USC_FOUR_BITS), _mm256_max_pd(size, v->typical));
    const __m256d ill =
        _mm256_and_pd(_mm256_cmp_pd(off, zero, _CMP_GT_OQ),
                      _mm256_cmp_pd(_mm256_max_pd(off, unit), least, _CMP_GT_OQ));
    __m256d x = _mm256_and_pd(_mm256_div_pd(off, unit), plain);
    const __m256d left = _mm256_and_pd(ill, _mm256_cmp_pd(x, v->leave_out, _CMP_LE_OQ));
    x = _mm256_andnot_pd(left, x);
    const __m256d e =
        _mm256_min_pd(_mm256_mul_pd(_mm256_mul_pd(unit, v->expect), ulp_inverse(v, size)),
                      _mm256_set1_pd(1));
    _mm256_storeu_pd(score, x);
    t->max = _mm256_max_pd(x, t->max);
    const __m256d sum = _mm256_add_pd(t->expected, _mm256_and_pd(e, plain));
    t->expected = t->waiting;
    t->waiting = sum;
    const int plain_bits = _mm256_movemask_pd(plain);
    t->special |= plain_bits ^ 15;
    t->n_ill += _mm_popcnt_u32((unsigned)(_mm256_movemask_pd(ill) & plain_bits));
}

static void score_avx2(const usc_score_params *p, const double *d, const double *r,
                       const float *s, const float *n, size_t count, double *score,
                       usc_score_sums *out)
{
    const vectors v = spread(p);
    sums t = {.max = _mm256_set1_pd(out->max),
              .expected = _mm256_loadu_pd(out->expected),
              .waiting = _mm256_loadu_pd(out->expected + 4)};
    const size_t even = count / 8 * 8; /* both halves take the same number of turns */
    size_t i = 0;
    for (; i < even; i += 4)
        score_four(&v, d + i, r + i, s + i, n + i, score + i, &t);
    double max[4];
    _mm256_storeu_pd(max, t.max);
    for (int k = 0; k < 4; k++)
        out->max = max[k] > out->max ? max[k] : out->max;
    _mm256_storeu_pd(out->expected, t.expected);
    _mm256_storeu_pd(out->expected + 4, t.waiting);
    out->n_ill += t.n_ill;
    out->special |= t.special != 0;
    usc_judge_kernels_scalar.score(p, d + i, r + i, s + i, n + i, count - i, score + i,
                                   out);
}

/* Low halves of two vectors of 64-bit masks, as one vector of 32-bit masks. */
static __m256i join_masks(__m256d a, __m256d b)
{
    const __m256i even = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
    const __m256i x = _mm256_permutevar8x32_epi32(_mm256_castpd_si256(a), even);
    const __m256i y = _mm256_permutevar8x32_epi32(_mm256_castpd_si256(b), even);
    return _mm256_blend_epi32(x, y, 0xf0);
}

/* Adding an edge, found by the upper three bits of a significand, carries it into the
 * next quarter of its octave exactly from 2^(k/4) on. */
static void bin_avx2(const double *score, size_t count, uint8_t *bins)
{
    const __m256i edges = _mm256_setr_epi32(
        0, 0x200000 - 0x1837f1, 0, 0x400000 - 0x3504f4, 0, 0x600000 - 0x5744fd, 0, 0);
    const __m256i top = _mm256_set1_epi32(USC_N_SCORE_BINS - 1);
    const __m256i match = _mm256_set1_epi32(USC_BIN_MATCH);
    const __m256i first = _mm256_set1_epi32((127 - 8) * 4 - 1);
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        const __m256d a = _mm256_loadu_pd(score + i), b = _mm256_loadu_pd(score + i + 4);
        const __m256i bits =
            _mm256_castps_si256(_mm256_set_m128(_mm256_cvtpd_ps(b), _mm256_cvtpd_ps(a)));
        const __m256i edge =
            _mm256_permutevar8x32_epi32(edges, _mm256_srli_epi32(bits, 20));
        __m256i bin = _mm256_srli_epi32(_mm256_add_epi32(bits, edge), 21);
        bin = _mm256_sub_epi32(bin, first);
        bin = _mm256_min_epi32(_mm256_max_epi32(bin, _mm256_setzero_si256()), top);
        const __m256d zero = _mm256_setzero_pd();
        const __m256i above = join_masks(_mm256_cmp_pd(a, zero, _CMP_GT_OQ),
                                         _mm256_cmp_pd(b, zero, _CMP_GT_OQ));
        bin = _mm256_blendv_epi8(match, bin, above);
        const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(bin),
                                               _mm256_extracti128_si256(bin, 1));
        const int64_t bytes = _mm_cvtsi128_si64(_mm_packus_epi16(words, words));
        memcpy(bins + i, &bytes, sizeof bytes);
    }
    usc_judge_kernels_scalar.bin(score + i, count - i, bins + i);
}

/* sqrt(t^2 + x^2), at most FLT_MAX; NaN where that is not finite. The first replay finds
 * t = 0: the root of a rounded square is then |x| itself, but for numbers so small that
 * they are zero as float either way. */
static inline __m128 longer(__m128 t, __m256d x)
{
    const __m128i bits = _mm_castps_si128(t);
    __m256d square = _mm256_mul_pd(x, x), y = size_of(x);
    if (!_mm_testz_si128(bits, bits)) {
        const __m256d a = _mm256_cvtps_pd(t);
        square = _mm256_add_pd(_mm256_mul_pd(a, a), square);
        y = _mm256_sqrt_pd(square);
    }
    const __m256d known = _mm256_cmp_pd(square, _mm256_set1_pd(DBL_MAX), _CMP_LE_OQ);
    const __m256d kept = _mm256_min_pd(y, _mm256_set1_pd((double)FLT_MAX));
    return _mm256_cvtpd_ps(_mm256_blendv_pd(_mm256_set1_pd((double)NAN), kept, known));
}

static bool accumulate_avx2(const double *r, const double *rk, const double *yk,
                            size_t count, float *s, float *n)
{
    const __m256d s_unit = _mm256_set1_pd(USC_STORED / USC_DELTA);
    const __m256d n_unit = _mm256_set1_pd(USC_STORED * 0x1p24);
    int exact = 15;
    size_t i = 0;
    for (; i + 4 <= count; i += 4) {
        const __m256d a = _mm256_loadu_pd(rk + i), b = _mm256_loadu_pd(yk + i);
        const __m256d ds = _mm256_sub_pd(a, _mm256_loadu_pd(r + i));
        const __m256d dn = _mm256_sub_pd(b, a);
        _mm_storeu_ps(s + i, longer(_mm_loadu_ps(s + i), _mm256_mul_pd(ds, s_unit)));
        _mm_storeu_ps(n + i, longer(_mm_loadu_ps(n + i), _mm256_mul_pd(dn, n_unit)));
        const __m256d nans = _mm256_and_pd(_mm256_cmp_pd(a, a, _CMP_UNORD_Q),
                                           _mm256_cmp_pd(b, b, _CMP_UNORD_Q));
        const __m256d same = _mm256_or_pd(_mm256_cmp_pd(a, b, _CMP_EQ_OQ), nans);
        exact &= _mm256_movemask_pd(same);
    }
    const bool rest = usc_judge_kernels_scalar.accumulate(r + i, rk + i, yk + i,
                                                          count - i, s + i, n + i);
    return exact == 15 && rest;
}

const usc_judge_kernels usc_judge_kernels_avx2 = {
    .score = score_avx2,
    .bin = bin_avx2,
    .accumulate = accumulate_avx2,
    .screen = usc_judge_screen_avx2,
    .weigh = usc_judge_weigh_avx2,
    .round = usc_judge_round_avx2,
};
#endif
