// SPDX-License-Identifier: Apache-2.0
// One step of a chosen arithmetic on one number: rounded to the dtype that sums are kept in.
// Included by kernels_map.c (functions) and kernels_step.c (optimizers).
#ifndef USC_SIM_WAY_H
#define USC_SIM_WAY_H

#include <ulpscope_sim/numerics.h>

#include <math.h>

typedef struct way {
    const usc_sim_numerics *n;
    usc_dtype dtype;
} way;

static inline double kept(const way *w, double x)
{
    return usc_sim_round_sum(w->n, w->dtype, x);
}

/* a * b + c */
static inline double along(const way *w, double a, double b, double c)
{
    return w->n->fma ? kept(w, fma(a, b, c)) : kept(w, kept(w, a * b) + c);
}

#endif
