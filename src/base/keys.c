// SPDX-License-Identifier: Apache-2.0
// Open addressing, at most half full. Keys are hashes, so that their low bits will do.
#include "base/keys.h"

#include <string.h>

#include <ulpscope/alloc.h>

static size_t home_of(usc_hash128 key)
{
    return (size_t)(key.low ^ key.high * 0x9e3779b97f4a7c15u);
}

static usc_key_slot *slot_of(const usc_keys *k, usc_hash128 key)
{
    for (size_t i = home_of(key);; i++) {
        usc_key_slot *s = &k->slot[i & (k->size - 1)];
        if (!s->used || (s->key.low == key.low && s->key.high == key.high)) return s;
    }
}

static void grow(usc_keys *k)
{
    usc_keys larger = {.size = k->size > 0 ? 2 * k->size : 64};
    larger.slot = usc_libc_alloc.resize(NULL, NULL, 0, larger.size * sizeof *larger.slot);
    if (larger.slot == NULL) {
        k->failed = true;
        return;
    }
    memset(larger.slot, 0, larger.size * sizeof *larger.slot);
    for (size_t i = 0; i < k->size; i++)
        if (k->slot[i].used) *slot_of(&larger, k->slot[i].key) = k->slot[i];
    larger.n = k->n;
    larger.failed = k->failed;
    usc_keys_free(k);
    *k = larger;
}

int64_t usc_keys_put(usc_keys *k, usc_hash128 key, int64_t value)
{
    if (k->n >= k->size / 2) grow(k);
    if (k->n + 1 >= k->size) return value; /* no memory, which `failed` tells */
    usc_key_slot *s = slot_of(k, key);
    if (s->used) return s->value;
    *s = (usc_key_slot){.key = key, .value = value, .used = true};
    k->n++;
    return value;
}

int64_t *usc_keys_find(const usc_keys *k, usc_hash128 key)
{
    if (k->size == 0) return NULL;
    usc_key_slot *s = slot_of(k, key);
    return s->used ? &s->value : NULL;
}

void usc_keys_remove(usc_keys *k, usc_hash128 key)
{
    if (k->size == 0) return;
    const size_t mask = k->size - 1;
    usc_key_slot *s = slot_of(k, key);
    if (!s->used) return;
    k->n--;
    size_t hole = (size_t)(s - k->slot);
    /* what lies behind the hole and would not be found over it moves into it */
    for (size_t i = (hole + 1) & mask; k->slot[i].used; i = (i + 1) & mask)
        if (((i - home_of(k->slot[i].key)) & mask) >= ((i - hole) & mask)) {
            k->slot[hole] = k->slot[i];
            hole = i;
        }
    k->slot[hole].used = false;
}

usc_hash128 usc_key_of(const char *text)
{
    return usc_hash_bytes(text, text != NULL ? strlen(text) : 0);
}

void usc_keys_free(usc_keys *k)
{
    if (k->slot != NULL)
        (void)usc_libc_alloc.resize(NULL, k->slot, k->size * sizeof *k->slot, 0);
    *k = (usc_keys){0};
}
