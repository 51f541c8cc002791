// SPDX-License-Identifier: Apache-2.0
// One sweep over the operands: kernels give scores of ordinary elements; elements that
// are NaN or Inf, and on appeal all mismatches, are looked at one by one here.
#include "judge/judge_state.h"

#include <math.h>
#include <string.h>

typedef enum kind { FINITE, POS_INF, NEG_INF, NOT_A_NUMBER } kind;

typedef struct pass {
    usc_judge *j;
    const usc_view *view;
    const usc_walk *flushed; /* NULL where there is no such replay */
    usc_score_params params;
    usc_element_function *call;
    void *ctx;
} pass;

/* One block: where it lies and what has been loaded of it. */
typedef struct block {
    const pass *p;
    usc_judge_scratch *s;
    int64_t at;
    size_t count;
    const double *d, *r;
    const double *y;       /* rounded to the device's dtype, or NULL: not loaded */
    const double *flushed; /* loaded with y, NULL where there is none */
    const double *y_raw;
} block;

/* What is known of one element while it is judged. */
typedef struct finding {
    int64_t index;
    double d, r, y, y_raw;
    double s, n, scale; /* S, N, max(|R|, S, N, floor) */
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

static void load_scale(const pass *p, finding *f)
{
    const usc_judge *j = p->j;
    double s = 0, n = 0;
    if (j->s != NULL) {
        s = j->wide ? ((const double *)j->s)[f->index]
                    : (double)((const float *)j->s)[f->index];
        n = j->wide ? ((const double *)j->n_acc)[f->index]
                    : (double)((const float *)j->n_acc)[f->index];
    }
    s *= p->params.s_factor;
    n *= p->params.n_factor;
    f->s = isfinite(s) ? s : p->params.s_unknown;
    f->n = n > 0 ? n : 0;
    f->scale = larger(larger(fabs(f->r), f->s), larger(f->n, p->params.floor));
}

/* The rule for an element where something is or rounds to NaN or Inf. */
static void judge_special(const pass *p, finding *f)
{
    const kind kd = kind_of(f->d), kr = kind_rounded(&p->params, f->r);
    const kind ky = kind_of(f->y);
    const bool finite = isfinite(f->r);
    f->score = 0;
    f->free = finite && kd != FINITE && kd != kr && (ky != kr || f->s > p->view->near);
    f->bad = (finite ? kd == NOT_A_NUMBER : kd != kr) && kd != ky && !f->free;
    const bool by_distance = finite && kd != NOT_A_NUMBER && !f->free;
    f->limit = by_distance && (kd != FINITE) != (kr != FINITE);
    if (by_distance && !(kd != FINITE && kd == ky))
        f->score = distance(&p->params, f->d, f->r) / (p->params.unit * f->scale);
}

/* Whether a device that flushes subnormals to zero gives this value. */
static bool flush_explains(const block *b, const finding *f)
{
    const usc_score_params *p = &b->p->params;
    if (f->d == 0 && fabs(f->r) < p->min_power) return true;
    if (b->flushed == NULL) return false;
    const double y = b->flushed[f->index - b->at];
    if (isfinite(y) && isfinite(f->d)) {
        const double reach =
            larger(b->p->view->t_max, 16) * p->unit * larger(fabs(y), f->s);
        return y != f->y_raw && distance(p, f->d, y) <= reach;
    }
    const kind k = kind_of(y);
    return k != FINITE && kind_of(f->d) == k && kind_of(f->y_raw) != k;
}

/* Appeal: what other replays or the CPU itself also produced counts as no error. */
static void forgive(const block *b, finding *f)
{
    const usc_view *v = b->p->view;
    const usc_judge *j = b->p->j;
    if (!v->exact) {
        if (f->r == 0 && fabs(f->d) <= v->below) f->score = 0;
        if (f->score > v->t_max && isfinite(f->d)) {
            const double y = f->y_raw, reach = 16 * b->p->params.unit * fabs(y);
            const bool seen = j->flags != NULL && (j->flags[f->index] & USC_SEEN) != 0;
            if (seen || (isfinite(y) && distance(&b->p->params, f->d, y) <= reach))
                f->score = 0;
        }
        if (f->d == f->y) f->score = 0;
    }
    if (v->forgive_flush && (j->flags[f->index] & USC_FLUSHED) != 0) {
        f->score = 0;
        f->bad = f->limit = false;
    }
}

/* Counts how an element stands to flushing; marks it where the view asks. */
static void weigh_flush(const block *b, const finding *f, usc_tally *t)
{
    const usc_view *v = b->p->view;
    const bool fails = f->score > v->t_fast || f->bad;
    bool f16_lost = false;
    t->n_failing += fails;
    if (b->p->j->dtype == USC_F16) {
        f16_lost = fails && f->d == 0 && f->r != 0 && fabs(f->r) < b->p->params.min_power;
        t->n_f16_lost += f16_lost;
    } else if (v->mark_flush) {
        uint8_t *flag = &b->p->j->flags[f->index];
        const bool explained = flush_explains(b, f);
        *flag = (uint8_t)((*flag & ~USC_FLUSHED) | (explained ? USC_FLUSHED : 0));
        t->n_flushed += explained && fails;
    }
    t->n_beyond += f->score > v->t_max && !f16_lost;
}

static double sign_of(double x)
{
    return x > 0 ? 1 : x < 0 ? -1 : 0;
}

static void count_scores(const block *b, const finding *f, usc_tally *t, double *rel)
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
}

