// SPDX-License-Identifier: Apache-2.0
// Steps of optimizers in a chosen arithmetic: each operation is rounded to the dtype that sums
// are kept in.
#include "way.h"

/* The gradient with what decays the weights. */
static double taken(const way *w, const usc_sim_step *s, double grad, double param)
{
    const double g = s->maximize ? -grad : grad;
    return s->decoupled || !(s->weight_decay < 0 || s->weight_decay > 0)
               ? g
               : along(w, s->weight_decay, param, g);
}

void usc_sim_adam(const usc_sim_numerics *n, usc_dtype dtype, const usc_sim_step *s,
                  const double *grad, size_t count, double *param, double *mean,
                  double *square, double *most)
{
    const way w = {n, dtype};
    const double size = s->lr / (1 - pow(s->beta1, s->n_steps));
    const double root = sqrt(1 - pow(s->beta2, s->n_steps));
    for (size_t i = 0; i < count; i++) {
        const double g = taken(&w, s, grad[i], param[i]);
        if (s->decoupled)
            param[i] = along(&w, -s->lr * s->weight_decay, param[i], param[i]);
        mean[i] = along(&w, 1 - s->beta1, kept(&w, g - mean[i]), mean[i]);
        square[i] =
            along(&w, kept(&w, (1 - s->beta2) * g), g, kept(&w, s->beta2 * square[i]));
        if (most != NULL && !(most[i] >= square[i])) most[i] = square[i];
        const double second = kept(&w, sqrt(most != NULL ? most[i] : square[i]));
        const double below = kept(&w, kept(&w, second / root) + s->epsilon);
        param[i] = kept(&w, param[i] - kept(&w, kept(&w, size * mean[i]) / below));
    }
}

void usc_sim_sgd(const usc_sim_numerics *n, usc_dtype dtype, const usc_sim_step *s,
                 const double *grad, size_t count, double *param, double *momentum)
{
    const way w = {n, dtype};
    for (size_t i = 0; i < count; i++) {
        double g = taken(&w, s, grad[i], param[i]);
        if (momentum != NULL) {
            momentum[i] = s->first ? g
                                   : along(&w, 1 - s->dampening, g,
                                           kept(&w, s->momentum * momentum[i]));
            g = s->nesterov ? along(&w, s->momentum, momentum[i], g) : momentum[i];
        }
        param[i] = along(&w, -s->lr, g, param[i]);
    }
}
