// SPDX-License-Identifier: Apache-2.0
// Questions in SQL to traces and results: six views that stay as they are documented
// (docs/reference/sql.md) whatever becomes of the tables below them, and nothing but
// reading.
//
// Threads: one thread at a time per query.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_QUERY_H
#define ULPSCOPE_X_QUERY_H

#include <ulpscope/status.h>

USC_BEGIN_DECLS

/* name, columns, what a row is */
#define USC_QUERY_VIEW_LIST(X)                                                           \
    X("calls",                                                                           \
      "rank, call, step, phase, op, module, class, parent, thread, status, args, stack", \
      "one call of an operator")                                                         \
    X("tensors",                                                                         \
      "rank, call, role, path, dtype, sizes, strides, device, bytes, written_by, "       \
      "elements, min, max, mean, l2, n_nan, n_inf, n_zero, n_subnormal",                 \
      "one tensor of a call, in, out or mutated")                                        \
    X("modules", "rank, module, class, calls, first_call, last_call",                    \
      "one module of the model")                                                         \
    X("verdicts",                                                                        \
      "rank, call, step, phase, op, culprit, module, class, verdict, flagged, bits, "    \
      "at_least, yardstick_bits, loss, cause, sentence, notes, output, elements, "       \
      "excused, stands_for, device_ns, reference_ns, total_ns",                          \
      "the verdict on one call")                                                         \
    X("causes", "rank, cause, op, verdict, calls, least_bits, most_loss, first_call",    \
      "one cause of one operator, with its calls")                                       \
    X("ranks",                                                                           \
      "rank, trace, results, device, standard, state, steps, calls, verdicts, flagged",  \
      "one trace, or the results on one")

typedef struct usc_query_view {
    const char *name, *columns, *about;
} usc_query_view;

/** The views; *n is their number. Memory: static. */
USC_API const usc_query_view *usc_query_views(int *n);

typedef enum usc_query_type {
    USC_QUERY_NULL,
    USC_QUERY_INTEGER,
    USC_QUERY_REAL, /* an infinity may be among them, a NaN never is */
    USC_QUERY_TEXT,
} usc_query_type;

typedef struct usc_query_value {
    usc_query_type type;
    int64_t integer;
    double real;
    const char *text; /* UTF-8; of a blob its bytes in hexadecimal digits */
} usc_query_value;

typedef struct usc_query usc_query;

/**
 * Makes a query without anything to ask.
 *
 * Memory:  *out is the caller's until usc_query_close.
 * Errors:  USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_query_open(usc_query **out, usc_error *err);

/** Frees it; NULL is allowed. */
USC_API void usc_query_close(usc_query *q);

/**
 * Adds what a folder holds to the views, as rows of this rank: a trace; or results, with
 * the trace that they are of where that is still in its place, and what they tell of its
 * calls themselves where it is not (usc_query_lacks).
 *
 * Errors:  USC_E_NOT_FOUND (neither is there), USC_E_RANGE (more than SQLite takes at a
 *          time), as usc_trace_open and usc_result_open.
 */
USC_API USC_NODISCARD usc_status usc_query_add(usc_query *q, const char *folder,
                                               int64_t rank, usc_error *err);

/** The trace that results are of and that is not there, of the last that were added; NULL
 * where none is missing. Memory: until `q` is closed or added to. */
USC_API const char *usc_query_lacks(const usc_query *q);

typedef struct usc_query_sink {
    void *ctx;
    /* The names of the columns, once, before any row; false: they will not do. */
    bool (*begin)(void *ctx, int n, const char *const *names);
    /* Each row; false: no more of them. */
    bool (*row)(void *ctx, int n, const char *const *names,
                const usc_query_value *values);
    bool (*stop)(void *ctx); /* asked now and then; NULL: nobody wants to stop */
} usc_query_sink;

typedef struct usc_query_end {
    int64_t n_rows;
    bool stopped;    /* by `stop` */
    bool more;       /* `row` wanted no more, and there was more */
    bool no_results; /* verdicts or causes were asked for, and nothing was judged */
} usc_query_end;

/**
 * Runs one SELECT over the views. What writes, attaches, sets or reads anything else is
 * refused before it runs; a column name or a value that is too long is, too.
 *
 * Memory:  names and values are the query's, and stand until `row` returns.
 * Errors:  USC_E_ARG with SQLite's own words (err->where: the byte of `sql`, -1 where it
 *          names none), USC_E_CORRUPT, USC_E_IO, USC_E_NOMEM; *end is what came before.
 */
USC_API USC_NODISCARD usc_status usc_query_run(usc_query *q, const char *sql,
                                               const usc_query_sink *sink,
                                               usc_query_end *end, usc_error *err);

USC_END_DECLS
#endif
