// SPDX-License-Identifier: Apache-2.0
// Functions of one number in a chosen arithmetic: each step is rounded to the dtype that sums
// are kept in; exponentials exactly or by a polynomial, as kernels without a library take
// them.
#include "fast.h"
#include "way.h"

#include <string.h>

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

/* Of tanh(x) / x - 1 in x^2, from the lowest. */
static const double tangent_terms[FAST_TANGENT_TERMS] = {
    -1. / 3,         2. / 15,          -17. / 315,          62. / 2835,
    -1382. / 155925, 21844. / 6081075, -929569. / 638512875};

/* Near 0, where 1 - 2 / (e^2x + 1) would lose its bits, by its own series. */
static double tanh_by_terms(const way *w, double x)
{
    if (fabs(x) >= 0.35) {
        const double e = exponential(w, 2 * fabs(x));
        return copysign(kept(w, 1 - kept(w, 2 / kept(w, e + 1))), x);
    }
    const double square = kept(w, x * x);
    double sum = 0;
    for (size_t i = FAST_TANGENT_TERMS; i-- > 0;)
        sum = along(w, sum, square, kept(w, tangent_terms[i]));
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

void usc_sim_drop(const usc_sim_numerics *n, usc_dtype dtype, const double *x,
                  const bool *mask, double scale, size_t count, double *out)
{
    const way w = {n, dtype};
    const double by = kept(&w, scale);
    for (size_t i = 0; i < count; i++)
        out[i] = kept(&w, x[i] * (mask[i] ? 1 : 0) * by); /* the first product is exact */
}

/* ---- many numbers of float32 ------------------------------------------------------------ */

static void one_by_one(const usc_sim_numerics *n, usc_dtype dtype,
                       usc_sim_function function, float *x, size_t count)
{
    double wide[FAST_BLOCK];
    for (size_t i = 0; i < count; i++)
        wide[i] = (double)x[i];
    usc_sim_map(n, dtype, function, wide, count, wide);
    for (size_t i = 0; i < count; i++)
        x[i] = (float)wide[i];
}

bool usc_sim_map_floats(const usc_sim_numerics *n, usc_dtype dtype,
                        usc_sim_function function, const float *x, size_t count,
                        float *out)
{
    const fast_isa *isa = usc_sim_fast_isa();
    if (!usc_sim_is_fast(n, dtype) || n->degree >= FAST_MOST_TERMS) return false;
    fast_map m = {.function = function, .fma = n->fma};
    if (n->degree > 0) m.n_terms = (size_t)n->degree + 1;
    for (size_t i = 0; i < m.n_terms; i++)
        m.terms[i] = (float)(1 / tgamma((double)i + 1));
    for (size_t i = 0; i < FAST_TANGENT_TERMS; i++)
        m.tangent[i] = (float)tangent_terms[i];
    for (size_t i = 0, here; i < count; i += here) {
        float some[FAST_BLOCK] = {0}, made[FAST_BLOCK];
        here = count - i < FAST_BLOCK ? count - i : FAST_BLOCK;
        if (here == FAST_BLOCK && isa->map(&m, x + i, out + i)) continue;
        memcpy(some, x + i, here * sizeof *x);
        if (here < FAST_BLOCK && isa->map(&m, some, made)) {
            memcpy(out + i, made, here * sizeof *out);
            continue;
        }
        one_by_one(n, dtype, function, some, here);
        memcpy(out + i, some, here * sizeof *out);
    }
    return true;
}

bool usc_sim_drop_floats(const usc_sim_numerics *n, usc_dtype dtype, const float *x,
                         const bool *mask, double scale, size_t count, float *out)
{
    if (!usc_sim_is_fast(n, dtype)) return false;
    usc_sim_fast_isa()->dropped(x, mask, (float)scale, count, out);
    return true;
}
