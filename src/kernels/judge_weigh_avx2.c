// SPDX-License-Identifier: Apache-2.0
// The appeal's weighing of ordinary elements for AVX2, four at a time: what
// usc_judge_element() does for an element that is finite, with equal bits.
#include "kernels/judge_kernels.h"

#if defined(__x86_64__)
#include "kernels/judge_avx2.h"

#include <float.h>

/* The parameters and the rule in registers; flags of the rule as masks. */
typedef struct constants {
    __m256d min_power, half_ulp, unit, floor, s_factor, n_factor, s_unknown;
    __m256d t_fast, t_max, below, reach; /* reach: roundings that flushing may be off */
    __m256d shows;                       /* roundings from which on flushing matters */
    __m256d excuse, mark_flush, half;
    __m256i forgive;
} constants;

/* Four elements on their way. */
typedef struct four {
    __m256d d, d_size, r, r_size, s, n, score, active;
    __m256i flags;
} four;

/* Counters hold minus the number, since a mask is -1. */
typedef struct running {
    __m256i below, failing, f16_lost, flushed, out, in, beyond, over_ulp, signs, signed_,
        same;
    __m256d max, rel_max;
} running;

static USC_ALWAYS_INLINE __m256d size_of(__m256d x)
{
    return _mm256_andnot_pd(_mm256_set1_pd(-0.0), x);
}

static USC_ALWAYS_INLINE __m256d mask_of(bool set)
{
    return _mm256_castsi256_pd(_mm256_set1_epi64x(set ? -1 : 0));
}

static USC_ALWAYS_INLINE void count(__m256i *counter, __m256d mask)
{
    *counter = _mm256_add_epi64(*counter, _mm256_castpd_si256(mask));
}

static USC_ALWAYS_INLINE __m256d power_of(const constants *c, __m256d size)
{
    const __m256i exponent = _mm256_set1_epi64x(INT64_C(0x7ff0000000000000));
    const __m256d power = _mm256_and_pd(size, _mm256_castsi256_pd(exponent));
    return _mm256_max_pd(power, c->min_power);
}

/* From v to the reals that round to d. Just below a power of two the ulp is that of the
 * numbers below it: the power of two is taken of d or of the double beside it. */
static USC_ALWAYS_INLINE __m256d distance(const constants *c, const four *f, __m256d v)
{
    const __m256d sign = _mm256_and_pd(f->d, _mm256_set1_pd(-0.0));
    const __m256d towards = _mm256_xor_pd(v, sign);
    const __m256d under = _mm256_mul_pd(f->d_size, _mm256_set1_pd(1 - 0x1p-53));
    const __m256d beside = _mm256_max_pd(_mm256_min_pd(towards, f->d_size), under);
    const __m256d reach = _mm256_mul_pd(power_of(c, beside), c->half_ulp);
    const __m256d beyond = size_of(_mm256_sub_pd(towards, f->d_size));
    return _mm256_max_pd(_mm256_sub_pd(beyond, reach), _mm256_setzero_pd());
}

/* Whether v is finite and d within `reach` of it. */
static USC_ALWAYS_INLINE __m256d lies_near(const constants *c, const four *f, __m256d v,
                                           __m256d reach)
{
    const __m256d finite = _mm256_cmp_pd(size_of(v), _mm256_set1_pd(DBL_MAX), _CMP_LE_OQ);
    return _mm256_and_pd(finite, _mm256_cmp_pd(distance(c, f, v), reach, _CMP_LE_OQ));
}

/* max(|R|, S, N, floor) */
static USC_ALWAYS_INLINE __m256d scale_of(const constants *c, const four *f)
{
    return _mm256_max_pd(_mm256_max_pd(f->r_size, f->s), _mm256_max_pd(f->n, c->floor));
}

