// SPDX-License-Identifier: Apache-2.0
// Arguments of a call out of their JSON. One object of one member stands for what JSON
// lacks: docs/trace-format.md, "Arguments".
#include <ulpscope/value.h>

#include <string.h>

#include "base/arena.h"
#include "json/json.h"

static bool read_value(usc_arena *a, const usc_json *from, usc_value *out);

static const char *copied(usc_arena *a, const char *text)
{
    const size_t n = strlen(text);
    char *copy = usc_arena_take(a, n + 1);
    if (copy != NULL) memcpy(copy, text, n + 1);
    return copy;
}

static bool read_list(usc_arena *a, const usc_json *from, usc_value *out)
{
    const size_t n = usc_json_size(from);
    out->kind = USC_VALUE_LIST;
    out->n = (int64_t)n;
    out->item = usc_arena_take(a, (n + 1) * sizeof *out->item);
    for (size_t i = 0; out->item != NULL && i < n; i++)
        if (!read_value(a, usc_json_item(from, i), &out->item[i])) return false;
    return out->item != NULL;
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

static bool read_mark(usc_arena *a, const char *mark, const usc_json *value,
                      usc_value *out)
{
    if (strcmp(mark, "tensor") == 0) {
        out->kind = usc_json_is_true(value) ? USC_VALUE_TENSOR : USC_VALUE_NONE;
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
        out->text = copied(a, text != NULL ? text : "");
        return out->text != NULL;
    }
    return true;
}

static bool read_object(usc_arena *a, const usc_json *from, usc_value *out)
{
    void *at = NULL;
    const char *mark;
    const usc_json *value;
    if (!usc_json_next(from, &at, &mark, &value)) return true;
    return read_mark(a, mark, value, out);
}

static bool read_value(usc_arena *a, const usc_json *from, usc_value *out)
{
    *out = (usc_value){0};
    if (usc_json_is_list(from)) return read_list(a, from, out);
    if (usc_json_is_object(from)) return read_object(a, from, out);
    const char *text = usc_json_as_text(from);
    if (text != NULL) {
        out->kind = USC_VALUE_TEXT;
        out->text = copied(a, text);
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

/* Those by position, then those by keyword. */
static bool read_all(usc_arena *a, const usc_json *root, usc_arguments *out)
{
    const usc_json *args = usc_json_get(root, "args"),
                   *named = usc_json_get(root, "kwargs");
    const size_t n_args = usc_json_size(args), n = n_args + usc_json_size(named);
    usc_argument *argument = usc_arena_take(a, (n + 1) * sizeof *argument);
    if (argument == NULL) return false;
    size_t i = 0;
    for (; i < n_args; i++) {
        argument[i].name = NULL;
        if (!read_value(a, usc_json_item(args, i), &argument[i].value)) return false;
    }
    const char *name;
    const usc_json *value;
    for (void *at = NULL; i < n && usc_json_next(named, &at, &name, &value); i++) {
        argument[i].name = copied(a, name);
        if (argument[i].name == NULL || !read_value(a, value, &argument[i].value))
            return false;
    }
    *out = (usc_arguments){.n = (int64_t)i, .argument = argument};
    return true;
}

usc_status usc_arguments_read(const char *json, usc_arguments *out, usc_error *err)
{
    *out = (usc_arguments){0};
    if (json == NULL || *json == '\0') return USC_OK;
    usc_json *root = NULL;
    usc_arena *arena = NULL;
    usc_status st = usc_json_parse(json, strlen(json), "arguments of a call",
                                   "not as a trace has them", &root, err);
    if (st == USC_OK) {
        arena = usc_libc_alloc.resize(NULL, NULL, 0, sizeof *arena);
        if (arena != NULL) *arena = (usc_arena){.alloc = usc_libc_alloc};
        if (arena == NULL || !read_all(arena, root, out))
            st = usc_error_set(err, USC_E_NOMEM, -1, "arguments of a call: no memory");
    }
    out->memory = arena;
    if (st != USC_OK) usc_arguments_free(out);
    usc_json_free(root);
    return st;
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
