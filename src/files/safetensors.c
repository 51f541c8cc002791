// SPDX-License-Identifier: Apache-2.0
// The reader of safetensors: eight bytes of length, a header in JSON, then
// the bytes. Written by trace_shard.c and by half the world.
#include <ulpscope/safetensors.h>

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/checked.h"
#include "base/path.h"
#include "json/json.h"

/* As the format's own reader has it. */
#define MOST_HEADER ((uint64_t)100 * 1000 * 1000)

typedef struct mapped {
    unsigned char *bytes;
    int64_t size, data; /* of the file; where the tensors begin */
    const char *path;
} mapped;

typedef struct entry {
    usc_safetensor tensor;
    const unsigned char *at; /* in the map; its data may be a copy */
} entry;

struct usc_safetensors {
    usc_arena arena; /* names, entries, copies */
    mapped *files;
    size_t n_files, files_room;
    entry *items;
    size_t n, room;
};

static usc_status os_error(const char *path, usc_error *err)
{
    return usc_error_set(err, errno == ENOENT ? USC_E_NOT_FOUND : USC_E_IO, -1, "%s: %s",
                         path, strerror(errno));
}

/* ---- one file ---- */

static usc_status map_file(const char *path, mapped *out, usc_error *err)
{
    struct stat info;
    *out = (mapped){.path = path};
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return os_error(path, err);
    usc_status st = USC_OK;
    if (fstat(fd, &info) != 0) {
        st = os_error(path, err);
    } else if (!S_ISREG(info.st_mode)) {
        st = usc_error_set(err, USC_E_IO, -1, "%s: not a file", path);
    } else if (info.st_size < 8) {
        st = usc_error_set(err, USC_E_CORRUPT, 0,
                           "%s: no safetensors file: it has %lld bytes", path,
                           (long long)info.st_size);
    } else {
        void *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED)
            st = os_error(path, err);
        else
            *out = (mapped){.bytes = map, .size = (int64_t)info.st_size, .path = path};
    }
    (void)close(fd);
    return st;
}

static usc_status header_size(mapped *f, usc_error *err)
{
    uint64_t size = 0;
    for (int i = 0; i < 8; i++)
        size |= (uint64_t)f->bytes[i] << (8 * i);
    if (size > (uint64_t)f->size - 8)
        return usc_error_set(err, USC_E_CORRUPT, 0,
                             "%s: no safetensors file, or cut off: its header would have "
                             "%llu bytes, the file has %lld",
                             f->path, (unsigned long long)size, (long long)f->size);
    if (size > MOST_HEADER)
        return usc_error_set(err, USC_E_CORRUPT, 0,
                             "%s: a header of %llu bytes; at most 100 MB are read",
                             f->path, (unsigned long long)size);
    f->data = 8 + (int64_t)size;
    return USC_OK;
}

/* Counts all axes, and keeps those that there is room for. */
static bool read_shape(const usc_json *list, int64_t *sizes, int *ndim)
{
    const size_t n = usc_json_size(list);
    if (!usc_json_is_list(list) || n > INT_MAX) return false;
    for (size_t i = 0; i < n; i++) {
        int64_t size;
        if (!usc_json_as_integer(usc_json_item(list, i), &size) || size < 0) return false;
        if (i < USC_MAX_DIMS) sizes[i] = size;
    }
    *ndim = (int)n;
    return true;
}

/* Tensors whose dtype has a row have the size that shape and dtype say. */
static usc_status check_size(const usc_safetensor *t, usc_error *err)
{
    int64_t n, bytes = 0;
    if (usc_tensor_numel(&t->tensor, &n, NULL) != USC_OK)
        return usc_error_set(err, USC_E_CORRUPT, -1, "%s: %s: an impossible shape",
                             t->path, t->name);
    if (t->tensor.dtype == USC_DTYPE_NONE) return USC_OK;
    const int64_t size = (int64_t)usc_dtype_info_of(t->tensor.dtype)->size;
    if (usc_mul_i64(n, size, &bytes) && bytes == t->bytes) return USC_OK;
    return usc_error_set(err, USC_E_CORRUPT, -1,
                         "%s: %s: %lld bytes, but %lld elements of %s", t->path, t->name,
                         (long long)t->bytes, (long long)n, t->dtype_name);
}

/* Bytes as they lie in the file; a copy where the dtype wants another alignment. */
static usc_status place(usc_safetensors *set, usc_safetensor *t, unsigned char *bytes,
                        usc_error *err)
{
    void *data = bytes;
    const size_t unit = usc_dtype_info_of(t->tensor.dtype)->size;
    if ((uintptr_t)data % unit != 0 && t->bytes > 0) {
        data = usc_arena_take(&set->arena, (size_t)t->bytes);
        if (data == NULL) return usc_no_memory(t->path, err);
        memcpy(data, bytes, (size_t)t->bytes);
    }
    const usc_tensor shape = t->tensor;
    return usc_tensor_make(&t->tensor, data, shape.dtype, shape.ndim, shape.sizes, err);
}

