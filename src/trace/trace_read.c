// SPDX-License-Identifier: Apache-2.0
// Reading a trace: one call with its arguments, selections.
// The file may come from anywhere: every number in it is checked before it is used.
#include <assert.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <ulpscope/x/pattern.h>
#include <unistd.h>

#include "base/arena.h"
#include "trace/trace_reader.h"
#include "trace/trace_schema.h"
#include "trace/trace_shard.h"

#include <ulpscope/trace.h>
#include <ulpscope/x/unmatched.h>

/* ---- opening ---- */

static void op_matches(sqlite3_context *context, int n, sqlite3_value **values)
{
    (void)n;
    const char *pattern = (const char *)sqlite3_value_text(values[0]);
    const char *name = (const char *)sqlite3_value_text(values[1]);
    const bool yes = name != NULL && usc_pattern_match(pattern, name);
    sqlite3_result_int(context, yes);
}

static usc_status check_shards(usc_trace *t, usc_error *err)
{
    sqlite3_stmt *s;
    bool row = false;
    usc_status st = usc_db_get(&t->db, USC_SQL_GET_SHARDS, &s, err);
    if (st != USC_OK) return st;
    while ((st = usc_db_step(&t->db, s, &row, err)) == USC_OK && row) {
        char path[USC_PATH_SIZE];
        int fd = -1;
        int64_t size = 0;
        const int64_t needed = sqlite3_column_int64(s, 1);
        st = usc_trace_open_shard(t, sqlite3_column_int64(s, 0), path, &fd, &size, err);
        if (st != USC_OK) break;
        close(fd);
        if (size >= needed) continue;
        st = usc_error_set(err, USC_E_CORRUPT, size,
                           "%s: truncated at byte %lld, its tensors reach to %lld", path,
                           (long long)size, (long long)needed);
        break;
    }
    sqlite3_reset(s);
    return st;
}

/* How many traces of processes a capture left in `folder` that was killed before it put
 * one in its place; `inner` is the last of them. */
static int left_by_killed(const char *folder, char inner[USC_PATH_SIZE])
{
    char database[USC_PATH_SIZE], path[USC_PATH_SIZE];
    DIR *dir = opendir(folder);
    int n = 0;
    for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        if (strncmp(e->d_name, "process-", 8) != 0 ||
            usc_path_join(path, folder, e->d_name, NULL) != USC_OK ||
            usc_path_join(database, path, "trace.db", NULL) != USC_OK ||
            access(database, F_OK) != 0)
            continue;
        memcpy(inner, path, sizeof path);
        n++;
    }
    if (dir != NULL) (void)closedir(dir);
    return n;
}