/* Y as the device's dtype holds it, and the flushed replay: loaded where needed. */
static void load_yardstick(block *b)
{
    if (b->y != NULL) return;
    const usc_judge *j = b->p->j;
    usc_judge_scratch *s = b->s;
    b->y_raw = usc_walk_load(&j->y, b->at, b->count, &s->room, s->y);
    b->y = b->y_raw;
    if (j->y.dtype != j->dtype) {
        usc_dtype_narrow(j->dtype, b->y_raw, s->narrow, b->count);
        usc_dtype_widen(j->dtype, s->narrow, s->k, b->count);
        b->y = s->k;
    }
}

static void load_flushed(block *b)
{
    if (b->p->flushed != NULL && b->flushed == NULL)
        b->flushed = usc_walk_load(b->p->flushed, b->at, b->count, &b->s->room, b->s->f);
}

static void judge_element(block *b, size_t i)
{
    usc_tally *t = &b->s->tally;
    const pass *p = b->p;
    finding f = {
        .index = b->at + (int64_t)i, .d = b->d[i], .r = b->r[i], .score = b->s->score[i]};
    load_yardstick(b);
    f.y = b->y[i];
    f.y_raw = b->y_raw[i];
    load_scale(p, &f);
    const bool special =
        !(fabs(f.d) <= p->params.largest && fabs(f.r) < p->params.overflow);
    if (special) judge_special(p, &f);
    t->n_below += f.r == 0 && f.d != 0;
    if (p->view->appeal) {
        forgive(b, &f);
        weigh_flush(b, &f, t);
    } else {
        t->n_failing += f.score > p->view->t_fast || f.bad;
    }
    t->n_free += f.free;
    t->n_bad += f.bad;
    t->n_blind +=
        f.free || (special && isfinite(f.r) &&
                   f.n > 0x1p20 * larger(fabs(f.r), (f.s < 1e200 ? f.s : 1e200)));
    const bool nonfinite = f.bad || (f.limit && f.score > p->view->t_max);
    if (nonfinite && t->n_nonfinite++ == 0) t->i_nonfinite = f.index;
    double rel = 0;
    if (f.score > 0) count_scores(b, &f, t, &rel);
    b->s->score[i] = f.score;
    b->s->rel[i] = rel;
    if (p->call != NULL && (f.score > 0 || f.bad))
        p->call(p->ctx, &(usc_element){.index = f.index,
                                       .d = f.d,
                                       .r = f.r,
                                       .y = f.y_raw,
                                       .score = f.score,
                                       .bad = nonfinite});
}

static void count_bins(const pass *p, usc_judge_scratch *s, size_t count)
{
    p->j->kernels->bin(s->score, count, s->bins);
    size_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (size_t k = 0; k < 4; k++)
            s->counts[k][s->bins[i + k]]++;
    for (; i < count; i++)
        s->counts[0][s->bins[i]]++;
}

static void fold_counts(usc_judge_scratch *s)
{
    s->tally.scores[0] += s->n_quick;
    for (int i = 1; i < USC_N_SCORE_BINS; i++) {
        const int64_t count =
            s->quick[0][i] + s->quick[1][i] + s->quick[2][i] + s->quick[3][i];
        s->tally.scores[i] += count;
        s->tally.scores[0] -= count;
    }
    for (int i = 0; i < USC_N_SCORE_BINS; i++) {
        for (int k = 0; k < 4; k++)
            s->tally.scores[i] += s->counts[k][i];
        s->tally.rels[i] += s->rel_counts[i];
    }
}

