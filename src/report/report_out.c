// SPDX-License-Identifier: Apache-2.0
// The buffered writer of all renderers; its contract stands in report_out.h.
#include "report/report_out.h"
#include "base/number.h"
#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static usc_status stream_write(void *ctx, const char *bytes, size_t n, usc_error *err)
{
    if (fwrite(bytes, 1, n, (FILE *)ctx) == n) return USC_OK;
    return usc_error_set(err, USC_E_IO, -1, "cannot write: %s", strerror(errno));
}

usc_sink usc_sink_stream(FILE *stream)
{
    return (usc_sink){stream_write, stream};
}

static usc_status text_write(void *ctx, const char *bytes, size_t n, usc_error *err)
{
    (void)err;
    usc_text *t = ctx;
    const size_t room = sizeof t->bytes - 1 - t->n;
    const size_t taken = n < room ? n : room;
    memcpy(t->bytes + t->n, bytes, taken);
    t->n += taken;
    t->bytes[t->n] = '\0';
    return USC_OK;
}

usc_sink usc_text_sink(usc_text *text)
{
    return (usc_sink){text_write, text};
}

usc_status usc_sink_json(const usc_sink *sink, const char *text, usc_error *err)
{
    usc_out o;
    usc_out_begin(&o, sink, err);
    usc_out_json(&o, text);
    return usc_out_end(&o);
}

void usc_out_begin(usc_out *o, const usc_sink *sink, usc_error *err)
{
    o->sink = sink;
    o->err = err;
    o->status = USC_OK;
    o->in_script = false;
    o->n = 0;
}

usc_status usc_out_end(usc_out *o)
{
    if (o->status == USC_OK && o->n > 0)
        o->status = o->sink->write(o->sink->ctx, o->bytes, o->n, o->err);
    o->n = 0;
    return o->status;
}

static void put(usc_out *o, char c)
{
    if (o->n == sizeof o->bytes) (void)!usc_out_end(o);
    o->bytes[o->n++] = c;
}

static void put_all(usc_out *o, const char *bytes, size_t n)
{
    while (n > 0) {
        if (o->n == sizeof o->bytes) (void)!usc_out_end(o);
        const size_t room = sizeof o->bytes - o->n, part = n < room ? n : room;
        memcpy(o->bytes + o->n, bytes, part);
        o->n += part;
        bytes += part;
        n -= part;
    }
}

void usc_out_bytes(usc_out *o, const char *bytes, size_t n)
{
    /* In JSON a '<' stands in strings only, so escaping it anywhere is right. */
    const char *open;
    while (o->in_script && n > 0 && (open = memchr(bytes, '<', n)) != NULL) {
        const size_t before = (size_t)(open - bytes);
        put_all(o, bytes, before);
        put_all(o, "\\u003c", 6);
        bytes += before + 1;
        n -= before + 1;
    }
    put_all(o, bytes, n);
}

void usc_out_text(usc_out *o, const char *text)
{
    usc_out_bytes(o, text, strlen(text));
}

void usc_out_spaces(usc_out *o, int n)
{
    for (int i = 0; i < n; i++)
        put(o, ' ');
}

void usc_out_format(usc_out *o, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    (void)usc_format_list(text, sizeof text, format, args);
    va_end(args);
    usc_out_text(o, text);
}

void usc_out_number(usc_out *o, double v)
{
    if (!isfinite(v)) {
        usc_out_text(o, isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
        return;
    }
    char text[40];
    if (fabs(v) < 1e15 && v >= (double)(int64_t)v && v <= (double)(int64_t)v) {
        (void)snprintf(text, sizeof text, "%s%lld", signbit(v) && !(v < 0) ? "-" : "",
                       (long long)v);
        usc_out_text(o, text);
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        (void)usc_format(text, sizeof text, "%.*g", digits, v);
        if (usc_parse_number(text, NULL) == v) break;
    }
    usc_out_text(o, text);
}

void usc_out_json_number(usc_out *o, double v)
{
    if (!isfinite(v)) put(o, '"');
    usc_out_number(o, v);
    if (!isfinite(v)) put(o, '"');
}

static void put_piece(void *ctx, const char *bytes, size_t n)
{
    usc_out_bytes(ctx, bytes, n);
}

void usc_out_json(usc_out *o, const char *text)
{
    (void)usc_json_string(text, USC_JSON_BAD_REPLACED, put_piece, o);
}

void usc_out_csv(usc_out *o, const char *text)
{
    usc_csv_string(text, put_piece, o);
}

void usc_out_html(usc_out *o, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<':
            usc_out_text(o, "&lt;");
            break;
        case '>':
            usc_out_text(o, "&gt;");
            break;
        case '&':
            usc_out_text(o, "&amp;");
            break;
        case '"':
            usc_out_text(o, "&quot;");
            break;
        case '\'':
            usc_out_text(o, "&#39;");
            break;
        default:
            put(o, *text);
        }
    }
}

/* East Asian wide and emoji take two columns, combining marks none. */
static int code_width(uint32_t c)
{
    if ((c >= 0x300 && c <= 0x36f) || (c >= 0x200b && c <= 0x200f)) return 0;
    const bool wide = (c >= 0x1100 && c <= 0x115f) || (c >= 0x2e80 && c <= 0xa4cf) ||
                      (c >= 0xac00 && c <= 0xd7a3) || (c >= 0xf900 && c <= 0xfaff) ||
                      (c >= 0xff00 && c <= 0xff60) || (c >= 0x1f300 && c <= 0x1faff) ||
                      (c >= 0x20000 && c <= 0x3fffd);
    return wide ? 2 : 1;
}

int usc_utf8_width(const char *text, size_t n)
{
    int width = 0;
    for (size_t i = 0; i < n;) {
        uint32_t code;
        const size_t step = usc_utf8_next(text + i, &code);
        width += step > 0 ? code_width(code) : 1;
        i += step > 0 ? step : 1;
    }
    return width;
}

void usc_out_terminal(usc_out *o, const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t code;
        const size_t step = usc_utf8_next(text + i, &code);
        const bool plain = step > 0 && code >= 0x20 && !(code >= 0x7f && code < 0xa0);
        if (plain)
            usc_out_bytes(o, text + i, step);
        else
            put(o, '?');
        i += step > 0 ? step : 1;
    }
}
