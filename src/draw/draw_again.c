// SPDX-License-Identifier: Apache-2.0
// Stretches that come again: rows, columns, blocks, heads or lanes that share a stream,
// at whatever distance, in one answer or in two, as they are or mirrored. A stretch is as
// long as chance never repeats. Formulas: docs/reference/metrics.md, 4.
#include "draw/draws.h"

#include "base/number.h"
#include "case/findings.h"

#include <math.h>
#include <string.h>

#define FACTOR UINT64_C(0x9e3779b97f4a7c15) /* odd: of a rolling hash */

enum {
    LINES_BITS = 3,     /* so many lines are looked at: 2^3, each of n^2 / 2 pairs */
    MOST_BITS = 6,      /* of a draw that count, at the most */
    MOST_KEPT = 1 << 16 /* stretches that are compared: by their hashes, alike in all */
};

typedef struct stretch {
    uint64_t hash;
    int64_t at;
} stretch;

/* Draws one behind the other, as bytes that hang on values alone. */
typedef struct line {
    unsigned char *is;
    int64_t n, first; /* of them from the first answer */
    int64_t *place;   /* of each */
} line;

/* The chance that two draws are one byte. Folded, those of two middles are, and 1/128 of
 * all others. */
static double likeness(const usc_draws *d)
{
    if (d->hits != NULL) return d->chance * d->chance + (1 - d->chance) * (1 - d->chance);
    const double each = d->varies ? d->longest : d->lengths / fmax((double)d->n_seen, 1);
    return 2 * each + 1 / 128.;
}

/* How many draws make a stretch that no two of n are by chance; 0: none does. */
static int64_t length_of(const usc_draws *d, const usc_draws *other, int64_t n)
{
    const double likely =
        fmax(likeness(d), other != NULL && other->n_seen > 0 ? likeness(other) : 0);
    if (!(likely < 1) || n < 2) return 0;
    const double bits = fmin(-log2(likely), MOST_BITS);
    const double all = 2 * log2((double)n) - log2(d->family) + LINES_BITS;
    const double length = ceil(all / bits);
    return length < (double)n / 2 ? (int64_t)length : 0;
}

