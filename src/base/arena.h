// SPDX-License-Identifier: Apache-2.0
// Memory of what a reader hands out until its next call: taken in chunks, freed as one.
#ifndef USC_BASE_ARENA_H
#define USC_BASE_ARENA_H

#include <ulpscope/alloc.h>
#include <ulpscope/status.h>

typedef struct usc_arena_chunk usc_arena_chunk;

typedef struct usc_arena {
    usc_alloc alloc;
    usc_arena_chunk *chunks; /* newest first */
    bool failed;             /* some request since the last reset got no memory */
} usc_arena;

/** Bytes aligned for any type, NULL where there is no memory. */
void *usc_arena_take(usc_arena *a, size_t size);

/** Moves `n` items to a place at least twice as large; sets *capacity. NULL: no memory.
 * The place before is gone where it was large, and is garbage of the arena else. */
void *usc_arena_grow(usc_arena *a, void *items, size_t n, size_t *capacity,
                     size_t item_size);

/** A copy of `size` bytes, aligned for any type; NULL where there is no memory. */
void *usc_arena_copy(usc_arena *a, const void *bytes, size_t size);

/** A copy of a text; NULL for NULL, and where there is no memory. */
const char *usc_arena_text(usc_arena *a, const char *text);

/** Takes everything back, keeping one chunk for the next use. */
void usc_arena_reset(usc_arena *a);

/** Frees everything. */
void usc_arena_free(usc_arena *a);

/** Says that there is no memory for `what`: the path of an output or a file, a thing. */
usc_status usc_no_memory(const char *what, usc_error *err);

#endif
