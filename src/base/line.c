// SPDX-License-Identifier: Apache-2.0
// A text in one piece of memory that doubles.
#include "base/line.h"

#include <stdarg.h>
#include <string.h>

#include <ulpscope/alloc.h>

#include "base/number.h"

static bool reserve(usc_line *l, size_t more)
{
    if (l->failed || more >= SIZE_MAX / 4 - l->n) l->failed = true;
    if (l->failed) return false;
    if (l->n + more < l->size) return true;
    size_t size = l->size > 0 ? l->size : 128;
    while (size <= l->n + more)
        size *= 2;
    char *text = usc_libc_alloc.resize(NULL, l->text, l->size, size);
    if (text == NULL) {
        l->failed = true;
        return false;
    }
    l->text = text;
    l->size = size;
    return true;
}

void usc_line_put(usc_line *l, const char *bytes, size_t n)
{
    if (!reserve(l, n)) return;
    memcpy(l->text + l->n, bytes, n);
    l->n += n;
    l->text[l->n] = '\0';
}

void usc_line_text(usc_line *l, const char *text)
{
    usc_line_put(l, text, strlen(text));
}

void usc_line_add(usc_line *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = usc_format_list(NULL, 0, format, args);
    va_end(args);
    if (n < 0 || !reserve(l, (size_t)n)) return;
    va_start(args, format);
    (void)usc_format_list(l->text + l->n, (size_t)n + 1, format, args);
    va_end(args);
    l->n += (size_t)n;
}

/* Bytes of the UTF-8 sequence at `p`, 0 where there is none: overlong forms, surrogates
 * and what lies above U+10FFFF are none. */
static size_t sequence_at(const unsigned char *p)
{
    static const struct {
        unsigned char first, last, low, high; /* of the first byte, of the second */
        size_t n;
    } rows[] = {{0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
                {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3},
                {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
                {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
    if (p[0] < 0x80) return 1;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (p[0] < rows[i].first || p[0] > rows[i].last) continue;
        if (p[1] < rows[i].low || p[1] > rows[i].high) return 0;
        for (size_t k = 2; k < rows[i].n; k++)
            if ((p[k] & 0xc0) != 0x80) return 0;
        return rows[i].n;
    }
    return 0;
}

void usc_line_json(usc_line *l, const char *text)
{
    usc_line_put(l, "\"", 1);
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0';) {
        const size_t n = sequence_at(p);
        if (n == 0)
            usc_line_add(l, "\\udc%02x", *p);
        else if (*p < 0x20)
            usc_line_add(l, "\\u%04x", *p);
        else if (*p == '"' || *p == '\\')
            usc_line_add(l, "\\%c", *p);
        else
            usc_line_put(l, (const char *)p, n);
        p += n > 0 ? n : 1;
    }
    usc_line_put(l, "\"", 1);
}

void usc_line_count(usc_line *l, int64_t n)
{
    char digits[24];
    const int length = usc_format(digits, sizeof digits, "%lld", (long long)n);
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0 && digits[i - 1] != '-')
            usc_line_put(l, ",", 1);
        usc_line_put(l, &digits[i], 1);
    }
}

void usc_line_clear(usc_line *l)
{
    l->n = 0;
    if (l->text != NULL) l->text[0] = '\0';
}

void usc_line_free(usc_line *l)
{
    if (l->text != NULL) (void)usc_libc_alloc.resize(NULL, l->text, l->size, 0);
    *l = (usc_line){0};
}
