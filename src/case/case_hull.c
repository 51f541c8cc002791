// SPDX-License-Identifier: Apache-2.0
// What passes although it is visibly off, or is one of a few numbers and off by some
// roundings: some run of float32 has to speak for it. A device has the very inputs; so it
// must lie between what other roundings and orders of adding make of these, or be such a
// value where a step leaves few. Neighbours: case_look.c, whose every pass comes here.
#include "case/case_hull.h"
#include "base/number.h"
#include "case/case_kept.h"
#include "case/case_state.h"
#include "judge/slopes.h"
#include "kernels/walk_load.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEEN 0x1p-12   /* of the same: what a run is off by for whoever judges later */
#define NOTHING 0x1p-4 /* of the least root mean square of the truth and runs */
enum { MANY_TURNS = 8, LEFT_OUT = 64 };

static usc_case_stage take_flushed, take_run, keep_run;

/* ---- which elements ---- */

static bool is_off(const usc_case *c, const usc_hull *h, double d, double r, double size)
{
    const double least =
        (h->few ? USC_FEW_ROUNDINGS * USC_HULL_ROUNDING : USC_HULL_SHOWS) *
        fmax(fabs(r), size);
    if (!isfinite(d) || !isfinite(r) || fabs(d - r) <= least) return false;
    return usc_case_distance(c, d, r) > least;
}

/* Room doubles: places move, and nobody keeps pointers to them. */
static bool add(usc_case *c, usc_hull *h, int64_t i, double d, double r)
{
    if (h->n == h->room) {
        const int64_t room = h->room > 0 ? 2 * h->room : 64;
        usc_hull_place *more = usc_case_room(c, room, sizeof *more);
        if (more == NULL) return false;
        if (h->n > 0) memcpy(more, h->of, (size_t)h->n * sizeof *more);
        h->of = more;
        h->room = room;
    }
    usc_hull_place *p = &h->of[h->n++];
    *p = (usc_hull_place){.index = i, .d = d, .r = r, .runs = {(float)r}, .n_runs = 1};
    p->low = p->high = p->low_all = p->high_all = p->low_cut = p->high_cut = r;
    p->under = (double)-INFINITY;
    p->over = (double)INFINITY;
    usc_hull_note_side(p, r);
    return true;
}

/* The elements that are visibly off beside `size`; the first alone where `one`. */
static bool find(usc_case *c, usc_hull *h, double size, bool one)
{
    usc_walk_room rooms[2];
    double device[USC_JUDGE_BLOCK], truth[USC_JUDGE_BLOCK];
    const usc_walk d_walk = usc_walk_over(&c->look.device);
    const usc_walk r_walk = usc_walk_over(&c->truth);
    for (int64_t at = 0; at < c->n; at += USC_JUDGE_BLOCK) {
        const size_t count =
            (size_t)(c->n - at < USC_JUDGE_BLOCK ? c->n - at : USC_JUDGE_BLOCK);
        const double *d = usc_walk_load(&d_walk, at, count, &rooms[0], device);
        const double *r = usc_walk_load(&r_walk, at, count, &rooms[1], truth);
        for (size_t i = 0; i < count; i++) {
            if (!is_off(c, h, d[i], r[i], size)) continue;
            if (!add(c, h, at + (int64_t)i, d[i], r[i])) return false;
            if (one) return true;
        }
    }
    return true;
}

static void note_size(const usc_case *c, usc_hull *h, const double *run, unsigned kind)
{
    if (kind != USC_RERUN_CUT)
        h->least = fmin(h->least, usc_values_size(run, NULL, c->n));
}

/* ---- what a step makes of equal truths ---- */

static void note_turns(usc_case *c, const usc_hull *h)
{
    for (int64_t i = 0; i < h->n; i++) {
        const usc_hull_place *p = &h->of[i];
        if (!p->stepped) continue;
        const usc_values v = usc_hull_values(h, p, false);
        for (int k = 0; k < v.n; k++) {
            const bool truth = v.low[k] <= p->r && p->r <= v.high[k];
            usc_turn *turn = truth ? NULL : usc_case_turn(c, p->r, v.low[k]);
            if (turn != NULL) turn->n++;
        }
    }
}

/* Of many elements with one truth, runs took some to that value: chance leaves a few out
 * that no run took there. */
static bool turns_elsewhere(usc_case *c, const usc_hull_place *p)
{
    const usc_turn *turn = usc_case_turn(c, p->r, p->d);
    return turn != NULL && turn->n >= MANY_TURNS;
}

