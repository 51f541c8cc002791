// SPDX-License-Identifier: Apache-2.0
// Elements that took another side of a step (a label, a rounding to integers, a
// comparison) to which the inputs are so near that another rounding takes it. What never
// rounds had the very values: no step lies between them and the truth. Then what one
// accumulator loses. Neighbours: case_state.h.
#include "case/case_kept.h"
#include "case/case_state.h"
#include "case/case_values.h"
#include "judge/slopes.h"

#include <math.h>
#include <string.h>

#define SAME 0x1p-22      /* of a result: a replay's own roundings */
#define NEAR_STEPS 16     /* replays that look for steps nearby */
#define ROUNDINGS 0x1p-18 /* of a result, beyond what such replays give */
#define ORDER_SLACK 2.0   /* times what one accumulator loses: another may lose more */
#define SETTLED 0x1p-18   /* of a result: 2^-34 of the inputs change it by no more */
enum { FEW_WAYS = 4 };

static usc_case_stage take_moved, after_crossed, take_added;
static usc_status look_at_runs(usc_case *c);

/* ---- steps that a replay took just as the device did ---- */

static usc_status leave(usc_case *c)
{
    const usc_verdict v = c->f.verdict;
    if (c->kept != NULL) return usc_case_ask(c, USC_WANT_ADDED, 0, take_added);
    if (v == USC_VERDICT_PASS) return usc_case_pass(c, USC_STAGE_END);
    if (v != USC_VERDICT_WRONG && v != USC_VERDICT_REDUCED)
        return usc_case_pass(c, USC_STAGE_FREE);
    return usc_case_ask(c, USC_WANT_ADDED, 0, take_added);
}

static void note_side(usc_case *c, int64_t i, double v)
{
    usc_sides *s = &c->sides;
    if (c->kept != NULL) return; /* nobody knows a device */
    if (v <= c->d[i]) s->under[i] = fmax(s->under[i], v);
    if (v >= c->d[i]) s->over[i] = fmin(s->over[i], v);
}

static usc_status look_nearby(usc_case *c)
{
    usc_sides *s = &c->sides;
    *s = (usc_sides){.low = usc_case_room(c, c->n, sizeof *s->low),
                     .high = usc_case_room(c, c->n, sizeof *s->high),
                     .moved = usc_case_room(c, c->n, sizeof *s->moved),
                     .under = usc_case_room(c, c->n, sizeof *s->under),
                     .over = usc_case_room(c, c->n, sizeof *s->over)};
    c->marks = usc_case_room(c, c->n, 1);
    if (c->work.failed) return USC_OK; /* the driver tells */
    for (int64_t i = 0; i < c->n; i++) {
        s->low[i] = s->high[i] = c->r[i];
        s->under[i] = (double)-INFINITY;
        s->over[i] = (double)INFINITY;
        note_side(c, i, c->r[i]);
    }
    return usc_case_ask(c, USC_WANT_NEAR_STEP, 0, take_moved);
}

static usc_status after_steps(usc_case *c, usc_error *err)
{
    (void)err;
    usc_case_excuse(c, USC_EXCUSE_STEP, c->n_before);
    if (c->f.verdict == USC_VERDICT_PASS) return usc_case_pass(c, USC_STAGE_END);
    return look_nearby(c);
}

/* Whether the device gives at element `i` the very value that a replay gave, rounded to
 * its dtype, and not the truth: that needs no excuse. */
static bool met(const usc_case *c, int64_t i, double value)
{
    const double got = c->d[i];
    return isfinite(got) && isfinite(value) && got != usc_case_rounded(c, c->r[i]) &&
           usc_case_distance(c, got, value) <= SAME * fabs(value);
}

static usc_status check_list(const usc_case *c, int64_t *n, usc_error *err)
{
    const usc_tensor *places = c->given.a, *values = c->given.b;
    if (places->dtype != USC_I64 || values->dtype != USC_F64 ||
        !usc_case_fits(places, values) || !usc_tensor_contiguous(places) ||
        !usc_tensor_contiguous(values))
        return usc_error_set(err, USC_E_DTYPE, -1, "%s: bad list of steps", c->o.path);
    return usc_tensor_numel(places, n, err);
}

static bool has_list(const usc_case *c)
{
    return usc_case_given(c, USC_GIVEN_AS_ASKED) && c->given.a != NULL &&
           c->given.b != NULL;
}

/* Marks the places of a list of n at which the device is what the list has there. */
static void mark_listed(usc_case *c, int64_t n,
                        bool is(const usc_case *, int64_t, double))
{
    const int64_t *places = c->given.a->data;
    const double *values = c->given.b->data;
    for (int64_t k = 0; k < n; k++)
        if (places[k] >= 0 && places[k] < c->n && is(c, places[k], values[k]))
            c->marks[places[k]] = 1;
}

