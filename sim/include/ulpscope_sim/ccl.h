// SPDX-License-Identifier: Apache-2.0
// simccl: collectives and messages between the processes of one machine that train
// together, over shared memory. Every rank of a communicator makes the same calls in the
// same order; a call blocks until this rank's part is done, so it belongs on a stream of
// its own (usc_sim_stream_next_for_ranks()). Results do not depend on timing: sums go from
// rank 0 upwards.
//
// Buffers may lie in host or device memory; device memory is opened for the call. Input
// and output may be one and the same range.
//
// Faults (sim.h) planted on "simccl::all_reduce" and the like fire here: on what this rank
// gives, on what it gets, and those about ranks in between. Plant them on every rank.
//
// Threads: collectives of one communicator from one thread at a time; messages to one rank
//          and messages from one rank likewise, beside collectives. Abort from anywhere.
#ifndef ULPSCOPE_SIM_CCL_H
#define ULPSCOPE_SIM_CCL_H

#include <ulpscope_sim/stream.h>

USC_BEGIN_DECLS

#define USC_CCL_MAX_RANKS 256
#define USC_CCL_NAME_TEXT 64

typedef struct usc_ccl usc_ccl; /* a communicator, as one of its ranks holds it */

typedef struct usc_ccl_options {
    char name
        [USC_CCL_NAME_TEXT]; /* of the shared memory, as usc_ccl_new_name() makes it */
    int rank, size;
    int64_t timeout_ns; /* how long a rank is waited for that is alive; 0: for ever */
} usc_ccl_options;

/* id, name in errors and faults ("simccl::all_reduce"), what `from` and `to` are:
 *   ONE   one buffer
 *   EACH  one for each rank, of sizes that may differ
 *   ROOT  that on the root, and nothing elsewhere */
#define USC_CCL_KIND_LIST(X)                                                             \
    X(BARRIER, "barrier")               /* -, - */                                       \
    X(ALL_REDUCE, "all_reduce")         /* ONE, ONE */                                   \
    X(REDUCE, "reduce")                 /* ONE, ROOT ONE */                              \
    X(BROADCAST, "broadcast")           /* ROOT ONE, ONE */                              \
    X(ALL_GATHER, "all_gather")         /* ONE, EACH */                                  \
    X(GATHER, "gather")                 /* ONE, ROOT EACH */                             \
    X(SCATTER, "scatter")               /* ROOT EACH, ONE */                             \
    X(REDUCE_SCATTER, "reduce_scatter") /* EACH, ONE */                                  \
    X(ALL_TO_ALL, "all_to_all")         /* EACH, EACH */

typedef enum usc_ccl_kind {
#define USC_CCL_KIND_ENUM(id, name) USC_CCL_##id,
    USC_CCL_KIND_LIST(USC_CCL_KIND_ENUM)
#undef USC_CCL_KIND_ENUM
        USC_CCL_N_KINDS
} usc_ccl_kind;

/* How numbers become one. Of bool, sums are "or" and products "and"; bits: integers and
 * bool only; the average of integers is cut off towards zero. */
#define USC_CCL_OP_LIST(X)                                                               \
    X(SUM, "sum")                                                                        \
    X(AVG, "average")                                                                    \
    X(PRODUCT, "product")                                                                \
    X(MIN, "min")                                                                        \
    X(MAX, "max")                                                                        \
    X(BAND, "bitwise and")                                                               \
    X(BOR, "bitwise or")                                                                 \
    X(BXOR, "bitwise xor")

typedef enum usc_ccl_op {
#define USC_CCL_OP_ENUM(id, name) USC_CCL_OP_##id,
    USC_CCL_OP_LIST(USC_CCL_OP_ENUM)
#undef USC_CCL_OP_ENUM
        USC_CCL_N_OPS
} usc_ccl_op;

typedef struct usc_ccl_buffer {
    void *at; /* NULL where size is 0 */
    size_t size;
} usc_ccl_buffer;

typedef struct usc_ccl_call {
    usc_ccl_kind kind;
    usc_ccl_op op;   /* of reductions */
    usc_dtype dtype; /* of reductions; others move bytes, and only faults look at it */
    int root;        /* where there is one */
    const usc_ccl_buffer *from, *to;
    size_t n_from, n_to;
} usc_ccl_call;

/** Writes a name that no other communicator has. */
USC_API void usc_ccl_new_name(char name[USC_CCL_NAME_TEXT]);

/**
 * Makes this rank's end of a communicator and waits until all ranks have done so. Rank 0
 * makes the shared memory and removes its name again when all are there.
 *
 * Memory:  give back with usc_ccl_close().
 * Errors:  USC_E_ARG, USC_E_NOMEM, USC_E_IO where /dev/shm has no room or a rank does not
 *          come in time; *out is NULL then.
 */
USC_API USC_NODISCARD usc_status usc_ccl_open(const usc_ccl_options *options,
                                              usc_ccl **out, usc_error *err);

/** Gives this rank's end back; nothing of it may run. NULL is allowed. */
USC_API void usc_ccl_close(usc_ccl *c);

/**
 * Runs one collective.
 *
 * Numbers: 16-bit and 8-bit floats are added up in float32 and rounded once, float32 in
 *          float32, float64 in float64.
 * Errors:  USC_E_ARG where the ranks' calls do not fit each other, the same text on each of
 *          them, and the communicator goes on; USC_E_IO where a rank is gone, does not come
 *          in time or has aborted: every further call gives that, too.
 */
USC_API USC_NODISCARD usc_status usc_ccl_run(usc_ccl *c, const usc_ccl_call *call,
                                             usc_error *err);

/** Sends `from` to rank `to`, whose messages from here come in the order of sending.
 * Errors: USC_E_ARG for no such rank, USC_E_IO as usc_ccl_run(). */
USC_API USC_NODISCARD usc_status usc_ccl_send(usc_ccl *c, int to, int tag,
                                              usc_ccl_buffer from, usc_error *err);

/** Receives the next message of rank `*from`, or, where that is -1, of whoever sends first,
 * who then stands there. Errors: USC_E_ARG also where its size or tag is another; the
 * message is gone then. */
USC_API USC_NODISCARD usc_status usc_ccl_receive(usc_ccl *c, int *from, int tag,
                                                 usc_ccl_buffer to, usc_error *err);

/** Ends what any rank runs or is going to run on this communicator with USC_E_IO and
 * `why`; the first abort counts. */
USC_API void usc_ccl_abort(usc_ccl *c, const char *why);

/** How long a rank that is alive is waited for from the next call on; 0: for ever. */
USC_API void usc_ccl_set_timeout(usc_ccl *c, int64_t timeout_ns);

/** The name of a kind or an op; "" for other values. Memory: static. */
USC_API const char *usc_ccl_kind_name(usc_ccl_kind kind);
USC_API const char *usc_ccl_op_name(usc_ccl_op op);

USC_END_DECLS
#endif
