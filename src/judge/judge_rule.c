// SPDX-License-Identifier: Apache-2.0
// The decision: from what a pass counted to a verdict. Thresholds are the table below;
// docs/background/verdict.md says what they mean, docs/reference/metrics.md, 2 gives
// every formula.
#include "judge/judge_state.h"
#include "judge/slopes.h"

#include "base/float_env.h"
#include "base/number.h"
#include "base/words.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* T(F) = min(base + slope sqrt(F), few F^0.6, cap), in roundings of the working
 * precision; F is the fan-in, since errors of F roundings add up like a random walk.
 * `few` is the limit of an operator of one input: there is no order in which to round
 * otherwise. What sums of 64 to 65,536 terms lose is measured by `./run bench growth-c`,
 * whose table stands in docs/background/verdict.md: one accumulator loses most of all
 * orders, as sqrt(F) where terms do not vanish beneath the sum; what it loses where they
 * do is computed for the call at hand (USC_EXCUSE_ORDER_OF_ADDING), so no limit has room
 * for it. */
static const struct limit {
    const char *what;
    double base, slope, few, cap;
} limits[] = {
    /* one accumulator reaches 1.2 sqrt(F) of some hundred elements, of a million twice
     * that; other algorithms spoil single elements more (Winograd's beside an outlier:
     * 93 at 45 terms; a Fourier transform's where a sum has one term: 133); the cap means
     * that fewer than 14 bits never pass */
    {"worst element", 128, 3, 24, 1024},
    /* one accumulator: 0.16 sqrt(F) at 64 terms, 0.27 sqrt(F) at 65,536 */
    {"typical element", 6, 0.5, 6, 512},
    /* the 99th percentile; one accumulator: 0.9 sqrt(F) to 0.7 sqrt(F) */
    {"nearly every element", 16, 1.5, 10, 512},
    /* numbers beside a large offset lose 0.9 sqrt(F) in halves of a sum; beyond it bad
     * conditioning would hide the device's own errors */
    {"against float32 on the CPU", 24, 3, (double)INFINITY, (double)INFINITY},
    /* a wrong eps or n - 1 for n shifts all elements one way long before they are large;
     * half as steep as the typical element's, else it would never be the one to fail */
    {"one-sided", 8, 0.25, (double)INFINITY, (double)INFINITY},
};
enum { WORST, TYPICAL, NEARLY_ALL, RELATIVE, ONE_SIDED };

#define T_FAST 16.0 /* 95 of 100 good outputs stay below and need no appeal */
#define FEW_MISMATCHES USC_FEW_NUMBERS
#define FEW_ELEMENTS 16 /* too few to tell noise from a fault by its spread */
#define BITS_WRONG 4.5  /* no precision in use computes with fewer bits */
#define MAX_SPREAD 64.0 /* lower precision is noise: worst within this of the typical */
#define MIN_SHARE 0.1   /* ... and it hits at least this part of where it would show */
#define Z_ONE_SIDED 6.0
#define SHARE_ONE_SIDED 0.5
#define ILL_FEW 0.01     /* ill-conditioned elements up to this share are not looked at */
#define ILL_MOST 0.5     /* on more elements fewer than 4 bits show: nobody can judge */
#define FEW_SUBNORMALS 3 /* fewer may be zero by chance */

static double limit_of(const usc_judge *j, int which, double fan_in)
{
    const struct limit *l = &limits[which];
    /* too few for a median: none to choose, and what orders of adding lose beyond is
     * computed for the call at hand */
    const bool few = which == WORST && j->n < FEW_MISMATCHES;
    const double many = few ? USC_FEW_ROUNDINGS : l->base + l->slope * sqrt(fan_in);
    const double t = fmin(fmin(many, l->few * pow(fan_in, 0.6)), l->cap);
    return j->wide ? 2 * t : t; /* float64: the reference errs as much itself */
}

static double full_bits(const usc_judge *j)
{
    return j->wide ? 53 : 24;
}

/* Effective bits of a spectrum, and whether the output's dtype can show no more. */
static double bits_of(const usc_judge *j, double q99, int64_t m, double visible,
                      bool *bound)
{
    const double full = full_bits(j), bits = full - log2(fmax(1, q99));
    const double ceiling = fmax(visible >= 1 ? full : full + log2(visible), 0);
    *bound = m == 0 || bits >= ceiling;
    return fmax(fmin(bits, ceiling), 0);
}

