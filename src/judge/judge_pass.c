// SPDX-License-Identifier: Apache-2.0
// One sweep over the operands: kernels give scores of ordinary elements; elements that
// are NaN or Inf, and on appeal all mismatches, go through judge_element.c.
#include "judge/judge_element.h"

#include <math.h>
#include <string.h>

/* fmax() for numbers, without a call. */
static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Counts n bins; eight matches in a row, whose count is of no interest, are left out. */
static void count_bytes(const uint8_t *bins, size_t n, usc_counters *c)
{
    const uint64_t skipped = USC_BIN_MATCH * UINT64_C(0x0101010101010101);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t word;
        memcpy(&word, bins + i, sizeof word);
        if (word != skipped) usc_count_eight(word, c);
    }
    for (; i < n; i++)
        c->of[0][bins[i]]++;
}

static int64_t counted(const usc_counters *c, int bin)
{
    int64_t sum = 0;
    for (int k = 0; k < 8; k++)
        sum += c->of[k][bin];
    return sum;
}

/* Pairs are counted in 32 bits: they are moved before so many chunks of a thread can have
 * filled one. */
#define CHUNKS_OF_PAIRS ((int64_t)1 << 16)

static void move_pairs(usc_screened *s)
{
    for (int i = 0; i < USC_N_LOW_BINS * USC_N_LOW_BINS; i++) {
        s->counters.of[0][i % USC_N_LOW_BINS] += s->pairs[i];
        s->counters.of[1][i / USC_N_LOW_BINS] += s->pairs[i];
    }
    memset(s->pairs, 0, sizeof s->pairs);
}

static void count_bins(const usc_pass *p, const double *scores, size_t count,
                       uint8_t *bins, usc_counters *counters)
{
    p->j->kernels->bin(scores, count, bins);
    count_bytes(bins, count, counters);
}

static void fold_counts(usc_judge_scratch *s)
{
    usc_tally *t = &s->tally;
    for (int i = 0; i < USC_N_SCORE_BINS; i++) {
        t->scores[i] += counted(&s->counts, i);
        t->rels[i] += counted(&s->rel_counts, i);
    }
    if (s->quick.n_mismatch == 0) return;
    move_pairs(&s->quick);
    t->scores[0] += s->quick.n_mismatch; /* less what is in other bins */
    for (int i = 1; i < USC_N_SCORE_BINS; i++) {
        t->scores[i] += counted(&s->quick.counters, i);
        t->scores[0] -= counted(&s->quick.counters, i);
    }
}

/* The first element whose score is above all before. */
static void find_worst(usc_block *b)
{
    usc_tally *t = &b->s->tally;
    for (size_t i = 0; i < b->count; i++)
        if (b->s->score[i] > t->max) {
            t->max = b->s->score[i];
            t->i_worst = b->at + (int64_t)i;
        }
}

/* The first look: the kernel's scores are final but for special elements. */
static void tally_look(usc_block *b, const usc_score_sums *sums)
{
    usc_judge_scratch *s = b->s;
    const usc_tally *t = &s->tally;
    if (sums->special) {
        for (size_t i = 0; i < b->count; i++)
            if (!(fabs(b->d[i]) <= b->p->params.largest &&
                  fabs(b->r[i]) < b->p->params.overflow))
                usc_judge_element(b, i);
    }
    if (sums->max > 0 || sums->special)
        count_bins(b->p, s->score, b->count, s->bins, &s->counts);
    if (sums->max > t->max) find_worst(b);
}

/* The appeal, where no element is special: the kernel does what usc_judge_element() does.
 */
static void weigh_block(usc_block *b)
{
    const usc_pass *p = b->p;
    const usc_judge *j = p->j;
    const usc_view *v = p->view;
    usc_judge_scratch *s = b->s;
    usc_block_load_yardstick(b);
    usc_block_load_flushed(b);
    const usc_weigh_rule rule = {.t_fast = v->t_fast,
                                 .t_max = v->t_max,
                                 .below = v->below,
                                 .excuse = !v->exact,
                                 .forgive = v->forgive,
                                 .mark_flush = v->mark_flush,
                                 .half = j->small};
    const usc_weigh_operands o = {.d = b->d,
                                  .r = b->r,
                                  .y = b->y,
                                  .y_raw = b->y_raw,
                                  .flushed = b->flushed,
                                  .s = b->scales.s,
                                  .n = b->scales.n,
                                  .flags = j->flags + b->at,
                                  .score = s->score,
                                  .rel = s->rel};
    usc_weighed w;
    j->kernels->weigh(&p->params, &rule, &o, b->count, &w);
    usc_tally *t = &s->tally;
    t->n_below += w.n_below;
    t->n_failing += w.n_failing;
    t->n_f16_lost += w.n_f16_lost;
    t->n_flushed += w.n_flushed;
    t->n_flushed_out += w.n_flushed_out;
    t->n_flushed_in += w.n_flushed_in;
    t->n_beyond += w.n_beyond;
    t->n_over_ulp += w.n_over_ulp;
    t->n_signs += w.n_signs;
    t->sum_signs += w.sum_signs;
    t->rel_max = larger(t->rel_max, w.rel_max);
    if (w.max > t->max) find_worst(b);
}

