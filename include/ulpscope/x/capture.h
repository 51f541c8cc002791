// SPDX-License-Identifier: Apache-2.0
// A capture session: descriptors of calls in, a trace on disk out. The caller (glue or a
// C program) says before and after each call which tensors it touches; the session takes
// every storage once per generation, hashes, computes statistics and writes, the I/O on a
// thread of its own. Neighbours: trace.h (where it ends up), stats.h.
//
// Threads: where a function does not say otherwise, any thread may call it, also while
// others
//          do; none after usc_capture_close began.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_CAPTURE_H
#define ULPSCOPE_X_CAPTURE_H

#include <ulpscope/alloc.h>
#include <ulpscope/tensor.h>
#include <ulpscope/trace.h>

USC_BEGIN_DECLS

typedef struct usc_capture usc_capture;

/* What is durable: the writer commits when the oldest thing handed over is 100 ms old or
 * half of trace.commit_bytes has been read. While more than trace.commit_bytes are not
 * committed and the oldest of them is over 100 ms old, callers wait. (100 ms: half of
 * trace.commit_ms.) A call is in the trace whole or not at all: its row and inputs come
 * in one commit, its results and status in one.
 *
 * A forked child must not use the session of its parent: it has no writer thread. */

/** What the session needs to know about storages that only the host program can tell. A
 * storage is known by an address (torch: StorageImpl *), which may be reused after its
 * end; a held address is not reused before release. All may be called from any thread
 * that calls into the session, and `release` also from usc_capture_close. All but
 * `release` and `read` run under the session's lock, and `read` does where others keep
 * writing a storage that a call uses: they must not call into the session, nor take a
 * lock (Python's, say) that a thread may hold while it calls into it. `read` may run in
 * several threads at once. NULL hold: storages never die. */
typedef struct usc_capture_hooks {
    void *ctx;
    void *(*hold)(void *ctx, void *storage); /* weak: must not keep the bytes alive */
    bool (*alive)(void *ctx, void *held);
    void (*release)(void *ctx, void *held);
    /* Copies the bytes [offset, offset + size) of a storage without
     * usc_capture_tensor.base to `destination`; NULL: such storages cannot be read. After
     * an error that tensor's content is left out, with a note "unreadable" on the call.
     */
    usc_status (*read)(void *ctx, void *storage, int64_t offset, void *destination,
                       int64_t size, usc_error *err);
} usc_capture_hooks;

/** Who gets the calls of a session that writes no trace: each as it ends, so that one
 * comes behind those that made its inputs, from the writer thread. Texts and arguments
 * are valid until `call` returns; blobs, schema, class of the module and hashes are not
 * told, of statistics the range alone. The session holds what lives, so that its memory
 * does not grow with the run. */
typedef struct usc_capture_watch {
    void *ctx;
    usc_status (*call)(void *ctx, const usc_call *call, usc_error *err);
    void (*gone)(void *ctx, int64_t storage); /* it is no more, nor will be */
    bool (*found)(void *ctx); /* asked behind each call where the last ones are kept: true
                                 has them written, once; NULL: never */
} usc_capture_watch;

typedef struct usc_capture_options {
    const usc_alloc *alloc;
    const usc_capture_watch *watch; /* in place of a trace; implies stats_only
                                       but for keep_calls. Copied;
                                       NULL: a trace */
    bool stats_only;     /* --data stats: no bytes kept, statistics per tensor instead */
    int64_t ring_size;   /* bytes between the calling threads and the writer; 0: 1 GiB
                            (stats_only: 64 MiB). Address space: pages come on demand,
                            huge ones where the system has them, the first 256 MiB ahead of
                            use. A storage larger than half of it is written straight from
                            where it lies while the caller waits. */
    int64_t limit_bytes; /* of tensor data written; 0: none. What would go beyond it ends
                            the recording: the trace stays valid, with meta "stopped" */
    bool distinct;       /* of each step one call of a signature: operator, arguments that
                            are no tensors, forms of those that are */
    int64_t keep_calls;  /* with `watch`: the last so many stay in memory with their data,
                            to be written when they are asked for; 0: none */
    int64_t keep_bytes;  /* of data that stays; beyond it what was not used for longest
                            goes, and its calls have statistics alone */
    const char *keep_path; /* where they are written: a folder that holds nothing, else
                              keep_path-2, keep_path-3, ...; folders above it are made.
                              Copied */
    int64_t most_bytes;    /* of tensor data taken; 0: all. A call that would take more is
                              left out, the session goes on */
    int64_t pass_first;    /* of the first step so many calls are left out before one is
                              taken: their turn was before */
    usc_trace_options trace;
} usc_capture_options;

/** Of a call that no schema describes: what tells whether it wrote an argument. One that
 * it did not write gets no row. */
