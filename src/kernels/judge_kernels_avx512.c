// SPDX-License-Identifier: Apache-2.0
// The judge's inner loops for AVX-512: the operations of judge_kernels.inc, eight
// elements at a time; what is left over goes through the scalar table. The appeal is
// that of AVX2.
#include "kernels/judge_kernels.h"

#if defined(__x86_64__)
#include "kernels/judge_avx512.h"

#include <float.h>
#include <math.h>

/* The parameters in registers. */
typedef struct vectors {
    __m512d min_power, half_ulp, ulp_inverse, largest, overflow, unit, floor;
    __m512d s_factor, n_factor, s_unknown, expect, typical, leave_out;
} vectors;

static USC_ALWAYS_INLINE vectors spread(const usc_score_params *p)
{
    return (vectors){
        .min_power = _mm512_set1_pd(p->min_power),
        .half_ulp = _mm512_set1_pd(p->half_ulp),
        .ulp_inverse = _mm512_set1_pd(p->ulp_inverse),
        .largest = _mm512_set1_pd(p->largest),
        .overflow = _mm512_set1_pd(p->overflow),
        .unit = _mm512_set1_pd(p->unit),
        .floor = _mm512_set1_pd(p->floor),
        .s_factor = _mm512_set1_pd(p->s_factor),
        .n_factor = _mm512_set1_pd(p->n_factor),
        .s_unknown = _mm512_set1_pd(p->s_unknown),
        .expect = _mm512_set1_pd(p->expect),
        .typical = _mm512_set1_pd(p->typical),
        .leave_out = _mm512_set1_pd(p->leave_out),
    };
}

static USC_ALWAYS_INLINE __m512d power_of(const vectors *v, __m512d x)
{
    const __m512i exponent = _mm512_set1_epi64(INT64_C(0x7ff0000000000000));
    return _mm512_max_pd(_mm512_and_pd(x, _mm512_castsi512_pd(exponent)), v->min_power);
}

static USC_ALWAYS_INLINE __m512d ulp_inverse(const vectors *v, __m512d size)
{
    const __m512i bits = _mm512_castpd_si512(power_of(v, size));
    const __m512i top = _mm512_set1_epi64(INT64_C(0x7fe0000000000000));
    return _mm512_mul_pd(_mm512_castsi512_pd(_mm512_sub_epi64(top, bits)),
                         v->ulp_inverse);
}

static USC_ALWAYS_INLINE __m512d distance(const vectors *v, __m512d d, __m512d r)
{
    const __m512d sign = _mm512_and_pd(d, _mm512_set1_pd(-0.0));
    const __m512d size = size_of(d), power = power_of(v, size);
    const __m512d above = _mm512_mul_pd(power, v->half_ulp);
    const __mmask8 edge = (__mmask8)(_mm512_cmp_pd_mask(size, power, _CMP_EQ_OQ) &
                                     _mm512_cmp_pd_mask(size, v->min_power, _CMP_GT_OQ));
    const __m512d half = _mm512_mul_pd(above, _mm512_set1_pd(0.5));
    const __m512d below = _mm512_mask_blend_pd(edge, above, half);
    const __m512d beyond = _mm512_sub_pd(_mm512_xor_pd(r, sign), size);
    const __mmask8 up = _mm512_cmp_pd_mask(beyond, _mm512_setzero_pd(), _CMP_GT_OQ);
    const __m512d reach = _mm512_mask_blend_pd(up, below, above);
    return _mm512_max_pd(_mm512_sub_pd(size_of(beyond), reach), _mm512_setzero_pd());
}

/* Running sums of one block in registers: the lanes are those of the definition. */
typedef struct sums {
    __m512d max, expected;
    int64_t n_ill;
    unsigned special;
} sums;

static USC_ALWAYS_INLINE void score_eight(const vectors *v, const double *d_at,
                                          const double *r_at, __m256 s_at, __m256 n_at,
                                          double *score, sums *t)
{
    const __m512d d = _mm512_loadu_pd(d_at), r = _mm512_loadu_pd(r_at);
    const __m512d size = size_of(r);
    const __mmask8 plain =
        (__mmask8)(_mm512_cmp_pd_mask(size_of(d), v->largest, _CMP_LE_OQ) &
                   _mm512_cmp_pd_mask(size, v->overflow, _CMP_LT_OQ));
    __m512d s = _mm512_mul_pd(_mm512_cvtps_pd(s_at), v->s_factor);
    __m512d n = _mm512_mul_pd(_mm512_cvtps_pd(n_at), v->n_factor);
    const __mmask8 known = _mm512_cmp_pd_mask(s, _mm512_set1_pd(DBL_MAX), _CMP_LE_OQ);
    s = _mm512_mask_blend_pd(known, v->s_unknown, s);
    n = _mm512_max_pd(n, _mm512_setzero_pd());
    const __m512d all = _mm512_max_pd(_mm512_max_pd(size, s), _mm512_max_pd(n, v->floor));
    const __m512d unit = _mm512_mul_pd(v->unit, all), off = distance(v, d, r);
    const __m512d least =
        _mm512_mul_pd(_mm512_set1_pd(USC_FOUR_BITS), _mm512_max_pd(size, v->typical));
    const unsigned ill = _mm512_cmp_pd_mask(off, _mm512_setzero_pd(), _CMP_GT_OQ) &
                         _mm512_cmp_pd_mask(_mm512_max_pd(off, unit), least, _CMP_GT_OQ);
    __m512d x = _mm512_maskz_div_pd(plain, off, unit);
    const unsigned left = ill & _mm512_cmp_pd_mask(x, v->leave_out, _CMP_LE_OQ);
    x = _mm512_maskz_mov_pd((__mmask8)~left, x);
    const __m512d e =
        _mm512_min_pd(_mm512_mul_pd(_mm512_mul_pd(unit, v->expect), ulp_inverse(v, size)),
                      _mm512_set1_pd(1));
    _mm512_storeu_pd(score, x);
    t->max = _mm512_max_pd(x, t->max);
    t->expected = _mm512_add_pd(t->expected, _mm512_maskz_mov_pd(plain, e));
    t->special |= plain ^ 0xffu;
    t->n_ill += _mm_popcnt_u32(ill & plain);
}

