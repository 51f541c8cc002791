// SPDX-License-Identifier: Apache-2.0
// Tails of even numbers, and smooth waves over [0, 1): a tail that is clipped or redrawn,
// a normal made of a few even numbers. Formulas: docs/reference/metrics.md, 4.
#include "draw/draw_special.h"
#include "draw/draws.h"

#include "case/findings.h"

#include <math.h>

enum {
    BEYOND = 6, /* tails are cut so many bits deeper than one of all draws lies */
    MOST_DEPTH = 30,
    FIRST_WAVE = 3, /* average and spread are those before it */
    LAST_WAVE = 6,
    WAVED = 256, /* draws from which waves are looked at */
};

/* How many lie within 2^-depth of 0 and of 1. */
static void count_tails(const usc_draws *d, int64_t below[], int64_t above[], int depth)
{
    for (int64_t i = 0; i < d->n_u; i++) {
        const double u = d->u[i];
        if (isnan(u)) continue;
        double bar = 0.5;
        for (int k = 1; k <= depth && u < bar; k++, bar *= 0.5)
            below[k]++;
        bar = 0.5;
        for (int k = 1; k <= depth && u >= 1 - bar; k++, bar *= 0.5)
            above[k]++;
    }
}

/* One tail, which rounding may have made longer or shorter by the slack. */
static bool tail_odd(const usc_draws *d, int64_t k, int depth, bool low, double share,
                     usc_clause *out)
{
    const double p = ldexp(1, -depth), n = (double)d->n_seen, hits = (double)k;
    const double at = hits > n * p ? p + d->slack : p - d->slack;
    if (!(at > 0 && at < 1) || (hits > n * p) != (hits > n * at) ||
        !usc_count_odd(k, d->n_seen, at, share))
        return false;
    return usc_clause_set(out, "%s of %s draws in the %s 2^-%d, where %.4g are due",
                          usc_count(k).text, usc_count(d->n_seen).text,
                          low ? "lowest" : "highest", depth, n * p);
}

static bool tails_odd(const usc_draws *d, usc_clause *out)
{
    int64_t below[MOST_DEPTH + 1] = {0}, above[MOST_DEPTH + 1] = {0};
    int depth = BEYOND;
    while (depth < MOST_DEPTH && ldexp(1, depth - BEYOND) < (double)d->n_seen)
        depth++;
    count_tails(d, below, above, depth);
    const double share = d->family / (8 * depth);
    for (int k = 1; k <= depth; k++)
        if (tail_odd(d, below[k], k, true, share, out) ||
            tail_odd(d, above[k], k, false, share, out))
            return true;
    return false;
}

/* A gap before the first and behind the last of all: (1 - gap)^n. */
static bool ends_odd(const usc_draws *d, usc_clause *out)
{
    double least = 1, most = 0;
    for (int64_t i = 0; i < d->n_u; i++) {
        if (isnan(d->u[i])) continue;
        least = fmin(least, d->u[i]);
        most = fmax(most, d->u[i]);
    }
    const bool low = least > 1 - most;
    const double gap = fmax(low ? least : 1 - most, d->slack) - d->slack;
    if ((double)d->n_seen * log1p(-gap) > log(d->family / 8)) return false;
    return usc_clause_set(out, "none of %s draws in the %s %.3g, where %.4g are due",
                          usc_count(d->n_seen).text, low ? "lowest" : "highest", gap,
                          gap * (double)d->n_seen);
}

/* Legendre's polynomials of 2u - 1 have variance 1 / (2j + 1), no slope above
 * j (j + 1), and nothing to do with each other (Neyman's smooth test, 1937). */
static bool waves_odd(const usc_draws *d, usc_clause *out)
{
    double sums[LAST_WAVE + 1] = {0};
    const double n = (double)d->n_seen;
    if (d->n_seen < WAVED) return false;
    for (int64_t i = 0; i < d->n_u; i++) {
        const double x = 2 * d->u[i] - 1;
        double before = 1, now = x;
        if (isnan(x)) continue;
        for (int j = 1; j < LAST_WAVE; j++) {
            const double next = ((2 * j + 1) * x * now - j * before) / (j + 1);
            before = now;
            now = next;
            sums[j + 1] += now;
        }
    }
    const double bound =
        usc_normal_bound(d->family / 2 / (2 * (LAST_WAVE - FIRST_WAVE + 1)));
    for (int j = FIRST_WAVE; j <= LAST_WAVE; j++) {
        const double off = fmax(fabs(sums[j] / n) - d->slack * j * (j + 1), 0);
        const double z = off * sqrt((2 * j + 1) * n);
        if (z > bound)
            return usc_clause_set(out,
                                  "distributed otherwise (wave %d of [0, 1), "
                                  "z = %.1f)",
                                  j, z);
    }
    return false;
}

bool usc_draws_bent(usc_draws *d, usc_clause *out)
{
    if (d->n_seen < USC_DRAW_ENOUGH || d->once) return false;
    return tails_odd(d, out) || ends_odd(d, out) || waves_odd(d, out);
}
