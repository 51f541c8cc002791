// SPDX-License-Identifier: Apache-2.0
// The life of a trace's writer: create, blobs, commits, finish. Commits happen in tick,
// commit and finish only, so that the rows between two of them are there or not as one.
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "trace/trace_writer.h"

#define DEFAULT_SHARD_SIZE ((int64_t)1 << 30)
#define DEFAULT_COMMIT_BYTES ((int64_t)64 << 20)
#define DEFAULT_COMMIT_MS 200
#define MIN_SLOTS 1024

/* ---- create ---- */

static bool is_empty(const char *path)
{
    DIR *folder = opendir(path);
    if (folder == NULL) return false;
    bool empty = true;
    for (const struct dirent *e; empty && (e = readdir(folder)) != NULL;)
        empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
    (void)closedir(folder);
    return empty;
}

/* A folder that is there and empty is used as it is: it may be somebody's current one, a
 * mount point or a link, with modes of its own. */
/* `*made`: it was not there. */
static usc_status make_folder(const char *path, const char *db_path, bool *made,
                              usc_error *err)
{
    *made = mkdir(path, 0777) == 0;
    if (*made) return USC_OK;
    if (errno != EEXIST)
        return usc_error_set(err, errno == ENOENT ? USC_E_NOT_FOUND : USC_E_IO, -1,
                             "%s: creating the folder: %s", path, strerror(errno));
    if (access(db_path, F_OK) == 0)
        return usc_error_set(err, USC_E_EXISTS, -1, "%s: holds a trace already", path);
    return is_empty(path)
               ? USC_OK
               : usc_error_set(err, USC_E_EXISTS, -1,
                               "%s: is there already and not an empty folder", path);
}

/* Of a folder in which nothing was: after a failure it is gone, or as empty as before. */
static void take_back(const char *path, const char *db_path, bool made)
{
    char beside[USC_PATH_SIZE + 16];
    static const char *const ends[] = {"", "-journal", "-wal", "-shm"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        (void)snprintf(beside, sizeof beside, "%s%s", db_path, ends[i]);
        (void)unlink(beside);
    }
    if (made) (void)rmdir(path);
}

static usc_status make_id(char *out, const char *path, usc_error *err)
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return usc_error_set(err, USC_E_IO, -1, "%s: no random numbers: %s", path,
                             strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    return USC_OK;
}

static usc_status put_first_meta(usc_trace_writer *w, usc_error *err)
{
    char created[32], version[16];
    struct tm utc;
    const time_t now = time(NULL);
    gmtime_r(&now, &utc);
    strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", &utc);
    snprintf(version, sizeof version, "%d", USC_TRACE_VERSION);
    const char *const rows[][2] = {{"format", "ulpscope-trace"},
                                   {"version", version},
                                   {"id", w->id},
                                   {"created", created},
                                   {"complete", "0"}};
    usc_status st = USC_OK;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && st == USC_OK; i++)
        st = usc_trace_set_meta(w, rows[i][0], rows[i][1], err);
    return st == USC_OK ? usc_trace_commit(w, err) : st;
}

static void free_writer(usc_trace_writer *w)
{
    if (w == NULL) return;
    const usc_alloc alloc = w->alloc;
    usc_shard_close(&w->shard);
    usc_db_close(&w->db);
    alloc.resize(alloc.ctx, w->slots, w->n_slots * sizeof *w->slots, 0);
    alloc.resize(alloc.ctx, w, sizeof *w, 0);
}

static void set_options(usc_trace_writer *w, const usc_trace_options *options)
{
    if (options != NULL) w->options = *options;
    if (w->options.shard_size <= 0) w->options.shard_size = DEFAULT_SHARD_SIZE;
    if (w->options.commit_bytes <= 0) w->options.commit_bytes = DEFAULT_COMMIT_BYTES;
    if (w->options.commit_ms <= 0) w->options.commit_ms = DEFAULT_COMMIT_MS;
}

