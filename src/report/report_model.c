// SPDX-License-Identifier: Apache-2.0
// Opens a result database, sums it up in one walk, and decides the exit code. The
// renderers beside this file show what is found here.
#include "report/report_model.h"
#include "report/report_selftest.h"
#include "report/report_standards.h"

#include <math.h>
#include <sqlite3.h>
#include <string.h>

#include <ulpscope/pattern.h>

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

static bool same(const char *kept, const char *text)
{
    return strcmp(kept, text != NULL ? text : "") == 0;
}

/* "inputs rounded to TF32 or float16" is what some inputs cannot tell from "inputs
   rounded to TF32": one cause. */
static bool leaves_open(const char *wide, const char *cause)
{
    const size_t n = strlen(cause);
    return n > 0 && strncmp(wide, cause, n) == 0 && strncmp(wide + n, " or ", 4) == 0;
}

static bool same_cause(const char *kept, const char *cause)
{
    if (cause == NULL) cause = "";
    return strcmp(kept, cause) == 0 || leaves_open(kept, cause) ||
           leaves_open(cause, kept);
}

/* What could not be judged is told apart by its reason, which the sentence holds. */
static bool same_reason(const usc_finding *f, const usc_result_row *row)
{
    if (!same_cause(f->cause, row->cause)) return false;
    const bool missing =
        f->verdict == USC_VERDICT_UNJUDGED || f->verdict == USC_VERDICT_UNSUPPORTED;
    return !missing || f->cause[0] != '\0' || same(f->sentence, row->sentence);
}

const char *usc_finding_reason(const usc_finding *f)
{
    char prefix[40];
    (void)snprintf(prefix, sizeof prefix, " is %s: ", usc_verdict_text(f->verdict));
    if (f->cause[0] != '\0') return f->cause;
    const char *at = strstr(f->sentence, prefix);
    return at != NULL ? at + strlen(prefix) : f->sentence;
}

/* The finding, under the narrower of two names; NULL without memory. */
static usc_finding *named_closer(usc_report *r, usc_finding *f, const char *cause)
{
    if (cause == NULL || !leaves_open(f->cause, cause)) return f;
    f->cause = usc_report_keep(r, cause);
    return f->cause != NULL ? f : NULL;
}

usc_finding *usc_finding_of(usc_report *r, const usc_result_row *row, usc_verdict v)
{
    for (usc_finding *f = r->findings; f != NULL; f = f->next)
        if (f->verdict == v && same(f->op, row->op) && same(f->culprit, row->culprit) &&
            same_reason(f, row))
            return named_closer(r, f, row->cause);
    usc_finding *f = usc_report_take(r, sizeof *f);
    if (f == NULL) return NULL;
    f->op = usc_report_keep(r, row->op);
    f->culprit = usc_report_keep(r, row->culprit);
    f->cause = usc_report_keep(r, row->cause);
    f->sentence = usc_report_keep(r, row->sentence);
    if (!f->op || !f->culprit || !f->cause || !f->sentence) return NULL;
    f->verdict = v;
    f->worst_call = row->call; /* rows come worst first */
    f->bits = row->bits;
    f->yardstick_bits = row->yardstick_bits;
    f->bound = row->bound;
    f->loss = (double)NAN;
    *r->findings_end = f;
    r->findings_end = &f->next;
    return f;
}

static usc_status add_finding(usc_report *r, const usc_result_row *row, usc_verdict v,
                              usc_error *err)
{
    usc_finding *f = usc_finding_of(r, row, v);
    usc_place *place = f != NULL ? usc_report_take(r, sizeof *place) : NULL;
    if (place == NULL) return usc_report_no_memory(r, err);
    if (!same("", row->module)) {
        place->text = usc_report_keep(r, row->module);
    } else {
        const char *phase = row->phase != NULL && *row->phase ? row->phase : "root";
        const size_t size = strlen(phase) + 3;
        char *text = usc_report_take(r, size);
        if (text != NULL) (void)snprintf(text, size, "(%s)", phase);
        place->text = text;
    }
    if (place->text == NULL) return usc_report_no_memory(r, err);
    place->next = f->places;
    f->places = place;
    f->n_rows++;
    f->loss = fmax(f->loss, usc_row_loss(row)); /* a NaN gives way */
    f->n_calls += row->stands_for > 0 ? row->stands_for : 1;
    return USC_OK;
}

double usc_row_loss(const usc_result_row *row)
{
    for (int i = 0; i < row->n_metrics; i++)
        if (row->metrics[i].output == -1 && same("loss", row->metrics[i].name))
            return row->metrics[i].value;
    return (double)NAN;
}

void usc_findings_by_loss(usc_report *r)
{
    usc_finding *rest = r->findings;
    r->findings = NULL;
    while (rest != NULL) {
        usc_finding *f = rest, **at = &r->findings;
        rest = f->next;
        while (*at != NULL && ((*at)->loss >= f->loss || isnan(f->loss)))
            at = &(*at)->next;
        f->next = *at;
        *at = f;
    }
    for (r->findings_end = &r->findings; *r->findings_end != NULL;)
        r->findings_end = &(*r->findings_end)->next;
}

