// SPDX-License-Identifier: Apache-2.0
// Reads an earlier run, from its result.db or its result.json, as the baseline of this
// one.
#include <errno.h>
#include <math.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>

#include "report/report_cases.h"
#include "result/result_db.h"

/* Both give: op, module, phase, args, verdict, bits. */
static const char sql_rows[] =
    "SELECT op, module, phase, args, verdict, bits FROM verdict "
    "WHERE verdict <> 'pass' ORDER BY call";
static const char sql_json_rows[] =
    "SELECT value ->> '$.op', value ->> '$.module', value ->> '$.phase', "
    "value ->> '$.args', value ->> '$.verdict', value ->> '$.bits' "
    "FROM json_each(?1, '$.calls') WHERE value ->> '$.verdict' <> 'pass'";
static const char sql_standard[] = "SELECT value FROM run WHERE key = 'standard'";
static const char sql_json_standard[] =
    "SELECT ?1 ->> '$.run.standard' WHERE ?1 ->> '$.schema' = '" USC_REPORT_SCHEMA "'";

/* Where the rows come from: a database, or a text that SQLite's JSON functions read. */
typedef struct source {
    sqlite3 *db;
    const char *path, *json; /* json: NULL for a database */
    size_t json_size;
} source;

static usc_status query(const source *s, const char *sql, sqlite3_stmt **out,
                        usc_error *err)
{
    *out = NULL;
    if (sqlite3_prepare_v2(s->db, sql, -1, out, NULL) != SQLITE_OK)
        return usc_error_set(err, USC_E_CORRUPT, -1, "baseline %s: %s", s->path,
                             sqlite3_errmsg(s->db));
    if (s->json != NULL)
        (void)sqlite3_bind_text64(*out, 1, s->json, s->json_size, SQLITE_STATIC,
                                  SQLITE_UTF8);
    return USC_OK;
}

static const char *text(sqlite3_stmt *row, int column)
{
    const char *found = (const char *)sqlite3_column_text(row, column);
    return found != NULL ? found : "";
}

static usc_status add_known(usc_report *r, sqlite3_stmt *row, const char *path,
                            usc_error *err)
{
    const usc_verdict verdict = usc_verdict_by_text(text(row, 4));
    if (verdict == USC_N_VERDICTS)
        return usc_error_set(err, USC_E_CORRUPT, -1,
                             "baseline %s: '%.40s' is no verdict that this program knows",
                             path, text(row, 4));
    const usc_case_key key = {text(row, 0), text(row, 1), text(row, 2), text(row, 3)};
    usc_report_case *c = usc_case_of(r, &key);
    usc_known *k = c != NULL ? usc_report_take(r, sizeof *k) : NULL;
    if (k == NULL) return usc_report_no_memory(r, err);
    k->verdict = verdict;
    const int type = sqlite3_column_type(row, 5);
    k->bits = type == SQLITE_FLOAT || type == SQLITE_INTEGER
                  ? sqlite3_column_double(row, 5)
                  : (double)NAN;
    k->next = c->known;
    c->known = k;
    return USC_OK;
}

static usc_status check_standard(const usc_report *r, const source *s, usc_error *err)
{
    sqlite3_stmt *row;
    usc_status st = query(s, s->json ? sql_json_standard : sql_standard, &row, err);
    if (st != USC_OK) return st;
    if (sqlite3_step(row) != SQLITE_ROW)
        st = usc_error_set(err, USC_E_CORRUPT, -1,
                           "baseline %s: neither a result.db nor a result.json of "
                           "ulpscope",
                           s->path);
    else if (strcmp(text(row, 0), usc_report_run(r, "standard")) != 0)
        st = usc_error_set(err, USC_E_ARG, -1,
                           "baseline %s was judged by the standard '%.60s', this run by "
                           "'%.60s': make a baseline with the same standard",
                           s->path, text(row, 0), usc_report_run(r, "standard"));
    (void)sqlite3_finalize(row);
    return st;
}

