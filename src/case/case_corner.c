// SPDX-License-Identifier: Apache-2.0
// Gradients at a corner of their function, where any subgradient is right: which elements
// these are, and between which values theirs may lie. A corner is found by probes, which
// move what is differentiated by less than any slope could show. Neighbours:
// case_state.h.
#include "case/case_kept.h"
#include "case/case_state.h"

#include <math.h>
#include <string.h>

enum {
    PROBES = 48,
    FIRST = 12,     /* of them tell whether there is a corner at all */
    TWICE = 8,      /* of them are looked at from half the distance as well */
    MOST_PARTS = 64 /* among which a tie is divided evenly */
};
#define JUMP 0x1p-10      /* of the result: far above what a jitter becomes */
#define SAME 0x1p-12      /* of the result: one choice, computed with other roundings */
#define ROUNDINGS 0x1p-18 /* beyond a side */
#define CHOICES 0.9       /* of the elements at ties have to be choices where many are */

#define GRID 0x1p-36 /* of a sum's size: a sum that no choice changes */

static usc_case_stage take_probe;

/* ---- sums that no choice changes, as what tied maxima share ---- */

/* A way to sum up: over each dimension, then over the last two and more, to all. Sums lie
 * one behind the other, each the sum of `n` elements that are `inner` apart. */
typedef struct {
    int64_t outer, n, inner;
} sum_way;

static int n_ways(const usc_case *c)
{
    const int ndim = c->truth.ndim;
    return ndim < 2 ? ndim : 2 * ndim - 1;
}

static int64_t product(const int64_t *sizes, int from, int to)
{
    int64_t n = 1;
    for (int d = from; d < to; d++)
        n *= sizes[d];
    return n;
}

static sum_way way_of(const usc_case *c, int number)
{
    const int ndim = c->truth.ndim;
    const bool one = number < ndim;
    const int first = one ? number : 2 * ndim - number - 2,
              last = one ? number + 1 : ndim;
    return (sum_way){product(c->truth.sizes, 0, first),
                     product(c->truth.sizes, first, last),
                     product(c->truth.sizes, last, ndim)};
}

static int64_t n_sums(sum_way way)
{
    return way.outer * way.inner;
}

/* Which sum an element is part of. */
static int64_t sum_of(sum_way way, int64_t i)
{
    return i / (way.n * way.inner) * way.inner + i % way.inner;
}

static void sum_up(sum_way way, const double *values, double *out)
{
    memset(out, 0, (size_t)n_sums(way) * sizeof *out);
    for (int64_t o = 0; o < way.outer; o++, out += way.inner)
        for (int64_t k = 0; k < way.n; k++, values += way.inner)
            for (int64_t i = 0; i < way.inner; i++)
                out[i] += values[i];
}

/* How many there are in all ways. */
static int64_t n_all_sums(const usc_case *c)
{
    int64_t n = 0;
    for (int way = 0; way < n_ways(c); way++)
        n += n_sums(way_of(c, way));
    return n;
}

static bool take_sums(usc_case *c, const double *values)
{
    usc_sides *s = &c->sides;
    const bool first = s->low_sums == NULL;
    if (first) {
        const int64_t n = n_all_sums(c);
        s->low_sums = usc_case_room(c, n, sizeof *s->low_sums);
        s->high_sums = usc_case_room(c, n, sizeof *s->high_sums);
        s->sums = usc_case_room(c, c->n, sizeof *s->sums);
    }
    if (c->work.failed) return false;
    double *low = s->low_sums, *high = s->high_sums;
    for (int number = 0; number < n_ways(c); number++) {
        const sum_way way = way_of(c, number);
        sum_up(way, values, s->sums);
        for (int64_t i = 0; i < n_sums(way); i++, low++, high++) {
            *low = first ? s->sums[i] : fmin(*low, s->sums[i]);
            *high = first ? s->sums[i] : fmax(*high, s->sums[i]);
        }
    }
    return true;
}

/* ---- probes ---- */