static void weigh_each(usc_block *b)
{
    usc_judge_scratch *s = b->s;
    memset(s->rel, 0, b->count * sizeof s->rel[0]);
    for (size_t i = 0; i < b->count; i++) {
        const bool special = !(fabs(b->d[i]) <= b->p->params.largest &&
                               fabs(b->r[i]) < b->p->params.overflow);
        if (!special && !(s->score[i] > 0) && !b->p->view->count_kept) continue;
        usc_block_load_flushed(b);
        usc_judge_element(b, i);
    }
}

static void tally_all(usc_block *b, const usc_score_sums *sums)
{
    usc_judge_scratch *s = b->s;
    const usc_judge *j = b->p->j;
    const bool all = b->p->view->count_kept;
    if (!sums->special && !(sums->max > 0) && !all) return;
    if (sums->special || all || b->p->call != NULL || !b->p->view->appeal || j->wide ||
        j->pairs || j->kernels->weigh == NULL || b->count % 4 != 0)
        weigh_each(b);
    else
        weigh_block(b);
    count_bins(b->p, s->score, b->count, s->bins, &s->counts);
    count_bins(b->p, s->rel, b->count, s->bins, &s->rel_counts);
}

static double fold(const double lanes[USC_JUDGE_LANES])
{
    const double a = lanes[0] + lanes[4], b = lanes[1] + lanes[5];
    const double c = lanes[2] + lanes[6], d = lanes[3] + lanes[7];
    return (a + c) + (b + d);
}

static void score_block(const usc_block *b, usc_score_sums *sums)
{
    const usc_judge *j = b->p->j;
    const usc_score_params *p = &b->p->params;
    const usc_scales *x = &b->scales;
    memset(sums, 0, sizeof *sums);
    if (j->wide)
        usc_judge_score_wide(p, b->d, b->r, x->s, x->n, b->count, b->s->score, sums);
    else
        j->kernels->score(p, b->d, b->r, x->s, x->n, b->count, b->s->score, sums);
}

/* Expected mismatches from which on their number is of no interest: it only limits the
 * bits that can be claimed where it is below 1, whatever the order of summing. */
#define VISIBLE 2.0

/* The first look, the quick way; false where the block must be looked at in full. */
static bool screen_block(const usc_pass *p, usc_judge_scratch *s, int64_t at,
                         size_t count)
{
    const usc_judge *j = p->j;
    const bool bare = p->view->exact || j->n_replays == 0; /* S = N = 0 */
    if (p->view->appeal || p->call != NULL || j->kernels->screen == NULL ||
        !(s->visible >= VISIBLE))
        return false;
    const bool as_is = usc_screens(j->dtype);
    usc_screen_operands o = {.r = usc_walk_load(&j->r, at, count, &s->r_room, s->r),
                             .wide = j->wide};
    if (as_is)
        o.d = usc_walk_raw(&j->d, at, count, &s->room);
    else
        o.d = usc_walk_load(&j->d, at, count, &s->room, s->d);
    if (bare) {
        ; /* none is read */
    } else if (j->lazy) {
        if (j->yk.dtype != USC_F32) return false;
        o.rk = usc_walk_load(&j->rk, at, count, &s->k_room, s->k);
        o.yk = usc_walk_raw(&j->yk, at, count, &s->k_room);
    } else {
        const usc_scales x = usc_judge_scales(j, s, false, at, count, o.r);
        o.s = x.s;
        o.n = x.n;
    }
    s->quick.max = s->tally.max; /* a larger one must be found */
    return j->kernels->screen(&p->params, as_is ? j->dtype : USC_F64, &o, count,
                              &s->quick);
}

/* Elements that a flushing device may give are right: as if they were the truth, they are
 * not ill-conditioned either. */
