// SPDX-License-Identifier: Apache-2.0
// Loss curves: read from what training programs write, held against each other, with the
// noise that they have anyway told from a difference. Formulas: docs/reference/loss.md.
//
// Threads: safe, as long as nobody frees what another thread reads.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_LOSS_H
#define ULPSCOPE_X_LOSS_H

#include <stdio.h>

#include <ulpscope/status.h>

USC_BEGIN_DECLS

/** What to read in a file. The zero value tries what is usual. */
typedef struct usc_curve_options {
    const char *key;   /* column, JSON key, tag or word before the number; NULL: what is
                          called loss */
    const char *regex; /* of lines of a log: POSIX extended, with \d, \s, \w and groups
                          (?P<loss>...) and (?P<step>...); NULL: none */
} usc_curve_options;

/** One value for each step, ascending. */
typedef struct usc_curve {
    const char *name;   /* of the file */
    const char *form;   /* "CSV", "JSON", "event file" or "log" */
    const char *key;    /* what was read: "train/loss" */
    const char *axis;   /* what its steps are called: "global_step"; "": there are none */
    const char *others; /* losses in the file that were not taken, in words; "": none */
    const char *notes;  /* sentences on what is odd about it, a line each; "": nothing */
    int64_t n;          /* at least 1 */
    const int64_t *steps; /* as given; else the place in the file, from 0 */
    const double *values; /* NaN and Inf as they are */
    bool numbered;        /* the file gives the steps */
    bool held_out;        /* chosen, for want of another, of what is not trained on */
    int64_t n_again;   /* values whose step came again (a resumed run): the last stays */
    int64_t first_bad; /* the first step whose value is NaN or Inf; -1: none */
    double grain;      /* a unit of the last digit printed; 0: JSON, event files */
    uint64_t digest;   /* of the file's bytes; 0 only by chance */
} usc_curve;

/**
 * Reads the curve that a file holds: CSV or TSV, JSON lines, a JSON list or a Trainer's
 * state, TensorBoard's event files (or a folder of them), else a log. Duplicate steps:
 * the last in the file counts.
 *
 * Memory:  *out is freed by usc_curve_free; NULL after an error.
 * Errors:  USC_E_NOT_FOUND, USC_E_IO; USC_E_CORRUPT (binary, an event file whose first
 *          record is damaged), USC_E_ARG (a bad regex), USC_E_RANGE (empty, or no number
 *          where one was looked for; larger than 2 GiB), USC_E_NOMEM. The sentence says
 *          what to give instead.
 */
USC_API USC_NODISCARD usc_status usc_curve_read(const char *path,
                                                const usc_curve_options *options,
                                                usc_curve **out, usc_error *err);

/**
 * The same of `size` bytes in memory, of a file called `name`; `options` NULL: their zero
 * value.
 *
 * Memory:  nothing of `data` is kept.
 * Errors:  as usc_curve_read.
 */
USC_API USC_NODISCARD usc_status usc_curve_parse(const char *name, const void *data,
                                                 size_t size,
                                                 const usc_curve_options *options,
                                                 usc_curve **out, usc_error *err);

/** Frees; NULL is allowed. */
USC_API void usc_curve_free(usc_curve *curve);

/* ---- two of them ---- */

/* name, text */
#define USC_LOSS_NOISE_LIST(X)                                                           \
    X(REPEATS, "repeats")         /* what repeated runs differ by among each other */    \
    X(DIFFERENCES, "differences") /* how rough the difference is: common batches */      \
    X(ROUGHNESS, "roughness")     /* how rough the first curve is about its trend */     \
    X(ROUNDING, "rounding")       /* too few steps to tell: float32's rounding alone */

typedef enum usc_loss_noise {
#define USC_LOSS_NOISE_ENUM(id, text) USC_LOSS_NOISE_##id,
    USC_LOSS_NOISE_LIST(USC_LOSS_NOISE_ENUM)
#undef USC_LOSS_NOISE_ENUM
        USC_N_LOSS_NOISES
} usc_loss_noise;

