// SPDX-License-Identifier: Apache-2.0
// What goes through the ring: the kinds of messages and how their payloads are packed.
// Payloads never leave the process, so they have no version and the machine's byte order.
#ifndef USC_CAPTURE_MESSAGE_H
#define USC_CAPTURE_MESSAGE_H

#include "base/hash.h"

#include <ulpscope/trace.h>

#include <string.h>

/* In the order in which a call sends them; 0 is USC_RING_WRAP. */
typedef enum usc_message_kind {
    USC_MESSAGE_META = 1,
    USC_MESSAGE_MODULE,
    USC_MESSAGE_STACK,
    USC_MESSAGE_OP,
    USC_MESSAGE_STORAGE,
    USC_MESSAGE_VERSION, /* with the tensor it was taken for, and its bytes */
    USC_MESSAGE_TENSOR,
    USC_MESSAGE_CALL,
    USC_MESSAGE_END,
    USC_MESSAGE_STEP,
    USC_MESSAGE_NOTE,
    USC_MESSAGE_GONE, /* to a watcher alone */
    USC_MESSAGE_KEEP,
    USC_MESSAGE_FORGET, /* the last calls are not kept any more */
    USC_MESSAGE_LOOKED,
    USC_N_MESSAGES
} usc_message_kind;

/* With `at` NULL only counts: the same function measures a payload and writes it. */
typedef struct usc_packer {
    unsigned char *at;
    int64_t n;
} usc_packer;

/* Inline: a call packs some fifty values, twice. */
static inline void usc_pack_i64(usc_packer *p, int64_t value)
{
    if (p->at != NULL) memcpy(p->at + p->n, &value, sizeof value);
    p->n += (int64_t)sizeof value;
}

static inline void usc_pack_bytes(usc_packer *p, const void *bytes, size_t size)
{
    if (p->at != NULL && size > 0) memcpy(p->at + p->n, bytes, size);
    p->n += (int64_t)((size + 7) / 8 * 8);
}

void usc_pack_text(usc_packer *p, const char *text); /* NULL stays NULL */

/* Goes up to a multiple of 64, as payloads begin on one. */
void usc_pack_align(usc_packer *p);

typedef struct usc_unpacker {
    const unsigned char *start, *at;
} usc_unpacker;

int64_t usc_unpack_i64(usc_unpacker *u);
const char *usc_unpack_text(usc_unpacker *u);
const void *usc_unpack_bytes(usc_unpacker *u, size_t size);
void usc_unpack_align(usc_unpacker *u);

/* ---- payloads that both sides know as structs ---- */

/* What the bytes of a version are: following in the ring, the caller's own memory (the
 * caller waits), or not kept. */
typedef enum usc_bytes_way {
    USC_BYTES_NONE,
    USC_BYTES_INLINE,
    USC_BYTES_BORROWED
} usc_bytes_way;

typedef struct usc_version_message {
    usc_version_row row; /* blob: not known yet */
    int64_t way;         /* usc_bytes_way */
    int64_t part, first; /* the bytes are this part, from that byte on; 0: all of it */
    bool again;          /* a further part of a version that has its row */
    bool hashed;         /* `hash` is that of the bytes */
    usc_hash128 hash;
    int64_t size;
    const void *borrowed;
} usc_version_message;

/* A tensor's row, and what the writer needs to compute its statistics. */
typedef struct usc_tensor_message {
    usc_tensor_row row;
    usc_dtype dtype;
    int64_t first;      /* byte offset of the first element in its storage */
    int64_t part;       /* in which it lies; 0: in the version's own blob */
    uint64_t dense_key; /* equal for views with equal statistics; 0: none wanted */
    /* Bytes for the statistics alone, of its storage from byte `from` on; NULL: none. */
    const unsigned char *bytes;
    int64_t from, size;
    bool has_range;
    usc_range range; /* to a watcher, in place of statistics */
} usc_tensor_message;

/* How a call is left by an END message: further results may come without an end. */
typedef enum usc_end { USC_END_RAISED, USC_END_OK, USC_END_NOT } usc_end;

/* One argument or result in a CALL or END message. */
typedef struct usc_arg_message {
    int64_t tensor;
    int64_t look;  /* usc_capture_tensor.look */
    uint64_t view; /* usc_view_stats_key, where it is looked at */
    int32_t role, i_arg, i_item;
    bool has_keyword, has_part, has_path; /* then texts follow, in this order */
} usc_arg_message;

/* A write that nobody announced, seen by a call. */
typedef struct usc_unobserved {
    int64_t storage, since;
} usc_unobserved;

/** Packs and unpacks a tensor message; texts, sizes and statistics point into the
 * payload afterwards. */
void usc_pack_tensor(usc_packer *p, const usc_tensor_message *m);
void usc_unpack_tensor(usc_unpacker *u, usc_tensor_message *m);

#endif