static const char *keep(usc_safetensors *set, const char *text)
{
    char *copy = usc_arena_take(&set->arena, strlen(text) + 1);
    return copy != NULL ? strcpy(copy, text) : NULL;
}

/* Where the tensor lies, as far as its entry says so in the right form. */
static bool read_place(const usc_json *value, int64_t *begin, int64_t *end)
{
    const usc_json *list = usc_json_get(value, "data_offsets");
    return usc_json_is_list(list) && usc_json_size(list) == 2 &&
           usc_json_as_integer(usc_json_item(list, 0), begin) &&
           usc_json_as_integer(usc_json_item(list, 1), end);
}

static usc_status read_entry(usc_safetensors *set, const mapped *f, const char *name,
                             const usc_json *value, entry *e, usc_error *err)
{
    usc_safetensor *t = &e->tensor;
    int64_t begin, end;
    const char *dtype = usc_json_as_text(usc_json_get(value, "dtype"));
    *t = (usc_safetensor){.name = keep(set, name), .path = f->path};
    if (dtype != NULL) t->dtype_name = keep(set, dtype);
    if (set->arena.failed) return usc_no_memory(f->path, err);
    if (dtype == NULL || !read_place(value, &begin, &end) ||
        !read_shape(usc_json_get(value, "shape"), t->tensor.sizes, &t->tensor.ndim))
        return usc_error_set(err, USC_E_CORRUPT, -1,
                             "%s: %.80s: dtype, shape or data_offsets are missing or of "
                             "another kind",
                             f->path, t->name);
    if (t->tensor.ndim > USC_MAX_DIMS)
        return usc_error_set(err, USC_E_SHAPE, -1, "%s: %.80s has %d axes, at most %d",
                             f->path, t->name, t->tensor.ndim, USC_MAX_DIMS);
    if (begin < 0 || end < begin || end > f->size - f->data)
        return usc_error_set(err, USC_E_CORRUPT, begin,
                             "%s: %.80s lies at bytes %lld to %lld of %lld: the file is "
                             "cut off or damaged",
                             f->path, t->name, (long long)begin, (long long)end,
                             (long long)(f->size - f->data));
    t->bytes = end - begin;
    t->tensor.dtype = usc_dtype_by_name(t->dtype_name);
    e->at = f->bytes + f->data + begin;
    const usc_status st = check_size(t, err);
    return st == USC_OK ? place(set, t, f->bytes + f->data + begin, err) : st;
}

static usc_status grow(usc_safetensors *set, const char *path, usc_error *err)
{
    if (set->n < set->room) return USC_OK;
    entry *items =
        usc_arena_grow(&set->arena, set->items, set->n, &set->room, sizeof *items);
    if (items == NULL) return usc_no_memory(path, err);
    set->items = items;
    return USC_OK;
}

static usc_status read_entries(usc_safetensors *set, const mapped *f,
                               const usc_json *header, usc_error *err)
{
    usc_status st = USC_OK;
    const char *name;
    const usc_json *value;
    for (void *at = NULL; st == USC_OK && usc_json_next(header, &at, &name, &value);) {
        if (strcmp(name, "__metadata__") == 0) continue;
        st = grow(set, f->path, err);
        if (st == USC_OK) st = read_entry(set, f, name, value, &set->items[set->n], err);
        set->n += st == USC_OK;
    }
    return st;
}

static usc_status read_header(usc_safetensors *set, const mapped *f, usc_error *err)
{
    static const char what[] = "no safetensors file: its header is no JSON object";
    usc_json *header;
    usc_status st = usc_json_parse((const char *)f->bytes + 8, (size_t)(f->data - 8),
                                   f->path, what, &header, err);
    if (st != USC_OK) return st;
    if (usc_json_is_object(header))
        st = read_entries(set, f, header, err);
    else
        st = usc_error_set(err, USC_E_CORRUPT, 8, "%s: %s", f->path, what);
    usc_json_free(header);
    return st;
}

static usc_status add_file(usc_safetensors *set, const char *path, usc_error *err)
{
    if (set->n_files == set->files_room) {
        mapped *files = usc_arena_grow(&set->arena, set->files, set->n_files,
                                       &set->files_room, sizeof *files);
        if (files == NULL) return usc_no_memory(path, err);
        set->files = files;
    }
    const char *kept = keep(set, path);
    if (kept == NULL) return usc_no_memory(path, err);
    mapped *f = &set->files[set->n_files];
    usc_status st = map_file(kept, f, err);
    if (st != USC_OK) return st;
    set->n_files++;
    st = header_size(f, err);
    return st == USC_OK ? read_header(set, f, err) : st;
}

/* ---- the set ---- */

static int by_place(const void *a, const void *b)
{
    const entry *const *x = a, *const *y = b;
    const int files = strcmp((*x)->tensor.path, (*y)->tensor.path);
    if (files != 0) return files;
    return (*x)->at < (*y)->at ? -1 : (*x)->at > (*y)->at;
}

