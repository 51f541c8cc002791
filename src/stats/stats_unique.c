// SPDX-License-Identifier: Apache-2.0
// Finds repeated integers on 16 KiB of stack: a bitmap where the range is small, else a
// hash table that takes one share of all hashes per pass.
#include "stats/stats_unique.h"

#include <string.h>

#include "base/mix.h"

enum {
    CHUNK = 64,               /* elements gathered at once */
    BITMAP_RANGE = 65536,     /* values that a bitmap covers */
    SLOTS = 2048,             /* slots of the hash table */
    SHARE = SLOTS / 2,        /* values expected per pass */
    MAX_FILL = SLOTS * 3 / 4, /* far beyond what a share of mixed hashes reaches */
};

typedef struct table {
    uint64_t slots[SLOTS];
    uint64_t used[SLOTS / 64];
    int n;
} table;

/* The element's bits; only whether two are equal matters, and how far above the lowest.
 */
static uint64_t load_word(const unsigned char *at, size_t item, usc_kind kind)
{
    uint8_t b = 0;
    uint16_t h = 0;
    uint32_t w = 0;
    uint64_t q = 0;
    if (kind == USC_KIND_BOOL) return *at != 0;
    if (item == 1) return (void)memcpy(&b, at, 1), b;
    if (item == 2) return (void)memcpy(&h, at, 2), h;
    if (item == 4) return (void)memcpy(&w, at, 4), w;
    memcpy(&q, at, 8);
    return q;
}

/* False where `hash` is there already, or the table is too full to know. */
static bool insert(table *t, uint64_t hash)
{
    if (t->n >= MAX_FILL) return false;
    size_t i = hash % SLOTS;
    for (; (t->used[i / 64] >> (i % 64) & 1) != 0; i = (i + 1) % SLOTS)
        if (t->slots[i] == hash) return false;
    t->slots[i] = hash;
    t->used[i / 64] |= (uint64_t)1 << (i % 64);
    t->n++;
    return true;
}

static bool mark(uint64_t *bitmap, uint64_t offset)
{
    const uint64_t bit = (uint64_t)1 << (offset % 64);
    if ((bitmap[offset / 64] & bit) != 0) return false;
    bitmap[offset / 64] |= bit;
    return true;
}

/* Calls for each element: `step` with the word, until it says no. */
static bool each_word(const usc_walk *walk, usc_kind kind,
                      bool (*step)(void *state, uint64_t word), void *state)
{
    uint64_t chunk[CHUNK];
    for (int64_t start = 0; start < walk->n; start += CHUNK) {
        const int64_t rest = walk->n - start;
        const size_t n = rest < CHUNK ? (size_t)rest : CHUNK;
        usc_walk_gather(walk, start, n, chunk);
        const unsigned char *at = (const unsigned char *)chunk;
        for (size_t i = 0; i < n; i++)
            if (!step(state, load_word(at + i * walk->size, walk->size, kind)))
                return false;
    }
    return true;
}

typedef struct bitmap_state {
    uint64_t bitmap[BITMAP_RANGE / 64];
    uint64_t low, mask;
} bitmap_state;

static bool step_bitmap(void *state, uint64_t word)
{
    bitmap_state *s = state;
    return mark(s->bitmap, (word - s->low) & s->mask);
}

typedef struct pass_state {
    table seen;
    uint64_t i_pass, n_passes;
} pass_state;

static bool step_pass(void *state, uint64_t word)
{
    pass_state *s = state;
    const uint64_t hash = usc_mixed(word);
    return (hash >> 32) % s->n_passes != s->i_pass || insert(&s->seen, hash);
}

static bool unique_by_bitmap(const usc_walk *walk, usc_kind kind, uint64_t low)
{
    const int bits = (int)walk->size * 8;
    bitmap_state state = {.low = low, .mask = UINT64_MAX >> (64 - bits)};
    return each_word(walk, kind, step_bitmap, &state);
}

static bool unique_by_passes(const usc_walk *walk, usc_kind kind)
{
    pass_state state;
    state.n_passes = (uint64_t)(walk->n + SHARE - 1) / SHARE;
    for (state.i_pass = 0; state.i_pass < state.n_passes; state.i_pass++) {
        memset(state.seen.used, 0, sizeof state.seen.used);
        state.seen.n = 0;
        if (!each_word(walk, kind, step_pass, &state)) return false;
    }
    return true;
}

bool usc_stats_unique(const usc_walk *walk, usc_dtype dtype, int64_t low, int64_t high)
{
    if (walk->n > USC_UNIQUE_LIMIT) return false;
    if (walk->n <= 1) return true;
    const uint64_t range = (uint64_t)high - (uint64_t)low;
    if ((uint64_t)(walk->n - 1) > range) return false; /* more elements than values */
    const usc_kind kind = usc_dtype_info_of(dtype)->kind;
    if (range < BITMAP_RANGE) return unique_by_bitmap(walk, kind, (uint64_t)low);
    return unique_by_passes(walk, kind);
}
