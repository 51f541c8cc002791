// SPDX-License-Identifier: Apache-2.0
// Sums, products and softmax in a chosen arithmetic. Numbers lie in doubles; each step is
// rounded to the dtype that sums are kept in.
#include "fast.h"

#include <math.h>

#define PAIRWISE_LEAST 8
#define MOST_PARTS 1024

static double round_to(double x, int bits, int emin)
{
    int e;
    if (!isfinite(x) || fpclassify(x) == FP_ZERO) return x;
    (void)frexp(x, &e);
    const int quantum = (e - 1 > emin ? e - 1 : emin) - (bits - 1);
    return ldexp(rint(ldexp(x, -quantum)), quantum);
}

void usc_sim_round_factors(const usc_sim_numerics *n, double *factors, size_t count)
{
    if (n->factor_bits == 0) return;
    const double most = n->factor_emin == -14 ? 65504 : (double)INFINITY;
    for (size_t i = 0; i < count; i++) {
        factors[i] = round_to(factors[i], n->factor_bits, n->factor_emin);
        if (fabs(factors[i]) > most) factors[i] = copysign((double)INFINITY, factors[i]);
    }
}

static usc_dtype sum_dtype(const usc_sim_numerics *n, usc_dtype dtype)
{
    if (n->accumulate != USC_DTYPE_NONE) return n->accumulate;
    return dtype == USC_F64 ? USC_F64 : USC_F32;
}

static double rounded(usc_dtype kept, double x)
{
    double stored, back;
    if (kept == USC_F64) return x;
    if (kept == USC_F32) return (double)(float)x;
    usc_dtype_narrow(kept, &x, &stored, 1);
    usc_dtype_widen(kept, &stored, &back, 1);
    return back;
}

double usc_sim_round_sum(const usc_sim_numerics *n, usc_dtype dtype, double x)
{
    return rounded(sum_dtype(n, dtype), x);
}

/* ---- sums --------------------------------------------------------------------------- */

typedef struct terms {
    const double *a, *b;
    usc_dtype kept;
    bool fma;
} terms;

/* Without fma the product is rounded before it is added: to float32 where sums are
 * narrower than that, as units that add in half precision multiply. */
static double added(const terms *t, double sum, size_t i)
{
    if (t->b == NULL) return rounded(t->kept, sum + t->a[i]);
    if (t->kept == USC_F64)
        return t->fma ? fma(t->a[i], t->b[i], sum) : sum + t->a[i] * t->b[i];
    if (t->fma && t->kept == USC_F32)
        return (double)fmaf((float)t->a[i], (float)t->b[i], (float)sum);
    return rounded(t->kept, sum + (double)(float)(t->a[i] * t->b[i]));
}

static double serial(const terms *t, size_t from, size_t to)
{
    double sum = 0;
    for (size_t i = from; i < to; i++)
        sum = added(t, sum, i);
    return sum;
}

static double pairwise(const terms *t, size_t from, size_t to)
{
    if (to - from <= PAIRWISE_LEAST) return serial(t, from, to);
    const size_t middle = from + (to - from) / 2;
    return rounded(t->kept, pairwise(t, from, middle) + pairwise(t, middle, to));
}

static double blocks(const terms *t, size_t count, size_t size)
{
    double sum = 0;
    for (size_t i = 0; i < count; i += size)
        sum = rounded(t->kept, sum + serial(t, i, i + size < count ? i + size : count));
    return sum;
}

static double lanes(const terms *t, size_t count, size_t n)
{
    double sums[MOST_PARTS];
    for (size_t k = 0; k < n; k++) {
        sums[k] = 0;
        for (size_t i = k; i < count; i += n)
            sums[k] = added(t, sums[k], i);
    }
    for (size_t half = (n + 1) / 2; n > 1; n = half, half = (n + 1) / 2)
        for (size_t k = half; k < n; k++)
            sums[k - half] = rounded(t->kept, sums[k - half] + sums[k]);
    return sums[0];
}

/* A walk by a step that has no factor in common with the count meets each term once. */
static size_t step_of(uint64_t seed, size_t count)
{
    size_t step = (size_t)(seed >> 17) % count;
    for (;; step++) {
        size_t a = step % count, b = count;
        while (a != 0) {
            const size_t rest = b % a;
            b = a;
            a = rest;
        }
        if (b == 1) return step % count;
    }
}

void usc_sim_walk(uint64_t seed, size_t count, size_t *at, size_t *step)
{
    *step = count > 1 ? step_of(seed * 0xbf58476d1ce4e5b9u, count) : 0;
    *at = count > 0 ? (size_t)(seed % count) : 0;
}

static double in_random_order(const terms *t, size_t count, uint64_t seed)
{
    size_t at, step;
    double sum = 0;
    usc_sim_walk(seed, count, &at, &step);
    for (size_t i = 0; i < count; i++) {
        sum = added(t, sum, at);
        at = (at + step) % count;
    }
    return sum;
}

