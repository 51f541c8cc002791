// SPDX-License-Identifier: Apache-2.0
// The manifest of a pack, by SQLite's JSON functions. It may come from anywhere: what is
// missing or of another kind is a damaged pack.
#include "pack/pack_read.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "db/db.h"

static const char sql_head[] = "SELECT ?1 ->> '$.format', ?1 ->> '$.version', "
                               "?1 ->> '$.trace_id' WHERE json_valid(?1)";

static const char sql_calls[] =
    "SELECT value ->> '$.call', value ->> '$.step', value ->> '$.stands_for', "
    "value ->> '$.made_up', value ->> '$.op', value ->> '$.phase', "
    "value ->> '$.module', value ->> '$.module_class', value ->> '$.summary', "
    "value -> '$.stack', value ->> '$.unjudged', value ->> '$.operands_file', "
    "value -> '$.outputs', json_array_length(value, '$.outputs'), "
    "value -> '$.rounded.outputs', json_array_length(value, '$.rounded.outputs'), "
    "value ->> '$.rounded.note' "
    "FROM json_each(?1, '$.calls')";

#define WINDOW(d)                                                                        \
    "value ->> '$.choice.window[" d "][0]', value ->> '$.choice.window[" d "][1]', "     \
    "value ->> '$.choice.window[" d "][2]', value ->> '$.choice.window[" d "][3]', "

#define OPERAND(name) "value ->> '$.operands." name "', "

static const char sql_outputs[] =
    "SELECT value ->> '$.path', value ->> '$.name', value ->> '$.unjudged', "
    "value -> '$.dtypes', value ->> '$.free', value ->> '$.never_rounds', "
    "value ->> '$.overflows', value ->> '$.fan_in', value ->> '$.products', "
    "value ->> '$.replays', value ->> '$.far', value ->> '$.noise', "
    "value ->> '$.rounding', value ->> '$.why_unpromised', value ->> '$.pairs', "
    "json_type(value, '$.choice.dim'), value ->> '$.choice.dim', "
    "value ->> '$.choice.slack', value ->> '$.choice.once', "
    "value ->> '$.choice.cumulative', json_array_length(value, "
    "'$.choice.window'), " WINDOW("0") WINDOW("1") WINDOW("2") OPERAND("reference")
        OPERAND("yardstick") OPERAND("native") OPERAND("slope") OPERAND("s1")
            OPERAND("s4") OPERAND("n1") OPERAND("n4") OPERAND("n_far") OPERAND("n_noise")
                OPERAND("flushed1") OPERAND("flushed2") OPERAND("flushed3")
                    OPERAND("jump_at") OPERAND("jump_values") OPERAND("choice")
                        OPERAND("unpromised") OPERAND("s2") OPERAND("n2") OPERAND("kinds")
                            OPERAND("side_low") OPERAND("side_high") OPERAND(
                                "usual") "value ->> '$.natural', "
                                         "json_type(value, '$.dtypes'), "
                                         "json_type(value, '$.dtypes[0]'), "
                                         "value ->> '$.dtypes[0]' FROM json_each(?1)";
enum { FIRST_CHOICE = 15, FIRST_WINDOW = 21, FIRST_OPERAND = 33, N_OPERANDS = 23 };
enum { NATURAL = FIRST_OPERAND + N_OPERANDS, LIST_TYPE, FIRST_TYPE, FIRST_DTYPE };

struct usc_manifest {
    usc_alloc alloc;
    char *json;
    size_t size;
    sqlite3 *db;
    sqlite3_stmt *calls, *outputs;
    char path[USC_PATH_SIZE];
    char trace_id[64];
};

static usc_status damaged(const usc_manifest *m, const char *what, usc_error *err)
{
    return usc_error_set(err, USC_E_CORRUPT, -1, "%s: %s", m->path, what);
}

static usc_status no_memory(const usc_manifest *m, usc_error *err)
{
    return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", m->path);
}

/* ---- opening ---- */

static usc_status io_error(const usc_manifest *m, usc_error *err)
{
    if (errno == ENOENT)
        return usc_error_set(err, USC_E_NOT_FOUND, -1,
                             "%s: no such file: is this a folder that ulpscope pack "
                             "wrote?",
                             m->path);
    return usc_error_set(err, USC_E_IO, -1, "%s: %s", m->path, strerror(errno));
}

