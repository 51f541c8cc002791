// SPDX-License-Identifier: Apache-2.0
// Elements that are drawn in their order alone (a shuffle, a sample without repeats, one
// hot rows): all draws of the CPU hold the same numbers, in other places. A device's must
// hold them as well: in the whole, at each index of an axis, and slice by slice. Sums of
// hashes tell whether they do, whatever the order. Neighbour: draw_crowd.c, which asks.
#include "base/mix.h"
#include "draw/draw_special.h"
#include "draw/draws.h"

#include "case/findings.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum {
    MOST_ELEMENTS = 1 << 20,
    MOST_GROUPS = 1 << 13, /* the whole, and the indices of all axes */
    NO_AXIS = -1,
};

/* What one tensor holds, group by group: group 0 is all of it. */
typedef struct sums {
    uint64_t *bag;    /* of a group's elements, wherever they stand */
    uint64_t *place;  /* of its elements and where they stand */
    uint64_t *slices; /* of the slices of an axis, wherever they stand */
} sums;

typedef struct order {
    usc_arena *arena;
    const usc_draw_crowd *of;
    int64_t n;
    int n_groups, n_axes;
    int first[USC_MAX_DIMS]; /* group of an axis's index 0; 0: not looked at */
    int64_t stride[USC_MAX_DIMS];
    double *mine, *due; /* room for all elements, each */
} order;

static uint64_t hash_of(double v)
{
    uint64_t bits;
    const double plain = isnan(v) ? (double)NAN : v + 0.0; /* one NaN, one zero */
    memcpy(&bits, &plain, sizeof bits);
    return usc_mixed(bits + UINT64_C(0x9e3779b97f4a7c15));
}

static void choose_groups(order *o)
{
    const usc_tensor *t = o->of->device;
    int64_t stride = 1;
    o->n_groups = 1;
    o->n_axes = t->ndim;
    for (int a = t->ndim - 1; a >= 0; stride *= t->sizes[a--]) {
        o->first[a] = 0;
        o->stride[a] = stride;
        if (t->sizes[a] < 2 || t->ndim < 2 || t->sizes[a] > MOST_GROUPS - o->n_groups)
            continue;
        o->first[a] = o->n_groups;
        o->n_groups += (int)t->sizes[a];
    }
}

static int64_t index_of(const order *o, int64_t i, int axis)
{
    return i / o->stride[axis] % o->of->device->sizes[axis];
}

static void add_element(const order *o, int64_t i, uint64_t h, const sums *s)
{
    s->bag[0] += h;
    s->place[0] += usc_mixed(h ^ usc_mixed((uint64_t)i));
    for (int a = 0; a < o->n_axes; a++) {
        if (o->first[a] == 0) continue;
        const int64_t k = index_of(o, i, a), step = o->stride[a];
        const int64_t at = i / (step * o->of->device->sizes[a]) * step + i % step;
        s->bag[o->first[a] + k] += h;
        s->place[o->first[a] + k] += usc_mixed(h ^ usc_mixed((uint64_t)at));
    }
}

static sums add_up(const order *o, const usc_tensor *t)
{
    const size_t n = (size_t)o->n_groups;
    sums s = {usc_arena_take(o->arena, n * sizeof *s.bag),
              usc_arena_take(o->arena, n * sizeof *s.place),
              usc_arena_take(o->arena, USC_MAX_DIMS * sizeof *s.slices)};
    if (o->arena->failed) return s;
    memset(s.bag, 0, n * sizeof *s.bag);
    memset(s.place, 0, n * sizeof *s.place);
    memset(s.slices, 0, USC_MAX_DIMS * sizeof *s.slices);
    usc_draws_read(t, o->of->device->dtype, 0, o->n, o->mine);
    for (int64_t i = 0; i < o->n; i++)
        add_element(o, i, hash_of(o->mine[i]), &s);
    for (int a = 0; a < o->n_axes; a++)
        for (int64_t k = 0; o->first[a] != 0 && k < o->of->device->sizes[a]; k++)
            s.slices[a] += usc_mixed(s.place[o->first[a] + k]);
    return s;
}

/* Whether all draws hold the same at [k], a member of `sums` chosen by its offset. */
static bool all_hold(const order *o, const sums *draws, size_t member, int k)
{
    const uint64_t *one, *first;
    memcpy(&first, (const char *)&draws[0] + member, sizeof first);
    for (int r = 1; r < o->of->n_draws; r++) {
        memcpy(&one, (const char *)&draws[r] + member, sizeof one);
        if (one[k] != first[k]) return false;
    }
    return true;
}

