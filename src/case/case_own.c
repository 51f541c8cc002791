// SPDX-License-Identifier: Apache-2.0
// Operators that torch takes apart before a device sees them: what 16 bits lose between
// these steps is torch's, not the device's. Runs of the device's own steps, each
// correctly rounded, say between what an element may lie; without what lies there the
// output has to pass. Neighbours: case_state.h.
#include "case/case_kept.h"
#include "case/case_shares.h"
#include "case/case_state.h"
#include "case/case_values.h"

#include <math.h>

#define NOTE "rounds between its own steps, as torch's decomposition does"

#define BEYOND 2.0 /* times fewer lie beyond the runs than these differ in, at the most */
#define SURE 5.0   /* times what independent roundings come to */
enum { RUNS = 4 };

static usc_case_stage take_step;

bool usc_case_may_take_apart(const usc_case *c)
{
    const usc_dtype d = c->device.dtype;
    if (c->apart.weighing) return true;
    return c->reading.over && c->reading.at == 0 && !c->apart.tried && !c->o.exact &&
           (d == USC_F16 || d == USC_BF16) && usc_case_is_float(&c->reading.truth) &&
           (c->kept != NULL || usc_verdict_flagged(c->f.verdict));
}

static usc_status leave(usc_case *c)
{
    c->f = c->apart.found;
    return usc_case_pass(c, USC_STAGE_PUT_AWAY);
}

/* ---- between what it may lie ---- */

/* One run more. */
static bool add_run(usc_case *c)
{
    struct usc_case_apart *a = &c->apart;
    const double *run = usc_case_wide(c, c->given.a);
    const bool first = a->low == NULL;
    if (first) {
        a->low = usc_case_room(c, c->n, sizeof *a->low);
        a->high = usc_case_room(c, c->n, sizeof *a->high);
        a->odd = usc_case_room(c, c->n, 1);
    }
    if (run == NULL || c->work.failed) return false;
    for (int64_t i = 0; i < c->n; i++) {
        if (first) {
            a->low[i] = (double)INFINITY;
            a->high[i] = -(double)INFINITY;
        }
        a->odd[i] |= usc_values_odd(run[i]);
        if (!isfinite(run[i])) continue;
        a->low[i] = fmin(a->low[i], run[i]);
        a->high[i] = fmax(a->high[i], run[i]);
    }
    return true;
}

/* Elements that are not right and lie within one ulp of what the runs gave, between these
 * or beyond; how many lie beyond, and where runs differ. */
typedef struct counts {
    int64_t n_beyond, n_wide;
} counts;

static bool is_within(const usc_case *c, int64_t i, bool next)
{
    const struct usc_case_apart *a = &c->apart;
    const double d = c->d[i], low = a->low[i], high = a->high[i];
    if (!isfinite(d)) return (a->odd[i] & usc_values_odd(d)) != 0;
    if (low > high) return false; /* no run gave a number */
    return d >= low - (next ? usc_case_ulp(c, low) : 0) &&
           d <= high + (next ? usc_case_ulp(c, high) : 0);
}

static counts mark(usc_case *c)
{
    const struct usc_case_apart *a = &c->apart;
    counts n = {0};
    for (int64_t i = 0; i < c->n; i++) {
        const bool same = c->d[i] == usc_case_rounded(c, c->r[i]);
        c->marks[i] = !same && is_within(c, i, true);
        n.n_beyond += c->marks[i] != 0 && !is_within(c, i, false);
        n.n_wide += a->low[i] < a->high[i];
    }
    return n;
}

static void unmark_beyond(usc_case *c)
{
    for (int64_t i = 0; i < c->n; i++)
        c->marks[i] = c->marks[i] != 0 && is_within(c, i, false);
}

/* Whether what is excused leans to one side of the middle of its sets: roundings between
 * steps go up here and down there, whatever the steps are. */
static bool leans(const usc_case *c)
{
    const struct usc_case_apart *a = &c->apart;
    double share = 0, shares = 0, sizes = 0, mean = 0, means = 0, size = 0;
    for (int64_t i = 0; i < c->n; i++) {
        const double e = c->d[i] - (a->low[i] + a->high[i]) / 2, r = c->r[i];
        if (!isfinite(r) || !isfinite(e)) continue;
        sizes += r * r;
        size += fabs(r);
        if (c->marks[i] == 0) continue;
        share += e * r;
        shares += e * r * (e * r);
        mean += e;
        means += e * e;
    }
    const double drift =
        usc_shared_drift(USC_SHARED_BASE, a->found.judgement.fan_in) * USC_CUT_OFF;
    return fabs(share) > SURE * sqrt(shares) + drift * sizes ||
           fabs(mean) > SURE * sqrt(means) + drift * size;
}

