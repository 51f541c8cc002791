// SPDX-License-Identifier: Apache-2.0
// Callables of several operators that round to 16 bits between them: what that costs is
// the callable's, not the device's. Runs of it, rounded otherwise each time, say how far
// from the truth an element may lie, and what all elements together may come to: their
// size, their share of the truth, their mean. Where the device's are within those, the
// elements within theirs are put right, and the rest is judged as if nothing were known.
// Neighbours: case_state.h.
#include "case/case_kept.h"
#include "case/case_state.h"
#include "case/case_values.h"

#include <math.h>
#include <string.h>

#define NOTE "held to what the roundings to 16 bits between its operators cost"
#define OWN_MOST                                                                         \
    8.0 /* times what a run rounded to nearest is off by: the CPU's own one, */
#define OWN_UNITS 4.0 /* and so many roundings to 16 bits of the result */
#define SAME 0x1p-18  /* of a value: runs within it gave one */
enum { HALF_BITS = 11, LEAST_BITS = 8 }; /* of float16, of bfloat16 */
enum { MANY = 8 }; /* beside the kinds of what is no number: more than two values */
enum {
    STATES = 2,
    LOSS = 0,
    LOW = 1,
    HIGH = 2,
    VALUES = 3,
    SUMS = 6
}; /* of what is kept */

static usc_case_stage take_run;

/* The first of what an accused output is held to. */
bool usc_case_may_chain(const usc_case *c)
{
    return c->o.readings && c->kept == NULL && c->reading.at == 0 && !c->chain.tried &&
           !c->apart.weighing && !c->o.exact && !c->o.never_rounds &&
           usc_case_is_float(&c->truth) && c->n > 0;
}

static usc_status leave(usc_case *c)
{
    return usc_case_go(c, c->chain.resume);
}

/* ---- one run more ---- */

static bool make_room(usc_case *c)
{
    struct usc_case_chain *a = &c->chain;
    a->stride = (c->n + USC_CHAIN_SAMPLE - 1) / USC_CHAIN_SAMPLE;
    a->n_sample = (c->n + a->stride - 1) / a->stride;
    a->squares = usc_case_room(c, c->n, sizeof *a->squares);
    a->odd = usc_case_room(c, c->n, 1);
    a->low = usc_case_room(c, c->n, sizeof *a->low);
    a->high = usc_case_room(c, c->n, sizeof *a->high);
    a->sample = usc_case_room(c, a->n_sample * USC_CHAIN_RUNS, sizeof *a->sample);
    return usc_case_load(c);
}

/* What a run is off by. One that is rounded as the device is, by what that does not
 * explain. */
static double off_by(const usc_case *c, double run, double r, bool rounded)
{
    return rounded ? copysign(usc_case_distance(c, run, r), run - r) : run - r;
}

/* Whether two runs gave one value. */
static bool is_same(double v, double w)
{
    return v == w || fabs(v - w) <= SAME * fmax(fabs(v), fabs(w));
}

/* Of an element at which runs give two values at most (a step behind a rounding, or one
 * rounding alone) both are known. */
static void note_value(struct usc_case_chain *a, int64_t i, double v)
{
    double *low = &a->low[i], *high = &a->high[i];
    if (a->n_runs == 0) *low = *high = v;
    if ((a->odd[i] & MANY) != 0 || is_same(v, *low) || is_same(v, *high)) return;
    if (!(*low == *high))
        a->odd[i] |= MANY;
    else if (v < *low)
        *low = v;
    else
        *high = v;
}

