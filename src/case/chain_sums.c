// SPDX-License-Identifier: Apache-2.0
// See case_chain.h.
#include "case/case_chain.h"

#include <math.h>
#include <stdlib.h>

/* Runs by chance round coarser than to nearest by 1.4, so an honest device of another
 * order comes to 0.8 times the most of them: what rounds coarser than they is beyond. */
static const struct {
    double at, times;
    int64_t least; /* elements */
} quantiles[] = {{0.5, 1.2, 16}, {0.9, 1.25, 32}, {0.99, 1.5, 256}};

#define DRIFT 4.5    /* times the root mean square of runs by chance, */
#define LEANS 1.5    /* beyond so many times what one leans to that rounds to nearest */
#define BASE 0x1p-18 /* beside 64 roundings of float32, which all may have in common */
#define FEW 3        /* times what runs by chance lose, 4.2 times what others do, */
#define EACH 0.5     /* and for ten times as many elements */

double usc_chain_limit(int64_t n)
{
    return FEW + EACH * log10((double)n);
}

void usc_chain_add(usc_chain_sums *sums, double off, double r)
{
    const double size = isfinite(r) ? r : 0;
    sums->share += off * size;
    sums->size += size * size;
    sums->mean += off;
    sums->n++;
}

double usc_chain_own(double r, double ulp, double *share)
{
    const double variance = ulp * ulp / 12;
    *share += variance * r * r;
    return variance;
}

void usc_chain_drift(usc_chain_drifts_of_runs *all, const usc_chain_sums *run,
                     bool chance)
{
    if (!chance) {
        all->leans_share = fmax(all->leans_share, fabs(run->share));
        all->leans_mean = fmax(all->leans_mean, fabs(run->mean));
        return;
    }
    all->share += run->share * run->share;
    all->mean += run->mean * run->mean;
    all->n_runs++;
}

static double beside(double value, double leans, double squares, int n_runs, double own)
{
    const double usual = sqrt(squares / fmax(n_runs, 1) + own);
    const double most = LEANS * leans + DRIFT * usual;
    return most > 0 ? fabs(value) / most : 0;
}

double usc_chain_drifts(const usc_chain_drifts_of_runs *all, const usc_chain_sums *device)
{
    const double share = beside(device->share, all->leans_share, all->share, all->n_runs,
                                device->own_share);
    return fmax(share, beside(device->mean, all->leans_mean, all->mean, all->n_runs,
                              device->own));
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sizes beside what runs lose, in order; how many there are. */
static int64_t ordered(const usc_chain_sample *s, const float *run)
{
    int64_t n = 0;
    for (int64_t i = 0; i < s->n; i++) {
        if (!(s->loss[i] > 0)) continue;
        s->room[n++] = (run != NULL ? fabs((double)run[i]) : s->device[i]) / s->loss[i];
    }
    qsort(s->room, (size_t)n, sizeof *s->room, ascending);
    return n;
}

double usc_chain_spread(const usc_chain_sample *s)
{
    enum { N = sizeof quantiles / sizeof quantiles[0] };
    double most[N] = {0}, over = 0;
    for (int k = 0; k < s->n_runs; k++) {
        const int64_t n = ordered(s, s->runs + k * s->n);
        for (int q = 0; q < N && n > 0; q++)
            most[q] =
                fmax(most[q], s->room[(int64_t)(quantiles[q].at * (double)(n - 1))]);
    }
    const int64_t n = ordered(s, NULL);
    for (int q = 0; q < N; q++) {
        if (n < quantiles[q].least) continue;
        const double z = s->room[(int64_t)(quantiles[q].at * (double)(n - 1))];
        if (z > 0) over = fmax(over, z / (quantiles[q].times * most[q]));
    }
    return over;
}

/* Weighed least squares of what is off on the truth: the weight of an element is one over
 * what a run loses there, squared, and what the device's own rounding does. */
static double leaning(const usc_chain_sample *s, const float *run, double *variance)
{
    double er = 0, rr = 0;
    for (int64_t i = 0; i < s->n; i++) {
        const double r = s->truth[i], off = run != NULL ? (double)run[i] : s->off[i];
        const double square = s->loss[i] * s->loss[i] + s->own[i];
        if (!(s->own[i] > 0) || !(square > 0)) continue;
        er += off * r / square;
        rr += r * r / square;
    }
    *variance = rr > 0 ? 1 / rr : 0;
    return rr > 0 ? er / rr : 0;
}

double usc_chain_leans(const usc_chain_sample *s)
{
    double leans = 0, squares = 0, variance;
    int n = 0;
    for (int k = 0; k < s->n_runs; k++) {
        const double share = leaning(s, s->runs + k * s->n, &variance);
        if (k < USC_CHAIN_SURE) leans = fmax(leans, fabs(share));
        if (k >= USC_CHAIN_SURE) squares += share * share;
        n += k >= USC_CHAIN_SURE;
    }
    const double share = leaning(s, NULL, &variance);
    const double usual = sqrt(squares / fmax(n, 1) + variance);
    return fabs(share) / (BASE + LEANS * leans + DRIFT * usual);
}