/* Whether so many elements are ill-conditioned that they count. */
static bool many_ill(const usc_judge *j, const usc_tally *t)
{
    return (double)t->n_ill > ILL_FEW * (double)(j->n - t->n_undefined);
}

/* What an element that cancels to nothing is to be compared with: the size that the
 * output usually has, or that all of it has where it is one whole. */
static void set_typical(usc_judge *j, double natural, usc_view *view)
{
    view->typical = fmax(usc_judge_median_size(j), natural);
    view->typical = fmax(usc_judge_common_size(j, view), view->typical);
}

static void fill_spectrum(const usc_judge *j, const usc_view *view, const usc_tally *t,
                          double visible, usc_judgement *out)
{
    out->n = j->n;
    out->exact = view->exact;
    out->n_mismatch = t->n_mismatch;
    out->n_bad = t->n_nonfinite;
    out->n_free = t->n_free;
    out->n_finite = j->n - t->n_undefined;
    out->n_nan_inf = t->n_nan_inf;
    out->n_ill = many_ill(j, t) ? t->n_ill : 0;
    out->max = t->max;
    out->mid = usc_judge_quantile(t->scores, t->n_mismatch, t->max, 0.5);
    out->q99 = usc_judge_quantile(t->scores, t->n_mismatch, t->max, 0.99);
    out->rel = usc_judge_quantile(t->rels, t->n_mismatch, t->rel_max, 0.5);
    out->spread = t->n_mismatch > 0 ? t->max / fmax(out->mid, 1e-9) : 0;
    out->z = out->mean_sign = 0;
    if (t->n_signs > 0) {
        out->z = (double)t->sum_signs / sqrt((double)t->n_signs);
        out->mean_sign = (double)t->sum_signs / (double)t->n_signs;
    }
    out->t_max = view->t_max;
    out->i_worst = t->i_worst;
    out->i_bad = t->i_nonfinite;
    memcpy(out->histogram, t->scores, sizeof out->histogram);
    out->bits = bits_of(j, out->q99, t->n_mismatch, visible, &out->bound);
}

static void fill_yardstick(usc_judge *j, const usc_view *view, double visible,
                           usc_judgement *out)
{
    int64_t m = 0, scores[USC_N_SCORE_BINS] = {0};
    double max = 0;
    if (j->n > 0) usc_judge_yardstick(j, view, &m, &max, scores);
    const double q99 = usc_judge_quantile(scores, m, max, 0.99);
    out->yardstick_bits = bits_of(j, q99, m, visible, &out->yardstick_bound);
}

/* Pass, or unjudged where nothing could be judged. */
static void accept(const usc_judge *j, const usc_tally *t, usc_judgement *out)
{
    if (t->n_free > 0) {
        out->verdict = USC_VERDICT_UNJUDGED;
        (void)snprintf(out->reason, sizeof out->reason,
                       "float32 itself overflows at %lld of %lld elements",
                       (long long)t->n_free, (long long)j->n);
    } else if ((double)t->n_ill > ILL_MOST * (double)out->n_finite) {
        out->verdict = USC_VERDICT_UNJUDGED;
        (void)snprintf(out->reason, sizeof out->reason,
                       USC_SAID_ILL " %lld of %lld elements", (long long)t->n_ill,
                       (long long)j->n);
    } else if (out->n_finite == 0) {
        out->verdict = USC_VERDICT_PASS;
        out->bits = out->yardstick_bits = (double)NAN;
        out->bound = false;
        (void)snprintf(out->reason, sizeof out->reason, "%s",
                       j->n == 0 ? "no elements"
                                 : "nothing finite to judge: NaN and Inf stand where the "
                                   "truth has them");
    } else {
        out->verdict = USC_VERDICT_PASS;
        const char *right = j->wide
                                ? "every element is as good as the CPU's float64"
                                : "every element is the true value, correctly rounded";
        (void)usc_format(
            out->reason, sizeof out->reason,
            out->n_mismatch == 0 ? right : "worst element %.3g roundings from the truth",
            out->max);
    }
}

