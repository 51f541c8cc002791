// SPDX-License-Identifier: Apache-2.0
// UTF-8 taken apart, and texts as JSON strings: the only place that knows either.
#ifndef USC_BASE_UTF8_H
#define USC_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Length of the UTF-8 sequence at `text` (not empty); 0 where it is not UTF-8: overlong
 * forms, surrogates and what lies above U+10FFFF are none. Its code goes to *code. */
size_t usc_utf8_next(const char *text, uint32_t *code);

/** Writes the code of a character, at most U+10FFFF, as UTF-8: how many bytes, 1 to 4. */
size_t usc_utf8_put(uint32_t code, char out[static 4]);

/** What stands in a JSON string for a byte that is no UTF-8. */
typedef enum usc_json_bad {
    USC_JSON_BAD_REPLACED, /* U+FFFD */
    USC_JSON_BAD_KEPT      /* \udcXX, from which Python makes the byte again */
} usc_json_bad;

/** Writes a text as a JSON string, in quotes, piece by piece. False: some was no UTF-8.
 */
bool usc_json_string(const char *text, usc_json_bad bad,
                     void (*put)(void *ctx, const char *bytes, size_t n), void *ctx);

/** Writes a text as a field of CSV, piece by piece: in quotes where it needs them. */
void usc_csv_string(const char *text, void (*put)(void *ctx, const char *bytes, size_t n),
                    void *ctx);

#endif
