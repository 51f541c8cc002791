// SPDX-License-Identifier: Apache-2.0
// The trace on disk: a folder with trace.db (SQLite) and tensors-NNNNN.safetensors.
// Format: docs/reference/trace-format.md. One writer at a time; a closed trace is
// immutable.
//
// Threads: one thread at a time per writer and per reader; one writer at a time per
// trace.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_TRACE_H
#define ULPSCOPE_TRACE_H

#include <ulpscope/alloc.h>
#include <ulpscope/call.h>
#include <ulpscope/stats.h>

USC_BEGIN_DECLS

#define USC_TRACE_VERSION 2

/* name, text in trace.db */
#define USC_PHASE_LIST(X)                                                                \
    X(FORWARD, "forward")                                                                \
    X(BACKWARD, "backward")                                                              \
    X(OPTIMIZER, "optimizer")

typedef enum usc_phase {
#define USC_PHASE_ENUM(id, text) USC_PHASE_##id,
    USC_PHASE_LIST(USC_PHASE_ENUM)
#undef USC_PHASE_ENUM
        USC_N_PHASES
} usc_phase;

/** Text of a phase as in trace.db; "unknown" for other values. Memory: static. */
USC_API const char *usc_phase_text(usc_phase phase);

typedef struct usc_trace_writer usc_trace_writer;

typedef struct usc_trace_options {
    const usc_alloc *alloc;
    int64_t shard_size;   /* bytes of data after which a new shard begins; 0: 1 GiB */
    int64_t commit_bytes; /* commit at the latest after so many blob bytes; 0: 64 MiB */
    int64_t commit_ms;    /* usc_trace_tick commits after so long; 0: 200 */
} usc_trace_options;

/**
 * Creates the trace folder `path` (parents must exist) and opens it for writing.
 *
 * options: NULL: their zero value.
 * Memory:  *out is the caller's until usc_trace_finish.
 * Threads: one thread at a time per writer.
 * Errors:  USC_E_EXISTS where the folder holds anything, USC_E_NOT_FOUND (no parent),
 *          USC_E_IO, USC_E_NOMEM; the text names the file.
 */
USC_API USC_NODISCARD usc_status usc_trace_create(const char *path,
                                                  const usc_trace_options *options,
                                                  usc_trace_writer **out, usc_error *err);

/** Sets a key of table meta, replacing its value. Errors: USC_E_IO. */
USC_API USC_NODISCARD usc_status usc_trace_set_meta(usc_trace_writer *w, const char *key,
                                                    const char *value, usc_error *err);

/* Rows. All ids are the caller's, unique per table and counted from 1; 0 in a reference
 * means NULL. Text is UTF-8 and copied. */
typedef struct usc_module_row {
    int64_t id;
    const char *path; /* "layers.3.attn"; "" for the root */
    const char *class_name;
} usc_module_row;

typedef struct usc_stack_row {
    int64_t id;
    const char *frames; /* JSON: [["file", line, "function"], ...], innermost first */
} usc_stack_row;

typedef struct usc_op_row {
    int64_t id;
    const char *name;   /* "aten::add.Tensor" */
    const char *schema; /* as torch prints it */
} usc_op_row;

typedef struct usc_storage_row {
    int64_t id;
    const char *device; /* "cpu", "cuda:0" */
    int64_t bytes;
} usc_storage_row;

typedef struct usc_version_row {
    int64_t id;
    int64_t storage;
    int64_t generation; /* from 0 */
    int64_t blob;       /* the whole storage; 0: not kept, or only the parts that
                           tensors name */
    int64_t call;       /* the call that wrote it; 0: came from outside */
} usc_version_row;

typedef struct usc_tensor_row {
    int64_t id;
    int64_t version;
    const char *dtype_name; /* torch's name: also dtypes outside the table */
    int ndim;
    const int64_t *sizes;
    const int64_t *strides;
    int64_t offset; /* elements from the start of the storage */
    bool requires_grad;
    const usc_stats *stats; /* NULL: none */
    const char *form; /* what strides do not tell ("conj", "sparse_coo"); NULL: nothing */
    int64_t blob;     /* the part of the storage that it lies in, where the version has no
                         blob; 0: content not kept */
    int64_t first;    /* byte of the storage at which that part begins */
} usc_tensor_row;

typedef struct usc_call_row {
    int64_t sequence; /* from 1, in the order in which calls began */
    int64_t step;
    usc_phase phase;
    int64_t op, module, stack, parent;
    int64_t thread; /* a small number per thread of this process */
    const char
        *args; /* JSON {"args": [...], "kwargs": {...}}; docs/reference/trace-format.md */
    const char *state;  /* JSON {"autocast": ..., "rng": ...}; NULL: nothing to say */
    const char *status; /* "ok", "raised", "unfinished" */
    bool composite;     /* recorded as the parent of the calls below it */
} usc_call_row;