usc_status usc_trace_create(const char *path, const usc_trace_options *options,
                            usc_trace_writer **out, usc_error *err)
{
    assert(path);
    assert(out);
    const usc_alloc *alloc = &usc_libc_alloc;
    if (options != NULL && options->alloc != NULL) alloc = options->alloc;
    *out = NULL;
    usc_trace_writer *w = alloc->resize(alloc->ctx, NULL, 0, sizeof *w);
    if (w == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "trace %s: no memory", path);
    *w = (usc_trace_writer){.alloc = *alloc, .shard = {.fd = -1}};
    set_options(w, options);

    char db_path[USC_PATH_SIZE];
    bool made = false, ours = false;
    usc_status st = usc_path_join(db_path, path, "trace.db", err);
    if (st == USC_OK) st = make_folder(path, db_path, &made, err);
    ours = st == USC_OK;
    if (st == USC_OK) st = make_id(w->id, path, err);
    if (st != USC_OK) goto done;
    snprintf(w->folder, sizeof w->folder, "%s", path);
    st = usc_db_create(&w->db, &usc_trace_kind, db_path, err);
    if (st == USC_OK) st = put_first_meta(w, err);
    if (st != USC_OK) goto done;
    *out = w;
    w = NULL;

done:
    free_writer(w);
    if (st != USC_OK && ours) take_back(path, db_path, made);
    return st;
}

/* ---- blobs ---- */

static usc_blob_slot *find_slot(usc_blob_slot *slots, size_t n_slots, usc_hash128 hash,
                                int64_t size)
{
    size_t i = (size_t)hash.low & (n_slots - 1);
    while (slots[i].blob != 0 &&
           (slots[i].hash.low != hash.low || slots[i].hash.high != hash.high ||
            slots[i].size != size))
        i = (i + 1) & (n_slots - 1);
    return &slots[i];
}

int64_t usc_trace_find_blob(const usc_trace_writer *w, usc_hash128 hash, int64_t size)
{
    return w->n_slots > 0 ? find_slot(w->slots, w->n_slots, hash, size)->blob : 0;
}

static usc_status grow_slots(usc_trace_writer *w, usc_error *err)
{
    if ((size_t)w->n_blobs < w->n_slots / 2) return USC_OK;
    const size_t n = w->n_slots > 0 ? 2 * w->n_slots : MIN_SLOTS;
    usc_blob_slot *slots = w->alloc.resize(w->alloc.ctx, NULL, 0, n * sizeof *slots);
    if (slots == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory for %zu blobs",
                             w->folder, n / 2);
    memset(slots, 0, n * sizeof *slots);
    for (size_t i = 0; i < w->n_slots; i++)
        if (w->slots[i].blob != 0)
            *find_slot(slots, n, w->slots[i].hash, w->slots[i].size) = w->slots[i];
    w->alloc.resize(w->alloc.ctx, w->slots, w->n_slots * sizeof *w->slots, 0);
    w->slots = slots;
    w->n_slots = n;
    return USC_OK;
}

static usc_seal seal_of(usc_trace_writer *w)
{
    return (usc_seal){.db = &w->db,
                      .i_blobs = USC_SQL_LIST_BLOBS,
                      .folder = w->folder,
                      .trace_id = w->id,
                      .alloc = &w->alloc};
}

/* Rotates where the open shard is used up, opens one where none is. */
static usc_status make_room(usc_trace_writer *w, int64_t size, usc_error *err)
{
    const int64_t used = w->shard.end - USC_SHARD_DATA_START;
    const bool full =
        w->shard.fd >= 0 && (!usc_shard_has_room(&w->shard) ||
                             (used > 0 && size > w->options.shard_size - used));
    if (full) {
        const usc_seal how = seal_of(w);
        usc_shard_close(&w->shard);
        const usc_status st = usc_shard_seal(&how, w->shard.index, err);
        if (st != USC_OK) return st;
    }
    if (w->shard.fd >= 0) return USC_OK;
    const usc_status st = usc_shard_create(&w->shard, w->folder, w->next_shard, err);
    if (st == USC_OK) w->next_shard++;
    return st;
}