static double size_at(const usc_case *c, int64_t i)
{
    return fmax(fabs(c->sides.low[i]), fabs(c->sides.high[i]));
}

/* Elements of sums that no choice changes, and that are others on the device, stay. */
static void keep_unbalanced(usc_case *c)
{
    usc_sides *s = &c->sides;
    const int bits = usc_dtype_info_of(c->device.dtype)->sig_bits;
    const double share = fmax(SAME, 4 * ldexp(1, 1 - bits));
    double *sizes = usc_case_room(c, c->n, sizeof *sizes);
    double *size = usc_case_room(c, c->n, sizeof *size);
    if (s->low_sums == NULL || sizes == NULL || size == NULL) return;
    for (int64_t i = 0; i < c->n; i++)
        sizes[i] = size_at(c, i);
    const double *low = s->low_sums, *high = s->high_sums;
    for (int number = 0; number < n_ways(c); number++) {
        const sum_way way = way_of(c, number);
        sum_up(way, c->d, s->sums);
        sum_up(way, sizes, size);
        for (int64_t i = 0; i < c->n; i++) {
            if (!s->asked[i]) continue;
            const int64_t k = sum_of(way, i);
            const bool fixed = high[k] - low[k] <= GRID * size[k];
            if (fixed &&
                fabs(s->sums[k] - low[k]) > share * fmax(size[k], fabs(s->sums[k])))
                s->asked[i] = 0;
        }
        low += n_sums(way);
        high += n_sums(way);
    }
}

/* Whether probes differ as they do beside a corner. */
static bool is_corner(const usc_case *c, int64_t i)
{
    const usc_sides *s = &c->sides;
    return s->high[i] - s->low[i] > JUMP * size_at(c, i) && 2 * s->rough[i] <= TWICE;
}

static usc_status begin_probes(usc_case *c, bool settled)
{
    usc_sides *s = &c->sides;
    *s = (usc_sides){.low = usc_case_room(c, c->n, sizeof *s->low),
                     .high = usc_case_room(c, c->n, sizeof *s->high),
                     .moved = usc_case_room(c, c->n, sizeof *s->moved),
                     .rough = usc_case_room(c, c->n, 1),
                     .good = s->good,
                     .asked = s->asked,
                     .settled = settled};
    if (c->work.failed) return USC_OK; /* the driver tells */
    for (int64_t i = 0; i < c->n; i++)
        s->low[i] = s->high[i] = c->r[i];
    if (!settled && !take_sums(c, c->r)) return USC_OK; /* the driver tells */
    return usc_case_ask(c, settled ? USC_WANT_SETTLED_PROBE : USC_WANT_PROBE, 0,
                        take_probe);
}

static usc_status give_up(usc_case *c)
{
    c->d = NULL;
    return usc_case_pass(c, USC_STAGE_END);
}

/* ---- what lies between the sides ---- */

/* How far a value lies beyond the sides; what goes free is put right but for that. */
static double beyond(const usc_case *c, int64_t i)
{
    const usc_sides *s = &c->sides;
    const double d = c->d[i], nearest = fmin(fmax(d, s->low[i]), s->high[i]);
    const double slack = ROUNDINGS * size_at(c, i); /* the truth may be 0 on this side */
    const bool within = isfinite(d) && usc_case_distance(c, d, nearest) <= slack;
    return within ? 0 : d - nearest;
}

static usc_status free_asked(usc_case *c)
{
    c->n_marks = 0;
    c->excuse = USC_EXCUSE_CORNER;
    if (!usc_case_spare(c, &c->device)) return USC_OK; /* the driver tells */
    for (int64_t i = 0; i < c->n; i++) {
        c->n_marks += c->sides.asked[i];
        if (c->sides.asked[i]) usc_case_put(c, i, c->r[i] + beyond(c, i));
    }
    if (c->n_marks == 0) return give_up(c);
    return usc_case_pass(c, USC_STAGE_FREED);
}

