// SPDX-License-Identifier: Apache-2.0
// The files that hold blobs: tensors-NNNNN.safetensors, with `.part` at the end while
// open. A reserved header is filled in when a shard is sealed:
// docs/reference/trace-format.md.
#ifndef USC_TRACE_SHARD_H
#define USC_TRACE_SHARD_H

#include "db/db.h"

/* Bytes before the first blob: length field and header, padded with spaces. */
#define USC_SHARD_DATA_START ((int64_t)256 * 1024)
#define USC_SHARD_ALIGN 64
#define USC_MAX_SHARDS 100000

typedef struct usc_shard {
    int fd; /* -1: none open */
    int64_t index;
    int64_t end;         /* file offset behind the last blob */
    int64_t header_used; /* upper bound of the header's bytes so far */
    char path[USC_PATH_SIZE];
} usc_shard;

/** Path of a shard, sealed or open. Errors: USC_E_ARG, USC_E_CORRUPT (bad index). */
USC_NODISCARD usc_status usc_shard_path(char *out, const char *folder, int64_t index,
                                        bool part, usc_error *err);

/** Creates a shard's `.part` with its header space. Errors: USC_E_IO. */
USC_NODISCARD usc_status usc_shard_create(usc_shard *s, const char *folder, int64_t index,
                                          usc_error *err);

/** Whether one more blob of any size still has room in the header. */
bool usc_shard_has_room(const usc_shard *s);

/** Appends bytes; *offset is where they begin in the file. Errors: USC_E_IO. */
USC_NODISCARD usc_status usc_shard_append(usc_shard *s, int64_t blob, const void *data,
                                          int64_t size, int64_t *offset, usc_error *err);

/** Closes the file as it stands. */
void usc_shard_close(usc_shard *s);

/** Which rows of table blob name a shard: statements that its users' kinds must hold. */
#define USC_SQL_SHARD_BLOBS                                                              \
    "SELECT id, \"offset\", bytes, hash FROM blob WHERE shard = ?1 "                     \
    "ORDER BY \"offset\", bytes, id"

typedef struct usc_seal {
    usc_db *db;
    int i_blobs; /* number of USC_SQL_SHARD_BLOBS among the statements */
    const char *folder;
    const char *trace_id;
    const usc_alloc *alloc;
} usc_seal;

/**
 * Seals one shard from the rows that name it: cut behind the last blob, header, fsync,
 * rename. A shard that no row names is removed. Does nothing where it is sealed already.
 *
 * Errors: USC_E_CORRUPT (shorter than its rows say), USC_E_NOT_FOUND (no such file),
 *         USC_E_IO, USC_E_NOMEM.
 */
USC_NODISCARD usc_status usc_shard_seal(const usc_seal *how, int64_t index,
                                        usc_error *err);

/**
 * Finds the first blob of a shard, by id, of which bytes are missing: the file is not
 * there or too short, or (in a shard that is still open; a sealed one was flushed) has
 * other bytes than the hash says. *lost is 0 where all are there. `i_blobs` as in
 * usc_seal.
 *
 * Errors: USC_E_CORRUPT (a row that cannot be), USC_E_IO.
 */
USC_NODISCARD usc_status usc_shard_verify(usc_db *db, int i_blobs, const char *folder,
                                          int64_t index, int64_t *lost, usc_error *err);

/** Flushes the folder's entries to the disk; failure does not count. */
void usc_folder_sync(const char *folder);

/** xxh3-128 in hexadecimal as xxhsum prints it; `out` holds 33 bytes. */
void usc_hash_text(const void *data, size_t size, char *out);

#endif
