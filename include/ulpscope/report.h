// SPDX-License-Identifier: Apache-2.0
// The only renderer: one result database in; terminal table, CSV, JSON and HTML out. It
// never prints: everything goes to a sink of the caller. Formats:
// docs/reference/report.md.
//
// Threads: one thread at a time per report and per sink.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_REPORT_H
#define ULPSCOPE_REPORT_H

#include <stdio.h>

#include <ulpscope/alloc.h>
#include <ulpscope/result.h>
#include <ulpscope/safetensors.h>
#include <ulpscope/status.h>
#include <ulpscope/trace.h>
#include <ulpscope/verdict.h>

USC_BEGIN_DECLS

#define USC_REPORT_SCHEMA "ulpscope-result/1"

/** Where rendered bytes go. `write` takes all `n` bytes or fails with a set error. */
typedef struct usc_sink {
    usc_status (*write)(void *ctx, const char *bytes, size_t n, usc_error *err);
    void *ctx;
} usc_sink;

/** A sink that writes to an open stream, which stays the caller's and is not flushed. */
USC_API usc_sink usc_sink_stream(FILE *stream);

/**
 * Writes `text` as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD.
 *
 * Errors:  those of the sink.
 */
USC_API USC_NODISCARD usc_status usc_sink_json(const usc_sink *sink, const char *text,
                                               usc_error *err);

/** One excuse of `--allow VERDICT[:PATTERN]`. */
typedef struct usc_allow {
    usc_verdict verdict;
    const char *pattern; /* held against operator and culprit; NULL: all; "usual[:...]":
                            of these, what torch's own CPU kernel does no better */
} usc_allow;

/**
 * Parses "reduced" or "reduced:aten::mm,linear".
 *
 * Memory:  out->pattern points into `text`.
 * Errors:  USC_E_ARG (no such verdict, or a pattern that is not well formed); *out is
 *          zero then.
 */
USC_API USC_NODISCARD usc_status usc_allow_parse(const char *text, usc_allow *out,
                                                 usc_error *err);

enum { USC_ALLOW_WORD = 32 }; /* bytes of its word, with the zero */

/**
 * Parses "WORD" or "WORD:PATTERN", the form of every --allow: "reduced:aten::mm,linear",
 * "unpaired". `word` is "" where it would not fit.
 *
 * Memory:  *pattern points into `text`; NULL where there is none.
 * Errors:  USC_E_ARG, a pattern that is not well formed; the word is told all the same.
 */
USC_API USC_NODISCARD usc_status usc_allow_word(const char *text,
                                                char word[USC_ALLOW_WORD],
                                                const char **pattern, usc_error *err);

/** How to render and what decides the exit code. The zero value is the default. */
typedef struct usc_report_options {
    int width;     /* columns of the terminal; 0: 100 */
    bool color;    /* ANSI colours */
    bool no_files; /* leave out the lines that say where the files are */
    bool more; /* more is told behind the table: usc_report_unjudged is left to the end */
    bool by_loss;    /* the largest effect on the loss first, not the worst verdict */
    bool strict;     /* undefined, unjudged and unsupported are flagged, too */
    bool unrecorded; /* accept that the trace lacks calls that ran */
    int n_allow;
    const usc_allow *allow;
    double min_judged; /* share of the calls that must be judged; 0: all, -1: any */
} usc_report_options;

typedef struct usc_report usc_report;

/**
 * Opens OUT/result.db and sums it up: findings, operators, reasons, times.
 *
 * Memory:  `alloc` (NULL: the C library's) must outlive the report. Rows are not kept:
 *          the renderers read them again.
 * Threads: one thread at a time per report.
 * Errors:  as usc_result_open; USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_report_open(const char *out_folder,
                                                 const usc_alloc *alloc, usc_report **out,
                                                 usc_error *err);

/** Frees a report; NULL is allowed. */
USC_API void usc_report_close(usc_report *report);

/**
 * Takes an earlier run as the baseline: from here on a call is flagged only where it is
 * new or worse than there (docs/reference/report.md, "Baseline"). At most once per
 * report.
 *
 * path:    a result.db, a folder that holds one, or a result.json.
 * Errors:  USC_E_NOT_FOUND, USC_E_CORRUPT (neither of them), USC_E_ARG (another
 * standard), USC_E_VERSION, USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_report_baseline(usc_report *report, const char *path,
                                                     usc_error *err);

/**
 * Marks in result.csv, result.json and report.html what `options` allow. They must
 * outlive the report; NULL takes the marks away.
 */
USC_API void usc_report_mark(usc_report *report, const usc_report_options *options);

/** The table for a terminal, worst first, and the summary below it; UTF-8.
 * `options` NULL: their zero value. Errors: those of the sink, USC_E_NOMEM. */
USC_API USC_NODISCARD usc_status usc_report_table(usc_report *report,
                                                  const usc_report_options *options,
                                                  const usc_sink *sink, usc_error *err);

/** result.csv: a row per call. Errors: those of the sink and of reading. */
USC_API USC_NODISCARD usc_status usc_report_csv(usc_report *report, const usc_sink *sink,
                                                usc_error *err);

/** details.csv: a row per call, output and metric. Errors: as usc_report_csv. */
USC_API USC_NODISCARD usc_status usc_report_details(usc_report *report,
                                                    const usc_sink *sink, usc_error *err);

/** result.json, schema USC_REPORT_SCHEMA. Errors: as usc_report_csv. */
USC_API USC_NODISCARD usc_status usc_report_json(usc_report *report, const usc_sink *sink,
                                                 usc_error *err);

/** report.html: one self-contained page. Errors: as usc_report_csv. */
USC_API USC_NODISCARD usc_status usc_report_html(usc_report *report, const usc_sink *sink,
                                                 usc_error *err);