static USC_ALWAYS_INLINE four load(const constants *c, const usc_weigh_operands *o,
                                   size_t i)
{
    four f = {.d = _mm256_loadu_pd(o->d + i), .r = _mm256_loadu_pd(o->r + i)};
    f.d_size = size_of(f.d);
    f.r_size = size_of(f.r);
    f.score = _mm256_loadu_pd(o->score + i);
    f.active = _mm256_cmp_pd(f.score, _mm256_setzero_pd(), _CMP_GT_OQ);
    const __m256d s = _mm256_mul_pd(_mm256_cvtps_pd(_mm_loadu_ps(o->s + i)), c->s_factor);
    const __m256d n = _mm256_mul_pd(_mm256_cvtps_pd(_mm_loadu_ps(o->n + i)), c->n_factor);
    const __m256d known = _mm256_cmp_pd(s, _mm256_set1_pd(DBL_MAX), _CMP_LE_OQ);
    f.s = _mm256_blendv_pd(c->s_unknown, s, known);
    f.n = _mm256_max_pd(n, _mm256_setzero_pd()); /* 0 for NaN */
    int32_t flags;
    memcpy(&flags, o->flags + i, sizeof flags);
    f.flags = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(flags));
    return f;
}

/* What the CPU itself also produced counts as no error. */
static USC_ALWAYS_INLINE void forgive(const constants *c, four *f, __m256d y,
                                      __m256d y_raw)
{
    const __m256d zero = _mm256_setzero_pd();
    const __m256d small = _mm256_and_pd(_mm256_cmp_pd(f->r, zero, _CMP_EQ_OQ),
                                        _mm256_cmp_pd(f->d_size, c->below, _CMP_LE_OQ));
    const __m256d reach =
        _mm256_mul_pd(_mm256_mul_pd(_mm256_set1_pd(16), c->unit), size_of(y_raw));
    const __m256d seen = lies_near(c, f, y_raw, reach);
    const __m256d above = _mm256_cmp_pd(f->score, c->t_max, _CMP_GT_OQ);
    __m256d gone = _mm256_or_pd(small, _mm256_and_pd(above, seen));
    gone = _mm256_or_pd(gone, _mm256_cmp_pd(f->d, y, _CMP_EQ_OQ));
    gone = _mm256_and_pd(gone, c->excuse);
    const __m256i none = _mm256_cmpeq_epi64(_mm256_and_si256(f->flags, c->forgive),
                                            _mm256_setzero_si256());
    gone = _mm256_or_pd(
        gone, _mm256_castsi256_pd(_mm256_xor_si256(none, _mm256_set1_epi64x(-1))));
    f->score = _mm256_andnot_pd(gone, f->score);
}

/* The lower four bits of x, one in each byte. */
static USC_ALWAYS_INLINE uint32_t spread_bits(int x)
{
    return (uint32_t)x * 0x00204081u & 0x01010101u;
}

static USC_ALWAYS_INLINE void mark(__m256d active, __m256d out, __m256d in,
                                   uint8_t *flags)
{
    uint32_t word;
    memcpy(&word, flags, sizeof word);
    word &=
        ~(spread_bits(_mm256_movemask_pd(active)) * (USC_FLUSHED_OUT | USC_FLUSHED_IN));
    word |= spread_bits(_mm256_movemask_pd(out)) * USC_FLUSHED_OUT;
    word |= spread_bits(_mm256_movemask_pd(in)) * USC_FLUSHED_IN;
    memcpy(flags, &word, sizeof word);
}

