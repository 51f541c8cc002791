// SPDX-License-Identifier: Apache-2.0
// What passes although it is visibly off, or is one of a few numbers and off by some
// roundings: some run of float32 has to speak for it. A device has the very inputs; so it
// must lie between what other roundings and orders of adding make of these, or be such a
// value where a step leaves few. Neighbours: case_look.c, whose every pass comes here.
#include "base/number.h"
#include "case/case_kept.h"
#include "case/case_state.h"
#include "case/case_values.h"
#include "judge/slopes.h"
#include "kernels/walk_load.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SHOWS 0x1p-8 /* of an element, or of what elements are: less is not looked at */
#define SEEN 0x1p-12 /* of the same: what a run is off by for whoever judges later */
#define SAME USC_VALUES_SAME
#define ROUNDING 0x1p-24
#define WIDER 4.0 /* times between the runs: another kernel's luck, where no step is */
#define LUCK 4.0  /* times what runs span: beside others, five runs may be so close */
#define WIDER_FEW                                                                        \
    2.0              /* of few numbers: times what runs lose, to that side, in the mean */
#define NEAR_FEW 8   /* roundings */
#define CUT_FEW 1.25 /* times what is cut off, to the side to which that goes */
enum { FEW_RUNS = 4, TRUE_RUNS = 2, MANY_TURNS = 8, LEFT_OUT = 64, MANY_PLACES = 8 };

/* What the runs gave at one element. */
typedef struct place {
    int64_t index;
    double d, r;
    double low, high;            /* of the runs */
    double low_all, high_all;    /* and of those on inputs nearby */
    double squares[2];           /* of what runs are off by, below and above */
    double low_cut, high_cut;    /* and of one whose accumulators are cut off */
    float runs[USC_VALUES_MOST]; /* the truth, what runs gave; last those nearby */
    int n_runs, n_nearby;
    int n_true;         /* runs that gave the truth, as far as it shows beside others */
    int n_exact;        /* and beside itself: what cancels never does */
    bool met;           /* by a run whose values count alone */
    bool stepped;       /* is_stepped, once all runs are there, */
    bool nowhere;       /* is_nowhere */
    bool admitted;      /* and is_admitted */
    double under, over; /* the nearest runs below and above d, of all */
    int n_under, n_over;
} place;

struct usc_hull {
    place *of;
    int64_t n, room;
    int n_runs;
    bool few; /* all that is off by more than some roundings, not only what shows */
    double typical;
    double usual; /* what runs span where no step is: few places have more; 0: too few */
    int64_t *at;  /* of an output that is kept: one more than where its element stands */
};

static usc_case_stage take_flushed, take_run, keep_run;

/* ---- which elements ---- */

static bool is_off(const usc_case *c, const usc_hull *h, double d, double r, double size)
{
    const double least =
        (h->few ? USC_FEW_ROUNDINGS * ROUNDING : SHOWS) * fmax(fabs(r), size);
    if (!isfinite(d) || !isfinite(r) || fabs(d - r) <= least) return false;
    return usc_case_distance(c, d, r) > least;
}

/* Beside which side of the device's element a run lies. */
static void note_side(place *p, double v)
{
    if (v <= p->d) {
        p->under = fmax(p->under, v);
        p->n_under++;
    } else {
        p->over = fmin(p->over, v);
        p->n_over++;
    }
}

