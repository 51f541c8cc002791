// SPDX-License-Identifier: Apache-2.0
// The quick form of the score kernel for AVX-512: judge_screen_avx2.c with eight elements
// instead of four, and masks. The same scores, and the same blocks are sent away, but for
// those that judge_screen_f32_avx512.c takes first.
#include "kernels/judge_kernels.h"

#if defined(__x86_64__)
#include "kernels/judge_avx512.h"

#include <float.h>

/* Where S and N come from. */
typedef enum source { NOWHERE, STORED, FIRST_REPLAY } source;

/* What is carried from one step to the next. */
typedef struct running {
    __m512d max;    /* of scores */
    __m512d size;   /* largest |R| */
    __m512d dark;   /* above 0 where an element may be ill-conditioned */
    __m512d stored; /* largest S or N, as it would be stored */
    __m128i bin;    /* largest: the last one for NaN and Inf */
    int64_t n_mismatch;
} running;

typedef struct constants {
    __m512d min_power, half_ulp, unit, floor, factor;
    __m512i edges; /* by the upper three bits of a significand */
} constants;

/* Half an ulp of d towards r. A number just below d has the ulp that counts on that side,
 * also where d is a power of two: `beside` is d or the double below it. */
static USC_ALWAYS_INLINE __m512d reach_of(const constants *c, __m512d size, __m512d r)
{
    const __m512i exponent = _mm512_set1_epi64(INT64_C(0x7ff0000000000000));
    const __m512d below = _mm512_mul_pd(size, _mm512_set1_pd(1 - 0x1p-53));
    const __m512d beside = _mm512_max_pd(_mm512_min_pd(r, size), below);
    const __m512d power = _mm512_and_pd(beside, _mm512_castsi512_pd(exponent));
    return _mm512_mul_pd(_mm512_max_pd(power, c->min_power), c->half_ulp);
}

/* How far r lies outside the interval that rounds to d: above 0, or NaN where either is
 * not finite, for an element that does not match. */
static USC_ALWAYS_INLINE __m512d excess(const constants *c, __m512d d, __m512d r)
{
    const __m512d towards =
        _mm512_xor_pd(r, _mm512_and_pd(d, _mm512_set1_pd(-0.0))); /* r sign(d) */
    const __m512d size = size_of(d);
    const __m512d beyond = size_of(_mm512_sub_pd(towards, size));
    return _mm512_sub_pd(beyond, reach_of(c, size, towards));
}

/* Eight elements on their way. */
typedef struct eight {
    __m512d e;       /* excess */
    __m512d size, n; /* |R|; N of a first replay, divided by 2^24 */
    __mmask8 off;    /* where the excess shows a mismatch, or may */
} eight;

static USC_ALWAYS_INLINE __m512d load_eight(usc_dtype dtype, const void *d, size_t i)
{
    if (dtype == USC_F32) return _mm512_cvtps_pd(_mm256_loadu_ps((const float *)d + i));
    const __m128i words = _mm_loadu_si128((const __m128i *)((const uint16_t *)d + i));
    if (dtype == USC_F16) return _mm512_cvtps_pd(_mm256_cvtph_ps(words));
    const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16);
    return _mm512_cvtps_pd(_mm256_castsi256_ps(bits));
}

/* The error, and the guard of all elements: |R| below overflow. */
static USC_ALWAYS_INLINE eight first_half(const constants *c, usc_dtype dtype,
                                          source from, const usc_screen_operands *o,
                                          size_t i, running *t)
{
    const __m512d r = _mm512_loadu_pd(o->r + i);
    eight x = {.e = excess(c, load_eight(dtype, o->d, i), r), .size = size_of(r)};
    t->size = _mm512_max_pd(x.size, t->size);
    x.off = _mm512_cmp_pd_mask(x.e, _mm512_setzero_pd(), _CMP_NLE_UQ);
    if (from == NOWHERE) return x;
    if (from == FIRST_REPLAY) {
        const __m512d y = _mm512_cvtps_pd(_mm256_loadu_ps(o->yk + i));
        x.n = size_of(_mm512_sub_pd(y, _mm512_loadu_pd(o->rk + i)));
    }
    return x;
}

/* The larger of S and N as stored; NaN where S is, and no N where N is: max() gives its
 * second operand where one is NaN. */
static USC_ALWAYS_INLINE __m512d stored(source from, const eight *x,
                                        const usc_screen_operands *o, size_t i,
                                        running *t)
{
    if (from == STORED) {
        const __m256 s = _mm256_loadu_ps(o->s + i), n = _mm256_loadu_ps(o->n + i);
        return _mm512_cvtps_pd(_mm256_max_ps(n, s));
    }
    const __m512d rk = _mm512_loadu_pd(o->rk + i);
    const __m512d s = size_of(_mm512_sub_pd(rk, _mm512_loadu_pd(o->r + i)));
    const __m512d s_unit = _mm512_set1_pd(USC_STORED / USC_DELTA);
    const __m512d n_unit = _mm512_set1_pd(USC_STORED * 0x1p24);
    const __m512d larger =
        _mm512_max_pd(_mm512_mul_pd(x->n, n_unit), _mm512_mul_pd(s, s_unit));
    t->stored = _mm512_max_pd(larger, t->stored);
    return _mm512_cvtps_pd(_mm512_cvtpd_ps(larger));
}