/* Counts how elements stand to flushing; marks what it explains. */
static USC_ALWAYS_INLINE void weigh_flush(const constants *c, const four *f,
                                          const usc_weigh_operands *o, size_t i,
                                          running *t)
{
    const __m256d zero = _mm256_setzero_pd();
    const __m256d fails = _mm256_cmp_pd(f->score, c->t_fast, _CMP_GT_OQ);
    const __m256d lost =
        _mm256_and_pd(_mm256_cmp_pd(f->d, zero, _CMP_EQ_OQ),
                      _mm256_cmp_pd(f->r_size, c->min_power, _CMP_LT_OQ));
    __m256d f16_lost = _mm256_and_pd(_mm256_and_pd(fails, c->half), lost);
    f16_lost = _mm256_and_pd(f16_lost, _mm256_cmp_pd(f->r, zero, _CMP_NEQ_OQ));
    count(&t->failing, fails);
    count(&t->f16_lost, f16_lost);
    count(&t->beyond,
          _mm256_andnot_pd(f16_lost, _mm256_cmp_pd(f->score, c->t_max, _CMP_GT_OQ)));
    if (_mm256_movemask_pd(c->mark_flush) == 0) return;
    const __m256d out = _mm256_and_pd(lost, f->active);
    __m256d in = zero;
    if (o->flushed != NULL) {
        const __m256d y = _mm256_loadu_pd(o->flushed + i);
        const __m256d larger = _mm256_max_pd(f->s, size_of(y));
        const __m256d near = lies_near(c, f, y, _mm256_mul_pd(c->reach, larger));
        const __m256d off = size_of(_mm256_sub_pd(y, _mm256_loadu_pd(o->y_raw + i)));
        const __m256d little = _mm256_mul_pd(c->shows, scale_of(c, f));
        in = _mm256_and_pd(near, _mm256_cmp_pd(off, little, _CMP_NLE_UQ));
        in = _mm256_and_pd(in, f->active);
    }
    mark(f->active, out, in, o->flags + i);
    count(&t->flushed, _mm256_and_pd(_mm256_or_pd(out, in), fails));
    count(&t->out, _mm256_and_pd(out, fails));
    count(&t->in, _mm256_and_pd(in, fails));
}

/* Signs, ulps and the score relative to what float32 loses; returns the latter. */
static USC_ALWAYS_INLINE __m256d count_scores(const constants *c, const four *f,
                                              running *t)
{
    const __m256d zero = _mm256_setzero_pd();
    const __m256d left = _mm256_cmp_pd(f->score, zero, _CMP_GT_OQ);
    const __m256d off = _mm256_sub_pd(f->d, f->r);
    const __m256d ulp = _mm256_mul_pd(power_of(c, _mm256_max_pd(f->d_size, f->r_size)),
                                      _mm256_mul_pd(_mm256_set1_pd(2), c->half_ulp));
    count(&t->over_ulp,
          _mm256_and_pd(left, _mm256_cmp_pd(size_of(off), ulp, _CMP_GT_OQ)));
    const __m256d signed_ = _mm256_and_pd(left, _mm256_cmp_pd(f->r, zero, _CMP_NEQ_OQ));
    const __m256i apart = _mm256_castpd_si256(_mm256_xor_pd(off, f->r));
    const __m256d opposite =
        _mm256_castsi256_pd(_mm256_cmpgt_epi64(_mm256_setzero_si256(), apart));
    count(&t->signs, left);
    count(&t->signed_, signed_);
    count(&t->same, _mm256_andnot_pd(opposite, signed_));
    t->max = _mm256_max_pd(f->score, t->max);
    const __m256d own = _mm256_max_pd(_mm256_max_pd(f->r_size, f->n), c->floor);
    const __m256d rel = _mm256_mul_pd(f->score, _mm256_div_pd(scale_of(c, f), own));
    t->rel_max = _mm256_max_pd(rel, t->rel_max);
    return _mm256_and_pd(left, rel);
}

static USC_ALWAYS_INLINE void weigh_four(const constants *c, const usc_weigh_operands *o,
                                         size_t i, running *t)
{
    four f = load(c, o, i);
    __m256d rel = _mm256_setzero_pd();
    if (_mm256_movemask_pd(f.active) != 0) {
        const __m256d zero = _mm256_setzero_pd();
        const __m256d below = _mm256_andnot_pd(_mm256_cmp_pd(f.d, zero, _CMP_EQ_OQ),
                                               _mm256_cmp_pd(f.r, zero, _CMP_EQ_OQ));
        count(&t->below, _mm256_and_pd(below, f.active));
        forgive(c, &f, _mm256_loadu_pd(o->y + i), _mm256_loadu_pd(o->y_raw + i));
        weigh_flush(c, &f, o, i, t);
        rel = count_scores(c, &f, t);
        _mm256_storeu_pd(o->score + i, f.score);
    }
    _mm256_storeu_pd(o->rel + i, rel);
}