static bool add_run(usc_case *c)
{
    struct usc_case_chain *a = &c->chain;
    if (a->n_runs == 0 && !make_room(c)) return false;
    const double *run = usc_case_wide(c, c->given.a);
    if (run == NULL || c->work.failed) return false;
    const bool rounded = c->given.a->dtype == c->device.dtype;
    usc_chain_sums sums = {0};
    for (int64_t i = 0; i < c->n; i++) {
        const double r = c->r[i];
        a->odd[i] |=
            usc_values_odd(isfinite(run[i]) ? usc_case_rounded(c, run[i]) : run[i]);
        const double off =
            isfinite(run[i]) && isfinite(r) ? off_by(c, run[i], r, rounded) : 0;
        a->squares[i] += off * off;
        note_value(a, i, run[i]);
        usc_chain_add(&sums, off, r);
        if (a->n_runs < USC_CHAIN_RUNS && i % a->stride == 0)
            a->sample[a->n_runs * a->n_sample + i / a->stride] = (float)off;
    }
    usc_chain_drift(&a->drift, &sums, c->want.k >= USC_CHAIN_SURE);
    a->n_runs++;
    return true;
}

/* Whether the second run, the CPU's own, is off by far more than roundings between the
 * operators cost: one of its kernels computes badly, which excuses no device. */
static bool is_own_bad(usc_case *c)
{
    const struct usc_case_chain *a = &c->chain;
    if (a->n_runs != 1 || c->want.k != 1) return false;
    const double *run = usc_case_wide(c, c->given.a);
    const bool rounded = c->given.a->dtype == c->device.dtype;
    const int bits = usc_dtype_info_of(c->device.dtype)->sig_bits;
    const double unit = ldexp(OWN_UNITS, bits <= HALF_BITS ? -bits : -LEAST_BITS);
    double own = 0, nearest = 0, size = 0;
    for (int64_t i = 0; i < c->n && run != NULL; i++) {
        const double r = c->r[i];
        if (!isfinite(r) || a->odd[i] != 0) continue;
        if (!isfinite(run[i])) return true;
        const double off = off_by(c, run[i], r, rounded);
        own += off * off;
        size += r * r;
        nearest += a->squares[i];
    }
    return own > OWN_MOST * OWN_MOST * nearest && own > unit * unit * size;
}

/* ---- what they say ---- */

static double loss_at(const usc_case *c, int64_t i)
{
    return sqrt(c->chain.squares[i] / c->chain.n_runs);
}

/* Whether a value lies between the two that runs gave, or those and the truth. */
static bool is_between(const usc_case *c, int64_t i)
{
    const struct usc_case_chain *a = &c->chain;
    if ((a->odd[i] & MANY) != 0) return true; /* its loss says how far */
    const double low = fmin(a->low[i], c->r[i]), high = fmax(a->high[i], c->r[i]);
    return usc_case_distance(c, c->d[i], fmin(fmax(c->d[i], low), high)) <=
           SAME * fmax(fabs(low), fabs(high));
}

/* Marks what is not right and lies within its set. How many elements lie beyond. */
static int64_t mark(usc_case *c)
{
    struct usc_case_chain *a = &c->chain;
    const double limit = usc_chain_limit(c->n);
    int64_t n_beyond = 0;
    a->n_free = 0;
    for (int64_t i = 0; i < c->n; i++) {
        const double d = c->d[i], r = c->r[i];
        const double right = usc_case_rounded(c, r);
        const bool same = d == right || (isnan(d) && isnan(right));
        bool within = (a->odd[i] & usc_values_odd(d)) != 0;
        if (isfinite(d) && isfinite(r))
            within =
                usc_case_distance(c, d, r) <= limit * loss_at(c, i) && is_between(c, i);
        c->marks[i] = within && !same;
        a->n_free += c->marks[i];
        n_beyond += !within && !same;
    }
    return n_beyond;
}

/* What all elements of the device come to beside the runs'; above 1: more than any honest
 * order of rounding. */
