// SPDX-License-Identifier: Apache-2.0
// Elements that took another side of a step (a label, a rounding to integers, a
// comparison) to which the inputs are so near that another rounding takes it. What never
// rounds had the very values: no step lies between them and the truth. Then what one
// accumulator loses. Neighbours: case_state.h.
#include "case/case_state.h"
#include "judge/slopes.h"

#include <math.h>
#include <string.h>

#define EPS 4.0           /* a step is met within so many ulps of 1 */
#define NEAR_STEPS 16     /* replays that look for steps nearby */
#define ROUNDINGS 0x1p-18 /* of a result, beyond what such replays give */
#define ORDER_SLACK 2.0   /* times what one accumulator loses: another may lose more */
#define FEW_SLACK 1.25    /* of so few none is another's luck */
enum { FEW = 8 };

static usc_case_stage take_moved, after_crossed, take_added;

/* ---- steps that a replay took just as the device did ---- */

static usc_status leave(usc_case *c)
{
    const usc_verdict v = c->f.verdict;
    if (c->kept != NULL) return usc_case_ask(c, USC_WANT_ADDED, 0, take_added);
    if (v == USC_VERDICT_PASS) return usc_case_go(c, usc_case_end);
    if (v != USC_VERDICT_WRONG && v != USC_VERDICT_REDUCED)
        return usc_case_go(c, usc_case_free);
    return usc_case_ask(c, USC_WANT_ADDED, 0, take_added);
}

static usc_status look_nearby(usc_case *c)
{
    usc_sides *s = &c->sides;
    *s = (usc_sides){.low = usc_case_room(c, c->n, sizeof *s->low),
                     .high = usc_case_room(c, c->n, sizeof *s->high),
                     .moved = usc_case_room(c, c->n, sizeof *s->moved)};
    c->marks = usc_case_room(c, c->n, 1);
    if (c->work.failed) return USC_OK; /* the driver tells */
    for (int64_t i = 0; i < c->n; i++)
        s->low[i] = s->high[i] = c->r[i];
    return usc_case_ask(c, USC_WANT_NEAR_STEP, 0, take_moved);
}

static usc_status after_steps(usc_case *c, usc_error *err)
{
    (void)err;
    usc_case_excuse(c, USC_EXCUSE_STEP, c->n_before);
    if (c->f.verdict == USC_VERDICT_PASS) return usc_case_go(c, usc_case_end);
    return look_nearby(c);
}

static bool met(const usc_case *c, double got, double value)
{
    const int bits = usc_dtype_info_of(c->device.dtype)->sig_bits;
    return fabs(got - value) <= EPS * ldexp(1, 1 - bits) * fabs(value);
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

static usc_status take_steps(usc_case *c, usc_error *err)
{
    int64_t n = 0;
    if (!usc_case_given(c, USC_GIVEN_AS_ASKED) || c->given.a == NULL ||
        c->given.b == NULL)
        return leave(c);
    const usc_status st = check_list(c, &n, err);
    c->marks = usc_case_room(c, c->n, 1);
    if (st != USC_OK || c->marks == NULL) return st;
    if (c->kept != NULL) {
        if (n == 0) return leave(c); /* no steps nearby either */
        usc_case_keep_steps(c);
        return look_nearby(c);
    }
    const int64_t *places = c->given.a->data;
    const double *values = c->given.b->data;
    for (int64_t k = 0; k < n; k++)
        if (places[k] >= 0 && places[k] < c->n && met(c, c->d[places[k]], values[k]))
            c->marks[places[k]] = 1;
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
    if (c->o.never_rounds) return leave(c);
    if (!usc_case_load(c)) return USC_OK; /* the driver tells */
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
            !usc_is_beside(far, near) || usc_is_slope(far, near))
            continue;
        c->marks[i] = 1;
        s->low[i] = fmin(s->low[i], m);
        s->high[i] = fmax(s->high[i], m);
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

static usc_status weigh_nearby(usc_case *c, usc_error *err)
{
    const usc_sides *s = &c->sides;
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++) {
        const double slack = ROUNDINGS * fmax(fabs(s->low[i]), fabs(s->high[i]));
        c->marks[i] = c->marks[i] && c->d[i] >= s->low[i] - slack &&
                      c->d[i] <= s->high[i] + slack &&
                      c->d[i] != usc_case_rounded(c, c->r[i]);
        n += c->marks[i];
    }
    if (n == 0) return leave(c);
    const usc_tensor from = c->spared.data != NULL ? c->spared : c->device;
    if (!usc_case_put_right(c, &from)) return USC_OK;
    c->n_before += n;
    return usc_case_look(c, &c->spared, after_crossed, err);
}

