// SPDX-License-Identifier: Apache-2.0
// A curve while it is read. The readers (curve_table.c, curve_json.c, curve_events.c,
// curve_log.c) first offer the names under which there are numbers, then, of the name
// that was chosen, give the points; curve.c makes a curve of them.
#ifndef USC_LOSS_CURVE_H
#define USC_LOSS_CURVE_H

#include <ulpscope/x/loss.h>

#include "base/line.h"

enum {
    USC_CURVE_KEY = 256,
    USC_CURVE_CANDIDATES = 64,
    USC_CURVE_NUMBER = 64, /* of the text of one */
    USC_NO_STEP = -1
};

typedef struct usc_curve_point {
    int64_t step, place; /* step: USC_NO_STEP where none was given */
    int64_t epoch, of;   /* "epoch 3, step 5/100": 3, 100; else of is 0 */
    double value;
} usc_curve_point;

/* What the line of a log says of where it stands. */
typedef struct usc_curve_at {
    int64_t step, epoch, of;
} usc_curve_at;

/* A name under which there are losses. */
typedef struct usc_curve_candidate {
    char name[USC_CURVE_KEY];
    int rank; /* usc_curve_rank */
    int64_t n;
    int64_t sum_digits; /* significant ones of all values, of each 4 at most */
} usc_curve_candidate;

typedef struct usc_curve_maker {
    const char *name; /* of the file */
    const usc_curve_options *options;
    const char *form;
    usc_curve_candidate *candidates; /* USC_CURVE_CANDIDATES; NULL: none yet */
    int n_candidates;
    const char *key;          /* the chosen one's; NULL: none */
    char axis[USC_CURVE_KEY]; /* what the steps are called; "": none was seen */
    uint64_t digest;
    char *others; /* those that were not, in words; NULL: none */
    usc_curve_point *points;
    size_t n, size;
    bool printed; /* as text, with `digits` behind the point at most */
    int digits;
    char comma[USC_CURVE_NUMBER]; /* the first with a decimal comma, "": none */
    char point[USC_CURVE_NUMBER]; /* and with a decimal point */
    usc_line notes, names;        /* names: some that were seen, for an error */
    int n_names;
    usc_error *err;
    usc_status status; /* the first failure */
} usc_curve_maker;

/** How well a name fits what is looked for: 0 best, -1 not at all; below
 * USC_CURVE_PART the loss itself, then parts of it, from USC_CURVE_HELD_OUT on losses
 * that are not of training. */
enum { USC_CURVE_PART = 10, USC_CURVE_HELD_OUT = 20 };
int usc_curve_rank(const usc_curve_options *options, const char *name);

/** The name without the run's before it: "loss" of W&B's "run 7 - loss". */
const char *usc_curve_bare(const char *name);

/** Offers a name (not ended by a zero) and a number under it. */
void usc_curve_offer(usc_curve_maker *m, const char *name, size_t n, double value);

/** Takes the only name that there is. */
void usc_curve_take(usc_curve_maker *m, const char *name);

/** Chooses among what was offered: m->key. An error where several fit equally well. */
void usc_curve_choose(usc_curve_maker *m);

/** Whether a name is the chosen one. */
bool usc_curve_is_key(const usc_curve_maker *m, const char *name, size_t n);

/** Whether a name is one for steps: step, iteration, ... */
bool usc_curve_is_step(const char *name, size_t n);

/** Whether a column counts what was trained on, as tokens do: steps, where none are named. */
bool usc_curve_is_counter(const char *name, size_t n);

/** Whether a name is that of a loss on what is held out. */
bool usc_curve_is_held_out(const char *key);

/** Takes note of what the steps are called. */
void usc_curve_axis(usc_curve_maker *m, const char *name, size_t n);

/** Adds a point. */
void usc_curve_add(usc_curve_maker *m, int64_t step, double value);
void usc_curve_add_at(usc_curve_maker *m, usc_curve_at at, double value);

/** Takes note of how many digits a number is printed with; text behind it does not
 * matter. */
void usc_curve_printed(usc_curve_maker *m, const char *text, size_t n);

/** Adds a sentence on the file. */
void usc_curve_note(usc_curve_maker *m, const char *format, ...) USC_PRINTF(2, 3);

/** The next line of a text, without its end ("\n", "\r" or both), from *at on; false at
 * the end. Progress bars write with "\r". */
bool usc_curve_line(const char **at, const char *end, const char **line, size_t *n);

/** The number that a text of n bytes is, spaces and quotes around it aside; with a decimal
 * comma, too. */
bool usc_curve_number(const char *text, size_t n, double *out);

/** The same for a step: a whole number, also 12.0, 1e3 and 5/100. */
bool usc_curve_step(const char *text, size_t n, int64_t *out);

/** Readers; `data` of `size` bytes. usc_curve_is_*: whether it looks like that. */
bool usc_curve_is_events(const char *data, size_t size);
void usc_curve_events(usc_curve_maker *m, const char *data, size_t size);
bool usc_curve_is_json(const char *data, size_t size);
void usc_curve_json(usc_curve_maker *m, const char *data, size_t size);
bool usc_curve_is_metric(const char *data, size_t size);
void usc_curve_metric(usc_curve_maker *m, const char *data, size_t size);
bool usc_curve_is_table(const usc_curve_options *options, const char *data, size_t size);
void usc_curve_table(usc_curve_maker *m, const char *data, size_t size);
void usc_curve_log(usc_curve_maker *m, const char *data, size_t size);

#endif
