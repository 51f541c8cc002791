// SPDX-License-Identifier: Apache-2.0
// Writing OUT/result.db: verdicts, one transaction each. Neighbour:
// result_run.c, which says whether a run goes on in what is there.
#include <assert.h>
#include <ulpscope/verdict.h>

#include "result/result_db.h"

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
