// SPDX-License-Identifier: Apache-2.0
// Arguments as a dump describes them become the arguments of a trace:
// docs/reference/trace-format.md, "Arguments".
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "foreign/importing.h"

static bool is_one_of(const char *text, const char *const *list)
{
    for (; *list != NULL; list++)
        if (strcmp(text, *list) == 0) return true;
    return false;
}

static const char *without_torch(const char *text)
{
    return strncmp(text, "torch.", 6) == 0 ? text + 6 : text;
}

static const char *path_of(usc_importing *im, const char *path, size_t i)
{
    const size_t size = strlen(path) + 24;
    char *out = usc_arena_take(&im->texts, size);
    if (out != NULL) (void)snprintf(out, size, "%s[%zu]", path, i);
    return out;
}

static void put(usc_importing *im, usc_value value)
{
    usc_writing_value(&im->call.args, &value);
}

static void put_named(usc_importing *im, usc_value_kind kind, const char *text)
{
    put(im, (usc_value){.kind = kind, .text = text});
}

static usc_status put_items(usc_importing *im, usc_value_kind kind, const usc_json *list,
                            const char *path, usc_error *err)
{
    usc_status st = USC_OK;
    usc_writing_open(&im->call.args, kind);
    for (size_t i = 0; st == USC_OK && i < usc_json_size(list); i++) {
        const char *item = path_of(im, path, i);
        if (item == NULL)
            return usc_importing_wrong(im, USC_E_NOMEM, path, err, "no memory");
        st = usc_import_value(im, usc_json_item(list, i), item, err);
    }
    usc_writing_close(&im->call.args, kind);
    return st;
}

static void put_bare(usc_importing *im, const usc_json *value, const char *type)
{
    int64_t whole;
    const char *text = usc_json_as_text(value);
    if (value == NULL || usc_json_is_null(value))
        put(im, (usc_value){.kind = USC_VALUE_NONE});
    else if (usc_json_is_flag(value))
        put(im, (usc_value){.kind = USC_VALUE_BOOL, .truth = usc_json_is_true(value)});
    else if (usc_json_as_integer(value, &whole) && strncmp(type, "float", 5) != 0)
        put(im, (usc_value){.kind = USC_VALUE_INT, .integer = whole});
    else if (text == NULL || strstr(type, "float") != NULL)
        put(im,
            (usc_value){.kind = USC_VALUE_FLOAT, .number = {usc_json_as_number(value)}});
    else
        put_named(im, USC_VALUE_TEXT, text);
}

static usc_status put_typed(usc_importing *im, const usc_json *value, const char *type,
                            const char *path, usc_error *err)
{
    static const char *const bare[] = {
        "int",     "bool",    "float",   "str",    "NoneType", "int8",   "int16",
        "int32",   "int64",   "uint8",   "uint16", "uint32",   "uint64", "bool_",
        "float16", "float32", "float64", "long",   NULL};
    const char *name = strncmp(type, "numpy.", 6) == 0 ? type + 6 : type;
    const usc_json *held = usc_json_get(value, "value");
    const char *text = usc_json_as_text(held);
    if (text == NULL) text = usc_json_as_text(usc_json_get(value, "format"));
    if (is_one_of(name, bare))
        put_bare(im, held, name);
    else if (strcmp(type, "ellipsis") == 0)
        put(im, (usc_value){.kind = USC_VALUE_ELLIPSIS});
    else if (strcmp(type, "slice") == 0 && usc_json_size(held) == 3)
        return put_items(im, USC_VALUE_SLICE, held, path, err);
    else if (strcmp(type, "torch.Size") == 0 && usc_json_is_list(held))
        return put_items(im, USC_VALUE_LIST, held, path, err);
    else if (strcmp(type, "torch.dtype") == 0 && text != NULL)
        put_named(im, USC_VALUE_DTYPE, without_torch(text));
    else if (strcmp(type, "torch.device") == 0 && text != NULL)
        put_named(im, USC_VALUE_DEVICE, text);
    else if (strstr(type, "memory_format") != NULL && text != NULL)
        put_named(im, USC_VALUE_MEMORY_FORMAT, without_torch(text));
    else
        put_named(im, USC_VALUE_OTHER, type);
    return USC_OK;
}

static bool is_tensor(const usc_json *value, const char *type)
{
    return usc_json_get(value, "data_name") != NULL ||
           usc_json_get(value, "datapath") != NULL || strstr(type, "Tensor") != NULL ||
           strstr(type, "Parameter") != NULL;
}

