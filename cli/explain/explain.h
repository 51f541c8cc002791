// SPDX-License-Identifier: Apache-2.0
// The words that pages of the documentation explain, found in the very pages: a headline
// that is nothing but a word, with what stands below it, or a row of a table that begins
// with one. So the program and the page cannot come to differ.
#ifndef ULPSCOPE_CLI_EXPLAIN_H
#define ULPSCOPE_CLI_EXPLAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { EXPLAIN_MOST = 320, EXPLAIN_WORD = 64, EXPLAIN_TEXT = 4096, EXPLAIN_TOLD = 24 };

/* A piece of a page. */
typedef struct explain_span {
    const char *at;
    size_t n;
} explain_span;

typedef struct explain_entry {
    char word[EXPLAIN_WORD]; /* as it is written: "E_SHAPE" */
    const char *kind;        /* "verdict", "excuse", ... */
    const char *page;        /* "docs/reference/words.md" */
    char anchor[EXPLAIN_WORD];
    explain_span text;   /* below the headline, or the row of a table */
    explain_span titles; /* of the table; empty: it is no row */
} explain_entry;

typedef struct explain_words {
    explain_entry entry[EXPLAIN_MOST];
    int n;
} explain_words;

/** All words, in the order of the pages. */
void explain_read(explain_words *out);

/** Lower case, one space between words, without marks of code and a last full stop: what
 * words are compared by. Cut to `size`. */
void explain_plain(const char *text, size_t n, char *out, size_t size);

/* How a word was found. */
typedef enum explain_how {
    EXPLAIN_NONE,  /* not at all */
    EXPLAIN_WORDS, /* these are meant: all are of one word, or it is the only one */
    EXPLAIN_AMONG, /* it occurs in these */
} explain_how;

/**
 * What `query` means: the word itself, or the cause whose clause it is; the word that
 * makes up most of it; else words, then texts, in which it stands, or the most of its
 * beginning does. At most EXPLAIN_TOLD of them in `found`.
 */
explain_how explain_find(const explain_words *words, const char *query,
                         const explain_entry *found[EXPLAIN_TOLD], int *n);

/** The code of the cause that a clause in plain text is of; NULL: of none that the result
 * alone shows. */
const char *explain_clause(const char *clause);

/** The clauses of a cause, `...` where a number or a name stands, one a line; "" for
 * other words. */
void explain_clauses(const explain_entry *e, char out[EXPLAIN_TEXT]);

/** The text of an entry without marks of Markdown: paragraphs, an empty line between. */
void explain_text(const explain_entry *e, char out[EXPLAIN_TEXT]);

#endif
