// SPDX-License-Identifier: Apache-2.0
// What a decomposition leaves free: the sign (phase) of each pair of vectors, a rotation
// among vectors of one value, the order of complex eigenvalues. A device's vectors are
// turned to those that they are held to, where that brings them nearer. Neighbours:
// held.h; python/ulpscope/calls/gauges.py does the same with runs of the CPU.
#include "case/held.h"

#include <complex.h>
#include <math.h>
#include <string.h>

#define ALIKE 64.0    /* values no further apart, in roundings of the largest, are one */
#define BETTER 0.25   /* of the square of the distance: more than a turn itself rounds */
#define ROTATION 0.25 /* a turn is one whose square is the identity but for so much */

typedef double complex number;

/* Vectors of one matrix, one after the other. */
typedef struct side {
    number *mine, *its;
    int64_t length, n; /* of a vector; vectors */
} side;

typedef struct turner {
    const usc_freedom *what;
    usc_arena *a;
    usc_held *of[USC_GAUGE_SIDES], *values;
    side sides[USC_GAUGE_SIDES]; /* of the matrix at hand */
    number *mine, *spectrum;     /* its values */
    int64_t *order, *group;
    bool *taken;
    int n_sides;
    int64_t k; /* vectors that have a value */
} turner;

static void *room(turner *t, int64_t n, size_t size)
{
    return usc_arena_take(t->a, (size_t)n * size + 1);
}

/* ---- in and out ---- */

static bool is_finite(const usc_tensor *t)
{
    const char *at = t->data;
    const size_t size = usc_dtype_info_of(t->dtype)->size;
    for (int64_t i = 0, n = usc_held_count(t); i < n; i++) {
        double v;
        usc_dtype_widen(t->dtype, at + (size_t)i * size, &v, 1);
        if (!isfinite(v)) return false;
    }
    return true;
}

static bool comparable(const usc_held *h)
{
    return h != NULL && h->device.dtype != USC_DTYPE_NONE &&
           h->truth.dtype != USC_DTYPE_NONE && usc_held_alike(&h->device, &h->truth) &&
           usc_held_count(&h->device) > 0 && is_finite(&h->device) &&
           is_finite(&h->truth);
}

static number read(const usc_tensor *t, int64_t i, bool pairs)
{
    double v[2] = {0, 0};
    const size_t size = usc_dtype_info_of(t->dtype)->size;
    const int64_t at = pairs ? 2 * i : i;
    usc_dtype_widen(t->dtype, (const char *)t->data + (size_t)at * size, v,
                    pairs ? 2 : 1);
    return v[0] + v[1] * (number)I;
}

static void write(usc_dtype dtype, char *data, int64_t i, bool pairs, number v)
{
    const double both[2] = {creal(v), cimag(v)};
    const size_t size = usc_dtype_info_of(dtype)->size;
    const int64_t at = pairs ? 2 * i : i;
    usc_dtype_narrow(dtype, both, data + (size_t)at * size, pairs ? 2 : 1);
}

/* Where component i of vector j lies in a matrix of a batch. */
static int64_t place_of(const side *s, bool rows, int64_t batch, int64_t i, int64_t j)
{
    return batch * s->n * s->length + (rows ? j * s->length + i : i * s->n + j);
}

static void load(turner *t, int m, int64_t batch)
{
    const bool rows = t->what->gauge->rows[m];
    const usc_held *h = t->of[m];
    const bool pairs = h->device.ndim > t->what->ndim;
    side *s = &t->sides[m];
    for (int64_t j = 0; j < s->n; j++)
        for (int64_t i = 0; i < s->length; i++) {
            const int64_t at = place_of(s, rows, batch, i, j);
            const number a = read(&h->device, at, pairs), b = read(&h->truth, at, pairs);
            s->mine[j * s->length + i] = rows ? conj(a) : a;
            s->its[j * s->length + i] = rows ? conj(b) : b;
        }
}

static void store(const turner *t, int m, int64_t batch, char *data)
{
    const bool rows = t->what->gauge->rows[m];
    const usc_tensor *like = &t->of[m]->device;
    const side *s = &t->sides[m];
    for (int64_t j = 0; j < s->n; j++)
        for (int64_t i = 0; i < s->length; i++) {
            const number v = s->mine[j * s->length + i];
            write(like->dtype, data, place_of(s, rows, batch, i, j),
                  like->ndim > t->what->ndim, rows ? conj(v) : v);
        }
}

