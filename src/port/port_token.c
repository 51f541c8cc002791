// SPDX-License-Identifier: Apache-2.0
#include "port/port_token.h"

#include <stdlib.h>
#include <string.h>

#define N4 0, 0, 0, 0
#define Y4 1, 1, 1, 1
#define N16 N4, N4, N4, N4
#define Y16 Y4, Y4, Y4, Y4

/* A row for 16 bytes. clang-format would make one column of it. */
/* clang-format off */
const bool usc_port_name_bytes[256] = {
    N16,
    N16,
    N16,
    Y4, Y4, 1, 1, 0, 0, N4, /* 0-9 */
    0, 1, 1, 1, Y4, Y4, Y4, /* A-O */
    Y4, Y4, 1, 1, 1, 0, 0, 0, 0, 1, /* P-Z, _ */
    0, 1, 1, 1, Y4, Y4, Y4,
    Y4, Y4, 1, 1, 1, 0, N4,
    Y16, Y16, Y16, Y16, Y16, Y16, Y16, Y16};
/* clang-format on */

void usc_port_tokens_reserve(usc_port_tokens *out, size_t n)
{
    if (out->token != NULL) return;
    out->token = malloc((n + 64) * sizeof *out->token);
    out->size = out->token != NULL ? n + 64 : 0;
}

bool usc_port_tokens_grow(usc_port_tokens *out)
{
    const size_t size = out->size > 0 ? out->size + out->size / 2 : 256;
    usc_port_token *grown =
        out->failed ? NULL : realloc(out->token, size * sizeof *grown);
    if (grown == NULL) {
        out->failed = true;
        return false;
    }
    out->token = grown;
    out->size = size;
    return true;
}

void usc_port_unended(usc_port_tokens *out, const char *what, size_t at)
{
    if (out->open != NULL) return;
    out->open = what;
    out->open_at = at;
}

void usc_port_tokens_free(usc_port_tokens *tokens)
{
    free(tokens->token);
    *tokens = (usc_port_tokens){0};
}