/* The output without the elements that its own steps explain. Other float32 inside moves
 * other roundings than those of the few runs, but not more than a share of them. */
static bool put_right(usc_case *c)
{
    struct usc_case_apart *a = &c->apart;
    a->n_free = 0;
    c->marks = usc_case_room(c, c->n, 1);
    if (c->marks == NULL || !usc_case_load(c)) return false;
    const counts n = mark(c);
    if (BEYOND * (double)n.n_beyond > (double)n.n_wide) unmark_beyond(c);
    if (leans(c)) return false;
    for (int64_t i = 0; i < c->n; i++)
        a->n_free += c->marks[i];
    return a->n_free > 0 && usc_case_put_right(c, &c->device);
}

static usc_status weigh(usc_case *c)
{
    if (!put_right(c)) return leave(c);
    c->device = c->spared;
    c->spared.data = NULL;
    c->d = NULL;
    c->o.narrow = false;
    c->apart.weighing = true;
    return usc_case_pass(c, USC_STAGE_FLOAT);
}

/* ---- runs ---- */

static usc_status all_runs(usc_case *c)
{
    if (c->apart.low == NULL) return leave(c);
    if (c->kept == NULL) return weigh(c);
    usc_case_keep_apart(c);
    return leave(c);
}

static usc_status take_sums(usc_case *c, usc_error *err)
{
    struct usc_case_apart *a = &c->apart;
    const usc_tensor *low = c->given.a, *high = c->given.b, *odd = c->given.c;
    if (low == NULL || high == NULL || odd == NULL || !usc_case_fits(low, &c->truth) ||
        !usc_case_fits(high, &c->truth) || !usc_case_fits(odd, &c->truth))
        return usc_error_set(err, USC_E_SHAPE, -1, "%s: sides of own steps do not fit",
                             c->o.path);
    const double *from = usc_case_wide(c, low), *to = usc_case_wide(c, high);
    const double *marked = usc_case_wide(c, odd);
    a->low = usc_case_room(c, c->n, sizeof *a->low);
    a->high = usc_case_room(c, c->n, sizeof *a->high);
    a->odd = usc_case_room(c, c->n, 1);
    if (from == NULL || to == NULL || marked == NULL || c->work.failed) return USC_OK;
    for (int64_t i = 0; i < c->n; i++) {
        a->low[i] = from[i];
        a->high[i] = to[i];
        a->odd[i] = (uint8_t)marked[i];
    }
    return weigh(c);
}

static usc_status take_step(usc_case *c, usc_error *err)
{
    const int next = c->want.k + 1;
    if (usc_case_given(c, USC_GIVEN_SUMS)) return take_sums(c, err);
    if (!usc_case_given(c, USC_GIVEN_AS_ASKED) || c->given.a == NULL ||
        !usc_case_fits(c->given.a, &c->truth))
        return leave(c);            /* all of them, or nothing is known */
    if (!add_run(c)) return USC_OK; /* the driver tells */
    return next < RUNS ? usc_case_ask(c, USC_WANT_OWN_STEP, next, take_step)
                       : all_runs(c);
}

/* ---- in turn ---- */

usc_status usc_case_take_apart(usc_case *c, usc_error *err)
{
    struct usc_case_apart *a = &c->apart;
    (void)err;
    if (a->weighing) {
        a->weighing = false;
        if (c->f.verdict != USC_VERDICT_PASS) return leave(c);
        usc_case_excuse(c, USC_EXCUSE_OWN_STEPS, a->n_free);
        c->reading.note = NOTE;
        return usc_case_pass(c, USC_STAGE_PUT_AWAY);
    }
    usc_kept *const kept = c->kept;
    *a = (struct usc_case_apart){.tried = true, .found = c->f};
    c->device = c->reading.device;
    usc_case_forget(c);
    c->kept = kept;
    c->truth = c->reading.truth;
    c->yardstick = c->reading.yardstick;
    return usc_case_ask(c, USC_WANT_OWN_STEP, 0, take_step);
}
