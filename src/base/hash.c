// SPDX-License-Identifier: Apache-2.0
// xxHash, compiled in: nothing of it is exported and no library is needed at run time.
// Long inputs take the AVX2 build of it where there is one; the hashes are the same.
#include "base/hash.h"

#include "base/cpu_probe.h"
#include "base/hash_isa.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Below this xxHash has no vector code. */
#define LONG_INPUT 512

usc_hash128 usc_hash_bytes(const void *data, size_t size)
{
#if defined(__x86_64__)
    if (size >= LONG_INPUT && usc_cpu_has_avx2()) return usc_hash_bytes_avx2(data, size);
#endif
    const XXH128_hash_t hash = XXH3_128bits(data, size);
    return (usc_hash128){.low = hash.low64, .high = hash.high64};
}

uint64_t usc_hash64_bytes(const void *data, size_t size)
{
#if defined(__x86_64__)
    if (size >= LONG_INPUT && usc_cpu_has_avx2())
        return usc_hash64_bytes_avx2(data, size);
#endif
    return XXH3_64bits(data, size);
}
