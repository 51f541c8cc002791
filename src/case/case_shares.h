// SPDX-License-Identifier: Apache-2.0
// What elements of an output have in common beside runs of float32. c->lost has the sums.
#ifndef USC_CASE_SHARES_H
#define USC_CASE_SHARES_H

#include "case/case_state.h"

/** Times what is cut off by the coarsest units: so much may all elements share by it. */
#define MOST_CUT 1.5

/** Roundings that all elements may have in common: two functions. */
#define USC_SHARED_BASE 16.0

/** Times as much where tensor cores may cut off every sum. */
#define USC_CUT_OFF 4.0

/** The share of itself by which all of a result may be off in float32: so many roundings,
 * and what an accumulator drifts in sums of `fan_in` terms. */
double usc_shared_drift(double base, double fan_in);

/** How many rows are looked at; 0: it has none. How many shares a pack keeps. */
int64_t usc_shares_n_rows(const usc_case *c);
int64_t usc_shares_n(const usc_case *c);

/** By which share all of it is off, and which part of its squared errors that is. */
double usc_share_of_all(const usc_case *c, const double *got, double *explained);

/** Adds those of a run. */
void usc_shares_add(usc_case *c, const double *run);

/** The root mean square of what rows have in common, where that is more than runs have; 0:
 * it is not. */
double usc_shares_rows(const usc_case *c);

/** The share of all of what is ill-conditioned, where that is so many times what runs have
 * and more than accumulators lose that cut off; 0: it is not. */
double usc_shares_all(const usc_case *c, double times);

/** What runs have in common, to be kept (usc_shares_n of them: of all elements, where these
 * are cut off, of rows; NULL: no memory), and taken from what is kept (NULL: nothing is). */
const double *usc_shares_of_runs(usc_case *c);
void usc_shares_take(usc_case *c, const usc_tensor *kept);

#endif
