// SPDX-License-Identifier: Apache-2.0
// JSON that came from anywhere, by jansson, which json.c alone sees. A document is read
// whole; its values are then asked for by kind, and the first one that is missing or of
// another kind is named, with its place. Memory is the C library's, not usc_alloc's:
// jansson has one allocator for the whole process, which is not ours to set.
#ifndef USC_JSON_H
#define USC_JSON_H

#include <stdio.h>
#include <ulpscope/status.h>

#include "base/arena.h"
#include "base/line.h"

/** A value; lives as long as its document. */
typedef struct json_t usc_json;

/**
 * Reads a document. `name` begins the text of an error, `else_what` goes on where this is
 * no JSON: "r.json", "not the manifest of a pack". A key must not stand twice in an
 * object, nor a zero in a text; integers have 64 bits.
 *
 * Errors:  USC_E_CORRUPT (err->where: byte at which it stops being JSON), USC_E_IO,
 *          USC_E_NOMEM.
 */
USC_NODISCARD usc_status usc_json_parse(const char *text, size_t size, const char *name,
                                        const char *else_what, usc_json **out,
                                        usc_error *err);
USC_NODISCARD usc_status usc_json_read(FILE *file, const char *name,
                                       const char *else_what, usc_json **out,
                                       usc_error *err);

/** The same of what Python writes: NaN, Infinity and -Infinity become the texts "nan",
 * "inf" and "-inf". `room` holds the text meanwhile; it is the caller's to free. */
USC_NODISCARD usc_status usc_json_parse_python(usc_line *room, const char *text, size_t n,
                                               const char *name, const char *else_what,
                                               usc_json **out, usc_error *err);

/** Frees a document; NULL is allowed. */
void usc_json_free(usc_json *root);

/** Takes values out of one document, and remembers what was first wrong with one. */
typedef struct usc_json_taker {
    const char *name; /* of the document, begins the text of an error */
    char place[64];   /* of the object at hand: "calls[3]"; "" for the outermost */
    usc_status status;
    usc_error *err;
} usc_json_taker;

/** Says that a value is wrong: `key` of the object at hand, NULL the object itself.
 * Only the first one counts. */
void usc_json_wrong(usc_json_taker *t, const char *key, const char *how);

/** Value of `key`; NULL where the object is NULL or has none, or null. */
const usc_json *usc_json_get(const usc_json *object, const char *key);

/* Value of `key` by kind, by default where there is none or null; of another kind is
 * USC_E_CORRUPT in the taker. Numbers are integers too; flags may be 0 and 1. */
const char *usc_json_text(usc_json_taker *t, const usc_json *object, const char *key,
                          const char *otherwise);
int64_t usc_json_integer(usc_json_taker *t, const usc_json *object, const char *key,
                         int64_t otherwise);
double usc_json_number(usc_json_taker *t, const usc_json *object, const char *key,
                       double otherwise);
bool usc_json_flag(usc_json_taker *t, const usc_json *object, const char *key);
const usc_json *usc_json_list(usc_json_taker *t, const usc_json *object, const char *key);
const usc_json *usc_json_object(usc_json_taker *t, const usc_json *object,
                                const char *key);

/** Number of items of a list or members of an object; 0 of NULL and of others. */
size_t usc_json_size(const usc_json *value);

/** Item of a list; NULL outside of it. */
const usc_json *usc_json_item(const usc_json *list, size_t i);

/** Text of a value; NULL where it is none. */
const char *usc_json_as_text(const usc_json *value);

/** Whether it is an integer, which is then in *out. */
bool usc_json_as_integer(const usc_json *value, int64_t *out);

/** The number that it is, or that a text "nan", "inf" or "-inf" says; NaN for others. */
double usc_json_as_number(const usc_json *value);

bool usc_json_is_true(const usc_json *value);
bool usc_json_is_flag(const usc_json *value);
bool usc_json_is_null(const usc_json *value);
bool usc_json_is_object(const usc_json *value);
bool usc_json_is_list(const usc_json *value);

/** Goes over the members of an object in their order, from *at == NULL on:
 * `for (void *at = NULL; usc_json_next(o, &at, &key, &value);)`. */
bool usc_json_next(const usc_json *object, void **at, const char **key,
                   const usc_json **value);

/** Whether a text is one JSON value and nothing else. Errors: USC_E_NOMEM. */
USC_NODISCARD usc_status usc_json_valid(const char *text, bool *out, usc_error *err);

/** A text as JSON, in quotes, in the arena; NULL where it is no UTF-8 or there is no
 * memory (arena->failed). */
const char *usc_json_quoted(const char *text, usc_arena *arena);

/** The value as JSON without spaces, in the arena; NULL where there is no memory. */
const char *usc_json_print(const usc_json *value, usc_arena *arena);

/** The same with a line for each member, a level one space deeper. */
const char *usc_json_print_lines(const usc_json *value, usc_arena *arena);

#endif
