// SPDX-License-Identifier: Apache-2.0
// One SELECT over the views, row by row.
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "query/query_inside.h"

enum { STEPS_BETWEEN = 20000, MOST_COLUMNS = 200 };

static int wants_to_stop(void *ctx)
{
    const usc_query *q = ctx;
    return q->sink->stop != NULL && q->sink->stop(q->sink->ctx);
}

/* Whether nothing but spaces, comments and semicolons follows. */
static bool is_nothing(const char *sql)
{
    while (*sql != '\0')
        if (strchr(" \t\r\n;", *sql) != NULL)
            sql++;
        else if (strncmp(sql, "--", 2) == 0)
            sql += strcspn(sql, "\n");
        else if (strncmp(sql, "/*", 2) == 0) {
            sql = strstr(sql + 2, "*/");
            if (sql == NULL) return true;
            sql += 2;
        } else
            return false;
    return true;
}

static usc_status prepare(usc_query *q, const char *sql, sqlite3_stmt **out,
                          usc_error *err)
{
    const char *rest = sql;
    *out = NULL;
    q->refused[0] = '\0';
    if (is_nothing(sql))
        return usc_error_set(err, USC_E_ARG, -1, "there is no statement in it");
    const int code = sqlite3_prepare_v2(q->handle, sql, -1, out, &rest);
    if (code != SQLITE_OK && q->refused[0] != '\0')
        return usc_error_set(err, USC_E_ARG, -1, "%s", q->refused);
    if (code != SQLITE_OK) {
        const usc_status st = usc_query_error(q, "", err);
#if SQLITE_VERSION_NUMBER >= 3038000
        if (err != NULL) err->where = sqlite3_error_offset(q->handle);
#endif
        return st;
    }
    const char *why = !is_nothing(rest)              ? "one statement at a time"
                      : *out == NULL                 ? "there is no statement in it"
                      : !sqlite3_stmt_readonly(*out) ? "only SELECT is allowed here"
                      : sqlite3_bind_parameter_count(*out)
                          ? "there are no parameters here"
                      : sqlite3_column_count(*out) == 0 ? "only SELECT is allowed here"
                      : sqlite3_column_count(*out) > MOST_COLUMNS ? "at most 200 columns"
                                                                  : NULL;
    if (why == NULL) return USC_OK;
    (void)sqlite3_finalize(*out);
    *out = NULL;
    return usc_error_set(err, USC_E_ARG, -1, "%s", why);
}

/* Bytes of a blob as digits, which stay until the next row; NULL: no memory. */
static const char *digits_of(sqlite3_stmt *s, int column, char **kept)
{
    const unsigned char *bytes = sqlite3_column_blob(s, column);
    const size_t n = (size_t)sqlite3_column_bytes(s, column);
    char *out = realloc(*kept, 2 * n + 1);
    if (out == NULL) return NULL;
    *kept = out;
    out[0] = '\0';
    for (size_t i = 0; i < n; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    return out;
}

static bool value_of(sqlite3_stmt *s, int column, char **kept, usc_query_value *out)
{
    *out = (usc_query_value){.type = USC_QUERY_NULL};
    switch (sqlite3_column_type(s, column)) {
    case SQLITE_INTEGER:
        out->type = USC_QUERY_INTEGER;
        out->integer = sqlite3_column_int64(s, column);
        return true;
    case SQLITE_FLOAT:
        out->type = USC_QUERY_REAL;
        out->real = sqlite3_column_double(s, column);
        return true;
    case SQLITE_NULL:
        return true;
    case SQLITE_BLOB:
        out->text = digits_of(s, column, kept);
        break;
    default:
        out->text = (const char *)sqlite3_column_text(s, column);
    }
    out->type = USC_QUERY_TEXT;
    return out->text != NULL;
}

typedef struct row_buffer {
    const char *name[MOST_COLUMNS];
    usc_query_value value[MOST_COLUMNS];
    char *digits[MOST_COLUMNS];
} row_buffer;

static usc_status take_rows(usc_query *q, sqlite3_stmt *s, row_buffer *b,
                            usc_query_end *end, usc_error *err)
{
    const int n = sqlite3_column_count(s);
    for (int i = 0; i < n; i++)
        b->name[i] = sqlite3_column_name(s, i);
    if (!q->sink->begin(q->sink->ctx, n, b->name)) return USC_OK;
    int code;
    while ((code = sqlite3_step(s)) == SQLITE_ROW) {
        for (int i = 0; i < n; i++)
            if (!value_of(s, i, &b->digits[i], &b->value[i]))
                return usc_error_set(err, USC_E_NOMEM, -1, "out of memory");
        if (!q->sink->row(q->sink->ctx, n, b->name, b->value)) {
            end->more = true;
            return USC_OK;
        }
        end->n_rows++;
    }
    if (code == SQLITE_INTERRUPT) end->stopped = true;
    return code == SQLITE_DONE || code == SQLITE_INTERRUPT ? USC_OK
                                                           : usc_query_error(q, "", err);
}

usc_status usc_query_run(usc_query *q, const char *sql, const usc_query_sink *sink,
                         usc_query_end *end, usc_error *err)
{
    assert(q && sql && sink && end);
    sqlite3_stmt *s = NULL;
    *end = (usc_query_end){0};
    q->sink = sink;
    q->asked = false;
    usc_status st = USC_OK;
    if (!q->made) {
        st = usc_query_make_views(q, err);
        if (st != USC_OK) return st;
        usc_query_guard(q);
    }
    sqlite3_progress_handler(q->handle, STEPS_BETWEEN, wants_to_stop, q);
    st = prepare(q, sql, &s, err);
    row_buffer *b = calloc(1, sizeof *b);
    if (st == USC_OK && b == NULL) st = usc_error_set(err, USC_E_NOMEM, -1, "no memory");
    if (st == USC_OK) st = take_rows(q, s, b, end, err);
    (void)sqlite3_finalize(s);
    for (int i = 0; b != NULL && i < MOST_COLUMNS; i++)
        free(b->digits[i]);
    free(b);
    end->no_results = q->asked;
    sqlite3_progress_handler(q->handle, 0, NULL, NULL);
    return st;
}
