// SPDX-License-Identifier: Apache-2.0
// A case that keeps: asks all that may be asked of any output, and keeps what the answers
// come to, for whoever judges later without the operator. The stages of a judged output
// are gone through wherever they do not look at it. Neighbours: case_state.h.
#include "case/case_kept.h"
#include "case/case_state.h"

#include <math.h>
#include <string.h>

#define PLAIN 0x1p60 /* S above it may tell of an overflow */

static usc_case_stage take_native, take_slope, take_products, ask_trust, take_functions;
static usc_case_stage take_replay, take_fan_in, take_flushed, take_loss, take_whole;

static bool given_one(const usc_case *c)
{
    return usc_case_given(c, USC_GIVEN_AS_ASKED) && c->given.a != NULL;
}

/* ---- S and N ---- */

/* Whether S or N is anywhere above |R|: else the scale of an error is |R| alone. */
static bool matters(const usc_case *c, const double *x)
{
    for (int64_t i = 0; i < c->n; i++)
        if (isfinite(c->r[i]) && (!(x[i] <= fabs(c->r[i])) || x[i] > PLAIN)) return true;
    return false;
}

static bool any_at_all(const usc_case *c, const double *x)
{
    for (int64_t i = 0; i < c->n; i++)
        if (x[i] != 0) return true;
    return false;
}

/* S and N as the judge has them by now. N counts wherever it is any, of an output of
 * which float32 gives the very truth. */
static usc_status put_sums(usc_case *c, const usc_tensor **s_to, const usc_tensor **n_to,
                           usc_error *err)
{
    if (c->wide == NULL) c->wide = usc_case_room(c, c->n, sizeof *c->wide);
    if (c->low == NULL) c->low = usc_case_room(c, c->n, sizeof *c->low);
    double *s = c->wide, *n = c->low;
    if (s == NULL || n == NULL) return USC_OK; /* the driver tells */
    const usc_status st = usc_judge_sums(c->look.judge, s, n, err);
    if (st != USC_OK) return st;
    for (int64_t i = 0; i < c->n; i++)
        if (!isfinite(c->r[i])) s[i] = n[i] = 0;
    const bool same = c->kept->of.yardstick == NULL;
    const bool shows = s_to != NULL && matters(c, s);
    c->s_matters |= shows;
    if (s_to != NULL && (shows || s_to != &c->kept->of.slope))
        usc_case_keep_sum(c, s_to, s);
    c->n_matters |= same ? any_at_all(c, n) : matters(c, n);
    if (n_to != NULL) usc_case_keep_sum(c, n_to, n);
    return USC_OK;
}

/* S, and N, are told of all replays and losses or of none: they are weighed together. */
static void drop_sums(usc_case *c)
{
    struct usc_kept_tensors *of = &c->kept->of;
    if (!c->s_matters) of->s1 = of->s2 = of->s4 = NULL;
    if (!c->n_matters) of->n1 = of->n2 = of->n4 = of->n_far = of->n_noise = NULL;
}

/* ---- floats: in the order of the looks ---- */

static usc_status ask_replay(usc_case *c, int k)
{
    return usc_case_ask(c, USC_WANT_REPLAY, k, take_replay);
}

static usc_status after_native(usc_case *c)
{
    return c->o.linear ? usc_case_ask(c, USC_WANT_SLOPE, 0, take_slope)
                       : usc_case_go(c, ask_trust);
}

usc_status usc_case_keep_float(usc_case *c, usc_error *err)
{
    (void)err;
    struct usc_kept_tensors *of = &c->kept->of;
    c->look = (usc_look){.device = c->device, .judge = c->look.judge};
    if (!usc_case_load(c)) return USC_OK; /* the driver tells */
    bool same = c->y != NULL;
    for (int64_t i = 0; i < c->n && same; i++)
        same = c->r[i] == c->y[i] || (isnan(c->r[i]) && isnan(c->y[i]));
    if (same) usc_case_keep_sum(c, &of->reference, c->r); /* whose zeros have its signs */
    else usc_case_keep_tensor(c, &of->reference, &c->truth);
    if (!same && c->y != NULL) usc_case_keep_tensor(c, &of->yardstick, &c->yardstick);
    if (usc_dtype_info_of(c->device.dtype)->size >= sizeof(float)) return after_native(c);
    return usc_case_ask(c, USC_WANT_NATIVE, 0, take_native);
}

static usc_status take_native(usc_case *c, usc_error *err)
{
    (void)err;
    if (given_one(c) && c->given.a->dtype == c->device.dtype)
        usc_case_keep_tensor(c, &c->kept->of.native, c->given.a);
    return after_native(c);
}

