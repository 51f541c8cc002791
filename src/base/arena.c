// SPDX-License-Identifier: Apache-2.0
// Chunks of memory in a list; the newest one is filled from its start.
#include "base/arena.h"

#include <stdalign.h>
#include <string.h>

#define CHUNK_SIZE ((size_t)16 * 1024)

struct usc_arena_chunk {
    usc_arena_chunk *next;
    size_t size, used;
    alignas(max_align_t) unsigned char bytes[];
};

static void *fail(usc_arena *a)
{
    a->failed = true;
    return NULL;
}

void *usc_arena_take(usc_arena *a, size_t size)
{
    const size_t unit = alignof(max_align_t);
    if (size > SIZE_MAX / 2) return fail(a);
    size = (size + unit - 1) / unit * unit;
    usc_arena_chunk *c = a->chunks;
    if (c == NULL || size > c->size - c->used) {
        const size_t room = size > CHUNK_SIZE ? size : CHUNK_SIZE;
        c = a->alloc.resize(a->alloc.ctx, NULL, 0, sizeof *c + room);
        if (c == NULL) return fail(a);
        *c = (usc_arena_chunk){.next = a->chunks, .size = room};
        a->chunks = c;
    }
    void *at = c->bytes + c->used;
    c->used += size;
    return at;
}

static void free_chunk(usc_arena *a, usc_arena_chunk *c)
{
    a->alloc.resize(a->alloc.ctx, c, sizeof *c + c->size, 0);
}

/* What is larger than a chunk has one of its own. */
static void give_back(usc_arena *a, const void *place, size_t size)
{
    if (size <= CHUNK_SIZE) return;
    for (usc_arena_chunk **at = &a->chunks; *at != NULL; at = &(*at)->next) {
        usc_arena_chunk *c = *at;
        if (c->bytes != place || c->used < size) continue;
        *at = c->next;
        free_chunk(a, c);
        return;
    }
}

void *usc_arena_grow(usc_arena *a, void *items, size_t n, size_t *capacity,
                     size_t item_size)
{
    const size_t wanted = *capacity > 0 ? 2 * *capacity : 16;
    if (wanted > SIZE_MAX / 4 / item_size) return fail(a);
    void *place = usc_arena_take(a, wanted * item_size);
    if (place == NULL) return NULL;
    if (n > 0) memcpy(place, items, n * item_size);
    if (items != NULL) give_back(a, items, *capacity * item_size);
    *capacity = wanted;
    return place;
}

void *usc_arena_copy(usc_arena *a, const void *bytes, size_t size)
{
    void *copy = usc_arena_take(a, size);
    if (copy != NULL && size > 0) memcpy(copy, bytes, size);
    return copy;
}

const char *usc_arena_text(usc_arena *a, const char *text)
{
    if (text == NULL) return NULL;
    return usc_arena_copy(a, text, strlen(text) + 1);
}

void usc_arena_reset(usc_arena *a)
{
    usc_arena_chunk *keep = NULL;
    while (a->chunks != NULL) {
        usc_arena_chunk *c = a->chunks;
        a->chunks = c->next;
        if (keep == NULL && c->size == CHUNK_SIZE)
            keep = c;
        else
            free_chunk(a, c);
    }
    if (keep != NULL) {
        keep->next = NULL;
        keep->used = 0;
    }
    a->chunks = keep;
    a->failed = false;
}

void usc_arena_free(usc_arena *a)
{
    while (a->chunks != NULL) {
        usc_arena_chunk *c = a->chunks;
        a->chunks = c->next;
        free_chunk(a, c);
    }
}

usc_status usc_no_memory(const char *what, usc_error *err)
{
    return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", what);
}
