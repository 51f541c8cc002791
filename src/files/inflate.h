// SPDX-License-Identifier: Apache-2.0
// Deflate (RFC 1951), as members of a zip archive have it, and gzip (RFC 1952).
#ifndef USC_FILES_INFLATE_H
#define USC_FILES_INFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Unpacks `n` bytes to exactly `size` at `out`. False: they are no deflate stream, or
 * one of another size. Bytes from anywhere are safe. */
bool usc_inflate(const uint8_t *bytes, size_t n, uint8_t *out, size_t size);

/** Unpacks gzip, of one member or more behind each other, to at most `most` bytes, which
 * the caller frees. False: none, damaged, cut off, larger, or no memory. */
bool usc_gunzip(const uint8_t *bytes, size_t n, size_t most, uint8_t **out, size_t *size);

/** CRC-32 of zip archives and gzip. */
uint32_t usc_crc32(const uint8_t *bytes, size_t n);

#endif
