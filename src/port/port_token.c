// SPDX-License-Identifier: Apache-2.0
#include "port/port_token.h"

#include <stdlib.h>
#include <string.h>

void usc_port_push(usc_port_tokens *out, usc_port_kind kind, size_t end, bool directive)
{
    const uint32_t start = out->n > 0 ? out->token[out->n - 1].end : 0;
    if (out->failed || end <= start) return;
    if (out->n == out->size) {
        const size_t size = out->size > 0 ? out->size + out->size / 2 : 256;
        usc_port_token *grown = realloc(out->token, size * sizeof *grown);
        if (grown == NULL) {
            out->failed = true;
            return;
        }
        out->token = grown;
        out->size = size;
    }
    out->token[out->n++] =
        (usc_port_token){start, (uint32_t)end, (uint8_t)kind, (uint8_t)directive};
}

void usc_port_unended(usc_port_tokens *out, const char *what, size_t at)
{
    if (out->open != NULL) return;
    out->open = what;
    out->open_at = at;
}

bool usc_port_in_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_' || (unsigned char)c >= 0x80;
}

bool usc_port_is(const char *text, const usc_port_token *t, const char *word)
{
    const size_t n = strlen(word);
    return t->end - t->start == n && memcmp(text + t->start, word, n) == 0;
}

void usc_port_tokens_free(usc_port_tokens *tokens)
{
    free(tokens->token);
    *tokens = (usc_port_tokens){0};
}
