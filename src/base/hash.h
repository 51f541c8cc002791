// SPDX-License-Identifier: Apache-2.0
// Content hashes: xxh3, seed 0, as xxHash defines them, so that a stranger can check a
// trace with any implementation. hash.c is the only file that sees xxHash.
#ifndef USC_BASE_HASH_H
#define USC_BASE_HASH_H

#include <ulpscope/api.h>

typedef struct usc_hash128 {
    uint64_t low, high;
} usc_hash128;

/** xxh3-128 of `size` bytes; `data` may be NULL where `size` is 0. */
usc_hash128 usc_hash_bytes(const void *data, size_t size);

/** xxh3-64 of `size` bytes; `data` may be NULL where `size` is 0. */
uint64_t usc_hash64_bytes(const void *data, size_t size);

#endif