static double excess(usc_case *c)
{
    struct usc_case_chain *a = &c->chain;
    const double limit = usc_chain_limit(c->n);
    usc_chain_sums sums = {0};
    usc_chain_sample s = {.n_runs =
                              a->n_runs < USC_CHAIN_RUNS ? a->n_runs : USC_CHAIN_RUNS,
                          .room = usc_case_room(c, a->n_sample, sizeof(double)),
                          .device = usc_case_room(c, a->n_sample, sizeof(double)),
                          .loss = usc_case_room(c, a->n_sample, sizeof(double)),
                          .off = usc_case_room(c, a->n_sample, sizeof(double)),
                          .truth = usc_case_room(c, a->n_sample, sizeof(double)),
                          .own = usc_case_room(c, a->n_sample, sizeof(double)),
                          .runs = a->sample,
                          .n = a->n_sample};
    if (c->work.failed) return 0; /* the driver tells */
    for (int64_t i = 0; i < c->n; i++) {
        const double d = c->d[i], r = c->r[i];
        const bool known = isfinite(d) && isfinite(r);
        usc_chain_add(&sums, known ? d - r : 0, known ? r : 0);
        double unused = 0, own = 0;
        if (known) sums.own += usc_chain_own(r, usc_case_ulp(c, d), &sums.own_share);
        if (i % a->stride != 0) continue;
        const int64_t at = i / a->stride;
        s.device[at] = known ? usc_case_distance(c, d, r) : 0;
        s.loss[at] = known ? loss_at(c, i) : 0;
        if (known && s.device[at] <= limit * s.loss[at])
            own = usc_chain_own(r, usc_case_ulp(c, r), &unused);
        s.off[at] = known ? d - r : 0;
        s.truth[at] = known ? r : 0;
        s.own[at] = own;
    }
    return fmax(fmax(usc_chain_spread(&s), usc_chain_leans(&s)),
                usc_chain_drifts(&a->drift, &sums));
}

static usc_status weigh(usc_case *c)
{
    struct usc_case_chain *a = &c->chain;
    if (a->n_free == 0 || !usc_case_put_right(c, &c->device)) return leave(c);
    usc_judge_close(c->look.judge);
    c->look.judge = NULL;
    a->device = c->device;
    a->truth = c->truth;
    a->yardstick = c->yardstick;
    c->device = c->spared;
    c->spared.data = NULL;
    c->d = NULL;
    a->narrow = c->o.narrow;
    c->o.narrow = false;
    a->weighing = true;
    return usc_case_pass(c, USC_STAGE_FLOAT);
}

/* After the first runs and after all of them. Few runs may leave a loss too small by
 * chance; what is far beyond all is not asked of more. */
static usc_status decide(usc_case *c)
{
    struct usc_case_chain *a = &c->chain;
    const bool all = a->n_runs >= USC_CHAIN_ALL || a->ended;
    if (c->marks == NULL) c->marks = usc_case_room(c, c->n, 1);
    if (c->marks == NULL) return USC_OK; /* the driver tells */
    const double over = excess(c);
    const int64_t n_beyond = mark(c);
    if (over <= 1 && n_beyond == 0) return weigh(c);
    const bool near = over <= USC_CHAIN_HOPELESS && n_beyond <= c->n / 4;
    if (!all && near) return usc_case_ask(c, USC_WANT_CHAIN, a->n_runs, take_run);
    return over <= 1 && near ? weigh(c) : leave(c);
}

static bool given_run(const usc_case *c)
{
    return usc_case_given(c, USC_GIVEN_AS_ASKED) && c->given.a != NULL &&
           usc_case_fits(c->given.a, &c->truth) && usc_case_is_float(c->given.a);
}

/* ---- of runs that were kept ---- */

static bool is_list(const usc_tensor *t, usc_dtype dtype, int64_t n)
{
    int64_t found = 0;
    return t != NULL && t->dtype == dtype && usc_tensor_contiguous(t) &&
           usc_tensor_numel(t, &found, NULL) == USC_OK && found == n;
}

