// SPDX-License-Identifier: Apache-2.0
// xxHash, compiled in: nothing of it is exported and no library is needed at run time.
#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

usc_hash128 usc_hash_bytes(const void *data, size_t size)
{
    const XXH128_hash_t hash = XXH3_128bits(data, size);
    return (usc_hash128){.low = hash.low64, .high = hash.high64};
}

uint64_t usc_hash64_bytes(const void *data, size_t size)
{
    return XXH3_64bits(data, size);
}
