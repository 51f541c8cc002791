// SPDX-License-Identifier: Apache-2.0
// What is off fills slices along one axis, or a tile of the last two. Neighbours:
// cause_damage.c (runs of memory, single elements).
#include "cause/cause_state.h"

#include <string.h>

/* Slices along an axis with something off. */
typedef struct slices {
    int axis;
    uint8_t *hit;
    int64_t n, n_hit, first, last, elements;
    int64_t step; /* between slices that are not together; 0: they are */
} slices;

/* Whether not more than half of the slices are hit; counts them. */
static bool in_pattern(slices *s)
{
    int64_t before = -1, least = INT64_MAX;
    s->n_hit = 0;
    s->first = -1;
    for (int64_t i = 0; i < s->n; i++) {
        if (!s->hit[i]) continue;
        if (s->n_hit++ == 0) s->first = i;
        if (before >= 0) least = i - before < least ? i - before : least;
        before = s->last = i;
    }
    s->step = s->last - s->first + 1 == s->n_hit ? 0 : least;
    return s->n >= 2 && s->n_hit <= s->n / 2 && s->n_hit > 0;
}

static bool find_slices(usc_cause *c, const marks *m, int axis, slices *s)
{
    const int64_t inner = usc_cause_inner(c, axis);
    *s = (slices){.axis = axis, .n = c->d.sizes[axis]};
    s->hit = usc_cause_room(c, s->n, 1);
    if (s->hit == NULL) return false;
    memset(s->hit, 0, (size_t)s->n);
    for (int64_t i = 0; i < c->d.n; i++)
        if (m->at[i]) s->hit[i / inner % s->n] = 1;
    if (!in_pattern(s)) return false;
    s->elements = s->n_hit * (c->d.n / s->n);
    return true;
}

static void fill(const usc_cause *c, const slices *s, uint8_t *mask)
{
    const size_t inner = (size_t)usc_cause_inner(c, s->axis);
    const int64_t rows = c->d.n / (int64_t)inner;
    for (int64_t k = 0; k < rows; k++)
        memset(mask + (size_t)k * inner, s->hit[k % s->n], inner);
}

/* Whether the slices hold what those from `from` on hold. */
static bool equal_slices(const usc_cause *c, const slices *s, int64_t from)
{
    const int64_t inner = usc_cause_inner(c, s->axis), outer = c->d.n / inner / s->n;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < s->n_hit * inner; i++) {
            const int64_t base = o * s->n * inner + i;
            if (!same(value_at(&c->d, base + s->first * inner),
                      value_at(&c->d, base + from * inner)))
                return false;
        }
    return true;
}

static bool varied(const usc_cause *c, const uint8_t *mask)
{
    int64_t first = -1;
    for (int64_t i = 0; i < c->d.n; i++) {
        if (!mask[i]) continue;
        if (first < 0) first = i;
        if (!same(value_at(&c->d, i), value_at(&c->d, first))) return true;
    }
    return false;
}

static bool repeats(usc_cause *c, const slices *s, const uint8_t *mask)
{
    const int64_t size = s->n_hit;
    const int64_t from[] = {s->first - size, s->first + size, 0, s->n - size};
    if (s->step != 0 || !varied(c, mask)) return false;
    for (size_t i = 0; i < sizeof from / sizeof from[0]; i++) {
        const int64_t away = from[i] - s->first;
        if (from[i] >= 0 && from[i] + size <= s->n && (away >= size || -away >= size) &&
            equal_slices(c, s, from[i])) {
            c->held = HOLDS_STALE;
            return true;
        }
    }
    return false;
}

/* Each slice that is hit holds what the one before it holds, or the one behind it. */
static bool repeat_one_by_one(usc_cause *c, const slices *s, const uint8_t *mask)
{
    const int64_t inner = usc_cause_inner(c, s->axis);
    for (int way = -1; way <= 1; way += 2) {
        bool all = s->step != 0 && 2 * s->n_hit < s->n && usc_cause_tells(c, mask);
        for (int64_t i = 0; i < c->d.n && all; i++) {
            const int64_t at = i / inner % s->n + way;
            if (!mask[i]) continue;
            all = at >= 0 && at < s->n && !s->hit[at] &&
                  same(value_at(&c->d, i), value_at(&c->d, i + way * inner));
        }
        if (all) return true;
    }
    return false;
}

static bool say_slices(const usc_cause *c, const slices *s, clue say,
                       usc_cause_found *out)
{
    usc_line numbers = {0};
    say.n = s->n_hit;
    say.m = s->n;
    say.first = s->first;
    say.last = s->last;
    say.a = s->axis;
    say.b = c->d.ndim > 1;
    say.step = s->step;
    say.place = PLACE_AXIS;
    say.bare |=
        s->elements < LEAST_WRITTEN || c->small || (s->step != 0 && c->d.ndim == 1);
    if (s->step != 0 && usc_cause_number(&numbers, s->hit, s->n, s->n_hit))
        say.listed = numbers.text;
    const bool said = usc_cause_say(out, &say);
    usc_line_free(&numbers);
    return said;
}