/** The trace of one rank, or the only one. `path` is said. */
typedef struct usc_trace_rank {
    const char *name, *path;
    usc_trace *trace;
} usc_trace_rank;

typedef struct usc_trace_page {
    const usc_trace_rank *rank;
    int n;
} usc_trace_page;

/**
 * The same page of traces that nobody has checked: their calls, in the order of
 * execution, statistics of their tensors, NaN and Inf.
 *
 * Errors:  those of the sink and of reading the traces, USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_report_traces(const usc_trace_page *page,
                                                   const usc_sink *sink, usc_error *err);

/**
 * Traces as events for ui.perfetto.dev and chrome://tracing, JSON: a process per rank,
 * threads with calls inside one another, the modules of each, steps and phases. A trace
 * has no clock: a call begins at its number, in microseconds.
 *
 * Errors:  those of the sink and of reading the traces, USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_report_events(const usc_trace_page *traces,
                                                   const usc_sink *sink, usc_error *err);

/** What became of the script of a call in a process of its own. */
typedef struct usc_script_run {
    int code;         /* it exited with, negative for a signal */
    bool alone;       /* it fails by its own comparison, too */
    const char *said; /* why it could not be tried; of one that fails and compares in one
                       * way alone, what it printed; NULL is "" */
} usc_script_run;

/**
 * The text of a bug report on one call, in Markdown: what, where, numbers, environment.
 * Names may hold whatever they like, they end up as text.
 *
 * run:    device and trace are said, and the members of `environment`; texts may be NULL.
 * again:  Markdown that says how to see it again; NULL for nothing.
 * Errors: those of the sink.
 */
USC_API USC_NODISCARD usc_status usc_report_markdown(const usc_run *run,
                                                     const usc_result_row *row,
                                                     const usc_script_run *tried,
                                                     const usc_sink *sink,
                                                     usc_error *err);

/**
 * What a script says of itself, for its docstring: operator, device and place; on a
 * second line the verdict and what became of it, where it was `tried` (else NULL).
 *
 * Errors: those of the sink.
 */
USC_API USC_NODISCARD usc_status usc_report_about(const usc_run *run,
                                                  const usc_result_row *row,
                                                  const usc_script_run *tried,
                                                  const usc_sink *sink, usc_error *err);

/** What stands in a script in the place of `@name`. */
typedef struct usc_script_part {
    const char *name, *text;
} usc_script_part;

/**
 * A script of at most 40 lines that runs one call and compares it with the CPU, for
 * readers who have torch alone. Its parts: about, where, dtype, arguments, operator,
 * imports, device; each is Python, `about` the text of a docstring of two lines.
 * `tensors` (contiguous) stand in it by value where they are few and small; else it reads
 * inputs.safetensors beside it.
 *
 * Errors:  USC_E_ARG (a part is missing: named), those of the sink.
 */
USC_API USC_NODISCARD usc_status usc_report_script(const usc_script_part *parts, size_t n,
                                                   const usc_named_tensor *tensors,
                                                   size_t n_tensors, const usc_sink *sink,
                                                   usc_error *err);

/**
 * One line without a line feed: "3 of 264 calls flagged: aten::mm reduced (11.1 bits)".
 *
 * Errors:  those of the sink.
 */
USC_API USC_NODISCARD usc_status usc_report_summary(usc_report *report,
                                                    const usc_report_options *options,
                                                    const usc_sink *sink, usc_error *err);

/**
 * What was not judged, most calls first, with reason and remedy, as usc_unjudged_put
 * (unjudged.h), with a line feed: the last line of whatever judges, with what to type
 * where that decides the exit code. What the options allow, and what a baseline knows,
 * are a line each before it. Nothing where all was judged.
 *
 * options: may be NULL.
 * Errors:  those of the sink, USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_report_unjudged(usc_report *report,
                                                     const usc_report_options *options,
                                                     const usc_sink *sink,
                                                     usc_error *err);

/** A line `::error title=...::sentence` for every finding that is flagged: GitHub shows
 * them beside the run. Errors: those of the sink. */
USC_API USC_NODISCARD usc_status usc_report_annotations(usc_report *report,
                                                        const usc_report_options *options,
                                                        const usc_sink *sink,
                                                        usc_error *err);

/** JUnit XML: a test case per operator, module, phase and arguments. Flagged is a
 * failure, unjudged without any pass is skipped. Errors: as usc_report_csv. */
USC_API USC_NODISCARD usc_status usc_report_junit(usc_report *report,
                                                  const usc_report_options *options,
                                                  const usc_sink *sink, usc_error *err);

/** The same into a file, which appears whole or not at all. Errors: USC_E_IO. */
USC_API USC_NODISCARD usc_status usc_report_write_junit(usc_report *report,
                                                        const usc_report_options *options,
                                                        const char *path, usc_error *err);

/**
 * Writes result.csv, details.csv, result.json and report.html into OUT, each first under
 * a temporary name, so that a reader never sees half a file.
 *
 * Errors:  USC_E_IO (file named); a file that was there before is left as it was.
 */
USC_API USC_NODISCARD usc_status usc_report_write_files(usc_report *report,
                                                        usc_error *err);

/**
 * What `report` and `check` exit with. 1: at least one call is flagged (crashed, timeout,
 * nonfinite, wrong, reduced, intermittent; strict: also undefined, unjudged, unsupported)
 * and not excused. 2: nothing was selected, nothing could be judged, a call or one of its
 * outputs was not and is not excused (or more than options->min_judged leaves), the trace
 * lacks calls that ran and that is not accepted, the check was interrupted and what it saw so far is clean. Else 0. `options` may be NULL.
 */
USC_API int usc_report_exit_code(const usc_report *report,
                                 const usc_report_options *options);

USC_END_DECLS
#endif
