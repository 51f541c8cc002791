// SPDX-License-Identifier: Apache-2.0
// What runs gave at one element where steps inside leave few values: whether another
// value may be such. Serves case_hull.c and case_steps.c.
#ifndef USC_CASE_VALUES_H
#define USC_CASE_VALUES_H

#include <stdbool.h>
#include <stdint.h>

enum {
    USC_VALUES_MOST = 40, /* runs that are looked at */
    USC_VALUES_FEW = 4,   /* values that a step leaves, */
    USC_VALUES_GRID = 12  /* and that several alike do */
};

#define USC_VALUES_SAME 0x1p-18 /* of what elements are: runs within it gave one */

#define USC_VALUES_SHOWS                                                                 \
    0x1p-8 /* of an element: beyond it lies between the runs, or is wrong */

/** Whether what a run gave is so far from the truth r that it took another side of a step;
 * not where it is 0 because squares underflow in it. */
bool usc_values_took_step(double r, double run);

/** Different values, ascending; each is what lies from `low` to `high`. */
typedef struct usc_values {
    double low[USC_VALUES_GRID], high[USC_VALUES_GRID];
    int n; /* USC_VALUES_GRID + 1: more */
} usc_values;

/** Of what runs gave, at most USC_VALUES_MOST; `size`: what elements are. */
usc_values usc_values_of(const float *runs, int n, double size);

/** What lies around a value: the least and the most of runs, the nearest to both sides.
 */
typedef struct usc_around {
    double low, under, over, high;
} usc_around;

/** Whether a value lies in the middle of nowhere: runs make two groups, narrow beside
 * what is between them, as a remainder near its modulus does, and it is of neither. Whole
 * numbers between whole numbers are steps that no run took. */
bool usc_values_in_gap(const usc_around *a, double d, double size);

/** Whether the widest way between two of them is most of the way from the first to the
 * last: a step leaves two groups of values. */
bool usc_values_are_split(const float *runs, int n);

/** Whether a few values leave no others between them: n_runs gave each more than once. */
bool usc_values_are_stepped(const usc_values *v, int n_runs);

/** What is no number: 1 NaN, 2 Inf, 4 -Inf; 0: it is one. */
uint8_t usc_values_odd(double v);

/** Whether they lie on a grid: more than a few, and one step apart or several such. */
bool usc_values_are_on_grid(const usc_values *v);

/** The nearest to `d` of the values themselves, of what two steps give at once that runs
 * took alone (from `truth`), and of the grid on which they lie. */
double usc_values_nearest(const usc_values *v, double truth, double d);

/** Root mean square of the finite ones of n numbers x - r; r NULL: of x. */
double usc_values_size(const double *x, const double *r, int64_t n);

#endif
