// SPDX-License-Identifier: Apache-2.0
// The arguments of a call as JSON, written piece by piece: docs/reference/trace-format.md,
// "Arguments". Nothing else writes them. Neighbour: value.h reads them.
//
// Threads: safe, each with a text of its own.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_WRITING_H
#define ULPSCOPE_X_WRITING_H

#include <ulpscope/value.h>

USC_BEGIN_DECLS

/** The JSON of a call's arguments while it is written: usc_writing_begin, those by
 * position, usc_writing_names, a name and a value for each of the others,
 * usc_writing_end. Zero it before the first call; its memory serves the next. What fails
 * on the way is told at the end. */
typedef struct usc_writing {
    char *text;
    size_t n, size;
    size_t most; /* bytes; longer ones fail. 0: any */
    bool places; /* tensors by their places, {"tensor": "args[0]"}, as a pack has them */
    bool failed;
} usc_writing;

/** Begins, with those by position. */
USC_API void usc_writing_begin(usc_writing *w);

/** Writes one value, whole. A text that is no UTF-8 is OTHER. */
USC_API void usc_writing_value(usc_writing *w, const usc_value *value);

/** Around the values of a LIST, TUPLE or SLICE, or the names and values of a MAP, that
 * are written one by one. */
USC_API void usc_writing_open(usc_writing *w, usc_value_kind kind);
USC_API void usc_writing_close(usc_writing *w, usc_value_kind kind);

/** Those by keyword follow. */
USC_API void usc_writing_names(usc_writing *w);

/** The name of the value that follows. */
USC_API void usc_writing_name(usc_writing *w, const char *name);

/** The text. Memory: until the next one is begun. NULL: no memory, or too long. */
USC_API const char *usc_writing_end(usc_writing *w);

/** Writes arguments that were read. Memory: as usc_writing_end. */
USC_API const char *usc_writing_arguments(usc_writing *w, const usc_arguments *a);

/** Frees and zeroes. */
USC_API void usc_writing_free(usc_writing *w);

USC_END_DECLS
#endif