typedef enum usc_maybe {
    USC_MAYBE_NOT,     /* it did */
    USC_MAYBE_CALLS,   /* the calls inside it, which are recorded too */
    USC_MAYBE_CONTENT, /* its bytes */
    USC_MAYBE_STRAY,   /* its bytes, where no other call wrote them meanwhile: the schema
                          says that this one only reads */
} usc_maybe;

/** A tensor as a call sees it. */
typedef struct usc_capture_tensor {
    usc_tensor view;        /* data, dtype, sizes, strides; data NULL where unreadable */
    const char *dtype_name; /* torch's name */
    void *storage;          /* identity; NULL: no storage (meta, sparse): row only, over a
                               storage and version of its own without content */
    const void *base;     /* first byte of the storage in host memory; NULL: hooks.read */
    int64_t storage_size; /* bytes */
    int64_t offset;       /* elements */
    const char *device;   /* "cpu"; static text */
    const char *form;     /* what strides do not tell; static text, NULL: nothing */
    bool requires_grad;
    bool written; /* the schema says that the call writes this argument */
    bool unread;  /* the call only makes a view of it: behind hooks.read it is not fetched
                   */
    int64_t
        look; /* of memory behind hooks.read, where a session is watched: > 0: what its
                 elements are comes later, by usc_capture_looked, under this number,
                 which no other has; -1: it does not. Neither is read. 0: it is */
    usc_role role;
    int i_arg;           /* argument (or result) number, in schema order */
    int i_item;          /* index inside a list argument, -1 if not in a list */
    const char *keyword; /* keyword-only argument: its name; else NULL */
    const char *part;    /* "values": a part of the tensor at this place; static text */
    const char *path;    /* its place where the numbers cannot say it: "args[0][1][2]",
                            "out[0].loss"; NULL: they do */
    usc_maybe maybe;     /* MUTATED: whether it was written is for the session to find */
} usc_capture_tensor;

typedef struct usc_capture_call {
    int64_t op; /* usc_capture_op */
    usc_phase phase;
    int64_t module, stack; /* usc_capture_module, usc_capture_stack; 0: none */
    int64_t parent;        /* sequence of the composite call around it; 0: none */
    int64_t thread;
    const char *args;  /* JSON as docs/reference/trace-format.md says */
    const char *state; /* JSON or NULL */
    bool composite;
    const usc_capture_tensor *tensors; /* all tensor arguments, role USC_ROLE_IN */
    int n_tensors;
} usc_capture_call;

/**
 * Creates the trace folder (options->watch: none, `path` is NULL) and starts the writer
 * thread.
 *
 * Memory:  the session is the caller's until usc_capture_close. hooks and options are
 *          copied; what hooks->ctx points to, and the allocator, must outlive it.
 * Errors:  as usc_trace_create; USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_capture_open(const char *path,
                                                  const usc_capture_hooks *hooks,
                                                  const usc_capture_options *options,
                                                  usc_capture **out, usc_error *err);

/** Ids for names; the same name gives the same id. `class_name` NULL: not known. 0 on
 * failure (the session has failed; see usc_capture_status). Threads: safe. */
USC_API int64_t usc_capture_op(usc_capture *c, const char *name, const char *schema);
USC_API int64_t usc_capture_module(usc_capture *c, const char *path,
                                   const char *class_name);

/** Id of a stack by its 64-bit key; 0 where it is new: then call usc_capture_stack_add
 * with its frames (JSON), which returns the id. Threads: safe. */
USC_API int64_t usc_capture_stack(usc_capture *c, uint64_t key);
USC_API int64_t usc_capture_stack_add(usc_capture *c, uint64_t key, const char *frames);

/** Sets a meta key of the trace. Threads: safe. */
USC_API void usc_capture_meta(usc_capture *c, const char *key, const char *value);

/** Steps: calls between begin and end belong to `step`; begin ends an open one. A step
 * cut short by usc_capture_close or a kill has a row that is not complete. Threads: safe.
 */
USC_API void usc_capture_step_begin(usc_capture *c, int64_t step);
USC_API void usc_capture_step_end(usc_capture *c);

/**
 * Takes a call's inputs, before it runs; returns its sequence number (from 1), 0 where
 * the session has failed or no step is open (the call then is not recorded, the run goes
 * on). Blocks while the ring is full.
 *
 * Memory:  nothing of `call` is kept; storages are copied once per generation.
 * Content: at every use the bytes that the view can reach are compared by hash, in pieces
 *          of 64 KiB, with what was taken (stats_only: 16 samples of the storage, the
 *          whole of it up to 2 KiB). Of storages behind hooks.read only what views reach
 *          is read and kept, in pieces of 4 KiB, and compared: all of it up to 64 KiB,
 *          else four pieces. Where they changed and no call has written them
 *          there is a new generation and a note "unobserved write between calls a and b
 *          to storage s". A storage whose size changed is a new storage.
 * Threads: safe; calls of several threads may be open at once.
 */