static usc_status take_slope(usc_case *c, usc_error *err)
{
    if (!given_one(c) || !usc_case_fits(c->given.a, &c->truth))
        return usc_case_go(c, ask_trust);
    usc_status st = usc_case_renew_judge(c, err);
    if (st == USC_OK) st = usc_judge_replay(c->look.judge, c->given.a, c->given.a, err);
    if (st == USC_OK) st = put_sums(c, &c->kept->of.slope, NULL, err);
    c->look.fresh = false; /* the judge is used up */
    return st == USC_OK ? usc_case_ask(c, USC_WANT_PRODUCTS, 0, take_products) : st;
}

static usc_status take_products(usc_case *c, usc_error *err)
{
    (void)err;
    c->kept->products = c->given.number >= 1 ? c->given.number : 1;
    return usc_case_go(c, ask_trust);
}

static usc_status ask_trust(usc_case *c, usc_error *err)
{
    return usc_case_trust(c, take_functions, err);
}

static usc_status take_functions(usc_case *c, usc_error *err)
{
    (void)err;
    c->kept->functions = c->trust.known == ANOTHER_FUNCTION;
    c->s_matters = c->n_matters = false; /* that of the slope is another */
    return ask_replay(c, 0);
}

static usc_status take_replay(usc_case *c, usc_error *err)
{
    struct usc_kept_tensors *of = &c->kept->of;
    usc_status st = usc_case_feed_replay(c, err);
    const int n = c->kept->replays = c->look.fed;
    if (st == USC_OK && n == 1) st = put_sums(c, &of->s1, &of->n1, err);
    if (st == USC_OK && n == 2) st = put_sums(c, &of->s2, &of->n2, err);
    if (st != USC_OK || n < USC_CASE_REPLAYS) return st == USC_OK ? ask_replay(c, n) : st;
    st = put_sums(c, &of->s4, &of->n4, err);
    return st == USC_OK ? usc_case_ask(c, USC_WANT_FAN_IN, 0, take_fan_in) : st;
}

static usc_status take_fan_in(usc_case *c, usc_error *err)
{
    (void)err;
    c->kept->fan_in = c->given.number;
    c->kept->natural = c->given.size;
    return usc_case_ask(c, USC_WANT_FLUSHED, 0, take_flushed);
}

static usc_status ask_whole(usc_case *c)
{
    drop_sums(c);
    usc_judge_close(c->look.judge);
    c->look.judge = NULL;
    return usc_case_ask(c, USC_WANT_WHOLE, 0, take_whole);
}

static usc_status take_flushed(usc_case *c, usc_error *err)
{
    (void)err;
    struct usc_kept_tensors *of = &c->kept->of;
    const usc_tensor **const to[] = {&of->flushed1, &of->flushed2, &of->flushed3};
    const int n = sizeof to / sizeof to[0], k = c->want.k;
    if (given_one(c)) usc_case_keep_tensor(c, to[k], c->given.a);
    if (given_one(c) && k + 1 < n)
        return usc_case_ask(c, USC_WANT_FLUSHED, k + 1, take_flushed);
    if (c->o.never_rounds) return ask_whole(c);
    c->look.losses = USC_WANT_LOSS;
    return usc_case_ask(c, USC_WANT_LOSS, 0, take_loss);
}

static usc_status take_loss(usc_case *c, usc_error *err)
{
    struct usc_kept_tensors *of = &c->kept->of;
    const bool noise = c->look.losses == USC_WANT_NOISE;
    usc_status st = USC_OK;
    if (given_one(c)) {
        bool fed;
        st = usc_case_feed_loss(c, &fed, err);
        *(noise ? &c->kept->noise : &c->kept->far) += fed;
        return st == USC_OK ? usc_case_ask(c, c->look.losses, c->want.k + 1, take_loss)
                            : st;
    }
    st = put_sums(c, NULL, noise ? &of->n_noise : &of->n_far, err);
    if (st != USC_OK) return st;
    if (noise) return ask_whole(c);
    c->look.losses = USC_WANT_NOISE;
    return usc_case_ask(c, USC_WANT_NOISE, 0, take_loss);
}

static usc_status take_whole(usc_case *c, usc_error *err)
{
    (void)err;
    c->kept->whole = c->given.number != 0;
    return usc_case_pass(c,
                         c->o.never_rounds ? USC_STAGE_KEEP_EXACT : USC_STAGE_KEEP_HULL);
}