/* ---- right values of other slices, an argument alone ---- */

enum { MOST_OTHERS = 16 }; /* slices whose values are looked for in all others */

static bool is_near(const usc_cause *c, int64_t i, int64_t from)
{
    const double d = value_at(&c->d, i), t = value_at(&c->t, from);
    const double noise = fabs(value_at(&c->y, from) - t);
    return same(d, rounded(c, t)) ||
           fabs(d - t) <= ldexp(fabs(t), 2 - c->bits) + (isfinite(noise) ? 8 * noise : 0);
}

/* The slice whose right values stand in slice `at`; -1 where there is none. */
static int64_t owner(const usc_cause *c, const slices *s, int64_t at)
{
    const int64_t inner = usc_cause_inner(c, s->axis), outer = c->d.n / inner / s->n;
    for (int64_t k = 0; k < s->n; k++) {
        bool all = k != at;
        for (int64_t o = 0; o < outer && all; o++)
            for (int64_t i = 0; i < inner && all; i++) {
                const int64_t base = o * s->n * inner + i;
                all = is_near(c, base + at * inner, base + k * inner);
            }
        if (all) return k;
    }
    return -1;
}

static bool of_others(usc_cause *c, const slices *s, const uint8_t *mask,
                      usc_cause_found *out)
{
    usc_line from = {0};
    uint8_t *taken = usc_cause_room(c, s->n, 1); /* a border takes one for several */
    bool all = taken != NULL && s->n_hit <= MOST_OTHERS && 2 * s->n_hit < s->n &&
               usc_cause_tells(c, mask);
    if (taken != NULL) memset(taken, 0, (size_t)s->n);
    for (int64_t at = 0, said = 0; at < s->n && all; at++) {
        if (!s->hit[at]) continue;
        const int64_t k = owner(c, s, at);
        all = k >= 0 && taken[k] == 0;
        if (all) taken[k] = 1;
        usc_line_add(&from, "%s%lld",
                     said == 0              ? ""
                     : said + 1 == s->n_hit ? " and "
                                            : ", ",
                     (long long)k);
        said++;
    }
    all = all && !from.failed && from.text != NULL &&
          say_slices(c, s, (clue){.code = USC_CAUSE_SLICES_OF, .s = from.text}, out);
    usc_line_free(&from);
    return all;
}

int64_t usc_cause_broadcast(const usc_cause *c, const operand *o, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int a = c->d.ndim - 1, b = o->ndim - 1; b >= 0; a--, b--) {
        if (o->sizes[b] != 1) at += i % c->d.sizes[a] * step;
        i /= c->d.sizes[a];
        step *= o->sizes[b];
    }
    return at;
}

/* An argument, broadcast, and nothing else. */
static bool of_input(usc_cause *c, const slices *s, const uint8_t *mask,
                     usc_cause_found *out)
{
    for (int k = 0; k < c->n_inputs && usc_cause_tells(c, mask); k++) {
        const operand *o = &c->inputs[k];
        bool all = o->kind == USC_KIND_FLOAT && c->floats && o->n > 1;
        for (int64_t i = 0; i < c->d.n && all; i++)
            all = !mask[i] || same(rounded(c, value_at(o, usc_cause_broadcast(c, o, i))),
                                   value_at(&c->d, i));
        if (all)
            return say_slices(c, s, (clue){.code = USC_CAUSE_SLICES_INPUT, .s = o->name},
                              out);
    }
    return false;
}

/* Rows or columns, first and last, that something is off in. */
static void span(const usc_cause *c, const marks *m, int axis, int64_t out[2])
{
    const int64_t inner = usc_cause_inner(c, axis), n = c->d.sizes[axis];
    out[0] = n;
    out[1] = -1;
    for (int64_t i = 0; i < c->d.n; i++) {
        if (!m->at[i]) continue;
        const int64_t k = i / inner % n;
        if (k < out[0]) out[0] = k;
        if (k > out[1]) out[1] = k;
    }
}

