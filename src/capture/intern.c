// SPDX-License-Identifier: Apache-2.0
// Open addressing with linear probing, at most half full; keys are hashes already.
#include "capture/intern.h"

#include <string.h>

static usc_intern_slot *slot_for(const usc_intern *t, usc_hash128 key)
{
    const uint64_t mask = (uint64_t)t->n_slots - 1;
    uint64_t i = (key.low ^ key.high) & mask;
    while (t->slots[i].id != 0 &&
           (t->slots[i].key.low != key.low || t->slots[i].key.high != key.high))
        i = (i + 1) & mask;
    return &t->slots[i];
}

int64_t usc_intern_find(const usc_intern *t, usc_hash128 key)
{
    return t->n_slots > 0 ? slot_for(t, key)->id : 0;
}

static bool grow(usc_intern *t, const usc_alloc *alloc)
{
    usc_intern bigger = {.n = t->n, .n_slots = t->n_slots > 0 ? 2 * t->n_slots : 64};
    const size_t size = (size_t)bigger.n_slots * sizeof *bigger.slots;
    bigger.slots = alloc->resize(alloc->ctx, NULL, 0, size);
    if (bigger.slots == NULL) return false;
    memset(bigger.slots, 0, size);
    for (int64_t i = 0; i < t->n_slots; i++)
        if (t->slots[i].id != 0) *slot_for(&bigger, t->slots[i].key) = t->slots[i];
    usc_intern_free(t, alloc);
    *t = bigger;
    return true;
}

int64_t usc_intern_add(usc_intern *t, const usc_alloc *alloc, usc_hash128 key)
{
    if (2 * (t->n + 1) > t->n_slots && !grow(t, alloc)) return 0;
    usc_intern_slot *slot = slot_for(t, key);
    slot->key = key;
    slot->id = ++t->n;
    return slot->id;
}

void usc_intern_free(usc_intern *t, const usc_alloc *alloc)
{
    if (t->slots != NULL)
        alloc->resize(alloc->ctx, t->slots, (size_t)t->n_slots * sizeof *t->slots, 0);
    *t = (usc_intern){0};
}
