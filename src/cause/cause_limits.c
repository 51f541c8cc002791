// SPDX-License-Identifier: Apache-2.0
// Numbers held at a limit, and NaN and Inf out of place. Neighbours: cause_state.h.
#include "cause/cause_state.h"

#include <stdio.h>
#include <string.h>

#include "base/line.h"
#include "base/number.h"

/* Limits of formats as they come in a clause. */
static const struct {
    double top;
    const char *words;
} limits[] = {{65504.0, ", the maximum of float16"},
              {448.0, ", the maximum of float8_e4m3fn"},
              {240.0, ", the maximum of float8_e4m3fnuz"},
              {57344.0, ", the maximum of float8_e5m2"},
              {127.0, ", the maximum of int8"},
              {128.0, ", the maximum of int8"},
              {255.0, ", the maximum of uint8"},
              {32767.0, ", the maximum of int16"},
              {32768.0, ", the maximum of int16"},
              {2147483647.0, ", the maximum of int32"},
              {6.0, ", the maximum of fp4"},
              {7.0, ", the maximum of int4"}};

/* A small number is a format's limit only where the results reach it below zero, too:
 * counts stop at 7 as well. */
static const char *limit_of(const usc_cause *c, double top)
{
    bool both = top > 16;
    for (int64_t i = 0; i < c->d.n && !both; i++)
        both = value_at(&c->d, i) <= -top;
    for (size_t i = 0; i < sizeof limits / sizeof limits[0] && both; i++)
        if (limits[i].top == top) return limits[i].words;
    return NULL;
}

/* ---- saturated ---- */

typedef struct range {
    const usc_cause *c;
    double low, high;
} range;

static double clamp(const range *r, double x)
{
    return x < r->low ? r->low : x > r->high ? r->high : x; /* NaN stays */
}

static double clamped_truth(const void *ctx, int64_t i)
{
    const range *r = ctx;
    return clamp(r, value_at(&r->c->t, i));
}

static double clamped_yardstick(const void *ctx, int64_t i)
{
    const range *r = ctx;
    return clamp(r, value_at(&r->c->y, i));
}

static double largest(const usc_cause *c)
{
    double top = 0;
    for (int64_t i = 0; i < c->d.n; i++) {
        const double d = fabs(value_at(&c->d, i));
        if (isfinite(d) && d > top) top = d;
    }
    return top;
}

/* Whether a limit takes off more than rounding to few bits would, and from all alike. */
static bool cuts(const usc_cause *c, double top, bool named)
{
    const double apart = top * (1 + ldexp(1, 2 - (c->bits < 18 ? c->bits : 18)));
    int64_t held = 0, beyond = 0, beyond_held = 0, not_zero = 0, above = 0;
    double most = 0;
    for (int64_t i = 0; i < c->d.n; i++) {
        const double d = value_at(&c->d, i), t = value_at(&c->t, i);
        const bool at_top = fabs(d) == top;
        const bool out = fabs(t) > 1.125 * top && d != 0 && d != rounded(c, t);
        not_zero += t != 0;
        held += at_top;
        above += at_top && fabs(t) > apart;
        beyond += out;
        beyond_held += out && at_top;
        if (at_top && fabs(t) > most) most = fabs(t);
    }
    if (above == 0 || (double)beyond_held < 0.9 * (double)beyond) return false;
    if (!named && held < 2) return false;
    return !c->floats || held < not_zero / 2 || most > top * (1 + 0x1p-7);
}

/* Whether all that a limit holds lies below zero. */
static bool from_below(const usc_cause *c, double top)
{
    bool below = false, above = false;
    for (int64_t i = 0; i < c->d.n; i++) {
        const double d = value_at(&c->d, i), t = value_at(&c->t, i);
        below |= d == -top && t < -top;
        above |= d == top && t > top;
    }
    return below && !above;
}

