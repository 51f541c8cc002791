// SPDX-License-Identifier: Apache-2.0
// Arguments of a call out of their JSON. One object of one member stands for what JSON
// lacks: docs/reference/trace-format.md, "Arguments".
#include <ulpscope/value.h>

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/number.h"
#include "json/json.h"

/* What an object is: a mark of what JSON lacks, or a map. */
typedef bool (*object_reader)(usc_arena *a, const usc_json *from, usc_value *out);

static bool read_value(usc_arena *a, const usc_json *from, object_reader object,
                       usc_value *out);

static bool read_list(usc_arena *a, const usc_json *from, object_reader object,
                      usc_value *out)
{
    const size_t n = usc_json_size(from);
    out->kind = USC_VALUE_LIST;
    out->n = (int64_t)n;
    out->item = usc_arena_take(a, (n + 1) * sizeof *out->item);
    for (size_t i = 0; out->item != NULL && i < n; i++)
        if (!read_value(a, usc_json_item(from, i), object, &out->item[i])) return false;
    return out->item != NULL;
}

bool usc_value_has_items(const usc_value *value)
{
    return value->kind == USC_VALUE_LIST || value->kind == USC_VALUE_TUPLE ||
           value->kind == USC_VALUE_SLICE;
}

static usc_value_kind kind_of_mark(const char *mark)
{
    static const struct {
        const char *mark;
        usc_value_kind kind;
    } kinds[] = {{"dtype", USC_VALUE_DTYPE},
                 {"device", USC_VALUE_DEVICE},
                 {"layout", USC_VALUE_LAYOUT},
                 {"memory_format", USC_VALUE_MEMORY_FORMAT},
                 {"generator", USC_VALUE_GENERATOR}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(mark, kinds[i].mark) == 0) return kinds[i].kind;
    return USC_VALUE_OTHER;
}

static bool read_marked(usc_arena *a, const usc_json *from, usc_value *out);

static usc_argument *read_members(usc_arena *a, const usc_json *from,
                                  object_reader object, int64_t *n);

/* A tuple, slice or dict of Python; false: the mark is none of them. */
static bool is_nest(const char *mark)
{
    return strcmp(mark, "tuple") == 0 || strcmp(mark, "slice") == 0 ||
           strcmp(mark, "dict") == 0;
}

static bool read_nest(usc_arena *a, const char *mark, const usc_json *value,
                      usc_value *out)
{
    if (strcmp(mark, "dict") == 0) {
        out->kind = USC_VALUE_MAP;
        out->member = read_members(a, value, read_marked, &out->n);
        return out->member != NULL;
    }
    if (!read_list(a, value, read_marked, out)) return false;
    out->kind = *mark == 't' ? USC_VALUE_TUPLE : USC_VALUE_SLICE;
    return true;
}

static bool read_mark(usc_arena *a, const char *mark, const usc_json *value,
                      usc_value *out)
{
    if (is_nest(mark)) return read_nest(a, mark, value, out);
    if (strcmp(mark, "tensor") == 0) {
        out->kind = usc_json_is_true(value) ? USC_VALUE_TENSOR : USC_VALUE_NONE;
    } else if (strcmp(mark, "ellipsis") == 0) {
        out->kind = USC_VALUE_ELLIPSIS;
    } else if (strcmp(mark, "float") == 0) {
        out->kind = USC_VALUE_FLOAT;
        out->number[0] = usc_json_as_number(value);
    } else if (strcmp(mark, "complex") == 0) {
        out->kind = USC_VALUE_COMPLEX;
        for (size_t i = 0; i < 2; i++)
            out->number[i] = usc_json_as_number(usc_json_item(value, i));
    } else {
        const char *text = usc_json_as_text(value);
        out->kind = kind_of_mark(mark);
        out->text = usc_arena_text(a, text != NULL ? text : "");
        return out->text != NULL;
    }
    return true;
}

static bool read_marked(usc_arena *a, const usc_json *from, usc_value *out)
{
    void *at = NULL;
    const char *mark;
    const usc_json *value;
    if (!usc_json_next(from, &at, &mark, &value)) return true;
    return read_mark(a, mark, value, out);
}

/* Members of an object; NULL where there is no memory. */
static usc_argument *read_members(usc_arena *a, const usc_json *from,
                                  object_reader object, int64_t *n)
{
    usc_argument *member = usc_arena_take(a, (usc_json_size(from) + 1) * sizeof *member);
    const char *name;
    const usc_json *value;
    *n = 0;
    for (void *at = NULL; member != NULL && usc_json_next(from, &at, &name, &value);) {
        usc_argument *one = &member[(*n)++];
        one->name = usc_arena_text(a, name);
        if (one->name == NULL || !read_value(a, value, object, &one->value)) return NULL;
    }
    return member;
}

static bool read_map(usc_arena *a, const usc_json *from, usc_value *out)
{
    out->kind = USC_VALUE_MAP;
    out->member = read_members(a, from, read_map, &out->n);
    return out->member != NULL;
}

