// SPDX-License-Identifier: Apache-2.0
// The rule for one element: of the first look where it is NaN or Inf, of the appeal where
// it does not match. Neighbours: judge_pass.c (the sweep), judge_weigh_avx2.c (the same
// for ordinary elements, four at a time).
#include "judge/judge_element.h"

#include <math.h>
#include <string.h>

/* A part of a complex number that cancels to less than this share of the other one counts
 * as zero, and may be off by some roundings of the whole: so much do honest products
 * lose, with a fused multiply-and-add in only one of two terms. */
#define ZERO_PART 0x1p-40
#define PART_REACH 4.0

typedef enum kind { FINITE, POS_INF, NEG_INF, NOT_A_NUMBER } kind;

/* What is known of one element while it is judged. */
typedef struct finding {
    int64_t index;
    double d, r, y, y_raw;
    double s, n, scale; /* S, N, max(|R|, S, N, floor) */
    double other;       /* of a pair: |R| of the other part; else 0 */
    double score;
    bool bad, free, limit; /* limit: finite against Inf, decided by the score */
} finding;

/* fmax() for numbers, without a call. */
static double larger(double a, double b)
{
    return a > b ? a : b;
}

static kind kind_of(double x)
{
    if (isnan(x)) return NOT_A_NUMBER;
    if (!isinf(x)) return FINITE;
    return x > 0 ? POS_INF : NEG_INF;
}

static bool has_inf(usc_dtype dtype)
{
    return usc_dtype_info_of(dtype)->top == USC_TOP_INF;
}

/* Kind of x once rounded to the device's dtype. */
static kind kind_rounded(const usc_score_params *p, double x)
{
    if (fabs(x) >= p->overflow) return x > 0 ? POS_INF : NEG_INF;
    return kind_of(x);
}

/* The power of two at or below `size`, at least the smallest normal of D's dtype. */
static double power_of(const usc_score_params *p, double size)
{
    uint64_t bits;
    memcpy(&bits, &size, sizeof bits);
    bits &= UINT64_C(0x7ff0000000000000);
    memcpy(&size, &bits, sizeof size);
    return size > p->min_power ? size : p->min_power;
}

/* Distance from r to the reals that round to d; d may be Inf: [largest + ulp/2, Inf). */
static double distance(const usc_score_params *p, double d, double r)
{
    const double beyond = copysign(1.0, d) * r;
    if (isinf(d)) {
        const double edge = p->largest + power_of(p, p->largest) * p->half_ulp;
        return larger(edge - beyond, 0.0);
    }
    const double size = fabs(d), above = power_of(p, size) * p->half_ulp;
    const bool edge = size == power_of(p, size) && size > p->min_power;
    const double off = beyond - size;
    return larger(fabs(off) - (off > 0 || !edge ? above : above * 0.5), 0.0);
}

static void load_scale(const usc_block *b, size_t i, finding *f)
{
    const usc_pass *p = b->p;
    const void *s_at = b->scales.s, *n_at = b->scales.n;
    const bool wide = p->j->wide;
    double s = wide ? ((const double *)s_at)[i] : (double)((const float *)s_at)[i];
    double n = wide ? ((const double *)n_at)[i] : (double)((const float *)n_at)[i];
    s *= p->params.s_factor;
    n *= p->params.n_factor;
    f->s = isfinite(s) ? s : p->params.s_unknown;
    f->n = n > 0 ? n : 0;
    f->scale = larger(larger(fabs(f->r), f->s), larger(f->n, p->params.floor));
}

/* A dtype without Inf says NaN where a number overflows, or stays at its largest number:
 * both are in use, both are taken as the Inf that is meant. */
static void restore_inf(const usc_score_params *p, finding *f)
{
    if (isnan(f->r)) return;
    const double inf = copysign((double)INFINITY, f->r);
    const bool stays = f->d == copysign(p->largest, f->r) && fabs(f->r) >= p->overflow;
    if (isnan(f->d) || stays) f->d = inf;
    if (isnan(f->y)) f->y = inf;
}

