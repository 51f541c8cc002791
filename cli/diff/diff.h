// SPDX-License-Identifier: Apache-2.0
// What `ulpscope diff` shares among its files: cmd_diff.c (options, the whole),
// diff_judge.c (judges calls that differ), diff_amplify.c (what rounding alone makes of
// the step), diff_show.c and diff_end.c (terminal), diff_json.c (JSON, which the page
// holds as well), diff_page.c (HTML).
#ifndef ULPSCOPE_CLI_DIFF_H
#define ULPSCOPE_CLI_DIFF_H

#include <stdio.h>

#include <ulpscope/x/diff.h>
#include <ulpscope/x/pairs.h>
#include <ulpscope/x/unjudged.h>

/* What replays of A's step with other roundings came to. */
typedef struct diff_amplified {
    int64_t n_replays; /* 0: none were asked for */
    int64_t n_results; /* that they told of */
    int64_t n_fed;     /* results as captured, whose calls could not be run again */
} diff_amplified;

typedef struct diff_words {
    const char *path[2];
    int64_t limit; /* of what is listed */
    bool page;     /* for the page: all rows that differ */
    bool all;      /* all rows, not those alone at which a difference begins */
    bool part;     /* one phase is compared alone */
    bool own;      /* to be judged: all that differs, also behind the first error */
    bool judged;   /* calls were judged; else limits alone tell */
    bool modules;
    bool inside;          /* the calls inside of the modules have the last word */
    const char *replicas; /* a remark where only a part is compared; NULL: all is */
    diff_amplified amplified;
} diff_words;

/** Prints a table of beginnings, or of all rows, and what it comes to. Errors: those of
 * the traces. */
USC_NODISCARD usc_status diff_show(usc_diff *d, usc_trace *const t[2],
                                   const diff_words *words, int64_t n_left,
                                   usc_error *err);

/** Writes one JSON object. Errors: those of the traces. */
USC_NODISCARD usc_status diff_put_json(FILE *to, usc_diff *d, usc_trace *const t[2],
                                       const diff_words *words, usc_error *err);

/** Prints what it comes to: what entered, what was looked at, where the runs part;
 * `n_left` pairs were not begun. Errors: those of the traces. */
USC_NODISCARD usc_status diff_put_end(usc_diff *d, usc_trace *const t[2],
                                      const diff_words *words, int64_t n_left,
                                      usc_error *err);

/** Whether a row is listed by itself: a difference begins there. What entered is one
 * line, but for replicas. */
bool diff_is_listed(const usc_diff_row *row, const diff_words *words);

/** A row of a diff for the JSON, with its call of A. */
USC_NODISCARD usc_status diff_put_row(FILE *to, usc_diff *d, usc_trace *const t[2],
                                      int64_t row, usc_error *err);

/** Writes the page, one HTML file that needs no other. The exit code: 0 where that was
 * done. */
int diff_put_page(const char *file, usc_diff *d, usc_trace *const t[2],
                  const diff_words *words);

/** Replays the step of A `n` times with other roundings and lets the diff hear how far
 * apart these bring each result. The exit code: 0 where that was done. */
int diff_amplify(usc_diff *d, const char *trace, int64_t n, diff_amplified *out);

/* Pairs of which a side was not judged. */
typedef struct diff_unjudged {
    usc_unjudged *item; /* texts are its own: op and reason are one */
    size_t n;
    int64_t n_left; /* pairs behind the first that errs, which nobody looked at */
} diff_unjudged;

/** Prints their line (usc_unjudged_put) and frees them. Errors: those of stdout. */
USC_NODISCARD usc_status diff_put_unjudged(diff_unjudged *u, bool quiet, usc_error *err);

/** Judges the calls that differ on both sides until one makes an error (words->own,
 * words->all: all of them), and lets the diff hear of it. The exit code: 0 where that was
 * done. */
int diff_judge(usc_diff *d, const diff_words *words, const usc_pairs_options *options,
               diff_unjudged *unjudged);

#endif
