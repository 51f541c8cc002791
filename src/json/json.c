// SPDX-License-Identifier: Apache-2.0
// jansson behind json.h. Its errors become one sentence with line and column.
#include "json/json.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/utf8.h"

enum { FLAGS = JSON_REJECT_DUPLICATES };

/* jansson counts references in place and so takes no const; nothing here changes one. */
static json_t *bare(const usc_json *value)
{
    union {
        const json_t *in;
        json_t *out;
    } u = {.in = value};
    return u.out;
}

/* jansson calls a token for which it had no memory an invalid one, or says nothing: what
 * it refuses is read once more, and refused for good only where there is memory. */
static bool is_refused(const json_error_t *e)
{
    void *volatile some =
        malloc(BUFSIZ); /* clang leaves out what it sees is only freed */
    free(some);
    return some != NULL && json_error_code(e) != json_error_out_of_memory;
}

static usc_status done(json_t *root, const json_error_t *e, const char *name,
                       const char *else_what, usc_json **out, usc_error *err)
{
    *out = root;
    if (root != NULL) return USC_OK;
    if (!is_refused(e)) return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", name);
    return usc_error_set(err, USC_E_CORRUPT, e->position,
                         "%s: %s: line %d, column %d: %s", name, else_what, e->line,
                         e->column, e->text);
}

usc_status usc_json_parse(const char *text, size_t size, const char *name,
                          const char *else_what, usc_json **out, usc_error *err)
{
    json_error_t e;
    json_t *root = json_loadb(text, size, FLAGS, &e);
    if (root == NULL) root = json_loadb(text, size, FLAGS, &e);
    return done(root, &e, name, else_what, out, err);
}

usc_status usc_json_read(FILE *file, const char *name, const char *else_what,
                         usc_json **out, usc_error *err)
{
    json_error_t e;
    *out = NULL;
    const long start = ftell(file);
    json_t *root = json_loadf(file, FLAGS, &e);
    if (root == NULL && !ferror(file) && start >= 0 && fseek(file, start, SEEK_SET) == 0)
        root = json_loadf(file, FLAGS, &e);
    if (ferror(file)) {
        const int code = errno;
        json_decref(root);
        return usc_error_set(err, USC_E_IO, -1, "%s: %s", name, strerror(code));
    }
    return done(root, &e, name, else_what, out, err);
}

void usc_json_free(usc_json *root)
{
    json_decref(root);
}

/* ---- asking ---- */

void usc_json_wrong(usc_json_taker *t, const char *key, const char *how)
{
    if (t->status != USC_OK) return;
    const char *dot = t->place[0] != '\0' && key != NULL ? "." : "";
    t->status = usc_error_set(t->err, USC_E_CORRUPT, -1, "%s: %s%s%s %s", t->name,
                              t->place, dot, key != NULL ? key : "", how);
}

const usc_json *usc_json_get(const usc_json *object, const char *key)
{
    const json_t *found = json_object_get(object, key);
    return found != NULL && !json_is_null(found) ? found : NULL;
}

const char *usc_json_text(usc_json_taker *t, const usc_json *object, const char *key,
                          const char *otherwise)
{
    const json_t *v = usc_json_get(object, key);
    if (v == NULL) return otherwise;
    if (json_is_string(v)) return json_string_value(v);
    usc_json_wrong(t, key, "is no text");
    return otherwise;
}

int64_t usc_json_integer(usc_json_taker *t, const usc_json *object, const char *key,
                         int64_t otherwise)
{
    const json_t *v = usc_json_get(object, key);
    if (v == NULL) return otherwise;
    if (json_is_integer(v)) return json_integer_value(v);
    usc_json_wrong(t, key, "is no integer");
    return otherwise;
}

double usc_json_number(usc_json_taker *t, const usc_json *object, const char *key,
                       double otherwise)
{
    const json_t *v = usc_json_get(object, key);
    if (v == NULL) return otherwise;
    if (json_is_number(v)) return json_number_value(v);
    usc_json_wrong(t, key, "is no number");
    return otherwise;
}