/* Whether a value is an even share of a tie. */
static bool is_share(const usc_case *c, int64_t i)
{
    const usc_sides *s = &c->sides;
    const double part = (s->high[i] - s->low[i]) / fmax(c->d[i] - s->low[i], 1e-300);
    return part <= MOST_PARTS && fabs(part - nearbyint(part)) <= SAME * part;
}

/* Of very many elements at corners those that no activation's own rule settles, as long
 * as nearly all of them hold one of the choices or an even share. The sides stay those of
 * the first probes. */
static usc_status weigh_settled(usc_case *c)
{
    usc_sides *s = &c->sides;
    int64_t n = 0, n_good = 0;
    for (int64_t i = 0; i < c->n; i++) {
        s->asked[i] = s->asked[i] && is_corner(c, i);
        n += s->asked[i];
        n_good += s->asked[i] && (s->good[i] || is_share(c, i));
    }
    if (n == 0 || !((double)n_good >= CHOICES * (double)n)) return give_up(c);
    s->low = c->first_low;
    s->high = c->first_high;
    return free_asked(c);
}

static usc_status keep(usc_case *c)
{
    uint8_t *where = usc_case_room(c, c->n, 1);
    if (where == NULL) return USC_OK; /* the driver tells */
    for (int64_t i = 0; i < c->n; i++)
        where[i] = is_corner(c, i);
    usc_case_keep_corners(c, where, n_all_sums(c));
    return give_up(c);
}

static usc_status weigh(usc_case *c)
{
    usc_sides *s = &c->sides;
    int64_t n = 0;
    s->asked = usc_case_room(c, c->n, 1);
    s->good = usc_case_room(c, c->n, 1);
    if (c->work.failed) return USC_OK; /* the driver tells */
    for (int64_t i = 0; i < c->n; i++) {
        s->asked[i] = is_corner(c, i) && c->open[i] &&
                      fabs(c->d[i] - c->r[i]) > JUMP * size_at(c, i);
    }
    keep_unbalanced(c);
    for (int64_t i = 0; i < c->n; i++)
        n += s->asked[i];
    const double most = usc_excuse_info_of(USC_EXCUSE_CORNER)->most;
    if (!((double)n > fmax(1, most * (double)c->n)))
        return n > 0 ? free_asked(c) : give_up(c);
    if (c->o.single) return give_up(c);
    c->first_low = s->low;
    c->first_high = s->high;
    return begin_probes(c, true);
}

/* ---- probe by probe ---- */

/* Whether none of the first probes shows a corner that is in question. */
static bool is_smooth(const usc_case *c)
{
    if (c->sides.n_moved != FIRST + 1 || c->sides.settled) return false;
    for (int64_t i = 0; i < c->n; i++)
        if (c->open[i] && is_corner(c, i)) return false;
    return true;
}

/* The choices that the first probes know: what the device may have taken. */
static void mark_choices(usc_case *c)
{
    for (int64_t i = 0; i < c->n; i++) {
        const double size = fmax(fabs(c->first_low[i]), fabs(c->first_high[i]));
        if (fabs(c->d[i] - c->sides.moved[i]) <= SAME * size) c->sides.good[i] = 1;
    }
}

static usc_status go_on(usc_case *c)
{
    const bool settled = c->sides.settled;
    if (c->want.k + 1 < PROBES)
        return usc_case_ask(c, settled ? USC_WANT_SETTLED_PROBE : USC_WANT_PROBE,
                            c->want.k + 1, take_probe);
    if (c->kept != NULL) return keep(c);
    return settled ? weigh_settled(c) : weigh(c);
}

static usc_status probed(usc_case *c)
{
    c->sides.n_moved++;
    if (c->sides.settled) mark_choices(c);
    return is_smooth(c) ? give_up(c) : go_on(c);
}

