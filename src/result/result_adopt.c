// SPDX-License-Identifier: Apache-2.0
// Taking in what other processes found of the same run. See result_parts.h.
#include "result/result_parts.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "result/result_db.h"

enum { N_VERDICT = 24, N_METRIC = 5, N_EXAMPLE = 8 };

static const char *value_of(usc_result *r, const char *key)
{
    const char *value = usc_result_get(r, key);
    return value != NULL ? value : "";
}

/* Whether both are of one run, by what usc_result_create compares, and by what computed.
 */
static usc_status compare(usc_result *r, usc_result *part, usc_error *err)
{
    static const char *const keys[] = {"trace_id", "device",  "standard",
                                       "faults",   "options", "inputs"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *mine = usc_result_get(r, keys[i]), *theirs = value_of(part, keys[i]);
        if (mine == NULL && strcmp(keys[i], "inputs") == 0) continue;
        if (mine != NULL && strcmp(mine, theirs) == 0) continue;
        return usc_error_set(err, USC_E_EXISTS, -1,
                             "its %s: '%.100s', not '%.100s' as in %s", keys[i], theirs,
                             mine != NULL ? mine : "", r->folder);
    }
    return USC_OK;
}

/* The rows that `from` gives, `n` columns each, into what `to` puts. */
static usc_status copy_rows(usc_result *r, usc_result *part, int from, int to, int n,
                            int64_t *n_rows, usc_error *err)
{
    sqlite3_stmt *get, *put;
    bool more = false, put_one = false;
    usc_status st = usc_db_get(&part->db, from, &get, err);
    if (st == USC_OK) st = usc_db_get(&r->db, to, &put, err);
    if (st != USC_OK) return st;
    while ((st = usc_db_step(&part->db, get, &more, err)) == USC_OK && more) {
        for (int i = 0; i < n; i++)
            (void)sqlite3_bind_value(put, i + 1, sqlite3_column_value(get, i));
        st = usc_db_step(&r->db, put, &put_one, err);
        sqlite3_reset(put);
        if (st != USC_OK) break;
        (*n_rows)++;
    }
    sqlite3_reset(get);
    return st;
}

/* A call that both have has the metrics of one alone afterwards. */
static usc_status clear_shared(usc_result *r, usc_result *part, usc_error *err)
{
    const int64_t *calls;
    int64_t n;
    usc_status st = usc_result_done(part, &calls, &n, err);
    for (int64_t i = 0; i < n && st == USC_OK; i++) {
        st = usc_db_put(&r->db, USC_RESULT_SQL_CLEAR_METRICS, err, "i", calls[i]);
        if (st == USC_OK)
            st = usc_db_put(&r->db, USC_RESULT_SQL_CLEAR_EXAMPLES, err, "i", calls[i]);
    }
    return st;
}

static usc_status copy_all(usc_result *r, usc_result *part, int64_t *n, usc_error *err)
{
    int64_t ignored = 0;
    usc_status st = clear_shared(r, part, err);
    if (st == USC_OK)
        st = copy_rows(r, part, USC_RESULT_SQL_EACH_VERDICT, USC_RESULT_SQL_PUT_VERDICT,
                       N_VERDICT, n, err);
    if (st == USC_OK)
        st = copy_rows(r, part, USC_RESULT_SQL_EACH_METRIC, USC_RESULT_SQL_PUT_METRIC,
                       N_METRIC, &ignored, err);
    if (st == USC_OK)
        st = copy_rows(r, part, USC_RESULT_SQL_EACH_EXAMPLE, USC_RESULT_SQL_PUT_EXAMPLE,
                       N_EXAMPLE, &ignored, err);
    return st;
}

/* What begins a run is set before, where the results hold nothing yet. */
static usc_status take_over(usc_result *r, usc_result *part, usc_error *err)
{
    const char *inputs = usc_result_get(part, "inputs");
    if (inputs == NULL || usc_result_get(r, "inputs") != NULL) return USC_OK;
    return usc_result_set(r, "inputs", inputs, err);
}

usc_status usc_result_adopt(usc_result *r, const char *part, int64_t *n, usc_error *err)
{
    assert(r && part);
    assert(n);
    usc_result *from = NULL;
    *n = 0;
    usc_status st = usc_result_open(part, &from, err);
    if (st == USC_OK) st = compare(r, from, err);
    if (st == USC_OK) st = take_over(r, from, err);
    if (st == USC_OK) st = usc_db_exec(&r->db, "BEGIN", "beginning", err);
    if (st == USC_OK) {
        st = copy_all(r, from, n, err);
        if (st == USC_OK) st = usc_db_exec(&r->db, "COMMIT", "committing", err);
        if (st != USC_OK) (void)sqlite3_exec(r->db.handle, "ROLLBACK", NULL, NULL, NULL);
    }
    if (st != USC_OK) *n = 0;
    usc_result_close(from);
    return st;
}

void usc_result_remove(const char *folder)
{
    static const char *const names[] = {"result.db", "result.db-wal", "result.db-shm",
                                        "result.db-journal"};
    char path[USC_PATH_SIZE];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (usc_path_join(path, folder, names[i], NULL) == USC_OK) (void)unlink(path);
    (void)rmdir(folder);
}