static void look(usc_judge *j, usc_judgement *out)
{
    usc_view view = {.exact = j->exact && !j->wide, .expect = 1};
    view.t_fast = view.exact ? 0 : T_FAST;
    view.t_max = view.t_fast;
    usc_tally tally;
    usc_judge_pass(j, &view, NULL, &tally);
    if (tally.max <= view.t_fast && many_ill(j, &tally)) {
        set_typical(j, 0, &view);
        usc_judge_pass(j, &view, NULL, &tally);
    }
    j->view = view;
    j->looked = true;
    fill_spectrum(j, &view, &tally, tally.expected, out);
    fill_yardstick(j, &view, tally.expected, out);
    if (j->n_replays == 0 && tally.n_mismatch > 0)
        out->bound = true; /* replays can only widen the scale of a score */
    out->fan_in = 1;
    out->t_mid = view.t_fast;
    out->n_bad = tally.n_bad;
    out->needs_appeal = tally.n_bad > 0 || tally.n_free > 0 || tally.max > view.t_fast ||
                        many_ill(j, &tally);
    if (out->needs_appeal)
        (void)snprintf(out->reason, sizeof out->reason, "not decided at the first look");
    else
        accept(j, &tally, out);
}

usc_status usc_judge_look(usc_judge *judge, usc_judgement *out, usc_error *err)
{
    assert(judge);
    assert(out);
    *out = (usc_judgement){.verdict = USC_VERDICT_UNJUDGED, .i_worst = -1, .i_bad = -1};
    if (err != NULL) *err = (usc_error){0};
    const usc_float_env env = usc_float_env_enter();
    look(judge, out);
    usc_float_env_leave(env);
    return USC_OK;
}

/* ---- appeal */

/* What the tests of the appeal said. */
typedef struct findings {
    bool worst, typical, nearly_all, relative, one_sided; /* failed */
} findings;

static findings test_limits(const usc_judge *j, const usc_tally *t,
                            const usc_judgement *out)
{
    const bool few = t->n_mismatch < FEW_MISMATCHES;
    const double z = fmax(Z_ONE_SIDED, SHARE_ONE_SIDED * sqrt((double)t->n_signs));
    findings f = {.worst = out->max > out->t_max};
    if (out->exact) return f;
    f.typical = !few && out->mid > out->t_mid;
    f.nearly_all = !few && out->q99 > limit_of(j, NEARLY_ALL, out->fan_in);
    f.relative = !few && out->rel > limit_of(j, RELATIVE, out->fan_in);
    f.one_sided = fabs(out->z) > z && out->mid > limit_of(j, ONE_SIDED, out->fan_in);
    return f;
}

static void say_nonfinite(usc_judge *j, usc_judgement *out)
{
    usc_judge_scratch *s = &j->scratch[0];
    const double d = *usc_walk_load(&j->d, out->i_bad, 1, &s->room, s->d);
    const double r = *usc_walk_load(&j->r, out->i_bad, 1, &s->room, s->r);
    out->verdict = USC_VERDICT_NONFINITE;
    (void)usc_format(out->reason, sizeof out->reason,
                     "%lld of %lld elements, the first at %lld: device %.6g, truth %.6g",
                     (long long)out->n_bad, (long long)j->n, (long long)out->i_bad, d, r);
}

/* Why it is not a pass, as one clause. */
static void say_failure(const findings *f, usc_judgement *out)
{
    const size_t room = sizeof out->reason;
    if (f->worst)
        (void)usc_format(out->reason, room,
                         "worst element off by %.3g roundings, at most %.4g allowed",
                         out->max, out->t_max);
    else if (f->typical)
        (void)usc_format(out->reason, room,
                         "typical element off by %.3g roundings, at most %.4g allowed",
                         out->mid, out->t_mid);
    else if (f->nearly_all)
        (void)usc_format(out->reason, room,
                         "1 in 100 elements off by more than %.3g roundings", out->q99);
    else if (f->one_sided)
        (void)usc_format(
            out->reason, room,
            "%.0f %% of the errors have the same sign, typically %.3g roundings",
            50 * (1 + fabs(out->mean_sign)), out->mid);
    else
        (void)usc_format(out->reason, room,
                         "typical error %.3g times what float32 on the CPU makes",
                         out->rel);
}