static int by_name(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return strcmp(x->tensor.name, y->tensor.name);
}

/* No byte may belong to two tensors: such a file was not written by anything sound. */
static usc_status check_overlap(usc_safetensors *set, usc_error *err)
{
    const entry **order = usc_arena_take(&set->arena, (set->n + 1) * sizeof *order);
    if (order == NULL) return usc_no_memory("safetensors", err);
    size_t n = 0;
    for (size_t i = 0; i < set->n; i++)
        if (set->items[i].tensor.bytes > 0) order[n++] = &set->items[i];
    qsort(order, n, sizeof *order, by_place);
    for (size_t i = 1; i < n; i++) {
        const entry *x = order[i - 1], *y = order[i];
        if (strcmp(x->tensor.path, y->tensor.path) == 0 &&
            x->at + x->tensor.bytes > y->at)
            return usc_error_set(err, USC_E_CORRUPT, -1,
                                 "%s: %.80s and %.80s lie over each other",
                                 x->tensor.path, x->tensor.name, y->tensor.name);
    }
    return USC_OK;
}

static usc_status check_names(usc_safetensors *set, usc_error *err)
{
    if (set->n > 0) qsort(set->items, set->n, sizeof *set->items, by_name);
    for (size_t i = 1; i < set->n; i++) {
        const usc_safetensor *x = &set->items[i - 1].tensor, *y = &set->items[i].tensor;
        if (strcmp(x->name, y->name) == 0)
            return usc_error_set(err, USC_E_CORRUPT, -1,
                                 "%.80s stands twice: in %s and %s", x->name, x->path,
                                 y->path);
    }
    return USC_OK;
}

static usc_status add_folder(usc_safetensors *set, const char *path, DIR *folder,
                             usc_error *err)
{
    static const char ending[] = ".safetensors";
    usc_status st = USC_OK;
    const struct dirent *found;
    while (st == USC_OK && (found = readdir(folder)) != NULL) {
        char inside[USC_PATH_SIZE];
        const size_t n = strlen(found->d_name);
        if (found->d_name[0] == '.' || n < sizeof ending ||
            strcmp(found->d_name + n - (sizeof ending - 1), ending) != 0)
            continue;
        st = usc_path_join(inside, path, found->d_name, err);
        if (st == USC_OK) st = add_file(set, inside, err);
    }
    if (st == USC_OK && set->n_files == 0)
        st = usc_error_set(err, USC_E_NOT_FOUND, -1, "%s: no file *.safetensors in it",
                           path);
    return st;
}

usc_status usc_safetensors_open(const char *path, const usc_alloc *alloc,
                                usc_safetensors **out, usc_error *err)
{
    assert(path);
    assert(out);
    if (alloc == NULL) alloc = &usc_libc_alloc;
    *out = NULL;
    usc_safetensors *set = alloc->resize(alloc->ctx, NULL, 0, sizeof *set);
    if (set == NULL) return usc_no_memory(path, err);
    *set = (usc_safetensors){.arena = {.alloc = *alloc}};
    DIR *folder = opendir(path);
    usc_status st =
        folder != NULL ? add_folder(set, path, folder, err) : add_file(set, path, err);
    if (folder != NULL) (void)closedir(folder);
    if (st == USC_OK) st = check_overlap(set, err);
    if (st == USC_OK) st = check_names(set, err);
    if (st == USC_OK) {
        *out = set;
        set = NULL;
    }
    usc_safetensors_close(set);
    return st;
}

void usc_safetensors_close(usc_safetensors *set)
{
    if (set == NULL) return;
    const usc_alloc alloc = set->arena.alloc;
    for (size_t i = 0; i < set->n_files; i++)
        if (set->files[i].bytes != NULL)
            (void)munmap(set->files[i].bytes, (size_t)set->files[i].size);
    usc_arena_free(&set->arena);
    alloc.resize(alloc.ctx, set, sizeof *set, 0);
}

usc_tensor usc_safetensor_bytes(const usc_safetensor *t)
{
    assert(t);
    return (usc_tensor){.data = t->tensor.data,
                        .dtype = USC_U8,
                        .ndim = 1,
                        .sizes = {t->bytes},
                        .strides = {1}};
}

int64_t usc_safetensors_count(const usc_safetensors *set)
{
    assert(set);
    return (int64_t)set->n;
}

const usc_safetensor *usc_safetensors_at(const usc_safetensors *set, int64_t i)
{
    assert(set);
    return i >= 0 && i < (int64_t)set->n ? &set->items[i].tensor : NULL;
}

const usc_safetensor *usc_safetensors_find(const usc_safetensors *set, const char *name)
{
    assert(set && name);
    const entry key = {.tensor = {.name = name}};
    if (set->n == 0) return NULL;
    const entry *e = bsearch(&key, set->items, set->n, sizeof key, by_name);
    return e != NULL ? &e->tensor : NULL;
}
