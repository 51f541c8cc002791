// SPDX-License-Identifier: Apache-2.0
// Fingerprints of a storage's bytes: does a range still hold what was taken? And when do
// two views of it have the same row, or the same statistics? Neighbour: take.c.
#ifndef USC_CAPTURE_CONTENT_H
#define USC_CAPTURE_CONTENT_H

#include "base/hash.h"

#include <ulpscope/x/capture.h>

/* Bytes per hash: copied and hashed while they are in the cache, and fine enough that a
 * small view of a large storage is checked at its own cost. */
#define USC_CONTENT_PIECE ((int64_t)64 << 10)
/* The same where bytes must be fetched from a device: what a view needs, hardly more. */
#define USC_CONTENT_FETCHED ((int64_t)4 << 10)

typedef enum usc_content_way {
    USC_CONTENT_WHOLE,   /* a hash per piece */
    USC_CONTENT_SAMPLED, /* one over samples */
    USC_CONTENT_PARTS    /* a hash per fetched piece, of those that were taken */
} usc_content_way;

typedef struct usc_content {
    uint64_t one;   /* where one is enough */
    uint64_t *many; /* else; PARTS: 0 for a piece that was not taken */
    int64_t n_many; /* allocated */
    int64_t size;   /* of the storage */
    usc_content_way way;
} usc_content;

/* Bytes of a storage, from byte `from` up to byte `to` of it. */
typedef struct usc_bytes {
    const unsigned char *at; /* byte `from`; NULL: nobody can read them */
    int64_t from, to;
} usc_bytes;

/** Makes room for the hashes of `size` bytes, keeping what is there where that fits;
 * false: no memory. */
bool usc_content_size(usc_content *c, const usc_alloc *alloc, int64_t size,
                      usc_content_way way);

/** Forgets the pieces of [from, to). PARTS only. */
void usc_content_drop(usc_content *c, int64_t from, int64_t to);

/** Hashes bytes that begin and end with a piece (not PARTS: all of the storage's); where
 * `copy` is not NULL they are copied there first and the copy is hashed, so that hash and
 * copy agree even while somebody writes. Returns whether that was one piece: `*all` is
 * the hash of the bytes then, which need not be hashed again. */
bool usc_content_take(usc_content *c, usc_bytes bytes, void *copy, usc_hash128 *all);

/** Whether the pieces in `bytes`, which begin and end with one, that overlap [from, to)
 * hash to what was taken; those never taken do. Sampled: whether the samples do, wherever
 * they lie. */
bool usc_content_same(const usc_content *c, usc_bytes bytes, int64_t from, int64_t to);

/** Frees the hashes. */
void usc_content_free(usc_content *c, const usc_alloc *alloc);

/* ---- views ---- */

/* Where a view lies in its storage. */
typedef struct usc_reach {
    int64_t first;    /* byte offset of the first element */
    int64_t from, to; /* bytes that the view can reach; all where that is not known */
    bool known;       /* false: sizes and strides do not fit the storage */
} usc_reach;

/** Reach of `t` in its storage. */
usc_reach usc_view_reach(const usc_capture_tensor *t);

/** Hash of everything that a tensor row says. */
uint64_t usc_view_key(const usc_capture_tensor *t);

/** Equal for views of one generation that have equal statistics: dense float views of the
 * same bytes whatever their order of axes; not 0. */
uint64_t usc_view_stats_key(const usc_capture_tensor *t, const usc_reach *reach);

#endif
