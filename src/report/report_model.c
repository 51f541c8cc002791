// SPDX-License-Identifier: Apache-2.0
// Opens a result database, sums it up in one walk, and decides the exit code. The
// renderers beside this file show what is found here.
#include "report/report_model.h"
#include "report/report_index.h"
#include "report/report_selftest.h"
#include "report/report_standards.h"
#include "result/result_db.h"

#include <math.h>
#include <sqlite3.h>
#include <string.h>
#include <unistd.h>

struct usc_arena_chunk {
    usc_arena_chunk *next;
    size_t size, used;
    max_align_t bytes[];
};

enum { CHUNK_SIZE = 1 << 16 };

void *usc_report_take(usc_report *r, size_t size)
{
    const size_t align = sizeof(max_align_t);
    const size_t need = (size + align - 1) / align * align;
    usc_arena_chunk *chunk = r->chunks;
    if (chunk == NULL || chunk->size - chunk->used < need) {
        const size_t room = need > CHUNK_SIZE ? need : CHUNK_SIZE;
        chunk = r->alloc->resize(r->alloc->ctx, NULL, 0, sizeof *chunk + room);
        if (chunk == NULL) return NULL;
        *chunk = (usc_arena_chunk){.next = r->chunks, .size = room};
        r->chunks = chunk;
    }
    void *at = (char *)chunk->bytes + chunk->used;
    chunk->used += need;
    return memset(at, 0, size);
}

const char *usc_report_keep(usc_report *r, const char *text)
{
    if (text == NULL || text[0] == '\0') return "";
    const size_t size = strlen(text) + 1;
    char *copy = usc_report_take(r, size);
    return copy != NULL ? memcpy(copy, text, size) : NULL;
}

usc_status usc_report_no_memory(const usc_report *r, usc_error *err)
{
    return usc_error_set(err, USC_E_NOMEM, -1, "report of %s: out of memory", r->folder);
}

const usc_op_sum *usc_report_op(const usc_report *r, const char *op)
{
    usc_indexed *node = usc_index_first(&r->ops_index, usc_index_hash_text(0, op));
    while (node != NULL && strcmp(((const usc_op_sum *)node)->op, op) != 0)
        node = usc_index_next(node);
    return (const usc_op_sum *)node;
}

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
    sum_times(r, row, &facts);
    sum_odd_inputs(r, &facts, row->call, v);
    usc_status st = sum_excused(r, &facts, row->call, err);
    if (st == USC_OK) st = usc_report_add_standards(r, row, v, err);
    if (st != USC_OK || v == USC_VERDICT_PASS) return st;
    return usc_finding_add(r, row, v, err);
}

static usc_status open_json(usc_report *r, usc_error *err)
{
    static const char frame[] =
        "SELECT value ->> 0, value ->> 1 FROM json_each(?1) WHERE json_valid(?1) "
        "AND json_type(?1) = 'array' AND json_type(value) = 'array' ORDER BY "
        "value ->> 0 LIKE '%/site-packages/%' OR value ->> 0 LIKE '%/dist-packages/%' "
        "OR value ->> 0 LIKE '<%', key LIMIT 1";
    if (sqlite3_open_v2(":memory:", &r->json_db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(r->json_db, "SELECT json_valid(?1)", -1, &r->json_check,
                           NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(r->json_db, frame, -1, &r->json_frame, NULL) == SQLITE_OK)
        return USC_OK;
    return usc_error_set(err, USC_E_UNSUPPORTED, -1,
                         "this SQLite has no JSON functions; version 3.38 has");
}

usc_status usc_report_open(const char *out_folder, const usc_alloc *alloc,
                           usc_report **out, usc_error *err)
{
    if (alloc == NULL) alloc = &usc_libc_alloc;
    *out = NULL;

    usc_status st = USC_OK;
    usc_report *r = alloc->resize(alloc->ctx, NULL, 0, sizeof *r);
    if (r == NULL) {
        st = usc_error_set(err, USC_E_NOMEM, -1, "report of %s: out of memory",
                           out_folder);
        goto done;
    }
    *r = (usc_report){.alloc = alloc, .folder = "", .excused = {.excuse = ""}};
    r->findings_end = &r->findings;
    r->ops_end = &r->ops;
    r->cases_end = &r->cases;

    const char *folder = usc_report_keep(r, out_folder);
    if (folder == NULL) {
        st = usc_report_no_memory(r, err);
        goto done;
    }
    r->folder = folder;
    st = usc_result_open(out_folder, &r->result, err);
    if (st == USC_OK) st = open_json(r, err);
    if (st == USC_OK) st = usc_result_walk_lean(r->result, sum_row, r, err);
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
    (void)sqlite3_finalize(report->json_check);
    (void)sqlite3_finalize(report->json_frame);
    (void)sqlite3_close(report->json_db);
    for (usc_arena_chunk *c = report->chunks, *next; c != NULL; c = next) {
        next = c->next;
        alloc->resize(alloc->ctx, c, sizeof *c + c->size, 0);
    }
    alloc->resize(alloc->ctx, report, sizeof *report, 0);
}

const char *usc_report_run(const usc_report *r, const char *key)
{
    const char *value = usc_result_get(r->result, key);
    return value != NULL ? value : "";
}

bool usc_report_unfinished(const usc_report *r)
{
    return strcmp(usc_report_run(r, "state"), "running") == 0;
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

static const char *relative(const char *file)
{
    char here[4096];
    if (getcwd(here, sizeof here) == NULL) return file;
    const size_t n = strlen(here);
    return strncmp(file, here, n) == 0 && file[n] == '/' ? file + n + 1 : file;
}

usc_source_line usc_source_line_of(usc_report *r, const char *stack)
{
    usc_source_line found = {.file = ""};
    if (stack == NULL || stack[0] != '[') return found;
    (void)sqlite3_bind_text(r->json_frame, 1, stack, -1, SQLITE_STATIC);
    if (sqlite3_step(r->json_frame) == SQLITE_ROW) {
        const char *file = (const char *)sqlite3_column_text(r->json_frame, 0);
        const char *kept = usc_report_keep(r, file != NULL ? relative(file) : "");
        if (kept != NULL)
            found = (usc_source_line){kept, sqlite3_column_int64(r->json_frame, 1)};
    }
    (void)sqlite3_reset(r->json_frame);
    (void)sqlite3_clear_bindings(r->json_frame);
    return found;
}

void usc_out_raw_json(usc_out *o, usc_report *r, const char *json, const char *empty)
{
    if (json == NULL || json[0] == '\0') {
        usc_out_text(o, empty);
        return;
    }
    (void)sqlite3_bind_text(r->json_check, 1, json, -1, SQLITE_STATIC);
    const bool valid = sqlite3_step(r->json_check) == SQLITE_ROW &&
                       sqlite3_column_int(r->json_check, 0) == 1;
    (void)sqlite3_reset(r->json_check);
    (void)sqlite3_clear_bindings(r->json_check);
    if (valid)
        usc_out_text(o, json);
    else
        usc_out_json(o, json);
}