/* The first look: the kernel's scores are final but for special elements. */
static void tally_look(block *b, const usc_score_sums *sums)
{
    usc_judge_scratch *s = b->s;
    usc_tally *t = &s->tally;
    if (sums->special) {
        for (size_t i = 0; i < b->count; i++)
            if (!(fabs(b->d[i]) <= b->p->params.largest &&
                  fabs(b->r[i]) < b->p->params.overflow))
                judge_element(b, i);
    }
    if (sums->max > 0 || sums->special) count_bins(b->p, s, b->count);
    if (!(sums->max > t->max)) return;
    for (size_t i = 0; i < b->count; i++)
        if (s->score[i] > t->max) {
            t->max = s->score[i];
            t->i_worst = b->at + (int64_t)i;
        }
}

static void tally_all(block *b)
{
    usc_judge_scratch *s = b->s;
    memset(s->rel, 0, b->count * sizeof s->rel[0]);
    for (size_t i = 0; i < b->count; i++) {
        const bool special = !(fabs(b->d[i]) <= b->p->params.largest &&
                               fabs(b->r[i]) < b->p->params.overflow);
        if (!special && !(s->score[i] > 0)) continue;
        load_flushed(b);
        judge_element(b, i);
    }
    count_bins(b->p, s, b->count);
    b->p->j->kernels->bin(s->rel, b->count, s->bins);
    for (size_t i = 0; i < b->count; i++)
        s->rel_counts[s->bins[i]]++;
}

static double fold(const double lanes[USC_JUDGE_LANES])
{
    const double a = lanes[0] + lanes[4], b = lanes[1] + lanes[5];
    const double c = lanes[2] + lanes[6], d = lanes[3] + lanes[7];
    return (a + c) + (b + d);
}

static void score_block(const pass *p, usc_judge_scratch *s, int64_t at, size_t count,
                        const double *d, const double *r, usc_score_sums *sums)
{
    const usc_judge *j = p->j;
    memset(sums, 0, sizeof *sums);
    if (j->wide)
        usc_judge_score_wide(&p->params, d, r, (const double *)j->s + at,
                             (const double *)j->n_acc + at, count, s->score, sums);
    else
        j->kernels->score(&p->params, d, r, (const float *)j->s + at,
                          (const float *)j->n_acc + at, count, s->score, sums);
}

/* Expected mismatches from which on their number is of no interest: it only limits the
 * bits that can be claimed where it is below 1, whatever the order of summing. */
#define VISIBLE 2.0

/* The first look, the quick way; false where the block must be looked at in full. */
static bool screen_block(const pass *p, usc_judge_scratch *s, int64_t at, size_t count)
{
    const usc_judge *j = p->j;
    if (p->view->appeal || p->call != NULL || j->wide || j->kernels->screen == NULL ||
        !(s->visible >= VISIBLE))
        return false;
    const usc_screen_operands o = {.d = usc_walk_raw(&j->d, at, count, &s->room),
                                   .r = usc_walk_load(&j->r, at, count, &s->r_room, s->r),
                                   .s = (const float *)j->s + at,
                                   .n = (const float *)j->n_acc + at};
    usc_screened found;
    if (!j->kernels->screen(&p->params, j->dtype, &o, count, s->bins, &found))
        return false;
    if (found.max > s->tally.max) return false; /* where is it? */
    s->n_quick += found.n_mismatch;
    if (found.n_mismatch == 0) return true;
    for (size_t i = 0; i < count; i += 8) {
        uint64_t bins;
        memcpy(&bins, s->bins + i, sizeof bins);
        if (bins == 0) continue;
        for (size_t k = 0; k < 8; k++, bins >>= 8)
            s->quick[k % 4][bins & 0xff]++;
    }
    return true;
}

/* One block in full; its expected mismatches. */
static double judge_block(const pass *p, usc_judge_scratch *s, int64_t at, size_t count)
{
    const usc_judge *j = p->j;
    block b = {.p = p, .s = s, .at = at, .count = count};
    b.d = usc_walk_load(&j->d, at, b.count, &s->room, s->d);
    b.r = usc_walk_load(&j->r, at, b.count, &s->room, s->r);
    usc_score_sums sums;
    score_block(p, s, at, b.count, b.d, b.r, &sums);
    s->tally.n_blind += sums.n_blind;
    if (p->view->appeal || p->call != NULL)
        tally_all(&b);
    else
        tally_look(&b, &sums);
    return fold(sums.expected);
}

