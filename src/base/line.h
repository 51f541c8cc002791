// SPDX-License-Identifier: Apache-2.0
// Text that grows while it is made: lines for other processes, sentences of any length.
// Zero it to begin; the first failure sticks.
#ifndef USC_BASE_LINE_H
#define USC_BASE_LINE_H

#include <stddef.h>

#include <ulpscope/api.h>

typedef struct usc_line {
    char *text; /* ends with a zero; NULL while empty */
    size_t n, size;
    bool failed; /* no memory at some time */
} usc_line;

/** Appends bytes. */
void usc_line_put(usc_line *l, const char *bytes, size_t n);

/** Appends text. */
void usc_line_text(usc_line *l, const char *text);

/** Appends what a format gives, in the locale "C". */
void usc_line_add(usc_line *l, const char *format, ...) USC_PRINTF(2, 3);

/** Appends a JSON string. A byte that is no UTF-8 becomes the code \udcXX, from which
 * Python makes the byte again: names of files may hold any. */
void usc_line_json(usc_line *l, const char *text);

/** Appends a field of CSV, in quotes where it needs them. */
void usc_line_csv(usc_line *l, const char *text);

/** Appends a whole number with commas between thousands. */
void usc_line_count(usc_line *l, int64_t n);

/** Appends text as HTML. */
void usc_line_html(usc_line *l, const char *text);

/** Appends one of eight block characters for a share of the whole; a space for NaN. */
void usc_line_block(usc_line *l, double share);

/** Empties it and keeps its memory. */
void usc_line_clear(usc_line *l);

/** Frees it. */
void usc_line_free(usc_line *l);

#endif
