// SPDX-License-Identifier: Apache-2.0
// Dumps of other tools as traces, and traces as dumps that other tools read:
// docs/reference/foreign-dumps.md. Whatever a dump says is checked before it is believed,
// and nothing in it is ever run: files of torch are opened by a worker process of the
// program that hooks->command names, which loads tensors and plain values and nothing
// else.
//
// Threads: safe; hooks are called in the thread that asked.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_FOREIGN_H
#define ULPSCOPE_X_FOREIGN_H

#include <ulpscope/report.h>
#include <ulpscope/verdict.h>
#include <ulpscope/x/run.h>

USC_BEGIN_DECLS

/* What a member of dump.json may have at most, in bytes: it is held in memory. */
#define USC_IMPORT_LARGEST_CALL ((int64_t)64 << 20)

typedef struct usc_import_options {
    const char *dump;   /* a folder, or its JSON file */
    const char *trace;  /* the folder to write; it must not be there, or be empty */
    const char *device; /* on which the dump was taken; NULL: what its kind is taken on */
    const char *backward; /* of ascend-v1, the file of gradients; NULL: the one beside the
                             calls where there is one, "": none */
    const char *rank; /* which process, where the dump has several; NULL: the only one */
    bool
        skip_damaged; /* tensors that cannot be read lose their content, not the import */
} usc_import_options;

/** What was imported. */
typedef struct usc_import_counts {
    const char *format; /* "msprobe", "ascend-v1", "ditorch"; static */
    int64_t steps, calls, tensors;
    int64_t with_content; /* tensors whose content is in the trace */
    int64_t bytes;        /* of content, equal bytes counted once for each tensor */
    int64_t damaged;      /* files that could not be read, and were passed over */
    int64_t modules;      /* entries on modules, of which only the place is kept */
    int64_t others;       /* entries that are no calls */
    char first_damage[USC_ERROR_TEXT];
} usc_import_counts;

/**
 * Imports a dump: writes a trace. The folder appears when it is complete; of an import
 * that fails or is stopped nothing stays.
 *
 * Memory:  holds one call of the dump and one tensor at a time, and some 100 bytes for
 *          each call.
 * Errors:  USC_E_NOT_FOUND (no such dump, or nothing in it), USC_E_EXISTS, USC_E_ARG
 *          (several processes and none named), USC_E_CORRUPT, USC_E_SHAPE, USC_E_DTYPE,
 *          USC_E_RANGE, USC_E_UNSUPPORTED, USC_E_IO, USC_E_NOMEM. The text names the
 *          file, the call and the argument.
 */
USC_API USC_NODISCARD usc_status usc_import(const usc_import_options *options,
                                            const usc_run_hooks *hooks,
                                            usc_import_counts *counts, usc_run_end *end,
                                            usc_error *err);

typedef struct usc_export_options {
    const char *trace, *out; /* folders; `out` must not be there */
    const char *format;      /* "msprobe", "ascend-v1", "ditorch" */
    const char *ops;         /* PATTERN; NULL: all */
    int process; /* ascend-v1, ditorch: files and folders are those of this process */
} usc_export_options;

/** What was exported. */
typedef struct usc_export_counts {
    int64_t calls, tensors, with_content;
    int64_t nameless; /* calls for which the format has no name, or that it cannot hold */
    char first_nameless[128];
} usc_export_counts;

/** The formats of an export, with commas between. Memory: static. */
USC_API const char *usc_export_formats(void);

/**
 * Exports a trace as a dump: the calls that no other call made. The folder appears when
 * it is complete; of an export that fails or is stopped nothing stays.
 *
 * Memory:  holds one call at a time; tensors are mapped.
 * Errors:  those of usc_trace_open and usc_trace_select, USC_E_ARG (no such format),
 *          USC_E_EXISTS, USC_E_NOT_FOUND (no call that the format can name), USC_E_IO.
 */
USC_API USC_NODISCARD usc_status usc_export(const usc_export_options *options,
                                            const usc_run_hooks *hooks,
                                            usc_export_counts *counts, usc_run_end *end,
                                            usc_error *err);

typedef struct usc_precheck_options {
    const char *trace;   /* imported from ascend-v1 */
    const char *results; /* of its check, asked for "ascend-v1" (usc_check_options); NULL:
                            none yet, the tables are empty */
    const char *result_csv, *details_csv; /* the files to write; they change as a whole */
    const usc_allow *allow; /* of these nobody needs to judge the calls they name */
    int n_allow;
} usc_precheck_options;

/** Calls, forward and backward as one. Failed: one of them did; skipped: none did, and
 * one could not be judged. */
typedef struct usc_precheck_counts {
    int64_t total, passed, failed, skipped;
    int64_t open;               /* skipped since nobody looked, and not allowed */
    int64_t accused;            /* by our verdict, of those that did not fail */
    int64_t by[USC_N_VERDICTS]; /* these, by the worse of their verdicts */
    char first_accused[160];    /* the dump's name of one */
} usc_precheck_counts;

/**
 * Writes the two tables of the Ascend precheck: a row for each call in the order of the
 * dump, and one for each output.
 *
 * Memory:  holds what the tables say.
 * Errors:  those of usc_trace_open, usc_result_open and usc_result_walk; USC_E_IO.
 */
USC_API USC_NODISCARD usc_status usc_precheck_tables(const usc_precheck_options *options,
                                                     usc_precheck_counts *counts,
                                                     usc_error *err);

/** One call of a precheck, forward or backward. */
typedef struct usc_precheck_call {
    int64_t sequence;
    const char *name; /* the dump's */
    bool backward;
    usc_verdict verdict;
    const char *word; /* of the first table: "TRUE", "FALSE", "SKIP" */
    const char *sentence;
    double n_nan_inf; /* that the device gave */
} usc_precheck_call;

/**
 * Calls `each` for every call that has a verdict, in the order of the dump; its status
 * ends the walk. The names of tables in `options` are not needed.
 *
 * Memory:  what `each` gets is valid inside the call only.
 * Errors:  those of usc_precheck_tables and of `each`.
 */
USC_API USC_NODISCARD usc_status usc_precheck_walk(
    const usc_precheck_options *options,
    usc_status (*each)(void *ctx, const usc_precheck_call *call, usc_error *err),
    void *ctx, usc_error *err);

USC_END_DECLS
#endif
