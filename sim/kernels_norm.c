// SPDX-License-Identifier: Apache-2.0
// Norms of a row in a chosen arithmetic: layer, group and batch norms are rows less their
// mean, rms norms rows as they are. Numbers lie in doubles; each step is rounded to the
// dtype that sums are kept in.
#include <ulpscope_sim/numerics.h>

#include <math.h>

#define CHUNK 64

typedef struct moments {
    double n, mean, sum; /* of squares of what differs from the mean */
} moments;

typedef struct way { /* how is rounded */
    const usc_sim_numerics *n;
    usc_dtype dtype;
} way;

static double kept(const way *w, double x)
{
    return usc_sim_round_sum(w->n, w->dtype, x);
}

static void take_one(const way *w, moments *m, double x)
{
    m->n += 1;
    const double away = kept(w, x - m->mean);
    m->mean = kept(w, m->mean + kept(w, away / m->n));
    m->sum = kept(w, m->sum + kept(w, away * kept(w, x - m->mean)));
}

static moments welford(const way *w, const double *x, size_t n)
{
    moments m = {0, 0, 0};
    for (size_t i = 0; i < n; i++)
        take_one(w, &m, x[i]);
    return m;
}

static moments merged(const way *w, moments a, moments b)
{
    const double n = a.n + b.n, away = kept(w, b.mean - a.mean);
    return (moments){
        n, kept(w, a.mean + kept(w, away * kept(w, b.n / n))),
        kept(w, kept(w, a.sum + b.sum) +
                    kept(w, kept(w, away * away) * kept(w, a.n * (b.n / n))))};
}

static moments in_chunks(const way *w, const double *x, size_t n)
{
    moments all = welford(w, x, n < CHUNK ? n : CHUNK);
    for (size_t i = CHUNK; i < n; i += CHUNK)
        all = merged(w, all, welford(w, x + i, n - i < CHUNK ? n - i : CHUNK));
    return all;
}

/* The sum of squares less the mean, block by block through the chosen order of sums. */
static double squares(const way *w, const usc_sim_norm *norm, double mean, double *room)
{
    for (size_t i = 0; i < norm->n; i++) {
        const double away = norm->by_mean ? kept(w, norm->x[i] - mean) : norm->x[i];
        room[i] = kept(w, away * away);
    }
    return usc_sim_sum(w->n, w->dtype, room, NULL, norm->n);
}

static double variance_of(const way *w, const usc_sim_norm *norm, double *mean,
                          double *room)
{
    const double n = (double)norm->n;
    moments m;
    *mean = 0;
    if (norm->by_mean)
        *mean = kept(w, usc_sim_sum(w->n, w->dtype, norm->x, NULL, norm->n) / n);
    if (!norm->by_mean || w->n->variance == USC_SIM_TWO_PASS)
        return kept(w, squares(w, norm, *mean, room) / n);
    switch (w->n->variance) {
    case USC_SIM_WELFORD:
    case USC_SIM_CHUNKS:
        m = w->n->variance == USC_SIM_WELFORD ? welford(w, norm->x, norm->n)
                                              : in_chunks(w, norm->x, norm->n);
        *mean = m.mean;
        return kept(w, m.sum / n);
    case USC_SIM_MOMENTS: {
        const usc_sim_norm raw = {.x = norm->x, .n = norm->n};
        const double square = kept(w, squares(w, &raw, 0, room) / n);
        return kept(w, square - kept(w, *mean * *mean));
    }
    case USC_SIM_UNBIASED:
        return kept(w, squares(w, norm, *mean, room) / (n > 1 ? n - 1 : 1));
    case USC_SIM_TWO_PASS:
    default:
        return kept(w, squares(w, norm, *mean, room) / n);
    }
}

static double scale_of(const way *w, double variance, double epsilon)
{
    const double scale = w->n->epsilon_outside
                             ? 1 / kept(w, kept(w, sqrt(variance)) + epsilon)
                             : 1 / kept(w, sqrt(kept(w, variance + epsilon)));
    if (w->n->scale == USC_DTYPE_NONE) return kept(w, scale);
    const usc_sim_numerics narrow = {.accumulate = w->n->scale};
    return usc_sim_round_sum(&narrow, w->dtype, scale);
}

double usc_sim_norm_scale(const usc_sim_numerics *n, usc_dtype dtype, double variance,
                          double epsilon)
{
    const way w = {n, dtype};
    return scale_of(&w, variance, epsilon);
}

void usc_sim_norm_apply(const usc_sim_numerics *n, usc_dtype dtype,
                        const usc_sim_norm *norm, double mean, double scale, double *out)
{
    const way w = {n, dtype};
    for (size_t i = 0; i < norm->n; i++) {
        const size_t at = i / (norm->n_each > 0 ? norm->n_each : 1);
        const double away = norm->by_mean ? kept(&w, norm->x[i] - mean) : norm->x[i];
        double y = kept(&w, away * scale);
        if (norm->weight != NULL) y = kept(&w, y * norm->weight[at]);
        out[i] = norm->bias != NULL ? kept(&w, y + norm->bias[at]) : y;
    }
}

void usc_sim_norm_row(const usc_sim_numerics *n, usc_dtype dtype,
                      const usc_sim_norm *norm, double *mean, double *variance,
                      double *scale, double *out)
{
    const way w = {n, dtype};
    *variance = variance_of(&w, norm, mean, out);
    *scale = scale_of(&w, *variance, norm->epsilon);
    usc_sim_norm_apply(n, dtype, norm, *mean, *scale, out);
}

/* scale / n * (n * g - sum(g) - y * sum(g * y)), y the row normed, g = grad * weight. */
void usc_sim_norm_back(const usc_sim_numerics *n, usc_dtype dtype,
                       const usc_sim_norm *norm, const double *grad, double mean,
                       double scale, double *out)
{
    const way w = {n, dtype};
    const double count = (double)norm->n;
    double along = 0, sum = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < norm->n; i++) {
            const size_t at = i / (norm->n_each > 0 ? norm->n_each : 1);
            const double g =
                norm->weight != NULL ? kept(&w, grad[i] * norm->weight[at]) : grad[i];
            const double away = norm->by_mean ? kept(&w, norm->x[i] - mean) : norm->x[i];
            out[i] = pass == 0 ? kept(&w, g * kept(&w, away * scale)) : g;
        }
        *(pass == 0 ? &along : &sum) = usc_sim_sum(n, dtype, out, NULL, norm->n);
    }
    for (size_t i = 0; i < norm->n; i++) {
        const double away = norm->by_mean ? kept(&w, norm->x[i] - mean) : norm->x[i];
        const double y = kept(&w, away * scale);
        const double less = kept(&w, kept(&w, y * along) + (norm->by_mean ? sum : 0));
        out[i] = kept(&w, scale * kept(&w, out[i] - kept(&w, less / count)));
    }
}
