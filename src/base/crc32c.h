// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli), as the records of TensorBoard's event files have it.
#ifndef USC_BASE_CRC32C_H
#define USC_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/** Of `n` bytes, masked as TFRecord stores it, so that a CRC of bytes with a CRC in them
 * stays one. */
uint32_t usc_crc32c_masked(const void *bytes, size_t n);

#endif
