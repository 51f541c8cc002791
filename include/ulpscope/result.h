// SPDX-License-Identifier: Apache-2.0
// The result database OUT/result.db: what one check found. Self-contained: a report needs
// no trace. Format: docs/reference/trace-format.md, "Results".
//
// Threads: one thread at a time per handle; several processes may read one database.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_RESULT_H
#define ULPSCOPE_RESULT_H

#include <ulpscope/alloc.h>
#include <ulpscope/status.h>

USC_BEGIN_DECLS

#define USC_RESULT_VERSION 1

typedef struct usc_result usc_result;

/** What makes two runs the same run: one that was cut short may be resumed. */
typedef struct usc_run {
    const char *trace;       /* path as given; tells the command of a finished run */
    const char *trace_id;    /* meta "id" of the trace */
    const char *device;      /* "sim:0" */
    const char *standard;    /* "ulpscope" */
    const char *faults;      /* text of the planted faults, "" for none */
    const char *options;     /* JSON of the options that choose calls (ops, distinct) */
    const char *environment; /* JSON shown in the report; not compared */
    bool goes_on;            /* a finished one with the same trace_id goes on as well */
} usc_run;

/**
 * Opens or creates OUT/result.db, and the folder OUT with those above it.
 *
 * A run that was cut short (its "state" is not "done") goes on where it stopped; a
 * finished one, of the same trace or of a trace at the same path, begins anew, and so
 * does one that holds no verdict. What is replaced stays in the file until the first
 * usc_result_set or usc_result_put, which takes it out in one transaction. force:
 * whatever OUT holds is replaced, also another run or a damaged file.
 *
 * Memory:  *out is the caller's until usc_result_close; texts of `run` are copied.
 * Errors:  USC_E_EXISTS where OUT holds another run (the text says which field differs),
 *          USC_E_VERSION, USC_E_CORRUPT, USC_E_IO, USC_E_BUSY, USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_result_create(const char *out_folder,
                                                   const usc_run *run, bool force,
                                                   usc_result **out, usc_error *err);

/**
 * Whether OUT may be replaced by a run whose trace is named `kind` and more: it is not
 * there, it holds no results, or such a run's, of one process or of ranks.
 *
 * Errors:  USC_E_EXISTS where it holds others, or is a file; as usc_result_open.
 */
USC_API USC_NODISCARD usc_status usc_result_claim(const char *out_folder,
                                                  const char *kind, usc_error *err);

/**
 * Opens an existing OUT for reading (report). Where another process writes it, what is
 * read is a copy of what was committed so far, see usc_result_live.
 *
 * Memory:  *out is the caller's until usc_result_close.
 * Errors:  as above, USC_E_NOT_FOUND; USC_E_BUSY where no whole copy could be had.
 */
USC_API USC_NODISCARD usc_status usc_result_open(const char *out_folder, usc_result **out,
                                                 usc_error *err);

/** Whether another process was writing OUT when it was opened for reading. */
USC_API bool usc_result_live(const usc_result *r);

/** Frees; NULL is allowed. Everything put before was committed. */
USC_API void usc_result_close(usc_result *r);

/** Closes; where usc_result_create made the file and nothing was put, it goes again, and
 * so do the folders made for it. NULL is allowed. */
USC_API void usc_result_discard(usc_result *r);

typedef struct usc_metric {
    int output;       /* index of the output, -1: the call */
    const char *name; /* "max", "mid", "rel", "fan_in", ...: docs/reference/metrics.md */
    double value;
    const char
        *text; /* for what is no number (JSON: "score_histogram", "sizes"); or NULL */
} usc_metric;

/* The metric of a call whose cause is still sought: until it comes the row does not
 * stand, and where the run is cut short the call is done again. */
#define USC_METRIC_SEARCHING "searching"

typedef struct usc_result_example {
    int output;
    int rank;          /* 0: the worst */
    const char *index; /* JSON list, "[3, 17]" */
    double device, reference, yardstick, score;
} usc_result_example;

