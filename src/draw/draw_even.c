// SPDX-License-Identifier: Apache-2.0
// Whether numbers look like independent even draws from [0, 1). Formulas:
// docs/reference/metrics.md,
// 4. Everything is summed in one order on one thread.
#include "draw/draw_place.h"
#include "draw/draw_special.h"
#include "draw/draws.h"

#include "base/number.h"
#include "case/findings.h"

#include <math.h>

#define KOLMOGOROV 2.9 /* in 1 / sqrt(n): 1e-7 */
#define TOO_EVEN 0.2   /* in 1 / sqrt(n): 5e-13 */
#define FINE 0x1p-20   /* slack below which cells of equal probability can be cut */

enum {
    MOST_CELLS = 64,
    CELL_DUE = 8, /* elements */
};

/* The numbers that count. */
typedef struct even_numbers {
    usc_arena *arena;
    const double *u; /* NaN: does not count */
    int64_t size, n;
    double slack;
    bool once; /* each comes once: evenly by itself */
} even_numbers;

static double centred(const even_numbers *e, int64_t i)
{
    return isnan(e->u[i]) ? 0 : e->u[i] - 0.5;
}

static double beyond(double value, double slack)
{
    return copysign(fmax(fabs(value) - slack, 0), value);
}

/* Variances of the mean and of the mean square of n numbers even on [-1/2, 1/2): 1 / 12n
 * and 1 / 180n. */
static bool moments_odd(const even_numbers *e, usc_clause *out)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < e->size; i++) {
        const double c = centred(e, i);
        sum += c;
        squares += c * c;
    }
    const double n = (double)e->n;
    double z = beyond(sum / n, e->slack) * sqrt(12 * n);
    if (fabs(z) > USC_DRAW_SIGMAS)
        return usc_clause_set(out, "too %s on average (z = %.1f)",
                              z > 0 ? "large" : "small", z);
    z = beyond(squares / n - 1 / 12., e->slack) * sqrt(180 * n);
    if (fabs(z) > USC_DRAW_SIGMAS)
        return usc_clause_set(out, "spread too %s (z = %.1f)", z > 0 ? "wide" : "narrow",
                              z);
    return false;
}

/* Kolmogorov's distance: sup |F_n(u) - u|, which passes c / sqrt(n) with a chance of
 * about 2 exp(-2 c^2), and stays below it with one of sqrt(2 pi) / c exp(-pi^2 / 8 c^2):
 * a number from each part of a grid. */
static bool shape_odd(const even_numbers *e, usc_clause *out)
{
    double *sorted = usc_arena_take(e->arena, (size_t)e->n * sizeof *sorted);
    if (sorted == NULL) return false;
    int64_t k = 0;
    for (int64_t i = 0; i < e->size; i++)
        if (!isnan(e->u[i])) sorted[k++] = e->u[i];
    usc_sort_doubles(sorted, (size_t)k);
    const double n = (double)e->n;
    double gap = 0;
    for (int64_t i = 0; i < k; i++) {
        gap = fmax(gap, (double)(i + 1) / n - sorted[i]);
        gap = fmax(gap, sorted[i] - (double)i / n);
    }
    if (!e->once && gap < TOO_EVEN / sqrt(n) && e->slack < TOO_EVEN / 10 / sqrt(n))
        return usc_clause_set(
            out, "distributed too evenly (Kolmogorov distance %.2g over %s elements)",
            gap, usc_count(e->n).text);
    if (gap <= KOLMOGOROV / sqrt(n) + e->slack) return false;
    return usc_clause_set(
        out, "distributed otherwise (Kolmogorov distance %.3g over %s elements)", gap,
        usc_count(e->n).text);
}

/* A value that is missing shows in the counts of cells. */
static bool cells_odd(const even_numbers *e, usc_clause *out)
{
    const int64_t count = e->n / CELL_DUE < MOST_CELLS ? e->n / CELL_DUE : MOST_CELLS;
    double came[MOST_CELLS] = {0}, due[MOST_CELLS];
    if (count < 2 || e->slack >= FINE) return false;
    for (int64_t i = 0; i < e->size; i++) {
        if (isnan(e->u[i])) continue;
        const int64_t cell = (int64_t)(e->u[i] * (double)count);
        came[cell < count ? cell : count - 1] += 1;
    }
    for (int64_t i = 0; i < count; i++)
        due[i] = (double)e->n / (double)count;
    return usc_counts_odd(came, due, count, out);
}

