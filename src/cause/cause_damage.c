// SPDX-License-Identifier: Apache-2.0
// Damage that leaves most elements alone, or replaces all of them by nothing: tails, runs
// and single elements. Neighbours: cause_region.c (slices and tiles).
#include "cause/cause_state.h"

#include <string.h>

/* ---- all of it ---- */

static bool all_same(const usc_cause *c, const operand *o)
{
    if (o->n != c->d.n) return false;
    for (int64_t i = 0; i < c->d.n; i++)
        if (!same(value_at(o, i), value_at(&c->d, i))) return false;
    return true;
}

/* Whether every slice of the result is one tensor that is broadcast to it. */
static bool all_of_part(usc_cause *c, const operand *o)
{
    if (o->kind != USC_KIND_FLOAT || o->n >= c->d.n || o->n < 2) return false;
    for (int64_t i = 0; i < c->d.n; i++)
        if (!same(rounded(c, value_at(o, usc_cause_broadcast(c, o, i))),
                  value_at(&c->d, i)))
            return false;
    return usc_cause_tells(c, NULL);
}

bool usc_cause_lost(usc_cause *c, usc_cause_found *out)
{
    const marks *m = usc_cause_far(c);
    const int64_t n = c->d.n;
    if (m == NULL || (m->n == 0 && c->e.n_off < n / 2 + 1)) return false;
    if (c->has_before && all_same(c, &c->before))
        return usc_cause_say(out, &(clue){.code = USC_CAUSE_LOST});
    for (int i = 0; i < c->n_inputs && n > 1; i++) {
        const operand *o = &c->inputs[i];
        if (o->ndim == c->d.ndim && o->dtype == c->d.dtype &&
            memcmp(o->sizes, c->d.sizes, (size_t)o->ndim * sizeof o->sizes[0]) == 0 &&
            all_same(c, o))
            return usc_cause_say(out, &(clue){.code = USC_CAUSE_UNCHANGED, .s = o->name});
    }
    int64_t zero = 0, nan = 0;
    while (zero < n && value_at(&c->d, zero) == 0)
        zero++;
    while (nan < n && isnan(value_at(&c->d, nan)))
        nan++;
    if (n > 1 && zero == n)
        return usc_cause_say(out, &(clue){.code = c->d.kind == USC_KIND_BOOL
                                                      ? USC_CAUSE_ALWAYS_FALSE
                                                      : USC_CAUSE_ALL_ZERO});
    for (int i = 0; i < c->n_inputs && n > 1 && c->floats; i++)
        if (all_of_part(c, &c->inputs[i]))
            return usc_cause_say(
                out, &(clue){.code = USC_CAUSE_ONLY_INPUT, .s = c->inputs[i].name});
    return n > 1 && nan == n && (double)m->n > 0.9 * (double)n &&
           usc_cause_say(out, &(clue){.code = USC_CAUSE_ALL_NAN});
}

/* ---- elements in each other's place ---- */

/* The first elements that are off; how many, at most FEW. */
static int first_off(const usc_cause *c, const marks *m, int64_t where[FEW])
{
    int n = 0;
    for (int64_t i = 0; i < c->d.n && n < FEW && n < m->n; i++)
        if (m->at[i]) where[n++] = i;
    return n;
}

static bool swapped(const usc_cause *c, const marks *m, usc_cause_found *out)
{
    int64_t at[FEW];
    if (m->n != 2 || first_off(c, m, at) != 2) return false;
    const double got[2] = {value_at(&c->d, at[0]), value_at(&c->d, at[1])};
    const double want[2] = {value_at(&c->t, at[0]), value_at(&c->t, at[1])};
    const double room =
        ldexp(1, c->bits < 13 ? 1 - c->bits : -12); /* each is the other */
    for (int i = 0; i < 2; i++)
        if (!(fabs(got[i] - want[1 - i]) <= room * fabs(want[1 - i])) ||
            !(fabs(got[i] - want[i]) >= 8 * room * fabs(want[i])))
            return false;
    return c->e.n_off <= 2 &&
           usc_cause_say(
               out, &(clue){.code = USC_CAUSE_SWAPPED, .first = at[0], .last = at[1]});
}

bool usc_cause_shuffled(usc_cause *c, usc_cause_found *out)
{
    const marks *m = usc_cause_far(c);
    int64_t at[FEW];
    double got[FEW], want[FEW], error[FEW], size[FEW];
    if (m == NULL || m->n < 3 || m->n > FEW) return false;
    const int n = first_off(c, m, at);
    for (int i = 0; i < n; i++) {
        got[i] = value_at(&c->d, at[i]);
        want[i] = value_at(&c->t, at[i]);
        error[i] = fabs(got[i] - want[i]);
        size[i] = fabs(want[i]);
    }
    if (usc_cause_middle(error, n) < 0x1p-3 * usc_cause_middle(size, n)) return false;
    for (int i = 0; i < n; i++)
        if (!(fabs(usc_cause_nth(got, n, i) - usc_cause_nth(want, n, i)) <=
              0x1p-7 * fabs(usc_cause_nth(want, n, i))))
            return false;
    return usc_cause_say(out, &(clue){.code = USC_CAUSE_SHUFFLED, .n = n});
}

