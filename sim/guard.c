// SPDX-License-Identifier: Apache-2.0
// Bytes that tell of mistakes: poison in memory that nobody has written yet, and red zones
// around a whole block, in the pages that are open with it. Both are written when the
// block is first opened, since until then nobody can touch it.
#include "blocks.h"
#include "grid_parts.h"

#include <string.h>

#define ZONE ((size_t)64)
#define ZONE_BYTE 0xa5
#define POISON_BYTE 0xff

static bool poison;

void usc_sim_set_poison(bool on)
{
    usc_sim_memory_lock();
    poison = on;
    usc_sim_memory_unlock();
}

static size_t zone_before(const block *b)
{
    const size_t room = (size_t)(b->user - b->base);
    return room < ZONE ? room : ZONE;
}

static size_t zone_behind(const block *b)
{
    return b->size - (size_t)(b->user - b->base) - b->asked;
}

void usc_sim_guard_fresh(block *b)
{
    b->fresh = false;
    if (!b->segment->whole && !poison) return;
    if (!usc_sim_block_sync(b, 0, 1)) {
        (void)usc_sim_block_sync(b, 0, -1);
        return;
    }
    if (poison) memset(b->user, POISON_BYTE, b->asked);
    if (b->segment->whole) {
        memset(b->user - zone_before(b), ZONE_BYTE, zone_before(b));
        memset(b->user + b->asked, ZONE_BYTE, zone_behind(b));
        b->zoned = true;
    }
    (void)usc_sim_block_sync(b, 0, -1);
}

static const char *first_other(const char *zone, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)zone[i] != ZONE_BYTE) return zone + i;
    return NULL;
}

void usc_sim_guard_check(block *b)
{
    if (!b->zoned) return;
    const char *at = first_other(b->user + b->asked, zone_behind(b));
    if (at == NULL) at = first_other(b->user - zone_before(b), zone_before(b));
    if (at != NULL) usc_sim_violation_red_zone(b, at);
}

bool usc_sim_guard_mend(const void *address, int64_t *at, size_t *block_size)
{
    bool broken = false;
    usc_sim_memory_lock();
    block *b = usc_sim_block_of(address);
    if (b != NULL && b->zoned && b->n_writers > 0) {
        const char *end = b->user + b->asked;
        const char *found = first_other(end, zone_behind(b));
        if (found == NULL) found = first_other(b->user - zone_before(b), zone_before(b));
        broken = found != NULL;
        if (broken) {
            *at = found < b->user ? found - b->user : found - end;
            *block_size = b->asked;
            memset(b->user - zone_before(b), ZONE_BYTE, zone_before(b));
            memset(b->user + b->asked, ZONE_BYTE, zone_behind(b));
        }
    }
    usc_sim_memory_unlock();
    return broken;
}

bool usc_sim_extent(const void *address, const char **first, const char **end, bool *live)
{
    usc_sim_memory_lock();
    const block *b = usc_sim_block_of(address);
    const bool there = b != NULL && b->user != NULL;
    if (there) {
        *first = b->user;
        *end = b->user + b->asked;
        *live = b->live;
    }
    usc_sim_memory_unlock();
    return there;
}
