// SPDX-License-Identifier: Apache-2.0
// The tensors of a trace: blobs as maps of the shards, or copied out of them.
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/trace_reader.h"
#include "trace/trace_shard.h"

usc_status usc_trace_open_shard(const usc_trace *t, int64_t index, char *path, int *fd,
                                int64_t *size, usc_error *err)
{
    struct stat info;
    usc_status st = usc_shard_path(path, t->folder, index, true, err);
    if (st != USC_OK) return st;
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0) {
        st = usc_shard_path(path, t->folder, index, false, err);
        if (st != USC_OK) return st;
        *fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (*fd >= 0 && fstat(*fd, &info) == 0) {
        *size = (int64_t)info.st_size;
        return USC_OK;
    }
    const int os = errno;
    if (*fd >= 0) close(*fd);
    *fd = -1;
    return usc_error_set(err, os == ENOENT ? USC_E_CORRUPT : USC_E_IO, -1,
                         "%s: %s, but trace.db names tensors in it", path, strerror(os));
}

void usc_trace_forget_shards(usc_trace *t)
{
    const usc_alloc alloc = t->alloc;
    while (t->maps != NULL) {
        usc_shard_map *map = t->maps;
        t->maps = map->next;
        if (map->data != NULL) munmap(map->data, (size_t)map->size);
        if (map->fd >= 0) close(map->fd);
        alloc.resize(alloc.ctx, map, sizeof *map, 0);
    }
    if (t->checked != NULL)
        alloc.resize(alloc.ctx, t->checked, t->n_checked * sizeof *t->checked, 0);
    t->checked = NULL;
    t->n_checked = 0;
}

static usc_status map_shard(usc_trace *t, int64_t index, usc_shard_map **out,
                            usc_error *err)
{
    for (usc_shard_map *m = t->maps; m != NULL; m = m->next)
        if (m->index == index) {
            *out = m;
            return USC_OK;
        }
    char path[USC_PATH_SIZE];
    usc_shard_map *m = t->alloc.resize(t->alloc.ctx, NULL, 0, sizeof *m);
    if (m == NULL) return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", t->folder);
    *m = (usc_shard_map){.index = index, .fd = -1};
    usc_status st = usc_trace_open_shard(t, index, path, &m->fd, &m->size, err);
    if (st == USC_OK && m->size > 0) {
        void *data = mmap(NULL, (size_t)m->size, PROT_READ, MAP_SHARED, m->fd, 0);
        if (data == MAP_FAILED)
            st = usc_error_set(err, USC_E_IO, -1, "%s: mapping: %s", path,
                               strerror(errno));
        else
            m->data = data;
    }
    if (st != USC_OK) {
        if (m->fd >= 0) close(m->fd);
        t->alloc.resize(t->alloc.ctx, m, sizeof *m, 0);
        return st;
    }
    m->next = t->maps;
    t->maps = m;
    *out = m;
    return USC_OK;
}

/* The row of a blob. */
typedef struct blob_place {
    int64_t blob, shard, offset, bytes;
    char hash[33];
} blob_place;

static usc_status find_blob(usc_trace *t, int64_t blob, blob_place *out, usc_error *err)
{
    sqlite3_stmt *s;
    bool row = false;
    usc_arena_reset(&t->arena);
    usc_status st = usc_db_get(&t->db, USC_SQL_GET_BLOB, &s, err);
    if (st != USC_OK) return st;
    sqlite3_bind_int64(s, 1, blob);
    st = usc_db_step(&t->db, s, &row, err);
    *out = (blob_place){.blob = blob,
                        .shard = sqlite3_column_int64(s, 0),
                        .offset = sqlite3_column_int64(s, 1),
                        .bytes = sqlite3_column_int64(s, 2)};
    const char *hash = row ? (const char *)sqlite3_column_text(s, 3) : NULL;
    snprintf(out->hash, sizeof out->hash, "%s", hash != NULL ? hash : "");
    sqlite3_reset(s);
    if (st != USC_OK || row) return st;
    return usc_error_set(err, USC_E_NOT_FOUND, blob, "%s: there is no blob %lld",
                         t->folder, (long long)blob);
}

static usc_status check_place(const usc_trace *t, const blob_place *b,
                              const usc_shard_map *m, usc_error *err)
{
    if (b->offset < USC_SHARD_DATA_START || b->bytes < 0 || b->offset > m->size ||
        b->bytes > m->size - b->offset)
        return usc_error_set(err, USC_E_CORRUPT, b->offset,
                             "%s/tensors-%05d.safetensors: blob %lld of %lld bytes at "
                             "offset %lld, but the file has %lld bytes",
                             t->folder, (int)b->shard, (long long)b->blob,
                             (long long)b->bytes, (long long)b->offset,
                             (long long)m->size);
    return USC_OK;
}