/* ---- the end of memory ---- */

static bool equal_runs(const usc_cause *c, int64_t a, int64_t b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!same(value_at(&c->d, a + i), value_at(&c->d, b + i))) return false;
    return true;
}

static uint8_t *range_mask(usc_cause *c, int64_t first, int64_t n)
{
    uint8_t *mask = usc_cause_room(c, c->d.n, 1);
    if (mask == NULL) return NULL;
    memset(mask, 0, (size_t)c->d.n);
    memset(mask + first, 1, (size_t)n);
    return mask;
}

/* How many elements at the end hold what lies before them, or at the start. */
static int64_t copied(usc_cause *c, int64_t size)
{
    const int64_t n = c->d.n;
    for (int64_t k = size; k <= n / 2 && k <= size + 8; k++)
        if (usc_cause_tells(c, range_mask(c, n - k, k)) &&
            (equal_runs(c, n - k, n - 2 * k, k) || equal_runs(c, n - k, 0, k)))
            return k;
    return 0;
}

/* Whether the last `size` elements are whole slices, which says more. */
static bool whole_slices(const usc_cause *c, int64_t size)
{
    return c->d.ndim > 1 && size % (c->d.n / c->d.sizes[0]) == 0 && size < c->d.n;
}

static bool flat_tail(usc_cause *c, const marks *m, usc_cause_found *out)
{
    const int64_t n = c->d.n;
    const uint8_t *found = memchr(m->at, 1, (size_t)n);
    const int64_t first = found - m->at;
    clue say = {.code = USC_CAUSE_TAIL, .n = n - first, .m = n, .first = first};
    if (first == 0 || say.n > n / 2) return false;
    const uint8_t *mask = range_mask(c, first, say.n);
    if (mask == NULL) return false;
    say.last = n - 1;
    say.m = n;
    say.content = usc_cause_holds(c, mask, &say.value);
    say.bare = say.n < LEAST_WRITTEN || c->small;
    const bool whole = whole_slices(c, say.n);
    const int64_t more = say.content == HOLDS_OTHER ? copied(c, say.n) : 0;
    if (more > 0) {
        say.n = more;
        say.code = more == 1 ? USC_CAUSE_LAST_REPEATS : USC_CAUSE_TAIL_REPEATS;
        c->held = HOLDS_STALE;
    } else if (say.content == HOLDS_OTHER) {
        return false;
    } else if (say.n == 1) {
        if (say.content != HOLDS_ZERO && say.content != HOLDS_STALE) return false;
        say.code = say.content == HOLDS_ZERO ? USC_CAUSE_LAST_ZERO : USC_CAUSE_LAST_STALE;
    }
    return !whole && usc_cause_say(out, &say);
}

/* All that is off lies together in the middle of memory, and is of one kind. */
static bool flat_run(usc_cause *c, const marks *m, usc_cause_found *out)
{
    const int64_t n = c->d.n;
    clue say = {.code = USC_CAUSE_RUN, .m = n, .bare = c->small};
    say.first = (const uint8_t *)memchr(m->at, 1, (size_t)n) - m->at;
    say.last = n - 1;
    while (!m->at[say.last])
        say.last--;
    say.n = say.last - say.first + 1;
    if (say.n < 4 || say.n > n / 2 || say.last == n - 1 || m->n < say.n / 2) return false;
    const int64_t inner = n / c->d.sizes[0];
    if (c->d.ndim > 1 && say.first % inner == 0 && say.n % inner == 0) return false;
    const uint8_t *mask = range_mask(c, say.first, say.n);
    if (mask == NULL) return false;
    say.content = usc_cause_holds(c, mask, &say.value);
    return say.content != HOLDS_OTHER && usc_cause_say(out, &say);
}

/* ---- one element ---- */

enum {
    LEAST_TOLD = 8,     /* bits of a value, where a flip of one is no other right value */
    LEAST_FLIPPED = 256 /* between whole numbers that are not merely counted otherwise */
};

/* Whether results of about the size of the one that is off are off as well, if less. */
static bool like_others(const usc_cause *c, int64_t at)
{
    enum { NEAREST = FEW / 2 - 1 };
    double far[NEAREST + 1], ulps[NEAREST + 1];
    int n = 0;
    const double size = fabs(value_at(&c->t, at));
    if (c->d.n < 4 * FEW || !c->floats) return false;
    for (int64_t i = 0; i < c->d.n; i++) {
        const double t = value_at(&c->t, i), away = fabs(fabs(t) - size);
        if (i == at || isnan(away) || (n == NEAREST && away >= far[n - 1])) continue;
        int k = n < NEAREST ? n++ : n - 1;
        for (; k > 0 && far[k - 1] > away; k--) {
            far[k] = far[k - 1];
            ulps[k] = ulps[k - 1];
        }
        far[k] = away;
        ulps[k] = fabs(value_at(&c->d, i) - t) / fmax(ldexp(fabs(t), -c->bits), 1e-300);
    }
    return usc_cause_middle(ulps, n) > 4;
}

