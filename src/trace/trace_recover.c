// SPDX-License-Identifier: Apache-2.0
// From a folder that a writer left, closed or killed, to a set of plain sealed files.
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "trace/trace_schema.h"

/* Parts of which no committed row tells hold nothing that counts. */
static void remove_orphans(const char *folder)
{
    char path[USC_PATH_SIZE];
    DIR *dir = opendir(folder);
    if (dir == NULL) return;
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        const size_t n = strlen(e->d_name);
        if (strncmp(e->d_name, "tensors-", 8) != 0 || n < 17 ||
            strcmp(e->d_name + n - 17, ".safetensors.part") != 0)
            continue;
        if (usc_path_join(path, folder, e->d_name, NULL) == USC_OK) unlink(path);
    }
    closedir(dir);
}

static usc_status read_id(usc_db *db, char *out, size_t size, usc_error *err)
{
    sqlite3_stmt *s;
    bool row = false;
    usc_status st = usc_db_get(db, USC_SQL_GET_META, &s, err);
    if (st != USC_OK) return st;
    sqlite3_bind_text(s, 1, "id", -1, SQLITE_STATIC);
    st = usc_db_step(db, s, &row, err);
    const char *id = row ? (const char *)sqlite3_column_text(s, 0) : NULL;
    snprintf(out, size, "%s",
             id != NULL && strspn(id, "0123456789abcdef") == strlen(id) ? id : "");
    sqlite3_reset(s);
    return st;
}

usc_status usc_trace_seal_all(usc_db *db, const char *folder, bool verify,
                              const usc_alloc *alloc, usc_error *err)
{
    char id[64];
    sqlite3_stmt *s;
    bool row = false;
    usc_status st = read_id(db, id, sizeof id, err);
    if (st == USC_OK) st = usc_db_get(db, USC_SQL_GET_SHARDS, &s, err);
    if (st != USC_OK) return st;
    const usc_seal how = {.db = db,
                          .i_blobs = USC_SQL_LIST_BLOBS,
                          .folder = folder,
                          .trace_id = id,
                          .alloc = alloc,
                          .verify = verify};
    while ((st = usc_db_step(db, s, &row, err)) == USC_OK && row) {
        st = usc_shard_seal(&how, sqlite3_column_int64(s, 0), err);
        if (st != USC_OK) break;
    }
    sqlite3_reset(s);
    if (st == USC_OK) remove_orphans(folder);
    return st;
}

usc_status usc_trace_recover(const char *folder, const usc_alloc *alloc, usc_error *err)
{
    char path[USC_PATH_SIZE];
    usc_db db = {0};
    usc_status st = usc_path_join(path, folder, "trace.db", err);
    if (st == USC_OK) st = usc_db_open_writable(&db, &usc_trace_kind, path, err);
    if (st != USC_OK) return st;
    st = usc_trace_seal_all(&db, folder, true, alloc, err);
    if (st == USC_OK) st = usc_db_make_plain(&db, err);
    usc_db_close(&db);
    return st;
}
