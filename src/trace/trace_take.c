// SPDX-License-Identifier: Apache-2.0
// Two traces of one step, recorded side by side: what one kept of tensors goes into the
// other, which has the statistics of many steps. trace_take.h
#include <ulpscope/x/trace_take.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "trace/trace_schema.h"

/* Calls of the step come in one order in both; `shift` is what numbers differ by. Views
 * of a version may be of several bytes where a write was seen by one session alone: each
 * has those that its own call saw. */
#define TAKE                                                                             \
    "CREATE TEMP TABLE moved AS SELECT (SELECT min(sequence) FROM main.call WHERE step " \
    "= "                                                                                 \
    "%lld) - (SELECT min(sequence) FROM taken.call) AS shift;"                           \
    "INSERT INTO main.blob SELECT * FROM taken.blob;"                                    \
    "UPDATE main.tensor SET blob = kept.blob, first = kept.first FROM (SELECT m.tensor " \
    "AS id, coalesce(v.blob, t.blob) AS blob, t.first AS first FROM taken.arg a "        \
    "JOIN taken.tensor t ON t.id = a.tensor JOIN taken.version v ON v.id = t.version "   \
    "JOIN main.arg m ON m.call = a.call + (SELECT shift FROM temp.moved) AND m.role = "  \
    "a.role AND m.path = a.path WHERE coalesce(v.blob, t.blob) IS NOT NULL) AS kept "    \
    "WHERE main.tensor.id = kept.id;"                                                    \
    "INSERT OR REPLACE INTO main.meta VALUES ('data_step', '%lld');"

/* Numbers of calls, of operators in turn: both must be the step as it was. */
static const char compare[] =
    "SELECT (SELECT count(*) FROM main.blob) = 0 AND "
    "(SELECT group_concat(o.name) FROM main.call c JOIN main.op o ON o.id = c.op WHERE "
    "c.step = ?1) IS (SELECT group_concat(o.name) FROM taken.call c JOIN taken.op o ON "
    "o.id = c.op)";

static usc_status check_alike(usc_db *db, int64_t step, const char *from, usc_error *err)
{
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(db->handle, compare, -1, &s, NULL) != SQLITE_OK)
        return usc_db_error(db, "compare", err);
    sqlite3_bind_int64(s, 1, step);
    const bool alike = sqlite3_step(s) == SQLITE_ROW && sqlite3_column_int(s, 0) == 1;
    sqlite3_finalize(s);
    if (alike) return USC_OK;
    return usc_error_set(err, USC_E_ARG, -1,
                         "%s does not hold step %lld of this trace, or that has data",
                         from, (long long)step);
}

static usc_status attach(usc_db *db, const char *from, usc_error *err)
{
    char path[USC_PATH_SIZE];
    sqlite3_stmt *s = NULL;
    const usc_status st = usc_path_join(path, from, "trace.db", err);
    if (st != USC_OK) return st;
    bool ok =
        sqlite3_prepare_v2(db->handle, "ATTACH ?1 AS taken", -1, &s, NULL) == SQLITE_OK;
    if (ok) sqlite3_bind_text(s, 1, path, -1, SQLITE_STATIC);
    ok = ok && sqlite3_step(s) == SQLITE_DONE;
    sqlite3_finalize(s);
    return ok ? USC_OK : usc_db_error(db, "attach", err);
}

/* The files themselves; where one cannot be moved, the rows are not written. */
static usc_status move_shards(const char *folder, const char *from, usc_error *err)
{
    char here[USC_PATH_SIZE], there[USC_PATH_SIZE];
    for (int64_t i = 0; i < USC_MAX_SHARDS; i++) {
        usc_status st = usc_shard_path(here, folder, i, false, err);
        if (st == USC_OK) st = usc_shard_path(there, from, i, false, err);
        if (st != USC_OK) return st;
        if (access(there, F_OK) != 0) return USC_OK;
        if (rename(there, here) != 0)
            return usc_error_set(err, USC_E_IO, -1, "%s: %s", here, strerror(errno));
    }
    return USC_OK;
}

usc_status usc_trace_take_data(const char *folder, const char *from, int64_t step,
                               usc_error *err)
{
    char path[USC_PATH_SIZE], sql[2 * sizeof TAKE];
    usc_db db = {0};
    usc_status st = usc_path_join(path, folder, "trace.db", err);
    if (st == USC_OK) st = usc_db_open_writable(&db, &usc_trace_kind, path, err);
    if (st != USC_OK) return st;
    (void)snprintf(sql, sizeof sql, TAKE, (long long)step, (long long)step);
    st = attach(&db, from, err);
    if (st == USC_OK) st = check_alike(&db, step, from, err);
    if (st == USC_OK) st = usc_db_exec(&db, "BEGIN", "begin", err);
    if (st == USC_OK) {
        st = usc_db_exec(&db, sql, "take data", err);
        if (st == USC_OK) st = move_shards(folder, from, err);
        const usc_status end = usc_db_exec(&db, st == USC_OK ? "COMMIT" : "ROLLBACK",
                                           "end", st == USC_OK ? err : NULL);
        if (st == USC_OK) st = end;
    }
    if (st == USC_OK) st = usc_db_exec(&db, "DETACH taken", "detach", err);
    if (st == USC_OK) st = usc_db_make_plain(&db, err);
    usc_db_close(&db);
    return st;
}
