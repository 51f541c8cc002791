// SPDX-License-Identifier: Apache-2.0
// What elements have in common: one share by which a row, or all of it, is off. Rounding has
// none, but for what runs of float32 have. Neighbours: case_lost.c, which asks;
// case_factor.c and case_own.c, which know what may drift.
#include "case/case_shares.h"

#include <math.h>

#define ROUNDING 0x1p-24 /* of float32 */
#define SHARE 0.25       /* of rows: so many at the least */
#define EXPLAINED 0.5    /* of the squared errors, by one share in all of them */
#define SLOPE 0.25       /* what an accumulator drifts, times the root of the fan-in */
#define MOST_SHARED 8.0  /* times what runs have in common: so much a row may */
enum { FEWEST = 8, FEWEST_ROWS = 3 };
enum { N_SHARES = 2 }; /* of all elements that are kept, before those of rows */

double usc_shared_drift(double base, double fan_in)
{
    return (base + SLOPE * sqrt(fmax(fan_in, 1))) * ROUNDING;
}

static int64_t width_of(const usc_case *c)
{
    return c->device.ndim > 0 ? c->device.sizes[c->device.ndim - 1] : 1;
}

static bool has_rows(const usc_case *c)
{
    return width_of(c) >= FEWEST && c->n / width_of(c) >= FEWEST_ROWS;
}

int64_t usc_shares_n_rows(const usc_case *c)
{
    return has_rows(c) ? c->n / width_of(c) : 0;
}

int64_t usc_shares_n(const usc_case *c)
{
    return N_SHARES + usc_shares_n_rows(c);
}

/* By which share a row is off, on the whole; 0 where that is nothing. */
static double share_of_row(const usc_case *c, const double *got, int64_t at)
{
    double er = 0, rr = 0;
    for (int64_t i = at; i < at + width_of(c); i++) {
        const double off = got[i] - c->r[i];
        if (!isfinite(off)) continue;
        er += off * c->r[i];
        rr += c->r[i] * c->r[i];
    }
    return rr > 0 ? er / rr : 0;
}

double usc_share_of_all(const usc_case *c, const double *got, double *explained)
{
    double er = 0, rr = 0, ee = 0;
    for (int64_t i = 0; i < c->n; i++) {
        const double off = got[i] - c->r[i];
        if (!isfinite(off)) continue;
        er += off * c->r[i];
        rr += c->r[i] * c->r[i];
        ee += off * off;
    }
    *explained = ee > 0 && rr > 0 ? er * er / (rr * ee) : 0;
    return rr > 0 ? er / rr : 0;
}

void usc_shares_add(usc_case *c, const double *run)
{
    double explained;
    const double all = usc_share_of_all(c, run, &explained);
    c->lost.shares += all * all;
    if (c->lost.rows == NULL) return;
    for (int64_t k = 0; k < c->n / width_of(c); k++) {
        const double share = share_of_row(c, run, k * width_of(c));
        c->lost.rows[k] += share * share;
    }
}

double usc_shares_rows(const usc_case *c)
{
    if (c->lost.rows == NULL) return 0;
    const double least = usc_shared_drift(USC_SHARED_BASE, c->f.judgement.fan_in);
    const int64_t n = c->n / width_of(c);
    int64_t n_more = 0;
    double sum = 0;
    for (int64_t k = 0; k < n; k++) {
        const double share = share_of_row(c, c->d, k * width_of(c));
        const double runs = sqrt(c->lost.rows[k] / c->lost.n_runs);
        sum += share * share;
        n_more += fabs(share) > fmax(least, MOST_SHARED * runs);
    }
    const bool many = n_more >= FEWEST_ROWS && (double)n_more >= SHARE * (double)n;
    return many ? sqrt(sum / (double)n) : 0;
}

double usc_shares_all(const usc_case *c, double times)
{
    if (!(c->lost.shares >= 0)) return 0; /* nothing is kept of them */
    double explained;
    const double least = usc_shared_drift(USC_SHARED_BASE, c->f.judgement.fan_in);
    const double runs = sqrt(c->lost.shares / c->lost.n_runs);
    const double share = usc_share_of_all(c, c->d, &explained);
    const double cut = MOST_CUT * c->lost.share_cut;
    const double own = share * cut > 0 ? fabs(share) - fabs(cut) : fabs(share);
    const bool is_one = explained >= EXPLAINED && own > fmax(least, times * runs);
    return is_one ? share : 0;
}

void usc_shares_take(usc_case *c, const usc_tensor *kept)
{
    const double *shares = kept != NULL ? usc_case_wide(c, kept) : NULL;
    int64_t n = 0;
    if (shares == NULL || usc_tensor_numel(kept, &n, NULL) != USC_OK || n < N_SHARES ||
        (has_rows(c) && n != usc_shares_n(c))) { /* of which nothing is kept */
        c->lost.rows = NULL;
        c->lost.shares = (double)NAN;
        return;
    }
    c->lost.n_runs = 1;
    c->lost.shares = shares[0] * shares[0];
    c->lost.share_cut = shares[1];
    for (int64_t k = 0; k < n - N_SHARES && c->lost.rows != NULL; k++)
        c->lost.rows[k] = shares[N_SHARES + k] * shares[N_SHARES + k];
}

const double *usc_shares_of_runs(usc_case *c)
{
    double *shares = usc_case_room(c, usc_shares_n(c), sizeof *shares);
    if (shares == NULL) return NULL;
    shares[0] = sqrt(c->lost.shares / c->lost.n_runs);
    shares[1] = c->lost.share_cut;
    for (int64_t k = 0; k < usc_shares_n(c) - N_SHARES && c->lost.rows != NULL; k++)
        shares[N_SHARES + k] = sqrt(c->lost.rows[k] / c->lost.n_runs);
    return shares;
}
