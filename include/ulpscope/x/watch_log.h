// SPDX-License-Identifier: Apache-2.0
// A watch offline: recorded statistics, of our own (docs/reference/watch-reference.md,
// "Log") or the gradient norms that training programs write, through any detectors; and
// what would be seen of a flipped bit.
//
// Threads: safe, as long as nobody frees what another thread reads.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_WATCH_LOG_H
#define ULPSCOPE_X_WATCH_LOG_H

#include <stdio.h>

#include <ulpscope/x/watch.h>

USC_BEGIN_DECLS

/* ---- a log ---- */

#define USC_WATCH_LOG_VERSION 1

typedef struct usc_watch_log usc_watch_log;

/** Of a log: what its head says. */
typedef struct usc_watch_log_info {
    const char *name, *form; /* of the file; "watch log", or as usc_curve.form */
    int32_t world;
    int64_t n_tensors;
    const usc_watch_tensor_info *tensors;
    const char *column; /* of a curve: what was read; NULL: a log of a watch */
} usc_watch_log_info;

/**
 * Opens a log: of a watch, else as a curve of gradient norms by usc_curve_read, of which
 * `key` (NULL: what is called grad_norm) is read. A file descriptor is held.
 *
 * Memory:  *out is freed by usc_watch_log_close; NULL after an error.
 * Errors:  USC_E_NOT_FOUND, USC_E_IO, USC_E_CORRUPT (err->where: line), USC_E_VERSION,
 *          USC_E_RANGE, USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_watch_log_open(const char *path, const char *key,
                                                    usc_watch_log **out, usc_error *err);

/** Closes; NULL is allowed. */
USC_API void usc_watch_log_close(usc_watch_log *log);

/** What its head says. Memory: until usc_watch_log_close. */
USC_API const usc_watch_log_info *usc_watch_log_about(const usc_watch_log *log);

/**
 * The rows of the next line; *n is 0 at the end.
 *
 * Memory:  *rows until the next call with `log`.
 * Errors:  USC_E_CORRUPT (err->where: line), USC_E_IO, USC_E_NOMEM. A last line that was
 *          cut off is the end: usc_watch_log_note says so.
 */
USC_API USC_NODISCARD usc_status usc_watch_log_next(usc_watch_log *log,
                                                    const usc_watch_row **rows, size_t *n,
                                                    double *seconds, usc_error *err);

/** A sentence on what is odd about what was read so far; "": nothing. Memory: until the
 * next call with `log`. */
USC_API const char *usc_watch_log_note(const usc_watch_log *log);

/* ---- a log through detectors ---- */

#define USC_WATCH_REPLAY_EVENTS 100000 /* kept; further ones are counted */

/** What a log came to. A step's norm is the L2 norm of its gradients (or the value of a
 * curve), its score the largest score / threshold. */
typedef struct usc_watch_replay {
    const char *name, *form, *note;
    const char *column;              /* of a curve; "": a log of a watch */
    const char *watched, *unwatched; /* detectors that had something to look at; those
                                        that had not, with why, in words */
    bool judged; /* some detector had; else nothing may be said of the run */
    int32_t world;
    int64_t n_tensors, n_steps, n_events, n_lost, n_bytes;
    const int64_t *steps;
    const double *norms, *scores;
    const usc_watch_event *events;
} usc_watch_replay;

/**
 * Replays a log. `config` is of whoever asks, but for its world, which is the log's.
 *
 * Memory:  *out is freed by usc_watch_replay_free; NULL after an error.
 * Errors:  those of usc_watch_log_open and usc_watch_log_next.
 */
USC_API USC_NODISCARD usc_status usc_watch_replay_run(const char *path, const char *key,
                                                      const usc_watch_config *config,
                                                      usc_watch_replay **out,
                                                      usc_error *err);

/** Frees; NULL is allowed. */
USC_API void usc_watch_replay_free(usc_watch_replay *replay);

/** Writes for a terminal: what was read, norms and scores in block characters of at most
 * `width` columns, the events. UTF-8. Errors: USC_E_IO, USC_E_NOMEM. */
USC_API USC_NODISCARD usc_status usc_watch_replay_table(const usc_watch_replay *replay,
                                                        int width, FILE *to,
                                                        usc_error *err);

/** Writes one JSON object in a line: docs/reference/watch-reference.md, "--json". Errors:
 * as above.
 */
USC_API USC_NODISCARD usc_status usc_watch_replay_json(const usc_watch_replay *replay,
                                                       FILE *to, usc_error *err);

/** Writes one self-contained page, with the picture as SVG. Errors: as above. */
USC_API USC_NODISCARD usc_status usc_watch_replay_html(const usc_watch_replay *replay,
                                                       FILE *to, usc_error *err);

/* ---- what would be seen ---- */

#define USC_WATCH_TRIALS 200 /* flips of each bit */

/** Of a detector and a bit: the share of flips that it sees, and whether at all. */
typedef struct usc_watch_seen {
    usc_watch_detector detector;
    int n_bits;
    double share[64]; /* by bit; 0 is the lowest of the significand */
    double mean;
    double clean; /* the share of steps without a flip at which it alarms, too */
} usc_watch_seen;

/** The levels of a gradient that a flip goes into. Zero `mean`: elements are normal. */
typedef struct usc_watch_level {
    double rms;    /* of its elements */
    double wander; /* standard deviation of log2 of it, from step to step */
    int64_t numel;
    double mean;        /* of their absolute values */
    double peak;        /* the largest of those, in means: log2 */
    double peak_wander; /* standard deviation of that, from step to step */
    bool spared;        /* no flip goes into it */
    char name[64];      /* of the tensor, cut off; "": none is known */
} usc_watch_level;

/**
 * Flips one bit of one element, many times, in gradients of these levels (at most 8 are
 * taken), and asks each detector of `detectors` for its verdict on that step alone, after
 * 128 clean ones. `config->world` ranks, at most 4, one of which has the flip. The same
 * result every time.
 *
 * Memory:  `out` has room for one usc_watch_seen for each detector asked for; *n of them
 *          are written.
 * Errors:  USC_E_DTYPE (no float), USC_E_ARG (no level), USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_watch_explain(const usc_watch_level *levels,
                                                   size_t n_levels, usc_dtype dtype,
                                                   const usc_watch_config *config,
                                                   usc_watch_seen *out, size_t *n,
                                                   usc_error *err);

/**
 * The levels of a log's gradients, one for each tensor with statistics; of more than
 * `most` some, from the smallest level to the largest. `*world`: the log's ranks.
 *
 * Errors:  those of usc_watch_log_open and usc_watch_log_next; USC_E_RANGE (no statistics
 *          of gradients).
 */
USC_API USC_NODISCARD usc_status usc_watch_log_levels(const char *path, const char *key,
                                                      usc_watch_level *out, size_t most,
                                                      size_t *n, usc_dtype *dtype,
                                                      int32_t *world, usc_error *err);

USC_END_DECLS
#endif
