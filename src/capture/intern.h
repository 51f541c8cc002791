// SPDX-License-Identifier: Apache-2.0
// A map from 128-bit keys (hashes of names, stack keys) to ids from 1. Only grows.
#ifndef USC_CAPTURE_INTERN_H
#define USC_CAPTURE_INTERN_H

#include "base/hash.h"

#include <ulpscope/alloc.h>

typedef struct usc_intern_slot {
    usc_hash128 key;
    int64_t id; /* 0: empty */
} usc_intern_slot;

typedef struct usc_intern {
    usc_intern_slot *slots;
    int64_t n, n_slots; /* n_slots: 0 or a power of two */
} usc_intern;

/** Id of `key`, 0 where it is not there. */
int64_t usc_intern_find(const usc_intern *t, usc_hash128 key);

/** Adds `key`, which is not there; returns its id, 0 where memory is out. */
int64_t usc_intern_add(usc_intern *t, const usc_alloc *alloc, usc_hash128 key);

/** Frees the slots. */
void usc_intern_free(usc_intern *t, const usc_alloc *alloc);

#endif
