// SPDX-License-Identifier: Apache-2.0
// Reads an earlier run, from its result.db or its result.json, as the baseline of this
// one.
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "report/report_cases.h"
#include "result/result_reader.h"
#include "json/json.h"

/* A baseline that is being read. */
typedef struct source {
    usc_report *report;
    const char *path;
} source;

static usc_status not_ours(const char *path, usc_error *err)
{
    return usc_error_set(err, USC_E_CORRUPT, -1,
                         "baseline %s: neither a result.db nor a result.json of ulpscope",
                         path);
}

/* One call of it, whatever its verdict; `left_out`: outputs that were not judged beside
 * others. */
static usc_status add_known(const source *s, const usc_case_key *key, const char *verdict,
                            double bits, const char *left_out, usc_error *err)
{
    usc_verdict v = usc_verdict_by_text(verdict);
    if (v == USC_N_VERDICTS)
        return usc_error_set(err, USC_E_CORRUPT, -1,
                             "baseline %s: '%.40s' is no verdict that this program knows",
                             s->path, verdict);
    if (v == USC_VERDICT_PASS && left_out[0] == '\0') return USC_OK;
    if (v == USC_VERDICT_PASS) v = USC_VERDICT_UNJUDGED;
    usc_report_case *c = usc_case_of(s->report, key);
    usc_known *k = c != NULL ? usc_report_take(s->report, sizeof *k) : NULL;
    if (k == NULL) return usc_report_no_memory(s->report, err);
    *k = (usc_known){.verdict = v, .bits = bits, .next = c->known};
    c->known = k;
    return USC_OK;
}

static usc_status check_standard(const source *s, const char *standard, usc_error *err)
{
    const char *ours = usc_report_run(s->report, "standard");
    if (strcmp(standard, ours) == 0) return USC_OK;
    return usc_error_set(err, USC_E_ARG, -1,
                         "baseline %s was judged by the standard '%.60s', this run by "
                         "'%.60s': make a baseline with the same standard",
                         s->path, standard, ours);
}

/* ---- a database ---- */

static usc_status add_row(void *ctx, const usc_result_row *row, usc_error *err)
{
    const usc_case_key key = {row->op, row->module, row->phase, row->args};
    return add_known(ctx, &key, row->verdict, row->bits, usc_row_facts_of(row).left_out,
                     err);
}

static usc_status load_database(source *s, const char *path, usc_error *err)
{
    usc_result *r;
    usc_status st = usc_result_open_file(path, &r, err);
    if (st != USC_OK) return st;
    s->path = path;
    const char *standard;
    st = usc_result_find(r, "standard", &standard, err);
    if (st == USC_OK)
        st = standard != NULL ? check_standard(s, standard, err) : not_ours(path, err);
    if (st == USC_OK) st = usc_result_walk_parts(r, USC_RESULT_LEAN, add_row, s, err);
    usc_result_close(r);
    return st;
}

/* ---- a JSON file ---- */

static usc_status add_call(const source *s, usc_json_taker *in, const usc_json *c)
{
    const usc_case_key key = {
        usc_json_text(in, c, "op", ""), usc_json_text(in, c, "module", ""),
        usc_json_text(in, c, "phase", ""), usc_json_text(in, c, "args", "")};
    const char *verdict = usc_json_text(in, c, "verdict", "");
    const char *left_out = usc_json_text(in, c, "not_judged", "");
    const double bits = usc_json_number(in, c, "bits", (double)NAN);
    if (in->status != USC_OK) return in->status;
    return add_known(s, &key, verdict, bits, left_out, in->err);
}

static usc_status load_calls(const source *s, const usc_json *root, usc_error *err)
{
    char name[USC_PATH_SIZE + 16];
    snprintf(name, sizeof name, "baseline %s", s->path);
    usc_json_taker in = {.name = name, .err = err};
    const usc_json *run = usc_json_object(&in, root, "run");
    const usc_json *calls = usc_json_list(&in, root, "calls");
    const char *schema = usc_json_text(&in, root, "schema", "");
    const char *standard = usc_json_text(&in, run, "standard", "");
    if (strcmp(schema, USC_REPORT_SCHEMA) != 0) return not_ours(s->path, err);
    usc_status st = in.status;
    if (st == USC_OK) st = check_standard(s, standard, err);
    for (size_t i = 0; i < usc_json_size(calls) && st == USC_OK; i++) {
        snprintf(in.place, sizeof in.place, "calls[%zu]", i);
        st = add_call(s, &in, usc_json_item(calls, i));
    }
    return st;
}

static usc_status io_error(const char *path, usc_error *err)
{
    return usc_error_set(err, errno == ENOENT ? USC_E_NOT_FOUND : USC_E_IO, -1,
                         "baseline %s: %s", path, strerror(errno));
}

static usc_status load_json(const source *s, FILE *file, usc_error *err)
{
    usc_json *root;
    rewind(file);
    usc_status st = usc_json_read(file, s->path, "", &root, err);
    if (st == USC_E_CORRUPT) st = not_ours(s->path, err);
    if (st == USC_OK) st = load_calls(s, root, err);
    usc_json_free(root);
    return st;
}

static usc_status load_file(source *s, const char *path, usc_error *err)
{
    char head[16] = "";
    struct stat info;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        char inside[USC_PATH_SIZE];
        const usc_status st = usc_path_join(inside, path, "result.db", err);
        return st == USC_OK ? load_database(s, inside, err) : st;
    }
    FILE *file = fopen(path, "rb");
    if (file == NULL) return io_error(path, err);
    s->path = path;
    const size_t n = fread(head, 1, sizeof head, file);
    usc_status st;
    if (n == sizeof head && memcmp(head, "SQLite format 3", sizeof head) == 0)
        st = load_database(s, path, err);
    else
        st = load_json(s, file, err);
    (void)fclose(file);
    return st;
}

usc_status usc_report_baseline(usc_report *report, const char *path, usc_error *err)
{
    assert(report && path);
    if (report->has_baseline || report->cases_filled)
        return usc_error_set(err, USC_E_ARG, -1, "a report takes one baseline, at first");
    source s = {.report = report, .path = path};
    usc_status st = load_file(&s, path, err);
    if (st == USC_OK) st = usc_cases_fill(report, err);
    report->has_baseline = st == USC_OK;
    return st;
}
