// SPDX-License-Identifier: Apache-2.0
// A table from 128-bit keys (hashes of what is looked for) to numbers. Zero it to begin.
#ifndef USC_BASE_KEYS_H
#define USC_BASE_KEYS_H

#include "base/hash.h"

typedef struct usc_key_slot {
    usc_hash128 key;
    int64_t value;
    bool used;
} usc_key_slot;

typedef struct usc_keys {
    usc_key_slot *slot;
    size_t n, size;
    bool failed; /* no memory at some time */
} usc_keys;

/** The number that a key has: the one it had, else `value`, which it has from now on. */
int64_t usc_keys_put(usc_keys *k, usc_hash128 key, int64_t value);

/** The place of a key's number; NULL where it has none. Memory: until usc_keys_put. */
int64_t *usc_keys_find(const usc_keys *k, usc_hash128 key);

/** Forgets a key; nothing where it is not there. */
void usc_keys_remove(usc_keys *k, usc_hash128 key);

/** The hash of a text; NULL is as "". */
usc_hash128 usc_key_of(const char *text);

void usc_keys_free(usc_keys *k);

#endif