/** Mean relative error that teams accept between two devices. */
#define USC_LOSS_USUAL_LIMIT 0.02

/** Text of a kind: "repeats"; "unknown" for other values. Memory: static. */
USC_API const char *usc_loss_noise_text(usc_loss_noise noise);

typedef struct usc_loss_options {
    const usc_curve *const *repeats; /* runs like the first one, other seeds */
    size_t n_repeats;
    double tolerance; /* relative; a steady difference below it is none; 0: 0.001, and
                         what float32 does not explain is not told */
} usc_loss_options;

/** The curves at one step, in the losses' own unit. */
typedef struct usc_loss_point {
    int64_t step; /* -1: there is none */
    double a, b;
    double difference; /* b - a */
    double relative;   /* of |a|; NaN where a is 0 */
    double band;       /* by how much they may differ there */
} usc_loss_point;

/** What two curves come to. The steps are those that both have. */
typedef struct usc_loss_result {
    bool differ;
    bool told; /* whether it could be told; false: not `differ`, nor the same */
    const char *sentence; /* all of it in one */
    usc_loss_noise noise;
    int64_t n, n_outside, n_repeats;
    int64_t n_left_out;           /* common steps at which both are NaN or Inf */
    int64_t n_only_a, n_only_b;   /* steps of one alone */
    int64_t bad_step;             /* the first where one alone is NaN or Inf; -1: none */
    bool bad_is_a;                /* which one */
    usc_loss_point first;         /* the first outside its band */
    usc_loss_point largest, last; /* the largest |difference|, the last step */
    double area, mean; /* between the curves: over steps; |difference| on average */
    double drift, drift_relative; /* mean difference over the last quarter; of mean |a| */
    double early_noise;           /* of the difference, over the first quarter */
    double drift_limit;           /* |drift| beyond which it counts */
    double drift_noise;    /* what the mean over the last quarter wavers by where batches
                              are common; else 0 */
    double mean_relative;  /* mean of |difference| / |a| */
    double early_relative; /* the same over the first n_early steps */
    int64_t n_early;
    double common; /* how rough the difference is, of how rough it would be between runs
                      on other batches; NaN: too few steps */
    bool drifts;   /* it counts: steady, and above the tolerance */
    const int64_t *steps; /* n of each */
    const double *a, *b, *band;
} usc_loss_result;

/**
 * Holds `b` against `a`. Where both give steps these are matched, else places in the
 * file.
 *
 * Units:   those of the losses; `relative` is a share, not per cent.
 * Numbers: docs/reference/loss.md. NaN or Inf on one side alone is a difference; on both
 *          sides at one step it is left out.
 * Memory:  *out is freed by usc_loss_free; NULL after an error. Keeps nothing of the
 *          curves.
 * Errors:  USC_E_RANGE (no step in common; steps of which only one side gives the
 *          numbers), USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_loss_compare(const usc_curve *a, const usc_curve *b,
                                                  const usc_loss_options *options,
                                                  usc_loss_result **out, usc_error *err);

/** Frees; NULL is allowed. */
USC_API void usc_loss_free(usc_loss_result *result);

/**
 * Writes for a terminal: what was read, the curves in block characters of at most `width`
 * columns, the numbers, the sentence. UTF-8.
 *
 * Errors:  USC_E_IO, USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_loss_table(const usc_curve *a, const usc_curve *b,
                                                const usc_loss_result *result, int width,
                                                FILE *to, usc_error *err);

/** Writes one JSON object in a line: docs/reference/loss.md, "JSON". Errors: USC_E_IO,
 * USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_loss_json(const usc_curve *a, const usc_curve *b,
                                               const usc_loss_result *result, FILE *to,
                                               usc_error *err);

/**
 * Writes one self-contained page: for each of `n` results a picture (SVG) of the curves
 * with the band and of their difference, and the numbers. All are held against `a`.
 *
 * Errors:  USC_E_IO, USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_loss_html(const usc_curve *a,
                                               const usc_curve *const *b,
                                               const usc_loss_result *const *results,
                                               size_t n, FILE *to, usc_error *err);

USC_END_DECLS
#endif
