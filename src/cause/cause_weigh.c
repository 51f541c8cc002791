// SPDX-License-Identifier: Apache-2.0
// How well numbers explain what the device gave: what they leave of its error, element by
// element. Neighbours: cause_evidence.c (what rounding allows).
#include "cause/cause_state.h"

#include <assert.h>
#include <string.h>

#define SAME_BITS 0.99
#define EXPLAINED 0.97 /* share of the elements that numbers have to explain */
#define FLIPPED 0.85 /* of narrow results next to the right ones, that have to be given */
#define ROUNDINGS 8.0 /* of float32's own loss, that the same mistake may lose */

enum {
    BITS =
        32, /* elements that rounding the truth does not give, and a float32 run does */
    LEAST_COMPARED = 64,
    MARGIN = 4, /* times nearer: what has a vote; one in so many that differ must */
    APART = 8,  /* roundings that two numbers must be apart to be told */
    VOTES = 8,  /* for one against those for the other */
    LEAST_VOTES = 4,
};

/* Numbers at the places that are looked at; as the device's dtype has them; where they
 * and the device are to agree. */
typedef struct numbers {
    double *value, *own;
    double *work; /* twice as many */
    uint8_t *counts;
    int64_t n; /* of counts */
} numbers;

static int64_t place(const evidence *e, int64_t k)
{
    return e->places != NULL ? e->places[k] : k;
}

static double as_dtype(const usc_cause *c, double x)
{
    return c->floats ? rounded(c, x) : x;
}

static double error_at(const evidence *e, int64_t k)
{
    return fabs(e->device[k] - e->truth[k]);
}

/* What may be left of an error: a share of it, or what rounding does. NaN, which nothing
 * is within, where the truth is no number. */
static double room_for(const evidence *e, int64_t k, double error)
{
    return isnan(e->slack[k]) ? e->slack[k]
                              : fmax(error * USC_CAUSE_LEFT_MOST, e->slack[k]);
}

/* Whether both are next to nothing beside the truth, and not the same: 1e-24 is no
 * underflow to 1e-60, though neither can be told from 0 by the error that it leaves. */
static bool another_nothing(const evidence *e, int64_t k, double own)
{
    const double size = fabs(e->device[k]);
    return size > 0 && size < 0x1p-10 * e->slack[k] &&
           !(fabs(e->device[k] - own) <= size / 4);
}

/* ---- a look at a few elements ---- */

static bool near_device(const usc_cause *c, int64_t k, double x)
{
    const evidence *e = &c->e;
    const double own = as_dtype(c, x), device = e->device[k], error = error_at(e, k);
    if (same(device, own)) return true;
    const double room = room_for(e, k, isnan(error) ? (double)INFINITY : error);
    const double left = fmin(fabs(device - x), fabs(device - own));
    return c->floats && left <= room && left < (double)INFINITY;
}

static bool likely(const usc_cause *c, candidate *value, const void *ctx)
{
    const evidence *e = &c->e;
    const int ends[] = {0, e->n_far, e->n_glance};
    for (int part = 0; part < 2; part++) {
        int near = 0;
        const int n = ends[part + 1] - ends[part];
        for (int k = ends[part]; k < ends[part + 1]; k++) {
            const int64_t at = e->glance[k];
            near += near_device(c, at, value(ctx, place(e, at)));
        }
        if (4 * near > 3 * n) return true;
    }
    return false;
}

/* ---- all elements that count ---- */

/* Those that are off and those that the numbers move, without what is hardly off beside
 * mistakes that are far larger. */
static void count(const usc_cause *c, numbers *r)
{
    const evidence *e = &c->e;
    int64_t hardly = 0, strong = 0, large = 0;
    for (int64_t k = 0; k < e->n; k++) {
        const bool moved = differs(e, k, r->own[k]);
        r->counts[k] = (uint8_t)(e->off[k] | moved);
        if (!r->counts[k]) continue;
        r->n++;
        if (!moved && error_at(e, k) <= 4 * e->slack[k]) {
            r->counts[k] = 2;
            hardly++;
            continue;
        }
        strong++;
        large += !isnan(e->slack[k]) && error_at(e, k) > 64 * fmax(e->slack[k], 1e-300);
    }
    if (strong < 8 || strong < hardly / 3 || hardly == 0 || 2 * large <= strong) return;
    for (int64_t k = 0; k < e->n; k++)
        r->counts[k] &= 1;
    r->n = strong;
}

