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

/* Whether slices are hit in a pattern, and not more than half of them. */
static bool in_pattern(slices *s)
{
    int64_t before = -1, least = INT64_MAX, most = 0;
    s->n_hit = 0;
    s->first = -1;
    for (int64_t i = 0; i < s->n; i++) {
        if (!s->hit[i]) continue;
        if (s->n_hit++ == 0) s->first = i;
        if (before >= 0) {
            least = i - before < least ? i - before : least;
            most = i - before > most ? i - before : most;
        }
        before = s->last = i;
    }
    s->step = s->last - s->first + 1 == s->n_hit ? 0 : least;
    return s->n >= 2 && s->n_hit <= s->n / 2 && s->n_hit > 0 &&
           (s->n_hit <= 2 || least == most);
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

static bool say_slices(const usc_cause *c, usc_cause_code code, const slices *s,
                       content held, double value, usc_cause_found *out)
{
    return usc_cause_say(out, &(clue){.code = code,
                                      .n = s->n_hit,
                                      .m = s->n,
                                      .first = s->first,
                                      .last = s->last,
                                      .a = s->axis,
                                      .b = c->d.ndim > 1,
                                      .step = s->step,
                                      .place = PLACE_AXIS,
                                      .content = held,
                                      .value = value});
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
    return usc_cause_say(out, &say);
}

static bool dense(const usc_cause *c, const marks *m, const slices *s)
{
    (void)c;
    return (double)m->n >= 0.9 * (double)s->elements;
}

bool usc_cause_region(usc_cause *c, const marks *m, bool certain, usc_cause_found *out)
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
            return say_slices(c, USC_CAUSE_SLICES, &found[i], held, value, out);
        if (repeats(c, &found[i], mask))
            return say_slices(c, USC_CAUSE_SLICES_REPEAT, &found[i], held, value, out);
    }
    if (n == 0) return false;
    if (tile(c, m, mask, out)) return true;
    return !certain && usc_cause_gross(c, m) && dense(c, m, &found[0]) &&
           say_slices(c, USC_CAUSE_SLICES_GARBAGE, &found[0], HOLDS_OTHER, 0, out);
}
