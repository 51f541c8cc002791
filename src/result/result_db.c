// SPDX-License-Identifier: Apache-2.0
// The database itself: its tables, its statements, the fields of a run. Neighbours:
// result_run.c (which run goes on in it), result_write.c and result_read.c (rows).
#include <assert.h>
#include <string.h>
#include <ulpscope/verdict.h>

#include "result/result_db.h"

/* The list is taken from the header alone: no call goes up into the judge. */
int usc_result_rank(const char *verdict)
{
    static const char *const texts[] = {
#define VERDICT_TEXT(id, name, flagged) name,
        USC_VERDICT_LIST(VERDICT_TEXT)
#undef VERDICT_TEXT
    };
    int rank = 0;
    while (rank < USC_N_VERDICTS &&
           (verdict == NULL || strcmp(verdict, texts[rank]) != 0))
        rank++;
    return rank;
}

static const char schema[] =
    "CREATE TABLE run(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE verdict(call INTEGER PRIMARY KEY, step INTEGER NOT NULL, phase TEXT,"
    " op TEXT NOT NULL, culprit TEXT, module TEXT, module_class TEXT,"
    " verdict TEXT NOT NULL, bits REAL, yardstick_bits REAL, bound INTEGER NOT NULL,"
    " cause TEXT, sentence TEXT, notes TEXT, output TEXT, args TEXT, stack TEXT,"
    " n_elements INTEGER NOT NULL, stands_for INTEGER NOT NULL,"
    " t_device INTEGER NOT NULL, t_reference INTEGER NOT NULL,"
    " t_perturbed INTEGER NOT NULL, t_judge INTEGER NOT NULL, t_total INTEGER NOT NULL);"
    "CREATE TABLE metric(call INTEGER NOT NULL REFERENCES verdict(call),"
    " output INTEGER NOT NULL, name TEXT NOT NULL, value REAL, text TEXT,"
    " PRIMARY KEY(call, output, name)) WITHOUT ROWID;"
    "CREATE TABLE example(call INTEGER NOT NULL REFERENCES verdict(call),"
    " output INTEGER NOT NULL, rank INTEGER NOT NULL, position TEXT NOT NULL,"
    " device REAL, reference REAL, yardstick REAL, score REAL,"
    " PRIMARY KEY(call, output, rank)) WITHOUT ROWID;";

static const char *const statements[] = {
#define RESULT_SQL_TEXT(id, sql) sql,
    USC_RESULT_SQL_LIST(RESULT_SQL_TEXT)
#undef RESULT_SQL_TEXT
};

_Static_assert(USC_N_RESULT_SQL <= USC_DB_MAX_STATEMENTS, "statement cache too small");

const usc_db_kind usc_result_kind = {
    .noun = "result",
    .application_id = 0x554c5052, /* "ULPR" */
    .version = USC_RESULT_VERSION,
    .schema = schema,
    .sql = statements,
};

void usc_run_fields(const usc_run *run, usc_run_field out[USC_N_RUN_FIELDS])
{
    const usc_run_field fields[USC_N_RUN_FIELDS] = {
        {"trace", run->trace, false},
        {"trace_id", run->trace_id, true},
        {"device", run->device, true},
        {"standard", run->standard, true},
        {"faults", run->faults, true},
        {"options", run->options, true},
        {"environment", run->environment, false},
    };
    for (int i = 0; i < USC_N_RUN_FIELDS; i++) {
        out[i] = fields[i];
        if (out[i].value == NULL) out[i].value = "";
    }
}

const char *usc_result_new_field(const usc_result *r, const char *key)
{
    usc_run_field fields[USC_N_RUN_FIELDS];
    usc_run_fields(&r->run, fields);
    for (int i = 0; i < USC_N_RUN_FIELDS; i++)
        if (strcmp(key, fields[i].key) == 0) return fields[i].value;
    return NULL;
}

void usc_result_close(usc_result *r)
{
    if (r == NULL) return;
    /* Failure leaves a journal, from which the next open recovers every row. */
    if (r->writable && usc_db_make_plain(&r->db, NULL) != USC_OK)
        sqlite3_exec(r->db.handle, "ROLLBACK", NULL, NULL, NULL);
    usc_db_close(&r->db);
    usc_arena_free(&r->arena);
    usc_arena_free(&r->value);
    usc_arena_free(&r->run_texts);
    usc_libc_alloc.resize(usc_libc_alloc.ctx, r, sizeof *r, 0);
}

usc_status usc_result_find(usc_result *r, const char *key, const char **out,
                           usc_error *err)
{
    assert(r && key && out);
    sqlite3_stmt *s;
    bool row = false;
    *out = NULL;
    usc_arena_reset(&r->value);
    if (r->stale) {
        *out = usc_result_new_field(r, key);
        return USC_OK;
    }
    usc_status st = usc_db_get(&r->db, USC_RESULT_SQL_GET_RUN, &s, err);
    if (st != USC_OK) return st;
    sqlite3_bind_text(s, 1, key, -1, SQLITE_STATIC);
    st = usc_db_step(&r->db, s, &row, err);
    if (st == USC_OK && row) *out = usc_db_text(&r->value, s, 0);
    sqlite3_reset(s);
    return st == USC_OK && r->value.failed ? usc_no_memory(r->folder, err) : st;
}

const char *usc_result_get(usc_result *r, const char *key)
{
    const char *value = NULL;
    return usc_result_find(r, key, &value, NULL) == USC_OK ? value : NULL;
}
