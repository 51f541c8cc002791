// SPDX-License-Identifier: Apache-2.0
// The worker that opens files of torch. What it says is checked like any file.
#include "foreign/torch_files.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

static usc_status lost(usc_torch_files *f, usc_error *err)
{
    char words[256], how[64];
    usc_worker_last_words(&f->worker, 0, words, sizeof words);
    usc_worker_death(usc_worker_end(&f->worker, true), how, sizeof how);
    f->runs = false;
    return usc_error_set(err, USC_E_IO, -1, "the worker that opens files of torch %s%s%s",
                         how, words[0] != '\0' ? ": " : "", words);
}

/* Until the worker says something: torch takes seconds to load. Whoever asked is asked
 * in turn, so that he can say that he waits; that it is to stop is heard between files. */
static void wait_for(const usc_torch_files *f)
{
    enum { LOOK_MS = 250 };
    struct pollfd out = {.fd = f->worker.out, .events = POLLIN};
    while (f->hooks->stopped != NULL && poll(&out, 1, LOOK_MS) == 0)
        (void)f->hooks->stopped(f->hooks->ctx);
}

/* The next line that the worker says. */
static usc_status hear(usc_torch_files *f, usc_error *err)
{
    char *line;
    usc_json_free(f->answer);
    f->answer = NULL;
    while ((line = usc_worker_line(&f->worker)) == NULL) {
        wait_for(f);
        if (!usc_worker_read(&f->worker)) return lost(f, err);
    }
    return usc_json_parse(line, strlen(line), "the worker that opens files of torch",
                          "said what is no JSON", &f->answer, err);
}

static usc_status start(usc_torch_files *f, usc_error *err)
{
    if (f->runs) return USC_OK;
    if (f->hooks == NULL || f->hooks->command == NULL)
        return usc_error_set(err, USC_E_UNSUPPORTED, -1,
                             "files of torch need a worker, and none was given");
    char *const *command = f->hooks->command(f->hooks->ctx, err);
    if (command == NULL) return USC_E_IO;
    usc_status st =
        usc_worker_start(&f->worker, command, "{}", f->hooks->environment, err);
    if (st != USC_OK) return st;
    f->runs = true;
    st = hear(f, err);
    if (st != USC_OK) return st;
    const char *fatal = usc_json_as_text(usc_json_get(f->answer, "fatal"));
    return fatal == NULL ? USC_OK : usc_error_set(err, USC_E_ARG, -1, "%s", fatal);
}

/* An answer that is a refusal: its kind is the name of a status. */
static usc_status refusal(const usc_torch_files *f, usc_error *err)
{
    const char *said = usc_json_as_text(usc_json_get(f->answer, "refused"));
    const char *kind = usc_json_as_text(usc_json_get(f->answer, "kind"));
    if (said == NULL) return USC_OK;
    usc_status st = USC_E_CORRUPT;
    if (kind != NULL && strcmp(kind, "unsupported") == 0) st = USC_E_UNSUPPORTED;
    if (kind != NULL && strcmp(kind, "io") == 0) st = USC_E_IO;
    return usc_error_set(err, st, -1, "%s", said);
}

usc_status usc_torch_files_open(usc_torch_files *f, const char *path,
                                const usc_json **value, usc_error *err)
{
    usc_line request = {0};
    *value = NULL;
    usc_status st = start(f, err);
    if (st != USC_OK) return st;
    usc_line_text(&request, "{\"open\": ");
    usc_line_json(&request, path);
    usc_line_text(&request, "}\n");
    if (request.failed) st = usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", path);
    if (st == USC_OK) usc_worker_tell(&f->worker, request.text);
    usc_line_free(&request);
    if (st == USC_OK) st = hear(f, err);
    if (st == USC_OK) st = refusal(f, err);
    if (st == USC_OK) *value = usc_json_get(f->answer, "value");
    return st;
}

int64_t usc_torch_files_tensors(const usc_torch_files *f)
{
    return (int64_t)usc_json_size(usc_json_get(f->answer, "tensors"));
}

int64_t usc_torch_files_storages(const usc_torch_files *f)
{
    return (int64_t)usc_json_size(usc_json_get(f->answer, "storages"));
}

static int64_t storage_size(const usc_torch_files *f, int64_t i)
{
    int64_t size;
    const usc_json *list = usc_json_get(f->answer, "storages");
    return i >= 0 && usc_json_as_integer(usc_json_item(list, (size_t)i), &size) &&
                   size >= 0
               ? size
               : -1;
}

static bool read_numbers(const usc_json *list, int64_t *out, int n)
{
    if (usc_json_size(list) != (size_t)n) return false;
    for (int i = 0; i < n; i++)
        if (!usc_json_as_integer(usc_json_item(list, (size_t)i), &out[i])) return false;
    return true;
}