static usc_status take_steps(usc_case *c, usc_error *err)
{
    int64_t n = 0;
    if (!has_list(c)) return look_at_runs(c);
    const usc_status st = check_list(c, &n, err);
    c->marks = usc_case_room(c, c->n, 1);
    if (st != USC_OK || c->marks == NULL) return st;
    if (c->kept != NULL) {
        usc_case_keep_steps(c);
        return look_nearby(c);
    }
    mark_listed(c, n, met);
    for (int64_t i = 0; i < c->n; i++)
        c->n_before += c->marks[i];
    if (c->n_before == 0) return look_nearby(c);
    if (!usc_case_put_right(c, &c->device)) return USC_OK;
    c->d = usc_case_wide(c, &c->spared);
    return usc_case_look(c, &c->spared, after_steps, err);
}

usc_status usc_case_steps(usc_case *c, usc_error *err)
{
    (void)err;
    c->n_before = 0;
    c->spared.data = NULL;
    if (c->o.never_rounds || c->o.adds) return leave(c); /* there is no step inside */
    if (!usc_case_load(c)) return USC_OK;                /* the driver tells */
    return usc_case_ask(c, USC_WANT_STEPS, 0, take_steps);
}

/* ---- steps nearby: a sum over many of them lies between what replays give ---- */

static double typical(const usc_case *c)
{
    const usc_walk walk = usc_walk_over(&c->truth);
    return usc_judge_typical(&walk, c->n);
}

static usc_status go_on(usc_case *c, usc_error *err);
static usc_status weigh_nearby(usc_case *c, usc_error *err);

static usc_status take_nearer(usc_case *c, usc_error *err)
{
    usc_sides *s = &c->sides;
    if (!usc_case_given(c, USC_GIVEN_AS_ASKED) || c->given.a == NULL ||
        !usc_case_fits(c->given.a, &c->truth))
        return go_on(c, err);
    const double *nearer = usc_case_wide(c, c->given.a);
    if (nearer == NULL) return USC_OK;
    const double usual = typical(c);
    for (int64_t i = 0; i < c->n; i++) {
        const double m = s->moved[i];
        const double far = fabs(m - c->r[i]), near = fabs(nearer[i] - c->r[i]);
        if (!isfinite(m) || !usc_is_suspect(c->r[i], m, usual) ||
            !usc_is_step(far, near) || near > SETTLED * fmax(fabs(c->r[i]), usual))
            continue;
        c->marks[i] = 1;
        s->low[i] = fmin(s->low[i], m);
        s->high[i] = fmax(s->high[i], m);
        note_side(c, i, m);
    }
    return go_on(c, err);
}

/* What all replays gave, at once. */
static usc_status take_nearby(usc_case *c, usc_error *err)
{
    const usc_tensor *low = c->given.a, *high = c->given.b, *where = c->given.c;
    if (low == NULL || high == NULL || where == NULL || !usc_case_fits(low, &c->truth) ||
        !usc_case_fits(high, &c->truth) || !usc_case_fits(where, &c->truth))
        return usc_error_set(err, USC_E_SHAPE, -1, "%s: sides of steps do not fit",
                             c->o.path);
    const double *from = usc_case_wide(c, low), *to = usc_case_wide(c, high);
    const double *near = usc_case_wide(c, where);
    if (from == NULL || to == NULL || near == NULL) return USC_OK;
    for (int64_t i = 0; i < c->n; i++) {
        c->sides.low[i] = from[i];
        c->sides.high[i] = to[i];
        c->marks[i] = near[i] != 0;
    }
    return weigh_nearby(c, err);
}

static usc_status take_moved(usc_case *c, usc_error *err)
{
    const usc_given_form form = c->given.form;
    if (form == USC_GIVEN_SUMS) return take_nearby(c, err);
    if (form == USC_GIVEN_NONE) {
        c->want.k = NEAR_STEPS;
        return go_on(c, err);
    }
    if (form == USC_GIVEN_FAILED || c->given.a == NULL ||
        !usc_case_fits(c->given.a, &c->truth))
        return go_on(c, err);
    const double *moved = usc_case_wide(c, c->given.a);
    if (moved == NULL) return USC_OK;
    memcpy(c->sides.moved, moved, (size_t)c->n * sizeof *moved); /* it may go */
    const double usual = typical(c);
    bool any = false;
    for (int64_t i = 0; i < c->n && !any; i++)
        any = usc_is_suspect(c->r[i], moved[i], usual);
    return any ? usc_case_ask(c, USC_WANT_NEARER_STEP, c->want.k, take_nearer)
               : go_on(c, err);
}

