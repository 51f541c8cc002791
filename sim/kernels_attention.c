// SPDX-License-Identifier: Apache-2.0
// Attention of one head in a chosen arithmetic: all keys at once, or tile by tile with the
// largest score and the sum of exponentials going along, as fused kernels do.
#include <ulpscope_sim/numerics.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct head {
    const usc_sim_numerics *n;
    usc_dtype dtype;
    const usc_sim_attention *a;
    double *scores;  /* n_keys */
    double *columns; /* v, transposed: n_out x n_keys */
} head;

static double kept(const head *h, double x)
{
    return usc_sim_round_sum(h->n, h->dtype, x);
}

/* Exponentials are taken in float32, in float64 of float64. */
static double exponential(const head *h, double x)
{
    return h->dtype == USC_F64 ? exp(x) : (double)(float)exp(x);
}

static bool sees(const head *h, size_t i, size_t k)
{
    if (!h->a->causal) return true;
    const size_t rows = h->n->causal_rows > 1 ? (size_t)h->n->causal_rows : 1;
    return k <= (rows > 1 ? i / rows * rows + rows - 1 : i);
}

/* Of query i and keys from..to; what it does not see is minus infinity. */
static double score(const head *h, size_t i, size_t from, size_t to)
{
    const usc_sim_attention *a = h->a;
    double most = -(double)INFINITY;
    for (size_t k = from; k < to; k++) {
        const double product = usc_sim_sum(h->n, h->dtype, a->q + i * a->n_depth,
                                           a->k + k * a->n_depth, a->n_depth);
        double x = kept(h, product * a->scale);
        if (a->mask != NULL) x = kept(h, x + a->mask[i * a->n_keys + k]);
        if (!sees(h, i, k)) x = -(double)INFINITY;
        h->scores[k] = x;
        if (x > most || isnan(x)) most = x;
    }
    return most;
}

/* Probabilities are factors of the second product, and rounded as these are. */
static void as_factors(const head *h, size_t from, size_t to)
{
    usc_sim_round_factors(h->n, h->scores + from, to - from);
}

static void attend_one(const head *h, size_t i, double *out, double *logsumexp)
{
    const usc_sim_attention *a = h->a;
    const size_t step = h->n->tile > 0 ? (size_t)h->n->tile : a->n_keys;
    double most = -(double)INFINITY, sum = 0;
    memset(out, 0, a->n_out * sizeof *out);
    for (size_t from = 0; from < a->n_keys; from += step) {
        const size_t to = from + step < a->n_keys ? from + step : a->n_keys;
        const double here = score(h, i, from, to);
        const double larger = here > most || isnan(here) ? here : most;
        const double shift = larger > -(double)INFINITY || isnan(larger) ? larger : 0;
        const double shrink = exponential(h, most - shift);
        for (size_t k = from; k < to; k++)
            h->scores[k] = exponential(h, h->scores[k] - shift);
        const double more =
            usc_sim_sum(h->n, h->dtype, h->scores + from, NULL, to - from);
        sum = kept(h, kept(h, sum * shrink) + more);
        as_factors(h, from, to);
        for (size_t j = 0; j < a->n_out; j++) {
            const double part = usc_sim_sum(h->n, h->dtype, h->scores + from,
                                            h->columns + j * a->n_keys + from, to - from);
            out[j] = kept(h, kept(h, out[j] * shrink) + part);
        }
        most = larger;
    }
    for (size_t j = 0; j < a->n_out; j++)
        out[j] = kept(h, out[j] / sum);
    *logsumexp = kept(h, most + log(sum));
}

static bool begin(head *h, const usc_sim_numerics *n, usc_dtype dtype,
                  const usc_sim_attention *a)
{
    const size_t most = a->n_keys > a->n_queries ? a->n_keys : a->n_queries;
    *h = (head){.n = n, .dtype = dtype, .a = a};
    h->scores = malloc((most + 1) * sizeof(double));
    h->columns = malloc((a->n_out * a->n_keys + 1) * sizeof(double));
    return h->scores != NULL && h->columns != NULL;
}

