// SPDX-License-Identifier: Apache-2.0
// Opens a result database, sums it up in one walk, and decides the exit code. The
// renderers beside this file show what is found here.
#include "report/report_model.h"
#include "report/report_index.h"
#include "report/report_selftest.h"
#include "report/report_standards.h"
#include "result/result_reader.h"
#include "json/json.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static usc_op_sum *op_of(usc_report *r, const char *op, usc_error *err)
{
    const uint64_t hash = usc_index_hash_text(0, op);
    usc_indexed *node = usc_index_first(&r->ops_index, hash);
    for (; node != NULL; node = usc_index_next(node))
        if (strcmp(((usc_op_sum *)node)->op, op) == 0) return (usc_op_sum *)node;
    usc_op_sum *s = usc_report_take(r, sizeof *s);
    if (s == NULL || (s->op = usc_report_keep(r, op)) == NULL ||
        usc_index_add(r, &r->ops_index, &s->indexed, hash, err) != USC_OK)
        return NULL;
    *r->ops_end = s;
    r->ops_end = &s->next;
    s->i = r->n_ops++;
    return s;
}

static void sum_odd_inputs(usc_report *r, const usc_row_facts *facts, int64_t call,
                           usc_verdict v)
{
    if (!facts->nan && !facts->inf) return;
    r->odd.first = r->odd.n == 0 || call < r->odd.first ? call : r->odd.first;
    r->odd.n++;
    r->odd.n_nan += facts->nan;
    r->odd.n_pass += v == USC_VERDICT_PASS;
    r->odd.n_nan_pass += facts->nan && v == USC_VERDICT_PASS;
}

static usc_status sum_excused(usc_report *r, const usc_row_facts *facts, int64_t call,
                              usc_error *err)
{
    if (!(facts->excused > USC_EXCUSED_MUCH)) return USC_OK;
    usc_excused *e = &r->excused;
    e->first = e->n == 0 || call < e->first ? call : e->first;
    e->n++;
    if (!(facts->excused > e->most)) return USC_OK;
    e->most = facts->excused;
    e->excuse = usc_report_keep(r, facts->excuse);
    return e->excuse != NULL ? USC_OK : usc_report_no_memory(r, err);
}

/* A bound tells nothing: it is what the output could show. */
static usc_status sum_low(usc_report *r, const usc_result_row *row, usc_verdict v,
                          usc_error *err)
{
    usc_low_passes *low = &r->low;
    if (v != USC_VERDICT_PASS || row->bound || !(row->bits < USC_LOW_BITS)) return USC_OK;
    low->n++;
    if (low->n > 1 && !(row->bits < low->bits)) return USC_OK;
    low->bits = row->bits;
    low->call = row->call;
    low->op = usc_report_keep(r, row->op);
    return low->op != NULL ? USC_OK : usc_report_no_memory(r, err);
}

static void sum_times(usc_report *r, const usc_result_row *row,
                      const usc_row_facts *facts)
{
    r->times.device += row->t_device;
    r->times.reference += row->t_reference;
    r->times.perturbed += row->t_perturbed;
    r->times.judge += row->t_judge;
    r->times.total += row->t_total;
    r->times.causes += facts->t_causes;
}

static usc_status sum_row(void *ctx, const usc_result_row *row, usc_error *err)
{
    usc_report *r = ctx;
    const usc_verdict v = usc_verdict_by_text(row->verdict != NULL ? row->verdict : "");
    if (v == USC_N_VERDICTS)
        return usc_error_set(err, USC_E_CORRUPT, row->call,
                             "%s/result.db: call %lld has the unknown verdict '%s'",
                             r->folder, (long long)row->call,
                             row->verdict != NULL ? row->verdict : "");
    usc_op_sum *op = op_of(r, row->op, err);
    if (op == NULL) return usc_report_no_memory(r, err);
    const usc_row_facts facts = usc_row_facts_of(row);
    op->n[v]++;
    r->n[v]++;
    r->n_rows++;
    r->n_calls += row->stands_for > 0 ? row->stands_for : 1;
    if (facts.internal[0] != '\0' && r->internal == NULL) {
        r->internal = usc_report_keep(r, facts.internal);
        r->internal_op = usc_report_keep(r, row->op);
    }
    sum_times(r, row, &facts);
    sum_odd_inputs(r, &facts, row->call, v);
    usc_status st = sum_excused(r, &facts, row->call, err);
    if (st == USC_OK) st = sum_low(r, row, v, err);
    if (st == USC_OK) st = usc_report_add_standards(r, row, v, err);
    if (st == USC_OK) st = usc_report_add_beside(r, row, err);
    if (st != USC_OK || v == USC_VERDICT_PASS) return st;
    return usc_report_finding_add(r, row, v, err);
}

