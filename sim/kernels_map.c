// SPDX-License-Identifier: Apache-2.0
// Functions of one number in a chosen arithmetic: each step is rounded to the dtype that sums
// are kept in; exponentials exactly or by a polynomial, as kernels without a library take
// them.
#include "way.h"

/* e^x = 2^k e^r, |r| <= ln 2 / 2: the first terms of e^r's series. */
static double exp_by_terms(const way *w, double x)
{
    static const double high = 0x1.62e42p-1, low = 0x1.fdf473de6af28p-22;
    if (!(fabs(x) < 800)) return exp(x);
    const double k = rint(x * 0x1.71547652b82fep+0);
    const double r = kept(w, kept(w, x - k * high) - k * low);
    double sum = 0;
    for (int64_t i = w->n->degree; i >= 0; i--)
        sum = along(w, sum, r, kept(w, 1 / tgamma((double)i + 1)));
    return kept(w, ldexp(sum, (int)k));
}

static double exponential(const way *w, double x)
{
    return w->n->degree > 0 ? exp_by_terms(w, x) : kept(w, exp(x));
}

/* Near 0, where 1 - 2 / (e^2x + 1) would lose its bits, by its own series. */
static double tanh_by_terms(const way *w, double x)
{
    static const double terms[] = {
        -929569. / 638512875, 21844. / 6081075, -1382. / 155925, 62. / 2835,
        -17. / 315,           2. / 15,          -1. / 3};
    if (fabs(x) >= 0.35) {
        const double e = exponential(w, 2 * fabs(x));
        return copysign(kept(w, 1 - kept(w, 2 / kept(w, e + 1))), x);
    }
    const double square = kept(w, x * x);
    double sum = 0;
    for (size_t i = 0; i < sizeof terms / sizeof terms[0]; i++)
        sum = along(w, sum, square, kept(w, terms[i]));
    return along(w, kept(w, sum * square), x, x);
}

static double hyperbolic(const way *w, double x)
{
    return w->n->degree > 0 ? tanh_by_terms(w, x) : kept(w, tanh(x));
}

static double sigmoid(const way *w, double x)
{
    return kept(w, 1 / kept(w, 1 + exponential(w, -x)));
}

static double gelu(const way *w, double x)
{
    const double inner = kept(w, erf(kept(w, x * kept(w, M_SQRT1_2))));
    return kept(w, kept(w, 0.5 * x) * kept(w, 1 + inner));
}

static double gelu_by_tanh(const way *w, double x)
{
    const double cube = kept(w, kept(w, x * x) * x);
    const double inner =
        kept(w, kept(w, M_2_SQRTPI * M_SQRT1_2) * along(w, kept(w, 0.044715), cube, x));
    return kept(w, kept(w, 0.5 * x) * kept(w, 1 + hyperbolic(w, inner)));
}

void usc_sim_map(const usc_sim_numerics *n, usc_dtype dtype, usc_sim_function function,
                 const double *x, size_t count, double *out)
{
    const way w = {n, dtype};
    for (size_t i = 0; i < count; i++)
        switch (function) {
        case USC_SIM_EXP:
            out[i] = exponential(&w, x[i]);
            break;
        case USC_SIM_TANH:
            out[i] = hyperbolic(&w, x[i]);
            break;
        case USC_SIM_SIGMOID:
            out[i] = sigmoid(&w, x[i]);
            break;
        case USC_SIM_SILU:
            out[i] = kept(&w, x[i] * sigmoid(&w, x[i]));
            break;
        case USC_SIM_GELU:
            out[i] = gelu(&w, x[i]);
            break;
        case USC_SIM_GELU_TANH:
            out[i] = gelu_by_tanh(&w, x[i]);
            break;
        }
}