/* ---- turns ---- */

static double square(number v)
{
    return creal(v) * creal(v) + cimag(v) * cimag(v);
}

static number *vector(number *of, const side *s, int64_t j)
{
    return of + j * s->length;
}

/* The phase of pair j that brings it nearest, where that is nearer. */
static void turn_phase(turner *t, int64_t j)
{
    number inner = 0;
    double turned = 0, given = 0;
    for (int m = 0; m < t->n_sides; m++) {
        side *s = &t->sides[m];
        for (int64_t i = 0; i < s->length; i++)
            inner += conj(vector(s->mine, s, j)[i]) * vector(s->its, s, j)[i];
    }
    const number phase = inner == 0 ? 1 : inner / cabs(inner);
    for (int m = 0; m < t->n_sides; m++) {
        side *s = &t->sides[m];
        for (int64_t i = 0; i < s->length; i++) {
            const number a = vector(s->mine, s, j)[i], b = vector(s->its, s, j)[i];
            turned += square(a * phase - b);
            given += square(a - b);
        }
    }
    if (!(turned < BETTER * given)) return;
    for (int m = 0; m < t->n_sides; m++)
        for (int64_t i = 0; i < t->sides[m].length; i++)
            vector(t->sides[m].mine, &t->sides[m], j)[i] *= phase;
}

/* The products of a group's vectors with those they are held to: of a rotation among them
 * the rotation itself. */
static void products(const side *s, int n_sides, const int64_t *group, int64_t n,
                     number *out)
{
    for (int64_t p = 0; p < n; p++)
        for (int64_t q = 0; q < n; q++) {
            number sum = 0;
            for (int m = 0; m < n_sides; m++) {
                const number *a = s[m].mine + group[p] * s[m].length;
                const number *b = s[m].its + group[q] * s[m].length;
                for (int64_t i = 0; i < s[m].length; i++)
                    sum += conj(a[i]) * b[i];
            }
            out[p * n + q] = sum / n_sides;
        }
}

/* The rotation next to products that are nearly one: a step of Newton's. False where they
 * are none: vectors that are too long, or that lie elsewhere, are not turned at all. */
static bool make_rotation(const number *given, int64_t n, number *squares, number *out)
{
    double off = 0;
    for (int64_t p = 0; p < n; p++)
        for (int64_t q = 0; q < n; q++) {
            number sum = 0;
            for (int64_t i = 0; i < n; i++)
                sum += conj(given[i * n + p]) * given[i * n + q];
            squares[p * n + q] = sum;
            off += square(sum - (p == q));
        }
    if (!(sqrt(off) <= ROTATION)) return false;
    for (int64_t p = 0; p < n; p++)
        for (int64_t q = 0; q < n; q++) {
            number sum = 0;
            for (int64_t i = 0; i < n; i++)
                sum += given[p * n + i] * squares[i * n + q];
            out[p * n + q] = 1.5 * given[p * n + q] - 0.5 * sum;
        }
    return true;
}

static void turned_vector(const side *s, const int64_t *group, int64_t n,
                          const number *rotation, int64_t q, number *out)
{
    for (int64_t i = 0; i < s->length; i++)
        out[i] = 0;
    for (int64_t p = 0; p < n; p++)
        for (int64_t i = 0; i < s->length; i++)
            out[i] += s->mine[group[p] * s->length + i] * rotation[p * n + q];
}