static usc_status add_blob(usc_trace_writer *w, usc_hash128 hash, const void *data,
                           int64_t size, usc_error *err)
{
    const int64_t id = w->n_blobs + 1;
    int64_t offset = 0;
    char text[33];
    usc_status st = grow_slots(w, err);
    if (st == USC_OK) st = make_room(w, size, err);
    if (st == USC_OK) st = usc_shard_append(&w->shard, id, data, size, &offset, err);
    if (st != USC_OK) return st;
    snprintf(text, sizeof text, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
    st = usc_db_put(&w->db, USC_SQL_PUT_BLOB, err, "isiii", id, text, size,
                    w->shard.index, offset);
    if (st != USC_OK) return st;
    *find_slot(w->slots, w->n_slots, hash, size) = (usc_blob_slot){hash, size, id};
    w->n_blobs = id;
    w->pending_bytes += size;
    return USC_OK;
}

usc_status usc_trace_put_hashed_blob(usc_trace_writer *w, usc_hash128 hash,
                                     const void *data, int64_t size, int64_t *blob,
                                     usc_error *err)
{
    usc_error why = {0};
    *blob = 0;
    usc_status st = usc_writer_begin(w, err);
    if (st != USC_OK) return st;
    const int64_t known = usc_trace_find_blob(w, hash, size);
    if (known == 0) st = add_blob(w, hash, data, size, &why);
    if (st == USC_OK) *blob = known != 0 ? known : w->n_blobs;
    return usc_writer_result(w, st, &why, err);
}

usc_status usc_trace_put_blob(usc_trace_writer *w, const void *data, int64_t size,
                              int64_t *blob, usc_error *err)
{
    assert(w && blob);
    assert(size == 0 || data);
    *blob = 0;
    if (size < 0)
        return usc_error_set(err, USC_E_ARG, -1, "blob of %lld bytes", (long long)size);
    return usc_trace_put_hashed_blob(w, usc_hash_bytes(data, (size_t)size), data, size,
                                     blob, err);
}

/* ---- commits and the end ---- */

usc_status usc_trace_commit(usc_trace_writer *w, usc_error *err)
{
    assert(w);
    usc_error why = {0};
    if (w->failed.status != USC_OK)
        return usc_writer_result(w, w->failed.status, &w->failed, err);
    if (!w->in_transaction) return USC_OK;
    /* The blobs are with the operating system since usc_shard_append: rows follow. */
    const usc_status st = usc_db_exec(&w->db, "COMMIT", "committing", &why);
    if (st == USC_OK) {
        w->in_transaction = false;
        w->pending_bytes = 0;
    }
    return usc_writer_result(w, st, &why, err);
}

usc_status usc_trace_tick(usc_trace_writer *w, usc_error *err)
{
    if (w->failed.status == USC_OK && w->in_transaction &&
        w->pending_bytes < w->options.commit_bytes &&
        usc_writer_now_ms() - w->pending_since < w->options.commit_ms)
        return USC_OK;
    return usc_trace_commit(w, err);
}

static usc_status seal_and_mark(usc_trace_writer *w, bool complete, usc_error *err)
{
    usc_shard_close(&w->shard);
    usc_status st = usc_trace_seal_all(&w->db, w->folder, &w->alloc, err);
    if (st == USC_OK && complete) {
        st = usc_trace_set_meta(w, "complete", "1", err);
        if (st == USC_OK) st = usc_trace_commit(w, err);
    }
    if (st == USC_OK) st = usc_db_make_plain(&w->db, err);
    return st;
}

usc_status usc_trace_finish(usc_trace_writer *w, bool complete, usc_error *err)
{
    if (w == NULL) return USC_OK;
    usc_status st = usc_trace_commit(w, err);
    const bool failed = st != USC_OK;
    usc_error why = {0};
    if (failed) { /* what was committed is kept; the rest may be half a call */
        (void)sqlite3_exec(w->db.handle, "ROLLBACK", NULL, NULL, NULL);
        w->in_transaction = false;
    }
    const usc_status sealed = seal_and_mark(w, complete && !failed, &why);
    if (sealed != USC_OK && !failed) {
        st = sealed;
        if (err != NULL) *err = why;
    }
    usc_folder_sync(w->folder);
    free_writer(w);
    return st;
}
