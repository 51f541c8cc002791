// SPDX-License-Identifier: Apache-2.0
// The truth times one factor or plus one amount. What rounding may have done to each
// element bounds the factor from both sides; it is named where one number lies within
// nearly all of these bounds. Neighbours: cause_slices.c (one factor for each slice).
#include "cause/cause_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"

enum { PLAIN_DIGITS = 5 }; /* of a factor that somebody wrote down */

/* A number, and how far it may be another without any element telling. */
typedef struct spot {
    double value, width;
} spot;

#define COVERED 0.98 /* share of the elements that one number must suit */
#define ALIKE 0.005  /* shares this close cannot be told apart */

/* ---- the number that lies in most of the intervals ---- */

typedef struct bound {
    double at;
    int turn; /* 1: an interval begins, -1: one ends */
} bound;

static int by_place(const void *a, const void *b)
{
    const bound *x = a, *y = b;
    if (x->at < y->at) return -1;
    return x->at > y->at ? 1 : y->turn - x->turn;
}

static double share_held(const double *low, const double *high, int64_t n, double v)
{
    int64_t held = 0;
    for (int64_t i = 0; i < n; i++)
        held += low[i] <= v && v <= high[i];
    return (double)held / (double)n;
}

/* The share of n intervals that it lies in. */
static double stab(usc_cause *c, const double *low, const double *high, int64_t n,
                   spot *out)
{
    bound *ends = usc_cause_room(c, 2 * n, sizeof *ends);
    int64_t depth = 0, deepest = 0;
    double left = 0, right = 0;
    *out = (spot){0};
    if (ends == NULL || n == 0) return 0;
    for (int64_t i = 0; i < n; i++) {
        ends[2 * i] = (bound){low[i], 1};
        ends[2 * i + 1] = (bound){high[i], -1};
    }
    qsort(ends, (size_t)(2 * n), sizeof *ends, by_place);
    for (int64_t i = 0; i < 2 * n; i++) {
        depth += ends[i].turn;
        if (depth <= deepest) continue;
        deepest = depth;
        left = ends[i].at;
        right = ends[i + 1 < 2 * n ? i + 1 : i].at;
    }
    const double share = (double)deepest / (double)n;
    *out = (spot){left / 2 + right / 2, right - left};
    /* the plainest number that as good as all elements allow as well */
    for (int digits = 1; digits <= 3; digits++) {
        char text[32];
        (void)usc_format(text, sizeof text, "%.*g", digits, out->value);
        const double plain = usc_parse_number(text, NULL);
        const double same_share = share_held(low, high, n, plain);
        if (same_share < share - ALIKE) continue;
        out->value = plain;
        return same_share;
    }
    return share;
}

/* Whether the elements that are large enough to show a change show it, and nothing else:
 * by a factor (of the truth) or an amount. */
static bool told(const rooms *r, double factor, double amount)
{
    int64_t n = 0, apart = 0, above = 0, near = 0;
    for (int64_t i = 0; i < r->n; i++) {
        const double room = r->room[i], error = r->d[i] - r->t[i];
        const double change = r->t[i] * (factor - 1) + amount;
        if (!(room < 0.8 * fabs(change))) continue;
        n++;
        apart += fabs(error) > room / 2;
        above += fabs(error) > room;
        near += fabs(error - change) <= room;
    }
    const double all = (double)n;
    return n >= 8 && all >= 0.1 * (double)r->n && (double)apart > 0.9 * all &&
           (double)above > 0.3 * all && (double)near >= COVERED * all;
}

static double find_factor(usc_cause *c, const rooms *r, spot *factor)
{
    double *low = usc_cause_room(c, 5 * r->n, sizeof *low);
    int64_t k = 0, odd = 0;
    if (low == NULL) return 0;
    double *high = low + r->n;
    const rooms seen = {high + r->n, high + 2 * r->n, high + 3 * r->n, 0};
    for (int64_t i = 0; i < r->n; i++) {
        const double d = r->d[i], t = r->t[i], room = r->room[i];
        if (t == 0) {
            odd += fabs(d) > room;
            continue;
        }
        low[k] = fmin((d - room) / t, (d + room) / t);
        high[k] = fmax((d - room) / t, (d + room) / t);
        seen.d[k] = d;
        seen.t[k] = t;
        seen.room[k++] = room;
    }
    if (k < 8 || (double)odd > 0.02 * (double)r->n) return 0;
    const double share = stab(c, low, high, k, factor);
    const rooms all = {seen.d, seen.t, seen.room, k};
    return share >= COVERED && factor->value != 0 && factor->value != 1 &&
                   told(&all, factor->value, 0)
               ? share
               : 0;
}

