// SPDX-License-Identifier: Apache-2.0
// The allocator of the simulated accelerator: blocks are cached for the stream that they
// were made on, handed out again there, and watched. What every user needs of memory is in
// sim.h: usc_sim_malloc(), usc_sim_free(), usc_sim_open(), usc_sim_close().
//
// Threads: every function is safe to call from any thread.
#ifndef ULPSCOPE_SIM_MEMORY_H
#define ULPSCOPE_SIM_MEMORY_H

#include <ulpscope_sim/stream.h>

USC_BEGIN_DECLS

/* How closely memory is watched. Blocks that there are keep what they were made with. */
typedef enum usc_sim_guard {
    USC_SIM_GUARD_STRICT, /* a mapping for each block, which ends at a closed page; bytes
                           * between its end and that page, and as many before it, are
                           * looked at when a kernel has written */
    USC_SIM_GUARD_PAGES,  /* blocks up to 1 MiB share mappings and pages, and what is open
                           * is open for whole pages */
    USC_SIM_GUARD_OPEN,   /* the same, and nothing is closed: for speed */
} usc_sim_guard;

/** STRICT at the start. */
USC_API void usc_sim_set_guard(usc_sim_guard guard);
USC_API usc_sim_guard usc_sim_get_guard(void);

/** On: every byte of a block is 0xff, a NaN of every float, when it is opened first, in
 * place of what was there before. Off at the start. */
USC_API void usc_sim_set_poison(bool on);

/**
 * usc_sim_malloc(), on a stream: a block that is freed may be handed out again on its
 * stream at once, since what used it there comes first in the queue, and nowhere else.
 *
 * Memory:  give back with usc_sim_free(); size 0 gives NULL.
 * Errors:  as usc_sim_malloc(), and USC_E_ARG for no such stream. USC_E_NOMEM comes after
 *          what is cached was given back, and says what is allocated and what is cached.
 */
USC_API USC_NODISCARD usc_status usc_sim_malloc_on(usc_sim_stream stream, size_t size,
                                                   void **out, usc_error *err);

/**
 * Tells that `stream` uses the block at `address`: once freed, it is handed out again only
 * when all has ended that was submitted there until then.
 *
 * Errors:  USC_E_ARG where `address` lies in no live block or there is no such stream,
 *          USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_sim_record_stream(const void *address,
                                                       usc_sim_stream stream,
                                                       usc_error *err);

/** How many bytes were asked for of the live block at `address`; 0: there is none. */
USC_API size_t usc_sim_size_of(const void *address);

/** What a device has, and what of it is not reserved; zero for no such device. */
USC_API void usc_sim_memory_info(int device, size_t *n_free, size_t *total);

/**
 * Limits what may be reserved of a device's memory, cached blocks included.
 *
 * Errors:  USC_E_ARG for no such device, USC_E_RANGE for a fraction not in [0, 1].
 */
USC_API USC_NODISCARD usc_status usc_sim_set_memory_fraction(int device, double fraction,
                                                             usc_error *err);

/** Sets how much memory each device has; 0: as much as the machine, as at the start. */
USC_API void usc_sim_set_memory_size(size_t size);

/* ---- who did it ------------------------------------------------------------------ */

#define USC_SIM_LABEL_TEXT 192 /* longer ones are cut */

/** What runs on this thread from now on, e.g. "aten::mm, launched at train.py:12": blocks
 * that it allocates or frees and memory that it must not touch are told with it. NULL: the
 * host. Memory: copied, and kept once for each different text. */
USC_API void usc_sim_set_label(const char *text);

/** The label of this thread; "" is the host. Memory: static. */
USC_API const char *usc_sim_get_label(void);

/** An argument of a kernel, as a violation tells of it. */
typedef struct usc_sim_argument {
    const char *name, *dtype;
    const void *data; /* its first element, or NULL */
    size_t item_size;
    int ndim;
    const int64_t *shape, *strides; /* strides in elements */
} usc_sim_argument;

/** A kernel that runs: what only a violation of memory asks of it. Each function may be
 * called on any thread of the process while the kernel runs, in a signal handler. */
typedef struct usc_sim_launch {
    int device; /* -1: none */
    /* Fills in the `i`-th argument; false beyond the last. */
    bool (*argument)(const void *ctx, size_t i, usc_sim_argument *out);
    /* Writes where it was launched, "train.py:12", or nothing. */
    void (*place)(const void *ctx, char *out, size_t size);
    const void *ctx;
} usc_sim_launch;

/** Makes `launch` what runs on this thread from now on; NULL: nothing. Blocks that this
 * thread opens are its until it closes them: violations on helper threads are told so.
 * Returns what ran before. Memory: must live until it is replaced. */
USC_API const usc_sim_launch *usc_sim_set_launch(const usc_sim_launch *launch);

/**
 * What is told on standard error as it happens: "kernels" (each that has run, with device,
 * stream and the place of its launch), "memory" (blocks and mappings), both with a comma
 * between them, or "" for nothing, as at the start.
 *
 * Errors:  USC_E_ARG for another word; nothing is changed then.
 */
USC_API USC_NODISCARD usc_status usc_sim_set_log(const char *words, usc_error *err);

/* ---- what there is ----------------------------------------------------------------- */

/** A block as usc_sim_snapshot() tells of it: one row after the other by address, those of
 * one segment (a mapping) together. */
typedef struct usc_sim_block_info {
    int device;
    int64_t stream;
    uintptr_t segment, address;
    size_t segment_size, size, asked;
    bool live, waits;      /* waits: freed, and not yet through on other streams */
    bool small;            /* of a segment whose blocks share pages */
    const char *allocated; /* by whom: a label */
} usc_sim_block_info;

/** Calls `visit` for every block, free ones included. It must not allocate device memory. */
USC_API void usc_sim_snapshot(void (*visit)(void *ctx, const usc_sim_block_info *info),
                              void *ctx);

#define USC_SIM_ACTION_LIST(X)                                                           \
    X(ALLOC, "alloc")                                                                    \
    X(FREE_REQUESTED, "free_requested")                                                  \
    X(FREE_COMPLETED, "free_completed")                                                  \
    X(SEGMENT_ALLOC, "segment_alloc")                                                    \
    X(SEGMENT_FREE, "segment_free")                                                      \
    X(OOM, "oom")

typedef enum usc_sim_action {
#define USC_SIM_ACTION_ENUM(id, name) USC_SIM_ACTION_##id,
    USC_SIM_ACTION_LIST(USC_SIM_ACTION_ENUM)
#undef USC_SIM_ACTION_ENUM
} usc_sim_action;

/** What happened, in the words of torch.cuda's memory history. */
typedef struct usc_sim_action_info {
    usc_sim_action action;
    int device;
    int64_t stream;
    uintptr_t address;
    size_t size;
    int64_t time;      /* nanoseconds */
    const char *label; /* "": the host */
} usc_sim_action_info;

/**
 * Keeps the last `n_max` actions from now on; 0: none, and those kept are gone.
 *
 * Errors:  USC_E_NOMEM; nothing is kept then.
 */
USC_API USC_NODISCARD usc_status usc_sim_history_start(size_t n_max, usc_error *err);

/** Copies the `i`-th action kept, oldest first; false beyond the last. */
USC_API bool usc_sim_history_get(size_t i, usc_sim_action_info *out);

/** An action's name, e.g. "free_requested". Memory: static. */
USC_API const char *usc_sim_action_name(usc_sim_action action);

USC_END_DECLS
#endif
