// SPDX-License-Identifier: Apache-2.0
// Steps of optimizers, a vector of numbers at a time, bit by bit what kernels_step.c defines;
// part of fast_lanes.h. Settings are of float64: what is multiplied or divided by one is
// taken in float64, and rounded.

static inline half_t half_at(const float *at)
{
    half_t x;
    memcpy(&x, at, sizeof x);
    return x;
}

static inline wide_t wide_of(half_t x)
{
    return WIDEN(x);
}

static inline half_t times(double a, half_t x)
{
    return narrowed(wide_all(a) * wide_of(x));
}

/* a * b + c as way.h's along() has it; fma only where the processor fuses. */
static inline half_t stepped(bool fma, double a, half_t b, half_t c)
{
    return fma ? narrowed(MAD(wide_all(a), wide_of(b), wide_of(c))) : times(a, b) + c;
}

/* The gradient with what decays the weights. */
static inline half_t taken(const usc_sim_step *s, bool fma, half_t grad, half_t param)
{
    const half_t g = s->maximize ? -grad : grad;
    return s->decoupled || !(s->weight_decay < 0 || s->weight_decay > 0)
               ? g
               : stepped(fma, s->weight_decay, param, g);
}

/* The larger of the two; `now` where one is no number. */
static inline half_t largest(half_t most, half_t now)
{
    half_mask_t a, b;
    const half_mask_t stays = most >= now;
    memcpy(&a, &most, sizeof a);
    memcpy(&b, &now, sizeof b);
    a = (a & stays) | (b & ~stays);
    memcpy(&most, &a, sizeof most);
    return most;
}

static void adam(const fast_step *given, size_t n)
{
    const fast_step f = *given; /* no copy of which what is written may lie on */
    const usc_sim_step s = *f.step;
    for (size_t i = 0; i + WIDE <= n; i += WIDE) {
        half_t param = half_at(f.param + i), mean = half_at(f.mean + i),
               square = half_at(f.square + i);
        const half_t g = taken(&s, f.fma, half_at(f.grad + i), param);
        if (s.decoupled) param = stepped(f.fma, -s.lr * s.weight_decay, param, param);
        mean = stepped(f.fma, 1 - s.beta1, g - mean, mean);
        const half_t part = times(1 - s.beta2, g), rest = times(s.beta2, square);
        square = f.fma ? narrowed(MAD(wide_of(part), wide_of(g), wide_of(rest)))
                       : part * g + rest;
        store_half(f.mean + i, mean);
        store_half(f.square + i, square);
        if (f.most != NULL) {
            square = largest(half_at(f.most + i), square);
            store_half(f.most + i, square);
        }
        /* the root of a float32 is rounded alike in float32 and from float64 */
        const wide_t second = rounded(wide_of(ROOT(square)) / wide_all(f.root));
        const half_t below = narrowed(second + wide_all(s.epsilon));
        store_half(f.param + i, param - times(f.size, mean) / below);
    }
}

static void sgd(const fast_step *given, size_t n)
{
    const fast_step f = *given;
    const usc_sim_step s = *f.step;
    for (size_t i = 0; i + WIDE <= n; i += WIDE) {
        const half_t param = half_at(f.param + i);
        half_t g = taken(&s, f.fma, half_at(f.grad + i), param);
        if (f.mean != NULL) {
            half_t m = g;
            if (!s.first)
                m = stepped(f.fma, 1 - s.dampening, g,
                            times(s.momentum, half_at(f.mean + i)));
            store_half(f.mean + i, m);
            g = s.nesterov ? stepped(f.fma, s.momentum, m, g) : m;
        }
        store_half(f.param + i, stepped(f.fma, -s.lr, g, param));
    }
}