/* The room for one run is used again by the next. */
static bool make_run(usc_cause *c, candidate *value, const void *ctx, numbers *r)
{
    evidence *e = &c->e;
    const size_t n = (size_t)e->n;
    if (e->scratch == NULL)
        e->scratch = usc_arena_take(&c->kept, n * (4 * sizeof *e->scratch + 1));
    if (e->scratch == NULL) return false;
    *r = (numbers){.value = e->scratch,
                   .own = e->scratch + n,
                   .work = e->scratch + 2 * n,
                   .counts = (uint8_t *)(e->scratch + 4 * n)};
    for (int64_t k = 0; k < e->n; k++) {
        r->value[k] = value(ctx, place(e, k));
        r->own[k] = as_dtype(c, r->value[k]);
    }
    count(c, r);
    return true;
}

/* Bits of agreement that hundreds of candidates do not have by chance; more where so few
 * numbers are off that every candidate moves all of them. */
static double enough(const evidence *e)
{
    return e->n_off >= 8 ? 9 : 14;
}

/* Whether whole numbers that are off tell which mistake it is: by the places that they lie
 * at among all, and by what they hold. */
static bool told_whole(usc_cause *c)
{
    const double n = (double)c->e.n, off = (double)c->e.n_off;
    return off * (log2(n / off) + usc_cause_told_bits(c)) >= enough(&c->e);
}

/* Whether equal bits can hardly be by chance: so far off are so many elements. */
static bool told(usc_cause *c, const numbers *r)
{
    const evidence *e = &c->e;
    const int64_t own = usc_cause_independent(c);
    double *bits = r->work, sum = 0;
    int64_t n = 0;
    if (!c->floats) return told_whole(c);
    for (int64_t k = 0; k < e->n; k++) {
        if (!r->counts[k]) continue;
        const double over = error_at(e, k) / fmax(e->slack[k], 1e-300);
        bits[n++] = isnan(over) ? -24 : -log2(fmin(fmax(over, 1), 0x1p24));
    }
    const int64_t most = own < n ? own : n;
    if (most > 0 && most < n) (void)usc_cause_nth(bits, n, most - 1);
    for (int64_t k = 0; k < most; k++)
        sum -= bits[k];
    const double share = (double)(e->n_off / own); /* many elements share an error */
    return sum + log2(fmax(share, 1)) >= enough(e);
}

/* What is left of an element's error; Inf where that is no number. */
static double left_at(const usc_cause *c, const numbers *r, int64_t k)
{
    const evidence *e = &c->e;
    if (same(e->device[k], r->own[k])) return 0;
    const double left = fabs(e->device[k] - (e->low ? r->own[k] : r->value[k]));
    return isnan(left) ? (double)INFINITY : left;
}