static void settle_forgiven(usc_block *b)
{
    const usc_judge *j = b->p->j;
    const uint8_t *flags = j->flags + b->at;
    double *settled = b->s->d;
    if (b->d != settled) memcpy(settled, b->d, b->count * sizeof *settled);
    for (size_t i = 0; i < b->count; i++) {
        const bool plain = fabs(b->d[i]) <= b->p->params.largest &&
                           fabs(b->r[i]) < b->p->params.overflow;
        if (plain && (flags[i] & b->p->view->forgive) != 0) settled[i] = b->r[i];
    }
    b->d = settled;
}

/* One block in full; its expected mismatches. */
static double judge_block(const usc_pass *p, usc_judge_scratch *s, int64_t at,
                          size_t count)
{
    const usc_judge *j = p->j;
    usc_block b = {.p = p, .s = s, .at = at, .count = count};
    b.d = usc_walk_load(&j->d, at, b.count, &s->room, s->d);
    b.r = usc_walk_load(&j->r, at, b.count, &s->room, s->r);
    b.scales = usc_judge_scales(j, s, p->view->exact, at, count, b.r);
    if (p->view->forgive != 0) settle_forgiven(&b);
    usc_score_sums sums;
    score_block(&b, &sums);
    s->tally.n_ill += sums.n_ill;
    if (p->view->only_expected) return fold(sums.expected);
    if (p->view->appeal || p->call != NULL)
        tally_all(&b, &sums);
    else
        tally_look(&b, &sums);
    return fold(sums.expected);
}

static void run_chunks(void *ctx, int thread, int64_t first, int64_t last)
{
    const usc_pass *p = ctx;
    usc_judge *j = p->j;
    usc_judge_scratch *s = &j->scratch[thread];
    const int64_t chunk = (int64_t)USC_JUDGE_BLOCK * USC_BLOCKS_PER_CHUNK;
    memset(&s->counts, 0, sizeof s->counts);
    memset(&s->quick, 0, sizeof s->quick);
    memset(&s->rel_counts, 0, sizeof s->rel_counts);
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
        if ((i - first) % CHUNKS_OF_PAIRS == CHUNKS_OF_PAIRS - 1) move_pairs(&s->quick);
    }
    fold_counts(s);
}

static void merge(usc_tally *to, const usc_tally *from)
{
    to->n_mismatch += from->n_mismatch;
    to->n_bad += from->n_bad;
    to->n_free += from->n_free;
    to->n_ill += from->n_ill;
    to->n_failing += from->n_failing;
    to->n_flushed += from->n_flushed;
    to->n_flushed_out += from->n_flushed_out;
    to->n_flushed_in += from->n_flushed_in;
    to->n_kept_out += from->n_kept_out;
    to->n_kept_in += from->n_kept_in;
    to->n_f16_lost += from->n_f16_lost;
    to->n_beyond += from->n_beyond;
    to->n_over_ulp += from->n_over_ulp;
    to->n_signs += from->n_signs;
    to->sum_signs += from->sum_signs;
    to->n_undefined += from->n_undefined;
    to->n_nan_inf += from->n_nan_inf;
    to->n_below += from->n_below;
    if (to->n_nonfinite == 0) to->i_nonfinite = from->i_nonfinite;
    to->n_nonfinite += from->n_nonfinite;
    if (from->max > to->max) { /* threads come in index order: the first one stays */
        to->max = from->max;
        to->i_worst = from->i_worst;
    }
    to->modulus_max = larger(to->modulus_max, from->modulus_max);
    to->rel_max = larger(to->rel_max, from->rel_max);
    for (int i = 0; i < USC_N_SCORE_BINS; i++) {
        to->scores[i] += from->scores[i];
        to->rels[i] += from->rels[i];
    }
}

void usc_judge_pass(usc_judge *j, const usc_view *view, const usc_tensor *flushed,
                    usc_tally *out)
{
    *out = (usc_tally){.i_worst = -1, .i_nonfinite = -1};
    if (j->n == 0) return;
    const usc_walk walk = flushed != NULL ? usc_walk_over(flushed) : (usc_walk){0};
    usc_pass p = {.j = j,
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
    usc_pass p = {.j = j,
                  .view = view,
                  .params = usc_judge_params(j, view),
                  .call = call,
                  .ctx = ctx};
    j->scratch[0].tally = (usc_tally){.i_worst = -1, .i_nonfinite = -1};
    run_chunks(&p, 0, 0, usc_judge_n_chunks(j));
}
