// SPDX-License-Identifier: Apache-2.0
// Ties. A result that lies halfway between two numbers of the output's dtype counts as
// either, since float32 may have come from the one side or the other. Where no step
// rounds (a cast, a sum or product of two 16-bit numbers) it came from none: IEEE 754
// decides for the even one. Nor is there another side of a step then, as of a cast within
// a function. Neighbours: case_state.h.
#include "case/case_kept.h"
#include "case/case_state.h"
#include "kernels/walk_load.h"

#include <math.h>

static usc_case_stage take_exact, keep_exact;

/* Whether r lies on the border of the reals that round to d, and rounds to the other:
 * `even`, as the dtype holds it. */
static bool is_tied(const usc_case *c, double d, double r, double even)
{
    return isfinite(d) && isfinite(r) && !isnan(even) && d != even &&
           usc_case_distance(c, d, r) == 0 &&
           (isinf(even) || usc_case_distance(c, even, r) == 0);
}

/* Whether d is another number of the dtype than an exact result. */
static bool is_beside(const usc_case *c, double d, double r)
{
    return isfinite(d) && isfinite(r) && usc_case_distance(c, d, r) > 0;
}

/* What an exact result rounds to; NaN where float32 on the CPU disagrees, since float64
 * has rounded it already. */
static double even_of(const usc_case *c, double r, double y)
{
    const double even = usc_case_rounded(c, r);
    const bool whole = c->device.dtype == USC_F32;
    return whole && y != r && y != even ? (double)NAN : even;
}

static bool is_rounded(const usc_case *c)
{
    return usc_case_is_float(&c->device) && usc_case_is_float(&c->truth) &&
           usc_dtype_info_of(c->device.dtype)->sig_bits <= 24 &&
           usc_case_fits(&c->truth, &c->yardstick);
}

/* Whether any element took the other side. */
static bool any_tied(const usc_case *c)
{
    usc_walk_room rooms[3];
    double values[3][USC_JUDGE_BLOCK];
    const usc_walk d_walk = usc_walk_over(&c->device), r_walk = usc_walk_over(&c->truth);
    const usc_walk y_walk = usc_walk_over(&c->yardstick);
    for (int64_t at = 0; at < c->n; at += USC_JUDGE_BLOCK) {
        const size_t count =
            (size_t)(c->n - at < USC_JUDGE_BLOCK ? c->n - at : USC_JUDGE_BLOCK);
        const double *d = usc_walk_load(&d_walk, at, count, &rooms[0], values[0]);
        const double *r = usc_walk_load(&r_walk, at, count, &rooms[1], values[1]);
        const double *y = usc_walk_load(&y_walk, at, count, &rooms[2], values[2]);
        for (size_t i = 0; i < count; i++)
            if (d[i] != r[i] && is_tied(c, d[i], r[i], even_of(c, r[i], y[i])))
                return true;
    }
    return false;
}

bool usc_case_may_tie(usc_case *c)
{
    if (c->ties_tried || c->kept != NULL || c->narrow.weighing || c->o.bare ||
        c->f.verdict != USC_VERDICT_PASS || !is_rounded(c))
        return false;
    c->ties_tried = true;
    return c->f.excused[USC_EXCUSE_STEP] > 0 || any_tied(c);
}

static const double *exact_marks(usc_case *c)
{
    return usc_case_given(c, USC_GIVEN_AS_ASKED) && c->given.a != NULL &&
                   usc_case_fits(c->given.a, &c->truth)
               ? usc_case_wide(c, c->given.a)
               : NULL;
}

