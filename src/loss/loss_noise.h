// SPDX-License-Identifier: Apache-2.0
// How much a curve wavers: docs/reference/loss.md, section 2.
#ifndef USC_LOSS_NOISE_H
#define USC_LOSS_NOISE_H

#include <ulpscope/x/loss.h>

enum { USC_LOSS_FEW = 8 }; /* steps below which nothing is told of noise */

/** Median of `n` numbers, which it puts in another order; 0 of none. */
double usc_loss_median(double *values, size_t n);

/** Mean of `n` numbers; 0 of none. */
double usc_loss_mean(const double *values, int64_t n);

/**
 * Standard deviation of `values` about their local trend, at each of `n` >= USC_LOSS_FEW
 * places, to `out`; of usc_loss_spread, from squares of deviations (repeated runs).
 * `difference`: of two curves, in which a spike is to be found.
 * Errors: USC_E_NOMEM.
 */
USC_NODISCARD usc_status usc_loss_roughness(const double *values, int64_t n,
                                            bool difference, double *out, usc_error *err);
USC_NODISCARD usc_status usc_loss_spread(const double *squares, int64_t n, double *out,
                                         usc_error *err);

/** How far each of `n` values lies off the line between its neighbours, as a deviation:
 * the same for n >= 3 values, to `out`; 0 of fewer. */
void usc_loss_off_line(const double *values, int64_t n, double *out);

/** Median of that over all places: how much values waver as a whole. Memory: `work` holds
 * n. */
double usc_loss_waver(const double *values, int64_t n, double *work);

#endif
