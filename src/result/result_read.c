// SPDX-License-Identifier: Apache-2.0
// Reading OUT/result.db: keys of the run, the calls that are done, the walk from the
// worst verdict to the best. SQL's NULL in a number stands for NaN.
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "result/result_db.h"

static void verdict_rank(sqlite3_context *context, int n, sqlite3_value **values)
{
    (void)n;
    const char *verdict = (const char *)sqlite3_value_text(values[0]);
    sqlite3_result_int(context, usc_result_rank(verdict));
}

static usc_status not_there(const char *folder, usc_error *err)
{
    char inside[USC_PATH_SIZE];
    const bool there = access(folder, F_OK) == 0;
    const bool is_file = there && usc_path_join(inside, folder, ".", NULL) == USC_OK &&
                         access(inside, F_OK) != 0;
    return usc_error_set(err, USC_E_NOT_FOUND, -1, "%s: %s", folder,
                         is_file ? "no results: it is a file, and results are a folder"
                         : there ? "no results: there is no result.db in it"
                                 : "no such folder");
}

/* *as_is: what a killed writer left cannot be tidied up, it is read with its journal.
 * USC_E_BUSY: another process writes it. */
static usc_status prepare_file(const char *folder, const char *path, bool *as_is,
                               usc_error *err)
{
    bool unfinished = false;
    *as_is = false;
    usc_status st = usc_db_unfinished(path, &unfinished, err);
    if (st == USC_E_NOT_FOUND) return not_there(folder, err);
    if (st != USC_OK || !unfinished) return st;
    usc_db db = {0};
    st = usc_db_open_writable(&db, &usc_result_kind, path, err);
    if (st == USC_OK) st = usc_db_make_plain(&db, err);
    usc_db_close(&db);
    if (st != USC_E_IO) return st;
    *as_is = true;
    return USC_OK;
}

/* A writer may end while its file is copied: then the file itself is there to be read. */
static usc_status open_somehow(usc_result *r, const char *path, usc_error *err)
{
    usc_status st = USC_E_BUSY;
    for (int i = 0; i < 3 && st == USC_E_BUSY; i++) {
        bool as_is = false;
        st = prepare_file(r->folder, path, &as_is, err);
        r->live = st == USC_E_BUSY;
        if (st == USC_OK)
            st = usc_db_open_readable(&r->db, &usc_result_kind, path, as_is, err);
        else if (r->live)
            st = usc_result_open_copy(&r->db, path, err);
    }
    return st;
}

static usc_status open_as(usc_result *r, const char *path, bool tidy, usc_error *err)
{
    bool unfinished = false;
    usc_status st;
    if (tidy) {
        st = open_somehow(r, path, err);
    } else {
        st = usc_db_unfinished(path, &unfinished, err);
        if (st == USC_OK)
            st = usc_db_open_readable(&r->db, &usc_result_kind, path, unfinished, err);
    }
    /* A walk from the worst to the best jumps about among the metrics. */
    if (st == USC_OK)
        st = usc_db_exec(&r->db, "PRAGMA cache_size=-65536", "opening", err);
    return st;
}

static usc_status open_reader(const char *folder, const char *path, bool tidy,
                              usc_result **out, usc_error *err)
{
    const usc_alloc *alloc = &usc_libc_alloc;
    usc_result *r = alloc->resize(alloc->ctx, NULL, 0, sizeof *r);
    if (r == NULL) return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", folder);
    *r = (usc_result){.arena = {.alloc = *alloc},
                      .value = {.alloc = *alloc},
                      .run_texts = {.alloc = *alloc}};
    snprintf(r->folder, sizeof r->folder, "%s", folder);
    const usc_status st = open_as(r, path, tidy, err);
    if (st == USC_OK)
        *out = r;
    else
        usc_result_close(r);
    return st;
}

usc_status usc_result_open(const char *out_folder, usc_result **out, usc_error *err)
{
    assert(out_folder);
    assert(out);
    char path[USC_PATH_SIZE];
    *out = NULL;
    const usc_status st = usc_path_join(path, out_folder, "result.db", err);
    return st == USC_OK ? open_reader(out_folder, path, true, out, err) : st;
}