static usc_status keep_key(void *ctx, const char *key, const char *value, usc_error *err)
{
    usc_report *r = ctx;
    usc_run_key *k = usc_report_take(r, sizeof *k);
    if (k == NULL || (k->key = usc_report_keep(r, key)) == NULL ||
        (k->value = usc_report_keep(r, value)) == NULL)
        return usc_report_no_memory(r, err);
    k->next = r->run;
    r->run = k;
    return USC_OK;
}

usc_status usc_report_open(const char *out_folder, const usc_alloc *alloc,
                           usc_report **out, usc_error *err)
{
    assert(out_folder);
    assert(out);
    if (alloc == NULL) alloc = &usc_libc_alloc;
    *out = NULL;

    usc_status st = USC_OK;
    usc_report *r = alloc->resize(alloc->ctx, NULL, 0, sizeof *r);
    if (r == NULL) {
        st = usc_error_set(err, USC_E_NOMEM, -1, "report of %s: out of memory",
                           out_folder);
        goto done;
    }
    *r = (usc_report){.alloc = alloc,
                      .arena = {.alloc = *alloc},
                      .folder = "",
                      .excused = {.excuse = ""}};
    r->findings_end = &r->findings;
    r->beside_end = &r->beside;
    r->ops_end = &r->ops;
    r->cases_end = &r->cases;

    const char *folder = usc_report_keep(r, out_folder);
    if (folder == NULL) {
        st = usc_report_no_memory(r, err);
        goto done;
    }
    r->folder = folder;
    st = usc_result_open(out_folder, &r->result, err);
    if (st == USC_OK) st = usc_result_walk_run(r->result, keep_key, r, err);
    if (st == USC_OK)
        st = usc_result_walk_parts(r->result, USC_RESULT_LEAN, sum_row, r, err);
    if (st == USC_OK) usc_report_take_beside(r);
    if (st == USC_OK) usc_findings_usual_last(r);
    if (st == USC_OK) st = usc_report_read_self_test(r, err);
    if (st != USC_OK) goto done;

    *out = r; /* hand over */
    r = NULL;

done:
    usc_report_close(r);
    return st;
}

void usc_report_close(usc_report *report)
{
    if (report == NULL) return;
    const usc_alloc *alloc = report->alloc;
    usc_result_close(report->result);
    usc_arena_free(&report->arena);
    alloc->resize(alloc->ctx, report, sizeof *report, 0);
}

bool usc_report_unfinished(const usc_report *r)
{
    return strcmp(usc_report_run(r, "state"), "running") == 0;
}

bool usc_report_of_files(const usc_report *r)
{
    return strcmp(usc_report_run(r, "environment"), "{}") == 0;
}

static bool of_tensors(const usc_report *r)
{
    return usc_report_of_files(r) &&
           strcmp(usc_report_run(r, "trace_id"), usc_report_run(r, "trace")) == 0;
}

const char *usc_report_noun(const usc_report *r)
{
    return of_tensors(r) ? "tensor" : "call";
}

bool usc_report_drawn(const usc_report *r)
{
    return strncmp(usc_report_run(r, "trace_id"), "cases of seed", 13) == 0;
}

bool usc_report_live(const usc_report *r)
{
    return usc_result_live(r->result);
}

bool usc_report_over_budget(const usc_report *r)
{
    return strcmp(usc_report_run(r, "state"), "budget") == 0;
}

bool usc_bits_shown(usc_verdict verdict, double bits)
{
    const bool judged = verdict == USC_VERDICT_WRONG || verdict == USC_VERDICT_REDUCED ||
                        verdict == USC_VERDICT_INTERMITTENT ||
                        verdict == USC_VERDICT_PASS;
    return judged && !isnan(bits);
}

void usc_report_mark(usc_report *report, const usc_report_options *options)
{
    report->options = options;
}

void usc_out_raw_json(usc_out *o, const char *json, const char *empty)
{
    bool valid = false;
    if (json == NULL || json[0] == '\0') {
        usc_out_text(o, empty);
        return;
    }
    const usc_status st = usc_json_valid(json, &valid, o->err);
    if (o->status == USC_OK) o->status = st;
    if (valid)
        usc_out_text(o, json);
    else
        usc_out_json(o, json);
}