static bool read_value(usc_arena *a, const usc_json *from, object_reader object,
                       usc_value *out)
{
    *out = (usc_value){0};
    if (usc_json_is_list(from)) return read_list(a, from, object, out);
    if (usc_json_is_object(from)) return object(a, from, out);
    const char *text = usc_json_as_text(from);
    if (text != NULL) {
        out->kind = USC_VALUE_TEXT;
        out->text = usc_arena_text(a, text);
        return out->text != NULL;
    }
    if (usc_json_as_integer(from, &out->integer)) {
        out->kind = USC_VALUE_INT;
    } else if (usc_json_is_flag(from)) {
        out->kind = USC_VALUE_BOOL;
        out->truth = usc_json_is_true(from);
    } else if (!usc_json_is_null(from)) {
        out->kind = USC_VALUE_FLOAT;
        out->number[0] = usc_json_as_number(from);
    }
    return true;
}

static usc_argument *read_items(usc_arena *a, const usc_json *from, object_reader object,
                                int64_t *n)
{
    const size_t size = usc_json_size(from);
    usc_argument *item = usc_arena_take(a, (size + 1) * sizeof *item);
    *n = (int64_t)size;
    for (size_t i = 0; item != NULL && i < size; i++) {
        item[i].name = NULL;
        if (!read_value(a, usc_json_item(from, i), object, &item[i].value)) return NULL;
    }
    return item;
}

/* Those by position, then those by keyword. */
static bool read_arguments(usc_arena *a, const usc_json *root, usc_arguments *out)
{
    int64_t n_args, n_named;
    const usc_argument *args =
        read_items(a, usc_json_get(root, "args"), read_marked, &n_args);
    const usc_argument *named =
        read_members(a, usc_json_get(root, "kwargs"), read_marked, &n_named);
    usc_argument *all = usc_arena_take(a, (size_t)(n_args + n_named + 1) * sizeof *all);
    if (args == NULL || named == NULL || all == NULL) return false;
    memcpy(all, args, (size_t)n_args * sizeof *all);
    memcpy(all + n_args, named, (size_t)n_named * sizeof *all);
    *out = (usc_arguments){.n = n_args + n_named, .argument = all};
    return true;
}

static bool read_plain(usc_arena *a, const usc_json *root, usc_arguments *out)
{
    out->argument = usc_json_is_list(root) ? read_items(a, root, read_map, &out->n)
                                           : read_members(a, root, read_map, &out->n);
    return out->argument != NULL;
}

static usc_status read_text(const char *json, const char *what,
                            bool (*read)(usc_arena *, const usc_json *, usc_arguments *),
                            usc_arguments *out, usc_error *err)
{
    *out = (usc_arguments){0};
    if (json == NULL || *json == '\0') return USC_OK;
    usc_json *root = NULL;
    usc_arena *arena = NULL;
    usc_status st =
        usc_json_parse(json, strlen(json), what, "not as a trace has them", &root, err);
    if (st == USC_OK) {
        arena = usc_libc_alloc.resize(NULL, NULL, 0, sizeof *arena);
        if (arena != NULL) *arena = (usc_arena){.alloc = usc_libc_alloc};
        if (arena == NULL || !read(arena, root, out))
            st = usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", what);
    }
    out->memory = arena;
    if (st != USC_OK) usc_arguments_free(out);
    usc_json_free(root);
    return st;
}

usc_status usc_arguments_read(const char *json, usc_arguments *out, usc_error *err)
{
    return read_text(json, "arguments of a call", read_arguments, out, err);
}

usc_status usc_members_read(const char *json, usc_arguments *out, usc_error *err)
{
    return read_text(json, "facts of a call", read_plain, out, err);
}

void usc_arguments_free(usc_arguments *a)
{
    usc_arena *arena = a->memory;
    if (arena != NULL) {
        usc_arena_free(arena);
        (void)usc_libc_alloc.resize(NULL, arena, sizeof *arena, 0);
    }
    *a = (usc_arguments){0};
}

/* The shortest text that reads back as the number, and always a float's. */
static void number_text(double v, char *text, size_t size)
{
    for (int digits = 1; digits <= 17; digits++) {
        (void)usc_format(text, size, "%.*g", digits, v);
        if (usc_parse_number(text, NULL) == v) break;
    }
    const size_t n = strlen(text);
    if (strspn(text, "-0123456789") == n) (void)snprintf(text + n, size - n, ".0");
}

void usc_value_text(const usc_value *value, char *out, size_t size)
{
    char number[2][40] = {"", ""};
    const char *text = "";
    if (value->kind == USC_VALUE_FLOAT || value->kind == USC_VALUE_COMPLEX)
        for (size_t i = 0; i < 2; i++)
            number_text(value->number[i], number[i], sizeof number[i]);
    if (value->kind == USC_VALUE_COMPLEX) {
        (void)snprintf(out, size, "%s%s%sj", number[0], value->number[1] < 0 ? "" : "+",
                       number[1]);
        return;
    }
    if (value->kind == USC_VALUE_INT) {
        (void)snprintf(out, size, "%lld", (long long)value->integer);
        return;
    }
    if (value->kind == USC_VALUE_FLOAT)
        text = number[0];
    else if (value->kind == USC_VALUE_BOOL)
        text = value->truth ? "True" : "False";
    else if (value->kind == USC_VALUE_NONE || value->kind == USC_VALUE_TENSOR)
        text = "None"; /* a tensor that is not defined */
    else if (value->kind == USC_VALUE_ELLIPSIS)
        text = "...";
    else if (!usc_value_has_items(value) && value->kind != USC_VALUE_MAP)
        text = value->text;
    (void)snprintf(out, size, "%s", text);
}
