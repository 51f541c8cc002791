// SPDX-License-Identifier: Apache-2.0
// From a folder that a writer left, closed or killed, to a set of plain sealed files.
// Where the machine died with it, rows may have reached the disk before the bytes that
// they name: the trace is cut at the first such blob, and what was not yet on disk alone
// is lost.
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "trace/trace_schema.h"

/* ---- sealing ---- */

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

usc_status usc_trace_seal_all(usc_db *db, const char *folder, const usc_alloc *alloc,
                              usc_error *err)
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
                          .alloc = alloc};
    while ((st = usc_db_step(db, s, &row, err)) == USC_OK && row) {
        st = usc_shard_seal(&how, sqlite3_column_int64(s, 0), err);
        if (st != USC_OK) break;
    }
    sqlite3_reset(s);
    if (st == USC_OK) remove_orphans(folder);
    return st;
}

/* ---- cutting ---- */

/* The first blob, in the order of writing, whose bytes are not there; 0: none. */
static usc_status first_lost_blob(usc_db *db, const char *folder, int64_t *blob,
                                  usc_error *err)
{
    sqlite3_stmt *s;
    bool row = false;
    *blob = 0;
    usc_status st = usc_db_get(db, USC_SQL_GET_SHARDS, &s, err);
    if (st != USC_OK) return st;
    while ((st = usc_db_step(db, s, &row, err)) == USC_OK && row) {
        int64_t lost = 0;
        st = usc_shard_verify(db, USC_SQL_LIST_BLOBS, folder, sqlite3_column_int64(s, 0),
                              &lost, err);
        if (st != USC_OK) break;
        if (lost != 0 && (*blob == 0 || lost < *blob)) *blob = lost;
    }
    sqlite3_reset(s);
    return st;
}

/* Runs one statement on ?1; *out is the number that it gives, 0 for none or NULL. */
static usc_status run_on(usc_db *db, const char *sql, int64_t value, int64_t *out,
                         usc_error *err)
{
    sqlite3_stmt *s = NULL;
    bool row = false;
    *out = 0;
    if (sqlite3_prepare_v2(db->handle, sql, -1, &s, NULL) != SQLITE_OK)
        return usc_db_error(db, "its tables are not as expected", err);
    sqlite3_bind_int64(s, 1, value);
    const usc_status st = usc_db_step(db, s, &row, err);
    if (row) *out = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return st;
}

/* What a writer that stopped before call ?1 would not have written. */
static usc_status forget_calls(usc_db *db, int64_t from, usc_error *err)
{
    static const char *const sql[] = {
        "DELETE FROM arg WHERE call >= ?1",
        "DELETE FROM note WHERE call >= ?1",
        "DELETE FROM call WHERE sequence >= ?1",
        "DELETE FROM step WHERE first_call >= ?1",
        "UPDATE step SET last_call = ?1 - 1, complete = 0 WHERE last_call >= ?1",
        "DELETE FROM tensor WHERE id NOT IN (SELECT tensor FROM arg) AND ?1",
        "DELETE FROM version WHERE id NOT IN (SELECT version FROM tensor) AND ?1",
        "UPDATE version SET call = NULL WHERE call >= ?1",
    };
    int64_t none;
    usc_status st = USC_OK;
    for (size_t i = 0; i < sizeof sql / sizeof sql[0] && st == USC_OK; i++)
        st = run_on(db, sql[i], from, &none, err);
    return st;
}

/* Says what was lost, where every reader finds it. */
static usc_status note_loss(usc_db *db, int64_t from, int64_t n_lost, usc_error *err)
{
    char text[160];
    int64_t n_kept;
    usc_status st =
        run_on(db, "SELECT count(*) FROM call WHERE sequence < ?1", from, &n_kept, err);
    snprintf(
        text, sizeof text,
        "calls from %lld on were not yet on disk when the machine stopped: %lld lost, "
        "%lld kept",
        (long long)from, (long long)n_lost, (long long)n_kept);
    if (st == USC_OK) st = usc_db_put(db, USC_SQL_SET_META, err, "ss", "lost", text);
    if (st == USC_OK) st = usc_db_put(db, USC_SQL_SET_META, err, "ss", "complete", "0");
    if (st == USC_OK)
        st = usc_db_put(db, USC_SQL_PUT_NOTE, err, "rss", (int64_t)0, "lost", text);
    return st;
}

/* Ids of blobs ascend as they were written, so a cut at one is a cut in time. */
static usc_status cut_at(usc_db *db, int64_t blob, usc_error *err)
{
    int64_t from, n_lost, none;
    const char *needs =
        db->version < 2
            ? "SELECT min(a.call) FROM version v JOIN tensor t ON t.version = "
              "v.id JOIN arg a ON a.tensor = t.id WHERE v.blob >= ?1"
            : "SELECT min(a.call) FROM version v JOIN tensor t ON t.version = "
              "v.id JOIN arg a ON a.tensor = t.id WHERE v.blob >= ?1 OR "
              "t.blob >= ?1";
    usc_status st = run_on(db, needs, blob, &from, err);
    if (st == USC_OK && from != 0) {
        st = run_on(db, "SELECT count(*) FROM call WHERE sequence >= ?1", from, &n_lost,
                    err);
        if (st == USC_OK) st = forget_calls(db, from, err);
        if (st == USC_OK) st = note_loss(db, from, n_lost, err);
    }
    if (st == USC_OK)
        st = run_on(db, "UPDATE version SET blob = NULL WHERE blob >= ?1", blob, &none,
                    err);
    if (st == USC_OK)
        st = run_on(db, "DELETE FROM blob WHERE id >= ?1", blob, &none, err);
    return st;
}

usc_status usc_trace_cut(usc_db *db, const char *folder, usc_error *err)
{
    int64_t blob;
    usc_status st = first_lost_blob(db, folder, &blob, err);
    if (st != USC_OK || blob == 0) return st;
    st = usc_db_make_changeable(db, err);
    if (st == USC_OK) st = usc_db_exec(db, "BEGIN", "cutting", err);
    if (st != USC_OK) return st;
    st = cut_at(db, blob, err);
    if (st == USC_OK) return usc_db_exec(db, "COMMIT", "cutting", err);
    (void)sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
    return st;
}

usc_status usc_trace_recover(const char *folder, const usc_alloc *alloc, usc_error *err)
{
    char path[USC_PATH_SIZE];
    usc_db db = {0};
    usc_status st = usc_path_join(path, folder, "trace.db", err);
    if (st == USC_OK) st = usc_db_open_writable(&db, &usc_trace_kind, path, err);
    if (st != USC_OK) return st;
    st = usc_trace_cut(&db, folder, err);
    if (st == USC_OK) st = usc_trace_seal_all(&db, folder, alloc, err);
    if (st == USC_OK) st = usc_db_make_plain(&db, err);
    usc_db_close(&db);
    return st;
}
