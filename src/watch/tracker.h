// SPDX-License-Identifier: Apache-2.0
// One number over time: its last 64 accepted values, their median and median absolute
// deviation, and the few that were not accepted, from which a lasting shift is told. In
// the log2 domain: a unit is a 128th of a factor of two, which is finer than anything
// decided here, so that a value takes two bytes. docs/reference/watch-reference.md,
// "Tracker".
#ifndef USC_WATCH_TRACKER_H
#define USC_WATCH_TRACKER_H

#include <stdbool.h>
#include <stdint.h>

enum {
    USC_TRACKED = 64,   /* values kept */
    USC_TRACK_WARM = 8, /* below so many nothing is judged */
    USC_TRACK_APART = 8,
    USC_TRACK_SHIFT = 5 /* 5 of the last 8 make a shift */
};

/* Zero to begin with; plain bytes. */
typedef struct usc_tracker {
    int16_t value[USC_TRACKED];     /* a ring: n up to `next` */
    uint8_t sorted[USC_TRACKED];    /* places in `value`, ascending by it */
    int16_t apart[USC_TRACK_APART]; /* a ring of what was not accepted */
    int16_t deviation;              /* median absolute; made anew now and then */
    uint8_t n, next, n_apart, next_apart;
    uint8_t outside; /* of the last 8 values, a bit each: was it not accepted? */
    uint8_t age;     /* values since `deviation` was made */
} usc_tracker;

/** Whether bytes that came from outside are a tracker: no place points out of it. */
bool usc_tracker_sound(const usc_tracker *t);

/** Whether there are enough values to judge by. */
bool usc_tracker_ready(const usc_tracker *t);

/** Median, in bits (log2); 0 of none. */
double usc_tracker_median(const usc_tracker *t);

/** What a deviation from the median has to exceed, in bits: the larger of `least` and of
 * so many robust standard deviations (1.4826 times the median absolute deviation), both
 * more while there are few values. */
double usc_tracker_threshold(const usc_tracker *t, double least, double deviations);

/** Takes a value (bits) in. */
void usc_tracker_accept(usc_tracker *t, double bits);

/** Takes note of one that is not accepted. True: it is a shift, 5 of the last 8 values
 * lie outside within `width` of each other; they are the history now. */
bool usc_tracker_reject(usc_tracker *t, double bits, double width);

#endif