static usc_status take_exact(usc_case *c, usc_error *err)
{
    (void)err;
    const double *exact = exact_marks(c);
    c->d = NULL;
    c->open = usc_case_room(c, c->n, 1);
    if (exact == NULL || c->open == NULL || !usc_case_load(c) || c->y == NULL)
        return usc_case_pass(c, USC_STAGE_END);
    const bool whole = c->given.number != 0;
    int64_t n_tied = 0, n_beside = 0;
    for (int64_t i = 0; i < c->n; i++) {
        const bool tied = is_tied(c, c->d[i], c->r[i], even_of(c, c->r[i], c->y[i]));
        const bool beside = whole && !tied && is_beside(c, c->d[i], c->r[i]);
        c->open[i] = exact[i] != 0 && (tied || beside);
        n_tied += exact[i] != 0 && tied;
        n_beside += exact[i] != 0 && beside;
    }
    if (n_tied + n_beside == 0) return usc_case_pass(c, USC_STAGE_END);
    usc_case_differ(c, &c->device, &c->truth);
    if (n_tied > 0)
        usc_case_note(c, "exact results halfway between two numbers of the dtype go to "
                         "the even one");
    if (n_beside > 0)
        usc_case_note(c, "no step before the last rounds: there is one right value");
    return usc_case_pass(c, USC_STAGE_END);
}

usc_status usc_case_ties(usc_case *c, usc_error *err)
{
    (void)err;
    return usc_case_ask(c, USC_WANT_EXACT, 0, take_exact);
}

/* ---- of an output that is kept ---- */

static usc_status keep_exact(usc_case *c, usc_error *err)
{
    (void)err;
    const double *exact = exact_marks(c);
    c->marks = usc_case_room(c, c->n, 1);
    if (exact == NULL || c->marks == NULL || !usc_case_load(c) || c->y == NULL)
        return usc_case_pass(c, USC_STAGE_KINDS);
    bool any = false;
    for (int64_t i = 0; i < c->n; i++) {
        const double r = c->r[i], d = even_of(c, r, c->y[i]);
        c->marks[i] = exact[i] != 0 && isfinite(d) && d != r &&
                      usc_case_distance(c, d, r) == 0 &&
                      usc_case_distance(c, d, r + copysign(fabs(r) * 0x1p-50, r - d)) > 0;
        any |= c->marks[i] != 0;
    }
    if (any) usc_case_keep_ties(c);
    return usc_case_pass(c, USC_STAGE_KINDS);
}

usc_status usc_case_keep_exact(usc_case *c, usc_error *err)
{
    (void)err;
    if (!is_rounded(c) || c->n == 0) return usc_case_pass(c, USC_STAGE_KINDS);
    return usc_case_ask(c, USC_WANT_EXACT, 0, keep_exact);
}

/* ---- whole numbers ---- */

/* Chance leaves out a few that are near a tie and not upon it. */
enum { FEWEST_TIES = 3, OF_ELEMENTS = 512 };

static usc_status take_settled(usc_case *c, usc_error *err)
{
    (void)err;
    const double *exact = exact_marks(c);
    const double *got = usc_case_wide(c, &c->device),
                 *want = usc_case_wide(c, &c->native);
    if (exact == NULL || got == NULL || want == NULL)
        return usc_case_pass(c, USC_STAGE_END);
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++) {
        c->open[i] = exact[i] != 0 && got[i] != want[i];
        n += c->open[i];
    }
    if (n >= FEWEST_TIES && n * OF_ELEMENTS >= c->n)
        usc_case_differ(c, &c->device, &c->native);
    return usc_case_pass(c, USC_STAGE_END);
}

usc_status usc_case_settled(usc_case *c, usc_error *err)
{
    (void)err;
    return usc_case_ask(c, USC_WANT_EXACT, 0, take_settled);
}

static usc_status keep_settled(usc_case *c, usc_error *err)
{
    (void)err;
    const double *exact = exact_marks(c);
    c->marks = usc_case_room(c, c->n, 1);
    for (int64_t i = 0; i < c->n && exact != NULL && c->marks != NULL; i++)
        c->marks[i] = exact[i] != 0;
    if (exact != NULL && c->marks != NULL && c->n > 0) usc_case_keep_ties(c);
    return usc_case_pass(c, USC_STAGE_FREE);
}

usc_status usc_case_keep_settled(usc_case *c, usc_error *err)
{
    (void)err;
    return usc_case_ask(c, USC_WANT_EXACT, 0, keep_settled);
}