/* Whether a group's places are drawn: no order stands in more than half of the draws. */
static bool is_shuffled(const order *o, const sums *draws, int group)
{
    for (int r = 0; r < o->of->n_draws; r++) {
        int same = 0;
        for (int q = 0; q < o->of->n_draws; q++)
            same += draws[q].place[group] == draws[r].place[group];
        if (2 * same > o->of->n_draws) return false;
    }
    return true;
}

/* The sorted elements of a group, n of them; false where one is no number. */
static bool sorted(const order *o, const usc_tensor *t, int axis, int64_t index,
                   int64_t n, double *out)
{
    usc_tensor part = *t;
    if (axis != NO_AXIS) {
        part.sizes[axis] = 1;
        part.data = (const unsigned char *)t->data +
                    index * t->strides[axis] * (int64_t)usc_dtype_info_of(t->dtype)->size;
    }
    usc_draws_read(&part, o->of->device->dtype, 0, n, out);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(out[i])) return false;
    usc_sort_doubles(out, (size_t)n);
    return true;
}

/* How many of the device's elements are none of those that all draws have: roundings
 * apart, as far as two kernels may round apart. */
static int64_t count_strange(const order *o, int axis, int64_t index)
{
    const int64_t n = axis == NO_AXIS ? o->n : o->n / o->of->device->sizes[axis];
    if (!sorted(o, o->of->device, axis, index, n, o->mine) ||
        !sorted(o, &o->of->draws[0], axis, index, n, o->due))
        return 0;
    double squares = 0;
    for (int64_t i = 0; i < n; i++)
        squares += o->due[i] * o->due[i];
    const double share = usc_draws_share(o->of->device->dtype);
    const double least = share > 0 ? USC_DRAWS_LEAST * sqrt(squares / (double)n) : 0;
    int64_t strange = 0;
    for (int64_t i = 0; i < n; i++)
        strange += !(fabs(o->mine[i] - o->due[i]) <= share * fabs(o->due[i]) + least);
    return strange;
}

/* Group by group: the whole, and the indices of the axes. */
static bool group_differs(const order *o, const sums *draws, const sums *mine, int axis,
                          int64_t index, usc_clause *out)
{
    const int g = axis == NO_AXIS ? 0 : o->first[axis] + (int)index;
    if (mine->bag[g] == draws[0].bag[g] || !all_hold(o, draws, offsetof(sums, bag), g) ||
        !is_shuffled(o, draws, g))
        return false;
    const int64_t n = count_strange(o, axis, index);
    if (n == 0) return false;
    if (axis == NO_AXIS)
        return usc_clause_set(out,
                              "%s of its elements are not those of the draws of the "
                              "CPU, which hold the same in other orders",
                              usc_count(n).text);
    return usc_clause_set(out,
                          "%s of the elements at index %lld of axis %d are not those of "
                          "the draws of the CPU, which hold the same there in other "
                          "orders",
                          usc_count(n).text, (long long)index, axis);
}

static bool slices_differ(const order *o, const sums *draws, const sums *mine, int axis,
                          usc_clause *out)
{
    if (mine->bag[0] != draws[0].bag[0] || mine->slices[axis] == draws[0].slices[axis] ||
        !all_hold(o, draws, offsetof(sums, slices), axis) || !is_shuffled(o, draws, 0))
        return false;
    return usc_clause_set(out,
                          "its slices along axis %d are not those of the draws of the "
                          "CPU, which hold the same in other orders",
                          axis);
}

bool usc_draw_order_odd(const usc_draw_crowd *of, int64_t n, usc_arena *arena,
                        usc_clause *out)
{
    order o = {.arena = arena, .of = of, .n = n};
    if (n < 2 || n > MOST_ELEMENTS) return false;
    choose_groups(&o);
    o.mine = usc_arena_take(arena, (size_t)n * sizeof *o.mine);
    o.due = usc_arena_take(arena, (size_t)n * sizeof *o.due);
    sums *draws = usc_arena_take(arena, (size_t)of->n_draws * sizeof *draws);
    if (arena->failed) return false;
    for (int r = 0; r < of->n_draws; r++) {
        draws[r] = add_up(&o, &of->draws[r]);
        if (arena->failed) return false;
    }
    const sums mine = add_up(&o, of->device);
    if (arena->failed) return false;
    if (group_differs(&o, draws, &mine, NO_AXIS, 0, out)) return true;
    for (int a = 0; a < o.n_axes; a++) {
        if (o.first[a] == 0) continue;
        for (int64_t k = 0; k < of->device->sizes[a]; k++)
            if (group_differs(&o, draws, &mine, a, k, out)) return true;
        if (slices_differ(&o, draws, &mine, a, out)) return true;
    }
    return false;
}