static double whole_sum(const usc_sim_numerics *n, const terms *all, size_t count)
{
    const terms t = *all;
    const size_t parts = n->n_parts < 1            ? 1
                         : n->n_parts > MOST_PARTS ? MOST_PARTS
                                                   : (size_t)n->n_parts;
    switch (n->order) {
    case USC_SIM_PAIRWISE:
        return pairwise(&t, 0, count);
    case USC_SIM_BLOCKS:
        return blocks(&t, count, parts);
    case USC_SIM_SPLIT_K:
        return blocks(&t, count, count > 0 ? (count + parts - 1) / parts : 1);
    case USC_SIM_LANES:
        return lanes(&t, count, parts);
    case USC_SIM_RANDOM:
        return in_random_order(&t, count, n->seed);
    case USC_SIM_SERIAL:
    default:
        return serial(&t, 0, count);
    }
}

double usc_sim_sum(const usc_sim_numerics *n, usc_dtype dtype, const double *a,
                   const double *b, size_t count)
{
    const terms t = {a, b, sum_dtype(n, dtype), n->fma};
    if (n->group > 0) count -= count % (size_t)n->group;
    const double sum = whole_sum(n, &t, count);
    if (!n->lacks_term && !n->has_twice) return sum;
    if (n->term < 0 || (size_t)n->term >= count) return sum;
    const double term = added(&t, 0, (size_t)n->term);
    return rounded(t.kept, n->has_twice ? sum + term : sum - term);
}

void usc_sim_products(const usc_sim_numerics *n, usc_dtype dtype, const double *a,
                      const double *b, size_t n_rows, size_t n_columns, size_t depth,
                      double *out)
{
    if (usc_sim_fast_wide_products(n, dtype, a, b, n_rows, n_columns, depth, out)) return;
    for (size_t i = 0; i < n_rows; i++)
        for (size_t j = 0; j < n_columns; j++)
            out[i * n_columns + j] =
                usc_sim_sum(n, dtype, a + i * depth, b + j * depth, depth);
}

/* ---- softmax -------------------------------------------------------------------------- */

static double exponential(usc_dtype dtype, double x)
{
    return dtype == USC_F64 ? exp(x) : (double)(float)exp(x);
}

/* The largest so far and the sum of exponentials below it, in one pass: the sum shrinks
 * whenever a larger one comes. */
static void online(usc_dtype kept, usc_dtype dtype, const double *x, size_t count,
                   double *most, double *sum)
{
    *most = -(double)INFINITY;
    *sum = 0;
    for (size_t i = 0; i < count; i++) {
        const double larger = x[i] > *most ? x[i] : *most;
        const double shrink = larger > *most ? exponential(dtype, *most - larger) : 1;
        const double next = larger > -(double)INFINITY || isnan(x[i])
                                ? exponential(dtype, x[i] - larger)
                                : 0;
        *sum = rounded(kept, rounded(kept, *sum * shrink) + next);
        *most = larger;
    }
}

void usc_sim_softmax(const usc_sim_numerics *n, usc_dtype dtype, const double *x,
                     size_t count, double *out)
{
    const usc_dtype kept = sum_dtype(n, dtype);
    double most = -(double)INFINITY, sum = 0;
    if (n->online) {
        online(kept, dtype, x, count, &most, &sum);
    } else {
        for (size_t i = 0; i < count; i++)
            if (x[i] > most || isnan(x[i])) most = x[i];
    }
    for (size_t i = 0; i < count; i++)
        out[i] = exponential(dtype, x[i] - most);
    if (!n->online) sum = usc_sim_sum(n, dtype, out, NULL, count);
    for (size_t i = 0; i < count; i++)
        out[i] = dtype == USC_F64 ? out[i] / sum : (double)(float)(out[i] / sum);
}

void usc_sim_log_softmax(const usc_sim_numerics *n, usc_dtype dtype, const double *x,
                         size_t count, double *out)
{
    const usc_dtype kept = sum_dtype(n, dtype);
    double most = -(double)INFINITY;
    for (size_t i = 0; i < count; i++)
        if (x[i] > most || isnan(x[i])) most = x[i];
    for (size_t i = 0; i < count; i++)
        out[i] = exponential(dtype, x[i] - most);
    const double less = rounded(kept, log(usc_sim_sum(n, dtype, out, NULL, count)));
    for (size_t i = 0; i < count; i++)
        out[i] = rounded(kept, rounded(kept, x[i] - most) - less);
}

/* ---- element by element ---------------------------------------------------------------- */

void usc_sim_add_self(const usc_sim_numerics *n, usc_dtype dtype, double alpha,
                      double beta, const double *self, size_t count, double *sums)
{
    const usc_dtype kept = sum_dtype(n, dtype);
    const bool scales = alpha < 1 || alpha > 1, adds = beta < 0 || beta > 0;
    for (size_t i = 0; i < count; i++) {
        if (scales) sums[i] = rounded(kept, alpha * sums[i]);
        if (adds) sums[i] = rounded(kept, sums[i] + rounded(kept, beta * self[i]));
    }
}

void usc_sim_running_sum(const usc_sim_numerics *n, usc_dtype dtype, const double *x,
                         size_t count, double *out)
{
    const terms t = {x, NULL, sum_dtype(n, dtype), n->fma};
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        out[i] = sum = added(&t, sum, i);
}
