// SPDX-License-Identifier: Apache-2.0
// Attention of one head in a chosen arithmetic: all keys at once, or tile by tile with the
// largest score and the sum of exponentials going along, as fused kernels do.
#include "fast.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define QUERIES 64 /* whose scores lie side by side */

typedef struct head {
    const usc_sim_numerics *n;
    usc_dtype dtype;
    const usc_sim_attention *a;
    double *scores;  /* QUERIES x n_keys */
    double *tile;    /* as many: keys of one tile, row behind row */
    double *parts;   /* QUERIES x n_out */
    double *columns; /* v, transposed, tile behind tile */
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

static void exponentials(const head *h, double *x, double less, size_t n)
{
    if (h->dtype != USC_F64) {
        usc_sim_fast_isa()->wide_exponentials(x, less, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        x[i] = exp(x[i] - less);
}

static bool sees(const head *h, size_t i, size_t k)
{
    if (!h->a->causal) return true;
    const size_t rows = h->n->causal_rows > 1 ? (size_t)h->n->causal_rows : 1;
    return k <= (rows > 1 ? i / rows * rows + rows - 1 : i);
}

/* Of n queries from the i-th on and all keys; what one does not see is minus infinity. */
static void score(const head *h, size_t i, size_t n)
{
    const usc_sim_attention *a = h->a;
    usc_sim_products(h->n, h->dtype, a->q + i * a->n_depth, a->k, n, a->n_keys,
                     a->n_depth, h->scores);
    for (size_t j = 0; j < n; j++) {
        double *row = h->scores + j * a->n_keys;
        for (size_t k = 0; k < a->n_keys; k++) {
            double x = kept(h, row[k] * a->scale);
            if (a->mask != NULL) x = kept(h, x + a->mask[(i + j) * a->n_keys + k]);
            row[k] = sees(h, i + j, k) ? x : -(double)INFINITY;
        }
    }
}

/* Probabilities are factors of the second product, and rounded as these are. */
static void as_factors(const head *h, double *probabilities, size_t n)
{
    usc_sim_round_factors(h->n, probabilities, n);
}

/* What goes along with each query from tile to tile. */
typedef struct going {
    double most, sum, shrink;
} going;

/* Scores of a tile become probabilities, not divided yet. */
static void take_tile(const head *h, going *g, double *scores, size_t n)
{
    double larger = g->most;
    for (size_t k = 0; k < n; k++)
        if (scores[k] > larger || isnan(scores[k])) larger = scores[k];
    const double shift = larger > -(double)INFINITY || isnan(larger) ? larger : 0;
    g->shrink = exponential(h, g->most - shift);
    exponentials(h, scores, shift, n);
    const double more = usc_sim_sum(h->n, h->dtype, scores, NULL, n);
    g->sum = kept(h, kept(h, g->sum * g->shrink) + more);
    g->most = larger;
    as_factors(h, scores, n);
}

/* Keys from..to of n queries. Tiles of the scores lie together for the product; one that is
 * all keys does already. */
static void attend_tile(const head *h, going *g, size_t n, size_t from, size_t to,
                        double *out)
{
    const usc_sim_attention *a = h->a;
    const size_t width = to - from;
    double *tile = h->scores;
    for (size_t j = 0; j < n; j++) {
        double *row = h->scores + j * a->n_keys + from;
        take_tile(h, &g[j], row, width);
        if (width < a->n_keys) memcpy(h->tile + j * width, row, width * sizeof *row);
    }
    const double *columns =
        h->columns + from * a->n_out; /* of this tile: n_out x width */
    if (width < a->n_keys) tile = h->tile;
    usc_sim_products(h->n, h->dtype, tile, columns, n, a->n_out, width, h->parts);
    for (size_t j = 0; j < n; j++)
        for (size_t l = 0; l < a->n_out; l++) {
            double *at = &out[j * a->n_out + l];
            *at = kept(h, kept(h, *at * g[j].shrink) + h->parts[j * a->n_out + l]);
        }
}

static void attend_some(const head *h, size_t i, size_t n, double *out, double *logsumexp)
{
    const usc_sim_attention *a = h->a;
    const size_t step = h->n->tile > 0 ? (size_t)h->n->tile : a->n_keys;
    going g[QUERIES];
    for (size_t j = 0; j < n; j++)
        g[j] = (going){-(double)INFINITY, 0, 0};
    memset(out, 0, n * a->n_out * sizeof *out);
    score(h, i, n);
    for (size_t from = 0; from < a->n_keys; from += step)
        attend_tile(h, g, n, from, from + step < a->n_keys ? from + step : a->n_keys,
                    out);
    for (size_t j = 0; j < n; j++) {
        for (size_t l = 0; l < a->n_out; l++)
            out[j * a->n_out + l] = kept(h, out[j * a->n_out + l] / g[j].sum);
        logsumexp[j] = kept(h, g[j].most + log(g[j].sum));
    }
}

static bool begin(head *h, const usc_sim_numerics *n, usc_dtype dtype,
                  const usc_sim_attention *a)
{
    *h = (head){.n = n, .dtype = dtype, .a = a};
    h->scores = malloc((QUERIES * a->n_keys + 1) * sizeof(double));
    h->tile = malloc((QUERIES * a->n_keys + 1) * sizeof(double));
    h->parts = malloc((QUERIES * a->n_out + 1) * sizeof(double));
    h->columns = malloc((a->n_out * a->n_keys + 1) * sizeof(double));
    return h->scores != NULL && h->tile != NULL && h->parts != NULL && h->columns != NULL;
}

static void end(head *h)
{
    free(h->scores);
    free(h->tile);
    free(h->parts);
    free(h->columns);
}

/* Columns of v, tile after tile: n_out rows of so many keys as the tile has. */
static void turn_values(const head *h)
{
    const usc_sim_attention *a = h->a;
    const size_t step = h->n->tile > 0 ? (size_t)h->n->tile : a->n_keys;
    for (size_t from = 0; from < a->n_keys; from += step) {
        const size_t width = from + step < a->n_keys ? step : a->n_keys - from;
        for (size_t k = 0; k < width; k++)
            for (size_t j = 0; j < a->n_out; j++)
                h->columns[from * a->n_out + j * width + k] =
                    a->v[(from + k) * a->n_out + j];
    }
}

bool usc_sim_attend(const usc_sim_numerics *n, usc_dtype dtype,
                    const usc_sim_attention *a, double *out, double *logsumexp)
{
    head h;
    const bool fine = begin(&h, n, dtype, a);
    if (fine) turn_values(&h);
    for (size_t i = 0; fine && i < a->n_queries; i += QUERIES)
        attend_some(&h, i, a->n_queries - i < QUERIES ? a->n_queries - i : QUERIES,
                    out + i * a->n_out, logsumexp + i);
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

/* p: probabilities of n queries from the i-th on; d: gradients of their scores. */
static void gradients_of(const head *h, size_t i, size_t n, const double *out,
                         const double *logsumexp, const double *grad, double *p,
                         double *d)
{
    const usc_sim_attention *a = h->a;
    score(h, i, n);
    usc_sim_products(h->n, h->dtype, grad + i * a->n_out, a->v, n, a->n_keys, a->n_out,
                     d);
    for (size_t j = 0; j < n; j++) {
        const double *g = grad + (i + j) * a->n_out;
        const double along =
            usc_sim_sum(h->n, h->dtype, g, out + (i + j) * a->n_out, a->n_out);
        double *row = h->scores + j * a->n_keys;
        exponentials(h, row, logsumexp[i + j], a->n_keys);
        for (size_t k = 0; k < a->n_keys; k++, p++, d++) {
            *p = row[k];
            *d = kept(h, kept(h, *p * kept(h, *d - along)) * a->scale);
        }
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
    for (size_t i = 0; fine && i < a->n_queries; i += QUERIES)
        gradients_of(&h, i, a->n_queries - i < QUERIES ? a->n_queries - i : QUERIES, out,
                     logsumexp, grad, r.p + i * a->n_keys, r.d + i * a->n_keys);
    if (fine) sum_up(&h, &r, grad, q, k, v);
    end(&h);
    free(r.p);
    free(r.d);
    free(r.turned);
    free(r.columns);
    return fine;
}
