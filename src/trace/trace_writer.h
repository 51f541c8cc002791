// SPDX-License-Identifier: Apache-2.0
// The writer's inside, shared by trace_write.c (life, commits, blobs) and trace_rows.c.
#ifndef USC_TRACE_WRITER_H
#define USC_TRACE_WRITER_H

#include "trace/trace_schema.h"
#include "trace/trace_write.h"

/* Open addressing, a power of two slots, at most half full; blob 0 is an empty slot. */
typedef struct usc_blob_slot {
    usc_hash128 hash;
    int64_t size, blob;
} usc_blob_slot;

struct usc_trace_writer {
    usc_trace_options options; /* with defaults filled in */
    usc_alloc alloc;
    usc_db db;
    usc_shard shard;
    usc_blob_slot *slots;
    size_t n_slots;
    int64_t n_blobs, n_args, next_shard;
    bool in_transaction;
    int64_t pending_bytes; /* blob bytes since the last commit */
    int64_t pending_since; /* milliseconds, monotonic: when the transaction began */
    usc_error failed;      /* status OK while the writer works */
    char id[33];
    char folder[USC_PATH_SIZE];
};

/** Milliseconds of a clock that never goes back. */
int64_t usc_writer_now_ms(void);

/** Starts a transaction where none is open; every row and blob goes through it. Errors:
 * that of an earlier failure, which is final. */
USC_NODISCARD usc_status usc_writer_begin(usc_trace_writer *w, usc_error *err);

/** Keeps a failure, so that the writer refuses everything after it; returns `st`. */
usc_status usc_writer_result(usc_trace_writer *w, usc_status st, const usc_error *why,
                             usc_error *err);

#endif