/* Beside a corner nothing hangs on the distance. */
static usc_status take_nearer(usc_case *c, usc_error *err)
{
    (void)err;
    if (usc_case_given(c, USC_GIVEN_AS_ASKED) && c->given.a != NULL &&
        usc_case_fits(c->given.a, &c->truth)) {
        const double *nearer = usc_case_wide(c, c->given.a);
        if (nearer == NULL) return USC_OK; /* the driver tells */
        for (int64_t i = 0; i < c->n; i++) {
            const double moved = c->sides.moved[i];
            const double larger = fmax(fabs(moved), fabs(nearer[i]));
            const int apart = fabs(moved - nearer[i]) > JUMP * larger;
            c->sides.rough[i] = (uint8_t)(c->sides.rough[i] + apart);
        }
    }
    return probed(c);
}

static bool are_sums(const usc_case *c, const usc_tensor *t)
{
    return t != NULL && t->dtype == USC_F64 && t->ndim == 1 &&
           t->sizes[0] == n_all_sums(c) && usc_tensor_contiguous(t);
}

/* Their sums; without them nobody knows which of them no choice changes. */
static usc_status take_tied(usc_case *c, usc_error *err)
{
    (void)err;
    usc_sides *s = &c->sides;
    const bool told = are_sums(c, c->given.a) && are_sums(c, c->given.b);
    const size_t size = (size_t)n_all_sums(c) * sizeof *s->low_sums;
    if (!told) s->low_sums = NULL;
    if (told) memcpy(s->low_sums, c->given.a->data, size);
    if (told) memcpy(s->high_sums, c->given.b->data, size);
    return weigh(c);
}

/* Both sides of all corners at once. */
static usc_status take_sides(usc_case *c, usc_error *err)
{
    const usc_tensor *low = c->given.a, *high = c->given.b, *where = c->given.c;
    if (low == NULL || high == NULL || where == NULL || !usc_case_fits(low, &c->truth) ||
        !usc_case_fits(high, &c->truth) || !usc_case_fits(where, &c->truth))
        return usc_error_set(err, USC_E_SHAPE, -1, "%s: sides of corners do not fit",
                             c->o.path);
    const double *from = usc_case_wide(c, low), *to = usc_case_wide(c, high);
    const double *corner = usc_case_wide(c, where);
    if (from == NULL || to == NULL || corner == NULL) return USC_OK;
    for (int64_t i = 0; i < c->n; i++) {
        c->sides.low[i] = from[i];
        c->sides.high[i] = to[i];
        c->sides.rough[i] = corner[i] != 0 ? 0 : TWICE;
    }
    return usc_case_ask(c, USC_WANT_TIED, 0, take_tied);
}

static usc_status take_probe(usc_case *c, usc_error *err)
{
    usc_sides *s = &c->sides;
    if (usc_case_given(c, USC_GIVEN_SUMS)) return take_sides(c, err);
    if (usc_case_given(c, USC_GIVEN_NONE)) {
        c->want.k = PROBES;
        return go_on(c);
    }
    if (usc_case_given(c, USC_GIVEN_FAILED) || c->given.a == NULL ||
        !usc_case_fits(c->given.a, &c->truth))
        return go_on(c);
    const double *moved = usc_case_wide(c, c->given.a);
    if (moved == NULL) return USC_OK; /* the driver tells */
    memcpy(s->moved, moved, (size_t)c->n * sizeof *moved);
    for (int64_t i = 0; i < c->n; i++) {
        s->low[i] = fmin(s->low[i], moved[i]);
        s->high[i] = fmax(s->high[i], moved[i]);
    }
    if (!s->settled && !take_sums(c, s->moved)) return USC_OK; /* the driver tells */
    if (c->want.k >= TWICE) return probed(c);
    return usc_case_ask(c, s->settled ? USC_WANT_NEARER_SETTLED : USC_WANT_NEARER_PROBE,
                        c->want.k, take_nearer);
}

usc_status usc_case_corners(usc_case *c, usc_error *err)
{
    (void)err;
    if (!c->o.gradient || (c->o.single && c->o.never_rounds)) return give_up(c);
    if (!usc_case_load(c)) return USC_OK; /* the driver tells */
    return begin_probes(c, false);
}
