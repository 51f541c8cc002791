// SPDX-License-Identifier: Apache-2.0
// A text in one piece of memory that doubles.
#include "base/line.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include <ulpscope/alloc.h>

#include "base/number.h"
#include "base/utf8.h"

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
    if (n > 0) memcpy(l->text + l->n, bytes, n); /* of no bytes the address may be NULL */
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

static void put(void *ctx, const char *bytes, size_t n)
{
    usc_line_put(ctx, bytes, n);
}

void usc_line_json(usc_line *l, const char *text)
{
    (void)usc_json_string(text, USC_JSON_BAD_KEPT, put, l);
}

void usc_line_csv(usc_line *l, const char *text)
{
    usc_csv_string(text, put, l);
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

void usc_line_html(usc_line *l, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '<')
            usc_line_text(l, "&lt;");
        else if (*text == '&')
            usc_line_text(l, "&amp;");
        else
            usc_line_put(l, text, 1);
    }
}

void usc_line_block(usc_line *l, double share)
{
    static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const int i = share >= 1 ? 7 : share > 0 ? (int)(share * 8) : 0;
    usc_line_text(l, isnan(share) ? " " : blocks[i]);
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
