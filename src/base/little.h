// SPDX-License-Identifier: Apache-2.0
// Numbers as files hold them, the lowest byte first, wherever they lie.
#ifndef USC_BASE_LITTLE_H
#define USC_BASE_LITTLE_H

#include <stdint.h>

/** The number in `n` bytes, at most 8. */
static inline uint64_t usc_little(const void *bytes, int n)
{
    const uint8_t *at = bytes;
    uint64_t value = 0;
    for (int i = n; i-- > 0;)
        value = value << 8 | at[i];
    return value;
}

#endif