static bool tile(usc_cause *c, const marks *m, uint8_t *mask, usc_cause_found *out)
{
    if (c->d.ndim < 2) return false;
    const int64_t rows = c->d.sizes[c->d.ndim - 2], columns = c->d.sizes[c->d.ndim - 1];
    clue say = {.code = USC_CAUSE_TILE, .place = PLACE_TILE, .s = ""};
    int64_t *r = say.tile, *k = say.tile + 2, n = 0;
    span(c, m, c->d.ndim - 2, r);
    span(c, m, c->d.ndim - 1, k);
    if (r[1] - r[0] + 1 == rows && k[1] - k[0] + 1 == columns) return false;
    for (int64_t i = 0; i < c->d.n; i++) {
        const int64_t row = i / columns % rows, column = i % columns;
        mask[i] = row >= r[0] && row <= r[1] && column >= k[0] && column <= k[1];
        n += mask[i];
    }
    say.content = usc_cause_holds(c, mask, &say.value);
    if (say.content == HOLDS_OTHER || n == 1) return false;
    if (r[1] == rows - 1 && k[1] == columns - 1) say.s = " last";
    say.bare = n < LEAST_WRITTEN || c->small;
    return usc_cause_say(out, &say);
}

/* Slices of an axis that are all zero while what belongs there is not, whatever else is
 * off; only those are hit then. */
static bool zero_slices(usc_cause *c, const marks *m, int axis, slices *s)
{
    const int64_t inner = usc_cause_inner(c, axis);
    *s = (slices){.axis = axis, .n = c->d.sizes[axis]};
    s->hit = usc_cause_room(c, s->n, 1);
    if (s->hit == NULL || c->d.kind == USC_KIND_BOOL) return false;
    memset(s->hit, 2, (size_t)s->n); /* 2: zeros, none of which is off */
    for (int64_t i = 0; i < c->d.n; i++) {
        uint8_t *hit = &s->hit[i / inner % s->n];
        if (value_at(&c->d, i) != 0)
            *hit = 0;
        else if (*hit != 0 && m->at[i])
            *hit = 1;
    }
    for (int64_t i = 0; i < s->n; i++)
        s->hit[i] = s->hit[i] == 1;
    if (!in_pattern(s)) return false;
    s->elements = s->n_hit * (c->d.n / s->n);
    return s->elements >= LEAST_WRITTEN && c->d.ndim > 1;
}

/* Whether much else is off by a good part of itself: then zeros are something that is
 * seen beside it. Where more is off elsewhere than in the slices, these are zero by chance. */
static bool off_elsewhere(const usc_cause *c, const marks *m, const slices *s,
                          bool *chance)
{
    const int64_t inner = usc_cause_inner(c, s->axis);
    int64_t off = 0, here = 0;
    for (int64_t i = 0; i < c->d.n; i++) {
        const double d = value_at(&c->d, i), t = value_at(&c->t, i);
        if (!m->at[i] || !(fabs(d - t) > 0x1p-4 * fabs(t))) continue;
        here += s->hit[i / inner % s->n];
        off += !s->hit[i / inner % s->n];
    }
    *chance = off > here && 2 * here < s->elements;
    return 8 * off > c->d.n - s->elements;
}

bool usc_cause_zero_slices(usc_cause *c, usc_cause_found *out)
{
    const marks *far = usc_cause_far(c);
    for (int axis = 0; axis < c->d.ndim && far != NULL; axis++) {
        slices s;
        bool chance = false;
        if (!zero_slices(c, far, axis, &s)) continue;
        const bool seen = off_elsewhere(c, far, &s, &chance);
        if (chance) continue;
        return say_slices(c, &s,
                          (clue){.code = USC_CAUSE_SLICES,
                                 .content = HOLDS_ZERO,
                                 .bare = true,
                                 .seen = seen},
                          out);
    }
    return false;
}

bool usc_cause_region(usc_cause *c, const marks *m, usc_cause_found *out)
{
    slices found[USC_MAX_DIMS];
    int n = 0;
    double value = 0;
    uint8_t *mask = usc_cause_room(c, c->d.n, 1);
    for (int axis = 0; axis < c->d.ndim && mask != NULL; axis++) {
        slices s;
        if (!find_slices(c, m, axis, &s)) continue;
        int k = n++; /* those with the fewest elements first */
        for (; k > 0 && found[k - 1].elements > s.elements; k--)
            found[k] = found[k - 1];
        found[k] = s;
    }
    for (int i = 0; i < n; i++) {
        fill(c, &found[i], mask);
        const content held = usc_cause_holds(c, mask, &value);
        if (held != HOLDS_OTHER)
            return say_slices(
                c, &found[i],
                (clue){.code = USC_CAUSE_SLICES, .content = held, .value = value}, out);
        if (of_input(c, &found[i], mask, out)) return true;
        if (!usc_cause_stands_out(c, m->at)) continue; /* neighbours are alike */
        if (repeats(c, &found[i], mask) || repeat_one_by_one(c, &found[i], mask))
            return say_slices(c, &found[i], (clue){.code = USC_CAUSE_SLICES_REPEAT}, out);
        if (of_others(c, &found[i], mask, out)) return true;
    }
    return n > 0 && tile(c, m, mask, out);
}