/* Whether bytes are those that were written: a verdict over others would accuse a device
 * of what a disk or a copy did. */
static usc_status check_bytes(const usc_trace *t, const blob_place *b, const void *data,
                              usc_error *err)
{
    char hash[33];
    usc_hash_text(data, (size_t)b->bytes, hash);
    if (strcmp(hash, b->hash) == 0) return USC_OK;
    return usc_error_set(err, USC_E_CORRUPT, b->offset,
                         "%s/tensors-%05d.safetensors: the bytes of blob %lld at offset "
                         "%lld are not those that were written",
                         t->folder, (int)b->shard, (long long)b->blob,
                         (long long)b->offset);
}

/* Finds a blob within its shard. */
static usc_status place_blob(usc_trace *t, int64_t blob, blob_place *b, usc_shard_map **m,
                             usc_error *err)
{
    usc_status st = find_blob(t, blob, b, err);
    if (st == USC_OK) st = map_shard(t, b->shard, m, err);
    if (st == USC_OK) st = check_place(t, b, *m, err);
    return st;
}

usc_status usc_trace_blob(usc_trace *t, int64_t blob, const void **data, int64_t *size,
                          usc_error *err)
{
    assert(t);
    assert(data && size);
    blob_place b;
    usc_shard_map *m;
    *data = NULL;
    *size = 0;
    usc_status st = place_blob(t, blob, &b, &m, err);
    if (st == USC_OK) st = check_bytes(t, &b, m->data + b.offset, err);
    if (st != USC_OK) return st;
    *data = m->data + b.offset; /* behind the header: never NULL, also for no bytes */
    *size = b.bytes;
    return USC_OK;
}

/* ---- copies, of which nothing stays mapped ---- */

static bool is_checked(const usc_trace *t, int64_t blob)
{
    for (size_t i = 0; i < t->n_checked; i++)
        if (t->checked[i] == blob) return true;
    return false;
}

/* Checks all of a blob once. Its pages are given back: they would count as this
 * process's. */
static usc_status check_once(usc_trace *t, const blob_place *b, const usc_shard_map *m,
                             usc_error *err)
{
    if (is_checked(t, b->blob)) return USC_OK;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t data = (uintptr_t)m->data + (uintptr_t)b->offset;
    const uintptr_t first = data & ~(page - 1);
    usc_status st = check_bytes(t, b, m->data + b->offset, err);
    (void)madvise((void *)first, data - first + (size_t)b->bytes, MADV_DONTNEED);
    if (st != USC_OK) return st;
    const size_t size = t->n_checked * sizeof *t->checked;
    int64_t *checked =
        t->alloc.resize(t->alloc.ctx, t->checked, size, size + sizeof *t->checked);
    if (checked == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", t->folder);
    t->checked = checked;
    t->checked[t->n_checked++] = b->blob;
    return USC_OK;
}

static usc_status copy_bytes(const usc_trace *t, const usc_shard_map *m, int64_t first,
                             int64_t size, unsigned char *out, usc_error *err)
{
    while (size > 0) {
        const ssize_t n = pread(m->fd, out, (size_t)size, (off_t)first);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return usc_error_set(err, USC_E_IO, first, "%s/tensors-%05d.safetensors: %s",
                                 t->folder, (int)m->index,
                                 n < 0 ? strerror(errno) : "it ends too early");
        out += n;
        first += n;
        size -= n;
    }
    return USC_OK;
}

usc_status usc_trace_read_blob(usc_trace *t, int64_t blob, int64_t first, int64_t size,
                               void *out, usc_error *err)
{
    assert(t);
    assert(out || size == 0);
    blob_place b;
    usc_shard_map *m;
    usc_status st = place_blob(t, blob, &b, &m, err);
    if (st != USC_OK) return st;
    if (first < 0 || size < 0 || first > b.bytes || size > b.bytes - first)
        return usc_error_set(err, USC_E_ARG, first,
                             "%s: %lld bytes at %lld of a blob of %lld bytes", t->folder,
                             (long long)size, (long long)first, (long long)b.bytes);
    const bool whole = size == b.bytes;
    if (!whole) st = check_once(t, &b, m, err);
    if (st == USC_OK) st = copy_bytes(t, m, b.offset + first, size, out, err);
    if (st == USC_OK && whole) st = check_bytes(t, &b, out, err);
    return st;
}

void usc_trace_hash(const void *data, size_t size, char out[33])
{
    assert(data || size == 0);
    usc_hash_text(data, size, out);
}
