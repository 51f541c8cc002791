// SPDX-License-Identifier: Apache-2.0
// Writing OUT/result.db: its tables, and verdicts one transaction each. Neighbour:
// result_run.c, which says whether a run goes on in what is there.
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

/* ---- rows ---- */

usc_status usc_result_clear(usc_result *r, usc_error *err)
{
    if (r->stale) return usc_result_begin(r, err);
    return usc_db_exec(&r->db,
                       "BEGIN; DELETE FROM metric; DELETE FROM example; "
                       "DELETE FROM verdict; COMMIT",
                       "clearing", err);
}

usc_status usc_result_set(usc_result *r, const char *key, const char *value,
                          usc_error *err)
{
    assert(r && key && value);
    const usc_status st = r->stale ? usc_result_begin(r, err) : USC_OK;
    if (st != USC_OK) return st;
    return usc_db_put(&r->db, USC_RESULT_SQL_SET_RUN, err, "ss", key, value);
}

static usc_status put_verdict(usc_result *r, const usc_result_row *row, usc_error *err)
{
    usc_status st = usc_db_put(
        &r->db, USC_RESULT_SQL_PUT_VERDICT, err, "iissssssddissssssiiiiiii", row->call,
        row->step, row->phase, row->op, row->culprit, row->module, row->module_class,
        row->verdict, row->bits, row->yardstick_bits, (int64_t)row->bound, row->cause,
        row->sentence, row->notes, row->output, row->args, row->stack, row->n_elements,
        row->stands_for, row->t_device, row->t_reference, row->t_perturbed, row->t_judge,
        row->t_total);
    if (st == USC_OK)
        st = usc_db_put(&r->db, USC_RESULT_SQL_CLEAR_METRICS, err, "i", row->call);
    if (st == USC_OK)
        st = usc_db_put(&r->db, USC_RESULT_SQL_CLEAR_EXAMPLES, err, "i", row->call);
    for (int i = 0; i < row->n_metrics && st == USC_OK; i++) {
        const usc_metric *m = &row->metrics[i];
        st = usc_db_put(&r->db, USC_RESULT_SQL_PUT_METRIC, err, "iisds", row->call,
                        (int64_t)m->output, m->name, m->value, m->text);
    }
    for (int i = 0; i < row->n_examples && st == USC_OK; i++) {
        const usc_result_example *e = &row->examples[i];
        st = usc_db_put(&r->db, USC_RESULT_SQL_PUT_EXAMPLE, err, "iiisdddd", row->call,
                        (int64_t)e->output, (int64_t)e->rank, e->index, e->device,
                        e->reference, e->yardstick, e->score);
    }
    return st;
}

usc_status usc_result_put(usc_result *r, const usc_result_row *row, usc_error *err)
{
    assert(r && row);
    if (usc_result_rank(row->verdict) == USC_N_VERDICTS)
        return usc_error_set(err, USC_E_ARG, row->call, "call %lld: no verdict is '%s'",
                             (long long)row->call,
                             row->verdict != NULL ? row->verdict : "");
    usc_status st = r->stale ? usc_result_begin(r, err) : USC_OK;
    if (st == USC_OK) st = usc_db_exec(&r->db, "BEGIN", "beginning", err);
    if (st != USC_OK) return st;
    st = put_verdict(r, row, err);
    if (st == USC_OK) st = usc_db_exec(&r->db, "COMMIT", "committing", err);
    if (st != USC_OK) (void)sqlite3_exec(r->db.handle, "ROLLBACK", NULL, NULL, NULL);
    return st;
}

usc_status usc_result_settle(usc_result *r, int64_t call, usc_error *err)
{
    assert(r);
    return usc_db_put(&r->db, USC_RESULT_SQL_SETTLE, err, "i", call);
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