/* One process's trace is what the folder's name stands for, where nothing else is. */
static void enter_left(usc_trace *t)
{
    char path[USC_PATH_SIZE], inner[USC_PATH_SIZE];
    static const char *const others[] = {"trace.db", "rank-0"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (usc_path_join(path, t->folder, others[i], NULL) != USC_OK ||
            access(path, F_OK) == 0)
            return;
    if (left_by_killed(t->folder, inner) == 1) memcpy(t->folder, inner, sizeof inner);
}

/* Why there is no trace in the folder. */
static const char *no_trace(const char *folder)
{
    char path[USC_PATH_SIZE];
    if (access(folder, F_OK) != 0) return "no such folder";
    if (usc_path_join(path, folder, ".", NULL) == USC_OK && access(path, F_OK) != 0)
        return "not a trace: it is a file, and a trace is a folder";
    if (usc_path_join(path, folder, "rank-0/trace.db", NULL) == USC_OK &&
        access(path, F_OK) == 0)
        return "holds a trace for each rank: name one of them, such as its rank-0";
    if (left_by_killed(folder, path) > 1)
        return "holds what several processes of a capture that was killed left: name one "
               "of the folders process-N in it";
    return "not a trace: there is no trace.db in it";
}

/* Recovers where needed; *as_is tells that this could not be written back. */
static usc_status prepare_folder(usc_trace *t, const char *db_path, bool *as_is,
                                 usc_error *err)
{
    bool unfinished = false;
    *as_is = false;
    usc_status st = usc_db_unfinished(db_path, &unfinished, err);
    if (st == USC_E_NOT_FOUND)
        return usc_error_set(err, st, -1, "%s: %s", t->folder, no_trace(t->folder));
    if (st != USC_OK || !unfinished) return st;
    st = usc_trace_recover(t->folder, &t->alloc, err);
    if (st != USC_E_IO) return st;
    *as_is = true;
    return USC_OK;
}

static usc_status open_parts(usc_trace *t, usc_error *err)
{
    char db_path[USC_PATH_SIZE];
    bool as_is;
    usc_status st = usc_path_join(db_path, t->folder, "trace.db", err);
    if (st == USC_OK) st = prepare_folder(t, db_path, &as_is, err);
    if (st == USC_OK)
        st = usc_db_open_readable(&t->db, &usc_trace_kind, db_path, as_is, err);
    if (st == USC_OK && as_is) st = usc_trace_cut(&t->db, t->folder, err);
    if (st != USC_OK) return st;
    if (sqlite3_create_function(t->db.handle, "usc_op_matches", 2,
                                SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL, op_matches,
                                NULL, NULL) != SQLITE_OK)
        return usc_db_error(&t->db, "opening", err);
    return check_shards(t, err);
}

static usc_status read_meta(usc_trace *t, usc_error *err)
{
    sqlite3_stmt *s;
    bool row = false;
    usc_status st = usc_db_get(&t->db, USC_SQL_EACH_META, &s, err);
    if (st != USC_OK) return st;
    while ((st = usc_db_step(&t->db, s, &row, err)) == USC_OK && row) {
        usc_trace_meta_row *m = usc_arena_take(&t->meta_texts, sizeof *m);
        const char *key = usc_db_text(&t->meta_texts, s, 0);
        const char *value = usc_db_text(&t->meta_texts, s, 1);
        if (t->meta_texts.failed) {
            st = usc_error_set(err, USC_E_NOMEM, -1, "trace %s: no memory", t->folder);
            break;
        }
        if (key == NULL) continue;
        *m = (usc_trace_meta_row){.next = t->meta, .key = key, .value = value};
        t->meta = m;
    }
    sqlite3_reset(s);
    return st;
}

usc_status usc_trace_open(const char *path, const usc_alloc *alloc, usc_trace **out,
                          usc_error *err)
{
    assert(path);
    assert(out);
    if (alloc == NULL) alloc = &usc_libc_alloc;
    *out = NULL;
    usc_trace *t = alloc->resize(alloc->ctx, NULL, 0, sizeof *t);
    if (t == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "trace %s: no memory", path);
    *t = (usc_trace){.alloc = *alloc,
                     .arena = {.alloc = *alloc},
                     .selected = {.alloc = *alloc},
                     .meta_texts = {.alloc = *alloc}};
    const int n = snprintf(t->folder, sizeof t->folder, "%s", path);
    usc_status st = USC_OK;
    if (n < 0 || n >= USC_PATH_SIZE)
        st = usc_error_set(err, USC_E_ARG, -1, "path too long: %.64s...", path);
    if (st == USC_OK) enter_left(t);
    if (st == USC_OK) st = open_parts(t, err);
    if (st == USC_OK) st = read_meta(t, err);
    if (st == USC_OK) {
        *out = t;
        t = NULL;
    }
    usc_trace_close(t);
    return st;
}

void usc_trace_close(usc_trace *t)
{
    if (t == NULL) return;
    const usc_alloc alloc = t->alloc;
    usc_trace_forget_shards(t);
    usc_db_close(&t->db);
    usc_arena_free(&t->arena);
    usc_arena_free(&t->selected);
    usc_arena_free(&t->meta_texts);
    alloc.resize(alloc.ctx, t, sizeof *t, 0);
}

const char *usc_trace_meta(usc_trace *t, const char *key)
{
    assert(t && key);
    for (const usc_trace_meta_row *m = t->meta; m != NULL; m = m->next)
        if (strcmp(m->key, key) == 0) return m->value;
    return NULL;
}

/* ---- calls ---- */

/* Parses "[2, 3]" strictly; the number of entries, or -1. */
static int parse_dims(const char *text, int64_t *out)
{
    int n = 0;
    if (text == NULL || *text++ != '[') return -1;
    if (strcmp(text, "]") == 0) return 0;
    for (; n < USC_MAX_DIMS; n++) {
        while (*text == ' ')
            text++;
        const bool negative = *text == '-';
        if (negative) text++;
        if (*text < '0' || *text > '9') return -1;
        int64_t value = 0;
        for (; *text >= '0' && *text <= '9'; text++) {
            if (value > (INT64_MAX - 9) / 10) return -1;
            value = value * 10 + (*text - '0');
        }
        out[n] = negative ? -value : value;
        if (*text == ']') return text[1] == '\0' ? n + 1 : -1;
        if (*text++ != ',') return -1;
    }
    return -1;
}

static bool parse_role(const char *text, usc_role *out)
{
    for (int i = USC_ROLE_IN; i <= USC_ROLE_MUTATED; i++)
        if (text != NULL && strcmp(text, usc_role_text((usc_role)i)) == 0) {
            *out = (usc_role)i;
            return true;
        }
    return false;
}

/* The columns of USC_SQL_GET_ARGS; false where one cannot be. */
static bool fill_arg(usc_trace *t, sqlite3_stmt *s, usc_call_arg *a)
{
    usc_arena *arena = &t->arena;
    *a = (usc_call_arg){
        .path = usc_db_text(arena, s, 1),
        .tensor = sqlite3_column_int64(s, 2),
        .version = sqlite3_column_int64(s, 3),
        .dtype_name = usc_db_text(arena, s, 4),
        .offset = sqlite3_column_int64(s, 7),
        .requires_grad = sqlite3_column_int64(s, 8) != 0,
        .stats = usc_db_text(arena, s, 9),
        .storage = sqlite3_column_int64(s, 10),
        .generation = sqlite3_column_int64(s, 11),
        .writer = sqlite3_column_int64(s, 12),
        .device = usc_db_text(arena, s, 13),
        .storage_bytes = sqlite3_column_int64(s, 14),
        .blob = sqlite3_column_int64(s, 15),
        .first = sqlite3_column_int64(s, 16),
        .form = usc_db_text(arena, s, 17),
    };
    if (arena->failed) return true; /* told as "no memory" by the caller */
    int64_t sizes[USC_MAX_DIMS], strides[USC_MAX_DIMS];
    a->ndim = parse_dims((const char *)sqlite3_column_text(s, 5), sizes);
    const int n_strides = parse_dims((const char *)sqlite3_column_text(s, 6), strides);
    if (a->ndim < 0 || a->ndim != n_strides) return false;
    for (int i = 0; i < a->ndim; i++)
        if (sizes[i] < 0) return false;
    a->sizes = usc_arena_copy(arena, sizes, (size_t)a->ndim * sizeof *sizes);
    a->strides = usc_arena_copy(arena, strides, (size_t)a->ndim * sizeof *strides);
    return parse_role((const char *)sqlite3_column_text(s, 0), &a->role) &&
           a->path != NULL && a->dtype_name != NULL && a->device != NULL &&
           a->offset >= 0 && a->storage_bytes >= 0 && a->first >= 0 &&
           a->first <= a->storage_bytes;
}

static usc_status read_args(usc_trace *t, usc_call *out, usc_error *err)
{
    sqlite3_stmt *s;
    bool row = false;
    size_t capacity = 0, n = 0;
    usc_call_arg *args = NULL;
    usc_status st = usc_db_get(
        &t->db, t->db.version < 2 ? USC_SQL_GET_ARGS_1 : USC_SQL_GET_ARGS, &s, err);
    if (st != USC_OK) return st;
    sqlite3_bind_int64(s, 1, out->sequence);
    while ((st = usc_db_step(&t->db, s, &row, err)) == USC_OK && row) {
        if (n == capacity) {
            args = usc_arena_grow(&t->arena, args, n, &capacity, sizeof *args);
            if (args == NULL) break;
        }
        if (!fill_arg(t, s, &args[n++])) {
            st = usc_error_set(err, USC_E_CORRUPT, out->sequence,
                               "%s: call %lld: argument %zu makes no sense", t->db.path,
                               (long long)out->sequence, n - 1);
            break;
        }
    }
    sqlite3_reset(s);
    out->n_args = (int)n;
    out->arg = args;
    return st;
}

/* The columns of USC_SQL_GET_CALL. */
static void fill_call(usc_trace *t, sqlite3_stmt *s, usc_call *c)
{
    usc_arena *arena = &t->arena;
    c->step = sqlite3_column_int64(s, 0);
    c->phase = usc_db_text(arena, s, 1);
    c->parent = sqlite3_column_int64(s, 2);
    c->thread = sqlite3_column_int64(s, 3);
    c->module = sqlite3_column_int64(s, 4);
    c->stack = sqlite3_column_int64(s, 5);
    c->args = usc_db_text(arena, s, 6);
    c->state = usc_db_text(arena, s, 7);
    c->status = usc_db_text(arena, s, 8);
    c->composite = sqlite3_column_int64(s, 9) != 0;
    c->op = usc_db_text(arena, s, 10);
    c->schema = usc_db_text(arena, s, 11);
    c->module_path = usc_db_text(arena, s, 12);
    c->module_class = usc_db_text(arena, s, 13);
    c->frames = usc_db_text(arena, s, 14);
    c->n_children = sqlite3_column_int64(s, 15);
}

usc_status usc_trace_read_call(usc_trace *t, int64_t sequence, usc_call *out,
                               usc_error *err)
{
    assert(t);
    assert(out);
    sqlite3_stmt *s;
    bool row = false;
    *out = (usc_call){0};
    usc_arena_reset(&t->arena);
    usc_status st = usc_db_get(&t->db, USC_SQL_GET_CALL, &s, err);
    if (st != USC_OK) return st;
    usc_call c = {.sequence = sequence};
    sqlite3_bind_int64(s, 1, sequence);
    st = usc_db_step(&t->db, s, &row, err);
    if (row) fill_call(t, s, &c);
    sqlite3_reset(s);
    if (st != USC_OK) return st;
    if (!row)
        return usc_error_set(err, USC_E_NOT_FOUND, sequence, "%s: there is no call %lld",
                             t->folder, (long long)sequence);
    st = read_args(t, &c, err);
    if (t->arena.failed)
        return usc_error_set(err, USC_E_NOMEM, sequence, "%s: call %lld: no memory",
                             t->folder, (long long)sequence);
    if (st == USC_OK && (c.op == NULL || c.phase == NULL || c.args == NULL ||
                         c.status == NULL || c.n_args < 0))
        st = usc_error_set(err, USC_E_CORRUPT, sequence, "%s: call %lld is incomplete",
                           t->db.path, (long long)sequence);
    if (st == USC_OK) *out = c;
    return st;
}

usc_status usc_trace_select(usc_trace *t, const usc_trace_filter *filter,
                            const int64_t **out, int64_t *n, usc_error *err)
{
    assert(t);
    assert(out && n);
    const usc_trace_filter all = {.step = -1};
    if (filter == NULL) filter = &all;
    *out = NULL;
    *n = 0;
    sqlite3_stmt *s;
    bool row = false;
    size_t capacity = 0, used = 0;
    int64_t *found = NULL;
    usc_arena_reset(&t->selected);
    usc_status st = usc_pattern_check(filter->ops, err);
    if (st == USC_OK) st = usc_db_get(&t->db, USC_SQL_SELECT, &s, err);
    if (st != USC_OK) return st;
    sqlite3_bind_text(s, 1, filter->ops, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 2, filter->module, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 3, filter->phase, -1, SQLITE_STATIC);
    sqlite3_bind_int64(s, 4, filter->step);
    sqlite3_bind_int(s, 5, filter->top_only);
    while ((st = usc_db_step(&t->db, s, &row, err)) == USC_OK && row) {
        if (used == capacity)
            found = usc_arena_grow(&t->selected, found, used, &capacity, sizeof *found);
        if (found == NULL) {
            st = usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory for %zu calls",
                               t->folder, used);
            break;
        }
        found[used++] = sqlite3_column_int64(s, 0);
    }
    sqlite3_reset(s);
    if (st != USC_OK) return st;
    *out = found;
    *n = (int64_t)used;
    return USC_OK;
}