USC_API int64_t usc_capture_begin(usc_capture *c, const usc_capture_call *call);

/**
 * Takes results (role OUT) and written arguments (role MUTATED) after the call. `ok`
 * false: the call raised; then n may be 0. A `sequence` of 0 is ignored. May come late
 * and from another thread (asynchronous collectives). Written arguments get a new
 * generation, unless calls that began inside this one wrote what is there now. A result
 * that was there before: an input's view keeps its version unlooked at; anything else is
 * compared, and where it differs this call wrote it. Paths of arguments must differ.
 */
USC_API void usc_capture_end(usc_capture *c, int64_t sequence,
                             const usc_capture_tensor *tensors, int n, bool ok);

/** What became known of a tensor that was announced under a number. */
typedef struct usc_looked {
    int64_t look;
    usc_range range; /* n < 0: it will never be known. min, max: of all elements, both NaN
                        where any is; counts may be USC_COUNT_SOME */
} usc_looked;

/**
 * Ranges of tensors of calls, in any order, also before the call is told. A call goes to
 * usc_capture_watch.call when all of its own are there, and those that ended behind it
 * wait for it: each number must come, or usc_capture_close hands over what is left
 * without. Where min or max are others than at the last look at the same elements, and no
 * call wrote them, the argument has a version of its own, from 2^56 on; where they are
 * the same, it has the counts of then.
 *
 * Memory:  nothing of `rows` is kept.
 * Threads: safe.
 */
USC_API void usc_capture_looked(usc_capture *c, const usc_looked *rows, int64_t n);

/** Further results (role OUT) of a call that has ended, or will. Threads: safe. */
USC_API void usc_capture_more(usc_capture *c, int64_t sequence,
                              const usc_capture_tensor *tensors, int n);

/** A remark for table note. Threads: safe. */
USC_API void usc_capture_note(usc_capture *c, int64_t sequence, const char *kind,
                              const char *text);

/** Has the last calls written (options.keep_calls), unless they were; usc_capture_flush
 * waits for it. Threads: safe. */
USC_API void usc_capture_keep(usc_capture *c);

/**
 * What came of writing the last calls: *path the folder, NULL where it did not come to
 * that. A session that could not write them goes on.
 *
 * Memory:  *path is the session's, until it is closed.
 * Threads: safe.
 * Errors:  those of usc_trace_create and usc_trace_put_*; nothing is left of the trace.
 */
USC_API USC_NODISCARD usc_status usc_capture_kept(usc_capture *c, const char **path,
                                                  usc_error *err);

typedef struct usc_capture_counts {
    int64_t n_calls, n_blobs, n_unobserved;
    int64_t n_tensors;     /* arguments and results, repeats counted */
    int64_t bytes_seen;    /* storage bytes that calls touched, repeats counted */
    int64_t bytes_copied;  /* once per generation */
    int64_t bytes_written; /* once per content */
    int64_t bytes_read;    /* through hooks.read */
    int64_t ring_peak;     /* bytes handed over and not yet read by the writer */
    int64_t wait_ns;       /* time that callers waited for the ring */
    int64_t n_repeated;    /* calls left out for `distinct` */
    int64_t n_left;        /* calls left out for `most_bytes` and `pass_first`, composite
                              ones not counted */
    int64_t first_refused; /* which call of its step, from 1, of those that were left out
                              for `most_bytes` alone came first; 0: none */
    int64_t bytes_held;    /* data of the last calls, where they are kept */
    bool stopped;          /* limit_bytes was reached: calls are not recorded any more */
} usc_capture_counts;

/** Counters so far. Threads: safe. */
USC_API void usc_capture_count(usc_capture *c, usc_capture_counts *out);

/**
 * First error of the session, USC_OK if none.
 *
 * Errors:  USC_E_IO (disk full), USC_E_NOMEM, and others of usc_trace_put_*.
 */
USC_API usc_status usc_capture_status(usc_capture *c, usc_error *err);

/**
 * Waits until everything handed over is on disk and committed.
 *
 * Errors:  the session's first error.
 */
USC_API USC_NODISCARD usc_status usc_capture_flush(usc_capture *c, usc_error *err);

/**
 * Drains, finishes the trace (complete unless the session failed or `complete` is false),
 * joins the writer and frees the session; NULL is allowed.
 *
 * Errors: the session's first error; the session is freed all the same.
 */
USC_API USC_NODISCARD usc_status usc_capture_close(usc_capture *c, bool complete,
                                                   usc_error *err);

USC_END_DECLS
#endif