usc_status usc_result_open_file(const char *path, usc_result **out, usc_error *err)
{
    *out = NULL;
    return open_reader(path, path, false, out, err);
}

bool usc_result_live(const usc_result *r)
{
    return r->live;
}

usc_status usc_result_done(usc_result *r, const int64_t **out, int64_t *n, usc_error *err)
{
    assert(r);
    assert(out && n);
    sqlite3_stmt *s;
    bool row = false;
    size_t capacity = 0, used = 0;
    int64_t *calls = NULL;
    *out = NULL;
    *n = 0;
    usc_arena_reset(&r->arena);
    if (r->stale) return USC_OK;
    usc_status st = usc_db_get(&r->db, USC_RESULT_SQL_DONE, &s, err);
    if (st != USC_OK) return st;
    while ((st = usc_db_step(&r->db, s, &row, err)) == USC_OK && row) {
        if (used == capacity)
            calls = usc_arena_grow(&r->arena, calls, used, &capacity, sizeof *calls);
        if (calls == NULL) {
            st = usc_no_memory(r->folder, err);
            break;
        }
        calls[used++] = sqlite3_column_int64(s, 0);
    }
    sqlite3_reset(s);
    if (st != USC_OK) return st;
    *out = calls;
    *n = (int64_t)used;
    return USC_OK;
}

/* ---- the walk ---- */

static double number(sqlite3_stmt *s, int column)
{
    if (sqlite3_column_type(s, column) == SQLITE_NULL) return (double)NAN;
    return sqlite3_column_double(s, column);
}

/* Text that is never NULL, so that reports need not ask. */
static const char *text(usc_result *r, sqlite3_stmt *s, int column)
{
    const char *value = usc_db_text(&r->arena, s, column);
    return value != NULL ? value : "";
}

static void read_metric(usc_result *r, sqlite3_stmt *s, void *out)
{
    *(usc_metric *)out = (usc_metric){.output = sqlite3_column_int(s, 0),
                                      .name = text(r, s, 1),
                                      .value = number(s, 2),
                                      .text = usc_db_text(&r->arena, s, 3)};
}

static void read_example(usc_result *r, sqlite3_stmt *s, void *out)
{
    *(usc_result_example *)out = (usc_result_example){.output = sqlite3_column_int(s, 0),
                                                      .rank = sqlite3_column_int(s, 1),
                                                      .index = text(r, s, 2),
                                                      .device = number(s, 3),
                                                      .reference = number(s, 4),
                                                      .yardstick = number(s, 5),
                                                      .score = number(s, 6)};
}

/* All rows that a statement gives for a call, `size` bytes each, in the arena. */
static usc_status read_list(usc_result *r, int statement, int64_t call,
                            void (*read_one)(usc_result *, sqlite3_stmt *, void *),
                            size_t size, const void **out, int *n, usc_error *err)
{
    sqlite3_stmt *s;
    bool more = false;
    size_t capacity = 0, used = 0;
    char *items = NULL;
    *out = NULL;
    *n = 0;
    usc_status st = usc_db_get(&r->db, statement, &s, err);
    if (st != USC_OK) return st;
    sqlite3_bind_int64(s, 1, call);
    while ((st = usc_db_step(&r->db, s, &more, err)) == USC_OK && more) {
        if (used == capacity)
            items = usc_arena_grow(&r->arena, items, used, &capacity, size);
        if (items == NULL) break; /* the arena knows */
        read_one(r, s, items + size * used++);
    }
    sqlite3_reset(s);
    *out = items;
    *n = items != NULL ? (int)used : 0;
    return st;
}

static usc_status read_metrics(usc_result *r, usc_result_row *row, usc_error *err)
{
    const void *list;
    const usc_status st = read_list(r, USC_RESULT_SQL_GET_METRICS, row->call, read_metric,
                                    sizeof(usc_metric), &list, &row->n_metrics, err);
    row->metrics = list;
    return st;
}