static void score_avx512(const usc_score_params *p, const double *d, const double *r,
                         const float *s, const float *n, size_t count, double *score,
                         usc_score_sums *out)
{
    const vectors v = spread(p);
    sums t = {.max = _mm512_set1_pd(out->max),
              .expected = _mm512_loadu_pd(out->expected)};
    size_t i = 0;
    for (; i + 8 <= count; i += 8)
        score_eight(&v, d + i, r + i, _mm256_loadu_ps(s + i), _mm256_loadu_ps(n + i),
                    score + i, &t);
    const double max = largest_of_eight(t.max);
    out->max = max > out->max ? max : out->max;
    _mm512_storeu_pd(out->expected, t.expected);
    out->n_ill += t.n_ill;
    out->special |= t.special != 0;
    usc_judge_kernels_scalar.score(p, d + i, r + i, s + i, n + i, count - i, score + i,
                                   out);
}

static void bin_avx512(const double *score, size_t count, uint8_t *bins)
{
    const __m512i edges = wide_quarter_edges();
    const __m512i match = _mm512_set1_epi32(USC_BIN_MATCH);
    const __m512d zero = _mm512_setzero_pd();
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        const __m512d a = _mm512_loadu_pd(score + i), b = _mm512_loadu_pd(score + i + 8);
        const __m512 x = join(_mm512_cvtpd_ps(a), _mm512_cvtpd_ps(b));
        const __m512i bin = wide_bins_of(wide_quarters_from(wide_edges_of(edges, x), x));
        const unsigned low = _mm512_cmp_pd_mask(a, zero, _CMP_GT_OQ);
        const unsigned high = _mm512_cmp_pd_mask(b, zero, _CMP_GT_OQ);
        const __mmask16 above = (__mmask16)(low | high << 8);
        const __m512i all = _mm512_mask_blend_epi32(above, match, bin);
        _mm_storeu_si128((__m128i *)(bins + i), _mm512_cvtepi32_epi8(all));
    }
    usc_judge_kernels_scalar.bin(score + i, count - i, bins + i);
}

/* As in judge_kernels_avx2.c: sqrt(t^2 + x^2), at most FLT_MAX; NaN where that is not
 * finite; without the root where t = 0 in all lanes. */
static USC_ALWAYS_INLINE __m256 longer(__m256 t, __m512d x)
{
    const __m256i bits = _mm256_castps_si256(t);
    __m512d square = _mm512_mul_pd(x, x), y = size_of(x);
    if (!_mm256_testz_si256(bits, bits)) {
        const __m512d a = _mm512_cvtps_pd(t);
        square = _mm512_add_pd(_mm512_mul_pd(a, a), square);
        y = _mm512_sqrt_pd(square);
    }
    const __mmask8 known =
        _mm512_cmp_pd_mask(square, _mm512_set1_pd(DBL_MAX), _CMP_LE_OQ);
    const __m512d kept = _mm512_min_pd(y, _mm512_set1_pd((double)FLT_MAX));
    return _mm512_cvtpd_ps(
        _mm512_mask_blend_pd(known, _mm512_set1_pd((double)NAN), kept));
}

/* Lanes in which a and b are equal, or both NaN. */
static USC_ALWAYS_INLINE unsigned same(__m512d a, __m512d b)
{
    const unsigned nans =
        _mm512_cmp_pd_mask(a, a, _CMP_UNORD_Q) & _mm512_cmp_pd_mask(b, b, _CMP_UNORD_Q);
    return _mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ) | nans;
}

static bool accumulate_avx512(const double *r, const double *rk, const double *yk,
                              size_t count, float *s, float *n)
{
    const __m512d s_unit = _mm512_set1_pd(USC_STORED / USC_DELTA);
    const __m512d n_unit = _mm512_set1_pd(USC_STORED * 0x1p24);
    unsigned exact = 0xff;
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        const __m512d a = _mm512_loadu_pd(rk + i), b = _mm512_loadu_pd(yk + i);
        const __m512d ds = _mm512_sub_pd(a, _mm512_loadu_pd(r + i));
        const __m512d dn = _mm512_sub_pd(b, a);
        _mm256_storeu_ps(s + i,
                         longer(_mm256_loadu_ps(s + i), _mm512_mul_pd(ds, s_unit)));
        _mm256_storeu_ps(n + i,
                         longer(_mm256_loadu_ps(n + i), _mm512_mul_pd(dn, n_unit)));
        exact &= same(a, b);
    }
    const bool rest = usc_judge_kernels_scalar.accumulate(r + i, rk + i, yk + i,
                                                          count - i, s + i, n + i);
    return exact == 0xff && rest;
}

const usc_judge_kernels usc_judge_kernels_avx512 = {
    .score = score_avx512,
    .bin = bin_avx512,
    .accumulate = accumulate_avx512,
    .screen = usc_judge_screen_avx512,
    .weigh = usc_judge_weigh_avx2,
    .round = usc_judge_round_avx2,
};
#endif