static usc_status go_on(usc_case *c, usc_error *err)
{
    if (c->want.k + 1 < NEAR_STEPS)
        return usc_case_ask(c, USC_WANT_NEAR_STEP, c->want.k + 1, take_moved);
    if (c->kept == NULL) return weigh_nearby(c, err);
    usc_case_keep_nearby(c);
    return leave(c);
}

/* Whether an element is what a step nearby may leave: what replays gave, or between what
 * many of them add up to. */
static bool is_crossed(const usc_case *c, int64_t i, double usual)
{
    const usc_sides *s = &c->sides;
    const double d = c->d[i], low = s->low[i], high = s->high[i];
    const double slack = ROUNDINGS * fmax(fabs(low), fabs(high));
    const usc_around around = {low, s->under[i], s->over[i], high};
    return c->marks[i] && isfinite(d) && !(c->gaps != NULL && c->gaps[i]) &&
           usc_case_distance(c, d, fmin(fmax(d, low), high)) <= slack &&
           d != usc_case_rounded(c, c->r[i]) &&
           (c->given.form == USC_GIVEN_SUMS || !usc_values_in_gap(&around, d, usual));
}

/* Judges the output again without the `n` that are marked, beside those before. */
static usc_status look_without(usc_case *c, int64_t n, usc_case_stage *after,
                               usc_error *err)
{
    const usc_tensor from = c->spared.data != NULL ? c->spared : c->device;
    if (!usc_case_put_right(c, &from)) return USC_OK;
    c->n_before += n;
    return usc_case_look(c, &c->spared, after, err);
}

static usc_status weigh_nearby(usc_case *c, usc_error *err)
{
    const double usual = typical(c);
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++) {
        c->marks[i] = is_crossed(c, i, usual);
        n += c->marks[i];
    }
    return n > 0 ? look_without(c, n, after_crossed, err) : look_at_runs(c);
}

static usc_status after_crossed(usc_case *c, usc_error *err)
{
    (void)err;
    usc_case_excuse(c, USC_EXCUSE_STEP, c->n_before);
    return look_at_runs(c);
}

/* ---- upon a step: which side a formula comes to hangs on its roundings ---- */

static usc_status after_runs(usc_case *c, usc_error *err)
{
    (void)err;
    usc_case_excuse(c, USC_EXCUSE_STEP, c->n_before);
    return leave(c);
}

/* Whether all that is off is off by one of a few values, as behind a step. */
static bool few_ways(const usc_case *c)
{
    double ways[FEW_WAYS];
    int n = 0;
    for (int64_t i = 0; i < c->n; i++) {
        const double r = c->r[i], way = c->d[i] - r;
        int k = 0;
        if (!isfinite(way) || fabs(way) <= USC_VALUES_SHOWS * fabs(r)) continue;
        while (k < n && !(fabs(ways[k] - way) <= ROUNDINGS * fmax(fabs(r), fabs(way))))
            k++;
        if (k == FEW_WAYS) return false;
        if (k == n) ways[n++] = way;
    }
    return n > 0;
}

static usc_status weigh_runs(usc_case *c, usc_error *err)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++)
        n += c->marks[i];
    return n > 0 ? look_without(c, n, after_runs, err) : leave(c);
}

/* Whether the device is as far from the truth, and just where that run is. */
static bool is_led(const usc_case *c, int64_t i, double run)
{
    return fabs(c->d[i] - c->r[i]) > USC_VALUES_SHOWS * fabs(c->r[i]) && met(c, i, run) &&
           usc_values_took_step(c->r[i], run);
}

/* Of a pack, which has no runs: where they are far from the truth. */
static usc_status take_run_steps(usc_case *c, usc_error *err)
{
    int64_t n = 0;
    if (!has_list(c)) return weigh_runs(c, err);
    const usc_status st = check_list(c, &n, err);
    if (st != USC_OK) return st;
    mark_listed(c, n, is_led);
    return weigh_runs(c, err);
}

static usc_status take_run(usc_case *c, usc_error *err)
{
    const bool one = usc_case_given(c, USC_GIVEN_AS_ASKED) && c->given.a != NULL &&
                     usc_case_fits(c->given.a, &c->truth);
    if (!one && c->want.k == 0)
        return usc_case_ask(c, USC_WANT_RUN_STEPS, 0, take_run_steps);
    if (!one || c->given.number != 0) return weigh_runs(c, err); /* of others' inputs */
    const double *run = usc_case_wide(c, c->given.a);
    if (run == NULL) return USC_OK;
    for (int64_t i = 0; i < c->n; i++)
        if (is_led(c, i, run[i])) c->marks[i] = 1;
    return usc_case_ask(c, USC_WANT_RUN, c->want.k + 1, take_run);
}