static usc_op_sum *op_of(usc_report *r, const char *op)
{
    for (usc_op_sum *s = r->ops; s != NULL; s = s->next)
        if (same(s->op, op)) return s;
    usc_op_sum *s = usc_report_take(r, sizeof *s);
    if (s == NULL || (s->op = usc_report_keep(r, op)) == NULL) return NULL;
    *r->ops_end = s;
    r->ops_end = &s->next;
    r->n_ops++;
    return s;
}

static void sum_odd_inputs(usc_report *r, const usc_result_row *row, usc_verdict v)
{
    bool nan = false, inf = false;
    for (int i = 0; i < row->n_metrics; i++) {
        nan |= strcmp(row->metrics[i].name, "nan_inputs") == 0;
        inf |= strcmp(row->metrics[i].name, "inf_inputs") == 0;
    }
    if (!nan && !inf) return;
    r->odd.first = r->odd.n == 0 || row->call < r->odd.first ? row->call : r->odd.first;
    r->odd.n++;
    r->odd.n_nan += nan;
    r->odd.n_pass += v == USC_VERDICT_PASS;
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
    usc_op_sum *op = op_of(r, row->op);
    if (op == NULL) return usc_report_no_memory(r, err);
    op->n[v]++;
    r->n[v]++;
    r->n_rows++;
    r->n_calls += row->stands_for > 0 ? row->stands_for : 1;
    r->times.device += row->t_device;
    r->times.reference += row->t_reference;
    r->times.perturbed += row->t_perturbed;
    r->times.judge += row->t_judge;
    r->times.total += row->t_total;
    for (int i = 0; i < row->n_metrics; i++)
        if (strcmp(row->metrics[i].name, "t_causes") == 0)
            r->times.causes += (int64_t)row->metrics[i].value;
    sum_odd_inputs(r, row, v);
    const usc_status st = usc_report_add_standards(r, row, v, err);
    return st != USC_OK || v == USC_VERDICT_PASS ? st : add_finding(r, row, v, err);
}

static usc_status open_json(usc_report *r, usc_error *err)
{
    if (sqlite3_open_v2(":memory:", &r->json_db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(r->json_db, "SELECT json_valid(?1)", -1, &r->json_check,
                           NULL) == SQLITE_OK)
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
    *r = (usc_report){.alloc = alloc, .folder = ""};
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
    if (st == USC_OK) st = usc_result_walk(r->result, sum_row, r, err);
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

/* ---- what counts ---- */

usc_status usc_allow_parse(const char *text, usc_allow *out, usc_error *err)
{
    *out = (usc_allow){.verdict = USC_N_VERDICTS};
    char name[32] = "";
    const char *colon = strchr(text, ':');
    const size_t n = colon != NULL ? (size_t)(colon - text) : strlen(text);
    if (n < sizeof name) memcpy(name, text, n);
    const usc_verdict verdict = usc_verdict_by_text(name);
    if (verdict == USC_N_VERDICTS || verdict == USC_VERDICT_PASS) {
        *out = (usc_allow){0};
        return usc_error_set(err, USC_E_ARG, 0,
                             "'%.*s' is no verdict that can be allowed; try crashed, "
                             "timeout, nonfinite, wrong, reduced or intermittent",
                             (int)n, text);
    }
    const char *pattern = colon != NULL ? colon + 1 : NULL;
    if (pattern != NULL) {
        const usc_status st = usc_pattern_check(pattern, err);
        if (st != USC_OK) {
            *out = (usc_allow){0};
            return st;
        }
    }
    *out = (usc_allow){verdict, pattern};
    return USC_OK;
}

/* Either name may match; a pattern that excludes something must let both through, lest
 * it excuse what it was told to leave out. */
static bool excuses(const usc_allow *allow, const usc_finding *f)
{
    if (allow->verdict != f->verdict) return false;
    if (allow->pattern == NULL) return true;
    const bool op = usc_pattern_match(allow->pattern, f->op);
    if (f->culprit[0] == '\0') return op;
    const bool culprit = usc_pattern_match(allow->pattern, f->culprit);
    return strchr(allow->pattern, '!') != NULL ? op && culprit : op || culprit;
}

bool usc_finding_counts(const usc_finding *f, const usc_report_options *options)
{
    const bool strict = options != NULL && options->strict;
    const bool missing =
        f->verdict == USC_VERDICT_UNJUDGED || f->verdict == USC_VERDICT_UNSUPPORTED;
    if (!usc_verdict_flagged(f->verdict) && !(strict && missing)) return false;
    for (int i = 0; options != NULL && i < options->n_allow; i++)
        if (excuses(&options->allow[i], f)) return false;
    return true;
}

bool usc_finding_flagged(const usc_finding *f, const usc_report_options *options)
{
    return f->n_known < f->n_rows && usc_finding_counts(f, options);
}

int usc_report_exit_code(const usc_report *report, const usc_report_options *options)
{
    for (const usc_finding *f = report->findings; f != NULL; f = f->next)
        if (usc_finding_flagged(f, options)) return 1;
    const int64_t n_judged =
        report->n[USC_VERDICT_PASS] + report->n[USC_VERDICT_NONFINITE] +
        report->n[USC_VERDICT_WRONG] + report->n[USC_VERDICT_REDUCED] +
        report->n[USC_VERDICT_INTERMITTENT];
    if (n_judged == 0 || usc_report_unfinished(report)) return 2;
    return 0;
}