/* Turns the vectors of a group together, where that brings them nearer. */
static void rotate(turner *t, side *s, int n_sides, const int64_t *group, int64_t n)
{
    if (n == 0) return;
    number *given = room(t, n * n, sizeof *given);
    number *squares = room(t, n * n, sizeof *squares);
    number *rotation = room(t, n * n, sizeof *rotation);
    number *turned[USC_GAUGE_SIDES] = {NULL};
    for (int m = 0; m < n_sides; m++)
        turned[m] = room(t, n * s[m].length, sizeof **turned);
    if (t->a->failed) return;
    products(s, n_sides, group, n, given);
    if (!make_rotation(given, n, squares, rotation)) return;
    double after = 0, before = 0;
    for (int m = 0; m < n_sides; m++)
        for (int64_t q = 0; q < n; q++) {
            number *to = turned[m] + q * s[m].length;
            turned_vector(&s[m], group, n, rotation, q, to);
            for (int64_t i = 0; i < s[m].length; i++) {
                const number b = s[m].its[group[q] * s[m].length + i];
                after += square(to[i] - b);
                before += square(s[m].mine[group[q] * s[m].length + i] - b);
            }
        }
    if (!(after < BETTER * before)) return;
    for (int m = 0; m < n_sides; m++)
        for (int64_t q = 0; q < n; q++)
            memcpy(s[m].mine + group[q] * s[m].length, turned[m] + q * s[m].length,
                   (size_t)s[m].length * sizeof **turned);
}

/* ---- what belongs together ---- */

/* How far apart values may be that are one; negative where no two are. */
static double tiny(const turner *t)
{
    double most = 0;
    if (t->values == NULL || t->what->gauge->unordered) return -1;
    for (int64_t i = 0; i < t->k; i++)
        most = fmax(most, cabs(t->spectrum[i]));
    return ALIKE * t->what->rounding * most;
}

/* Vectors of one value together; those of value 0 into `alone`. How many these are. */
static int64_t turn_groups(turner *t, double near, int64_t *alone)
{
    int64_t n_alone = 0;
    for (int64_t first = 0, n; first < t->k && near >= 0; first += n) {
        n = 1;
        while (first + n < t->k &&
               cabs(t->spectrum[first + n] - t->spectrum[first + n - 1]) <= near)
            n++;
        const bool null = t->what->gauge->null && cabs(t->spectrum[first]) <= near;
        for (int64_t i = 0; i < n; i++)
            *(null ? &alone[n_alone++] : &t->group[i]) = first + i;
        if (!null && n > 1) rotate(t, t->sides, t->n_sides, t->group, n);
    }
    return n_alone;
}

/* For each value of the truth the nearest that is not taken yet; vectors go along. */
static void put_in_order(turner *t)
{
    memset(t->taken, 0, (size_t)t->k * sizeof *t->taken);
    for (int64_t i = 0; i < t->k; i++) {
        int64_t best = -1;
        for (int64_t j = 0; j < t->k; j++)
            if (!t->taken[j] && (best < 0 || cabs(t->mine[j] - t->spectrum[i]) <
                                                 cabs(t->mine[best] - t->spectrum[i])))
                best = j;
        t->taken[best] = true;
        t->order[i] = best;
    }
    side *s = &t->sides[0];
    number *old = room(t, s->n * s->length + t->k, sizeof *old);
    if (old == NULL) return;
    number *values = old + s->n * s->length;
    memcpy(old, s->mine, (size_t)(s->n * s->length) * sizeof *old);
    memcpy(values, t->mine, (size_t)t->k * sizeof *old);
    for (int64_t i = 0; i < t->k; i++) {
        t->mine[i] = values[t->order[i]];
        memcpy(vector(s->mine, s, i), old + t->order[i] * s->length,
               (size_t)s->length * sizeof *old);
    }
}

static void turn_matrix(turner *t)
{
    int64_t *alone = room(t, t->k, sizeof *alone);
    if (alone == NULL) return;
    if (t->what->gauge->unordered) put_in_order(t);
    for (int64_t j = 0; j < t->k; j++)
        turn_phase(t, j);
    const int64_t n_alone = turn_groups(t, tiny(t), alone);
    for (int m = 0; m < t->n_sides; m++) {
        int64_t n = 0;
        for (; n < n_alone; n++)
            t->group[n] = alone[n];
        for (int64_t j = t->k; j < t->sides[m].n; j++)
            t->group[n++] = j;
        rotate(t, &t->sides[m], 1, t->group, n);
    }
}

/* ---- all matrices ---- */

static void load_values(turner *t, int64_t batch)
{
    if (t->values == NULL) return;
    const bool pairs = t->values->device.ndim > t->what->ndim - 1;
    for (int64_t i = 0; i < t->k; i++) {
        t->mine[i] = read(&t->values->device, batch * t->k + i, pairs);
        t->spectrum[i] = read(&t->values->truth, batch * t->k + i, pairs);
    }
}