static void end(head *h)
{
    free(h->scores);
    free(h->columns);
}

bool usc_sim_attend(const usc_sim_numerics *n, usc_dtype dtype,
                    const usc_sim_attention *a, double *out, double *logsumexp)
{
    head h;
    const bool fine = begin(&h, n, dtype, a);
    for (size_t k = 0; fine && k < a->n_keys; k++)
        for (size_t j = 0; j < a->n_out; j++)
            h.columns[j * a->n_keys + k] = a->v[k * a->n_out + j];
    for (size_t i = 0; fine && i < a->n_queries; i++)
        attend_one(&h, i, out + i * a->n_out, logsumexp + i);
    end(&h);
    return fine;
}

/* ---- gradients ------------------------------------------------------------------------ */

/* Rows of n numbers as columns: to[j * n_rows + i]. */
static void turn(const double *from, size_t n_rows, size_t n, double *to)
{
    for (size_t i = 0; i < n_rows; i++)
        for (size_t j = 0; j < n; j++)
            to[j * n_rows + i] = from[i * n + j];
}

/* p: probabilities of query i; d: gradients of its scores. */
static void gradients_of(const head *h, size_t i, const double *out, double logsumexp,
                         const double *grad, double *p, double *d)
{
    const usc_sim_attention *a = h->a;
    (void)score(h, i, 0, a->n_keys);
    const double *g = grad + i * a->n_out;
    const double along = usc_sim_sum(h->n, h->dtype, g, out + i * a->n_out, a->n_out);
    for (size_t k = 0; k < a->n_keys; k++) {
        p[k] = exponential(h, h->scores[k] - logsumexp);
        const double back = usc_sim_sum(h->n, h->dtype, g, a->v + k * a->n_out, a->n_out);
        d[k] = kept(h, kept(h, p[k] * kept(h, back - along)) * a->scale);
    }
}

/* What is needed of both, whole: n_queries x n_keys each, and turned. */
typedef struct room {
    double *p, *d, *turned, *columns;
} room;

static void sum_up(const head *h, const room *r, const double *grad, double *q, double *k,
                   double *v)
{
    const usc_sim_attention *a = h->a;
    const size_t nq = a->n_queries, nk = a->n_keys;
    usc_sim_round_factors(h->n, r->p, nq * nk);
    usc_sim_round_factors(h->n, r->d, nq * nk);
    turn(a->k, nk, a->n_depth, r->columns);
    usc_sim_products(h->n, h->dtype, r->d, r->columns, nq, a->n_depth, nk, q);
    turn(r->d, nq, nk, r->turned);
    turn(a->q, nq, a->n_depth, r->columns);
    usc_sim_products(h->n, h->dtype, r->turned, r->columns, nk, a->n_depth, nq, k);
    turn(r->p, nq, nk, r->turned);
    turn(grad, nq, a->n_out, r->columns);
    usc_sim_products(h->n, h->dtype, r->turned, r->columns, nk, a->n_out, nq, v);
}

bool usc_sim_attend_back(const usc_sim_numerics *n, usc_dtype dtype,
                         const usc_sim_attention *a, const double *out,
                         const double *logsumexp, const double *grad, double *q,
                         double *k, double *v)
{
    head h;
    const size_t cells = a->n_queries * a->n_keys + 1;
    const size_t rows = a->n_queries + a->n_keys, width = a->n_depth + a->n_out;
    room r = {malloc(cells * sizeof(double)), malloc(cells * sizeof(double)),
              malloc(cells * sizeof(double)),
              malloc((rows * width + 1) * sizeof(double))};
    const bool fine = begin(&h, n, dtype, a) && r.p != NULL && r.d != NULL &&
                      r.turned != NULL && r.columns != NULL;
    for (size_t i = 0; fine && i < a->n_queries; i++)
        gradients_of(&h, i, out, logsumexp[i], grad, r.p + i * a->n_keys,
                     r.d + i * a->n_keys);
    if (fine) sum_up(&h, &r, grad, q, k, v);
    end(&h);
    free(r.p);
    free(r.d);
    free(r.turned);
    free(r.columns);
    return fine;
}