static double share_left(const usc_cause *c, const numbers *r)
{
    const evidence *e = &c->e;
    double *left = r->work, *error = left + r->n;
    int64_t n = 0, explained = 0, within = 0, flips = 0, given = 0;
    for (int64_t k = 0; k < e->n; k++) {
        if (!r->counts[k]) continue;
        const double rest = left_at(c, r, k), slack = e->slack[k], all = error_at(e, k);
        const double own = isfinite(all) ? all : (double)INFINITY;
        const bool equal = same(e->device[k], r->own[k]);
        const bool nothing = (r->value[k] == 0 && fabs(e->device[k]) > 4 * slack) ||
                             another_nothing(e, k, r->own[k]);
        explained += (equal || (isfinite(rest) && rest <= room_for(e, k, own))) &&
                     !nothing; /* small is not yet nothing */
        within += rest <= 0.5 * slack;
        const bool flip =
            e->low && own <= 2 * slack; /* any run is within rounding of it */
        flips += flip;
        given += flip && equal;
        if (!isfinite(own) || !isfinite(rest)) continue;
        left[n] = rest;
        error[n++] = own;
    }
    if ((double)explained < EXPLAINED * (double)r->n) return (double)INFINITY;
    if (2 * flips > r->n && (double)given < FLIPPED * (double)flips)
        return (double)INFINITY;
    if (n == 0) return USC_CAUSE_LEFT_MOST;
    const int64_t half = (n + 1) / 2 - 1;
    const double ratio =
        usc_cause_nth(left, n, half) / fmax(usc_cause_nth(error, n, half), 1e-300);
    const bool close = (double)within >= 0.9 * (double)r->n && ratio <= 0.5;
    return close ? fmin(ratio, USC_CAUSE_LEFT_MOST) : ratio;
}

/* Whether most of what the device got right would be far off: where nearly all is, a few
 * right results are lost among them, and may be what tells. */
static bool spoils(const evidence *e, const numbers *r)
{
    int64_t right = 0, spoilt = 0;
    for (int64_t k = 0; k < e->n; k++) {
        const double size = fabs(e->device[k]), away = fabs(r->own[k] - e->device[k]);
        if (e->off[k] || !(size > 0)) continue;
        right++;
        spoilt += away > fmax(size, fabs(r->own[k])) / 4 && away > 8 * e->slack[k];
    }
    return spoilt > 2 && 2 * spoilt > right;
}

double usc_cause_left(usc_cause *c, candidate *value, const void *ctx)
{
    const evidence *e = &c->e;
    const double none = (double)INFINITY;
    numbers r;
    int64_t equal = 0;
    if (e->n_off == 0 || !likely(c, value, ctx) || !make_run(c, value, ctx, &r) ||
        spoils(e, &r))
        return none;
    for (int64_t k = 0; k < e->n; k++)
        equal += r.counts[k] && same(e->device[k], r.own[k]);
    if ((double)equal >= SAME_BITS * (double)r.n) return told(c, &r) ? 0 : none;
    if (!c->floats) return none;
    const double ratio = share_left(c, &r);
    const int64_t n = usc_cause_independent(c);
    return n >= 4 || pow(ratio, (double)n) <= exp2(-enough(e)) ? ratio : none;
}

/* ---- other questions about a run ---- */

static double of_operand(const void *ctx, int64_t i)
{
    return value_at(ctx, i);
}

static bool reproduces(usc_cause *c, const numbers *r, const operand *narrow)
{
    const evidence *e = &c->e;
    int64_t near = 0;
    for (int64_t k = 0; k < e->n; k++) {
        const double loss =
            narrow != NULL ? fabs(value_at(narrow, place(e, k)) - r->value[k]) : 0;
        const double slack = e->slack[k] + (isfinite(loss) ? loss : 0);
        const double left = fabs(e->device[k] - (e->low ? r->own[k] : r->value[k]));
        near +=
            r->counts[k] && (left <= ROUNDINGS * slack || same(e->device[k], r->own[k]));
    }
    return r->n > 0 && (double)near >= EXPLAINED * (double)r->n;
}

static bool same_bits(const usc_cause *c, const numbers *r)
{
    const evidence *e = &c->e;
    int64_t n = 0, equal = 0;
    for (int64_t k = 0; k < e->n; k++) {
        if (same(e->device[k], e->rounded[k]) && same(r->own[k], e->rounded[k])) continue;
        n++;
        equal += same(e->device[k], r->own[k]);
    }
    return c->floats && n >= BITS && !spoils(e, r) &&
           (double)equal >= SAME_BITS * (double)n;
}

/* Whether a run moves more of what is right than steps do that may fall either way, or
 * several elements by a good part of what they are. */
