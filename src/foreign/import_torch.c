// SPDX-License-Identifier: Apache-2.0
// Files of torch.save that hold all arguments of a call, or all its results: the values
// that the worker tells of become arguments of the trace, their tensors keep storages,
// strides and what they share. Neighbours: torch_files.c, import_ditorch.c.
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/number.h"
#include "call/value_json.h"
#include "foreign/importing.h"

/* Reads what is left of the open file's storages: the next file comes after them. */
static void pass_over(usc_importing *im, int64_t s)
{
    const void *bytes;
    int64_t size;
    for (const int64_t n = usc_torch_files_storages(&im->files); s < n; s++)
        if (usc_torch_files_storage(&im->files, s, &bytes, &size, NULL) != USC_OK) return;
}

usc_status usc_import_open(usc_importing *im, const char *path, const usc_json **value,
                           usc_import_parts *parts, usc_error *err)
{
    usc_status st = usc_torch_files_open(&im->files, path, value, err);
    *parts = (usc_import_parts){0};
    if (st != USC_OK) return st;
    parts->n = usc_torch_files_tensors(&im->files);
    parts->at =
        usc_arena_take(&im->texts, ((size_t)parts->n + 1) * sizeof(usc_import_part));
    if (parts->at == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", path);
    memset(parts->at, 0, ((size_t)parts->n + 1) * sizeof(usc_import_part));
    for (int64_t i = 0; st == USC_OK && i < parts->n; i++)
        st = usc_torch_files_tensor(&im->files, i, &parts->at[i].seen, err);
    const usc_json *held = usc_json_get(*value, "members");
    if (st == USC_OK && !usc_json_is_object(held))
        st =
            usc_error_set(err, USC_E_CORRUPT, -1, "%s: holds no arguments by name", path);
    *value = held;
    if (st != USC_OK) pass_over(im, 0);
    return st;
}

/* ---- values ---- */

static const char *below(usc_importing *im, const char *path, const char *key, size_t i)
{
    const size_t size = strlen(path) + (key != NULL ? strlen(key) : 0) + 24;
    char *out = usc_arena_take(&im->texts, size);
    if (out == NULL) return NULL;
    if (key != NULL)
        (void)snprintf(out, size, "%s.%s", path, key);
    else
        (void)snprintf(out, size, "%s[%zu]", path, i);
    return out;
}

/* Gives tensor `i` of the file its place; each stands in one place. */
static usc_status place(const usc_importing *im, const usc_json *number, usc_role role,
                        const char *path, usc_import_parts *parts, usc_error *err)
{
    int64_t i;
    if (path == NULL) return usc_no_memory(im->member, err);
    if (!usc_json_as_integer(number, &i) || i < 0 || i >= parts->n ||
        parts->at[i].path != NULL)
        return usc_error_set(err, USC_E_CORRUPT, -1, "%s: %s is no tensor of the file",
                             im->member, path);
    parts->at[i].role = role;
    parts->at[i].path = path;
    return USC_OK;
}

static usc_status put_value(usc_importing *im, const usc_json *value, const char *path,
                            usc_import_parts *parts, usc_error *err);

static usc_status put_items(usc_importing *im, const usc_json *list, const char *path,
                            usc_import_parts *parts, usc_error *err)
{
    usc_status st = USC_OK;
    for (size_t i = 0; st == USC_OK && i < usc_json_size(list); i++)
        st = put_value(im, usc_json_item(list, i), below(im, path, NULL, i), parts, err);
    return st;
}

static usc_status put_members(usc_importing *im, const usc_json *members,
                              const char *path, usc_import_parts *parts, usc_error *err)
{
    const char *key;
    const usc_json *value;
    usc_status st = USC_OK;
    for (void *at = NULL; st == USC_OK && usc_json_next(members, &at, &key, &value);) {
        usc_writing_name(&im->call.args, key);
        st = put_value(im, value, below(im, path, key, 0), parts, err);
    }
    return st;
}

/* What may hold tensors, which a file has by their numbers; LIST: nothing does. */
static usc_value_kind nest_of(const char *mark, const usc_json *held)
{
    if (strcmp(mark, "members") == 0 && usc_json_is_object(held)) return USC_VALUE_MAP;
    if (strcmp(mark, "tuple") == 0 && usc_json_is_list(held)) return USC_VALUE_TUPLE;
    const bool is_slice = strcmp(mark, "slice") == 0 && usc_json_is_list(held);
    return is_slice && usc_json_size(held) == 3 ? USC_VALUE_SLICE : USC_VALUE_LIST;
}

static usc_status put_nest(usc_importing *im, usc_value_kind kind, const usc_json *held,
                           const char *path, usc_import_parts *parts, usc_error *err)
{
    usc_writing_open(&im->call.args, kind);
    const usc_status st = kind == USC_VALUE_MAP ? put_members(im, held, path, parts, err)
                                                : put_items(im, held, path, parts, err);
    usc_writing_close(&im->call.args, kind);
    return st;
}

/* Values are what arguments of a trace are, but for the tensors and the dicts. */
static usc_status put_value(usc_importing *im, const usc_json *value, const char *path,
                            usc_import_parts *parts, usc_error *err)
{
    const char *mark = "";
    const usc_json *held = NULL;
    void *at = NULL;
    if (path == NULL) return usc_no_memory(im->member, err);
    if (usc_json_is_list(value))
        return put_nest(im, USC_VALUE_LIST, value, path, parts, err);
    if (usc_json_is_object(value)) (void)usc_json_next(value, &at, &mark, &held);
    if (strcmp(mark, "tensor") == 0) {
        usc_writing_value(&im->call.args, &(usc_value){.kind = USC_VALUE_TENSOR});
        return place(im, held, USC_ROLE_IN, path, parts, err);
    }
    const usc_value_kind kind = nest_of(mark, held);
    if (kind != USC_VALUE_LIST) return put_nest(im, kind, held, path, parts, err);
    const usc_value plain = usc_value_of_json(value, &im->texts);
    if (im->texts.failed) return usc_no_memory(im->member, err);
    usc_writing_value(&im->call.args, &plain);
    return USC_OK;
}

/* ---- tensors ---- */

static bool is_alike(const usc_torch_tensor *a, const usc_torch_tensor *b)
{
    bool same = a->view.dtype == b->view.dtype && a->view.ndim == b->view.ndim &&
                a->offset == b->offset;
    for (int i = 0; same && i < a->view.ndim; i++)
        same = a->view.sizes[i] == b->view.sizes[i] &&
               a->view.strides[i] == b->view.strides[i];
    return same;
}

/* The input that the call left as result `p` of the file, in a storage like this. */
static const usc_import_part *left_as(const usc_import_part *written,
                                      const usc_import_part *p, int64_t size)
{
    const bool is_first = p->role == USC_ROLE_OUT && strcmp(p->path, "out[0]") == 0;
    return is_first && written != NULL && written->arg != NULL &&
                   written->storage_bytes == size && is_alike(&written->seen, &p->seen)
               ? written
               : NULL;
}

static usc_status put_part(usc_importing *im, usc_import_part *p, const void *bytes,
                           int64_t storage, const usc_import_part *written,
                           usc_error *err)
{
    usc_import_place to = {.role = p->role, .path = p->path};
    usc_status st = usc_import_view(im, &to, &p->seen, bytes, storage, err);
    p->arg = im->call.last;
    if (st != USC_OK || written == NULL) return st;
    to.role = USC_ROLE_MUTATED;
    to.path = written->path;
    return usc_import_add(im, &to, p->arg->tensor, p->arg->storage, err);
}

static usc_status take_storage(usc_importing *im, int64_t s, usc_import_parts *parts,
                               const usc_import_part *written, usc_error *err)
{
    const void *bytes;
    int64_t size, storage = 0;
    usc_status st = usc_torch_files_storage(&im->files, s, &bytes, &size, err);
    for (int64_t i = 0; st == USC_OK && i < parts->n; i++) {
        usc_import_part *p = &parts->at[i];
        if (p->seen.storage != s || p->path == NULL) continue;
        const usc_import_part *is_it = left_as(written, p, size);
        p->storage_bytes = size;
        if (storage == 0)
            st = usc_import_storage(im, bytes, size, is_it != NULL ? is_it->arg : NULL,
                                    &storage, err);
        if (st == USC_OK) st = put_part(im, p, bytes, storage, is_it, err);
    }
    return st;
}

static usc_status take_storages(usc_importing *im, usc_import_parts *parts,
                                const usc_import_part *written, usc_status st,
                                usc_error *err)
{
    int64_t s = 0;
    for (const int64_t n = usc_torch_files_storages(&im->files); st == USC_OK && s < n;
         s++)
        st = take_storage(im, s, parts, written, err);
    if (st != USC_OK && st != USC_E_IO) pass_over(im, s);
    return st;
}

/* ---- files ---- */

usc_status usc_import_file_arguments(usc_importing *im, const usc_json *value,
                                     usc_import_parts *parts, usc_error *err)
{
    const usc_json *args = usc_json_get(value, "args");
    const usc_json *listed = usc_json_get(args, "tuple");
    const usc_json *kwargs = usc_json_get(usc_json_get(value, "kwargs"), "members");
    usc_status st = USC_OK;
    if (listed == NULL) listed = args;
    if (!usc_json_is_list(listed))
        st = usc_error_set(err, USC_E_CORRUPT, -1, "'args' is no list");
    usc_writing_begin(&im->call.args);
    if (st == USC_OK) st = put_items(im, listed, "args", parts, err);
    usc_writing_names(&im->call.args);
    if (st == USC_OK) st = put_members(im, kwargs, "kwargs", parts, err);
    (void)usc_writing_end(&im->call.args);
    return take_storages(im, parts, NULL, st, err);
}

static usc_status place_result(usc_importing *im, const usc_json *value, const char *path,
                               usc_import_parts *parts, usc_error *err)
{
    const char *mark, *key;
    const usc_json *held = value, *item;
    void *at = NULL;
    size_t k = 0;
    usc_status st = USC_OK;
    if (path == NULL) return usc_no_memory(im->member, err);
    if (usc_json_is_object(value) && usc_json_next(value, &at, &mark, &held) &&
        strcmp(mark, "tensor") == 0)
        return place(im, held, USC_ROLE_OUT, path, parts, err);
    if (usc_json_is_list(held))
        for (; st == USC_OK && k < usc_json_size(held); k++)
            st = place_result(im, usc_json_item(held, k), below(im, path, NULL, k), parts,
                              err);
    else if (usc_json_is_object(held))
        for (at = NULL; st == USC_OK && usc_json_next(held, &at, &key, &item); k++)
            st = place_result(im, item, below(im, path, NULL, k), parts, err);
    return st;
}

usc_status usc_import_file_results(usc_importing *im, const usc_json *list,
                                   usc_import_parts *parts,
                                   const usc_import_part *written, usc_error *err)
{
    usc_status st = place_result(im, list, "out", parts, err);
    return take_storages(im, parts, written, st, err);
}
