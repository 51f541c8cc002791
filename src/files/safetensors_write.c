// SPDX-License-Identifier: Apache-2.0
// The writer of safetensors: length, header, bytes. Neighbour: safetensors.c reads.
#include <ulpscope/safetensors.h>

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/checked.h"
#include "base/path.h"
#include "tensor/walk.h"
#include "json/json.h"

enum { ENTRY_ROOM = 128 + USC_MAX_DIMS * 21, BLOCK = 64 * 1024, ALIGNED = 8 };

typedef struct item {
    const usc_named_tensor *from;
    const char *quoted; /* its name in JSON */
    usc_walk walk;
} item;

typedef struct output {
    usc_arena arena;
    const char *path;
    char part[USC_PATH_SIZE];
    item *items;
    size_t n;
    char *header;
    size_t used, room;
    int fd;
    bool flush;
} output;

static usc_status os_error(const output *o, usc_error *err)
{
    return usc_error_set(err, USC_E_IO, -1, "%s: %s", o->path, strerror(errno));
}

/* ---- what is to be written ---- */

static usc_status take_item(output *o, const usc_named_tensor *from, item *out,
                            usc_error *err)
{
    if (from->tensor.dtype <= USC_DTYPE_NONE || from->tensor.dtype >= USC_N_DTYPES)
        return usc_error_set(err, USC_E_DTYPE, -1, "%s: %.80s has no dtype of the table",
                             o->path, from->name);
    *out = (item){.from = from, .quoted = usc_json_quoted(from->name, &o->arena)};
    if (o->arena.failed) return usc_no_memory(o->path, err);
    if (out->quoted == NULL || strcmp(from->name, "__metadata__") == 0)
        return usc_error_set(err, USC_E_ARG, -1, "%s: %.80s can be no tensor's name",
                             o->path, from->name);
    o->room += strlen(out->quoted) + ENTRY_ROOM;
    return usc_walk_begin(&from->tensor, true, &out->walk, err);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const item *)a)->from->name, ((const item *)b)->from->name);
}

/* The widest first, and then as they were given. */
static int by_width(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->walk.size != y->walk.size) return x->walk.size > y->walk.size ? -1 : 1;
    return (x->from > y->from) - (x->from < y->from);
}

static usc_status take_items(output *o, const usc_named_tensor *tensors, usc_error *err)
{
    usc_status st = USC_OK;
    if (o->n > SIZE_MAX / 2 / sizeof *o->items) return usc_no_memory(o->path, err);
    o->items = usc_arena_take(&o->arena, o->n * sizeof *o->items + 1);
    if (o->items == NULL) return usc_no_memory(o->path, err);
    for (size_t i = 0; i < o->n && st == USC_OK; i++)
        st = take_item(o, &tensors[i], &o->items[i], err);
    if (st != USC_OK) return st;
    qsort(o->items, o->n, sizeof *o->items, by_name);
    for (size_t i = 1; i < o->n; i++)
        if (by_name(&o->items[i - 1], &o->items[i]) == 0)
            return usc_error_set(err, USC_E_ARG, -1,
                                 "%s: two tensors have the name %.80s", o->path,
                                 o->items[i].from->name);
    qsort(o->items, o->n, sizeof *o->items, by_width);
    return USC_OK;
}

/* ---- the header ---- */

static void put(output *o, const char *text)
{
    const size_t n = strlen(text);
    memcpy(o->header + o->used, text, n);
    o->used += n;
}

static void put_number(output *o, const char *before, int64_t value)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%s%" PRId64, before, value);
    put(o, text);
}

static void put_entry(output *o, const item *x, int64_t begin, int64_t end)
{
    const usc_tensor *t = &x->from->tensor;
    put(o, x->quoted);
    put(o, ":{\"dtype\":\"");
    put(o, usc_dtype_info_of(t->dtype)->file_name);
    put(o, "\",\"shape\":[");
    for (int i = 0; i < t->ndim; i++)
        put_number(o, i > 0 ? "," : "", t->sizes[i]);
    put_number(o, "],\"data_offsets\":[", begin);
    put_number(o, ",", end);
    put(o, "]}");
}

