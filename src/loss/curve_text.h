// SPDX-License-Identifier: Apache-2.0
// What stands between the bytes of a file and the readers of curves.
#ifndef USC_LOSS_CURVE_TEXT_H
#define USC_LOSS_CURVE_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include <ulpscope/status.h>

typedef struct usc_curve_bytes {
    const char *data;
    size_t size;
    uint8_t *own; /* freed by who asked; NULL: data is what was given */
} usc_curve_bytes;

/** The text in bytes: of gzip what was packed, of UTF-16 UTF-8, without a byte order mark.
 * Errors: USC_E_CORRUPT (damaged gzip), USC_E_NOMEM; out->own is freed then, too. */
USC_NODISCARD usc_status usc_curve_text_of(const char *name, const void *data,
                                           size_t size, usc_curve_bytes *out,
                                           usc_error *err);

/** Whether bytes are no text: by how they begin, or for a zero among the first. */
bool usc_curve_is_binary(const char *data, size_t size);

/** The error on what is no text: what it is, and what to give or do. */
USC_NODISCARD usc_status usc_curve_no_text(const char *name, const char *data,
                                           size_t size, usc_error *err);

/**
 * Copies at most size - 1 of n bytes that begin with a number: without commas between
 * thousands ("1,234.5", "1,234,567"), with a point for a decimal comma ("2,345"). Whether
 * there was such a comma.
 */
bool usc_curve_plain(const char *text, size_t n, char *out, size_t size);

/** The same of a whole number: how much was copied; as it stands where a comma has other
 * than three digits behind it. */
size_t usc_curve_without_thousands(const char *text, size_t n, char *out, size_t size);

#endif
