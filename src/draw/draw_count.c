// SPDX-License-Identifier: Apache-2.0
// Counts of what was drawn: hits of one probability, runs of them, categories, values
// that come again. Formulas: docs/reference/metrics.md, 4.
#include "draw/draw_special.h"
#include "draw/draws.h"

#include "case/findings.h"

#include <math.h>

#define NORMAL_FROM 1e4 /* n p (1 - p): the tail is that of a normal deviate */

enum { MOST_TERMS = 4096 }; /* of a tail, which falls geometrically */

bool usc_count_odd(int64_t k, int64_t n, double p, double chance)
{
    const double hits = (double)k, all = (double)n;
    if (chance <= 0) chance = 2 * USC_DRAW_CHANCE;
    if (n == 0) return false;
    if (p <= 0 || p >= 1) return k != (p <= 0 ? 0 : n);
    const double variance = all * p * (1 - p);
    const double z = (hits - all * p) / sqrt(variance);
    if (fabs(z) < 4) return false;
    if (variance > NORMAL_FROM) return fabs(z) > usc_normal_bound(chance);
    const bool many = hits > all * p;
    double tail = 0;
    for (int64_t i = k, left = MOST_TERMS; i >= 0 && i <= n && left > 0;
         i += many ? 1 : -1, left--) {
        const double at = (double)i;
        tail += exp(usc_log_gamma(all + 1) - usc_log_gamma(at + 1) -
                    usc_log_gamma(all - at + 1) + at * log(p) + (all - at) * log1p(-p));
    }
    return tail < chance / 2;
}

bool usc_draw_count_odd(int64_t k, int64_t n, double p)
{
    return usc_count_odd(k, n, p, 0);
}

double usc_count_log_chance(double k, double n, double p)
{
    const double q = fmin(fmax(k / n, 0), 1);
    const double ones = q > 0 ? q * log(q / p) : 0;
    const double zeros = q < 1 ? (1 - q) * log((1 - q) / (1 - p)) : 0;
    return -n * (ones + zeros);
}

bool usc_runs_odd(const unsigned char *hits, int64_t n, bool what, double p,
                  usc_clause *out)
{
    if (n == 0 || !(p > 0 && p < 1)) return false;
    int64_t run = 0, most = 0, from = 0;
    for (int64_t i = 0; i < n; i++) {
        run = (hits[i] != 0) == what ? run + 1 : 0;
        if (run <= most) continue;
        most = run;
        from = i + 1 - run;
    }
    const double each = log(p);
    if ((double)run * each < log(USC_DRAW_CHANCE))
        return usc_clause_set(out, "%s, the last %s of them in a row",
                              what ? "ones or kept" : "zeros or dropped",
                              usc_count(run).text);
    if ((double)most * each + log((double)n) < log(USC_DRAW_CHANCE / 10))
        return usc_clause_set(out, "%s, %s of them in a row from %s on",
                              what ? "ones or kept" : "zeros or dropped",
                              usc_count(most).text, usc_count(from).text);
    return false;
}

bool usc_counts_odd(const double *came, const double *due, int64_t n, usc_clause *out)
{
    double sum = 0, most = -1;
    int64_t worst = 0;
    for (int64_t i = 0; i < n; i++) {
        const double square = (came[i] - due[i]) * (came[i] - due[i]) / due[i];
        sum += square;
        if (square <= most) continue;
        most = square;
        worst = i;
    }
    if (usc_gamma_above((double)(n - 1) / 2, sum / 2) > USC_DRAW_CHANCE / 10)
        return false;
    return usc_clause_set(
        out, "distributed otherwise (part %lld of %lld: %s where %s are due)",
        (long long)worst, (long long)n, usc_count((int64_t)came[worst]).text,
        usc_count((int64_t)rint(due[worst])).text);
}

/* The end: each element more has the chance of one value. */
static bool end_odd(const double *v, int64_t n, double atom, usc_clause *out)
{
    int64_t run = 1;
    while (run < n && v[n - 1 - run] == v[n - 1])
        run++;
    const int64_t free = v[n - 1] == 0 ? 0 : 1; /* a zero at the end needs no partner */
    if (!((double)(run - free) * log(atom) < log(USC_DRAW_CHANCE))) return false;
    return usc_clause_set(out, "the last %s elements are %.6g", usc_count(run).text,
                          v[n - 1]);
}

bool usc_values_repeat(usc_draws *d, usc_clause *out)
{
    const int64_t n = d->n_u;
    if (n < 2) return false;
    if (end_odd(d->values, n, d->atom, out)) return true;
    double *sorted = usc_arena_take(d->arena, (size_t)n * sizeof *sorted);
    if (sorted == NULL) return false;
    for (int64_t i = 0; i < n; i++)
        sorted[i] = d->values[i];
    usc_sort_doubles(sorted, (size_t)n);
    int64_t run = 0, most = 0;
    double value = 0;
    for (int64_t i = 0; i < n; i++) {
        run = i > 0 && sorted[i] == sorted[i - 1] ? run + 1 : 1;
        if (run <= most) continue;
        most = run;
        value = sorted[i];
    }
    /* of all values: Poisson's chance of so many, times how many values there are */
    const double due = (double)n * d->atom, k = (double)most;
    if (k <= due || k * log(due) - usc_log_gamma(k + 1) - due - log(d->atom) >=
                        log(USC_DRAW_CHANCE / 10))
        return false;
    return usc_clause_set(out, "%.6g comes %s times among %s", value,
                          usc_count(most).text, usc_count(n).text);
}
