// SPDX-License-Identifier: Apache-2.0
// What the last calls are held in: recent.c fills and forgets, recent_write.c writes.
#ifndef USC_CAPTURE_RECENT_ROWS_H
#define USC_CAPTURE_RECENT_ROWS_H

#include "capture/recent.h"

#include <stddef.h>

/* Items by id, ascending: each begins with its id, and ids are given in turn. */
typedef struct usc_rows {
    char *at;
    size_t n, room, item;
} usc_rows;

/* Statistics as far as they are computed here: what lies behind stays zero. */
#define USC_RECENT_STATS offsetof(usc_stats, n_histogram)

enum { USC_RECENT_NAME = 32 };

typedef struct usc_recent_name {
    int64_t id, call; /* call: of a remark */
    char *first, *second;
} usc_recent_name;

typedef struct usc_recent_place {
    int64_t id, bytes, version; /* version: the present one, 0: none */
    char device[USC_RECENT_NAME];
    bool gone, used;
} usc_recent_place;

typedef struct usc_recent_generation {
    int64_t id;
    usc_version_row row;
    bool used;
} usc_recent_generation;

typedef struct usc_recent_view {
    int64_t id, part;
    usc_tensor_row row; /* pointers: into `block` and `stats` */
    int64_t *block;     /* sizes, strides */
    char dtype[USC_RECENT_NAME], form[USC_RECENT_NAME];
    void *stats; /* USC_RECENT_STATS bytes; NULL: none */
    bool used;
} usc_recent_view;

/* Bytes of a version or of a part. */
typedef struct usc_recent_data {
    int64_t id, version;
    unsigned char *at; /* NULL: there was no room */
    int64_t size;
    int64_t last; /* the latest call that used it */
} usc_recent_data;

typedef struct usc_recent_arg_row {
    usc_role role;
    int64_t tensor;
    char *path;
} usc_recent_arg_row;

typedef struct usc_recent_call_row {
    int64_t id;
    usc_call_row row;
    char *args, *state;
    const char *status; /* static */
    usc_recent_arg_row *arg;
    int n_args, room;
} usc_recent_call_row;

enum {
    USC_RECENT_OPS,
    USC_RECENT_MODULES,
    USC_RECENT_STACKS,
    USC_RECENT_META,
    USC_N_RECENT
};

struct usc_recent {
    int64_t most_calls, most_bytes, bytes, n_notes;
    usc_rows names[USC_N_RECENT], notes;
    usc_rows storages, versions, tensors, data, parts, calls;
};

/** The item of that id; NULL: none. */
void *usc_rows_find(const usc_rows *rows, int64_t id);

/** The i-th. */
void *usc_rows_at(const usc_rows *rows, size_t i);

/** Sets `used` of all that the last calls name; takes it back. */
void usc_recent_mark(usc_recent *r);
void usc_recent_unmark(usc_recent *r);

/** Number in `calls` of the first call that is one of the last ones. */
size_t usc_recent_first(const usc_recent *r);

#endif