double usc_cause_factor(usc_cause *c, const rooms *r, double *factor)
{
    spot found = {0};
    const double share = find_factor(c, r, &found);
    *factor = found.value;
    return share;
}

static double find_amount(usc_cause *c, const rooms *r, spot *amount)
{
    double *low = usc_cause_room(c, 2 * r->n, sizeof *low);
    if (low == NULL) return 0;
    double *high = low + r->n;
    for (int64_t i = 0; i < r->n; i++) {
        low[i] = r->d[i] - r->t[i] - r->room[i];
        high[i] = r->d[i] - r->t[i] + r->room[i];
    }
    const double share = stab(c, low, high, r->n, amount);
    return share >= COVERED && amount->value != 0 && told(r, 1, amount->value) ? share
                                                                               : 0;
}

/* ---- words ---- */

/* Whether a number has few digits, as one that somebody wrote down, and fewer than the
 * plainest of those that would do as well has by chance. */
static bool plain(double v, double width)
{
    char text[32];
    int n = 0, zeros = 0;
    (void)usc_format(text, sizeof text, "%.6g", v);
    for (const char *at = text; *at != '\0' && *at != 'e'; at++) {
        if (*at < '0' || *at > '9' || (*at == '0' && n == 0)) continue;
        zeros = *at == '0' ? zeros + 1 : 0;
        n++;
    }
    const double apart = pow(10, floor(log10(fabs(v))) + 1 - (n - zeros));
    return v != 1 && strcmp(text, "1") != 0 && n - zeros <= PLAIN_DIGITS &&
           width < 0.5 * apart;
}

static bool is_sign(double factor)
{
    return fabs(factor + 1) < 0x1p-8;
}

/* Halves where the data leave room for them. */
static double neat(double factor)
{
    const double near = round(factor * 2) / 2;
    return near != 0 && near != 1 && fabs(factor / near - 1) < 0x1p-18 ? near : factor;
}

typedef struct changed {
    const operand *t;
    double factor, amount;
} changed;

static double with_change(const void *ctx, int64_t i)
{
    const changed *x = ctx;
    return value_at(x->t, i) * x->factor + x->amount;
}

/* Says it as a name where somebody may have written the number down, and nearly all bits
 * are those that it gives, or no number near it would do. */
static bool say_size(usc_cause *c, clue say, const changed *x, double factor_width,
                     double amount_width, usc_cause_found *out)
{
    const double left = fmin(usc_cause_left(c, with_change, x), 1);
    const bool bits = left == 0;
    const bool factor = plain(say.v, bits ? 0 : factor_width);
    const bool amount = plain(say.u, bits ? 0 : amount_width);
    say.seen = say.code == USC_CAUSE_FACTOR             ? !factor
               : say.code == USC_CAUSE_AMOUNT           ? !amount
               : say.code == USC_CAUSE_FACTOR_OR_AMOUNT ? !factor || !amount
                                                        : false;
    if (say.code == USC_CAUSE_AMOUNT) say.v = say.u;
    (void)usc_cause_say(out, &say);
    out->left = left;
    return true;
}

/* ---- one number, or a few: only a factor that is round is believed ---- */

static bool suits(const rooms *r, double v)
{
    for (int64_t i = 0; i < r->n; i++) {
        const double d = r->d[i], t = r->t[i], room = r->room[i];
        if (t == 0) continue;
        if (!(fabs(d - t * v) <= 2 * room + room * fabs(v))) return false;
        if (fabs(d - t) <= 8 * room) return false;
    }
    return true;
}

/* One number that suits all of a few elements, and that hardly another near it would; 0
 * where there is none. */
static double shared_by_few(usc_cause *c, const rooms *r, bool factor)
{
    double *low = usc_cause_room(c, 2 * r->n, sizeof *low);
    spot found = {0};
    if (low == NULL || r->n < 3) return 0;
    double *high = low + r->n;
    for (int64_t i = 0; i < r->n; i++) {
        const double d = r->d[i], t = r->t[i], room = r->room[i];
        if (!(fabs(d - t) > 8 * room) || t == 0) return 0;
        const double a = factor ? (d - room) / t : d - t - room;
        const double b = factor ? (d + room) / t : d - t + room;
        low[i] = fmin(a, b);
        high[i] = fmax(a, b);
    }
    if (stab(c, low, high, r->n, &found) < 1 || found.value == 0) return 0;
    return plain(found.value, 10 * found.width) ? found.value : 0;
}