/* ---- stages ---- */

/* Whether a step leaves two groups of values, far from one another beside what is in
 * each; and one holds the element, which is in no gap. */
static bool is_split(const usc_hull *h, const usc_hull_place *p)
{
    return h->n_runs >= USC_HULL_RUNS && !usc_hull_is_in_gap(h, p) &&
           usc_values_are_split(p->runs, p->n_runs - p->n_nearby);
}

/* Whether steps explain what runs give at an element. */
static bool is_settled(const usc_hull *h, const usc_hull_place *p)
{
    const usc_values v = usc_hull_values(h, p, false);
    return p->stepped || is_split(h, p) || usc_values_are_on_grid(&v);
}

/* What nobody could judge by bits is right where steps leave few values to all that is
 * off, and each holds one of these. Where no run ever gives the truth float32 cannot. */
static bool all_stepped(const usc_hull *h)
{
    int64_t n_true = 0;
    for (int64_t i = 0; i < h->n; i++) {
        if (!is_settled(h, &h->of[i])) return false;
        n_true += h->of[i].n_true > 0;
    }
    return 2 * n_true >= h->n;
}

static void admit(usc_case *c, const usc_hull *h)
{
    usc_excuse excuse = USC_EXCUSE_ILL_CONDITIONED;
    if (c->f.excused[USC_EXCUSE_ORDER_OF_ADDING] > 0) return; /* which says it */
    if (c->f.verdict == USC_VERDICT_UNJUDGED && all_stepped(h)) {
        excuse = USC_EXCUSE_STEP;
        c->f.verdict = USC_VERDICT_PASS;
        c->f.reason = "";
    }
    if (c->f.verdict != USC_VERDICT_PASS || c->f.excused[excuse] >= h->n) return;
    c->f.excused[excuse] = 0;
    usc_case_excuse(c, excuse, h->n);
}

/* What shows is wrong. A number that does not is what narrower arithmetic gives. */
static void accuse(usc_case *c)
{
    const usc_hull *h = c->hull;
    double most = 0;
    for (int64_t i = 0; i < h->n; i++) {
        const usc_hull_place *p = &h->of[i];
        const double off = c->open[p->index] ? usc_case_distance(c, p->d, p->r) : 0;
        most = fmax(most, off / fmax(fabs(p->r), h->typical));
    }
    usc_case_differ(c, &c->look.device, &c->truth);
    if (!h->few || most > USC_HULL_SHOWS) return;
    char text[128];
    (void)usc_format(text, sizeof text, "off by %.3g roundings, as no run of float32 is",
                     most / USC_HULL_ROUNDING);
    c->f.verdict = USC_VERDICT_REDUCED;
    c->f.reason = usc_case_text(c, text);
    c->f.bits = -log2(most);
}

/* Whether what nobody could judge by bits is next to nothing beside the truth and all runs:
 * these may lie anywhere, but what was rounded to fewer bits, or never written, is small.
 * Upwards there is no bound, the inverse of another matrix nearby may always be larger. */
static bool is_next_to_nothing(usc_case *c, const usc_hull *h)
{
    if (c->f.verdict != USC_VERDICT_UNJUDGED || !isfinite(h->least)) return false;
    const double *device = usc_case_wide(c, &c->look.device);
    return device != NULL && usc_values_size(device, NULL, c->n) < NOTHING * h->least;
}

static usc_status conclude(usc_case *c)
{
    usc_hull *h = c->hull;
    int64_t n_open = 0, n_left_out = 0;
    c->open = usc_case_room(c, c->n, 1);
    if (c->open == NULL || !usc_hull_weigh(c, h)) return USC_OK; /* the driver tells */
    note_turns(c, h);
    for (int64_t i = 0; i < h->n; i++) {
        usc_hull_place *p = &h->of[i];
        p->nowhere = usc_hull_is_nowhere(c, h, p);
        p->admitted = usc_hull_is_admitted(c, h, p);
        n_left_out += !p->admitted && turns_elsewhere(c, p);
    }
    const bool few = n_left_out <= 1 + c->n / LEFT_OUT;
    const bool nothing = is_next_to_nothing(c, h);
    for (int64_t i = 0; i < h->n; i++) {
        const usc_hull_place *p = &h->of[i];
        if (p->nowhere && c->gaps == NULL) c->gaps = usc_case_room(c, c->n, 1);
        if (c->gaps != NULL) c->gaps[p->index] = p->nowhere;
        c->open[p->index] = nothing || (!p->admitted && !(few && turns_elsewhere(c, p)));
        n_open += c->open[p->index];
    }
    if (n_open > 0)
        accuse(c);
    else
        admit(c, h);
    if (nothing) return usc_case_pass(c, USC_STAGE_END); /* no excuse has a set for it */
    return usc_case_go(c, c->look.after);
}

