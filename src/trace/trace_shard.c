// SPDX-License-Identifier: Apache-2.0
// Writing a shard. Bytes go straight to the file, so that they outlive this process; the
// header comes last, made from the rows of trace.db, by the writer or after its death.
#include "trace/trace_shard.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

#define ENTRY_FORMAT "\"%s-%" PRId64 "\":{\"dtype\":\"U8\",\"shape\":[%" PRId64 "],"
#define OFFSETS_FORMAT "\"data_offsets\":[%" PRId64 ",%" PRId64 "]}"
#define METADATA_ROOM 256 /* bytes kept for "__metadata__" and the closing brace */
#define ENTRY_ROOM 160    /* no entry is longer: four numbers of 20 digits at most */

static usc_status os_error(usc_error *err, const char *path, const char *doing)
{
    return usc_error_set(err, errno == ENOENT ? USC_E_NOT_FOUND : USC_E_IO, -1,
                         "%s: %s: %s", path, doing, strerror(errno));
}

usc_status usc_shard_path(char *out, const char *folder, int64_t index, bool part,
                          usc_error *err)
{
    char name[64];
    out[0] = '\0';
    if (index < 0 || index >= USC_MAX_SHARDS)
        return usc_error_set(err, USC_E_CORRUPT, -1, "%s: impossible shard %lld", folder,
                             (long long)index);
    snprintf(name, sizeof name, "tensors-%05d.safetensors%s", (int)index,
             part ? ".part" : "");
    return usc_path_join(out, folder, name, err);
}

void usc_hash_text(const void *data, size_t size, char *out)
{
    const usc_hash128 h = usc_hash_bytes(data, size);
    snprintf(out, 33, "%016" PRIx64 "%016" PRIx64, h.high, h.low);
}

void usc_folder_sync(const char *folder)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}

/* ---- appending ---- */

