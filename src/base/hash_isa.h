// SPDX-License-Identifier: Apache-2.0
// The hashes of hash.h compiled for one instruction set; call only where the CPU has it.
#ifndef USC_BASE_HASH_ISA_H
#define USC_BASE_HASH_ISA_H

#include "base/hash.h"

usc_hash128 usc_hash_bytes_avx2(const void *data, size_t size);
uint64_t usc_hash64_bytes_avx2(const void *data, size_t size);

#endif
