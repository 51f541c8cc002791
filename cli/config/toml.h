// SPDX-License-Identifier: Apache-2.0
// A file of TOML 1.0, read once from front to end: what is found is handed on with the
// keys that lead to it, and nothing is kept. There is no C library for TOML among
// Debian's packages. https://toml.io/en/v1.0.0
#ifndef ULPSCOPE_CLI_TOML_H
#define ULPSCOPE_CLI_TOML_H

#include <stdbool.h>
#include <stddef.h>

enum {
    TOML_MOST_KEYS = 16,   /* of deeper ones the first are handed on */
    TOML_LONGEST_KEY = 96, /* bytes of one with its zero; a longer one is cut */
    TOML_DEEPEST = 64      /* arrays and inline tables within each other */
};

typedef enum toml_kind {
    TOML_TEXT,
    TOML_BOOL,  /* "true" or "false" */
    TOML_PLAIN, /* a number, a date or a time, as it stands there */
    TOML_ARRAY, /* one begins; its elements follow with the same keys */
    TOML_TABLE  /* [keys] or [[keys]], or an inline table begins */
} toml_kind;

typedef struct toml_value {
    char keys[TOML_MOST_KEYS][TOML_LONGEST_KEY];
    int n_keys; /* may be over TOML_MOST_KEYS */
    toml_kind kind;
    const char *text; /* valid while it is heard; "" for an array and a table */
    int line;         /* from 1 */
    bool in_array;
} toml_value;

/** Hears a value; false ends the reading, which the hearer has reason to know. */
typedef bool toml_hear(const toml_value *value, void *ctx);

/**
 * Reads `size` bytes. False where they are no TOML: `line` and `why`, 128 bytes, say where
 * and what is wrong; and where `hear` ended it: `why` is "" then. That a key is given
 * twice is the hearer's to find.
 */
bool toml_read(const char *bytes, size_t size, toml_hear *hear, void *ctx, int *line,
               char why[static 128]);

#endif