/* The rule for an element where something is or rounds to NaN or Inf. */
static void judge_special(const usc_pass *p, finding *f)
{
    const kind kd = kind_of(f->d), kr = kind_rounded(&p->params, f->r);
    const kind ky = kind_of(f->y);
    const bool finite = isfinite(f->r);
    f->score = 0;
    f->free = finite && kd != FINITE && kd != kr && kd == ky;
    f->bad = (finite ? kd == NOT_A_NUMBER : kd != kr) && kd != ky && !f->free;
    const bool by_distance = finite && kd != NOT_A_NUMBER && !f->free;
    f->limit = by_distance && (kd != FINITE) != (kr != FINITE);
    if (by_distance && !(kd != FINITE && kd == ky))
        f->score = distance(&p->params, f->d, f->r) / (p->params.unit * f->scale);
}

/* Whether Y' is another result than Y, by more than roundings. */
static bool flushing_shows(const usc_block *b, const finding *f)
{
    if (b->flushed == NULL) return false;
    const double flushed = b->flushed[f->index - b->at];
    const kind k = kind_of(flushed);
    if (k != FINITE && k == kind_of(f->y_raw)) return false; /* beyond the range anyway */
    const double off = fabs(flushed - f->y_raw);
    return !(off <= USC_FLUSH_SHOWS * b->p->params.unit * f->scale);
}

/* Whether a device that flushes subnormals to zero gives this value: flags. Of the result
 * (which is then zero), or before: Y' has it, and has it because a subnormal was flushed.
 */
static unsigned flush_explains(const usc_block *b, const finding *f)
{
    const usc_score_params *p = &b->p->params;
    const unsigned out = f->d == 0 && fabs(f->r) < p->min_power ? USC_FLUSHED_OUT : 0;
    if (b->flushed == NULL) return out;
    const double y = b->flushed[f->index - b->at];
    if (isfinite(y) && isfinite(f->d)) {
        const double reach =
            larger(b->p->view->t_max, 16) * p->unit * larger(fabs(y), f->s);
        const bool explains = flushing_shows(b, f) && distance(p, f->d, y) <= reach;
        return out | (explains ? USC_FLUSHED_IN : 0);
    }
    const kind k = kind_of(y);
    const bool same = k != FINITE && kind_of(f->d) == k && kind_of(f->y_raw) != k;
    return out | (same ? USC_FLUSHED_IN : 0);
}

/* Appeal: what the CPU itself also produced counts as no error. */
static void forgive(const usc_block *b, finding *f)
{
    const usc_view *v = b->p->view;
    const usc_judge *j = b->p->j;
    if (!v->exact) {
        if (f->r == 0 && fabs(f->d) <= v->below) f->score = 0;
        if (fabs(f->r) <= ZERO_PART * f->other &&
            distance(&b->p->params, f->d, f->r) <=
                PART_REACH * b->p->params.unit * f->other)
            f->score = 0;
        if (f->score > v->t_max && isfinite(f->d)) {
            const double y = f->y_raw, reach = 16 * b->p->params.unit * fabs(y);
            if (isfinite(y) && distance(&b->p->params, f->d, y) <= reach) f->score = 0;
        }
        if (f->d == f->y) f->score = 0;
    }
    if (v->forgive != 0 && (j->flags[f->index] & v->forgive) != 0) {
        f->score = 0;
        f->bad = f->limit = false;
    }
}

/* A right element that would fail if it were flushed: the device keeps subnormals here.
 */
static void count_kept(const usc_block *b, const finding *f, unsigned by, usc_tally *t)
{
    const usc_score_params *p = &b->p->params;
    const double least = b->p->view->t_fast * p->unit * f->scale;
    const bool out = f->d != 0 && fabs(f->r) < p->min_power;
    t->n_kept_out += out && distance(p, 0, f->r) > least;
    t->n_kept_in += (by & USC_FLUSHED_IN) == 0 && flushing_shows(b, f);
}

/* Counts how an element stands to flushing; marks it where the view asks. */
static void weigh_flush(const usc_block *b, const finding *f, usc_tally *t)
{
    const usc_view *v = b->p->view;
    const bool fails = f->score > v->t_fast || f->bad;
    bool f16_lost = false;
    t->n_failing += fails;
    if (b->p->j->small) {
        f16_lost = fails && f->d == 0 && f->r != 0 && fabs(f->r) < b->p->params.min_power;
        t->n_f16_lost += f16_lost;
    } else if (v->mark_flush) {
        uint8_t *flag = &b->p->j->flags[f->index];
        const unsigned by = flush_explains(b, f);
        *flag = (uint8_t)((*flag & ~(USC_FLUSHED_OUT | USC_FLUSHED_IN)) | by);
        t->n_flushed += fails && by != 0;
        t->n_flushed_out += fails && (by & USC_FLUSHED_OUT) != 0;
        t->n_flushed_in += fails && (by & USC_FLUSHED_IN) != 0;
        if (v->count_kept && !fails) count_kept(b, f, by, t);
    }
    t->n_beyond += f->score > v->t_max && !f16_lost;
}