usc_status usc_import_value(usc_importing *im, const usc_json *value, const char *path,
                            usc_error *err)
{
    if (usc_json_is_list(value)) return put_items(im, USC_VALUE_LIST, value, path, err);
    if (!usc_json_is_object(value)) { /* sizes stand in a list without types */
        put_bare(im, value, "");
        return USC_OK;
    }
    const char *type = usc_json_as_text(usc_json_get(value, "type"));
    if (type == NULL) { /* msprobe leaves a dtype that is given by position undescribed */
        if (usc_json_size(value) == 0 && im->call.cast_to != NULL)
            put_named(im, USC_VALUE_DTYPE, without_torch(im->call.cast_to));
        else
            put_named(im, USC_VALUE_OTHER,
                      usc_json_size(value) == 0 ? "undescribed" : "dict");
        return USC_OK;
    }
    if (!is_tensor(value, type)) return put_typed(im, value, type, path, err);
    put(im, (usc_value){.kind = USC_VALUE_TENSOR});
    const usc_import_place to = {.role = USC_ROLE_IN, .path = path, .from = value};
    return usc_import_tensor(im, &to, err);
}

static usc_status put_args(usc_importing *im, const usc_json *args, usc_error *err)
{
    usc_status st = USC_OK;
    for (size_t i = 0; st == USC_OK && i < usc_json_size(args); i++) {
        const char *item = path_of(im, "args", i);
        if (item == NULL)
            return usc_importing_wrong(im, USC_E_NOMEM, "args", err, "no memory");
        st = usc_import_value(im, usc_json_item(args, i), item, err);
    }
    return st;
}

usc_status usc_import_arguments(usc_importing *im, const usc_json *args,
                                const usc_json *kwargs, usc_error *err)
{
    const char *key;
    const usc_json *value;
    usc_writing_begin(&im->call.args);
    usc_status st = usc_json_is_list(args) ? put_args(im, args, err) : USC_OK;
    usc_writing_names(&im->call.args);
    for (void *at = NULL; st == USC_OK && usc_json_next(kwargs, &at, &key, &value);) {
        char path[USC_API_NAME];
        if (usc_format(path, sizeof path, "kwargs.%s", key) >= (int)sizeof path)
            return usc_importing_wrong(im, USC_E_CORRUPT, "kwargs", err,
                                       "a name too long");
        usc_writing_name(&im->call.args, key);
        st = usc_import_value(im, value, path, err);
    }
    (void)usc_writing_end(&im->call.args);
    return st;
}

const usc_import_arg *usc_import_input(const usc_importing *im, const char *path)
{
    for (const usc_import_arg *a = im->call.first; a != NULL; a = a->next)
        if (a->role == USC_ROLE_IN && strcmp(a->path, path) == 0) return a;
    return NULL;
}

/* ---- results ---- */

/* Whether the dump describes two tensors of one dtype and shape. */
static bool are_alike(const usc_json *a, const usc_json *b, usc_arena *texts)
{
    const char *x = usc_json_as_text(usc_json_get(a, "dtype"));
    const char *y = usc_json_as_text(usc_json_get(b, "dtype"));
    const usc_json *p = usc_json_get(a, "shape"), *q = usc_json_get(b, "shape");
    if (x == NULL || y == NULL || p == NULL || q == NULL || strcmp(x, y) != 0)
        return false;
    const char *s = usc_json_print(p, texts), *t = usc_json_print(q, texts);
    return s != NULL && t != NULL && strcmp(s, t) == 0;
}

static usc_status take_result(usc_importing *im, const usc_json *value, const char *path,
                              const usc_import_arg *written, usc_error *err)
{
    const char *type = usc_json_as_text(usc_json_get(value, "type"));
    if (path == NULL)
        return usc_importing_wrong(im, USC_E_NOMEM, "out", err, "no memory");
    if (type == NULL || !is_tensor(value, type)) return USC_OK;
    const bool is_it = written != NULL && are_alike(written->from, value, &im->texts);
    usc_import_place to = {
        .role = USC_ROLE_OUT, .path = path, .from = value, .on = is_it ? written : NULL};
    usc_status st = usc_import_tensor(im, &to, err);
    if (st != USC_OK || !is_it) return st;
    const usc_import_arg *out = im->call.last;
    to.role = USC_ROLE_MUTATED;
    to.path = written->path;
    return usc_import_add(im, &to, out->tensor, out->storage, err);
}

usc_status usc_import_results(usc_importing *im, const usc_json *list,
                              const usc_import_arg *written, usc_error *err)
{
    usc_status st = USC_OK;
    for (size_t i = 0; st == USC_OK && i < usc_json_size(list); i++) {
        const usc_json *value = usc_json_item(list, i);
        const char *path = path_of(im, "out", i);
        if (!usc_json_is_list(value)) {
            st = take_result(im, value, path, i == 0 ? written : NULL, err);
            continue;
        }
        for (size_t k = 0; path != NULL && st == USC_OK && k < usc_json_size(value); k++)
            st =
                take_result(im, usc_json_item(value, k), path_of(im, path, k), NULL, err);
    }
    return st;
}
