// SPDX-License-Identifier: Apache-2.0
// What tells a slope from a step: the one place for whoever looks at moved inputs.
#ifndef USC_JUDGE_SLOPES_H
#define USC_JUDGE_SLOPES_H

#include <ulpscope/judge.h>

#include <math.h>
#include <stdbool.h>

#include "tensor/walk.h"

#define USC_STEEP 0x1p-12 /* of a result: below it a difference needs no second look */

/** Root mean square of the finite elements; 0 where there is none. */
double usc_judge_typical(const usc_walk *walk, int64_t n);

/** Whether an element moved more than a slope usually does, or out of the finite;
 * `typical`: the root mean square of the finite truth. */
static inline bool usc_is_suspect(double truth, double moved, double typical)
{
    const double size = fmax(fabs(truth), typical);
    return isfinite(truth) && !(fabs(moved - truth) <= USC_STEEP * size);
}

/** Roundings that one of few numbers may be off by before runs of float32 are asked. */
#define USC_FEW_ROUNDINGS 16

/** Whether a difference grew with the distance, within a factor of 2, where the nearer
 * run went USC_NEARER_PART of the way. */
static inline bool usc_is_slope(double far, double near)
{
    return far * USC_NEARER_PART >= near / 2 && far * USC_NEARER_PART <= near * 2;
}

/** Whether all of the difference stays: the step lies beside the input, not upon it. */
static inline bool usc_is_beside(double far, double near)
{
    return near * 2 <= far;
}

#define USC_BENDS 16 /* times the slope nearby: so much a function bends on the way */

/** Whether a step lies between an input and where it was moved to: the way further away
 * changed far more than the slope nearby explains. A slope whose function has come to its
 * limit on that way is none. */
static inline bool usc_is_step(double far, double near)
{
    return usc_is_beside(far, near) && far * USC_NEARER_PART > near * USC_BENDS;
}

#endif