/* Between what runs lie that others made. */
static usc_status take_sides(usc_case *c, usc_error *err)
{
    usc_hull *h = c->hull;
    const usc_tensor *a = c->given.a, *b = c->given.b;
    if (a == NULL || b == NULL || !usc_case_fits(a, &c->truth) ||
        !usc_case_fits(b, &c->truth))
        return usc_error_set(err, USC_E_SHAPE, -1, "%s: sides of runs do not fit",
                             c->o.path);
    const double *low = usc_case_wide(c, a), *high = usc_case_wide(c, b);
    if (low == NULL || high == NULL) return USC_OK;
    for (int64_t i = 0; i < h->n; i++) {
        usc_hull_place *p = &h->of[i];
        p->met |= usc_hull_is_between(c, p->d, low[p->index], high[p->index]);
    }
    const double *least = c->given.c != NULL ? usc_case_wide(c, c->given.c) : NULL;
    h->least = least != NULL ? *least : (double)INFINITY;
    return conclude(c);
}

static usc_status take_run(usc_case *c, usc_error *err)
{
    usc_hull *h = c->hull;
    if (usc_case_given(c, USC_GIVEN_SUMS)) return take_sides(c, err);
    const unsigned kind = (unsigned)c->given.number;
    if (!usc_case_given(c, USC_GIVEN_AS_ASKED) || c->given.a == NULL ||
        !usc_case_fits(c->given.a, &c->truth))
        return conclude(c);
    const double *run = usc_case_wide(c, c->given.a);
    if (run == NULL) return USC_OK;
    note_size(c, h, run, kind);
    for (int64_t i = 0; i < h->n; i++)
        usc_hull_widen(h, &h->of[i], run[h->of[i].index], kind);
    h->n_runs += kind == USC_RERUN_OTHERWISE;
    return usc_case_ask(c, USC_WANT_RUN, c->want.k + 1, take_run);
}

static usc_status take_flushed(usc_case *c, usc_error *err)
{
    (void)err;
    usc_hull *h = c->hull;
    if (!usc_case_given(c, USC_GIVEN_AS_ASKED) || c->given.a == NULL ||
        !usc_case_fits(c->given.a, &c->truth))
        return usc_case_ask(c, USC_WANT_RUN, 0, take_run);
    const double *run = usc_case_wide(c, c->given.a);
    if (run == NULL) return USC_OK;
    for (int64_t i = 0; i < h->n; i++) {
        const double v = run[h->of[i].index];
        h->of[i].met |= usc_hull_is_between(c, h->of[i].d, v, v);
    }
    return usc_case_ask(c, USC_WANT_FLUSHED, c->want.k + 1, take_flushed);
}

usc_status usc_case_hold(usc_case *c)
{
    const usc_walk walk = usc_walk_over(&c->truth);
    usc_hull *h = c->hull = usc_case_room(c, 1, sizeof *h);
    if (h == NULL) return USC_OK; /* the driver tells */
    h->few = c->few_off;
    if (!find(c, h, 0, true)) return USC_OK;
    if (h->n == 0) return usc_case_go(c, c->look.after);
    h->n = 0;
    h->typical = fmax(usc_judge_typical(&walk, c->n), c->look.natural);
    if (!find(c, h, h->typical, false)) return USC_OK;
    if (h->n == 0) return usc_case_go(c, c->look.after);
    if (!usc_case_load(c)) return USC_OK;
    h->least = usc_values_size(c->r, NULL, c->n);
    if (c->y != NULL) note_size(c, h, c->y, USC_RERUN_OTHERWISE);
    for (int64_t i = 0; i < h->n && c->y != NULL; i++)
        usc_hull_widen(h, &h->of[i], c->y[h->of[i].index], USC_RERUN_OTHERWISE);
    h->n_runs = 1;
    if (c->f.judgement.flushes) return usc_case_ask(c, USC_WANT_FLUSHED, 0, take_flushed);
    return usc_case_ask(c, USC_WANT_RUN, 0, take_run);
}