usc_status usc_shard_create(usc_shard *s, const char *folder, int64_t index,
                            usc_error *err)
{
    *s = (usc_shard){.fd = -1, .index = index, .end = USC_SHARD_DATA_START};
    s->header_used = METADATA_ROOM;
    usc_status st = usc_shard_path(s->path, folder, index, true, err);
    if (st != USC_OK) return st;
    s->fd = open(s->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (s->fd < 0) return os_error(err, s->path, "creating");
    /* Taken now, so that a full disk cannot keep the shard from being sealed. */
    errno = posix_fallocate(s->fd, 0, USC_SHARD_DATA_START);
    if (errno != 0) {
        st = os_error(err, s->path, "reserving the header");
        unlink(s->path);
        usc_shard_close(s);
    }
    return st;
}

bool usc_shard_has_room(const usc_shard *s)
{
    return s->header_used + 2 * ENTRY_ROOM <= USC_SHARD_DATA_START - 8;
}

static usc_status write_at(int fd, const char *path, const void *data, int64_t size,
                           int64_t offset, usc_error *err)
{
    const char *at = data;
    while (size > 0) {
        const ssize_t n = pwrite(fd, at, (size_t)size, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            if (n == 0) errno = ENOSPC;
            return os_error(err, path, "writing");
        }
        at += n;
        size -= n;
        offset += n;
    }
    return USC_OK;
}

usc_status usc_shard_append(usc_shard *s, int64_t blob, const void *data, int64_t size,
                            int64_t *offset, usc_error *err)
{
    /* An empty blob has no bytes to align and must not lie behind the end. */
    const int64_t gap = size > 0 ? -s->end & (USC_SHARD_ALIGN - 1) : 0;
    const int64_t begin = s->end + gap;
    const usc_status st = write_at(s->fd, s->path, data, size, begin, err);
    if (st != USC_OK) return st;
    *offset = begin;
    s->end = begin + size;
    s->header_used += snprintf(NULL, 0, "," ENTRY_FORMAT OFFSETS_FORMAT, "blob", blob,
                               size, begin, s->end);
    if (gap > 0)
        s->header_used += snprintf(NULL, 0, "," ENTRY_FORMAT OFFSETS_FORMAT, "pad", blob,
                                   gap, begin - gap, begin);
    return USC_OK;
}

void usc_shard_close(usc_shard *s)
{
    if (s->fd >= 0) close(s->fd);
    s->fd = -1;
}

/* ---- sealing ---- */

typedef struct header {
    char *text; /* USC_SHARD_DATA_START - 8 bytes */
    int64_t used;
    int64_t end; /* file offset up to which entries reach */
} header;

static bool add_entry(header *h, const char *name, int64_t id, int64_t begin, int64_t end)
{
    char entry[2 * ENTRY_ROOM];
    const int n =
        snprintf(entry, sizeof entry, "," ENTRY_FORMAT OFFSETS_FORMAT, name, id,
                 end - begin, begin - USC_SHARD_DATA_START, end - USC_SHARD_DATA_START);
    if (h->used + n + 1 > USC_SHARD_DATA_START - 8) return false;
    memcpy(h->text + h->used, entry, (size_t)n);
    h->used += n;
    h->end = end;
    return true;
}

/* safetensors wants every byte of the data named once: gaps become `pad-` entries. */
static usc_status fill_header(header *h, const usc_seal *how, int64_t index,
                              int64_t *n_blobs, usc_error *err)
{
    sqlite3_stmt *s;
    bool row = false;
    usc_status st = usc_db_get(how->db, how->i_blobs, &s, err);
    if (st != USC_OK) return st;
    h->used = snprintf(h->text, METADATA_ROOM,
                       "{\"__metadata__\":{\"format\":\"ulpscope-trace\",\"trace\":"
                       "\"%.40s\",\"shard\":\"%d\"}",
                       how->trace_id, (int)index);
    h->end = USC_SHARD_DATA_START;
    sqlite3_bind_int64(s, 1, index);
    while ((st = usc_db_step(how->db, s, &row, err)) == USC_OK && row) {
        const int64_t id = sqlite3_column_int64(s, 0);
        const int64_t begin = sqlite3_column_int64(s, 1);
        const int64_t bytes = sqlite3_column_int64(s, 2);
        bool fits = begin >= h->end && bytes >= 0 && bytes <= INT64_MAX - begin;
        if (fits && begin > h->end) fits = add_entry(h, "pad", id, h->end, begin);
        if (fits) fits = add_entry(h, "blob", id, begin, begin + bytes);
        if (!fits) {
            st = usc_error_set(err, USC_E_CORRUPT, id, "%s: blob %lld cannot lie there",
                               how->db->path, (long long)id);
            break;
        }
        ++*n_blobs;
    }
    sqlite3_reset(s);
    if (st != USC_OK) return st;
    h->text[h->used++] = '}';
    memset(h->text + h->used, ' ', (size_t)(USC_SHARD_DATA_START - 8 - h->used));
    return USC_OK;
}

static usc_status check_part(int fd, const char *path, int64_t end, usc_error *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0) return os_error(err, path, "reading");
    if ((int64_t)info.st_size >= end) return USC_OK;
    return usc_error_set(err, USC_E_CORRUPT, (int64_t)info.st_size,
                         "%s: ends at byte %lld, its blobs reach to %lld", path,
                         (long long)info.st_size, (long long)end);
}

static usc_status write_header(int fd, const char *path, const header *h, usc_error *err)
{
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)(USC_SHARD_DATA_START - 8) >> (8 * i));
    if (ftruncate(fd, (off_t)h->end) != 0) return os_error(err, path, "cutting");
    usc_status st = write_at(fd, path, length, 8, 0, err);
    if (st == USC_OK) st = write_at(fd, path, h->text, USC_SHARD_DATA_START - 8, 8, err);
    if (st == USC_OK && fsync(fd) != 0) st = os_error(err, path, "flushing");
    return st;
}