bool usc_json_flag(usc_json_taker *t, const usc_json *object, const char *key)
{
    const json_t *v = usc_json_get(object, key);
    if (v == NULL) return false;
    if (json_is_boolean(v)) return json_is_true(v);
    if (json_is_integer(v)) return json_integer_value(v) != 0;
    usc_json_wrong(t, key, "is neither true nor false");
    return false;
}

const usc_json *usc_json_list(usc_json_taker *t, const usc_json *object, const char *key)
{
    const json_t *v = usc_json_get(object, key);
    if (v == NULL || json_is_array(v)) return v;
    usc_json_wrong(t, key, "is no list");
    return NULL;
}

const usc_json *usc_json_object(usc_json_taker *t, const usc_json *object,
                                const char *key)
{
    const json_t *v = usc_json_get(object, key);
    if (v == NULL || json_is_object(v)) return v;
    usc_json_wrong(t, key, "is no object");
    return NULL;
}

/* ---- values ---- */

size_t usc_json_size(const usc_json *value)
{
    return json_is_array(value) ? json_array_size(value) : json_object_size(value);
}

const usc_json *usc_json_item(const usc_json *list, size_t i)
{
    return json_array_get(list, i);
}

const char *usc_json_as_text(const usc_json *value)
{
    return json_string_value(value);
}

bool usc_json_as_integer(const usc_json *value, int64_t *out)
{
    *out = json_is_integer(value) ? json_integer_value(value) : 0;
    return json_is_integer(value);
}

double usc_json_as_number(const usc_json *value)
{
    if (json_is_number(value)) return json_number_value(value);
    const char *text = json_string_value(value);
    if (text == NULL) return (double)NAN;
    char *end;
    const double number = usc_parse_number(text, &end);
    return end != text && *end == '\0' ? number : (double)NAN;
}

bool usc_json_is_true(const usc_json *value)
{
    return json_is_true(value);
}

bool usc_json_is_flag(const usc_json *value)
{
    return json_is_boolean(value);
}

bool usc_json_is_null(const usc_json *value)
{
    return json_is_null(value);
}

bool usc_json_is_object(const usc_json *value)
{
    return json_is_object(value);
}

bool usc_json_is_list(const usc_json *value)
{
    return json_is_array(value);
}

bool usc_json_next(const usc_json *object, void **at, const char **key,
                   const usc_json **value)
{
    json_t *o = bare(object);
    *at = *at == NULL ? json_object_iter(o) : json_object_iter_next(o, *at);
    if (*at == NULL) return false;
    *key = json_object_iter_key(*at);
    *value = json_object_iter_value(*at);
    return true;
}

usc_status usc_json_valid(const char *text, bool *out, usc_error *err)
{
    json_error_t e;
    json_t *root = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    if (root == NULL) root = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    *out = root != NULL;
    json_decref(root);
    if (*out || is_refused(&e)) return USC_OK;
    return usc_error_set(err, USC_E_NOMEM, -1, "JSON: no memory");
}

static const char *print(const usc_json *value, size_t flags, usc_arena *arena)
{
    const size_t size = json_dumpb(value, NULL, 0, flags | JSON_ENCODE_ANY);
    char *out = usc_arena_take(arena, size + 1);
    if (out == NULL) return NULL;
    /* nothing is what it prints without memory */
    if (size == 0 || json_dumpb(value, out, size, flags | JSON_ENCODE_ANY) != size) {
        arena->failed = true;
        return NULL;
    }
    out[size] = '\0';
    return out;
}

static void put(void *ctx, const char *bytes, size_t n)
{
    char **at = ctx;
    memcpy(*at, bytes, n);
    *at += n;
}

const char *usc_json_quoted(const char *text, usc_arena *arena)
{
    char *out = usc_arena_take(arena, 6 * strlen(text) + 3), *end = out;
    if (out == NULL || !usc_json_string(text, USC_JSON_BAD_REPLACED, put, &end))
        return NULL;
    *end = '\0';
    return out;
}

const char *usc_json_print(const usc_json *value, usc_arena *arena)
{
    return print(value, JSON_COMPACT, arena);
}

const char *usc_json_print_lines(const usc_json *value, usc_arena *arena)
{
    return print(value, JSON_INDENT(1), arena);
}