/* Whether a result has as many dimensions, or one of real and imaginary part beside. */
static bool is_of(const usc_tensor *t, int ndim)
{
    return t->ndim == ndim || (t->ndim == ndim + 1 && t->sizes[ndim] == 2);
}

/* False where sizes are not those of a decomposition. */
static bool measure(turner *t, int64_t *n_matrices)
{
    int64_t most = t->k;
    *n_matrices = -1;
    for (int m = 0; m < t->n_sides; m++) {
        const usc_tensor *like = &t->of[m]->device;
        const int d = t->what->ndim;
        if (d < 2 || !is_of(like, d)) return false;
        const int64_t rows = like->sizes[d - 2], columns = like->sizes[d - 1];
        side *s = &t->sides[m];
        const bool by_rows = t->what->gauge->rows[m];
        s->n = by_rows ? rows : columns;
        s->length = by_rows ? columns : rows;
        const int64_t n =
            usc_held_count(like) / (like->ndim > d ? 2 : 1) / rows / columns;
        if (s->n < t->k || (*n_matrices >= 0 && n != *n_matrices)) return false;
        *n_matrices = n;
        s->mine = room(t, s->n * s->length, sizeof *s->mine);
        s->its = room(t, s->n * s->length, sizeof *s->its);
        if (s->n > most) most = s->n;
    }
    t->mine = room(t, t->k, sizeof *t->mine);
    t->spectrum = room(t, t->k, sizeof *t->spectrum);
    t->order = room(t, t->k, sizeof *t->order);
    t->taken = room(t, t->k, sizeof *t->taken);
    t->group = room(t, most + t->k, sizeof *t->group);
    const int64_t pairs =
        t->values != NULL && t->values->device.ndim > t->what->ndim - 1 ? 2 : 1;
    if (t->values != NULL && !is_of(&t->values->device, t->what->ndim - 1)) return false;
    return !t->a->failed && (t->values == NULL || usc_held_count(&t->values->device) ==
                                                      *n_matrices * t->k * pairs);
}

static char *copy_of(turner *t, const usc_held *h)
{
    const size_t size = usc_dtype_info_of(h->device.dtype)->size;
    return room(t, usc_held_count(&h->device), size);
}

static void turn_all(turner *t, int64_t n_matrices)
{
    char *to[USC_GAUGE_SIDES] = {NULL}, *values = NULL;
    for (int m = 0; m < t->n_sides; m++)
        to[m] = copy_of(t, t->of[m]);
    if (t->values != NULL) values = copy_of(t, t->values);
    usc_arena *kept = t->a, scratch = {.alloc = kept->alloc};
    for (int64_t batch = 0; batch < n_matrices && !kept->failed; batch++) {
        t->a = &scratch;
        load_values(t, batch);
        for (int m = 0; m < t->n_sides; m++)
            load(t, m, batch);
        turn_matrix(t);
        for (int m = 0; m < t->n_sides; m++)
            store(t, m, batch, to[m]);
        for (int64_t i = 0; i < t->k && values != NULL; i++)
            write(t->values->device.dtype, values, batch * t->k + i,
                  t->values->device.ndim > t->what->ndim - 1, t->mine[i]);
        kept->failed |= scratch.failed;
        usc_arena_reset(&scratch);
    }
    t->a = kept;
    usc_arena_free(&scratch);
    if (kept->failed) return;
    for (int m = 0; m < t->n_sides; m++)
        t->of[m]->device.data = to[m];
    if (values != NULL) t->values->device.data = values;
}

void usc_held_in_gauge(const usc_freedom *what, usc_held *outputs, int n, usc_arena *a)
{
    turner t = {.what = what, .a = a, .n_sides = what->gauge->n_sides, .k = what->fewest};
    int64_t n_matrices;
    for (int m = 0; m < t.n_sides; m++) {
        t.of[m] = usc_held_find(outputs, n, what->gauge->side[m]);
        if (!comparable(t.of[m])) return;
    }
    if (what->gauge->values >= 0) {
        t.values = usc_held_find(outputs, n, what->gauge->values);
        if (!comparable(t.values)) return;
    }
    if (what->fewest > 0 && measure(&t, &n_matrices)) turn_all(&t, n_matrices);
}
