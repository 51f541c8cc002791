// SPDX-License-Identifier: Apache-2.0
// Contracts: utf8.h.
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

size_t usc_utf8_next(const char *text, uint32_t *code)
{
    const unsigned char *s = (const unsigned char *)text;
    static const struct {
        unsigned char mask, lead;
        uint32_t least;
    } forms[] = {
        {0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    for (size_t n = 1; n <= 4; n++) {
        if ((s[0] & forms[n - 1].mask) != forms[n - 1].lead) continue;
        uint32_t c = s[0] & (unsigned char)~forms[n - 1].mask;
        for (size_t i = 1; i < n; i++) {
            if ((s[i] & 0xc0) != 0x80) return 0; /* also the end of the text */
            c = (c << 6) | (s[i] & 0x3f);
        }
        if (c < forms[n - 1].least || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
            return 0;
        *code = c;
        return n;
    }
    return 0;
}

size_t usc_utf8_put(uint32_t code, char out[static 4])
{
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    const size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(lead[n] | code);
    return n;
}

/* Bytes that stand for themselves. */
static size_t plain_bytes(const char *text)
{
    size_t n = 0;
    while (text[n] >= 0x20 && text[n] < 0x7f && text[n] != '"' && text[n] != '\\')
        n++;
    return n;
}

bool usc_json_string(const char *text, usc_json_bad bad,
                     void (*put)(void *ctx, const char *bytes, size_t n), void *ctx)
{
    bool good = true;
    put(ctx, "\"", 1);
    while (*text != '\0') {
        char escape[8];
        uint32_t code = 0;
        size_t n = plain_bytes(text);
        if (n > 0) {
            put(ctx, text, n);
            text += n;
            continue;
        }
        n = usc_utf8_next(text, &code);
        if (n == 0) {
            good = false;
            const unsigned low = (unsigned char)*text;
            (void)snprintf(escape, sizeof escape, "\\u%04x",
                           bad == USC_JSON_BAD_KEPT ? 0xdc00u + low : 0xfffdu);
            put(ctx, escape, 6);
        } else if (n == 1 && (code == '"' || code == '\\')) {
            const char pair[2] = {'\\', *text};
            put(ctx, pair, 2);
        } else if (n == 1) { /* a control character */
            (void)snprintf(escape, sizeof escape, "\\u%04x", (unsigned)code & 0xff);
            put(ctx, escape, 6);
        } else {
            put(ctx, text, n);
        }
        text += n > 0 ? n : 1;
    }
    put(ctx, "\"", 1);
    return good;
}

void usc_csv_string(const char *text, void (*put)(void *ctx, const char *bytes, size_t n),
                    void *ctx)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        put(ctx, text, strlen(text));
        return;
    }
    put(ctx, "\"", 1);
    for (; *text != '\0'; text++) {
        if (*text == '"') put(ctx, "\"", 1);
        put(ctx, text, 1);
    }
    put(ctx, "\"", 1);
}