static usc_status take_sums(usc_case *c, usc_error *err)
{
    struct usc_case_chain *a = &c->chain;
    const int state = c->want.k >= USC_CHAIN_RUNS;
    const usc_tensor *values = c->given.a, *odd = c->given.b, *runs = c->given.c;
    if (a->n_runs == 0 && !make_room(c)) return USC_OK; /* the driver tells */
    const int64_t n_sample = a->n_sample * USC_CHAIN_RUNS;
    if (!is_list(values, USC_F32, STATES * VALUES * c->n) ||
        !is_list(odd, USC_U8, STATES * c->n) ||
        !is_list(runs, USC_F64, STATES * SUMS + n_sample))
        return usc_error_set(err, USC_E_SHAPE, -1, "%s: runs that were kept do not fit",
                             c->o.path);
    const double *sums = (const double *)runs->data + state * SUMS;
    const float *v = (const float *)values->data + (int64_t)state * VALUES * c->n;
    const double n_runs = sums[5];
    if (!(n_runs >= 2 && n_runs <= USC_CHAIN_ALL && sums[4] >= 0 && sums[4] <= n_runs))
        return usc_error_set(err, USC_E_SHAPE, -1, "%s: %g runs", c->o.path, n_runs);
    a->n_runs = (int)n_runs;
    a->ended = state == 1 || a->n_runs < USC_CHAIN_RUNS;
    a->drift = (usc_chain_drifts_of_runs){.share = sums[0],
                                          .mean = sums[1],
                                          .leans_share = sums[2],
                                          .leans_mean = sums[3],
                                          .n_runs = (int)sums[4]};
    for (int64_t i = 0; i < c->n; i++) {
        const double loss = (double)v[LOSS * c->n + i];
        a->squares[i] = loss * loss * a->n_runs;
        a->low[i] = (double)v[LOW * c->n + i];
        a->high[i] = (double)v[HIGH * c->n + i];
    }
    memcpy(a->odd, (const uint8_t *)odd->data + (int64_t)state * c->n, (size_t)c->n);
    for (int64_t i = 0; i < n_sample; i++)
        a->sample[i] = (float)((const double *)runs->data)[STATES * SUMS + i];
    return USC_OK;
}

static usc_status take_run(usc_case *c, usc_error *err)
{
    struct usc_case_chain *a = &c->chain;
    if (usc_case_given(c, USC_GIVEN_SUMS)) {
        const usc_status st = take_sums(c, err);
        return st == USC_OK && !c->work.failed ? decide(c) : st;
    }
    const bool one = given_run(c);
    if (one && is_own_bad(c))
        return usc_case_ask(c, USC_WANT_CHAIN, USC_CHAIN_ALL, take_run);
    if (!one && a->n_runs < 2) return leave(c);
    if (one && !add_run(c)) return USC_OK; /* the driver tells */
    a->ended = !one;
    const int n = a->n_runs;
    if (one && n != USC_CHAIN_RUNS && n < USC_CHAIN_ALL)
        return usc_case_ask(c, USC_WANT_CHAIN, n, take_run);
    return decide(c);
}

/* ---- in turn ---- */

usc_status usc_case_chain(usc_case *c, usc_case_stage *resume)
{
    c->chain = (struct usc_case_chain){.tried = true, .resume = resume};
    return usc_case_ask(c, USC_WANT_CHAIN, 0, take_run);
}

usc_status usc_case_chain_weighed(usc_case *c, usc_error *err)
{
    struct usc_case_chain *a = &c->chain;
    (void)err;
    a->weighing = false;
    if (c->f.verdict == USC_VERDICT_PASS) {
        c->f.excused[USC_EXCUSE_ROUNDED_BETWEEN] = a->n_free; /* which the note says */
        c->f.bits = c->f.yardstick_bits = (double)NAN;
        c->f.bound = false;
        c->f.reason = "bits are not known, its operators round to 16 bits between them";
        usc_case_note(c, "%s", NOTE);
        return usc_case_pass(c, USC_STAGE_PUT_AWAY);
    }
    c->device = a->device; /* all of it, as if nothing had been tried */
    c->o.narrow = a->narrow;
    usc_case_forget(c);
    c->truth = a->truth;
    c->yardstick = a->yardstick;
    return usc_case_pass(c, USC_STAGE_FLOAT);
}

/* ---- of an output that is kept ---- */