static uint64_t mixed(uint64_t h)
{
    h = (h ^ h >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return h ^ h >> 32;
}

/* Says that the stretches at two places are one, and how far it goes to both sides. */
static bool say(const line *l, int64_t a, int64_t b, int64_t size, const char *what,
                usc_clause *out)
{
    while (a > 0 && l->is[a - 1] == l->is[b - 1])
        a--, b--, size++;
    while (b + size < l->n && l->is[a + size] == l->is[b + size])
        size++;
    return usc_clause_set(out, "%s%s draws from element %s on come again from %s on%s",
                          usc_count(size).text, what, usc_count(l->place[a]).text,
                          usc_count(l->place[b]).text,
                          b >= l->first ? " of a second call" : "");
}

/* The place of a stretch with this hash, or a free one. */
static stretch *slot_of(stretch *room, int64_t n_slots, uint64_t hash)
{
    int64_t k = (int64_t)(hash >> 20) & (n_slots - 1);
    while (room[k].at >= 0 && room[k].hash != hash)
        k = (k + 1) & (n_slots - 1);
    return &room[k];
}

/* Looks all stretches up by their rolling hashes; of many, those whose hash ends in
 * enough zeros, which are the same ones wherever a stream is met again. */
static bool comes_again(const line *l, int64_t length, stretch *room, const char *what,
                        usc_clause *out)
{
    uint64_t h = 0, leaving = 1, mask = 0;
    int64_t n_slots = 64, kept = 0;
    while (l->n / (int64_t)(mask + 1) > MOST_KEPT / 2)
        mask = 2 * mask + 1;
    while (n_slots < 2 * l->n && n_slots < 2 * MOST_KEPT)
        n_slots *= 2;
    for (int64_t k = 0; k < n_slots; k++)
        room[k].at = -1;
    for (int64_t i = 0; i < length; i++)
        leaving *= FACTOR;
    for (int64_t i = 0; i < l->n && kept < MOST_KEPT; i++) {
        h = h * FACTOR + l->is[i] + 1;
        if (i >= length) h -= leaving * ((uint64_t)l->is[i - length] + 1);
        const uint64_t hash = mixed(h);
        const int64_t at = i + 1 - length;
        if (at < 0 || (hash & mask) != 0) continue;
        stretch *s = slot_of(room, n_slots, hash);
        if (s->at < 0) {
            *s = (stretch){hash, at};
            kept++;
        } else if (at - s->at >= length && /* else a period, which others see */
                   memcmp(l->is + s->at, l->is + at, (size_t)length) == 0) {
            return say(l, s->at, at, length, what, out);
        }
    }
    return false;
}

/* ---- lines ---- */

/* The middle as a byte; mirrored alike, since -x for x is the same stream. */
static unsigned char byte_of(const usc_draws *d, int64_t i)
{
    const float m = d->mid[i];
    if (d->hits != NULL) return m > (float)((1 - d->chance) / 2 + 0.25);
    return (unsigned char)(127.999F * fabsf(2 * m - 1));
}

/* Of ones of chance 1/2 a mirrored stream is one too: then each tells whether it is that
 * before it. */
static void turn_alike(const usc_draws *d, line *l)
{
    if (d->hits == NULL || d->chance != 0.5) return;
    for (int64_t i = l->n - 1; i > 0; i--)
        l->is[i] ^= l->is[i - 1];
}

static void append(const usc_draws *d, line *l)
{
    for (int64_t i = 0; i < d->n_u; i++)
        if (!isnan(d->u[i])) {
            l->place[l->n] = i;
            l->is[l->n++] = byte_of(d, i);
        }
}

/* Place k, k + step, ... for each k below step, one line after the other. */
static void append_strided(const usc_draws *d, int64_t step, line *l)
{
    for (int64_t k = 0; k < step; k++)
        for (int64_t i = k; i < d->n_u; i += step)
            if (!isnan(d->u[i])) {
                l->place[l->n] = i;
                l->is[l->n++] = byte_of(d, i);
            }
}

/* Along every axis but the last, and of lanes of so many. */
static bool strides_odd(const usc_draws *d, int64_t length, line *l, stretch *room,
                        usc_clause *out)
{
    static const int64_t lanes[] = {4, 32, 64, 128, 256, 1024};
    int64_t stride = 1;
    char what[48];
    for (int axis = d->ndim - 1; axis > 0; axis--) {
        stride *= d->sizes[axis];
        if (stride < 2 || stride > d->n_u / length) continue;
        l->n = 0;
        append_strided(d, stride, l);
        turn_alike(d, l);
        (void)usc_format(what, sizeof what, " (every %lld)", (long long)stride);
        if (comes_again(l, length, room, what, out)) return true;
    }
    for (size_t k = 0; k < sizeof lanes / sizeof lanes[0]; k++) {
        if (lanes[k] > d->n_u / length) continue;
        l->n = 0;
        append_strided(d, lanes[k], l);
        turn_alike(d, l);
        (void)usc_format(what, sizeof what, " (every %lld)", (long long)lanes[k]);
        if (comes_again(l, length, room, what, out)) return true;
    }
    return false;
}

bool usc_draws_again(usc_draws *d, const usc_draws *other, usc_clause *out)
{
    const int64_t n = d->n_u + (other != NULL ? other->n_u : 0);
    const int64_t length = length_of(d, other, n);
    if (length == 0 || (other != NULL && (d->hits != NULL) != (other->hits != NULL)))
        return false;
    line l = {.first = INT64_MAX};
    l.is = usc_arena_take(d->arena, (size_t)n);
    l.place = usc_arena_take(d->arena, (size_t)n * sizeof *l.place);
    stretch *room = usc_arena_take(d->arena, 2 * MOST_KEPT * sizeof *room);
    if (d->arena->failed) return false;
    append(d, &l);
    if (other != NULL) {
        l.first = l.n;
        append(other, &l);
    }
    turn_alike(d, &l);
    if (comes_again(&l, length, room, "", out)) return true;
    l.first = INT64_MAX;
    return strides_odd(d, length, &l, room, out);
}
