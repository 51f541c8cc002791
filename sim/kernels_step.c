// SPDX-License-Identifier: Apache-2.0
// Steps of optimizers in a chosen arithmetic: each operation is rounded to the dtype that sums
// are kept in.
#include "fast.h"
#include "way.h"

/* The gradient with what decays the weights. */
static double taken(const way *w, const usc_sim_step *s, double grad, double param)
{
    const double g = s->maximize ? -grad : grad;
    return s->decoupled || !(s->weight_decay < 0 || s->weight_decay > 0)
               ? g
               : along(w, s->weight_decay, param, g);
}

static double size_of(const usc_sim_step *s)
{
    return s->lr / (1 - pow(s->beta1, s->n_steps));
}

static double root_of(const usc_sim_step *s)
{
    return sqrt(1 - pow(s->beta2, s->n_steps));
}

void usc_sim_adam(const usc_sim_numerics *n, usc_dtype dtype, const usc_sim_step *s,
                  const double *grad, size_t count, double *param, double *mean,
                  double *square, double *most)
{
    const way w = {n, dtype};
    const double size = size_of(s), root = root_of(s);
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

/* ---- many numbers of float32 ------------------------------------------------------------ */

#define MOST_LEFT FAST_MOST_LANES

static void wide(const float *from, size_t n, double *to)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (double)from[i];
}

static void narrow(const double *from, size_t n, float *to)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (float)from[i];
}

bool usc_sim_adam_floats(const usc_sim_numerics *n, usc_dtype dtype,
                         const usc_sim_step *s, const float *grad, size_t count,
                         float *param, float *mean, float *square, float *most)
{
    const fast_isa *isa = usc_sim_fast_isa();
    if (!usc_sim_is_fast(n, dtype) || (n->fma && !isa->fused)) return false;
    const fast_step f = {s,     n->fma, size_of(s), root_of(s), grad,
                         param, mean,   square,     most};
    isa->adam(&f, count);
    double g[MOST_LEFT], p[MOST_LEFT], m[MOST_LEFT], v[MOST_LEFT], top[MOST_LEFT];
    const size_t left = count % (isa->lanes / 2), at = count - left;
    wide(grad + at, left, g);
    wide(param + at, left, p);
    wide(mean + at, left, m);
    wide(square + at, left, v);
    if (most != NULL) wide(most + at, left, top);
    usc_sim_adam(n, dtype, s, g, left, p, m, v, most != NULL ? top : NULL);
    narrow(p, left, param + at);
    narrow(m, left, mean + at);
    narrow(v, left, square + at);
    if (most != NULL) narrow(top, left, most + at);
    return true;
}

bool usc_sim_sgd_floats(const usc_sim_numerics *n, usc_dtype dtype, const usc_sim_step *s,
                        const float *grad, size_t count, float *param, float *momentum)
{
    const fast_isa *isa = usc_sim_fast_isa();
    if (!usc_sim_is_fast(n, dtype) || (n->fma && !isa->fused)) return false;
    const fast_step f = {
        .step = s, .fma = n->fma, .grad = grad, .param = param, .mean = momentum};
    isa->sgd(&f, count);
    double g[MOST_LEFT], p[MOST_LEFT], m[MOST_LEFT];
    const size_t left = count % (isa->lanes / 2), at = count - left;
    wide(grad + at, left, g);
    wide(param + at, left, p);
    if (momentum != NULL) wide(momentum + at, left, m);
    usc_sim_sgd(n, dtype, s, g, left, p, momentum != NULL ? m : NULL);
    narrow(p, left, param + at);
    if (momentum != NULL) narrow(m, left, momentum + at);
    return true;
}