static usc_status make_header(output *o, usc_error *err)
{
    int64_t at = 0, size = 0, end = 0;
    o->room += 8 + 2 + ALIGNED;
    o->header = usc_arena_take(&o->arena, o->room);
    if (o->header == NULL) return usc_no_memory(o->path, err);
    o->used = 8;
    put(o, "{");
    for (size_t i = 0; i < o->n; i++, at = end) {
        const item *x = &o->items[i];
        if (!usc_mul_i64(x->walk.n, (int64_t)x->walk.size, &size) ||
            !usc_add_i64(at, size, &end))
            return usc_error_set(err, USC_E_RANGE, -1, "%s: too many bytes", o->path);
        if (i > 0) put(o, ",");
        put_entry(o, x, at, end);
    }
    put(o, "}");
    while (o->used % ALIGNED != 0)
        put(o, " ");
    for (int i = 0; i < 8; i++)
        o->header[i] = (char)((o->used - 8) >> (8 * i) & 0xff);
    return USC_OK;
}

/* ---- the file ---- */

static usc_status write_all(const output *o, const void *bytes, size_t size,
                            usc_error *err)
{
    const char *at = bytes;
    while (size > 0) {
        const ssize_t n = write(o->fd, at, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return os_error(o, err);
        at += n;
        size -= (size_t)n;
    }
    return USC_OK;
}

static usc_status write_item(const output *o, const item *x, unsigned char *block,
                             usc_error *err)
{
    const usc_walk *w = &x->walk;
    if (usc_walk_dense(w)) return write_all(o, w->base, (size_t)w->n * w->size, err);
    const int64_t most = BLOCK / (int64_t)w->size;
    usc_status st = USC_OK;
    for (int64_t at = 0; at < w->n && st == USC_OK; at += most) {
        const size_t n = (size_t)(w->n - at < most ? w->n - at : most);
        usc_walk_gather(w, at, n, block);
        st = write_all(o, block, n * w->size, err);
    }
    return st;
}

static usc_status write_file(output *o, usc_error *err)
{
    unsigned char *block = usc_arena_take(&o->arena, BLOCK);
    if (block == NULL) return usc_no_memory(o->path, err);
    o->fd = open(o->part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (o->fd < 0) return os_error(o, err);
    usc_status st = write_all(o, o->header, o->used, err);
    for (size_t i = 0; i < o->n && st == USC_OK; i++)
        st = write_item(o, &o->items[i], block, err);
    if (st == USC_OK && o->flush && fsync(o->fd) != 0) st = os_error(o, err);
    if (close(o->fd) != 0 && st == USC_OK) st = os_error(o, err);
    if (st == USC_OK && rename(o->part, o->path) != 0) st = os_error(o, err);
    if (st != USC_OK) (void)unlink(o->part);
    return st;
}

static usc_status name_part(output *o, usc_error *err)
{
    const int n = snprintf(o->part, sizeof o->part, "%s.part", o->path);
    if (n > 0 && (size_t)n < sizeof o->part) return USC_OK;
    return usc_error_set(err, USC_E_ARG, -1, "path too long: %.64s...", o->path);
}

static usc_status write_tensors(output *o, const usc_named_tensor *tensors,
                                const usc_alloc *alloc, usc_error *err)
{
    assert(o->path);
    assert(o->n == 0 || tensors);
    o->arena.alloc = alloc != NULL ? *alloc : usc_libc_alloc;
    usc_status st = name_part(o, err);
    if (st == USC_OK) st = take_items(o, tensors, err);
    if (st == USC_OK) st = make_header(o, err);
    if (st == USC_OK) st = write_file(o, err);
    usc_arena_free(&o->arena);
    return st;
}

usc_status usc_safetensors_write(const char *path, const usc_named_tensor *tensors,
                                 int64_t n, const usc_alloc *alloc, usc_error *err)
{
    assert(n >= 0);
    output o = {.path = path, .n = (size_t)n, .flush = true};
    return write_tensors(&o, tensors, alloc, err);
}

usc_status usc_safetensors_put(const char *path, const usc_named_tensor *tensors,
                               int64_t n, const usc_alloc *alloc, usc_error *err)
{
    assert(n >= 0);
    output o = {.path = path, .n = (size_t)n};
    return write_tensors(&o, tensors, alloc, err);
}