/* The one bit that would make `got` what it must be; -1 for none or several, and where
 * counts, steps and codes are one bit apart by nature. */
static int flipped_bit(usc_cause *c, int64_t at, double want)
{
    unsigned char bytes[16];
    int found = -1;
    const double room = exp2(1.6 - (c->bits < 20 ? c->bits : 20)) * fabs(want);
    if (c->d.kind == USC_KIND_BOOL || (c->floats && usc_cause_told_bits(c) < LEAST_TOLD))
        return -1;
    for (int i = 0; i < (int)(8 * c->d.size); i++) {
        double v = 0;
        memcpy(bytes, c->d.data + (size_t)at * c->d.size, c->d.size);
        bytes[i / 8] ^= (unsigned char)(1u << (i % 8)); /* little-endian, as all here */
        usc_dtype_widen(c->d.dtype, bytes, &v, 1);
        if (c->floats ? fabs(v - want) <= room : v == want) found = found < 0 ? i : 64;
    }
    return found < 64 ? found : -1;
}

static usc_cause_code what_of_one(const usc_cause *c, double got, double want)
{
    if (isnan(want) && !isnan(got)) return USC_CAUSE_ONE_NAN_LOST;
    if (got == 0 && c->floats && c->d.dtype != USC_F64 && fabs(want) < ldexp(1, c->emin))
        return USC_CAUSE_ONE_FLUSHED;
    if (got == 0) return USC_CAUSE_ONE_ZERO;
    if (isnan(got)) return USC_CAUSE_ONE_NAN;
    if (isinf(got)) return USC_CAUSE_ONE_INF;
    if (got == -want || got == -rounded(c, want)) return USC_CAUSE_ONE_SIGN;
    return USC_CAUSE_ONE_BIT;
}

static bool one_element(usc_cause *c, const marks *m, usc_cause_found *out)
{
    int64_t at[FEW];
    /* one that stands out among others that are off as well is none */
    if (m->n != 1 || c->e.n_off > 1 || c->d.n < 8 || first_off(c, m, at) != 1 ||
        usc_cause_noisy(c, m) || like_others(c, at[0]))
        return false;
    const double got = value_at(&c->d, at[0]), want = value_at(&c->t, at[0]);
    clue say = {.code = what_of_one(c, got, want)};
    if (say.code == USC_CAUSE_ONE_SIGN && usc_cause_told_bits(c) < LEAST_TOLD)
        return false; /* a step the other way is no flipped bit */
    c->held = say.code == USC_CAUSE_ONE_ZERO ? HOLDS_ZERO : HOLDS_OTHER;
    if (say.code == USC_CAUSE_ONE_BIT) {
        if (!c->floats && fabs(got - want) < LEAST_FLIPPED) return false; /* a count */
        say.first = flipped_bit(c, at[0], want);
        if (say.first < 0) return false;
    }
    return usc_cause_say(out, &say);
}

/* Whether all that is off is far smaller than what came out, as where it underflowed. */
static bool are_small(const usc_cause *c, const marks *m)
{
    double most = 0, least = (double)INFINITY;
    for (int64_t i = 0; i < c->d.n; i++) {
        const double t = fabs(value_at(&c->t, i));
        if (m->at[i])
            most = fmax(most, t);
        else if (t > 0 && value_at(&c->d, i) != 0)
            least = fmin(least, t);
    }
    return most < 0x1p-20 * least;
}

/* Whether an argument is larger wherever something is off than anywhere else, or smaller:
 * as well as at the place it may lie at the size. */
static bool is_apart(const usc_cause *c, const marks *m, const operand *o)
{
    double low[2] = {(double)INFINITY, (double)INFINITY};
    double high[2] = {-(double)INFINITY, -(double)INFINITY};
    if (o->kind != USC_KIND_FLOAT || o->n != c->d.n || !c->floats) return false;
    for (int64_t i = 0; i < o->n; i++) {
        const double x = value_at(o, i);
        low[m->at[i]] = fmin(low[m->at[i]], x);
        high[m->at[i]] = fmax(high[m->at[i]], x);
    }
    return m->n >= LEAST_WRITTEN && (low[1] > high[0] || high[1] < low[0]);
}

/* Whether zeros where something is off may be the size of numbers there: then they do not
 * tell that nobody wrote them. */
static bool may_be_size(const usc_cause *c, const marks *m)
{
    for (int k = 0; k < c->n_inputs; k++)
        if (is_apart(c, m, &c->inputs[k])) return true;
    return are_small(c, m);
}

bool usc_cause_damage(usc_cause *c, const marks *m, usc_cause_found *out)
{
    if (m->n == 0) return false;
    c->held = HOLDS_OTHER;
    c->small = may_be_size(c, m);
    return swapped(c, m, out) || flat_tail(c, m, out) || flat_run(c, m, out) ||
           one_element(c, m, out) || usc_cause_region(c, m, out);
}
