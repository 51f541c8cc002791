// SPDX-License-Identifier: Apache-2.0
// What runs of float32 say of one element: between which values it may lie, or that a
// step leaves it few. Neighbours: case_hull.h.
#include "case/case_hull.h"

#include <math.h>
#include <stdlib.h>

#define SAME USC_VALUES_SAME
#define WIDER 4.0 /* times between the runs: another kernel's luck, where no step is */
#define LUCK 4.0  /* times what runs span: beside others, five runs may be so close */
#define WIDER_FEW                                                                        \
    2.0              /* of few numbers: times what runs lose, to that side, in the mean */
#define NEAR_FEW 8   /* roundings */
#define CUT_FEW 1.25 /* times what is cut off, to the side to which that goes */
enum { TRUE_RUNS = 2, MANY_PLACES = 8 };

/* Beside which side of the device's element a run lies. */
void usc_hull_note_side(usc_hull_place *p, double v)
{
    if (v <= p->d) {
        p->under = fmax(p->under, v);
        p->n_under++;
    } else {
        p->over = fmin(p->over, v);
        p->n_over++;
    }
}

void usc_hull_widen(const usc_hull *h, usc_hull_place *p, double v, unsigned run)
{
    const bool nearby = run == USC_RERUN_NEARBY;
    if (!isfinite(v)) return;
    if (run == USC_RERUN_CUT) {
        p->low_cut = fmin(p->low_cut, v);
        p->high_cut = fmax(p->high_cut, v);
        return;
    }
    usc_hull_note_side(p, v);
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

usc_values usc_hull_values(const usc_hull *h, const usc_hull_place *p, bool all)
{
    const double size = fmax(h->typical, fabs(p->r));
    return usc_values_of(p->runs, all ? p->n_runs : p->n_runs - p->n_nearby, size);
}

/* Whether a step inside leaves an element few values: then nothing else is right. So do
 * a few units of what cancels, of which the truth is none. */
static bool is_stepped(const usc_hull *h, const usc_hull_place *p)
{
    const usc_values v = usc_hull_values(h, p, false);
    return h->n_runs >= USC_HULL_RUNS && (p->n_exact > 0 || v.n == 2) &&
           usc_values_are_stepped(&v, h->n_runs);
}

bool usc_hull_is_between(const usc_case *c, double d, double low, double high)
{
    const double nearest = fmin(fmax(d, low), high);
    const double same = c->hull->few ? NEAR_FEW * USC_HULL_ROUNDING : SAME;
    return isfinite(nearest) &&
           usc_case_distance(c, d, nearest) <= same * fmax(fabs(low), fabs(high));
}

static int larger_first(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

bool usc_hull_weigh(usc_case *c, usc_hull *h)
{
    double *spans = usc_case_room(c, h->n, sizeof *spans);
    int64_t n = 0;
    if (spans == NULL) return false;
    for (int64_t i = 0; i < h->n; i++) {
        usc_hull_place *p = &h->of[i];
        p->stepped = is_stepped(h, p);
        if (!p->stepped) spans[n++] = p->high_all - p->low_all;
    }
    qsort(spans, (size_t)n, sizeof *spans, larger_first);
    h->usual = n < MANY_PLACES ? 0 : spans[n / 10];
    return true;
}

/* What another order may lose beyond all runs, to one side; no more than the most. */
static double lost_to(const usc_hull *h, const usc_hull_place *p, int side, double most)
{
    return fmin(WIDER_FEW * sqrt(p->squares[side] / fmax(h->n_runs, 1)), most);
}

/* Where no step is, another kernel may be less lucky than all of the runs. */
void usc_hull_between(const usc_hull *h, const usc_hull_place *p, double *low,
                      double *high)
{
    const double span = p->high_all - p->low_all;
    const bool few = h->few && span <= USC_HULL_SHOWS * fmax(fabs(p->r), h->typical);
    const double more = p->stepped ? 0 : WIDER * fmax(span, fmin(h->usual, LUCK * span));
    *low = p->stepped ? p->low : p->low_all;
    *high = p->stepped ? p->high : p->high_all;
    *low -= few ? lost_to(h, p, 0, p->r - *low) : more;
    *high += few ? lost_to(h, p, 1, *high - p->r) : more;
    *low = fmin(*low, p->r - CUT_FEW * (p->r - p->low_cut));
    *high = fmax(*high, p->r + CUT_FEW * (p->high_cut - p->r));
}

bool usc_hull_is_in_gap(const usc_hull *h, const usc_hull_place *p)
{
    const usc_around around = {p->low_all, p->under, p->over, p->high_all};
    return p->n_under > 1 && p->n_over > 1 &&
           usc_values_in_gap(&around, p->d, h->typical);
}

/* Whether steps leave it values of which it is none. What cancels leaves few values as
 * well, between which others are right: no run gives the truth there. But where all runs
 * come to one value (squares that vanish), that or the truth is all there is. */
static bool is_no_value(const usc_case *c, const usc_hull *h, const usc_hull_place *p)
{
    const double size = fmax(h->typical, fabs(p->r));
    const usc_values v = usc_hull_values(h, p, true);
    const usc_values others = usc_values_of(p->runs + 1, p->n_runs - 1, size);
    const bool few = usc_values_are_stepped(&v, h->n_runs);
    const bool known = p->n_true >= TRUE_RUNS && (few || usc_values_are_on_grid(&v));
    const bool one = p->n_true == 0 && others.n == 1 && v.n == 2;
    if (h->n_runs < USC_HULL_RUNS || !(known || one)) return false;
    const double nearest = usc_values_nearest(&v, p->r, p->d);
    return usc_case_distance(c, p->d, nearest) > SAME * WIDER * fmax(size, fabs(p->d));
}

bool usc_hull_is_nowhere(const usc_case *c, const usc_hull *h, const usc_hull_place *p)
{
    return !p->met && (usc_hull_is_in_gap(h, p) || is_no_value(c, h, p));
}

bool usc_hull_is_admitted(const usc_case *c, const usc_hull *h, const usc_hull_place *p)
{
    double low, high;
    usc_hull_between(h, p, &low, &high);
    return p->met || (usc_hull_is_between(c, p->d, low, high) && !p->nowhere);
}