/* Room doubles: places move, and nobody keeps pointers to them. */
static bool add(usc_case *c, usc_hull *h, int64_t i, double d, double r)
{
    if (h->n == h->room) {
        const int64_t room = h->room > 0 ? 2 * h->room : 64;
        place *more = usc_case_room(c, room, sizeof *more);
        if (more == NULL) return false;
        if (h->n > 0) memcpy(more, h->of, (size_t)h->n * sizeof *more);
        h->of = more;
        h->room = room;
    }
    place *p = &h->of[h->n++];
    *p = (place){.index = i, .d = d, .r = r, .runs = {(float)r}, .n_runs = 1};
    p->low = p->high = p->low_all = p->high_all = p->low_cut = p->high_cut = r;
    p->under = (double)-INFINITY;
    p->over = (double)INFINITY;
    note_side(p, r);
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

/* ---- what the runs gave ---- */

static void widen(const usc_hull *h, place *p, double v, unsigned run)
{
    const bool nearby = run == USC_RERUN_NEARBY;
    if (!isfinite(v)) return;
    if (run == USC_RERUN_CUT) {
        p->low_cut = fmin(p->low_cut, v);
        p->high_cut = fmax(p->high_cut, v);
        return;
    }
    note_side(p, v);
    p->low_all = fmin(p->low_all, v);
    p->high_all = fmax(p->high_all, v);
    if (p->n_runs < USC_VALUES_MOST) {
        p->runs[p->n_runs++] = (float)v;
        p->n_nearby += nearby;
    }
    if (nearby) return;
    p->low = fmin(p->low, v);
    p->high = fmax(p->high, v);
    p->squares[v > p->r] += (v - p->r) * (v - p->r);
    p->n_true += fabs(v - p->r) <= SAME * fmax(fabs(p->r), h->typical);
    p->n_exact += fabs(v - p->r) <= SAME * fabs(p->r);
}

static usc_values values_of(const usc_hull *h, const place *p, bool all)
{
    const double size = fmax(h->typical, fabs(p->r));
    return usc_values_of(p->runs, all ? p->n_runs : p->n_runs - p->n_nearby, size);
}

/* Whether a step inside leaves an element few values: then nothing else is right. So do
 * a few units of what cancels, of which the truth is none. */
static bool is_stepped(const usc_hull *h, const place *p)
{
    const usc_values v = values_of(h, p, false);
    return h->n_runs >= FEW_RUNS && (p->n_exact > 0 || v.n == 2) &&
           usc_values_are_stepped(&v, h->n_runs);
}

static bool is_between(const usc_case *c, double d, double low, double high)
{
    const double nearest = fmin(fmax(d, low), high);
    const double same = c->hull->few ? NEAR_FEW * ROUNDING : SAME;
    return isfinite(nearest) &&
           usc_case_distance(c, d, nearest) <= same * fmax(fabs(low), fabs(high));
}

static int larger_first(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* When all runs are there: where steps are, and what runs span elsewhere. What sums lose
 * by cancelling is much alike in an output, and a few runs tell it of one element badly.
 */
static bool weigh_spans(usc_case *c, usc_hull *h)
{
    double *spans = usc_case_room(c, h->n, sizeof *spans);
    int64_t n = 0;
    if (spans == NULL) return false;
    for (int64_t i = 0; i < h->n; i++) {
        place *p = &h->of[i];
        p->stepped = is_stepped(h, p);
        if (!p->stepped) spans[n++] = p->high_all - p->low_all;
    }
    qsort(spans, (size_t)n, sizeof *spans, larger_first);
    h->usual = n < MANY_PLACES ? 0 : spans[n / 10];
    return true;
}

/* What another order may lose beyond all runs, to one side; no more than the most. */
static double lost_to(const usc_hull *h, const place *p, int side, double most)
{
    return fmin(WIDER_FEW * sqrt(p->squares[side] / fmax(h->n_runs, 1)), most);
}

/* Where no step is, another kernel may be less lucky than all of the runs. */
static void between(const usc_hull *h, const place *p, double *low, double *high)
{
    const double span = p->high_all - p->low_all;
    const bool few = h->few && span <= SHOWS * fmax(fabs(p->r), h->typical);
    const double more = p->stepped ? 0 : WIDER * fmax(span, fmin(h->usual, LUCK * span));
    *low = p->stepped ? p->low : p->low_all;
    *high = p->stepped ? p->high : p->high_all;
    *low -= few ? lost_to(h, p, 0, p->r - *low) : more;
    *high += few ? lost_to(h, p, 1, *high - p->r) : more;
    *low = fmin(*low, p->r - CUT_FEW * (p->r - p->low_cut));
    *high = fmax(*high, p->r + CUT_FEW * (p->high_cut - p->r));
}

static bool is_in_gap(const usc_hull *h, const place *p)
{
    const usc_around around = {p->low_all, p->under, p->over, p->high_all};
    return p->n_under > 1 && p->n_over > 1 &&
           usc_values_in_gap(&around, p->d, h->typical);
}

/* Whether steps leave it values of which it is none. What cancels leaves few values as
 * well, between which others are right: no run gives the truth there. But where all runs
 * come to one value (squares that vanish), that or the truth is all there is. */
static bool is_no_value(const usc_case *c, const usc_hull *h, const place *p)
{
    const double size = fmax(h->typical, fabs(p->r));
    const usc_values v = values_of(h, p, true);
    const usc_values others = usc_values_of(p->runs + 1, p->n_runs - 1, size);
    const bool few = usc_values_are_stepped(&v, h->n_runs);
    const bool known = p->n_true >= TRUE_RUNS && (few || usc_values_are_on_grid(&v));
    const bool one = p->n_true == 0 && others.n == 1 && v.n == 2;
    if (h->n_runs < FEW_RUNS || !(known || one)) return false;
    const double nearest = usc_values_nearest(&v, p->r, p->d);
    return usc_case_distance(c, p->d, nearest) > SAME * WIDER * fmax(size, fabs(p->d));
}

static bool is_nowhere(const usc_case *c, const usc_hull *h, const place *p)
{
    return !p->met && (is_in_gap(h, p) || is_no_value(c, h, p));
}

static bool is_admitted(const usc_case *c, const usc_hull *h, const place *p)
{
    double low, high;
    between(h, p, &low, &high);
    return p->met || (is_between(c, p->d, low, high) && !p->nowhere);
}

/* ---- what a step makes of equal truths ---- */

static void note_turns(usc_case *c, const usc_hull *h)
{
    for (int64_t i = 0; i < h->n; i++) {
        const place *p = &h->of[i];
        if (!p->stepped) continue;
        const usc_values v = values_of(h, p, false);
        for (int k = 0; k < v.n; k++) {
            const bool truth = v.low[k] <= p->r && p->r <= v.high[k];
            usc_turn *turn = truth ? NULL : usc_case_turn(c, p->r, v.low[k]);
            if (turn != NULL) turn->n++;
        }
    }
}

/* Of many elements with one truth, runs took some to that value: chance leaves a few out
 * that no run took there. */
static bool turns_elsewhere(usc_case *c, const place *p)
{
    const usc_turn *turn = usc_case_turn(c, p->r, p->d);
    return turn != NULL && turn->n >= MANY_TURNS;
}

/* ---- stages ---- */

/* Whether a step leaves two groups of values, far from one another beside what is in
 * each; and one holds the element, which is in no gap. */
static bool is_split(const usc_hull *h, const place *p)
{
    return h->n_runs >= FEW_RUNS && !is_in_gap(h, p) &&
           usc_values_are_split(p->runs, p->n_runs - p->n_nearby);
}

/* Whether steps explain what runs give at an element. */
static bool is_settled(const usc_hull *h, const place *p)
{
    const usc_values v = values_of(h, p, false);
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
        const place *p = &h->of[i];
        const double off = c->open[p->index] ? usc_case_distance(c, p->d, p->r) : 0;
        most = fmax(most, off / fmax(fabs(p->r), h->typical));
    }
    usc_case_differ(c, &c->look.device, &c->truth);
    if (!h->few || most > SHOWS) return;
    char text[128];
    (void)usc_format(text, sizeof text, "off by %.3g roundings, as no run of float32 is",
                     most / ROUNDING);
    c->f.verdict = USC_VERDICT_REDUCED;
    c->f.reason = usc_case_text(c, text);
    c->f.bits = -log2(most);
}

static usc_status conclude(usc_case *c)
{
    usc_hull *h = c->hull;
    int64_t n_open = 0, n_left_out = 0;
    c->open = usc_case_room(c, c->n, 1);
    if (c->open == NULL || !weigh_spans(c, h)) return USC_OK; /* the driver tells */
    note_turns(c, h);
    for (int64_t i = 0; i < h->n; i++) {
        place *p = &h->of[i];
        p->nowhere = is_nowhere(c, h, p);
        p->admitted = is_admitted(c, h, p);
        n_left_out += !p->admitted && turns_elsewhere(c, p);
    }
    const bool few = n_left_out <= 1 + c->n / LEFT_OUT;
    for (int64_t i = 0; i < h->n; i++) {
        const place *p = &h->of[i];
        if (p->nowhere && c->gaps == NULL) c->gaps = usc_case_room(c, c->n, 1);
        if (c->gaps != NULL) c->gaps[p->index] = p->nowhere;
        c->open[p->index] = !p->admitted && !(few && turns_elsewhere(c, p));
        n_open += c->open[p->index];
    }
    if (n_open > 0)
        accuse(c);
    else
        admit(c, h);
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
        place *p = &h->of[i];
        p->met |= is_between(c, p->d, low[p->index], high[p->index]);
    }
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
    for (int64_t i = 0; i < h->n; i++)
        widen(h, &h->of[i], run[h->of[i].index], kind);
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
        h->of[i].met |= is_between(c, h->of[i].d, v, v);
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
    for (int64_t i = 0; i < h->n && c->y != NULL; i++)
        widen(h, &h->of[i], c->y[h->of[i].index], USC_RERUN_OTHERWISE);
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
    if (!weigh_spans(c, c->hull)) return USC_OK;
    memcpy(low, c->r, (size_t)c->n * sizeof *low);
    memcpy(high, c->r, (size_t)c->n * sizeof *high);
    for (int64_t k = 0; k < h->n; k++)
        between(h, &h->of[k], &low[h->of[k].index], &high[h->of[k].index]);
    if (h->n > 0) usc_case_keep_sides(c, low, high);
    return usc_case_pass(c, USC_STAGE_KEEP_LOSS);
}

