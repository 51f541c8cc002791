// SPDX-License-Identifier: Apache-2.0
// The median is at hand at any time (places in order of their values); the median
// absolute deviation is made anew after every eighth value. Median and MAD as estimators
// that a single bad value cannot move: Hampel, "The influence curve and its role in
// robust estimation", 1974; 1.4826 makes the MAD of normal values their standard
// deviation.
#include "watch/tracker.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { UNITS = 128, RENEW = 8 };

static int16_t units_of(double bits)
{
    const double units = nearbyint(bits * UNITS);
    if (!(units > -INT16_MAX)) return -INT16_MAX;
    return units < INT16_MAX ? (int16_t)units : INT16_MAX;
}

bool usc_tracker_sound(const usc_tracker *t)
{
    uint64_t seen = 0;
    if (t->n > USC_TRACKED || t->next >= USC_TRACKED || t->n_apart > USC_TRACK_APART ||
        t->next_apart >= USC_TRACK_APART || (t->n < USC_TRACKED && t->next != t->n))
        return false;
    for (int i = 0; i < t->n; i++) {
        if (t->sorted[i] >= t->n) return false;
        seen |= UINT64_C(1) << t->sorted[i];
    }
    return seen == (t->n == USC_TRACKED ? UINT64_MAX : (UINT64_C(1) << t->n) - 1);
}

bool usc_tracker_ready(const usc_tracker *t)
{
    return t->n >= USC_TRACK_WARM;
}

/* Twice the median, in units: the sum of the two in the middle. */
static int twice_median(const usc_tracker *t)
{
    return t->value[t->sorted[(t->n - 1) / 2]] + t->value[t->sorted[t->n / 2]];
}

double usc_tracker_median(const usc_tracker *t)
{
    return t->n > 0 ? twice_median(t) / (2.0 * UNITS) : 0;
}

double usc_tracker_threshold(const usc_tracker *t, double least, double deviations)
{
    const double robust = 1.4826 * deviations * t->deviation / UNITS;
    const double few = t->n > 0 ? 1 + (double)USC_TRACK_WARM / t->n : 2;
    return few * (robust > least ? robust : least);
}

/* The distances from the median, ascending, come from both ends of two sorted halves. */
static void renew(usc_tracker *t)
{
    const int twice = twice_median(t);
    int below = (t->n - 1) / 2, above = below + 1, distance = 0;
    for (int taken = 0; taken <= t->n / 2; taken++) {
        const int down = below >= 0 ? twice - 2 * t->value[t->sorted[below]] : INT32_MAX;
        const int up = above < t->n ? 2 * t->value[t->sorted[above]] - twice : INT32_MAX;
        distance = down < up ? down : up;
        if (down < up)
            below--;
        else
            above++;
    }
    t->deviation = (int16_t)(distance / 2 < INT16_MAX ? distance / 2 : INT16_MAX);
    t->age = 0;
}

static void insert(usc_tracker *t, int16_t value)
{
    int n = t->n, at = 0;
    if (n == USC_TRACKED) { /* the oldest goes */
        while (t->sorted[at] != t->next)
            at++;
        memmove(t->sorted + at, t->sorted + at + 1, (size_t)(n - at - 1));
        n--;
    }
    for (at = n; at > 0 && t->value[t->sorted[at - 1]] > value; at--)
        t->sorted[at] = t->sorted[at - 1];
    t->sorted[at] = t->next;
    t->value[t->next] = value;
    t->next = (uint8_t)((t->next + 1) % USC_TRACKED);
    t->n = (uint8_t)(n + 1);
    t->age++;
    if (t->age >= RENEW || t->n <= USC_TRACK_WARM) renew(t);
}

void usc_tracker_accept(usc_tracker *t, double bits)
{
    t->outside = (uint8_t)(t->outside << 1);
    insert(t, units_of(bits));
}

static int count_bits(unsigned bits)
{
    int n = 0;
    for (; bits != 0; bits &= bits - 1)
        n++;
    return n;
}

bool usc_tracker_reject(usc_tracker *t, double bits, double width)
{
    t->outside = (uint8_t)(t->outside << 1 | 1);
    t->apart[t->next_apart] = units_of(bits);
    t->next_apart = (uint8_t)((t->next_apart + 1) % USC_TRACK_APART);
    if (t->n_apart < USC_TRACK_APART) t->n_apart++;
    if (count_bits(t->outside) < USC_TRACK_SHIFT) return false;
    int16_t last[USC_TRACK_SHIFT];
    int low = INT16_MAX, high = -INT16_MAX;
    for (int i = 0; i < USC_TRACK_SHIFT; i++) {
        last[i] =
            t->apart[(t->next_apart + 2 * USC_TRACK_APART - 1 - i) % USC_TRACK_APART];
        if (last[i] < low) low = last[i];
        if (last[i] > high) high = last[i];
    }
    if (high - low > 2 * width * UNITS) return false;
    *t = (usc_tracker){.n = 0};
    for (int i = USC_TRACK_SHIFT - 1; i >= 0; i--)
        insert(t, last[i]);
    return true;
}