static usc_status read_json(usc_manifest *m, usc_error *err)
{
    FILE *file = fopen(m->path, "rb");
    if (file == NULL) return io_error(m, err);
    usc_status st = USC_OK;
    long size = -1;
    if (fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) < 0) st = io_error(m, err);
    rewind(file);
    if (st == USC_OK) {
        m->json = m->alloc.resize(m->alloc.ctx, NULL, 0, (size_t)size + 1);
        if (m->json == NULL) st = no_memory(m, err);
    }
    if (st == USC_OK) {
        m->size = (size_t)size + 1;
        if (fread(m->json, 1, (size_t)size, file) != (size_t)size) st = io_error(m, err);
        m->json[size] = '\0';
    }
    (void)fclose(file);
    return st;
}

static usc_status prepare(usc_manifest *m, const char *sql, sqlite3_stmt **out,
                          usc_error *err)
{
    if (sqlite3_prepare_v2(m->db, sql, -1, out, NULL) != SQLITE_OK)
        return damaged(m, sqlite3_errmsg(m->db), err);
    return USC_OK;
}

static usc_status check_head(usc_manifest *m, usc_error *err)
{
    sqlite3_stmt *head = NULL;
    usc_status st = prepare(m, sql_head, &head, err);
    if (st != USC_OK) return st;
    (void)sqlite3_bind_text64(head, 1, m->json, m->size - 1, SQLITE_STATIC, SQLITE_UTF8);
    const bool row = sqlite3_step(head) == SQLITE_ROW;
    const char *format = row ? (const char *)sqlite3_column_text(head, 0) : NULL;
    const int64_t version = row ? sqlite3_column_int64(head, 1) : 0;
    const char *id = row ? (const char *)sqlite3_column_text(head, 2) : NULL;
    if (format == NULL || strcmp(format, "ulpscope-pack") != 0)
        st = damaged(m, "not the manifest of a pack", err);
    else if (version != USC_PACK_VERSION)
        st = usc_error_set(err, USC_E_VERSION, -1,
                           "%s: written in pack format %lld; this program knows %d only: "
                           "make the pack again",
                           m->path, (long long)version, USC_PACK_VERSION);
    (void)snprintf(m->trace_id, sizeof m->trace_id, "%s", id != NULL ? id : "");
    (void)sqlite3_finalize(head);
    return st;
}

usc_status usc_manifest_open(const char *pack, const usc_alloc *alloc, usc_manifest **out,
                             usc_error *err)
{
    if (alloc == NULL) alloc = &usc_libc_alloc;
    *out = NULL;
    usc_manifest *m = alloc->resize(alloc->ctx, NULL, 0, sizeof *m);
    if (m == NULL) return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", pack);
    *m = (usc_manifest){.alloc = *alloc};
    usc_status st = usc_path_join(m->path, pack, "pack.json", err);
    if (st == USC_OK) st = read_json(m, err);
    if (st == USC_OK &&
        sqlite3_open_v2(":memory:", &m->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX,
                        NULL) != SQLITE_OK)
        st = no_memory(m, err);
    if (st == USC_OK) st = check_head(m, err);
    if (st == USC_OK) st = prepare(m, sql_calls, &m->calls, err);
    if (st == USC_OK) st = prepare(m, sql_outputs, &m->outputs, err);
    if (st == USC_OK) {
        (void)sqlite3_bind_text64(m->calls, 1, m->json, m->size - 1, SQLITE_STATIC,
                                  SQLITE_UTF8);
        *out = m;
        m = NULL;
    }
    usc_manifest_close(m);
    return st;
}

void usc_manifest_close(usc_manifest *m)
{
    if (m == NULL) return;
    const usc_alloc alloc = m->alloc;
    (void)sqlite3_finalize(m->calls);
    (void)sqlite3_finalize(m->outputs);
    (void)sqlite3_close(m->db);
    if (m->json != NULL) (void)alloc.resize(alloc.ctx, m->json, m->size, 0);
    (void)alloc.resize(alloc.ctx, m, sizeof *m, 0);
}