static int64_t counted(__m256i x)
{
    int64_t lanes[4];
    _mm256_storeu_si256((__m256i *)lanes, x);
    return -(lanes[0] + lanes[1] + lanes[2] + lanes[3]);
}

static constants spread(const usc_score_params *p, const usc_weigh_rule *rule)
{
    const double reach = rule->t_max > 16 ? rule->t_max : 16;
    return (constants){
        .min_power = _mm256_set1_pd(p->min_power),
        .half_ulp = _mm256_set1_pd(p->half_ulp),
        .unit = _mm256_set1_pd(p->unit),
        .floor = _mm256_set1_pd(p->floor),
        .s_factor = _mm256_set1_pd(p->s_factor),
        .n_factor = _mm256_set1_pd(p->n_factor),
        .s_unknown = _mm256_set1_pd(p->s_unknown),
        .t_fast = _mm256_set1_pd(rule->t_fast),
        .t_max = _mm256_set1_pd(rule->t_max),
        .below = _mm256_set1_pd(rule->below),
        .reach = _mm256_set1_pd(reach * p->unit),
        .shows = _mm256_set1_pd(USC_FLUSH_SHOWS * p->unit),
        .forgive = _mm256_set1_epi64x((int64_t)rule->forgive),
        .excuse = mask_of(rule->excuse),
        .mark_flush = mask_of(rule->mark_flush),
        .half = mask_of(rule->half),
    };
}

void usc_judge_weigh_avx2(const usc_score_params *p, const usc_weigh_rule *rule,
                          const usc_weigh_operands *o, size_t n, usc_weighed *out)
{
    const constants c = spread(p, rule);
    running t;
    memset(&t, 0, sizeof t);
    for (size_t i = 0; i < n; i += 4)
        weigh_four(&c, o, i, &t);
    *out = (usc_weighed){
        .n_below = counted(t.below),
        .n_failing = counted(t.failing),
        .n_f16_lost = counted(t.f16_lost),
        .n_flushed = counted(t.flushed),
        .n_flushed_out = counted(t.out),
        .n_flushed_in = counted(t.in),
        .n_beyond = counted(t.beyond),
        .n_over_ulp = counted(t.over_ulp),
        .n_signs = counted(t.signs),
        .sum_signs = 2 * counted(t.same) - counted(t.signed_),
        .max = largest_of(t.max),
        .rel_max = largest_of(t.rel_max),
    };
}

/* To nearest even: adds half of what is dropped, or just below it where even. */
static __m128 round_bfloat16(__m128 x)
{
    const __m128i bits = _mm_castps_si128(x);
    const __m128i odd = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(1));
    const __m128i sum = _mm_add_epi32(_mm_add_epi32(bits, _mm_set1_epi32(0x7fff)), odd);
    const __m128 rounded =
        _mm_castsi128_ps(_mm_and_si128(sum, _mm_set1_epi32((int)0xffff0000u)));
    return _mm_blendv_ps(rounded, x, _mm_cmpunord_ps(x, x));
}

void usc_judge_round_avx2(usc_dtype dtype, const double *x, size_t n, double *out)
{
    double room[4];
    for (size_t i = 0; i < n; i += 4) {
        const size_t count = n - i < 4 ? n - i : 4;
        if (count < 4) memset(room, 0, sizeof room);
        if (count < 4) memcpy(room, x + i, count * sizeof *x);
        const __m128 y = _mm256_cvtpd_ps(_mm256_loadu_pd(count < 4 ? room : x + i));
        const __m128 half = dtype == USC_F16
                                ? _mm_cvtph_ps(_mm_cvtps_ph(y, _MM_FROUND_TO_NEAREST_INT |
                                                                   _MM_FROUND_NO_EXC))
                                : round_bfloat16(y);
        _mm256_storeu_pd(count < 4 ? room : out + i, _mm256_cvtps_pd(half));
        if (count < 4) memcpy(out + i, room, count * sizeof *x);
    }
}
#endif
