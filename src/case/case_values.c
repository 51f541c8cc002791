// SPDX-License-Identifier: Apache-2.0
// See case_values.h.
#include "case/case_values.h"

#include <math.h>
#include <stddef.h>

#define APART 0.75  /* of what runs span, from which one gap makes two groups of them */
#define WIDER 4.0   /* times a group: another kernel's luck */
#define EDGE 0x1p-8 /* of the gap: less shows nowhere */
#define OFF_GRID 0x1p-6 /* of its step: what sums of steps lose */

#define TINY 0x1p-63 /* the square of less is no normal float32 */

bool usc_values_took_step(double r, double run)
{
    const bool vanished = run == 0 && r != 0 && fabs(r) < TINY;
    return fabs(run - r) > USC_VALUES_SHOWS / 2 * fabs(r) && !vanished;
}

static int sorted(const float *runs, int n, double *out)
{
    if (n > USC_VALUES_MOST) n = USC_VALUES_MOST;
    for (int i = 0; i < n; i++) {
        int at = i;
        for (; at > 0 && out[at - 1] > (double)runs[i]; at--)
            out[at] = out[at - 1];
        out[at] = (double)runs[i];
    }
    return n;
}

usc_values usc_values_of(const float *runs, int n, double size)
{
    double all[USC_VALUES_MOST];
    usc_values v = {.n = 0};
    n = sorted(runs, n, all);
    for (int i = 0; i < n && v.n <= USC_VALUES_GRID; i++) {
        const double same = USC_VALUES_SAME * fmax(size, fabs(all[i]));
        if (v.n > 0 && all[i] - v.high[v.n - 1] <= same) {
            v.high[v.n - 1] = all[i];
        } else if (v.n++ < USC_VALUES_GRID) {
            v.low[v.n - 1] = v.high[v.n - 1] = all[i];
        }
    }
    return v;
}

bool usc_values_are_split(const float *runs, int n)
{
    double all[USC_VALUES_MOST], widest = 0;
    n = sorted(runs, n, all);
    for (int i = 1; i < n; i++)
        widest = fmax(widest, all[i] - all[i - 1]);
    return widest > 0 && widest / (all[n - 1] - all[0]) > APART;
}

bool usc_values_are_stepped(const usc_values *v, int n_runs)
{
    return v->n > 1 && v->n <= USC_VALUES_FEW && 2 * v->n <= n_runs;
}

static double middle(const usc_values *v, int k)
{
    return v->low[k] + (v->high[k] - v->low[k]) / 2;
}

/* The least way from one to the next; 0 where not all are so many such ways apart. */
static double grid_of(const usc_values *v)
{
    double step = (double)INFINITY;
    for (int k = 1; k < v->n; k++)
        step = fmin(step, middle(v, k) - middle(v, k - 1));
    for (int k = 1; k < v->n; k++) {
        const double steps = (middle(v, k) - middle(v, 0)) / step;
        if (!(fabs(steps - rint(steps)) <= OFF_GRID)) return 0;
    }
    return isfinite(step) ? step : 0;
}

bool usc_values_are_on_grid(const usc_values *v)
{
    return v->n > USC_VALUES_FEW && v->n <= USC_VALUES_GRID && grid_of(v) > 0;
}

static double nearer(double a, double b, double d)
{
    return fabs(b - d) < fabs(a - d) ? b : a;
}

double usc_values_nearest(const usc_values *v, double truth, double d)
{
    const double step = grid_of(v);
    double best = step > 0 ? middle(v, 0) + step * rint((d - middle(v, 0)) / step)
                           : (double)INFINITY;
    if (step > 0 && fabs(best - d) <= OFF_GRID * step) best = d;
    for (int k = 0; k < v->n; k++) {
        best = nearer(best, fmin(fmax(d, v->low[k]), v->high[k]), d);
        for (int m = 0; m < k; m++)
            best = nearer(best, middle(v, k) + middle(v, m) - truth, d);
    }
    return best;
}

bool usc_values_in_gap(const usc_around *a, double d, double size)
{
    const double gap = a->over - a->under;
    if (!isfinite(gap) || !(gap > APART * (a->high - a->low))) return false;
    if (d == rint(d) && a->under == rint(a->under) && a->over == rint(a->over))
        return false;
    const double group = fmax(a->under - a->low, a->high - a->over);
    const double one = USC_VALUES_SAME * fmax(size, fabs(d));
    const double reach = fmax(WIDER * fmax(group, one), EDGE * gap);
    return d > a->under + reach && d < a->over - reach;
}

double usc_values_size(const double *x, const double *r, int64_t n)
{
    double sum = 0;
    int64_t n_finite = 0;
    for (int64_t i = 0; i < n; i++) {
        const double v = r != NULL ? x[i] - r[i] : x[i];
        if (!isfinite(v)) continue;
        sum += v * v;
        n_finite++;
    }
    return n_finite > 0 ? sqrt(sum / (double)n_finite) : 0;
}

uint8_t usc_values_odd(double v)
{
    return isfinite(v) ? 0 : isnan(v) ? 1 : v > 0 ? 2 : 4;
}