const char *usc_manifest_trace_id(const usc_manifest *m)
{
    return m->trace_id;
}

/* ---- calls ---- */

/* Text that is never NULL. */
static const char *text(usc_arena *a, sqlite3_stmt *s, int column)
{
    const char *found = usc_db_text(a, s, column);
    return found != NULL ? found : "";
}

usc_status usc_manifest_next(usc_manifest *m, usc_arena *arena, usc_pack_call *out,
                             bool *more, usc_error *err)
{
    sqlite3_stmt *s = m->calls;
    const int code = sqlite3_step(s);
    *more = code == SQLITE_ROW;
    if (code == SQLITE_DONE) return USC_OK;
    if (code != SQLITE_ROW) return damaged(m, sqlite3_errmsg(m->db), err);
    *out = (usc_pack_call){
        .row = {.call = sqlite3_column_int64(s, 0),
                .step = sqlite3_column_int64(s, 1),
                .stands_for = sqlite3_column_int64(s, 2),
                .notes = sqlite3_column_int(s, 3) != 0 ? "made-up inputs" : "",
                .op = text(arena, s, 4),
                .phase = text(arena, s, 5),
                .module = text(arena, s, 6),
                .module_class = text(arena, s, 7),
                .args = text(arena, s, 8),
                .stack = text(arena, s, 9),
                .culprit = "",
                .cause = ""},
        .unjudged = usc_db_text(arena, s, 10),
        .file = usc_db_text(arena, s, 11),
        .outputs = text(arena, s, 12),
        .n_outputs = sqlite3_column_int(s, 13),
        .rounded = usc_db_text(arena, s, 14),
        .note = text(arena, s, 16)};
    if (sqlite3_column_int(s, 15) != out->n_outputs) out->rounded = NULL;
    if (arena->failed) return no_memory(m, err);
    if (out->row.op[0] == '\0' || sqlite3_column_type(s, 0) != SQLITE_INTEGER)
        return damaged(m, "a call without number or operator", err);
    if (out->row.stands_for < 1) out->row.stands_for = 1;
    return USC_OK;
}

/* ---- outputs ---- */

static usc_status find_operands(const usc_manifest *m, sqlite3_stmt *s,
                                const usc_safetensors *tensors, usc_pack_operands *o,
                                usc_error *err)
{
    const usc_safetensor **const places[N_OPERANDS] = {&o->reference,
                                                       &o->yardstick,
                                                       &o->native,
                                                       &o->s[USC_PACK_SLOPE],
                                                       &o->s[USC_PACK_FIRST],
                                                       &o->s[USC_PACK_MORE],
                                                       &o->n[USC_PACK_FIRST],
                                                       &o->n[USC_PACK_MORE],
                                                       &o->n[USC_PACK_FAR],
                                                       &o->n[USC_PACK_NOISE],
                                                       &o->flushed[0],
                                                       &o->flushed[1],
                                                       &o->flushed[2],
                                                       &o->jump_at,
                                                       &o->jump_values,
                                                       &o->choice.values,
                                                       &o->unpromised,
                                                       &o->s[USC_PACK_SECOND],
                                                       &o->n[USC_PACK_SECOND],
                                                       &o->kinds,
                                                       &o->side_low,
                                                       &o->side_high,
                                                       &o->usual};
    for (int i = 0; i < N_OPERANDS; i++) {
        const char *name = (const char *)sqlite3_column_text(s, FIRST_OPERAND + i);
        if (name == NULL) continue;
        *places[i] = tensors != NULL ? usc_safetensors_find(tensors, name) : NULL;
        if (*places[i] == NULL)
            return usc_error_set(err, USC_E_CORRUPT, -1,
                                 "%s: names %.80s, which its operands do not hold",
                                 m->path, name);
    }
    return USC_OK;
}

