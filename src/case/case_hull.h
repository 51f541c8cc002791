// SPDX-License-Identifier: Apache-2.0
// What runs of float32 gave at the elements that are visibly off. Neighbours: case_hull.c
// (which elements, and what comes of it), hull_runs.c (what the runs say of one).
#ifndef USC_CASE_HULL_H
#define USC_CASE_HULL_H

#include "case/case_state.h"
#include "case/case_values.h"

#define USC_HULL_SHOWS                                                                   \
    0x1p-8 /* of an element, or of what elements are: less is not looked at */
#define USC_HULL_ROUNDING 0x1p-24

enum { USC_HULL_RUNS = 4 }; /* fewer tell of no step */

/* What the runs gave at one element. */
typedef struct usc_hull_place {
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
} usc_hull_place;

struct usc_hull {
    usc_hull_place *of;
    int64_t n, room;
    int n_runs;
    bool few; /* all that is off by more than some roundings, not only what shows */
    double typical;
    double least; /* root mean square of the truth or a run: the smallest of them */
    double usual; /* what runs span where no step is: few places have more; 0: too few */
    int64_t *at;  /* of an output that is kept: one more than where its element stands, */
    int64_t *step_at; /* and where its runs are far from the truth */
    double *steps;    /* what they gave there */
    int64_t n_steps;  /* at most one an element in the mean: beyond, steps are no few */
};

/** Beside which side of the device's element a run lies. */
void usc_hull_note_side(usc_hull_place *p, double v);

/** Takes in what a run gave at an element; `run`: a usc_rerun. */
void usc_hull_widen(const usc_hull *h, usc_hull_place *p, double v, unsigned run);

/** The values that runs gave; `all`: with those on inputs nearby. */
usc_values usc_hull_values(const usc_hull *h, const usc_hull_place *p, bool all);

/** When all runs are there: where steps are, and what runs span elsewhere. What sums lose
 * by cancelling is much alike in an output, and a few runs tell it of one element badly.
 * False: no memory. */
bool usc_hull_weigh(usc_case *c, usc_hull *h);

bool usc_hull_is_between(const usc_case *c, double d, double low, double high);

/** Between what an element may lie. */
void usc_hull_between(const usc_hull *h, const usc_hull_place *p, double *low,
                      double *high);

bool usc_hull_is_in_gap(const usc_hull *h, const usc_hull_place *p);
bool usc_hull_is_nowhere(const usc_case *c, const usc_hull *h, const usc_hull_place *p);
bool usc_hull_is_admitted(const usc_case *c, const usc_hull *h, const usc_hull_place *p);

#endif
