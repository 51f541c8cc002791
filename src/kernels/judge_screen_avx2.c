// SPDX-License-Identifier: Apache-2.0
// The quick form of the score kernel for AVX2: reads the device's output in its own dtype
// and counts bins instead of leaving scores; of a first replay it reads the results,
// which are stored nowhere. It sees ordinary elements only and says where it saw another;
// the scores themselves have the bits of judge_kernels.inc.
#include "kernels/judge_kernels.h"

#if defined(__x86_64__)
#include "kernels/judge_avx2.h"

#include <float.h>

/* Where S and N come from. */
typedef enum source { NOWHERE, STORED, FIRST_REPLAY } source;

/* What is carried from one step to the next. */
typedef struct running {
    __m256d max;     /* of scores */
    __m256d size;    /* largest |R| */
    __m256d dark;    /* above 0 where an element may be ill-conditioned */
    __m256d stored;  /* largest S or N, as it would be stored */
    __m256i matches; /* minus the number of mismatches */
    __m128i bin;     /* largest: the last one for NaN and Inf */
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

/* How far r lies outside the interval that rounds to d: above 0, or NaN where either is
 * not finite, for an element that does not match. */
static USC_ALWAYS_INLINE __m256d excess(const constants *c, __m256d d, __m256d r)
{
    const __m256d towards =
        _mm256_xor_pd(r, _mm256_and_pd(d, _mm256_set1_pd(-0.0))); /* r sign(d) */
    const __m256d size = size_of(d);
    const __m256d beyond = size_of(_mm256_sub_pd(towards, size));
    return _mm256_sub_pd(beyond, reach_of(c, size, towards));
}

/* Four elements on their way. */
typedef struct four {
    __m256d e, off;  /* excess; where it shows a mismatch, or may */
    __m256d size, n; /* |R|; N of a first replay, divided by 2^24 */
} four;

static USC_ALWAYS_INLINE __m256d load_four(usc_dtype dtype, const void *d, size_t i)
{
    if (dtype == USC_F32) return _mm256_cvtps_pd(_mm_loadu_ps((const float *)d + i));
    const __m128i words = _mm_loadl_epi64((const __m128i *)((const uint16_t *)d + i));
    if (dtype == USC_F16) return _mm256_cvtps_pd(_mm_cvtph_ps(words));
    return _mm256_cvtps_pd(
        _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), words)));
}

/* The error, and the guard of all elements: |R| below overflow. */
static USC_ALWAYS_INLINE four first_half(const constants *c, usc_dtype dtype, source from,
                                         const usc_screen_operands *o, size_t i,
                                         running *t)
{
    const __m256d r = _mm256_loadu_pd(o->r + i);
    four f = {.e = excess(c, load_four(dtype, o->d, i), r), .size = size_of(r)};
    t->size = _mm256_max_pd(f.size, t->size);
    f.off = _mm256_cmp_pd(f.e, _mm256_setzero_pd(), _CMP_NLE_UQ);
    if (from == NOWHERE) return f;
    if (from == FIRST_REPLAY) {
        const __m256d y = _mm256_cvtps_pd(_mm_loadu_ps(o->yk + i));
        f.n = size_of(_mm256_sub_pd(y, _mm256_loadu_pd(o->rk + i)));
    }
    return f;
}

/* The larger of S and N as stored; NaN where S is, and no N where N is: max() gives its
 * second operand where one is NaN. */
static USC_ALWAYS_INLINE __m256d stored(source from, const four *f,
                                        const usc_screen_operands *o, size_t i,
                                        running *t)
{
    if (from == STORED) {
        const __m128 s = _mm_loadu_ps(o->s + i), n = _mm_loadu_ps(o->n + i);
        return _mm256_cvtps_pd(_mm_max_ps(n, s));
    }
    const __m256d rk = _mm256_loadu_pd(o->rk + i);
    const __m256d s = size_of(_mm256_sub_pd(rk, _mm256_loadu_pd(o->r + i)));
    const __m256d s_unit = _mm256_set1_pd(USC_STORED / USC_DELTA);
    const __m256d n_unit = _mm256_set1_pd(USC_STORED * 0x1p24);
    const __m256d x =
        _mm256_max_pd(_mm256_mul_pd(f->n, n_unit), _mm256_mul_pd(s, s_unit));
    t->stored = _mm256_max_pd(x, t->stored);
    return _mm256_cvtps_pd(_mm256_cvtpd_ps(x));
}

