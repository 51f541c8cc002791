// SPDX-License-Identifier: Apache-2.0
// Fingerprints of a storage's bytes: does a range still hold what was taken? And when do
// two views of it have the same row, or the same statistics? Neighbour: take.c.
#ifndef USC_CAPTURE_CONTENT_H
#define USC_CAPTURE_CONTENT_H

#include <ulpscope/capture.h>

/* Bytes per hash: copied and hashed while they are in the cache, and fine enough that a
 * small view of a large storage is checked at its own cost. */
#define USC_CONTENT_PIECE ((int64_t)64 << 10)

/* A hash per piece, or one over samples. */
typedef struct usc_content {
    uint64_t one;   /* where one is enough */
    uint64_t *many; /* else */
    int64_t n_many; /* allocated */
    int64_t size;   /* of the storage */
    bool sampled;
} usc_content;

/** Makes room for the hashes of `size` bytes; false: no memory. */
bool usc_content_size(usc_content *c, const usc_alloc *alloc, int64_t size, bool sampled);

/** Hashes `bytes`; where `copy` is not NULL they are copied there first and the copy is
 * hashed, so that hash and copy agree even while somebody writes. */
void usc_content_take(usc_content *c, const void *bytes, void *copy);

/** Whether the pieces that overlap [from, to) hash to what was taken. Sampled: whether
 * the samples do, wherever they lie. */
bool usc_content_same(const usc_content *c, const void *bytes, int64_t from, int64_t to);

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