static bool few(usc_cause *c, const rooms *r, usc_cause_found *out)
{
    static const double round_ones[] = {-1,      2,  0.5, 4,   0.25, 3,
                                        1.0 / 3, 10, 0.1, 1.5, 1.01};
    int64_t seen = 0;
    for (int64_t i = 0; i < r->n; i++)
        seen += r->t[i] != 0;
    for (size_t i = 0; i < sizeof round_ones / sizeof round_ones[0] && seen > 0; i++)
        for (int sign = 1; sign >= -1; sign -= 2) {
            const double v = sign * round_ones[i];
            if ((v == 1) || !suits(r, v)) continue;
            return usc_cause_say(
                out,
                &(clue){.code = is_sign(v) ? USC_CAUSE_SIGN : USC_CAUSE_FACTOR, .v = v});
        }
    const double factor = shared_by_few(c, r, true), amount = shared_by_few(c, r, false);
    if ((factor != 0) == (amount != 0)) return false;
    return usc_cause_say(
        out, &(clue){.code = factor != 0 ? USC_CAUSE_FACTOR : USC_CAUSE_AMOUNT,
                     .v = factor != 0 ? factor : amount});
}

/* The amount that was added to whole numbers. */
static bool whole_number(const usc_cause *c, usc_cause_found *out)
{
    if (c->d.kind == USC_KIND_BOOL || c->d.n < 4) return false;
    const double amount = value_at(&c->d, 0) - value_at(&c->t, 0);
    if (amount == 0) return false;
    for (int64_t i = 1; i < c->d.n; i++)
        if (value_at(&c->d, i) - value_at(&c->t, i) != amount) return false;
    out->left = 0;
    return usc_cause_say(out, &(clue){.code = USC_CAUSE_WHOLE_AMOUNT, .v = amount});
}

/* Whether more leaves the range than a factor takes there. */
static bool leaves_range(const usc_cause *c)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->d.n; i++)
        n += isinf(value_at(&c->d, i)) && isfinite(value_at(&c->t, i));
    return (double)n > 0.05 * (double)c->d.n;
}

bool usc_cause_size(usc_cause *c, usc_cause_found *out)
{
    rooms r, wide;
    spot by = {1, 0}, more = {0};
    if (!c->floats) return whole_number(c, out);
    if (leaves_range(c) || !usc_cause_rooms(c, true, &r)) return false;
    if (r.n < 8) return few(c, &r, out);
    const double by_factor = find_factor(c, &r, &by);
    if (!usc_cause_rooms(c, false, &wide)) return false;
    const double by_amount = find_amount(c, &wide, &more), amount = more.value;
    double factor = by_factor > 0 ? by.value : 1;
    const double best = fmax(by_factor, by_amount);
    if (best == 0) return false;
    const changed x = {&c->t, by_factor >= by_amount ? factor : 1,
                       by_factor >= by_amount ? 0 : amount};
    factor = neat(factor);
    clue say = {.code = USC_CAUSE_FACTOR, .v = factor, .u = amount};
    if (fmin(by_factor, by_amount) > best - ALIKE)
        say.code = USC_CAUSE_FACTOR_OR_AMOUNT;
    else if (by_amount > by_factor)
        say.code = USC_CAUSE_AMOUNT;
    else if (is_sign(factor))
        say.code = USC_CAUSE_SIGN;
    return say_size(c, say, &x, by.width, more.width, out);
}

/* ---- a factor on the results of one sign alone, as a slope has ---- */

/* The elements of one sign, into `part`; whether those of the other are right. */
static bool one_side(const rooms *r, int sign, rooms *part)
{
    int64_t rest = 0, right = 0;
    part->n = 0;
    for (int64_t i = 0; i < r->n; i++) {
        if (r->t[i] * sign > 0) {
            part->d[part->n] = r->d[i];
            part->t[part->n] = r->t[i];
            part->room[part->n++] = r->room[i];
        } else if (r->t[i] != 0) {
            rest++;
            right += fabs(r->d[i] - r->t[i]) <= r->room[i];
        }
    }
    return part->n >= 16 && rest >= 16 && (double)right >= COVERED * (double)rest;
}

bool usc_cause_by_sign(usc_cause *c, usc_cause_found *out)
{
    rooms r;
    double factor = 1;
    if (!c->floats || !usc_cause_rooms(c, true, &r)) return false;
    double *room = usc_cause_room(c, 3 * r.n, sizeof *room);
    if (room == NULL) return false;
    rooms part = {room, room + r.n, room + 2 * r.n, 0};
    for (int sign = -1; sign <= 1; sign += 2) {
        if (!one_side(&r, sign, &part) || usc_cause_factor(c, &part, &factor) == 0)
            continue;
        factor = neat(factor);
        return usc_cause_say(out, &(clue){.code = is_sign(factor) ? USC_CAUSE_SIDE_SIGN
                                                                  : USC_CAUSE_SIDE_FACTOR,
                                          .s = sign < 0 ? "negative" : "positive",
                                          .v = factor});
    }
    return false;
}