static usc_status load(usc_report *r, const source *s, usc_error *err)
{
    usc_status st = check_standard(r, s, err);
    if (st != USC_OK) return st;
    sqlite3_stmt *row;
    st = query(s, s->json ? sql_json_rows : sql_rows, &row, err);
    if (st != USC_OK) return st;
    int code;
    while (st == USC_OK && (code = sqlite3_step(row)) != SQLITE_DONE) {
        if (code == SQLITE_ROW)
            st = add_known(r, row, s->path, err);
        else
            st = usc_error_set(err, USC_E_CORRUPT, -1, "baseline %s: %s", s->path,
                               sqlite3_errmsg(s->db));
    }
    (void)sqlite3_finalize(row);
    return st;
}

static usc_status load_database(usc_report *r, const char *path, usc_error *err)
{
    usc_db db = {0};
    bool unfinished = false;
    usc_status st = usc_db_unfinished(path, &unfinished, err);
    if (st == USC_OK)
        st = usc_db_open_readable(&db, &usc_result_kind, path, unfinished, err);
    if (st != USC_OK) return st;
    const source s = {.db = db.handle, .path = path};
    st = load(r, &s, err);
    usc_db_close(&db);
    return st;
}

static usc_status io_error(const char *path, usc_error *err)
{
    return usc_error_set(err, errno == ENOENT ? USC_E_NOT_FOUND : USC_E_IO, -1,
                         "baseline %s: %s", path, strerror(errno));
}

static usc_status load_json(usc_report *r, FILE *file, const char *path, usc_error *err)
{
    if (fseek(file, 0, SEEK_END) != 0) return io_error(path, err);
    const long size = ftell(file);
    if (size < 0) return io_error(path, err);
    rewind(file);
    char *json = r->alloc->resize(r->alloc->ctx, NULL, 0, (size_t)size + 1);
    if (json == NULL) return usc_report_no_memory(r, err);
    const source s = {
        .db = r->json_db, .path = path, .json = json, .json_size = (size_t)size};
    usc_status st = USC_OK;
    if (fread(json, 1, (size_t)size, file) != (size_t)size) st = io_error(path, err);
    json[size] = '\0';
    (void)sqlite3_bind_text64(r->json_check, 1, json, (size_t)size, SQLITE_STATIC,
                              SQLITE_UTF8);
    if (st == USC_OK && !(sqlite3_step(r->json_check) == SQLITE_ROW &&
                          sqlite3_column_int(r->json_check, 0) == 1))
        st = usc_error_set(
            err, USC_E_CORRUPT, -1,
            "baseline %s: neither a result.db nor a result.json of ulpscope", path);
    (void)sqlite3_reset(r->json_check);
    (void)sqlite3_clear_bindings(r->json_check);
    if (st == USC_OK) st = load(r, &s, err);
    (void)r->alloc->resize(r->alloc->ctx, json, (size_t)size + 1, 0);
    return st;
}

static usc_status load_file(usc_report *r, const char *path, usc_error *err)
{
    char head[16] = "";
    struct stat info;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        char inside[USC_PATH_SIZE];
        const usc_status st = usc_path_join(inside, path, "result.db", err);
        return st == USC_OK ? load_database(r, inside, err) : st;
    }
    FILE *file = fopen(path, "rb");
    if (file == NULL) return io_error(path, err);
    const size_t n = fread(head, 1, sizeof head, file);
    usc_status st;
    if (n == sizeof head && memcmp(head, "SQLite format 3", sizeof head) == 0)
        st = load_database(r, path, err);
    else
        st = load_json(r, file, path, err);
    (void)fclose(file);
    return st;
}

usc_status usc_report_baseline(usc_report *report, const char *path, usc_error *err)
{
    if (report->has_baseline || report->cases_filled)
        return usc_error_set(err, USC_E_ARG, -1, "a report takes one baseline, at first");
    usc_status st = load_file(report, path, err);
    if (st == USC_OK) st = usc_cases_fill(report, err);
    report->has_baseline = st == USC_OK;
    return st;
}
