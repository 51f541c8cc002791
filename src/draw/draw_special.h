// SPDX-License-Identifier: Apache-2.0
// The functions of statistics that the C library lacks, and numbers that look like
// chance.
#ifndef USC_DRAW_SPECIAL_H
#define USC_DRAW_SPECIAL_H

#include <stddef.h>
#include <stdint.h>

/** The chance of a normal deviate below z. */
double usc_normal_below(double z);

/** What a normal deviate passes, on either side, with that chance. */
double usc_normal_bound(double chance);

/** Q(a, x) = Gamma(a, x) / Gamma(a), for a > 0: the chance that a Poisson variable of
 * rate x is below a, that chi-square of 2a degrees is above 2x. */
double usc_gamma_above(double a, double x);

/** log Gamma(x) for x > 0, from any thread. */
double usc_log_gamma(double x);

/** Number `i` of stream `seed`, even on [0, 1): the same whatever was asked before. */
double usc_even_number(uint64_t seed, uint64_t i);

/** Sorts doubles without NaN upwards. */
void usc_sort_doubles(double *x, size_t n);

/** How many doubles of room the correlations of n numbers take. */
size_t usc_lags_room(int64_t n);

/**
 * The sums over i of x[i] x[i + k] up to one factor, for k = 0 to n - 1, in `out`.
 *
 * `room` has usc_lags_room(n) doubles; `out` may be its beginning.
 */
void usc_lags(const double *x, int64_t n, double *room, double *out);

#endif
