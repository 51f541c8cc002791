// SPDX-License-Identifier: Apache-2.0
// An order that nobody promised: values are put where what they are held to has those of
// their rank, and all that belongs to them with them. Neighbours: held.h.
#include "case/held.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An element along the dimension. Large integers are told apart by all their digits. */
typedef struct ranked {
    double value;
    int64_t whole, at;
} ranked;

static int by_value(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    if (isnan(a->value) != isnan(b->value)) return isnan(a->value) ? 1 : -1;
    if (a->value < b->value) return -1;
    if (a->value > b->value) return 1;
    if (a->whole != b->whole) return a->whole < b->whole ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

typedef struct lines {
    int64_t outer, length, inner;
} lines;

static lines lines_along(const usc_tensor *t, int dim)
{
    lines l = {.outer = 1, .length = t->sizes[dim], .inner = 1};
    for (int d = 0; d < t->ndim; d++)
        *(d < dim ? &l.outer : &l.inner) *= d == dim ? 1 : t->sizes[d];
    return l;
}

static int64_t element(const lines *l, int64_t line, int64_t i)
{
    return (line / l->inner * l->length + i) * l->inner + line % l->inner;
}

static void rank(const usc_tensor *t, const lines *l, int64_t line, ranked *out)
{
    const size_t size = usc_dtype_info_of(t->dtype)->size;
    for (int64_t i = 0; i < l->length; i++) {
        const char *from = (const char *)t->data + (size_t)element(l, line, i) * size;
        out[i] = (ranked){.at = i};
        usc_dtype_widen(t->dtype, from, &out[i].value, 1);
        if (t->dtype == USC_I64) memcpy(&out[i].whole, from, sizeof out[i].whole);
    }
    qsort(out, (size_t)l->length, sizeof *out, by_value);
}

/* place[element of the device] = element where it belongs. */
static int64_t *places(const usc_held *values, const lines *l, usc_arena *a)
{
    const int64_t n = usc_held_count(&values->device);
    int64_t *place = usc_arena_take(a, (size_t)n * sizeof *place + 1);
    ranked *mine = usc_arena_take(a, (size_t)l->length * sizeof *mine + 1);
    ranked *its = usc_arena_take(a, (size_t)l->length * sizeof *its + 1);
    if (place == NULL || mine == NULL || its == NULL) return NULL;
    for (int64_t line = 0; line < l->outer * l->inner; line++) {
        rank(&values->device, l, line, mine);
        rank(&values->truth, l, line, its);
        for (int64_t i = 0; i < l->length; i++)
            place[element(l, line, mine[i].at)] = element(l, line, its[i].at);
    }
    return place;
}

static void put_in_place(usc_tensor *t, const int64_t *place, usc_arena *a)
{
    const size_t size = usc_dtype_info_of(t->dtype)->size;
    const int64_t n = usc_held_count(t);
    char *to = usc_arena_take(a, (size_t)n * size + 1);
    if (to == NULL) return;
    for (int64_t i = 0; i < n; i++)
        memcpy(to + (size_t)place[i] * size, (const char *)t->data + (size_t)i * size,
               size);
    t->data = to;
}

/* A result that holds places among the values of one line. */
static void renumber(usc_tensor *t, const int64_t *place, int64_t length, usc_arena *a)
{
    const int64_t *from = t->data, n = usc_held_count(t);
    int64_t *to = usc_arena_take(a, (size_t)n * sizeof *to + 1);
    if (to == NULL) return;
    for (int64_t i = 0; i < n; i++) {
        if (from[i] < 0 || from[i] >= length) return;
        to[i] = place[from[i]];
    }
    t->data = to;
}

void usc_held_in_order(const usc_freedom *what, usc_held *outputs, int n, usc_arena *a)
{
    usc_held *values = usc_held_find(outputs, n, 0);
    if (values == NULL || values->device.ndim == 0 || what->dim >= values->device.ndim ||
        !usc_held_alike(&values->device, &values->truth) ||
        values->device.dtype == USC_DTYPE_NONE || values->truth.dtype == USC_DTYPE_NONE)
        return;
    const usc_tensor form = values->device;
    const lines l = lines_along(&form, what->dim);
    const int64_t *place = places(values, &l, a);
    if (place == NULL) return;
    usc_held *inverse = usc_held_find(outputs, n, what->inverse);
    for (int i = 0; i < n; i++)
        if (&outputs[i] != inverse && usc_held_alike(&outputs[i].device, &form) &&
            outputs[i].device.dtype != USC_DTYPE_NONE)
            put_in_place(&outputs[i].device, place, a);
    if (inverse != NULL && inverse->device.dtype == USC_I64 && form.ndim == 1)
        renumber(&inverse->device, place, l.length, a);
}