typedef struct usc_arg_row {
    int64_t call;
    usc_role role;
    const char *path; /* "args[0]", "args[0][1]", "kwargs.out", "out[0]" */
    int64_t tensor;
} usc_arg_row;

typedef struct usc_step_row {
    int64_t step;
    int64_t first_call, last_call;
    bool complete;
} usc_step_row;

/** Each adds one row. Errors: USC_E_IO (disk full and the like, file named), USC_E_ARG
 * for an id used twice. After an error the writer refuses further rows with the same
 * error; what was committed stays readable. */
USC_API USC_NODISCARD usc_status usc_trace_put_module(usc_trace_writer *w,
                                                      const usc_module_row *row,
                                                      usc_error *err);
USC_API USC_NODISCARD usc_status usc_trace_put_stack(usc_trace_writer *w,
                                                     const usc_stack_row *row,
                                                     usc_error *err);
USC_API USC_NODISCARD usc_status usc_trace_put_op(usc_trace_writer *w,
                                                  const usc_op_row *row, usc_error *err);
USC_API USC_NODISCARD usc_status usc_trace_put_storage(usc_trace_writer *w,
                                                       const usc_storage_row *row,
                                                       usc_error *err);
USC_API USC_NODISCARD usc_status usc_trace_put_version(usc_trace_writer *w,
                                                       const usc_version_row *row,
                                                       usc_error *err);
USC_API USC_NODISCARD usc_status usc_trace_put_tensor(usc_trace_writer *w,
                                                      const usc_tensor_row *row,
                                                      usc_error *err);
USC_API USC_NODISCARD usc_status usc_trace_put_call(usc_trace_writer *w,
                                                    const usc_call_row *row,
                                                    usc_error *err);
USC_API USC_NODISCARD usc_status usc_trace_put_arg(usc_trace_writer *w,
                                                   const usc_arg_row *row,
                                                   usc_error *err);
USC_API USC_NODISCARD usc_status usc_trace_put_step(usc_trace_writer *w,
                                                    const usc_step_row *row,
                                                    usc_error *err);

/** Updates the status of a call that was put as "unfinished": "ok" or "raised". Its OUT
 * and MUTATED args may be put before or after. Errors: USC_E_IO; a sequence without a row
 * is no error. */
USC_API USC_NODISCARD usc_status usc_trace_end_call(usc_trace_writer *w, int64_t sequence,
                                                    const char *status, usc_error *err);

/** A remark about a call (0: about the run): kind is one word ("unobserved-write",
 * "schema-lie"), text one sentence. Errors: USC_E_IO. */
USC_API USC_NODISCARD usc_status usc_trace_put_note(usc_trace_writer *w, int64_t call,
                                                    const char *kind, const char *text,
                                                    usc_error *err);

/**
 * Stores `size` bytes once per content (xxh3-128): *blob is the id of the equal bytes
 * already there, else of the new ones.
 *
 * Memory:  copies nothing that outlives the call.
 * Errors:  USC_E_IO, USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_trace_put_blob(usc_trace_writer *w, const void *data,
                                                    int64_t size, int64_t *blob,
                                                    usc_error *err);

/** Commits where the promise of options (bytes, milliseconds) is due; cheap otherwise.
 * Call it between calls: the rows between two commits are kept or lost as one.
 * Errors: as usc_trace_commit. */
USC_API USC_NODISCARD usc_status usc_trace_tick(usc_trace_writer *w, usc_error *err);

/** Commits now. Data reach the shard before the rows that name them.
 * Errors: USC_E_IO, USC_E_NOMEM (file named). */
USC_API USC_NODISCARD usc_status usc_trace_commit(usc_trace_writer *w, usc_error *err);

/**
 * Seals the shards, marks the trace complete where `complete`, and frees the writer (also
 * on failure); NULL is allowed. After a failure it keeps what was committed, not
 * complete. The trace is a plain file set afterwards (no journal).
 *
 * Errors:  USC_E_IO, USC_E_NOMEM (file named), and what failed before.
 */
USC_API USC_NODISCARD usc_status usc_trace_finish(usc_trace_writer *w, bool complete,
                                                  usc_error *err);

/* ---- reading ---- */

typedef struct usc_trace usc_trace;

/** Whether a file of that name is part of a trace: its database and what SQLite keeps
 * beside it, its shards, finished or not. */
USC_API bool usc_trace_is_file(const char *name);

/** Whether a file is the database of a trace, by its first bytes: it may be written or
 * locked at the same time. */
USC_API bool usc_trace_is_database(const char *path);

