// SPDX-License-Identifier: Apache-2.0
// Arguments of a call as JSON, which nothing else writes. Neighbour: value.c reads it.
#include <ulpscope/x/writing.h>

#include <math.h>
#include <string.h>

#include <ulpscope/alloc.h>

#include "base/number.h"
#include "base/utf8.h"

/* ---- bytes ---- */

static bool grow(usc_writing *w, size_t more)
{
    const size_t size = 2 * (w->n + more) + 256;
    char *text = usc_libc_alloc.resize(NULL, w->text, w->size, size);
    w->failed = text == NULL;
    if (w->failed) return false;
    w->text = text;
    w->size = size;
    return true;
}

static void put_bytes(void *to, const char *bytes, size_t n)
{
    usc_writing *w = to;
    w->failed |= w->most > 0 && n > w->most - w->n;
    if (w->failed || (w->size <= w->n + n && !grow(w, n))) return;
    memcpy(w->text + w->n, bytes, n);
    w->n += n;
    w->text[w->n] = '\0';
}

static void put(usc_writing *w, const char *text)
{
    put_bytes(w, text, strlen(text));
}

static void put_text(usc_writing *w, const char *text)
{
    (void)usc_json_string(text, USC_JSON_BAD_REPLACED, put_bytes, w);
}

/* A value stands first behind a bracket or its name: behind a space. */
static void separate(usc_writing *w)
{
    const char last = w->n > 0 ? w->text[w->n - 1] : ' ';
    if (last != '[' && last != '{' && last != ' ') put(w, ", ");
}

/* ---- single values ---- */

static void put_mark(usc_writing *w, usc_value_kind kind, const char *text)
{
    if (kind == USC_VALUE_TENSOR && text == NULL) { /* most of all */
        put(w, "{\"tensor\": true}");
        return;
    }
    put(w, "{\"");
    put(w, usc_value_mark(kind));
    put(w, "\": ");
    if (text != NULL)
        put_text(w, text);
    else
        put(w, "true");
    put(w, "}");
}

static void put_integer(usc_writing *w, int64_t value)
{
    char digits[24], *at = digits + sizeof digits;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do
        *--at = (char)('0' + rest % 10);
    while ((rest /= 10) > 0);
    if (value < 0) *--at = '-';
    put_bytes(w, at, (size_t)(digits + sizeof digits - at));
}

static void put_float(usc_writing *w, double value)
{
    char text[USC_NUMBER_SIZE];
    usc_number_text(value, text);
    if (isfinite(value))
        put(w, text);
    else
        put_mark(w, USC_VALUE_FLOAT, text);
}

static void put_complex(usc_writing *w, const double *parts)
{
    put(w, "{\"complex\": [");
    for (size_t i = 0; i < 2; i++) {
        char text[USC_NUMBER_SIZE];
        usc_number_text(parts[i], text);
        if (i > 0) put(w, ", ");
        if (isfinite(parts[i]))
            put(w, text);
        else
            put_text(w, text);
    }
    put(w, "]}");
}

static bool is_utf8(const char *text)
{
    uint32_t code;
    for (size_t n; *text != '\0'; text += n)
        if ((n = usc_utf8_next(text, &code)) == 0) return false;
    return true;
}

/* ---- values of values ---- */

void usc_writing_open(usc_writing *w, usc_value_kind kind)
{
    separate(w);
    if (kind != USC_VALUE_LIST) {
        put(w, "{\"");
        put(w, usc_value_mark(kind));
        put(w, "\": ");
    }
    put(w, kind == USC_VALUE_MAP ? "{" : "[");
}

void usc_writing_close(usc_writing *w, usc_value_kind kind)
{
    put(w, kind == USC_VALUE_LIST ? "]" : kind == USC_VALUE_MAP ? "}}" : "]}");
}

void usc_writing_name(usc_writing *w, const char *name)
{
    separate(w);
    put_text(w, name);
    put(w, ": ");
}

static void put_nest(usc_writing *w, const usc_value *value)
{
    usc_writing_open(w, value->kind);
    for (int64_t i = 0; i < value->n; i++)
        if (value->kind == USC_VALUE_MAP) {
            usc_writing_name(w, value->member[i].name);
            usc_writing_value(w, &value->member[i].value);
        } else {
            usc_writing_value(w, &value->item[i]);
        }
    usc_writing_close(w, value->kind);
}

void usc_writing_value(usc_writing *w, const usc_value *value)
{
    if (usc_value_has_items(value) || value->kind == USC_VALUE_MAP) {
        put_nest(w, value);
        return;
    }
    separate(w);
    switch (value->kind) {
    case USC_VALUE_NONE:
        put(w, "null");
        break;
    case USC_VALUE_BOOL:
        put(w, value->truth ? "true" : "false");
        break;
    case USC_VALUE_INT:
        put_integer(w, value->integer);
        break;
    case USC_VALUE_FLOAT:
        put_float(w, value->number[0]);
        break;
    case USC_VALUE_COMPLEX:
        put_complex(w, value->number);
        break;
    case USC_VALUE_TEXT:
        if (is_utf8(value->text))
            put_text(w, value->text);
        else
            put_mark(w, USC_VALUE_OTHER, "str");
        break;
    case USC_VALUE_TENSOR:
        put_mark(w, value->kind, w->places ? value->place : NULL);
        break;
    case USC_VALUE_ELLIPSIS:
        put_mark(w, value->kind, NULL);
        break;
    case USC_VALUE_DTYPE:
    case USC_VALUE_DEVICE:
    case USC_VALUE_LAYOUT:
    case USC_VALUE_MEMORY_FORMAT:
    case USC_VALUE_GENERATOR:
    case USC_VALUE_OTHER:
        put_mark(w, value->kind, value->text);
        break;
    case USC_VALUE_LIST:
    case USC_VALUE_TUPLE:
    case USC_VALUE_SLICE:
    case USC_VALUE_MAP:
        break;
    }
}

/* ---- calls ---- */

void usc_writing_begin(usc_writing *w)
{
    w->n = 0;
    w->failed = false;
    put(w, "{\"args\": [");
}

void usc_writing_names(usc_writing *w)
{
    put(w, "], \"kwargs\": {");
}

const char *usc_writing_end(usc_writing *w)
{
    put(w, "}}");
    return w->failed ? NULL : w->text;
}

const char *usc_writing_arguments(usc_writing *w, const usc_arguments *a)
{
    int64_t i = 0;
    usc_writing_begin(w);
    for (; i < a->n && a->argument[i].name == NULL; i++)
        usc_writing_value(w, &a->argument[i].value);
    usc_writing_names(w);
    for (; i < a->n; i++) {
        usc_writing_name(w, a->argument[i].name);
        usc_writing_value(w, &a->argument[i].value);
    }
    return usc_writing_end(w);
}

void usc_writing_free(usc_writing *w)
{
    (void)usc_libc_alloc.resize(NULL, w->text, w->size, 0);
    *w = (usc_writing){0};
}
