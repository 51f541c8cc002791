// SPDX-License-Identifier: Apache-2.0
// A file of TOML 1.0, read once from front to end: what is found is handed on with the
// keys that lead to it, and nothing is kept. There is no C library for TOML among
// Debian's packages. https://toml.io/en/v1.0.0
//
// Threads: safe.
// NULL: where a contract says so.
#ifndef ULPSCOPE_X_TOML_H
#define ULPSCOPE_X_TOML_H

#include <ulpscope/api.h>

USC_BEGIN_DECLS

enum {
    USC_TOML_MOST_KEYS = 16,   /* of deeper ones the first are handed on */
    USC_TOML_LONGEST_KEY = 96, /* bytes of one with its zero; a longer one is cut */
    USC_TOML_DEEPEST = 64      /* arrays and inline tables within each other */
};

typedef enum usc_toml_kind {
    USC_TOML_TEXT,
    USC_TOML_BOOL,  /* "true" or "false" */
    USC_TOML_PLAIN, /* a number, a date or a time, as it stands there */
    USC_TOML_ARRAY, /* one begins; its elements follow with the same keys */
    USC_TOML_TABLE  /* [keys] or [[keys]], or an inline table begins */
} usc_toml_kind;

typedef struct usc_toml_value {
    char keys[USC_TOML_MOST_KEYS][USC_TOML_LONGEST_KEY];
    int n_keys; /* may be over USC_TOML_MOST_KEYS */
    usc_toml_kind kind;
    const char *text; /* valid while it is heard; "" for an array and a table */
    int line;         /* from 1 */
    bool in_array;
} usc_toml_value;

/** Hears a value; false ends the reading, which the hearer has reason to know. */
typedef bool usc_toml_hear(const usc_toml_value *value, void *ctx);

/**
 * Reads `size` bytes at `bytes`, which may be NULL where there are none. False where they
 * are no TOML: `line` and `why`, 128 bytes, say where and what is wrong; and where `hear`
 * ended it: `why` is "" then. That a key is given twice is the hearer's to find.
 *
 * Memory:  what it needs is freed; a value is valid while it is heard.
 */
USC_API bool usc_toml_read(const char *bytes, size_t size, usc_toml_hear *hear, void *ctx,
                           int *line, char why[128]);

USC_END_DECLS
#endif
