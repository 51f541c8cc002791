// SPDX-License-Identifier: Apache-2.0
// Gradients at a corner of their function, where any subgradient is right: which elements
// these are, and between which values theirs may lie. A corner is found by probes, which
// move what is differentiated by less than any slope could show. Neighbours:
// case_state.h.
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

/* The ways to sum up: over each dimension, then over the last two and more, to all. */
static int n_ways(const usc_case *c)
{
    const int ndim = c->truth.ndim;
    return ndim < 2 ? ndim : 2 * ndim - 1;
}

static bool is_summed(const usc_case *c, int way, int d)
{
    const int ndim = c->truth.ndim;
    return way < ndim ? d == way : d >= ndim - (way - ndim + 2);
}

/* Which sum an element is part of. */
static int64_t sum_of(const usc_case *c, int way, int64_t flat)
{
    int64_t at = 0, stride = 1;
    for (int d = c->truth.ndim - 1; d >= 0; d--) {
        const int64_t size = c->truth.sizes[d];
        if (!is_summed(c, way, d)) {
            at += flat % size * stride;
            stride *= size;
        }
        flat /= size;
    }
    return at;
}

/* Sums of `values`, or of the sizes of the sides where that is NULL, each at the place of
 * its number; `out` has room for as many as there are elements. */
static void sum_up(const usc_case *c, int way, const double *values, double *out);

static bool take_sums(usc_case *c, const double *values)
{
    usc_sides *s = &c->sides;
    const bool first = s->low_sums == NULL;
    if (first) {
        const int64_t n = c->n * n_ways(c);
        s->low_sums = usc_case_room(c, n, sizeof *s->low_sums);
        s->high_sums = usc_case_room(c, n, sizeof *s->high_sums);
        s->sums = usc_case_room(c, c->n, sizeof *s->sums);
    }
    if (c->work.failed) return false;
    for (int way = 0; way < n_ways(c); way++) {
        double *low = s->low_sums + way * c->n, *high = s->high_sums + way * c->n;
        sum_up(c, way, values, s->sums);
        for (int64_t i = 0; i < c->n; i++) {
            low[i] = first ? s->sums[i] : fmin(low[i], s->sums[i]);
            high[i] = first ? s->sums[i] : fmax(high[i], s->sums[i]);
        }
    }
    return true;
}

/* ---- probes ---- */

static double size_at(const usc_case *c, int64_t i)
{
    return fmax(fabs(c->sides.low[i]), fabs(c->sides.high[i]));
}

static void sum_up(const usc_case *c, int way, const double *values, double *out)
{
    memset(out, 0, (size_t)c->n * sizeof *out);
    for (int64_t i = 0; i < c->n; i++)
        out[sum_of(c, way, i)] += values != NULL ? values[i] : size_at(c, i);
}

/* Elements of sums that no choice changes, and that are others on the device, stay. */
static void keep_unbalanced(usc_case *c)
{
    usc_sides *s = &c->sides;
    const int bits = usc_dtype_info_of(c->device.dtype)->sig_bits;
    const double share = fmax(SAME, 4 * ldexp(1, 1 - bits));
    double *size = usc_case_room(c, c->n, sizeof *size);
    if (s->low_sums == NULL || size == NULL) return;
    for (int way = 0; way < n_ways(c); way++) {
        const double *low = s->low_sums + way * c->n, *high = s->high_sums + way * c->n;
        sum_up(c, way, c->d, s->sums);
        sum_up(c, way, NULL, size);
        for (int64_t i = 0; i < c->n; i++) {
            const int64_t k = sum_of(c, way, i);
            const bool fixed = high[k] - low[k] <= GRID * size[k];
            if (fixed &&
                fabs(s->sums[k] - low[k]) > share * fmax(size[k], fabs(s->sums[k])))
                s->asked[i] = 0;
        }
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
    return usc_case_go(c, usc_case_end);
}

/* ---- what lies between the sides ---- */

/* How far a value lies beyond the sides; what goes free is put right but for that. */
static double beyond(const usc_case *c, int64_t i)
{
    const usc_sides *s = &c->sides;
    const int bits = usc_dtype_info_of(c->device.dtype)->sig_bits;
    const double off = c->d[i] - fmin(fmax(c->d[i], s->low[i]), s->high[i]);
    const double slack = fmax(ROUNDINGS, ldexp(1, 1 - bits)) * size_at(c, i);
    return fabs(off) <= slack ? 0 : off; /* the truth may be 0 on this side */
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
    return usc_case_go(c, usc_case_freed);
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
    c->sides.low_sums = NULL; /* which sums no choice changes is not told */
    for (int64_t i = 0; i < c->n; i++) {
        c->sides.low[i] = from[i];
        c->sides.high[i] = to[i];
        c->sides.rough[i] = corner[i] != 0 ? 0 : TWICE;
    }
    return weigh(c);
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