/* Scores of four elements. */
static USC_ALWAYS_INLINE __m128 score_four(const constants *c, source from, const four *f,
                                           const usc_screen_operands *o, size_t i,
                                           running *t)
{
    __m256d scale = _mm256_max_pd(c->floor, f->size);
    if (from != NOWHERE)
        scale = _mm256_max_pd(scale, _mm256_mul_pd(stored(from, f, o, i, t), c->factor));
    const __m256d unit = _mm256_mul_pd(c->unit, scale);
    const __m256d ill = _mm256_and_pd(_mm256_max_pd(f->e, unit), f->off);
    const __m256d least = _mm256_set1_pd(USC_FOUR_BITS);
    t->dark = _mm256_max_pd(_mm256_fnmadd_pd(f->size, least, ill), t->dark);
    const __m256d x = _mm256_div_pd(_mm256_and_pd(f->e, f->off), unit);
    t->max = _mm256_max_pd(x, t->max);
    t->matches = _mm256_add_epi64(t->matches, _mm256_castpd_si256(f->off));
    return _mm256_cvtpd_ps(x);
}

/* Sixteen elements; their bins. */
static USC_ALWAYS_INLINE __m128i screen_sixteen(const constants *c, usc_dtype dtype,
                                                source from, const usc_screen_operands *o,
                                                size_t i, running *t)
{
    const four f0 = first_half(c, dtype, from, o, i, t);
    const four f1 = first_half(c, dtype, from, o, i + 4, t);
    const four f2 = first_half(c, dtype, from, o, i + 8, t);
    const four f3 = first_half(c, dtype, from, o, i + 12, t);
    const __m256d off =
        _mm256_or_pd(_mm256_or_pd(f0.off, f1.off), _mm256_or_pd(f2.off, f3.off));
    if (_mm256_movemask_pd(off) == 0) /* most of a narrow output */
        return _mm_setzero_si128();
    const __m128 x0 = score_four(c, from, &f0, o, i, t);
    const __m128 x1 = score_four(c, from, &f1, o, i + 4, t);
    const __m128 x2 = score_four(c, from, &f2, o, i + 8, t);
    const __m128 x3 = score_four(c, from, &f3, o, i + 12, t);
    const __m128i bins = bins_of(quarters_of(c->edges, _mm256_set_m128(x1, x0)),
                                 quarters_of(c->edges, _mm256_set_m128(x3, x2)));
    t->bin = _mm_max_epu8(t->bin, bins);
    return bins;
}

/* Whether all was ordinary: then it is counted. */
static bool settle(const usc_score_params *p, const running *t, const __m128i *bins,
                   size_t count, usc_screened *out)
{
    const uint8_t highest = highest_of(t->bin);
    if (highest == USC_N_SCORE_BINS - 1 || !(largest_of(t->size) < p->overflow) ||
        !(largest_of(t->max) <= out->max) || largest_of(t->dark) > 0 ||
        !(largest_of(t->stored) <= (double)FLT_MAX))
        return false;
    int64_t counts[4];
    _mm256_storeu_si256((__m256i *)counts, t->matches);
    out->n_mismatch -= counts[0] + counts[1] + counts[2] + counts[3];
    count_block(bins, count, highest, out);
    return true;
}

static USC_ALWAYS_INLINE bool screen(const usc_score_params *p, usc_dtype dtype,
                                     source from, const usc_screen_operands *o,
                                     size_t count, usc_screened *out)
{
    const constants c = {
        .min_power = _mm256_set1_pd(p->min_power),
        .half_ulp = _mm256_set1_pd(p->half_ulp),
        .unit = _mm256_set1_pd(p->unit),
        .floor = _mm256_set1_pd(p->floor),
        .factor = _mm256_set1_pd(p->s_factor),
        .edges = quarter_edges(),
    };
    const __m256d zero = _mm256_setzero_pd();
    running t = {zero, zero, zero, zero, _mm256_setzero_si256(), _mm_setzero_si128()};
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

bool usc_judge_screen_avx2(const usc_score_params *p, usc_dtype dtype,
                           const usc_screen_operands *o, size_t count, usc_screened *out)
{
    if (count % 16 != 0) return false;
    if (dtype == USC_F32 && o->s == NULL && o->rk == NULL &&
        usc_judge_screen_f32_avx2(o->d, o->r, count, out))
        return true;
    if (dtype == USC_F32) return SCREEN(USC_F32);
    if (dtype == USC_F16) return SCREEN(USC_F16);
    if (dtype == USC_BF16) return SCREEN(USC_BF16);
    return false;
}
#endif