static bool contradicts(const evidence *e, const numbers *r)
{
    enum { SEVERAL = 8 };
    int64_t off = 0, by_far = 0;
    for (int64_t k = 0; k < e->n; k++) {
        const double d = e->device[k], moved = fabs(r->value[k] - d);
        if (!(moved > 8 * e->slack[k]) || same(r->value[k], d)) continue;
        off++;
        by_far += moved > 0.25 * fabs(d);
    }
    return (double)off > 0.02 * (double)e->n ||
           (by_far >= SEVERAL && (double)by_far > 0.002 * (double)e->n);
}

static bool unmoved(const evidence *e, const numbers *r)
{
    for (int64_t k = 0; k < e->n; k++)
        if (differs(e, k, r->own[k])) return false;
    return true;
}

static double distance(double device, double x)
{
    if (same(device, x)) return 0;
    return isnan(device - x) ? (double)INFINITY : fabs(device - x);
}

/* Each element that two runs differ on has a vote, where one of them is clearly nearer.
 */
static double nearer(const usc_cause *c, const numbers *r, const operand *other)
{
    const evidence *e = &c->e;
    const int bits = usc_dtype_info_of(c->d.dtype)->sig_bits;
    const double unit = c->floats ? APART * ldexp(1, 1 - bits) : 0;
    int64_t apart = 0, first = 0, second = 0;
    for (int64_t k = 0; k < e->n && other != NULL; k++) {
        const double device = e->device[k], x = r->value[k];
        const double y = value_at(other, place(e, k));
        if (!(fabs(x - y) > unit * fabs(device))) continue;
        const double a = distance(device, x), b = distance(device, y);
        apart++;
        first += MARGIN * a < b;
        second += MARGIN * b < a;
    }
    const int64_t most = first > second ? first : second;
    if (most < LEAST_VOTES || most * MARGIN <= apart) return 0;
    return (first > VOTES * second) - (second > VOTES * first);
}

/* Sizes beyond four times the usual one count as that. */
static void clip(double *x, int64_t n)
{
    double mean = 0;
    for (int64_t i = 0; i < n; i++)
        mean += fabs(x[i]) / (double)n;
    for (int64_t i = 0; i < n; i++)
        x[i] = fmin(fmax(x[i], -4 * mean), 4 * mean);
}

static double correlation(usc_cause *c, const numbers *r)
{
    const evidence *e = &c->e;
    const int64_t step = usc_cause_step(e->n, MOST_COMPARED);
    double *a = usc_cause_room(c, 3 * (MOST_COMPARED + 1), sizeof *a);
    int64_t n = 0, m = 0;
    if (a == NULL || !c->floats) return 0;
    double *b = a + MOST_COMPARED + 1, *size = b + MOST_COMPARED + 1;
    for (int64_t k = 0; k < e->n; k += step)
        if (isfinite(e->truth[k])) size[m++] = fabs(e->truth[k]);
    const double typical = usc_cause_middle(size, m);
    int64_t apart = 0;
    for (int64_t k = 0; k < e->n; k += step) {
        /* what every result is rounded by at its end is no error */
        const double right = e->low ? e->rounded[k] : e->truth[k];
        const double unit = fabs(e->truth[k]) + typical;
        a[n] = (e->device[k] - right) / unit;
        b[n] = ((e->low ? r->own[k] : r->value[k]) - right) / unit;
        if (!isfinite(a[n]) || !isfinite(b[n])) continue;
        apart += a[n] != 0;
        n++;
    }
    if (n < LEAST_COMPARED || apart < LEAST_COMPARED / 4) return 0;
    clip(a, n);
    clip(b, n);
    double aa = 0, bb = 0, ab = 0;
    for (int64_t i = 0; i < n; i++) {
        aa += a[i] * a[i];
        bb += b[i] * b[i];
        ab += a[i] * b[i];
    }
    const double ratio = sqrt(aa / bb);
    return ratio > 0.2 && ratio < 5 ? ab / sqrt(aa * bb) : 0;
}

static bool fits(const usc_cause *c, const usc_tensor *t)
{
    return t->ndim == c->d.ndim &&
           memcmp(t->sizes, c->d.sizes, (size_t)t->ndim * sizeof t->sizes[0]) == 0;
}