/* Places are made where a run first lies visibly beside the truth. */
static bool keep_widened(usc_case *c, const double *run, unsigned kind)
{
    usc_hull *h = c->hull;
    const double seen = h->few ? 0 : SEEN;
    for (int64_t i = 0; i < c->n; i++) {
        const double r = c->r[i], v = run[i];
        const bool off = fabs(v - r) > seen * fmax(fabs(r), h->typical);
        if (h->at[i] == 0 && (!isfinite(r) || !isfinite(v) || !off)) continue;
        if (h->at[i] == 0) {
            if (!add(c, h, i, r, r)) return false;
            h->at[i] = h->n;
        }
        widen(h, &h->of[h->at[i] - 1], v, kind);
    }
    h->n_runs += kind == USC_RERUN_OTHERWISE;
    return true;
}

static usc_status keep_run(usc_case *c, usc_error *err)
{
    (void)err;
    if (!usc_case_given(c, USC_GIVEN_AS_ASKED) || c->given.a == NULL ||
        !usc_case_fits(c->given.a, &c->truth))
        return keep_sides(c);
    const double *run = usc_case_wide(c, c->given.a);
    if (run == NULL || !keep_widened(c, run, (unsigned)c->given.number)) return USC_OK;
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
    if (h->at == NULL || (c->y != NULL && !keep_widened(c, c->y, USC_RERUN_OTHERWISE)))
        return USC_OK;
    h->n_runs = 1;
    return usc_case_ask(c, USC_WANT_RUN, 0, keep_run);
}
