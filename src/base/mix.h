// SPDX-License-Identifier: Apache-2.0
// Spreading a counter over all bits: what draws, hashes and moved inputs are made of.
#ifndef USC_BASE_MIX_H
#define USC_BASE_MIX_H

#include <stdint.h>

/** The finalizer of splitmix64 (Steele, Lea, Flood, OOPSLA 2014): a bijection, in which
 * each bit of x changes half of those of the result. */
static inline uint64_t usc_mixed(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

#endif