static void read_choice(sqlite3_stmt *s, usc_pack_choice *c)
{
    const char *dim = (const char *)sqlite3_column_text(s, FIRST_CHOICE);
    const bool along = dim != NULL && strcmp(dim, "integer") == 0;
    *c = (usc_pack_choice){.dim = along ? sqlite3_column_int(s, FIRST_CHOICE + 1) : -1,
                           .slack = sqlite3_column_double(s, FIRST_CHOICE + 2),
                           .once = sqlite3_column_int(s, FIRST_CHOICE + 3) != 0,
                           .cumulative = sqlite3_column_int(s, FIRST_CHOICE + 4) != 0,
                           .n_window = sqlite3_column_int(s, FIRST_CHOICE + 5)};
    if (c->n_window > USC_PACK_POOLED) c->n_window = USC_PACK_POOLED;
    for (int d = 0; d < USC_PACK_POOLED; d++) {
        c->kernel[d] = sqlite3_column_int(s, FIRST_WINDOW + 4 * d);
        c->stride[d] = sqlite3_column_int(s, FIRST_WINDOW + 4 * d + 1);
        c->padding[d] = sqlite3_column_int(s, FIRST_WINDOW + 4 * d + 2);
        c->dilation[d] = sqlite3_column_int(s, FIRST_WINDOW + 4 * d + 3);
    }
}

/* Columns: type of the value, of its first element. Without a value, or empty: yes. */
static bool is_list_of_text(sqlite3_stmt *s, int column)
{
    const char *list = (const char *)sqlite3_column_text(s, column);
    if (list == NULL || strcmp(list, "null") == 0) return true;
    const char *first = (const char *)sqlite3_column_text(s, column + 1);
    return strcmp(list, "array") == 0 && (first == NULL || strcmp(first, "text") == 0);
}

static usc_status read_output(const usc_manifest *m, usc_arena *arena,
                              const usc_safetensors *tensors, usc_pack_entry *e,
                              usc_error *err)
{
    sqlite3_stmt *s = m->outputs;
    *e = (usc_pack_entry){.name = text(arena, s, 1),
                          .unjudged = usc_db_text(arena, s, 2),
                          .dtypes = text(arena, s, 3),
                          .usual = text(arena, s, FIRST_DTYPE)};
    usc_pack_operands *o = &e->operands;
    o->path = text(arena, s, 0);
    o->free = sqlite3_column_int(s, 4) != 0;
    o->never_rounds = sqlite3_column_int(s, 5) != 0;
    o->overflows = sqlite3_column_int(s, 6) != 0;
    o->fan_in = sqlite3_column_double(s, 7);
    o->products = sqlite3_column_double(s, 8);
    o->replays = sqlite3_column_int(s, 9);
    o->far = sqlite3_column_int(s, 10);
    o->noise = sqlite3_column_int(s, 11);
    o->rounding = sqlite3_column_int(s, 12) != 0;
    o->why_unpromised = usc_db_text(arena, s, 13);
    o->pairs = sqlite3_column_int(s, 14) != 0;
    o->natural = sqlite3_column_double(s, NATURAL);
    read_choice(s, &o->choice);
    if (!is_list_of_text(s, LIST_TYPE))
        return damaged(m, "an output whose dtypes are no list of names", err);
    const usc_status st = find_operands(m, s, tensors, o, err);
    if (st != USC_OK) return st;
    if (e->unjudged == NULL && o->reference == NULL)
        return damaged(m, "an output without a reference", err);
    return USC_OK;
}

usc_status usc_manifest_outputs(usc_manifest *m, usc_arena *arena, const char *outputs,
                                int n_outputs, const usc_safetensors *tensors,
                                usc_pack_entry *out, usc_error *err)
{
    if (n_outputs == 0) return USC_OK;
    (void)sqlite3_bind_text(m->outputs, 1, outputs, -1, SQLITE_STATIC);
    usc_status st = USC_OK;
    for (int i = 0; i < n_outputs && st == USC_OK; i++) {
        if (sqlite3_step(m->outputs) != SQLITE_ROW)
            st = damaged(m, sqlite3_errmsg(m->db), err);
        else
            st = read_output(m, arena, tensors, &out[i], err);
    }
    (void)sqlite3_reset(m->outputs);
    (void)sqlite3_clear_bindings(m->outputs);
    if (st == USC_OK && arena->failed) st = no_memory(m, err);
    return st;
}