/**
 * Opens a trace for reading. One that a killed writer left is sealed first (needs write
 * access; without it the open shard is read as it stands). Where the machine died before
 * bytes that rows name were on disk, the trace is cut at the first of them: calls from
 * there on are gone, all others stay, and meta `lost` says so.
 *
 * Memory:  *out is the caller's until usc_trace_close, and so is all that it hands out.
 *          `alloc` NULL: the C library's.
 * Threads: one thread at a time per handle; several handles and processes may read.
 * Errors:  USC_E_NOT_FOUND (no such folder, no trace.db in it), USC_E_CORRUPT (names file
 *          and what is wrong: also a missing or truncated shard of a trace that its
 *          writer had closed), USC_E_VERSION, USC_E_BUSY (still being written), USC_E_IO.
 */
USC_API USC_NODISCARD usc_status usc_trace_open(const char *path, const usc_alloc *alloc,
                                                usc_trace **out, usc_error *err);

/** Frees a reader and everything that it handed out; NULL is allowed. */
USC_API void usc_trace_close(usc_trace *t);

/** Value of a meta key, NULL where there is none. Memory: until `t` is closed. */
USC_API const char *usc_trace_meta(usc_trace *t, const char *key);

/**
 * Reads one call with its arguments.
 *
 * Memory:  *out points into `t` and is valid until the next call with `t`.
 * Errors:  USC_E_NOT_FOUND, USC_E_CORRUPT, USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_trace_read_call(usc_trace *t, int64_t sequence,
                                                     usc_call *out, usc_error *err);

/**
 * Adds every call of the trace to `calls`, ascending.
 *
 * Memory:  `calls` has copies of all that it needs.
 * Errors:  USC_E_CORRUPT, USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_trace_read_calls(usc_trace *t, usc_calls *calls,
                                                      usc_error *err);

typedef struct usc_trace_filter {
    const char *ops;    /* PATTERN; NULL: all */
    const char *module; /* glob over module paths; NULL: all */
    const char *phase;  /* NULL: all */
    int64_t step;       /* -1: all */
    bool top_only;      /* only calls without parent */
} usc_trace_filter;

/**
 * Sequence numbers of the calls that pass `filter` (NULL: all), ascending.
 *
 * Memory:  *out is owned by `t` and valid until the next usc_trace_select with `t`.
 * Errors:  USC_E_ARG (bad pattern), USC_E_CORRUPT, USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_trace_select(usc_trace *t,
                                                  const usc_trace_filter *filter,
                                                  const int64_t **out, int64_t *n,
                                                  usc_error *err);

/**
 * Bytes of a blob, mapped read-only.
 *
 * Memory:  valid until usc_trace_close.
 * Errors:  USC_E_NOT_FOUND, USC_E_CORRUPT (shard shorter than promised, or other bytes
 * than the hash says: file and offset), USC_E_IO.
 */
USC_API USC_NODISCARD usc_status usc_trace_blob(usc_trace *t, int64_t blob,
                                                const void **data, int64_t *size,
                                                usc_error *err);

/**
 * Copies `size` bytes of a blob from byte `first` on to `out`; nothing of it stays
 * mapped. What is read in part is checked as a whole the first time.
 *
 * Errors:  USC_E_ARG (no such bytes in it), USC_E_NOMEM, and those of usc_trace_blob.
 */
USC_API USC_NODISCARD usc_status usc_trace_read_blob(usc_trace *t, int64_t blob,
                                                     int64_t first, int64_t size,
                                                     void *out, usc_error *err);

/** The hash that a blob of these bytes has, 32 hexadecimal digits and a NUL. `data` may
 * be NULL where `size` is 0. Memory: allocates nothing. Threads: any. */
USC_API void usc_trace_hash(const void *data, size_t size, char out[33]);

/**
 * Writes `stats` as one JSON object whose members have the names of the fields; NaN is
 * null, the histogram is sparse: {"pos":{"-3":12},"neg":{}}, keyed by binade.
 *
 * Returns the length of the whole text without its NUL. As with snprintf, what does not
 * fit `size` bytes is cut, and `buffer` may be NULL where `size` is 0.
 *
 * Memory:  allocates nothing.
 * Threads: safe while nobody writes `*stats`.
 */
USC_API size_t usc_stats_to_json(const usc_stats *stats, char *buffer, size_t size);

/**
 * Reads what usc_stats_to_json wrote, now or in an earlier version: members that are not
 * there are zero, `min`, `max`, `mean` and `l2` NaN, the second extremes the extremes;
 * members and structures that are not known are passed over. n_histogram is counted.
 *
 * Memory:  what the text needs while it is read.
 * Threads: safe.
 * Errors:  USC_E_CORRUPT (not JSON, or a member of a kind that it cannot have: the text
 *          names it), USC_E_NOMEM; *out is zero then.
 */
USC_API USC_NODISCARD usc_status usc_stats_from_json(const char *text, usc_stats *out,
                                                     usc_error *err);

USC_END_DECLS
#endif