static void run_chunks(void *ctx, int thread, int64_t first, int64_t last)
{
    const pass *p = ctx;
    usc_judge *j = p->j;
    usc_judge_scratch *s = &j->scratch[thread];
    const int64_t chunk = (int64_t)USC_JUDGE_BLOCK * USC_BLOCKS_PER_CHUNK;
    memset(s->counts, 0, sizeof s->counts);
    memset(s->quick, 0, sizeof s->quick);
    memset(s->rel_counts, 0, sizeof s->rel_counts);
    s->n_quick = 0;
    s->visible = 0;
    for (int64_t i = first; i < last; i++) {
        double sum = 0;
        const int64_t end = (i + 1) * chunk < j->n ? (i + 1) * chunk : j->n;
        for (int64_t at = i * chunk; at < end; at += USC_JUDGE_BLOCK) {
            const size_t count =
                (size_t)(end - at < USC_JUDGE_BLOCK ? end - at : USC_JUDGE_BLOCK);
            if (screen_block(p, s, at, count)) continue;
            const double expected = judge_block(p, s, at, count);
            sum += expected;
            s->visible += expected;
        }
        j->chunk_sums[i] = sum;
    }
    fold_counts(s);
}

static void merge(usc_tally *to, const usc_tally *from)
{
    to->n_mismatch += from->n_mismatch;
    to->n_bad += from->n_bad;
    to->n_free += from->n_free;
    to->n_blind += from->n_blind;
    to->n_failing += from->n_failing;
    to->n_flushed += from->n_flushed;
    to->n_f16_lost += from->n_f16_lost;
    to->n_beyond += from->n_beyond;
    to->n_over_ulp += from->n_over_ulp;
    to->n_signs += from->n_signs;
    to->sum_signs += from->sum_signs;
    to->n_below += from->n_below;
    if (to->n_nonfinite == 0) to->i_nonfinite = from->i_nonfinite;
    to->n_nonfinite += from->n_nonfinite;
    if (from->max > to->max) { /* threads come in index order: the first one stays */
        to->max = from->max;
        to->i_worst = from->i_worst;
    }
    to->rel_max = larger(to->rel_max, from->rel_max);
    for (int i = 0; i < USC_N_SCORE_BINS; i++) {
        to->scores[i] += from->scores[i];
        to->rels[i] += from->rels[i];
    }
}

usc_score_params usc_judge_params(const usc_judge *j, const usc_view *view)
{
    usc_score_params p = j->params;
    const double root = sqrt(j->n_replays > 0 ? (double)j->n_replays : 1.0);
    p.s_factor = view->exact ? 0 : 1 / (USC_S_STORED * root);
    p.n_factor = view->exact ? 0 : 1 / (USC_N_STORED * root);
    p.s_unknown = view->exact ? 0 : 1e300;
    p.expect = view->expect;
    return p;
}

void usc_judge_pass(usc_judge *j, const usc_view *view, const usc_tensor *flushed,
                    usc_tally *out)
{
    *out = (usc_tally){.i_worst = -1, .i_nonfinite = -1};
    if (j->n == 0) return;
    const usc_walk walk = flushed != NULL ? usc_walk_over(flushed) : (usc_walk){0};
    pass p = {.j = j,
              .view = view,
              .flushed = flushed != NULL ? &walk : NULL,
              .params = usc_judge_params(j, view)};
    for (int t = 0; t < j->n_threads; t++)
        j->scratch[t].tally = (usc_tally){.i_worst = -1, .i_nonfinite = -1};
    usc_judge_split(j, run_chunks, &p);
    for (int t = 0; t < j->n_threads; t++)
        merge(out, &j->scratch[t].tally);
    out->n_mismatch = 0;
    for (int i = 0; i < USC_N_SCORE_BINS; i++)
        out->n_mismatch += out->scores[i];
    for (int64_t i = 0; i < usc_judge_n_chunks(j); i++)
        out->expected += j->chunk_sums[i];
}

void usc_judge_each(usc_judge *j, const usc_view *view, usc_element_function *call,
                    void *ctx)
{
    if (j->n == 0) return;
    pass p = {.j = j,
              .view = view,
              .params = usc_judge_params(j, view),
              .call = call,
              .ctx = ctx};
    j->scratch[0].tally = (usc_tally){.i_worst = -1, .i_nonfinite = -1};
    run_chunks(&p, 0, 0, usc_judge_n_chunks(j));
}