static usc_status look_at_runs(usc_case *c)
{
    const usc_verdict v = c->f.verdict;
    const bool flagged = v == USC_VERDICT_WRONG || v == USC_VERDICT_REDUCED;
    if (c->kept != NULL || !flagged || !few_ways(c)) return leave(c);
    c->marks = usc_case_room(c, c->n, 1);
    if (c->marks == NULL) return USC_OK; /* the driver tells */
    return usc_case_ask(c, USC_WANT_RUN, 0, take_run);
}

/* ---- one accumulator: small terms vanish beside large sums ---- */

static usc_status after_held(usc_case *c, usc_error *err)
{
    (void)err;
    if (c->f.verdict == USC_VERDICT_PASS) return usc_case_pass(c, USC_STAGE_END);
    c->f = c->before;
    return usc_case_pass(c, USC_STAGE_FREE);
}

/* What an accumulator loses beside a step is one value or the other: where it shows, runs
 * of float32 say which there are. */
static usc_status after_added(usc_case *c, usc_error *err)
{
    if (c->f.verdict != USC_VERDICT_PASS) return after_held(c, err);
    usc_case_excuse(c, USC_EXCUSE_ORDER_OF_ADDING, c->n_marks);
    c->look.device = c->device;
    c->look.after = after_held;
    return usc_case_hold(c);
}

/* Between what lies what one accumulator gives, from the first term on and from the last,
 * and the truth; false where a run is missing. */
static bool add_runs(usc_case *c)
{
    const bool sums = usc_case_given(c, USC_GIVEN_SUMS);
    const usc_tensor *const given[2] = {c->given.a, sums ? c->given.b : c->given.a};
    usc_added *a = &c->added;
    for (int k = 0; k < 2; k++)
        if ((!sums && !usc_case_given(c, USC_GIVEN_AS_ASKED)) || given[k] == NULL ||
            !usc_case_fits(given[k], &c->truth) || !usc_case_load(c))
            return false;
    const double *low = usc_case_wide(c, given[0]);
    const double *high = sums ? usc_case_wide(c, given[1]) : low;
    const bool first = c->want.k == 0;
    if (first) a->low = usc_case_room(c, c->n, sizeof *a->low);
    if (first) a->high = usc_case_room(c, c->n, sizeof *a->high);
    if (low == NULL || high == NULL || a->low == NULL || a->high == NULL) return false;
    for (int64_t i = 0; i < c->n; i++) {
        if (first) a->low[i] = a->high[i] = c->r[i];
        if (isfinite(low[i])) a->low[i] = fmin(a->low[i], low[i]);
        if (isfinite(high[i])) a->high[i] = fmax(a->high[i], high[i]);
    }
    return true;
}

/* Another order may lose more than these two, but where that shows in the element: what a
 * step makes of a sum has no values further away. */
static bool is_added(const usc_case *c, int64_t i)
{
    const double r = c->r[i], d = c->d[i];
    const double low = c->added.low[i], high = c->added.high[i];
    if (!isfinite(d) || !isfinite(r) || d == usc_case_rounded(c, r)) return false;
    const double off = usc_case_distance(c, d, r), lost = fmax(r - low, high - r);
    if (off > ORDER_SLACK * lost || (c->gaps != NULL && c->gaps[i])) return false;
    return off <= USC_VALUES_SHOWS * fabs(r) ||
           usc_case_distance(c, d, fmin(fmax(d, low), high)) <=
               ROUNDINGS * fmax(fabs(low), fabs(high));
}

/* Without the elements that are off by no more than an accumulator loses that takes the
 * terms as they come. */
static usc_status take_added(usc_case *c, usc_error *err)
{
    if (!add_runs(c)) c->added.low = NULL;
    if (c->added.low != NULL && c->want.k == 0 && !usc_case_given(c, USC_GIVEN_SUMS))
        return usc_case_ask(c, USC_WANT_ADDED, 1, take_added);
    c->d = NULL;
    if (c->kept != NULL) usc_case_keep_added(c);
    if (c->kept != NULL || c->added.low == NULL) return usc_case_pass(c, USC_STAGE_FREE);
    c->marks = usc_case_room(c, c->n, 1);
    if (c->marks == NULL || !usc_case_load(c)) return USC_OK;
    c->n_marks = 0;
    for (int64_t i = 0; i < c->n; i++) {
        c->marks[i] = is_added(c, i);
        c->n_marks += c->marks[i];
    }
    if (!usc_case_put_right(c, &c->device)) return USC_OK;
    c->before = c->f;
    return usc_case_look(c, &c->spared, after_added, err);
}
