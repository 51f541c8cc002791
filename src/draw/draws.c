// SPDX-License-Identifier: Apache-2.0
// Draws of one output while they are gathered. Neighbours: draws.h.
#include "draw/draws.h"

#include "draw/draw_special.h"
#include "kernels/walk_load.h"

#include <math.h>
#include <string.h>

/* Where points fall in their parts; no device is ever seeded with it. */
#define DITHER UINT64_C(0x5eed0fe7e2)

void usc_draws_begin(usc_draws *d, usc_arena *arena, int64_t n)
{
    *d = (usc_draws){.arena = arena, .n = n, .family = USC_DRAW_FAMILY};
    d->n_u = n < USC_DRAW_MOST ? n : USC_DRAW_MOST;
    d->u = usc_arena_take(arena, (size_t)d->n_u * sizeof *d->u);
    d->mid = usc_arena_take(arena, (size_t)d->n_u * sizeof *d->mid);
    if (arena->failed) d->u = NULL;
    for (int64_t i = 0; i < d->n_u && d->u != NULL; i++)
        d->u[i] = (double)NAN;
}

void usc_draws_read(const usc_tensor *t, usc_dtype dtype, int64_t from, int64_t n,
                    double *out)
{
    const usc_walk walk = usc_walk_over(t);
    usc_walk_room room;
    double values[USC_JUDGE_BLOCK];
    unsigned char raw[USC_JUDGE_BLOCK * 8];
    for (int64_t at = 0; at < n; at += USC_JUDGE_BLOCK) {
        const size_t count =
            (size_t)(n - at < USC_JUDGE_BLOCK ? n - at : USC_JUDGE_BLOCK);
        const double *v = usc_walk_load(&walk, from + at, count, &room, values);
        usc_dtype_narrow(dtype, v, raw, count);
        usc_dtype_widen(dtype, raw, out + at, count);
    }
}

double usc_draws_share(usc_dtype dtype)
{
    const usc_dtype_info *info = usc_dtype_info_of(dtype);
    return info->kind == USC_KIND_FLOAT ? 0x1p-12 + ldexp(1, 1 - info->sig_bits) : 0;
}

void usc_draws_shape(usc_draws *d, const usc_tensor *t)
{
    int64_t n = 1;
    for (int axis = 0; axis < t->ndim; axis++)
        n *= t->sizes[axis];
    if (n != d->n) return;
    d->ndim = t->ndim;
    memcpy(d->sizes, t->sizes, sizeof d->sizes);
}

int64_t usc_draws_element(const usc_draws *d, int64_t place)
{
    return place < d->n_u / 2 || d->n == d->n_u ? place : d->n - (d->n_u - place);
}

int64_t usc_draws_place(const usc_draws *d, int64_t i)
{
    if (d->n == d->n_u || i < USC_DRAW_MOST / 2) return i;
    const int64_t behind = d->n - i;
    return behind <= USC_DRAW_MOST / 2 ? d->n_u - behind : -1;
}

void usc_draws_put(usc_draws *d, uint64_t stream, int64_t i, double low, double high)
{
    const int64_t at = usc_draws_place(d, i);
    const double length = high - low;
    d->n_known++;
    if (at < 0) return;
    d->u[at] = low + usc_even_number(DITHER + stream, (uint64_t)i) * length;
    d->mid[at] = (float)(low + 0.5 * length);
    d->n_seen++;
    d->freedom += (1 - length * length) / 12;
    d->lengths += length;
    d->longest = fmax(d->longest, length);
}

void usc_draws_refuse(usc_draws *d, int64_t i, double value)
{
    if (d->n_impossible++ > 0) return;
    d->impossible = value;
    d->at = i;
}

double *usc_draws_doubles(usc_arena *arena, const usc_tensor *t, int64_t n)
{
    double *out = usc_arena_take(arena, (size_t)n * sizeof *out);
    const usc_walk walk = usc_walk_over(t);
    usc_walk_room room;
    for (int64_t at = 0; at < n && out != NULL; at += USC_JUDGE_BLOCK) {
        const size_t count =
            (size_t)(n - at < USC_JUDGE_BLOCK ? n - at : USC_JUDGE_BLOCK);
        const double *v = usc_walk_load(&walk, at, count, &room, out + at);
        for (size_t i = 0; i < count && v != out + at; i++)
            out[at + (int64_t)i] = v[i];
    }
    return out;
}

usc_status usc_draws_broadcast(const usc_tensor *t, const usc_tensor *like,
                               usc_tensor *out, usc_error *err)
{
    const int more = like->ndim - t->ndim;
    *out = *like;
    out->data = t->data;
    out->dtype = t->dtype;
    for (int axis = 0; axis < like->ndim; axis++) {
        const int64_t size = axis < more ? 1 : t->sizes[axis - more];
        out->strides[axis] = size == 1 ? 0 : t->strides[axis - more];
        if (size != 1 && size != like->sizes[axis])
            return usc_error_set(err, USC_E_SHAPE, axis,
                                 "a parameter has %lld there, the draws %lld",
                                 (long long)size, (long long)like->sizes[axis]);
    }
    if (more < 0)
        return usc_error_set(err, USC_E_SHAPE, like->ndim,
                             "a parameter has %d axes, the draws %d", t->ndim,
                             like->ndim);
    return USC_OK;
}