/* Noise everywhere is reduced precision; a few bad elements or too few bits is wrong. */
static void name_failure(usc_judge *j, const usc_view *view, const usc_tally *t,
                         const findings *f, usc_judgement *out)
{
    /* what was seen to be lost is not limited by what could be seen */
    out->bits = fmax(full_bits(j) - log2(fmax(1, out->q99)), 0);
    if (f->relative && !f->worst)
        out->bits = fmin(out->bits, full_bits(j) - log2(fmax(1, out->rel)));
    usc_view again = *view;
    usc_tally counted;
    again.expect = out->mid;
    again.only_expected = true;
    usc_judge_pass(j, &again, NULL, &counted);
    out->expected_share = counted.expected / (double)j->n;
    const bool noise = (double)t->n_mismatch >= fmax(2, MIN_SHARE * counted.expected) &&
                       out->spread <= MAX_SPREAD;
    const bool few = j->n < FEW_ELEMENTS;
    const bool whole = j->pairs && t->modulus_max <= out->t_max;
    /* Inputs are given exactly: however strongly a result reacts to them, arithmetic with
     * that many bits has to show in what float32 loses, or in the result itself. */
    const double own_bits = full_bits(j) - log2(fmax(1, out->rel));
    const bool enough = out->bits >= BITS_WRONG && own_bits >= BITS_WRONG;
    const bool reduced = (enough && (noise || few)) || t->n_over_ulp == 0 || whole;
    out->bound = false;
    out->verdict = reduced ? USC_VERDICT_REDUCED : USC_VERDICT_WRONG;
    say_failure(f, out);
}

static void say_flushed(usc_judgement *out, const usc_judge *j, int64_t n)
{
    out->verdict = USC_VERDICT_REDUCED;
    out->bits = usc_dtype_info_of(j->dtype)->sig_bits;
    out->bound = false;
    out->flushes = true;
    (void)snprintf(out->reason, sizeof out->reason,
                   "%lld value%s below the smallest normal number of %s became zero",
                   (long long)n, n == 1 ? "" : "s", usc_dtype_info_of(j->dtype)->name);
}

/* No element errs by more than an honest one might, but all of them look alike: whether
 * that is no chance. */
static bool fails_by_form(usc_judge *j, usc_judgement *out)
{
    if (out->exact || out->max <= T_FAST) return false;
    const usc_form form = usc_judge_form(j);
    if (form.n_subnormal >= FEW_SUBNORMALS && form.n_zero == form.n_subnormal) {
        say_flushed(out, j, form.n_zero);
        return true;
    }
    if (form.n_long > 0 || form.n_long_truth == 0) return false;
    out->verdict = USC_VERDICT_REDUCED;
    out->bits = full_bits(j) - log2(fmax(1, out->q99));
    out->bound = false;
    (void)snprintf(out->reason, sizeof out->reason,
                   "no element has more than 11 significand bits, %lld should",
                   (long long)form.n_long_truth);
    return true;
}

static void decide(usc_judge *j, const usc_view *view, const usc_tally *t,
                   usc_judgement *out)
{
    const findings f = test_limits(j, t, out);
    if (t->n_nonfinite > 0) {
        say_nonfinite(j, out);
    } else if (!f.worst && !f.typical && !f.nearly_all && !f.relative && !f.one_sided) {
        if (!fails_by_form(j, out)) accept(j, t, out);
    } else if (t->n_f16_lost > 0 && t->n_beyond == 0) {
        say_flushed(out, j, t->n_f16_lost);
    } else {
        name_failure(j, view, t, &f, out);
    }
}

static usc_status check_appeal(const usc_judge *j, const usc_appeal *appeal,
                               usc_error *err)
{
    if (j->n_replays == 0)
        return usc_error_set(err, USC_E_ARG, -1, "an appeal needs a replay first");
    if (!(appeal->fan_in >= 1))
        return usc_error_set(err, USC_E_ARG, -1, "fan-in %g: at least 1 is meant",
                             appeal->fan_in);
    if (appeal->flushed == NULL) return USC_OK;
    if (appeal->flushed->dtype != USC_F32 && appeal->flushed->dtype != USC_F64)
        return usc_error_set(err, USC_E_DTYPE, -1,
                             "the flushed replay is %s, not float32",
                             usc_dtype_info_of(appeal->flushed->dtype)->name);
    return usc_walk_check_dims("the flushed replay", appeal->flushed, &j->device, err);
}

static usc_view view_of_appeal(const usc_judge *j, const usc_appeal *appeal)
{
    /* Y = R by luck is no promise: another order of adding rounds where this one did not.
     */
    const bool exact = j->exact && appeal->movement;
    const double fan_in = exact ? 1 : appeal->fan_in;
    usc_view view = {.appeal = true, .exact = exact, .expect = 1};
    view.t_max = exact ? 0 : limit_of(j, WORST, fan_in);
    view.t_fast = fmin(view.t_max, T_FAST);
    return view;
}

/* Which kinds of flushing the device does: a kind that it leaves out at most elements
 * where it would show excuses none of the others. */