usc_status usc_trace_read_calls(usc_trace *t, usc_calls *calls, usc_error *err)
{
    assert(t && calls);
    const int64_t *found;
    int64_t n;
    usc_status st = usc_trace_select(t, NULL, &found, &n, err);
    if (st != USC_OK) return st;
    for (int64_t i = 0; i < n && st == USC_OK; i++) {
        usc_call call;
        st = usc_trace_read_call(t, found[i], &call, err);
        if (st == USC_OK) st = usc_calls_add(calls, &call, err);
    }
    return st;
}

void usc_trace_unmatched(usc_trace *t, const char *pattern, char *out, size_t size)
{
    sqlite3_stmt *s;
    const char **names = NULL;
    size_t n = 0, room = 0;
    bool row = false;
    if (size > 0) out[0] = '\0';
    usc_arena_reset(&t->selected);
    if (usc_db_get(&t->db, USC_SQL_USED_OPS, &s, NULL) != USC_OK) return;
    while (usc_db_step(&t->db, s, &row, NULL) == USC_OK && row) {
        const char *name = usc_db_text(&t->selected, s, 0);
        if (n == room)
            names = usc_arena_grow(&t->selected, names, n, &room, sizeof *names);
        if (names == NULL || name == NULL) break;
        names[n++] = name;
    }
    sqlite3_reset(s);
    if (!row) usc_pattern_unmatched(pattern, names, (int64_t)n, out, size);
}
