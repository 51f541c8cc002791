// SPDX-License-Identifier: Apache-2.0
// Draws of permutations and of categories. Formulas: docs/reference/metrics.md, 4.
#include "draw/draws.h"

#include "case/findings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_COLUMNS = 64, /* of a sample without putting back that are looked at */
    LEAST_DUE = 8,     /* rarer categories count as one */
};

/* Descents of a permutation of n: mean (n - 1) / 2, variance (n + 1) / 12 (the Eulerian
 * numbers; Knuth, The Art of Computer Programming 3, 5.1.3). They tell sorted runs. */
static void count_falls(usc_draws *d, const double *v)
{
    const int64_t n = d->n;
    int64_t falls = 0;
    for (int64_t i = 1; i < n; i++)
        falls += v[i] < v[i - 1];
    const double away = fabs((double)falls - (double)(n - 1) / 2);
    if (n >= USC_DRAW_ENOUGH && away > USC_DRAW_SIGMAS * sqrt((double)(n + 1) / 12))
        (void)usc_clause_set(&d->odd, "%s of %s steps fall where half of them should",
                             usc_count(falls).text, usc_count(n - 1).text);
}

usc_status usc_draws_of_permutation(usc_draws *d, const usc_tensor *t, uint64_t stream,
                                    usc_error *err)
{
    const int64_t n = d->n;
    const double *v = usc_draws_doubles(d->arena, t, n);
    unsigned char *seen = usc_arena_take(d->arena, (size_t)n);
    if (d->arena->failed) return usc_no_memory("draws", err);
    if (n > 0) memset(seen, 0, (size_t)n);
    bool good = true;
    for (int64_t i = 0; i < n; i++) {
        usc_draws_put(d, stream, i, v[i] / (double)n, (v[i] + 1) / (double)n);
        good = good && v[i] >= 0 && v[i] < (double)n && seen[(int64_t)v[i]] == 0;
        if (good) seen[(int64_t)v[i]] = 1;
    }
    if (!good) {
        (void)usc_clause_set(&d->outside, "no permutation of 0 to %s",
                             usc_count(n - 1).text);
        return USC_OK;
    }
    count_falls(d, v);
    d->once = true;
    return usc_draws_take_whole(d, t, 0, (double)n, err);
}

/* ---- categories ---- */

typedef struct category {
    double weight;
    int64_t i;
} category;

typedef struct sample {
    usc_draws *d;
    uint64_t stream;
    int64_t rows, columns, n; /* n categories */
    const double *weights, *chosen;
    category *order; /* likely ones first, so that a share that is off shows */
    int64_t *place;  /* of each in that order */
    double *upto;    /* the weights before it, and one more: all */
    double *came, *due;
} sample;

static int likelier(const void *a, const void *b)
{
    const category *x = a, *y = b;
    if (x->weight != y->weight) return x->weight < y->weight ? 1 : -1;
    return (x->i > y->i) - (x->i < y->i);
}

/* "" where the row may have been drawn. */
static const char *never(const sample *s, int64_t row, bool back)
{
    const double *weights = s->weights + row * s->n, *c = s->chosen + row * s->columns;
    for (int64_t j = 0; j < s->columns; j++) {
        if (!(c[j] >= 0 && c[j] < (double)s->n)) return "an index outside of the weights";
        if (!(weights[(int64_t)c[j]] > 0)) return "a category of weight zero";
    }
    for (int64_t j = 0; j < s->n && !back; j++)
        s->place[j] = 0;
    for (int64_t j = 0; j < s->columns && !back; j++)
        if (s->place[(int64_t)c[j]]++ > 0) return "a category twice without replacement";
    return "";
}

static void sort_row(const sample *s, int64_t row)
{
    for (int64_t i = 0; i < s->n; i++)
        s->order[i] = (category){s->weights[row * s->n + i], i};
    qsort(s->order, (size_t)s->n, sizeof *s->order, likelier);
    for (int64_t i = 0; i < s->n; i++)
        s->place[s->order[i].i] = i;
}

static void sum_row(const sample *s)
{
    s->upto[0] = 0;
    for (int64_t i = 0; i < s->n; i++)
        s->upto[i + 1] = s->upto[i] + s->order[i].weight;
}

/* The chance of a category of an odd number. */
static double odd_chance(const sample *s)
{
    double sum = 0;
    for (int64_t i = 0; i < s->n; i++)
        sum += s->order[i].i % 2 != 0 ? s->order[i].weight : 0;
    return sum / s->upto[s->n];
}