usc_status usc_shard_seal(const usc_seal *how, int64_t index, usc_error *err)
{
    char part[USC_PATH_SIZE], sealed[USC_PATH_SIZE];
    const usc_alloc *alloc = how->alloc;
    header h = {0};
    int64_t n_blobs = 0;
    int fd = -1;
    usc_status st = usc_shard_path(part, how->folder, index, true, err);
    if (st == USC_OK) st = usc_shard_path(sealed, how->folder, index, false, err);
    if (st != USC_OK || access(sealed, F_OK) == 0) return st;

    h.text = alloc->resize(alloc->ctx, NULL, 0, (size_t)USC_SHARD_DATA_START);
    if (h.text == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory for its header", part);
    st = fill_header(&h, how, index, &n_blobs, err);
    if (st != USC_OK) goto done;
    if (n_blobs == 0) {
        if (unlink(part) != 0 && errno != ENOENT) st = os_error(err, part, "removing");
        goto done;
    }
    fd = open(part, O_RDWR | O_CLOEXEC);
    if (fd < 0) st = os_error(err, part, "opening");
    if (st == USC_OK) st = check_part(fd, part, h.end, err);
    if (st == USC_OK) st = write_header(fd, part, &h, err);
    if (st == USC_OK && rename(part, sealed) != 0) st = os_error(err, part, "renaming");
    if (st == USC_OK) usc_folder_sync(how->folder);

done:
    if (fd >= 0) close(fd);
    alloc->resize(alloc->ctx, h.text, (size_t)USC_SHARD_DATA_START, 0);
    return st;
}

/* ---- after a crash ---- */

/* The bytes of a shard, as far as they are there. */
typedef struct contents {
    unsigned char *map; /* NULL: none */
    int64_t size;
    bool sealed;
} contents;

static usc_status map_contents(const char *folder, int64_t index, contents *out,
                               usc_error *err)
{
    char path[USC_PATH_SIZE];
    struct stat info;
    *out = (contents){.sealed = true};
    usc_status st = usc_shard_path(path, folder, index, false, err);
    if (st != USC_OK) return st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        out->sealed = false;
        st = usc_shard_path(path, folder, index, true, err);
        if (st == USC_OK) fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (fd < 0) return errno == ENOENT ? USC_OK : os_error(err, path, "opening");
    if (fstat(fd, &info) != 0) st = os_error(err, path, "reading");
    if (st == USC_OK) out->size = (int64_t)info.st_size;
    if (st == USC_OK && out->size > 0) {
        void *map = mmap(NULL, (size_t)out->size, PROT_READ, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED)
            st = os_error(err, path, "mapping");
        else
            out->map = map;
    }
    close(fd);
    return st;
}

/* Whether the bytes of the blob in row `s` are those that were written. */
static bool is_there(const contents *c, sqlite3_stmt *s)
{
    char text[33];
    const int64_t begin = sqlite3_column_int64(s, 1), bytes = sqlite3_column_int64(s, 2);
    if (c->map == NULL || begin > c->size || bytes > c->size - begin) return false;
    if (c->sealed) return true;
    usc_hash_text(c->map + begin, (size_t)bytes, text);
    const char *promised = (const char *)sqlite3_column_text(s, 3);
    return promised != NULL && strcmp(text, promised) == 0;
}

usc_status usc_shard_verify(usc_db *db, int i_blobs, const char *folder, int64_t index,
                            int64_t *lost, usc_error *err)
{
    sqlite3_stmt *s;
    bool row = false;
    contents c;
    *lost = 0;
    usc_status st = usc_db_get(db, i_blobs, &s, err);
    if (st == USC_OK) st = map_contents(folder, index, &c, err);
    if (st != USC_OK) return st;
    sqlite3_bind_int64(s, 1, index);
    while ((st = usc_db_step(db, s, &row, err)) == USC_OK && row) {
        const int64_t id = sqlite3_column_int64(s, 0);
        if (id < 1 || sqlite3_column_int64(s, 1) < 0 || sqlite3_column_int64(s, 2) < 0) {
            st = usc_error_set(err, USC_E_CORRUPT, id, "%s: blob %lld cannot lie there",
                               db->path, (long long)id);
            break;
        }
        if (!is_there(&c, s) && (*lost == 0 || id < *lost)) *lost = id;
    }
    sqlite3_reset(s);
    if (c.map != NULL) munmap(c.map, (size_t)c.size);
    return st;
}
