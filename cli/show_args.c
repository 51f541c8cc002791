// SPDX-License-Identifier: Apache-2.0
// Prints what a trace keeps as JSON - arguments, state, stack - as people read it; see
// show.h. SQLite reads the JSON, which may come from anywhere: what it refuses is printed
// as the text that it is.
#include "show.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 8, PATH_WIDTH = 14 };

typedef struct reader {
    sqlite3 *db;
    const usc_call *call;
    int depth;
} reader;

static const char each[] = "SELECT key, type, value FROM json_each(?1)";

static const char *column(sqlite3_stmt *s, int i)
{
    const unsigned char *text = sqlite3_column_text(s, i);
    return text != NULL ? (const char *)text : "";
}

static sqlite3_stmt *begin_each(const reader *r, const char *json)
{
    sqlite3_stmt *s = NULL;
    if (r->db == NULL || r->depth > MAX_DEPTH ||
        sqlite3_prepare_v2(r->db, each, -1, &s, NULL) != SQLITE_OK)
        return NULL;
    (void)sqlite3_bind_text(s, 1, json, -1, SQLITE_TRANSIENT);
    return s;
}

static bool valid(sqlite3 *db, const char *json)
{
    sqlite3_stmt *s = NULL;
    bool ok = false;
    if (db != NULL &&
        sqlite3_prepare_v2(db, "SELECT json_valid(?1)", -1, &s, NULL) == SQLITE_OK) {
        (void)sqlite3_bind_text(s, 1, json, -1, SQLITE_STATIC);
        ok = sqlite3_step(s) == SQLITE_ROW && sqlite3_column_int(s, 0) == 1;
    }
    (void)sqlite3_finalize(s);
    return ok;
}

static sqlite3 *open_reader(void)
{
    sqlite3 *db = NULL;
    if (sqlite3_open(":memory:", &db) == SQLITE_OK) return db;
    (void)sqlite3_close(db);
    return NULL;
}

bool show_json_valid(const char *json)
{
    sqlite3 *db = open_reader();
    const bool ok = valid(db, json);
    (void)sqlite3_close(db);
    return ok;
}

static void put_tensor(const reader *r, const char *path)
{
    for (int i = 0; i < r->call->n_args; i++) {
        const usc_call_arg *arg = &r->call->arg[i];
        if (arg->role != USC_ROLE_IN || arg->path == NULL || strcmp(arg->path, path) != 0)
            continue;
        show_shape(arg);
        return;
    }
    fputs("None", stdout); /* an undefined tensor */
}

static void put_value(reader *r, const char *path, const char *type, const char *value);

/* {"tensor": true}, {"dtype": "float32"}: what is no JSON value has an object of one key.
 */
static void put_mark(reader *r, const char *path, const char *json)
{
    sqlite3_stmt *s = begin_each(r, json);
    while (s != NULL && sqlite3_step(s) == SQLITE_ROW) {
        const char *kind = column(s, 0);
        if (strcmp(kind, "tensor") == 0) {
            put_tensor(r, path);
        } else {
            show_plain(kind);
            putchar(' ');
            put_value(r, path, column(s, 1), column(s, 2));
        }
    }
    (void)sqlite3_finalize(s);
}

static void put_list(reader *r, const char *path, const char *json)
{
    char inner[256];
    int n = 0;
    sqlite3_stmt *s = begin_each(r, json);
    putchar('[');
    while (s != NULL && sqlite3_step(s) == SQLITE_ROW) {
        (void)snprintf(inner, sizeof inner, "%s[%d]", path, n);
        if (n++ > 0) fputs(", ", stdout);
        put_value(r, inner, column(s, 1), column(s, 2));
    }
    putchar(']');
    (void)sqlite3_finalize(s);
}

static void put_value(reader *r, const char *path, const char *type, const char *value)
{
    r->depth++;
    if (strcmp(type, "object") == 0)
        put_mark(r, path, value);
    else if (strcmp(type, "array") == 0)
        put_list(r, path, value);
    else if (strcmp(type, "null") == 0)
        fputs("None", stdout);
    else if (strcmp(type, "true") == 0 || strcmp(type, "false") == 0)
        fputs(type[0] == 't' ? "True" : "False", stdout);
    else
        show_plain(value);
    r->depth--;
}

/* "    PATH   VALUE" for each entry of a list (args) or an object, behind `before`. */
static void put_entries(reader *r, const char *before, bool list, const char *json)
{
    char path[256];
    sqlite3_stmt *s = begin_each(r, json);
    while (s != NULL && sqlite3_step(s) == SQLITE_ROW) {
        (void)snprintf(path, sizeof path, "%s%s%s%s", before, list ? "[" : "",
                       column(s, 0), list ? "]" : "");
        fputs("    ", stdout);
        show_plain(path);
        for (int n = (int)strlen(path); n <= PATH_WIDTH; n++)
            putchar(' ');
        put_value(r, path, column(s, 1), column(s, 2));
        putchar('\n');
    }
    (void)sqlite3_finalize(s);
}

static void put_raw(const char *title, const char *text)
{
    (void)printf("%-10s", title);
    show_plain(text);
    putchar('\n');
}

void show_given(const usc_call *call)
{
    const char *json = call->args;
    if (json == NULL || *json == '\0') return;
    reader r = {.db = open_reader(), .call = call};
    if (!valid(r.db, json)) {
        put_raw("arguments", json);
    } else {
        puts("arguments");
        sqlite3_stmt *s = begin_each(&r, json);
        while (s != NULL && sqlite3_step(s) == SQLITE_ROW) {
            const bool list = strcmp(column(s, 0), "args") == 0;
            put_entries(&r, list ? "args" : "kwargs.", list, column(s, 2));
        }
        (void)sqlite3_finalize(s);
    }
    (void)sqlite3_close(r.db);
}

void show_state(const usc_call *call)
{
    const char *json = call->state;
    if (json == NULL || *json == '\0') return;
    reader r = {.db = open_reader(), .call = call};
    if (valid(r.db, json)) {
        puts("state");
        put_entries(&r, "", false, json);
    } else {
        put_raw("state", json);
    }
    (void)sqlite3_close(r.db);
}

void show_stack(const usc_call *call)
{
    static const char query[] = "SELECT value ->> '$[0]', value ->> '$[1]', "
                                "value ->> '$[2]' FROM json_each(?1) "
                                "WHERE json_type(value) = 'array'";
    const char *json = call->frames;
    if (json == NULL || *json == '\0') return;
    sqlite3 *db = open_reader();
    sqlite3_stmt *s = NULL;
    if (!valid(db, json) || sqlite3_prepare_v2(db, query, -1, &s, NULL) != SQLITE_OK) {
        put_raw("stack", json);
    } else {
        puts("stack");
        (void)sqlite3_bind_text(s, 1, json, -1, SQLITE_STATIC);
        while (sqlite3_step(s) == SQLITE_ROW) {
            fputs("    ", stdout);
            show_plain(column(s, 0));
            putchar(':');
            show_plain(column(s, 1));
            fputs(" in ", stdout);
            show_plain(column(s, 2));
            putchar('\n');
        }
    }
    (void)sqlite3_finalize(s);
    (void)sqlite3_close(db);
}