/* Whether the view stays inside its storage. */
static bool is_inside(const usc_torch_tensor *t, int64_t item_size, int64_t size)
{
    int64_t last = t->offset, step, bytes;
    if (t->offset < 0 || item_size <= 0) return false;
    for (int i = 0; i < t->view.ndim; i++) {
        if (t->view.sizes[i] < 0 || t->view.strides[i] < 0) return false;
        if (t->view.sizes[i] == 0) return true;
        if (!usc_mul_i64(t->view.sizes[i] - 1, t->view.strides[i], &step) ||
            !usc_add_i64(last, step, &last))
            return false;
    }
    return usc_add_i64(last, 1, &last) && usc_mul_i64(last, item_size, &bytes) &&
           bytes <= size;
}

usc_status usc_torch_files_tensor(const usc_torch_files *f, int64_t i,
                                  usc_torch_tensor *out, usc_error *err)
{
    const usc_json *row = usc_json_item(usc_json_get(f->answer, "tensors"), (size_t)i);
    const usc_json *sizes = usc_json_get(row, "sizes");
    int64_t item_size;
    *out = (usc_torch_tensor){.dtype_name = usc_json_as_text(usc_json_get(row, "dtype")),
                              .requires_grad =
                                  usc_json_is_true(usc_json_get(row, "requires_grad"))};
    const size_t ndim = usc_json_size(sizes);
    if (ndim > USC_MAX_DIMS)
        return usc_error_set(err, USC_E_SHAPE, (int64_t)ndim, "more than %d axes",
                             USC_MAX_DIMS);
    out->view.ndim = (int)ndim;
    if (out->dtype_name == NULL ||
        !usc_json_as_integer(usc_json_get(row, "storage"), &out->storage) ||
        !usc_json_as_integer(usc_json_get(row, "offset"), &out->offset) ||
        !usc_json_as_integer(usc_json_get(row, "item_size"), &item_size) ||
        !read_numbers(sizes, out->view.sizes, (int)ndim) ||
        !read_numbers(usc_json_get(row, "strides"), out->view.strides, (int)ndim) ||
        !is_inside(out, item_size, storage_size(f, out->storage)))
        return usc_error_set(err, USC_E_CORRUPT, i,
                             "tensor %lld of the file reaches out of its storage",
                             (long long)i);
    out->view.dtype = usc_dtype_by_name(out->dtype_name);
    return USC_OK;
}

usc_status usc_torch_files_storage(usc_torch_files *f, int64_t i, const void **bytes,
                                   int64_t *size, usc_error *err)
{
    *bytes = NULL;
    *size = storage_size(f, i);
    if (*size < 0)
        return usc_error_set(err, USC_E_CORRUPT, i, "a storage without a size");
    if ((size_t)*size > f->room) {
        free(f->bytes);
        f->room = 0;
        f->bytes = malloc((size_t)*size);
        if (f->bytes == NULL)
            return usc_error_set(err, USC_E_NOMEM, -1,
                                 "no memory for a tensor of %lld bytes",
                                 (long long)*size);
        f->room = (size_t)*size;
    }
    if (!usc_worker_bytes(&f->worker, f->bytes, (size_t)*size)) return lost(f, err);
    *bytes = f->bytes;
    return USC_OK;
}

static void put_numbers(usc_line *to, const char *name, const int64_t *numbers, int n)
{
    usc_line_add(to, ", \"%s\": [", name);
    for (int i = 0; i < n; i++)
        usc_line_add(to, "%s%lld", i > 0 ? ", " : "", (long long)numbers[i]);
    usc_line_text(to, "]");
}

static void put_save(usc_line *to, const usc_torch_save *t)
{
    usc_line_text(to, "{\"dtype\": ");
    usc_line_json(to, t->dtype_name);
    usc_line_add(to, ", \"bytes\": %lld", (long long)t->size);
    put_numbers(to, "sizes", t->sizes, t->ndim);
    put_numbers(to, "strides", t->strides, t->ndim);
    usc_line_add(to, ", \"as_it_lies\": %s, \"requires_grad\": %s}",
                 t->as_it_lies ? "true" : "false", t->requires_grad ? "true" : "false");
}

usc_status usc_torch_files_save(usc_torch_files *f, const char *path, const char *value,
                                const usc_torch_save *tensors, int64_t n, usc_error *err)
{
    usc_line request = {0};
    usc_status st = start(f, err);
    if (st != USC_OK) return st;
    usc_line_text(&request, "{\"save\": ");
    usc_line_json(&request, path);
    usc_line_add(&request, ", \"value\": %s, \"tensors\": [", value);
    for (int64_t i = 0; i < n; i++) {
        if (i > 0) usc_line_text(&request, ", ");
        put_save(&request, &tensors[i]);
    }
    usc_line_text(&request, "]}\n");
    if (request.failed) st = usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", path);
    if (st == USC_OK) usc_worker_tell(&f->worker, request.text);
    for (int64_t i = 0; st == USC_OK && i < n; i++)
        usc_worker_send(&f->worker, tensors[i].bytes, (size_t)tensors[i].size);
    usc_line_free(&request);
    if (st == USC_OK) st = hear(f, err);
    return st == USC_OK ? refusal(f, err) : st;
}

void usc_torch_files_close(usc_torch_files *f)
{
    if (f->runs) (void)usc_worker_end(&f->worker, false);
    usc_json_free(f->answer);
    free(f->bytes);
    *f = (usc_torch_files){0};
}