bool usc_cause_saturated(usc_cause *c, usc_cause_found *out)
{
    const double top = largest(c), inf = (double)INFINITY;
    const char *name = limit_of(c, top);
    if (c->d.kind == USC_KIND_BOOL || top == 0 || !cuts(c, top, name != NULL))
        return false;
    const bool low = from_below(c, top);
    const clue say = {.code = low && name == NULL ? USC_CAUSE_CLIPPED_BELOW
                                                  : USC_CAUSE_SATURATED,
                      .v = low ? -top : top,
                      .s = name};
    const range ranges[] = {{c, -top, top}, {c, -inf, top}, {c, -top, inf}, {c, 0, top}};
    for (int i = 0; i < 4; i++) {
        bool any = false;
        const double far =
            usc_cause_far_share(c, clamped_truth, clamped_yardstick, &ranges[i], &any);
        if (far > 0.01 || !any) continue;
        return usc_cause_left(c, clamped_truth, &ranges[i]) <= USC_CAUSE_LEFT_MOST &&
               usc_cause_say(out, &say);
    }
    return false;
}

/* ---- as if a padding counted in a minimum or a maximum ---- */

/* Whether the results are the truth held at `v` from one side, some on each side of it.
 */
static bool held_at(const usc_cause *c, double v, bool above)
{
    int64_t beyond = 0, within = 0;
    for (int64_t i = 0; i < c->d.n; i++) {
        const double d = value_at(&c->d, i), t = value_at(&c->t, i);
        const double noise = fabs(value_at(&c->y, i) - t);
        const double room =
            ldexp(fabs(t), 1 - c->bits) + (isfinite(noise) ? 8 * noise : 0);
        const bool out = above ? t > v : t < v;
        if (out && d == v) {
            beyond += fabs(t - v) > 4 * room;
        } else if (same(d, rounded(c, t)) || fabs(d - t) <= room) {
            within++;
            if (out) return false;
        } else {
            return false;
        }
    }
    return beyond >= 3 && within >= 2;
}

bool usc_cause_clipped(usc_cause *c, usc_cause_found *out)
{
    static const double usual[] = {0, 1};
    for (int k = 0; k < 4 && c->d.kind != USC_KIND_BOOL; k++)
        if (held_at(c, usual[k / 2], k % 2 == 0))
            return usc_cause_say(out,
                                 &(clue){.code = k % 2 == 0 ? USC_CAUSE_CLIPPED_ABOVE
                                                            : USC_CAUSE_CLIPPED_BELOW,
                                         .v = usual[k / 2]});
    return false;
}

/* ---- NaN and Inf ---- */

bool usc_cause_kinds_differ(const usc_cause *c)
{
    for (int64_t i = 0; i < c->d.n && c->floats; i++) {
        const double d = value_at(&c->d, i), t = rounded(c, value_at(&c->t, i));
        if ((!isfinite(d) || !isfinite(t)) && !same(d, t)) return true;
    }
    return false;
}

bool usc_cause_opposite(const usc_cause *c)
{
    for (int64_t i = 0; i < c->d.n; i++) {
        const double d = value_at(&c->d, i), t = rounded(c, value_at(&c->t, i));
        if ((!isfinite(d) || !isfinite(t)) && !same(d, t) && d != -t) return false;
    }
    return true;
}

/* What stands where the truth has NaN or Inf, and the reverse. */
typedef struct oddities {
    int64_t lost, made, mixed, made_large;
    bool lost_nan, made_nan, mixed_nan, zero, alike;
    double instead;     /* size of the first that stands for what was lost */
    double least, rest; /* true sizes: the least of those made, the most of the rest */
    bool any_rest;
} oddities;

static void add_lost(oddities *o, double d, double t)
{
    if (o->lost++ == 0) o->instead = fabs(d);
    o->lost_nan |= isnan(t);
    o->zero &= d == 0;
    o->alike &= fabs(d) == o->instead;
}

static oddities find_odd(const usc_cause *c)
{
    oddities o = {.zero = true, .alike = true, .least = (double)INFINITY};
    for (int64_t i = 0; i < c->d.n; i++) {
        const double d = value_at(&c->d, i), truth = value_at(&c->t, i);
        const double t = rounded(c, truth), size = fabs(truth);
        const bool odd = !isfinite(d), true_odd = !isfinite(t);
        if (true_odd && !odd) add_lost(&o, d, t);
        if (odd && !true_odd) {
            o.made++;
            o.made_nan |= isnan(d);
            o.made_large += size > 4096;
            o.least = fmin(o.least, size);
        } else if (isfinite(truth)) {
            o.any_rest = true;
            o.rest = fmax(o.rest, size);
        }
        if (odd && true_odd && !same(d, t)) {
            o.mixed++;
            o.mixed_nan |= isnan(d);
        }
    }
    return o;
}