static usc_status read_examples(usc_result *r, usc_result_row *row, usc_error *err)
{
    const void *list;
    const usc_status st =
        read_list(r, USC_RESULT_SQL_GET_EXAMPLES, row->call, read_example,
                  sizeof(usc_result_example), &list, &row->n_examples, err);
    row->examples = list;
    return st;
}

/* The columns of USC_VERDICT_COLUMNS. */
static void fill_row(usc_result *r, sqlite3_stmt *s, usc_result_row *row)
{
    *row = (usc_result_row){
        .call = sqlite3_column_int64(s, 0),
        .step = sqlite3_column_int64(s, 1),
        .phase = text(r, s, 2),
        .op = text(r, s, 3),
        .culprit = text(r, s, 4),
        .module = text(r, s, 5),
        .module_class = text(r, s, 6),
        .verdict = text(r, s, 7),
        .bits = number(s, 8),
        .yardstick_bits = number(s, 9),
        .bound = sqlite3_column_int(s, 10) != 0,
        .cause = text(r, s, 11),
        .sentence = text(r, s, 12),
        .notes = text(r, s, 13),
        .output = text(r, s, 14),
        .args = text(r, s, 15),
        .stack = text(r, s, 16),
        .n_elements = sqlite3_column_int64(s, 17),
        .stands_for = sqlite3_column_int64(s, 18),
        .t_device = sqlite3_column_int64(s, 19),
        .t_reference = sqlite3_column_int64(s, 20),
        .t_perturbed = sqlite3_column_int64(s, 21),
        .t_judge = sqlite3_column_int64(s, 22),
        .t_total = sqlite3_column_int64(s, 23),
    };
}

usc_status usc_result_walk_parts(usc_result *r, usc_result_parts parts,
                                 usc_status (*each)(void *ctx, const usc_result_row *row,
                                                    usc_error *err),
                                 void *ctx, usc_error *err)
{
    sqlite3_stmt *s;
    bool more = false;
    if (sqlite3_create_function(r->db.handle, "usc_verdict_rank", 1, SQLITE_UTF8, NULL,
                                verdict_rank, NULL, NULL) != SQLITE_OK)
        return usc_db_error(&r->db, "reading", err);
    usc_status st = usc_db_get(&r->db, USC_RESULT_SQL_WALK, &s, err);
    if (st != USC_OK) return st;
    while ((st = usc_db_step(&r->db, s, &more, err)) == USC_OK && more) {
        usc_result_row row;
        usc_arena_reset(&r->arena);
        fill_row(r, s, &row);
        if (parts <= USC_RESULT_LEAN) st = read_metrics(r, &row, err);
        if (st == USC_OK && parts == USC_RESULT_ALL) st = read_examples(r, &row, err);
        if (st == USC_OK && r->arena.failed) st = usc_no_memory(r->folder, err);
        if (st == USC_OK) st = each(ctx, &row, err);
        if (st != USC_OK) break;
    }
    sqlite3_reset(s);
    return st;
}

usc_status usc_result_walk(usc_result *r,
                           usc_status (*each)(void *ctx, const usc_result_row *row,
                                              usc_error *err),
                           void *ctx, usc_error *err)
{
    assert(r && each);
    return usc_result_walk_parts(r, USC_RESULT_ALL, each, ctx, err);
}

usc_status usc_result_walk_run(usc_result *r,
                               usc_status (*each)(void *ctx, const char *key,
                                                  const char *value, usc_error *err),
                               void *ctx, usc_error *err)
{
    sqlite3_stmt *s;
    bool more = false;
    usc_status st = usc_db_get(&r->db, USC_RESULT_SQL_EACH_RUN, &s, err);
    if (st != USC_OK) return st;
    while ((st = usc_db_step(&r->db, s, &more, err)) == USC_OK && more) {
        usc_arena_reset(&r->arena);
        const char *key = text(r, s, 0), *value = text(r, s, 1);
        st = r->arena.failed ? usc_no_memory(r->folder, err) : each(ctx, key, value, err);
        if (st != USC_OK) break;
    }
    sqlite3_reset(s);
    return st;
}