static void put_category(const sample *s, int64_t at, int64_t chosen, double odd)
{
    usc_draws *d = s->d;
    const double *upto = s->upto + s->place[chosen], all = s->upto[s->n];
    if (!(upto[1] - upto[0] < all)) return;
    usc_draws_put(d, s->stream, at, upto[0] / all, upto[1] / all);
    const int64_t place = usc_draws_place(d, at);
    if (place < 0) return;
    d->parity[place] = (float)((chosen % 2 != 0 ? 1 : 0) - odd);
    d->parity_spread += odd * (1 - odd);
}

static void draw_row(const sample *s, int64_t row, bool back)
{
    const int64_t looked = back || s->columns < MOST_COLUMNS ? s->columns : MOST_COLUMNS;
    const int64_t counted = back ? s->columns : 1;
    sort_row(s, row);
    sum_row(s);
    for (int64_t i = 0; i < s->n; i++)
        s->due[s->order[i].i] += s->order[i].weight / s->upto[s->n] * (double)counted;
    double odd = odd_chance(s);
    for (int64_t j = 0; j < looked; j++) {
        const int64_t at = row * s->columns + j, chosen = (int64_t)s->chosen[at];
        put_category(s, at, chosen, odd);
        if (j < counted) s->came[chosen] += 1;
        if (back) continue;
        s->order[s->place[chosen]].weight = 0;
        sum_row(s);
        odd = odd_chance(s);
    }
}

/* Categories that are due less than LEAST_DUE times count as one. */
static void gather_rare(sample *s)
{
    usc_draws *d = s->d;
    double came = 0, due = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < s->n; i++) {
        const double c = s->came[i], e = s->due[i];
        if (e < LEAST_DUE) {
            came += c;
            due += e;
            continue;
        }
        s->came[n] = c;
        s->due[n++] = e;
    }
    const bool rest = n < s->n, enough = !rest || due >= LEAST_DUE;
    if (rest && n < s->n) {
        s->came[n] = came;
        s->due[n++] = due;
    }
    if (n <= 2 || !enough) return;
    d->came = s->came;
    d->due = s->due;
    d->n_cells = n;
}

static bool take_room(sample *s, usc_arena *arena)
{
    const size_t n = (size_t)s->n;
    s->order = usc_arena_take(arena, n * sizeof *s->order);
    s->place = usc_arena_take(arena, n * sizeof *s->place);
    s->upto = usc_arena_take(arena, (n + 1) * sizeof *s->upto);
    s->came = usc_arena_take(arena, n * sizeof *s->came);
    s->due = usc_arena_take(arena, n * sizeof *s->due);
    for (size_t i = 0; i < n && !arena->failed; i++)
        s->came[i] = s->due[i] = 0;
    return !arena->failed;
}

usc_status usc_draws_of_categories(usc_draws *d, const usc_tensor *t,
                                   const usc_tensor *weights, bool back, uint64_t stream,
                                   usc_error *err)
{
    int64_t n_weights = 0;
    const usc_status st = usc_tensor_numel(weights, &n_weights, err);
    if (st != USC_OK) return st;
    sample s = {.d = d, .stream = stream};
    s.n = weights->ndim > 0 ? weights->sizes[weights->ndim - 1] : 1;
    s.rows = s.n > 0 ? n_weights / s.n : 0;
    s.columns = s.rows > 0 ? d->n / s.rows : 0;
    if (s.rows * s.columns != d->n)
        return usc_error_set(err, USC_E_SHAPE, 0, "%lld draws of %lld rows of weights",
                             (long long)d->n, (long long)s.rows);
    if (d->n == 0) return USC_OK;
    s.weights = usc_draws_doubles(d->arena, weights, n_weights);
    s.chosen = usc_draws_doubles(d->arena, t, d->n);
    d->parity = usc_arena_take(d->arena, (size_t)d->n_u * sizeof *d->parity);
    if (!take_room(&s, d->arena)) return usc_no_memory("draws", err);
    for (int64_t i = 0; i < d->n_u; i++)
        d->parity[i] = NAN;
    d->varies = s.rows > 1 || !back;
    for (int64_t row = 0; row < s.rows; row++) {
        const char *why = never(&s, row, back);
        if (*why != '\0') {
            (void)usc_clause_set(&d->outside, "%s", why);
            return USC_OK;
        }
        draw_row(&s, row, back);
    }
    gather_rare(&s);
    return USC_OK;
}