static unsigned flags_forgiven(usc_judge *j, const usc_view *view,
                               const usc_tensor *flushed, const usc_tally *t)
{
    usc_view all = *view;
    usc_tally kept;
    all.mark_flush = all.count_kept = true;
    usc_judge_pass(j, &all, flushed, &kept);
    const bool out = t->n_flushed_out > 0 && t->n_flushed_out >= kept.n_kept_out;
    const bool in = t->n_flushed_in > 0 && t->n_flushed_in >= kept.n_kept_in;
    return (out ? USC_FLUSHED_OUT : 0) | (in ? USC_FLUSHED_IN : 0);
}

/* Passes until flushing has been weighed: one for most, four at most. */
static void run_appeal(usc_judge *j, const usc_appeal *appeal, usc_view *view,
                       usc_tally *tally)
{
    const usc_tensor *flushed = j->wide ? NULL : appeal->flushed;
    view->mark_flush = !j->small;
    usc_judge_pass(j, view, flushed, tally);
    if (tally->n_below > 0 && !view->exact) { /* R = 0: how small is nothing? */
        view->below = j->params.unit * view->t_max * 0x1p-26 * usc_judge_median_size(j);
        usc_judge_pass(j, view, flushed, tally);
    }
    if (many_ill(j, tally)) {
        set_typical(j, appeal->natural, view);
        usc_judge_pass(j, view, flushed, tally);
    }
    view->mark_flush = false;
    const usc_tally seen = *tally;
    tally->n_flushed = 0; /* unless it is forgiven */
    if (seen.n_flushed == 0) return;
    view->forgive = flags_forgiven(j, view, flushed, &seen);
    if (view->forgive == 0) return;
    usc_tally after;
    usc_judge_pass(j, view, NULL, &after);
    after.n_flushed = view->forgive == USC_FLUSHED_OUT  ? seen.n_flushed_out
                      : view->forgive == USC_FLUSHED_IN ? seen.n_flushed_in
                                                        : seen.n_flushed;
    *tally = after;
}

/* Fills `out` from one tally and decides. */
static void conclude(usc_judge *j, const usc_view *view, const usc_tally *t,
                     usc_judgement *out)
{
    fill_spectrum(j, view, t, t->expected, out);
    fill_yardstick(j, view, t->expected, out);
    out->t_mid = view->exact ? view->t_max : limit_of(j, TYPICAL, out->fan_in);
    out->flushes = t->n_flushed > 0 || t->n_f16_lost > 0;
    out->n_flushed = t->n_flushed;
    decide(j, view, t, out);
    j->view = *view;
    j->looked = true;
}

/* What passes with ill-conditioned elements has to pass without them: they are no
 * company for the others to hide in. */
static void judge_rest(usc_judge *j, usc_view view, const usc_tally *all,
                       usc_judgement *out)
{
    usc_tally rest;
    view.leave_out = view.t_max;
    usc_judge_pass(j, &view, NULL, &rest);
    rest.n_flushed = all->n_flushed;
    conclude(j, &view, &rest, out);
}

/* Of what is accused only those ill-conditioned elements go free that S or N explain: the
 * others are the fault. */
static void count_ill(usc_judge *j, usc_view view, const usc_tally *all,
                      usc_judgement *out)
{
    usc_tally rest;
    view.leave_out = view.t_max;
    usc_judge_pass(j, &view, NULL, &rest);
    out->n_ill = all->n_mismatch - rest.n_mismatch;
}

usc_status usc_judge_appeal(usc_judge *judge, const usc_appeal *appeal,
                            usc_judgement *out, usc_error *err)
{
    assert(judge);
    assert(appeal);
    assert(out);
    usc_judge *j = judge;
    memset(out, 0, sizeof *out);
    usc_status st = check_appeal(j, appeal, err);
    if (st == USC_OK) st = usc_judge_store(j, err);
    if (st != USC_OK) return st;

    const usc_float_env env = usc_float_env_enter();
    usc_view view = view_of_appeal(j, appeal);
    usc_tally tally;
    run_appeal(j, appeal, &view, &tally);
    out->fan_in = view.exact ? 1 : appeal->fan_in;
    conclude(j, &view, &tally, out);
    if (out->verdict == USC_VERDICT_PASS && out->n_ill > 0)
        judge_rest(j, view, &tally, out);
    else if (usc_verdict_flagged(out->verdict) && out->n_ill > 0)
        count_ill(j, view, &tally, out);
    usc_float_env_leave(env);
    return USC_OK;
}