static double sign_of(double x)
{
    return x > 0 ? 1 : x < 0 ? -1 : 0;
}

static void count_scores(const usc_block *b, const finding *f, usc_tally *t, double *rel)
{
    const usc_score_params *p = &b->p->params;
    t->n_mismatch++;
    if (f->score > t->max) {
        t->max = f->score;
        t->i_worst = f->index;
    }
    if (!isfinite(f->d) || !isfinite(f->r)) {
        t->n_over_ulp++;
    } else {
        const double size = larger(fabs(f->d), fabs(f->r));
        t->n_over_ulp += fabs(f->d - f->r) > 2 * p->half_ulp * power_of(p, size);
    }
    if (isfinite(f->d)) {
        t->n_signs++;
        t->sum_signs += (int64_t)(sign_of(f->d - f->r) * sign_of(f->r));
    }
    *rel = f->score * (f->scale / larger(larger(fabs(f->r), f->n), p->floor));
    t->rel_max = larger(t->rel_max, *rel);
    t->modulus_max =
        larger(t->modulus_max, f->score * (f->scale / larger(f->scale, f->other)));
}

/* Y as the device's dtype holds it, and the flushed replay: loaded where needed. */
void usc_block_load_yardstick(usc_block *b)
{
    if (b->y != NULL) return;
    const usc_judge *j = b->p->j;
    usc_judge_scratch *s = b->s;
    b->y_raw = usc_walk_load(&j->y, b->at, b->count, &s->room, s->y);
    b->y = b->y_raw;
    if (j->y.dtype == j->dtype) return;
    b->y = s->k;
    if (j->kernels->round != NULL && j->y.dtype == USC_F32 &&
        (j->dtype == USC_BF16 || j->dtype == USC_F16)) {
        j->kernels->round(j->dtype, b->y_raw, b->count, s->k);
    } else {
        usc_dtype_narrow(j->dtype, b->y_raw, s->narrow, b->count);
        usc_kernels_widen(j->dtype, s->narrow, s->k, b->count);
    }
}

void usc_block_load_flushed(usc_block *b)
{
    if (b->p->flushed != NULL && b->flushed == NULL)
        b->flushed = usc_walk_load(b->p->flushed, b->at, b->count, &b->s->room, b->s->f);
}

void usc_judge_element(usc_block *b, size_t i)
{
    usc_tally *t = &b->s->tally;
    const usc_pass *p = b->p;
    finding f = {
        .index = b->at + (int64_t)i, .d = b->d[i], .r = b->r[i], .score = b->s->score[i]};
    usc_block_load_yardstick(b);
    f.y = b->y[i];
    f.y_raw = b->y_raw[i];
    load_scale(b, i, &f);
    f.other = p->j->pairs && isfinite(b->r[i ^ 1]) ? fabs(b->r[i ^ 1]) : 0;
    const bool special =
        !(fabs(f.d) <= p->params.largest && fabs(f.r) < p->params.overflow);
    if (special && !has_inf(p->j->dtype)) restore_inf(&p->params, &f);
    if (special) judge_special(p, &f);
    t->n_below += f.r == 0 && f.d != 0;
    if (p->view->appeal) {
        forgive(b, &f);
        weigh_flush(b, &f, t);
    } else {
        t->n_failing += f.score > p->view->t_fast || f.bad;
    }
    t->n_undefined += !isfinite(f.r);
    t->n_nan_inf += !isfinite(b->d[i]);
    t->n_free += f.free;
    t->n_bad += f.bad;
    const bool nonfinite = f.bad || (f.limit && f.score > p->view->t_max);
    if (nonfinite && t->n_nonfinite++ == 0) t->i_nonfinite = f.index;
    double rel = 0;
    if (f.score > 0) count_scores(b, &f, t, &rel);
    b->s->score[i] = f.score;
    b->s->rel[i] = rel;
    if (p->call != NULL && (f.score > 0 || f.bad))
        p->call(p->ctx, &(usc_element){.index = f.index,
                                       .d = b->d[i],
                                       .r = b->r[i],
                                       .y = f.y_raw,
                                       .score = f.score,
                                       .bad = nonfinite});
}