static bool swallowed(const oddities *o, usc_cause_found *out)
{
    char held[32];
    clue say = {.code = USC_CAUSE_SWALLOWED,
                .s = o->lost_nan ? "NaN" : "Inf",
                .n = o->lost,
                .held = "finite numbers"};
    if (o->zero) {
        say.held = "0";
    } else if (o->alike) {
        (void)usc_format(held, sizeof held, "%.6g", o->instead);
        say.held = held;
        if (!o->lost_nan && o->instead > 100) {
            say.code = USC_CAUSE_SWALLOWED_BY;
            say.v = o->instead;
        }
    }
    return usc_cause_say(out, &say);
}

/* Whether what became Inf fills slices of an axis: these are Inf whatever their size. */
static bool fills_slices(usc_cause *c, const oddities *o)
{
    for (int axis = 0; axis < c->d.ndim && c->d.ndim > 1; axis++) {
        const int64_t inner = usc_cause_inner(c, axis), n = c->d.sizes[axis];
        uint8_t *hit = usc_cause_room(c, n, 1);
        int64_t n_hit = 0;
        if (hit == NULL) return true;
        memset(hit, 0, (size_t)n);
        for (int64_t i = 0; i < c->d.n; i++)
            if (!isfinite(value_at(&c->d, i))) hit[i / inner % n] = 1;
        for (int64_t i = 0; i < n; i++)
            n_hit += hit[i];
        if (2 * n_hit <= n && o->made == n_hit * (c->d.n / n)) return true;
    }
    return false;
}

/* Whether some results lie close to a limit on either side of it: what is merely between
 * those that stayed and those that became Inf is any number. */
static bool close_to(const usc_cause *c, double top)
{
    int64_t below = 0, above = 0;
    for (int64_t i = 0; i < c->d.n; i++) {
        const double size = fabs(value_at(&c->t, i));
        below += size <= top && size > top / 4;
        above += size > top && size < 4 * top;
    }
    return below > 2 && above > 2;
}

/* The format whose largest number lies between what stayed and what became Inf. */
static bool overflowed(usc_cause *c, const oddities *o, usc_cause_found *out)
{
    static const int usual[] = {0, 1, 3};
    clue say = {.code = USC_CAUSE_OVERFLOW};
    for (int i = 0; i < 3 && say.s == NULL; i++) {
        const double top = limits[usual[i]].top;
        if (o->least <= top * 0.999 || o->rest > top * 1.001) continue;
        if (!close_to(c, top)) continue;
        say.v = top;
        say.s = limits[usual[i]].words;
    }
    return say.s != NULL && usc_cause_say(out, &say);
}

static bool spurious(usc_cause *c, const oddities *o, usc_cause_found *out)
{
    const char *kind = o->made_nan ? "NaN" : "Inf";
    if (!o->made_nan && o->any_rest && o->least >= o->rest && !fills_slices(c, o) &&
        overflowed(c, o, out))
        return true;
    if ((double)o->made_large > 0.9 * (double)o->made && o->any_rest && o->rest < 65520)
        return usc_cause_say(out, &(clue){.code = USC_CAUSE_OVERFLOW_INSIDE, .s = kind});
    usc_line where = {0};
    if (o->made == 1)
        usc_line_text(&where, " in one element");
    else if (o->made == c->d.n)
        usc_line_text(&where, " everywhere");
    else {
        usc_line_text(&where, " in ");
        usc_line_count(&where, o->made);
        usc_line_text(&where, " of ");
        usc_line_count(&where, c->d.n);
        usc_line_text(&where, " elements");
    }
    const bool said =
        !where.failed &&
        usc_cause_say(out,
                      &(clue){.code = USC_CAUSE_SPURIOUS, .s = kind, .held = where.text});
    usc_line_free(&where);
    return said;
}

bool usc_cause_kinds(usc_cause *c, usc_cause_found *out)
{
    if (!c->floats) return false;
    const oddities o = find_odd(c);
    if (o.made > 0) return spurious(c, &o, out);
    if (o.lost > 0) return swallowed(&o, out);
    return o.mixed > 0 && usc_cause_say(out, &(clue){.code = USC_CAUSE_OTHER_KIND,
                                                     .s = o.mixed_nan ? "NaN" : "Inf",
                                                     .n = o.mixed});
}
