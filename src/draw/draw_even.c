// SPDX-License-Identifier: Apache-2.0
// Whether numbers look like independent even draws from [0, 1). Formulas:
// docs/metrics.md,
// 4. Everything is summed in one order on one thread.
#include "draw/draw_special.h"
#include "draw/draws.h"

#include "base/number.h"
#include "case/findings.h"

#include <math.h>
#include <stdarg.h>

#define KOLMOGOROV 2.9   /* in 1 / sqrt(n): 1e-7 */
#define BLOCK_SIGMAS 6.0 /* N_BLOCKS times 2e-9 */
#define FINE 0x1p-20     /* slack below which cells of equal probability can be cut */
#define LEAST_LAG_SIGMAS 7.0

enum {
    N_BLOCKS = 32,
    BLOCKED = 1024, /* elements from which blocks are looked at */
    MOST_CELLS = 64,
    CELL_DUE = 8, /* elements */
};

bool usc_clause_set(usc_clause *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)usc_format_list(out->text, sizeof out->text, format, args);
    va_end(args);
    return true;
}

/* The numbers that count. */
typedef struct even_numbers {
    usc_arena *arena;
    const double *u; /* NaN: does not count */
    int64_t size, n;
    double slack;
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
 * about 2 exp(-2 c^2). */
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

static bool blocks_odd(const even_numbers *e, usc_clause *out)
{
    if (e->size < BLOCKED) return false;
    const int64_t size = (e->size + N_BLOCKS - 1) / N_BLOCKS;
    for (int64_t from = 0; from < e->size; from += size) {
        const int64_t end = from + size < e->size ? from + size : e->size;
        double sum = 0, n = 0;
        for (int64_t i = from; i < end; i++) {
            sum += centred(e, i);
            n += isnan(e->u[i]) ? 0 : 1;
        }
        const double z = fabs(beyond(sum / fmax(n, 1), e->slack)) * sqrt(12 * n);
        if (z > BLOCK_SIGMAS)
            return usc_clause_set(out, "elements %s to %s are off (z = %.1f)",
                                  usc_count(from).text, usc_count(end - 1).text, z);
    }
    return false;
}

/* The largest autocorrelation over all lags up to half of the elements: a generator that
 * repeats itself, rows that share their draws. */
static bool lags_odd(const even_numbers *e, usc_clause *out)
{
    double *room = usc_arena_take(e->arena, usc_lags_room(e->size) * sizeof *room);
    double *x = usc_arena_take(e->arena, (size_t)e->size * sizeof *x);
    if (room == NULL || x == NULL) return false;
    double mean = 0;
    for (int64_t i = 0; i < e->size; i++)
        mean += centred(e, i);
    mean /= (double)e->n;
    for (int64_t i = 0; i < e->size; i++)
        x[i] = isnan(e->u[i]) ? 0 : centred(e, i) - mean;
    usc_lags(x, e->size, room, room);
    const int64_t n_lags = e->size / 2;
    int64_t worst = 1;
    for (int64_t k = 1; k <= n_lags; k++)
        if (fabs(room[k]) > fabs(room[worst])) worst = k;
    const double r = n_lags > 0 && room[0] > 0 ? room[worst] / room[0] : 0;
    const double bound = usc_normal_bound(USC_DRAW_CHANCE / (double)(n_lags + 1));
    if (!(fabs(r) * sqrt((double)e->n) > fmax(LEAST_LAG_SIGMAS, bound))) return false;
    return usc_clause_set(out,
                          "depend on the element %s place%s before (correlation %.2g)",
                          usc_count(worst).text, worst == 1 ? "" : "s", r);
}

bool usc_draws_uneven(usc_draws *d, usc_clause *out)
{
    even_numbers e = {.arena = d->arena, .u = d->u, .size = d->n_u, .slack = d->slack};
    for (int64_t i = 0; i < e.size; i++)
        e.n += !isnan(e.u[i]);
    if (e.n < USC_DRAW_ENOUGH) return false;
    return moments_odd(&e, out) || shape_odd(&e, out) || cells_odd(&e, out) ||
           blocks_odd(&e, out) || lags_odd(&e, out);
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