typedef struct usc_result_row {
    int64_t call; /* sequence in the trace */
    int64_t step;
    const char *phase;
    const char *op; /* the replayed operator */
    const char
        *culprit; /* the operator below it that is at fault, "" if op itself or none */
    const char *module;
    const char *module_class;
    const char *verdict; /* usc_verdict_text */
    double bits, yardstick_bits;
    bool bound;           /* bits is a lower bound */
    const char *cause;    /* short: "inputs rounded to TF32"; "" if none is accused */
    const char *sentence; /* one English sentence */
    const char *notes;    /* e.g. "flushes subnormals"; "" */
    const char *output;   /* path of the output that decided, "out[0]" */
    const char *args;     /* one-line summary of the arguments (shapes and dtypes) */
    const char *stack;    /* JSON frames; "" for calls that pass */
    int64_t n_elements;
    int64_t stands_for; /* calls that this one stands for (--distinct); at least 1 */
    /* nanoseconds */
    int64_t t_device, t_reference, t_perturbed, t_judge, t_total;
    int n_metrics;
    const usc_metric *metrics;
    int n_examples;
    const usc_result_example *examples;
} usc_result_row;

/** Writes one verdict with its metrics and examples in one transaction; replaces an
 * earlier one of the same call. NaN is kept as SQL's NULL and read back as NaN.
 * Errors: USC_E_ARG (no such verdict), USC_E_IO (file named). */
USC_API USC_NODISCARD usc_status usc_result_put(usc_result *r, const usc_result_row *row,
                                                usc_error *err);

/** Takes every verdict out again: for a run that begins anew instead of going on.
 * Errors: USC_E_IO (file named). */
USC_API USC_NODISCARD usc_status usc_result_clear(usc_result *r, usc_error *err);

/** Sets a key of table run ("state": "running" | "done", "n_selected", "seconds").
 * Errors: USC_E_IO (file named). */
USC_API USC_NODISCARD usc_status usc_result_set(usc_result *r, const char *key,
                                                const char *value, usc_error *err);

/** Value of a key of table run, NULL if none; while what is there is to be replaced, the
 * value that comes. Memory: until the next usc_result_find or usc_result_get with `r`;
 * may be called inside usc_result_walk. Errors: USC_E_NOMEM, USC_E_CORRUPT, USC_E_IO
 * (file named); *out is NULL then. */
USC_API USC_NODISCARD usc_status usc_result_find(usc_result *r, const char *key,
                                                 const char **out, usc_error *err);

/** The same, NULL where it could not be read. Memory: as usc_result_find. */
USC_API const char *usc_result_get(usc_result *r, const char *key);

/** Says of a row with the metric USC_METRIC_SEARCHING that its cause will not come: it
 * stands as it is. Errors: USC_E_IO (file named). */
USC_API USC_NODISCARD usc_status usc_result_settle(usc_result *r, int64_t call,
                                                   usc_error *err);

/** Calls whose verdict stands already, ascending: not those with USC_METRIC_SEARCHING.
 * Memory: *out is owned by `r`, until its next call. Errors: USC_E_CORRUPT, USC_E_NOMEM,
 * USC_E_IO (file named). */
USC_API USC_NODISCARD usc_status usc_result_done(usc_result *r, const int64_t **out,
                                                 int64_t *n, usc_error *err);

/**
 * Calls `each` for every row, worst first: precedence of the verdict, then effective bits
 * ascending, then sequence. The row and what it points to are valid inside the call only;
 * metrics and examples are filled. `each` returning not USC_OK ends the walk with that.
 * Errors: that; USC_E_CORRUPT, USC_E_NOMEM, USC_E_IO (file named).
 */
USC_API USC_NODISCARD usc_status
usc_result_walk(usc_result *r,
                usc_status (*each)(void *ctx, const usc_result_row *row, usc_error *err),
                void *ctx, usc_error *err);

USC_END_DECLS
#endif