/* ---- of an output that is kept ---- */

static usc_status keep_sides(usc_case *c)
{
    const usc_hull *h = c->hull;
    double *low = usc_case_room(c, c->n, sizeof *low);
    double *high = usc_case_room(c, c->n, sizeof *high);
    if (low == NULL || high == NULL) return USC_OK; /* the driver tells */
    if (!usc_hull_weigh(c, c->hull)) return USC_OK;
    memcpy(low, c->r, (size_t)c->n * sizeof *low);
    memcpy(high, c->r, (size_t)c->n * sizeof *high);
    for (int64_t k = 0; k < h->n; k++)
        usc_hull_between(h, &h->of[k], &low[h->of[k].index], &high[h->of[k].index]);
    if (h->n > 0) usc_case_keep_sides(c, low, high, h->least);
    if (h->n_steps > 0) usc_case_keep_run_steps(c, h->step_at, h->steps, h->n_steps);
    return usc_case_pass(c, USC_STAGE_KEEP_LOSS);
}

/* Places are made where a run first lies visibly beside the truth. */
static bool keep_widened(usc_case *c, const double *run, unsigned kind)
{
    usc_hull *h = c->hull;
    const double seen = h->few ? 0 : SEEN;
    note_size(c, h, run, kind);
    for (int64_t i = 0; i < c->n; i++) {
        const double r = c->r[i], v = run[i];
        const bool off = fabs(v - r) > seen * fmax(fabs(r), h->typical);
        if (h->at[i] == 0 && (!isfinite(r) || !isfinite(v) || !off)) continue;
        if (h->at[i] == 0) {
            if (!add(c, h, i, r, r)) return false;
            h->at[i] = h->n;
        }
        usc_hull_widen(h, &h->of[h->at[i] - 1], v, kind);
    }
    h->n_runs += kind == USC_RERUN_OTHERWISE;
    return true;
}

/* Most outputs have none, and take no room. */
static bool note_steps(usc_case *c, const double *run)
{
    usc_hull *h = c->hull;
    for (int64_t i = 0; i < c->n && h->n_steps < c->n; i++) {
        if (!isfinite(run[i]) || !isfinite(c->r[i]) ||
            !usc_values_took_step(c->r[i], run[i]))
            continue;
        if (h->n_steps == 0) {
            h->step_at = usc_case_room(c, c->n, sizeof *h->step_at);
            h->steps = usc_case_room(c, c->n, sizeof *h->steps);
            if (h->step_at == NULL || h->steps == NULL) return false;
        }
        h->step_at[h->n_steps] = i;
        h->steps[h->n_steps++] = run[i];
    }
    return true;
}

static usc_status keep_run(usc_case *c, usc_error *err)
{
    (void)err;
    if (!usc_case_given(c, USC_GIVEN_AS_ASKED) || c->given.a == NULL ||
        !usc_case_fits(c->given.a, &c->truth))
        return keep_sides(c);
    const double *run = usc_case_wide(c, c->given.a);
    const unsigned kind = (unsigned)c->given.number;
    if (run == NULL || !keep_widened(c, run, kind)) return USC_OK;
    if (kind == USC_RERUN_OTHERWISE && !note_steps(c, run)) return USC_OK;
    return usc_case_ask(c, USC_WANT_RUN, c->want.k + 1, keep_run);
}

usc_status usc_case_keep_hull(usc_case *c, usc_error *err)
{
    (void)err;
    const usc_walk walk = usc_walk_over(&c->truth);
    usc_hull *h = c->hull = usc_case_room(c, 1, sizeof *h);
    if (c->device.dtype == USC_F64 || c->n == 0)
        return usc_case_pass(c, USC_STAGE_KEEP_LOSS);
    if (h == NULL || !usc_case_load(c)) return USC_OK; /* the driver tells */
    h->few = c->n < USC_FEW_NUMBERS;
    h->at = usc_case_room(c, c->n, sizeof *h->at);
    h->typical = usc_judge_typical(&walk, c->n);
    h->least = usc_values_size(c->r, NULL, c->n);
    if (h->at == NULL || (c->y != NULL && !keep_widened(c, c->y, USC_RERUN_OTHERWISE)))
        return USC_OK;
    h->n_runs = 1;
    return usc_case_ask(c, USC_WANT_RUN, 0, keep_run);
}