/* Scores of eight elements. A match divides as well, zero: NaN in its scale shows. */
static USC_ALWAYS_INLINE __m256 score_eight(const constants *c, source from,
                                            const eight *x, const usc_screen_operands *o,
                                            size_t i, running *t)
{
    __m512d scale = _mm512_max_pd(c->floor, x->size);
    if (from != NOWHERE)
        scale = _mm512_max_pd(scale, _mm512_mul_pd(stored(from, x, o, i, t), c->factor));
    const __m512d unit = _mm512_mul_pd(c->unit, scale);
    const __m512d ill = _mm512_maskz_max_pd(x->off, x->e, unit);
    const __m512d least = _mm512_set1_pd(USC_FOUR_BITS);
    t->dark = _mm512_max_pd(_mm512_fnmadd_pd(x->size, least, ill), t->dark);
    const __m512d score = _mm512_div_pd(_mm512_maskz_mov_pd(x->off, x->e), unit);
    t->max = _mm512_max_pd(score, t->max);
    return _mm512_cvtpd_ps(score);
}

/* Sixteen elements; their bins. */
static USC_ALWAYS_INLINE __m128i screen_sixteen(const constants *c, usc_dtype dtype,
                                                source from, const usc_screen_operands *o,
                                                size_t i, running *t)
{
    const eight a = first_half(c, dtype, from, o, i, t);
    const eight b = first_half(c, dtype, from, o, i + 8, t);
    const unsigned off = a.off | (unsigned)b.off << 8;
    if (off == 0) /* most of a narrow output */
        return _mm_setzero_si128();
    t->n_mismatch += _mm_popcnt_u32(off);
    const __m256 low = score_eight(c, from, &a, o, i, t);
    const __m256 high = score_eight(c, from, &b, o, i + 8, t);
    const __m128i bins = bins_of_sixteen(c->edges, join(low, high));
    t->bin = _mm_max_epu8(t->bin, bins);
    return bins;
}

/* Whether all was ordinary: then it is counted. */
static bool settle(const usc_score_params *p, const running *t, const __m128i *bins,
                   size_t count, usc_screened *out)
{
    const uint8_t highest = highest_of(t->bin);
    if (highest == USC_N_SCORE_BINS - 1 || !(largest_of_eight(t->size) < p->overflow) ||
        !(largest_of_eight(t->max) <= out->max) || largest_of_eight(t->dark) > 0 ||
        !(largest_of_eight(t->stored) <= (double)FLT_MAX))
        return false;
    out->n_mismatch += t->n_mismatch;
    count_block(bins, count, highest, out);
    return true;
}

static USC_ALWAYS_INLINE bool screen(const usc_score_params *p, usc_dtype dtype,
                                     source from, const usc_screen_operands *o,
                                     size_t count, usc_screened *out)
{
    const constants c = {
        .min_power = _mm512_set1_pd(p->min_power),
        .half_ulp = _mm512_set1_pd(p->half_ulp),
        .unit = _mm512_set1_pd(p->unit),
        .floor = _mm512_set1_pd(p->floor),
        .factor = _mm512_set1_pd(p->s_factor),
        .edges = wide_quarter_edges(),
    };
    const __m512d zero = _mm512_setzero_pd();
    running t = {zero, zero, zero, zero, _mm_setzero_si128(), 0};
    __m128i bins[USC_JUDGE_BLOCK / 16];
    for (size_t i = 0; i < count; i += 16)
        bins[i / 16] = screen_sixteen(&c, dtype, from, o, i, &t);
    return settle(p, &t, bins, count, out);
}

/* One copy of the loop for each way of reading. */
#define SCREEN(dtype)                                                                    \
    (o->s != NULL    ? screen(p, dtype, STORED, o, count, out)                           \
     : o->rk != NULL ? screen(p, dtype, FIRST_REPLAY, o, count, out)                     \
                     : screen(p, dtype, NOWHERE, o, count, out))

bool usc_judge_screen_avx512(const usc_score_params *p, usc_dtype dtype,
                             const usc_screen_operands *o, size_t count,
                             usc_screened *out)
{
    if (count % 16 != 0) return false;
    if (dtype == USC_F32 && o->s == NULL && o->rk == NULL &&
        usc_judge_screen_f32_avx512(o->d, o->r, count, out))
        return true;
    if (dtype == USC_F32) return SCREEN(USC_F32);
    if (dtype == USC_F16) return SCREEN(USC_F16);
    if (dtype == USC_BF16) return SCREEN(USC_BF16);
    return false;
}
#endif
