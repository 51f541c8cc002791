// SPDX-License-Identifier: Apache-2.0
// What a capture session is made of. session.c: life, names, steps;
// send.c: failure, memory, messages; take.c: calls and
// what they touch; writer.c: the thread that writes. Contract: ulpscope/x/capture.h.
#ifndef USC_CAPTURE_SESSION_H
#define USC_CAPTURE_SESSION_H

#include "base/arena.h"
#include "base/keys.h"
#include "capture/intern.h"
#include "capture/message.h"
#include "capture/ring.h"
#include "capture/storage_map.h"

#include <ulpscope/x/capture.h>

#include <pthread.h>

/* Memory that grows and is used again by every call. */
typedef struct usc_scratch {
    void *at;
    size_t size;
} usc_scratch;

struct usc_capture {
    const usc_alloc *alloc;
    usc_capture_hooks hooks;
    bool stats_only; /* under `lock` */
    usc_ring ring;   /* sending side under `lock` */
    /* the writer thread's until it is joined, one of both: */
    usc_trace_writer *trace;
    struct usc_watcher *watcher;
    struct usc_recent *recent; /* beside the watcher; NULL: no calls are kept any more */
    bool (*found)(void *ctx);  /* usc_capture_watch */
    void *found_ctx;
    char *keep_path;
    pthread_t writer;

    pthread_mutex_t lock; /* of everything up to `counts` */
    usc_intern ops, modules, stacks;
    usc_arena names; /* of operators, and in which order they came: */
    const char **op_name;
    size_t n_op_names, op_names_room;
    usc_storage_map storages;
    int64_t n_storages, n_versions, n_tensors, n_parts; /* ids given */
    int64_t step, step_first;                           /* step_first: calls before it */
    bool step_open, distinct;
    int64_t most_bytes, pass_first, n_offered;
    usc_keys seen;          /* signatures of this step, where they are to be distinct */
    usc_scratch ids;        /* tensor ids of the call at hand */
    usc_scratch unobserved; /* usc_unobserved of the call at hand */
    int64_t n_unobserved;
    usc_scratch bytes; /* what hooks.read gave last, where it was not asked ahead */
    struct usc_fetches *fetched;      /* ahead, for the call at hand; NULL: nothing */
    struct usc_fetches *idle_fetches; /* of no call now */
    usc_capture_counts counts;

    pthread_mutex_t error_lock;
    usc_error error; /* the first one */
    atomic_bool failed;
    atomic_bool stopped; /* at limit_bytes, by the writer */
    bool keeps;          /* calls were asked to be kept; never changes */
    atomic_bool
        keep_done; /* they are written, or cannot be: nothing is copied for them */
    char *kept;    /* where they were written; both under error_lock */
    usc_error keep_error;
    atomic_llong held; /* bytes */
    int64_t limit_bytes;

    atomic_llong n_blobs, blob_bytes; /* the writer's */
    struct usc_stats_cache *stats_cache;
    usc_scratch part_blobs; /* the writer's: blob of each part, by its id */
};

/** Ends the session's data with its first error; later ones are dropped. */
void usc_session_fail(usc_capture *c, const usc_error *err);

/** As usc_session_fail, for lack of memory. */
void usc_session_fail_memory(usc_capture *c, const char *what);

/** Makes the scratch hold `size` bytes, keeping its content; false: failed. */
bool usc_session_scratch(usc_capture *c, usc_scratch *s, size_t size);

/** A row for table note. Under `lock`. */
void usc_session_note(usc_capture *c, int64_t call, const char *kind, const char *text);

typedef void usc_pack_function(usc_packer *p, const void *what);

/** Sends one message packed by `pack`; false: the session has failed. Under `lock`. */
bool usc_session_send(usc_capture *c, usc_message_kind kind, usc_pack_function *pack,
                      const void *what);

/** Sends a row of up to two texts (NULL: none) under an id; what META, OP, MODULE, STACK
 * and NOTE carry. False: no memory. */
bool usc_session_send_texts(usc_capture *c, usc_message_kind kind, int64_t id,
                            const char *first, const char *second);

/** Ends the open step, if any, as complete or cut short. */
void usc_capture_step_end_as(usc_capture *c, bool complete);

/** Entry of the writer thread; `session` is a usc_capture. */
void *usc_capture_writer_main(void *session);

#endif
