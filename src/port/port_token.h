// SPDX-License-Identifier: Apache-2.0
// Sources in C++ and Python cut into tokens that tile the file: token i ends where token
// i + 1 begins, the first begins at 0, the last ends with the file. So what no rule
// touches is written back byte for byte, whatever it is. No grammar: a tokenizer is never
// wrong about where a text, a comment or a name ends, and asks for no more than that.
#ifndef USC_PORT_TOKEN_H
#define USC_PORT_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum usc_port_kind {
    USC_PORT_SPACE, /* blanks, spliced lines, a byte order mark */
    USC_PORT_NEWLINE,
    USC_PORT_COMMENT, /* the last one that means nothing in C++ */
    USC_PORT_NAME,
    USC_PORT_NUMBER,
    USC_PORT_TEXT,   /* a string with prefix and quotes; of a character, too */
    USC_PORT_HEADER, /* what #include names, with its quotes */
    USC_PORT_OPEN,   /* f" */
    USC_PORT_MIDDLE, /* literal part of an f-string */
    USC_PORT_CLOSE,  /* the quotes that end it */
    USC_PORT_PUNCT   /* one character, but for :: and -> in C++ */
} usc_port_kind;

typedef struct usc_port_token {
    uint32_t start, end;
    uint8_t kind;      /* usc_port_kind */
    uint8_t directive; /* C++: part of a preprocessor line */
    uint8_t spliced;   /* C++: a name with the end of a line in it */
} usc_port_token;

typedef struct usc_port_tokens {
    usc_port_token *token;
    size_t n, size;
    bool failed;      /* no memory at some time */
    const char *open; /* what never ends: "a text in quotes"; NULL: all ends */
    size_t open_at;   /* the byte at which it begins */
} usc_port_tokens;

/** Cuts C++ into tokens; `n` is below 2^32. Zero *out before. */
void usc_port_cut_cxx(const char *text, size_t n, usc_port_tokens *out);

/** The same of Python. */
void usc_port_cut_python(const char *text, size_t n, usc_port_tokens *out);

/** Makes room for n tokens at the beginning, where there is memory. */
void usc_port_tokens_reserve(usc_port_tokens *out, size_t n);

/** Makes room for one more token. False: no memory, which `failed` tells. */
bool usc_port_tokens_grow(usc_port_tokens *out);

/** Appends a token that begins where the last one ended; an empty one is none. Inline: of
 * every four bytes of a source one ends a token. */
static inline void usc_port_push(usc_port_tokens *out, usc_port_kind kind, size_t end,
                                 bool directive)
{
    const uint32_t start = out->n > 0 ? out->token[out->n - 1].end : 0;
    if (end <= start || (out->n == out->size && !usc_port_tokens_grow(out))) return;
    out->token[out->n++] = (usc_port_token){.start = start,
                                            .end = (uint32_t)end,
                                            .kind = (uint8_t)kind,
                                            .directive = directive};
}

/** Remembers the first thing that does not end. */
void usc_port_unended(usc_port_tokens *out, const char *what, size_t at);

/* Letters, digits, _ and what is above ASCII. */
extern const bool usc_port_name_bytes[256];

/** Whether a byte may stand in a name: UTF-8 above ASCII may. */
static inline bool usc_port_in_name(char c)
{
    return usc_port_name_bytes[(unsigned char)c];
}

/** Whether a token is this word. Inline, as its neighbours are: asked of each token many
 * times, with a word whose length the compiler knows. */
static inline bool usc_port_is(const char *text, const usc_port_token *t,
                               const char *word)
{
    const size_t n = strlen(word);
    return t->end - t->start == n && memcmp(text + t->start, word, n) == 0;
}

void usc_port_tokens_free(usc_port_tokens *tokens);

#endif
