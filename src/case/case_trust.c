// SPDX-License-Identifier: Apache-2.0
// Whether float32 and float64 compute one function: what lies between them is else no
// measure of what float32 loses. Where they lie far apart (usc_judge_apart), moved inputs
// and other roundings may explain it. Then what float32 loses in a run. Neighbours:
// case_state.h.
#include "case/case_state.h"
#include "case/case_values.h"

#include <math.h>

#define ROUNDING 0x1p-24  /* of float32 */
#define MOST_NOISE 256    /* times the usual loss, and it is not believed */
#define OF_RESULT 0x1p-12 /* so much of a result always is */

static usc_case_stage take_replay, take_rounded, take_overflows;

static usc_status found(usc_case *c, bool another)
{
    c->trust.known = another ? ANOTHER_FUNCTION : ONE_FUNCTION;
    return usc_case_go(c, c->trust.then);
}

static bool is_real(const usc_tensor *t)
{
    return t->dtype == USC_F64 || t->dtype == USC_F32;
}

/* Takes away what lies as far from `was` in `moved`; *far: whether too much is left. */
static usc_status explain(usc_case *c, const usc_tensor *moved, const usc_tensor *was,
                          bool *far, usc_error *err)
{
    if (!*far || moved == NULL || !usc_case_fits(moved, &c->truth)) return USC_OK;
    return usc_judge_explain(&c->truth, &c->yardstick, moved, was, c->trust.far, far,
                             err);
}

static usc_status take_replay(usc_case *c, usc_error *err)
{
    const int next = c->want.k + 1;
    const bool given = usc_case_given(c, USC_GIVEN_AS_ASKED);
    bool far = true;
    if (given && c->given.a == NULL) return found(c, c->given.number != 0);
    usc_status st = USC_OK;
    if (given) st = explain(c, c->given.a, &c->truth, &far, err);
    if (given && st == USC_OK) st = explain(c, c->given.b, &c->yardstick, &far, err);
    if (st != USC_OK || !far) return st == USC_OK ? found(c, false) : st;
    return next < USC_CASE_REPLAYS
               ? usc_case_ask(c, USC_WANT_FUNCTIONS, next, take_replay)
               : usc_case_ask(c, USC_WANT_ROUNDED, 0, take_rounded);
}

static usc_status take_rounded(usc_case *c, usc_error *err)
{
    bool far = true;
    if (!usc_case_given(c, USC_GIVEN_AS_ASKED) || c->given.a == NULL)
        return usc_case_ask(c, USC_WANT_OVERFLOWS, 0, take_overflows);
    const usc_status st = explain(c, c->given.a, &c->yardstick, &far, err);
    if (st != USC_OK || !far) return st == USC_OK ? found(c, false) : st;
    return usc_case_ask(c, USC_WANT_ROUNDED, c->want.k + 1, take_rounded);
}

int64_t usc_case_underflows(usc_case *c, const uint8_t *among, int64_t *others)
{
    int64_t n = 0;
    *others = 0;
    if (!usc_case_load(c) || c->y == NULL) return 0;
    for (int64_t i = 0; i < c->n; i++) {
        if (among != NULL && !among[i]) continue;
        const bool lost = fabs(c->y[i]) < 0x1p-126 && c->y[i] != c->r[i];
        n += lost;
        *others += !lost;
    }
    return n;
}

/* Where float32 fails, an excuse looks at the elements; what underflows inside of it is
 * no other function either. */
static usc_status take_overflows(usc_case *c, usc_error *err)
{
    int64_t others;
    (void)err;
    if (c->given.number != 0) return found(c, false);
    const int64_t n = usc_case_underflows(c, c->trust.far, &others);
    return found(c, n == 0 || others > 0);
}

usc_status usc_case_trust(usc_case *c, usc_case_stage *then, usc_error *err)
{
    bool far = false;
    c->trust.then = then;
    if (c->trust.known != UNKNOWN) return usc_case_go(c, then);
    if (c->o.two_functions) return found(c, true);
    if (c->o.never_rounds || !usc_case_fits(&c->yardstick, &c->truth) ||
        !is_real(&c->yardstick))
        return found(c, false);
    c->trust.far = usc_case_room(c, c->n, 1);
    if (c->trust.far == NULL) return USC_OK; /* the driver tells */
    const usc_status st =
        usc_judge_apart(&c->truth, &c->yardstick, c->trust.far, &far, err);
    if (st != USC_OK || !far) return st == USC_OK ? found(c, false) : st;
    return usc_case_ask(c, USC_WANT_FUNCTIONS, 0, take_replay);
}

/* ---- what float32 loses ---- */

/* Of steps that nobody knows to be the call's own a loss out of all proportion is not
 * believed. */
static bool is_believed(const usc_case *c, const double *lost)
{
    if (((unsigned)c->given.number & USC_NOISE_OWN_STEPS) != 0) return true;
    const double usual =
        c->y != NULL ? MOST_NOISE * usc_values_size(c->y, c->r, c->n) : 0;
    return usc_values_size(lost, NULL, c->n) <=
           fmax(usual, OF_RESULT * usc_values_size(c->r, NULL, c->n));
}

/* One rounding of the largest element: what a function loses by missing its limit (tanh
 * of 100 is not quite 1). */
static double most_rough(const usc_case *c)
{
    double largest = 0;
    for (int64_t i = 0; i < c->n; i++)
        if (isfinite(c->r[i])) largest = fmax(largest, fabs(c->r[i]));
    return ROUNDING * largest;
}

bool usc_case_find_loss(usc_case *c, double *out)
{
    const bool noise = c->look.losses == USC_WANT_NOISE;
    const bool rough = noise && ((unsigned)c->given.number & USC_NOISE_ROUGH) != 0;
    const usc_tensor *low = noise ? c->given.a : c->given.b;
    if (low == NULL || !usc_case_fits(low, &c->truth)) return false;
    const double *run = usc_case_wide(c, low);
    const double *wide = noise ? c->r : usc_case_wide(c, c->given.a);
    if (run == NULL || wide == NULL) return false;
    for (int64_t i = 0; i < c->n; i++) {
        out[i] = run[i] - wide[i];
        if (noise || c->want.k > 0) out[i] = fabs(out[i]);
        /* No more than the same share of the result where the result has grown. */
        const double share = fabs(c->r[i]) / fabs(wide[i]);
        if (!noise && c->want.k > 0 && !(share >= 1)) out[i] *= share;
    }
    if (noise && !is_believed(c, out)) return false;
    const double most = rough ? most_rough(c) : 0;
    for (int64_t i = 0; i < c->n && rough; i++)
        if (out[i] > most) out[i] = most;
    return true;
}
