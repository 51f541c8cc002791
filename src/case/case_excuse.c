// SPDX-License-Identifier: Apache-2.0
// A float output from its first look on, and the elements at which float32 itself fails,
// so that a device may as well. Neighbours: case_state.h; what lies near a step:
// case_steps.c; what is not promised: case_free.c.
#include "case/case_kept.h"
#include "case/case_state.h"

#include <math.h>

#define NO_BIT 8        /* an error of 1/8 and more leaves none right */
#define SOME 0x1p-4     /* of a result: a number that is not it at all is nobody's */
#define MOST_SHARED 0.5 /* of the elements: more, and what is left says little */

static usc_case_stage find_lost, keep_overflows, take_infinite;

static usc_status ask_overflows(usc_case *c);
static usc_status lose(usc_case *c, usc_error *err);

static bool same_number(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* ---- the first look ---- */

static usc_status after_first(usc_case *c, usc_error *err)
{
    const bool pass = c->f.verdict == USC_VERDICT_PASS;
    if (c->sight && !pass && usc_case_is_far_worse(c)) { /* all of it, then */
        c->sight = false;
        return usc_case_pass(c, USC_STAGE_FLOAT);
    }
    if (c->sight) {
        c->stage = NULL;
        return usc_case_keep(c, err);
    }
    if (c->o.bare) return usc_case_pass(c, USC_STAGE_END);
    return usc_case_pass(c, pass ? USC_STAGE_NOT_EXACT : USC_STAGE_EXCUSES);
}

usc_status usc_case_float(usc_case *c, usc_error *err)
{
    return usc_case_look(c, &c->device, after_first, err);
}

/* ---- NaN and Inf that hang on the formula ---- */

/* The kind of a number that is none: 1 NaN, 2 Inf, 4 -Inf. */
enum { INFINITIES = 2 | 4, KINDS_OF_NUMBERS = 8 };

static unsigned kind_of(double v)
{
    return isnan(v) ? 1 : v > 0 ? 2 : 4;
}

static bool is_odd(const usc_case *c, int64_t i)
{
    return !isfinite(c->r[i]) && !isfinite(c->d[i]) &&
           !same_number(usc_case_rounded(c, c->r[i]), c->d[i]);
}

static usc_status after_kinds(usc_case *c, usc_error *err)
{
    (void)err;
    return usc_case_go(c, find_lost);
}

static usc_status spare_kinds(usc_case *c, usc_error *err)
{
    int64_t n = 0;
    if (c->kept != NULL) return usc_case_ask(c, USC_WANT_INFINITE, 0, take_infinite);
    for (int64_t i = 0; i < c->n; i++) {
        c->marks[i] = is_odd(c, i) && (c->marks[i] & kind_of(c->d[i])) != 0;
        n += c->marks[i];
    }
    if (n == 0) return usc_case_go(c, find_lost);
    if (!usc_case_put_right(c, &c->device)) return USC_OK; /* the driver tells */
    c->d = usc_case_wide(c, &c->spared);
    return usc_case_look(c, &c->spared, after_kinds, err);
}

/* Which kinds may stand where another computation gives `other`: where the truth is NaN,
 * the sign of its infinity is a matter of luck too. */
static unsigned kinds_by(const usc_case *c, int64_t i, double other)
{
    if (isfinite(c->r[i]) || isfinite(other)) return 0;
    return isnan(c->r[i]) && isinf(other) ? INFINITIES : kind_of(other);
}

static usc_status take_kinds(usc_case *c, usc_error *err)
{
    const int k = c->want.k;
    const bool sums = usc_case_given(c, USC_GIVEN_SUMS);
    if (c->given.a == NULL || !usc_case_fits(c->given.a, &c->truth) ||
        usc_case_given(c, USC_GIVEN_NONE))
        return spare_kinds(c, err);
    const double *other = usc_case_wide(c, c->given.a);
    if (other == NULL) return USC_OK;
    for (int64_t i = 0; i < c->n; i++)
        c->marks[i] |= (uint8_t)(sums ? (unsigned)other[i] : kinds_by(c, i, other[i]));
    return sums ? spare_kinds(c, err)
                : usc_case_ask(c, USC_WANT_ROUNDED, k + 1, take_kinds);
}

usc_status usc_case_excuses(usc_case *c, usc_error *err)
{
    (void)err;
    if (!usc_case_load(c)) return USC_OK; /* the driver tells */
    if (c->f.verdict != USC_VERDICT_NONFINITE) return usc_case_go(c, find_lost);
    bool any = false;
    for (int64_t i = 0; i < c->n && !any; i++)
        any = is_odd(c, i);
    c->marks = usc_case_room(c, c->n, 1);
    if (!any || c->marks == NULL) return usc_case_go(c, find_lost);
    return usc_case_ask(c, USC_WANT_ROUNDED, 0, take_kinds);
}

usc_status usc_case_kinds(usc_case *c, usc_error *err)
{
    (void)err;
    bool any = false;
    for (int64_t i = 0; i < c->n && !any; i++)
        any = !isfinite(c->r[i]);
    c->marks = usc_case_room(c, c->n, 1);
    if (c->marks == NULL) return USC_OK; /* the driver tells */
    return any ? usc_case_ask(c, USC_WANT_ROUNDED, 0, take_kinds)
               : usc_case_ask(c, USC_WANT_INFINITE, 0, take_infinite);
}

/* ---- sums that some order makes infinite ---- */

/* Whether the device has no number where the dtype holds the truth. */
static bool is_lost_number(const usc_case *c, int64_t i)
{
    return !isfinite(c->d[i]) && isfinite(usc_case_rounded(c, c->r[i]));
}

/* What an order of adding gives there; two that run away to both sides meet in NaN. */
static bool may_be_infinite(const usc_case *c, int64_t i)
{
    const unsigned may = c->infinite != NULL ? c->infinite[i] : 0;
    return (may & kind_of(c->d[i])) != 0 ||
           (isnan(c->d[i]) && (may & INFINITIES) == INFINITIES);
}

static void note_infinite(usc_case *c, const double *run, bool sums)
{
    for (int64_t i = 0; i < c->n; i++) {
        const double v = sums ? run[i] : usc_case_rounded(c, run[i]);
        if (sums)
            c->infinite[i] |= (uint8_t)((unsigned)v / KINDS_OF_NUMBERS);
        else if (!isfinite(v) && isfinite(c->r[i]))
            c->infinite[i] |= (uint8_t)kind_of(v);
    }
}

static usc_status after_infinite(usc_case *c, usc_error *err)
{
    if (c->kept == NULL) return lose(c, err);
    for (int64_t i = 0; i < c->n; i++)
        c->marks[i] |= (uint8_t)(c->infinite[i] * KINDS_OF_NUMBERS);
    usc_case_keep_kinds(c);
    return ask_overflows(c);
}

static usc_status take_infinite(usc_case *c, usc_error *err)
{
    const bool sums = usc_case_given(c, USC_GIVEN_SUMS);
    if (c->infinite == NULL) c->infinite = usc_case_room(c, c->n, 1);
    if (c->infinite == NULL) return USC_OK; /* the driver tells */
    if ((!sums && !usc_case_given(c, USC_GIVEN_AS_ASKED)) || c->given.a == NULL ||
        !usc_case_fits(c->given.a, &c->truth))
        return after_infinite(c, err);
    const double *run = usc_case_wide(c, c->given.a);
    if (run == NULL) return USC_OK;
    note_infinite(c, run, sums);
    return sums ? after_infinite(c, err)
                : usc_case_ask(c, USC_WANT_INFINITE, c->want.k + 1, take_infinite);
}

/* ---- where float32 fails ---- */

/* Whether float32 has no right bit of a number. */
static bool has_no_bit(const usc_case *c, int64_t i)
{
    return isfinite(c->r[i]) && !(fabs(c->y[i] - c->r[i]) < fabs(c->r[i]) / NO_BIT);
}

/* Of an output that is kept. */
static usc_status ask_overflows(usc_case *c)
{
    bool any = false;
    for (int64_t i = 0; i < c->n && c->y != NULL && !any; i++)
        any = has_no_bit(c, i);
    return any ? usc_case_ask(c, USC_WANT_OVERFLOWS, 0, keep_overflows)
               : usc_case_pass(c, USC_STAGE_STEPS);
}

static usc_status keep_overflows(usc_case *c, usc_error *err)
{
    (void)err;
    c->kept->overflows = c->given.number != 0;
    return usc_case_pass(c, USC_STAGE_STEPS);
}

/* Goes on to what hangs on steps, with the device's own output. */
static usc_status leave(usc_case *c)
{
    c->d = NULL;
    const bool over =
        c->f.verdict == USC_VERDICT_PASS || c->f.verdict == USC_VERDICT_UNJUDGED;
    return usc_case_pass(c, over ? USC_STAGE_END : USC_STAGE_STEPS);
}

static usc_status after_lost(usc_case *c, usc_error *err)
{
    (void)err;
    const bool same = c->before.verdict == USC_VERDICT_UNJUDGED;
    const usc_finding others = c->f;
    if (others.verdict != USC_VERDICT_PASS &&
        (same || others.verdict != USC_VERDICT_UNJUDGED)) {
        c->f = c->before;
        return leave(c);
    }
    const usc_count_text n_lost = usc_count(c->n_marks), n = usc_count(c->n);
    if (same) {
        usc_case_note(c,
                      "float32 itself overflows at %s of %s elements, as the device does",
                      n_lost.text, n.text);
        return leave(c);
    }
    usc_case_conclude(c, USC_VERDICT_UNJUDGED,
                      "float32 itself overflows at %s of %s elements", n_lost.text,
                      n.text);
    return leave(c);
}

static usc_status spare_lost(usc_case *c, usc_error *err)
{
    c->n_marks = 0;
    for (int64_t i = 0; i < c->n; i++)
        c->n_marks += c->marks[i] != 0;
    const bool same = c->f.verdict == USC_VERDICT_UNJUDGED;
    if (c->n_marks == 0 || (same && (double)c->n_marks > MOST_SHARED * (double)c->n))
        return leave(c);
    /* NaN and Inf that were put right before stay so. */
    const usc_tensor from = c->spared.data != NULL ? c->spared : c->device;
    if (!usc_case_put_right(c, &from)) return USC_OK; /* the driver tells */
    c->before = c->f;
    return usc_case_look(c, &c->spared, after_lost, err);
}

/* Where float32 gives no number though there is one, and the device just the same. */
static void mark_shared(usc_case *c)
{
    for (int64_t i = 0; i < c->n; i++) {
        const double near = usc_case_rounded(c, c->y[i]);
        c->marks[i] = same_number(c->d[i], near) && !isfinite(near) &&
                      isfinite(usc_case_rounded(c, c->r[i]));
    }
}

/* Where float32 gives no number though the output's dtype has one. Whether any element is
 * blind: it is no number, and float32 has no right bit there. */
static bool mark_lost(usc_case *c, bool blind_too)
{
    bool any_blind = false;
    for (int64_t i = 0; i < c->n; i++) {
        const double d = c->d[i], r = c->r[i], y = c->y[i];
        const double want = usc_case_rounded(c, r);
        const bool opposite = isinf(d) && isinf(y) && d != y;
        const bool blind = !isfinite(d) && usc_case_rounded(c, y) != want &&
                           has_no_bit(c, i) && !opposite;
        any_blind |= blind;
        c->marks[i] = (isfinite(want) && !isfinite(y) && fabs(d - r) <= SOME * fabs(r)) ||
                      (is_lost_number(c, i) && may_be_infinite(c, i)) ||
                      (blind && blind_too);
    }
    return any_blind;
}

static usc_status know_overflow(usc_case *c, usc_error *err)
{
    (void)mark_lost(c, c->given.number != 0);
    return spare_lost(c, err);
}

static usc_status lose(usc_case *c, usc_error *err)
{
    if (mark_lost(c, false)) return usc_case_ask(c, USC_WANT_OVERFLOWS, 0, know_overflow);
    return spare_lost(c, err);
}

usc_status find_lost(usc_case *c, usc_error *err)
{
    if (c->f.verdict == USC_VERDICT_PASS) return usc_case_pass(c, USC_STAGE_END);
    if (!usc_case_load(c)) return USC_OK; /* the driver tells */
    if (c->y == NULL) return leave(c);
    c->marks = usc_case_room(c, c->n, 1);
    if (c->marks == NULL) return USC_OK;
    if (c->f.verdict == USC_VERDICT_UNJUDGED) {
        mark_shared(c);
        return spare_lost(c, err);
    }
    for (int64_t i = 0; i < c->n && c->f.verdict == USC_VERDICT_NONFINITE; i++)
        if (is_lost_number(c, i))
            return usc_case_ask(c, USC_WANT_INFINITE, 0, take_infinite);
    return lose(c, err);
}