/* The answer where a run is of another shape. */
static double unfit(usc_cause_weight weight)
{
    if (weight == USC_CAUSE_LEFT) return (double)INFINITY;
    return weight == USC_CAUSE_CONTRADICTS;
}

static double weighed(usc_cause *c, usc_cause_weight weight, const operand *given,
                      const operand *narrow)
{
    numbers r;
    if (weight == USC_CAUSE_LEFT) return usc_cause_left(c, of_operand, given);
    if (weight == USC_CAUSE_NEAR) return c->e.n_off > 0 && likely(c, of_operand, given);
    if (!make_run(c, of_operand, given, &r)) return unfit(weight);
    if (weight == USC_CAUSE_REPRODUCES) return reproduces(c, &r, narrow);
    if (weight == USC_CAUSE_SAME_BITS) return same_bits(c, &r);
    if (weight == USC_CAUSE_CONTRADICTS) return contradicts(&c->e, &r);
    if (weight == USC_CAUSE_UNMOVED) return unmoved(&c->e, &r);
    if (weight == USC_CAUSE_NEARER) return nearer(c, &r, narrow);
    return correlation(c, &r);
}

static usc_status take(usc_cause *c, const usc_tensor *t, operand *out, usc_error *err)
{
    if (usc_dtype_info_of(t->dtype)->kind == USC_KIND_NONE)
        return usc_error_set(err, USC_E_DTYPE, -1, "a run of no known dtype");
    if (!usc_cause_operand(t, &c->work, out))
        return usc_error_set(err, USC_E_NOMEM, -1, "search for a cause: no memory");
    return USC_OK;
}

usc_status usc_cause_weigh(usc_cause *c, usc_cause_weight weight, const usc_tensor *run,
                           const usc_tensor *narrow, double *out, usc_error *err)
{
    operand given, low;
    assert(c && run && out);
    *out = unfit(weight);
    if (!fits(c, run)) return USC_OK;
    usc_arena_reset(&c->work);
    const bool both = narrow != NULL && fits(c, narrow);
    usc_status st = take(c, run, &given, err);
    if (st == USC_OK && both) st = take(c, narrow, &low, err);
    if (st != USC_OK) return st;
    const double found = weighed(c, weight, &given, both ? &low : NULL);
    if (c->work.failed || c->kept.failed)
        return usc_error_set(err, USC_E_NOMEM, -1, "search for a cause: no memory");
    *out = found;
    return USC_OK;
}

usc_status usc_cause_of_size(usc_cause *c, const usc_tensor *runs, int n, bool *out,
                             usc_error *err)
{
    evidence *e = &c->e;
    int64_t strong = 0, off_strong = 0, all = 0, within = 0;
    *out = false;
    usc_arena_reset(&c->work);
    double *size = usc_cause_room(c, 2 * e->n, sizeof *size);
    if (size == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "search for a cause: no memory");
    double *share = size + e->n;
    memset(size, 0, (size_t)e->n * sizeof *size);
    for (int i = 0; i < n; i++) {
        operand o;
        if (!fits(c, &runs[i])) return USC_OK;
        const usc_status st = take(c, &runs[i], &o, err);
        if (st != USC_OK) return st;
        for (int64_t k = 0; k < e->n; k++) {
            const double away = value_at(&o, place(e, k)) - e->truth[k];
            size[k] += isfinite(away) ? away * away / n : 0;
        }
    }
    for (int64_t k = 0; k < e->n; k++) {
        const double rms = sqrt(size[k]), error = error_at(e, k);
        const bool counts = isfinite(error) && rms > 4 * e->slack[k];
        if (!counts && !e->off[k]) continue;
        all++;
        within += error <= 12 * rms + e->slack[k];
        off_strong += counts && e->off[k];
        if (counts) share[strong++] = error / rms;
    }
    *out = strong >= 8 && 2 * off_strong >= e->n_off &&
           (double)within >= 0.95 * (double)all &&
           usc_cause_middle(share, strong) >= 0.15;
    return USC_OK;
}
