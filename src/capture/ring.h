// SPDX-License-Identifier: Apache-2.0
// The byte ring between the threads that run the model and the writer thread: messages
// of any size, contiguous, in order. Callers serialise the sending side; one thread
// reads. Also keeps the account of what is not yet durable. Neighbours: session.h,
// writer.c.
#ifndef USC_CAPTURE_RING_H
#define USC_CAPTURE_RING_H

#include <ulpscope/alloc.h>
#include <ulpscope/status.h>

#include <pthread.h>
#include <stdatomic.h>

/* Kind 0 is the ring's own: the rest of the memory up to its end is unused. */
#define USC_RING_WRAP 0

/* What stands before each payload. */
typedef struct usc_ring_message {
    int64_t kind;
    int64_t advance; /* ring bytes up to the next message */
    int64_t size;    /* payload bytes */
    int64_t weight;  /* bytes that count as handed over: payload and what it points to */
    int64_t stamp;   /* when it was handed over, or some milliseconds before: read from a
                        clock that costs less than usc_clock_ns and goes with it */
    void *box;       /* payload outside the ring (too large for it); NULL: follows */
} usc_ring_message;

typedef struct usc_ring {
    const usc_alloc *alloc;
    void *raw; /* what the allocator gave; `memory` is aligned inside it */
    size_t raw_size;
    unsigned char *memory;
    int64_t size;
    int64_t warm;                  /* bytes that have their pages; the sender's */
    int64_t limit_bytes, limit_ns; /* the promise about what may not be durable */

    atomic_llong head, tail;          /* positions; index: position % size */
    atomic_llong sent, read, durable; /* weights */
    atomic_llong oldest;              /* stamp of the oldest not durable; 0: none read */
    usc_ring_message *open;           /* being filled by the sender */

    pthread_mutex_t lock; /* for sleeping and waking only */
    pthread_cond_t more, space;
    atomic_int n_waiters;
    int64_t told;         /* tail when waiters were told last; the reader's */
    int64_t made_durable; /* when the reader did so last */
    atomic_bool asleep;
    bool hurry, closing; /* under lock */
    atomic_llong peak, wait_ns;
} usc_ring;

typedef struct usc_ring_options {
    const usc_alloc *alloc;
    int64_t size; /* rounded up to whole pages; at least 64 KiB */
    int64_t warm; /* of it, how much to fault in at once */
    int64_t limit_bytes, limit_ns;
} usc_ring_options;

/** Nanoseconds of the monotonic clock. */
int64_t usc_clock_ns(void);

/** Makes a ring. Errors: USC_E_NOMEM; `*r` is zero then and may be freed. */
USC_NODISCARD usc_status usc_ring_make(usc_ring *r, const usc_ring_options *options,
                                       usc_error *err);

/** Frees the memory, also of messages never read; a zero ring is allowed. */
void usc_ring_free(usc_ring *r);

/** Largest payload that stands in the ring itself. */
int64_t usc_ring_largest(const usc_ring *r);

/**
 * Starts a message and returns the place for its payload, 64-byte aligned; waits while
 * the ring is full or more than `limit_bytes` older than `limit_ns` are not durable.
 * NULL: no memory (payloads above usc_ring_largest are allocated). Not sent until
 * usc_ring_send; starting another one instead drops it.
 */
void *usc_ring_start(usc_ring *r, int64_t kind, int64_t size);

/** Hands the started message over; `extra` is weight beside its payload. */
void usc_ring_send(usc_ring *r, int64_t extra);

/** Waits until the reader is done with everything sent. */
void usc_ring_drain(usc_ring *r);

/** Waits until everything sent is durable. */
void usc_ring_flush(usc_ring *r);

/** Reader: the next message; NULL where there is none within `wait_ns` (`*closed` says
 * whether none will come). */
usc_ring_message *usc_ring_next(usc_ring *r, int64_t wait_ns, bool *closed);

/** Reader: payload of a message. */
void *usc_ring_payload(usc_ring_message *m);

/** Reader: is done with the message that usc_ring_next returned. */
void usc_ring_done(usc_ring *r, usc_ring_message *m);

/** Reader: whether something read should be made durable now: much, or old, but not again
 * within a quarter of `limit_ns` while more waits to be read. */
bool usc_ring_due(usc_ring *r);

/** Reader: everything read so far is durable. */
void usc_ring_durable(usc_ring *r);

/** Tells the reader that nothing more comes. */
void usc_ring_end(usc_ring *r);

#endif