/* Of products of two scores, each of variance `spread` and none above `most` in size,
 * Bernstein's bound: the logarithm of the chance that m of them add up to so much. */
static double log_chance(double sum, double m, double spread, double most)
{
    return -sum * sum / (2 * (m * spread * spread + most * most * fabs(sum) / 3));
}

/* The largest autocorrelation over all lags: a generator that repeats itself, rows that
 * share their draws. */
static bool lags_odd(usc_draws *d, const usc_score *s, double share, usc_clause *out)
{
    double *room = usc_arena_take(d->arena, usc_lags_room(d->n_u) * sizeof *room);
    double *x = usc_arena_take(d->arena, (size_t)d->n_u * sizeof *x);
    if (room == NULL || x == NULL) return false;
    const double n = (double)d->n_seen;
    double mean = 0, squares = 0, most = fmax(s->chance, 1 - s->chance) * (s->chance > 0);
    for (int64_t i = 0; i < d->n_u; i++)
        mean += isnan(s->y[i]) ? 0 : (double)s->y[i] / n;
    for (int64_t i = 0; i < d->n_u; i++) {
        x[i] = isnan(s->y[i]) ? 0 : (double)s->y[i] - mean;
        squares += x[i] * x[i];
        most = fmax(most, fabs(x[i]));
    }
    usc_lags(x, d->n_u, room, room);
    const double bar = log(share / (2 * (double)d->n_u));
    const double spread = fmax(squares / n, s->variance / 2); /* rare ones: none came */
    double worst = 0, sum_worst = 0;
    int64_t at = 0;
    for (int64_t k = 1; k < d->n_u && room[0] > 0; k++) {
        const double sum = room[k] / room[0] * squares;
        const double m = fmin((double)(d->n_u - k), n);
        const double chance = log_chance(sum, m, spread, most);
        if (chance >= worst) continue;
        worst = chance;
        sum_worst = sum;
        at = k;
    }
    if (worst >= bar) return false;
    const bool level = s->kind != USC_SCORE_SPREAD;
    return usc_clause_set(out, "%s on the element %s place%s before (correlation %.2g)",
                          level ? "depend" : "lie as far from the middle depending",
                          usc_count(at).text, at == 1 ? "" : "s", sum_worst / squares);
}

bool usc_draws_uneven(usc_draws *d, usc_clause *out)
{
    even_numbers e = {
        .arena = d->arena, .u = d->u, .size = d->n_u, .slack = d->slack, .once = d->once};
    for (int64_t i = 0; i < e.size; i++)
        e.n += !isnan(e.u[i]);
    if (e.n < USC_DRAW_ENOUGH) return false;
    const bool ones = d->hits != NULL; /* whose number tells all of that */
    if (!ones && (moments_odd(&e, out) || shape_odd(&e, out) || cells_odd(&e, out)))
        return true;
    const usc_scores *scores = usc_scores_of(d);
    return scores != NULL &&
           (lags_odd(d, &scores->of[0], USC_DRAW_CHANCE, out) ||
            (scores->n > 1 && lags_odd(d, &scores->of[1], d->family, out)));
}

bool usc_draws_related(const usc_draws *a, const usc_draws *b, usc_clause *out)
{
    double sum = 0;
    int64_t n = 0;
    if (a->n_u != b->n_u) return false;
    for (int64_t i = 0; i < a->n_u; i++) {
        if (isnan(a->u[i]) || isnan(b->u[i])) continue;
        sum += (a->u[i] - 0.5) * (b->u[i] - 0.5);
        n++;
    }
    if (n < USC_DRAW_ENOUGH) return false;
    const double z = 12 * sum / sqrt((double)n);
    return fabs(z) > USC_DRAW_SIGMAS &&
           usc_clause_set(out, "two calls give related numbers (z = %.1f)", z);
}