static usc_status after_crossed(usc_case *c, usc_error *err)
{
    (void)err;
    usc_case_excuse(c, USC_EXCUSE_STEP, c->n_before);
    return leave(c);
}

/* ---- one accumulator: small terms vanish beside large sums ---- */

static usc_status after_added(usc_case *c, usc_error *err)
{
    (void)err;
    if (c->f.verdict != USC_VERDICT_PASS) {
        c->f = c->before;
        return usc_case_go(c, usc_case_free);
    }
    c->f.bits = c->before.bits;
    c->f.bound = false;
    usc_case_excuse(c, USC_EXCUSE_ORDER_OF_ADDING, c->n_marks);
    return usc_case_go(c, usc_case_end);
}

/* The most that runs lose, which add up from the first term on and from the last; false
 * where a run is missing. */
static bool add_loss(usc_case *c)
{
    const bool sums = usc_case_given(c, USC_GIVEN_SUMS);
    if ((!sums && !usc_case_given(c, USC_GIVEN_AS_ASKED)) || c->given.a == NULL ||
        !usc_case_fits(c->given.a, &c->truth) || !usc_case_load(c))
        return false;
    const double *run = usc_case_wide(c, c->given.a);
    if (c->want.k == 0) c->added = usc_case_room(c, c->n, sizeof *c->added);
    if (run == NULL || c->added == NULL) return false;
    for (int64_t i = 0; i < c->n; i++) {
        const double lost = sums ? run[i] : fabs(run[i] - c->r[i]);
        if (isfinite(lost) && lost > c->added[i]) c->added[i] = lost;
    }
    return true;
}

/* Without the elements that are off by no more than an accumulator loses that takes the
 * terms as they come. */
static usc_status take_added(usc_case *c, usc_error *err)
{
    if (!add_loss(c)) c->added = NULL;
    if (c->added != NULL && c->want.k == 0 && !usc_case_given(c, USC_GIVEN_SUMS))
        return usc_case_ask(c, USC_WANT_ADDED, 1, take_added);
    c->d = NULL;
    if (c->kept != NULL) usc_case_keep_added(c);
    if (c->kept != NULL || c->added == NULL) return usc_case_go(c, usc_case_free);
    const double *most = c->added;
    c->marks = usc_case_room(c, c->n, 1);
    if (c->marks == NULL || !usc_case_load(c)) return USC_OK;
    const int bits = usc_dtype_info_of(c->device.dtype)->sig_bits;
    const double slack = c->n >= FEW ? ORDER_SLACK : FEW_SLACK;
    c->n_marks = 0;
    for (int64_t i = 0; i < c->n; i++) {
        const double r = c->r[i], off = fabs(c->d[i] - r);
        c->marks[i] = off <= slack * most[i] + fabs(r) * ldexp(1, -bits) &&
                      c->d[i] != usc_case_rounded(c, r);
        c->n_marks += c->marks[i];
    }
    if (!usc_case_put_right(c, &c->device)) return USC_OK;
    c->before = c->f;
    return usc_case_look(c, &c->spared, after_added, err);
}