/* Asked of an output once, by the call's own reading. */
bool usc_case_may_keep_chain(const usc_case *c)
{
    return c->kept != NULL && c->o.readings && c->reading.at == 0 && !c->chain.tried &&
           !c->o.exact && !c->o.never_rounds && usc_case_is_float(&c->device) &&
           usc_case_is_float(&c->truth) && c->device.dtype != USC_F64 && c->n > 0 &&
           c->device.ndim + 2 <= USC_MAX_DIMS && c->f.verdict != USC_VERDICT_UNJUDGED;
}

static void keep_state(usc_case *c, int state)
{
    const struct usc_case_chain *a = &c->chain;
    float *values = c->chain.values + (int64_t)state * VALUES * c->n;
    for (int64_t i = 0; i < c->n; i++) {
        values[LOSS * c->n + i] = (float)sqrt(a->squares[i] / a->n_runs);
        values[LOW * c->n + i] = (float)a->low[i];
        values[HIGH * c->n + i] = (float)a->high[i];
    }
    memcpy(c->chain.kinds + (int64_t)state * c->n, a->odd, (size_t)c->n);
    const double sums[SUMS] = {a->drift.share,      a->drift.mean,   a->drift.leans_share,
                               a->drift.leans_mean, a->drift.n_runs, a->n_runs};
    memcpy(c->chain.sums + state * SUMS, sums, sizeof sums);
}

static usc_status keep_runs(usc_case *c)
{
    struct usc_case_chain *a = &c->chain;
    if (a->n_runs < 2) return usc_case_pass(c, USC_STAGE_PUT_AWAY);
    if (a->n_runs < USC_CHAIN_RUNS) keep_state(c, 0);
    keep_state(c, 1);
    const int64_t n_sample = a->n_sample * USC_CHAIN_RUNS;
    for (int64_t i = 0; i < n_sample; i++)
        a->sums[STATES * SUMS + i] = (double)a->sample[i];
    const int ndim = c->device.ndim;
    const int64_t n_sums = STATES * SUMS + n_sample;
    int64_t sizes[USC_MAX_DIMS + 2] = {STATES, VALUES};
    memcpy(&sizes[2], c->device.sizes, (size_t)ndim * sizeof sizes[0]);
    struct usc_kept_tensors *of = &c->kept->of;
    usc_case_keep_put(c, &of->chain_values, a->values, USC_F32, ndim + 2, sizes);
    sizes[1] = STATES;
    usc_case_keep_put(c, &of->chain_odd, a->kinds, USC_U8, ndim + 1, &sizes[1]);
    usc_case_keep_put(c, &of->chain_runs, a->sums, USC_F64, 1, &n_sums);
    return usc_case_pass(c, USC_STAGE_PUT_AWAY);
}

static usc_status keep_run(usc_case *c, usc_error *err)
{
    struct usc_case_chain *a = &c->chain;
    (void)err;
    if (!given_run(c)) return keep_runs(c);
    if (is_own_bad(c)) return usc_case_ask(c, USC_WANT_CHAIN, USC_CHAIN_ALL, keep_run);
    if (!add_run(c)) return USC_OK; /* the driver tells */
    if (a->n_runs == 1) {
        a->values = usc_case_room(c, STATES * VALUES * c->n, sizeof *a->values);
        a->kinds = usc_case_room(c, STATES * c->n, 1);
        a->sums = usc_case_room(c, STATES * SUMS + a->n_sample * USC_CHAIN_RUNS,
                                sizeof *a->sums);
        if (c->work.failed) return USC_OK; /* the driver tells */
    }
    if (a->n_runs == USC_CHAIN_RUNS) keep_state(c, 0);
    return a->n_runs < USC_CHAIN_ALL
               ? usc_case_ask(c, USC_WANT_CHAIN, a->n_runs, keep_run)
               : keep_runs(c);
}

usc_status usc_case_keep_chain(usc_case *c, usc_error *err)
{
    (void)err;
    c->chain = (struct usc_case_chain){.tried = true};
    return usc_case_ask(c, USC_WANT_CHAIN, 0, keep_run);
}
