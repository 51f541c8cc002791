// SPDX-License-Identifier: Apache-2.0
// What the files that read a trace share: the open trace and its shards.
#ifndef USC_TRACE_READER_H
#define USC_TRACE_READER_H

#include "base/arena.h"
#include "trace/trace_schema.h"

#include <ulpscope/trace.h>

typedef struct usc_shard_map {
    int64_t index, size;
    int fd;
    unsigned char *data;
    struct usc_shard_map *next;
} usc_shard_map;

typedef struct usc_trace_meta_row {
    struct usc_trace_meta_row *next;
    const char *key, *value;
} usc_trace_meta_row;

struct usc_trace {
    usc_alloc alloc;
    usc_db db;
    usc_arena arena;    /* what the last call handed out */
    usc_arena selected; /* and the last selection */
    usc_arena meta_texts;
    usc_trace_meta_row *meta; /* all of it, read once */
    usc_shard_map *maps;
    int64_t *checked; /* blobs that were read in part, and are what was written */
    size_t n_checked;
    char folder[USC_PATH_SIZE];
};

/** Opens a shard by its sealed name, else the open one that a killed writer left: its
 * `path` of USC_PATH_SIZE, descriptor and size. */
USC_NODISCARD usc_status usc_trace_open_shard(const usc_trace *t, int64_t index,
                                              char *path, int *fd, int64_t *size,
                                              usc_error *err);

/** Unmaps and closes all shards. */
void usc_trace_forget_shards(usc_trace *t);

#endif
