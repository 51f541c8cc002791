// SPDX-License-Identifier: Apache-2.0
// The calls of a trace as short rows: table by table, each read once and in its order,
// since joins would take ten times as long.
#include "diff/lists.h"

#include <stdlib.h>
#include <string.h>

#include <ulpscope/x/pattern.h>

#include "base/arena.h"
#include "base/hash.h"
#include "diff/align.h"
#include "trace/trace_reader.h"

/* What leaves memory as it finds it. */
#define UNWRITTEN "aten::empty*,aten::new_empty*,aten::resize*"

/* ---- tables ---- */

static void *add_row(usc_diff_table *t)
{
    if (t->n == t->room) {
        const int64_t room = t->room > 0 ? 2 * t->room : 256;
        void *more = realloc(t->row, (size_t)room * t->size);
        if (more == NULL) return NULL;
        t->row = more;
        t->room = room;
    }
    return memset((char *)t->row + (size_t)t->n++ * t->size, 0, t->size);
}

/* ---- hashes ---- */

static uint64_t hash_of_bytes(const void *data, size_t n)
{
    const uint64_t h = usc_hash64_bytes(data, n);
    return h != 0 ? h : 1; /* 0 says that there is none */
}

static uint64_t hash_of_column(sqlite3_stmt *s, int column)
{
    const void *text = sqlite3_column_text(s, column);
    return text != NULL ? hash_of_bytes(text, (size_t)sqlite3_column_bytes(s, column))
                        : 0;
}

/* Arguments without the names of devices: the same call on another one is the same. */
static uint64_t hash_of_arguments(sqlite3_stmt *s, int column)
{
    static const char device[] = "{\"device\": \"";
    const char *text = (const char *)sqlite3_column_text(s, column);
    uint64_t h = 0;
    if (text == NULL) return 0;
    for (const char *at; (at = strstr(text, device)) != NULL;) {
        h = usc_diff_mix(h, hash_of_bytes(text, (size_t)(at - text)));
        text = at + sizeof device - 1;
        text += strcspn(text, "\"");
    }
    return usc_diff_mix(h, hash_of_bytes(text, strlen(text)));
}

/* A module's path without what wrappers put in: the same module in both runs. */
static uint64_t hash_of_path(const char *path)
{
    static const char *const wrappers[] = {"_orig_mod", "_checkpoint_wrapped_module",
                                           "_fsdp_wrapped_module"};
    uint64_t h = 0;
    for (const char *at = path; at != NULL && *at != '\0';) {
        const size_t n = strcspn(at, ".");
        bool own = true;
        for (size_t i = 0; i < sizeof wrappers / sizeof wrappers[0]; i++)
            own = own && (n != strlen(wrappers[i]) || strncmp(at, wrappers[i], n) != 0);
        if (own) h = usc_diff_mix(h, hash_of_bytes(at, n));
        at += n + (at[n] == '.');
    }
    return path != NULL && h == 0 ? 1 : h; /* the model itself has an empty path */
}

/* ---- one row of each ---- */

typedef usc_status take_row(usc_diff_list *l, sqlite3_stmt *s, const usc_diff_options *o);

static usc_status take_named(usc_diff_table *t, sqlite3_stmt *s)
{
    usc_diff_named *row = add_row(t);
    if (row == NULL) return USC_E_NOMEM;
    row->id = sqlite3_column_int64(s, 0);
    row->hash = hash_of_column(s, 1);
    return USC_OK;
}

static usc_status take_op(usc_diff_list *l, sqlite3_stmt *s, const usc_diff_options *o)
{
    const usc_status st = take_named(&l->ops, s);
    const char *name = (const char *)sqlite3_column_text(s, 1);
    if (st != USC_OK || name == NULL) return st;
    const int allowed =
        (o->allow != NULL && usc_pattern_match(o->allow, name) ? USC_DIFF_ALLOWED : 0) |
        (o->allow_unjudged != NULL && usc_pattern_match(o->allow_unjudged, name)
             ? USC_DIFF_ACCEPTED
             : 0);
    ((usc_diff_named *)l->ops.row)[l->ops.n - 1].flags =
        allowed | (strcmp(name, USC_CALL_FORWARD) == 0    ? USC_DIFF_FORWARD
                   : strcmp(name, USC_CALL_BACKWARD) == 0 ? USC_DIFF_BACKWARD
                   : usc_pattern_match(UNWRITTEN, name)   ? USC_DIFF_UNWRITTEN
                                                          : 0);
    return USC_OK;
}

static usc_status take_module(usc_diff_list *l, sqlite3_stmt *s,
                              const usc_diff_options *o)
{
    (void)o;
    const usc_status st = take_named(&l->modules, s);
    if (st == USC_OK)
        ((usc_diff_named *)l->modules.row)[l->modules.n - 1].hash =
            hash_of_path((const char *)sqlite3_column_text(s, 1));
    return st;
}

static usc_status take_blob(usc_diff_list *l, sqlite3_stmt *s, const usc_diff_options *o)
{
    (void)o;
    return take_named(&l->blobs, s);
}

static usc_status take_version(usc_diff_list *l, sqlite3_stmt *s,
                               const usc_diff_options *o)
{
    (void)o;
    usc_diff_version *row = add_row(&l->versions);
    if (row == NULL) return USC_E_NOMEM;
    *row = (usc_diff_version){sqlite3_column_int64(s, 0), sqlite3_column_int64(s, 1),
                              sqlite3_column_int64(s, 2), sqlite3_column_int64(s, 3)};
    return USC_OK;
}

static usc_status take_storage(usc_diff_list *l, sqlite3_stmt *s,
                               const usc_diff_options *o)
{
    (void)o;
    usc_diff_storage *row = add_row(&l->storages);
    if (row == NULL) return USC_E_NOMEM;
    row->id = sqlite3_column_int64(s, 0);
    return USC_OK;
}

static usc_status take_tensor(usc_diff_list *l, sqlite3_stmt *s,
                              const usc_diff_options *o)
{
    (void)o;
    usc_diff_tensor *row = add_row(&l->tensors);
    if (row == NULL) return USC_E_NOMEM;
    row->id = sqlite3_column_int64(s, 0);
    row->version = sqlite3_column_int64(s, 1);
    row->dtype = hash_of_column(s, 2);
    row->shape = hash_of_column(s, 3);
    row->stats = hash_of_column(s, 6);
    row->blob = sqlite3_column_int64(s, 7);
    row->view = usc_diff_mix(row->dtype, row->shape);
    row->view = usc_diff_mix(row->view, hash_of_column(s, 4));
    row->view = usc_diff_mix(row->view, (uint64_t)sqlite3_column_int64(s, 5));
    row->view = usc_diff_mix(row->view, (uint64_t)sqlite3_column_int64(s, 8));
    row->view = usc_diff_mix(row->view, hash_of_column(s, 9));
    row->requires_grad = sqlite3_column_int(s, 10) != 0;
    return USC_OK;
}

/* Whether a call is one of those that are asked for. */
static bool is_asked(sqlite3_stmt *s, const usc_diff_named *op, const usc_diff_options *o)
{
    const char *phase = (const char *)sqlite3_column_text(s, 2);
    const int module = USC_DIFF_FORWARD | USC_DIFF_BACKWARD;
    return (op != NULL && (op->flags & module) != 0) == o->modules &&
           (!o->one_step || sqlite3_column_int64(s, 1) == o->step) &&
           (o->phase == NULL || (phase != NULL && strcmp(phase, o->phase) == 0));
}

/* A module's forward or backward is one by its path alone. */
static void take_forward(usc_diff_call *call, usc_diff_item *item, const char *args)
{
    static const char from[] = "\"from\": ";
    const char *at = args != NULL ? strstr(args, from) : NULL;
    if (at != NULL) call->begun = strtoll(at + sizeof from - 1, NULL, 10);
    item->op = usc_diff_mix(item->op, item->module);
    item->given = 0;
}

static usc_status take_call(usc_diff_list *l, sqlite3_stmt *s, const usc_diff_options *o)
{
    const char *state = (const char *)sqlite3_column_text(s, 7);
    const usc_diff_named *op = usc_diff_table_find(&l->ops, sqlite3_column_int64(s, 3));
    if (!is_asked(s, op, o)) return USC_OK;
    usc_diff_call *row = add_row(&l->calls);
    if (row == NULL) return USC_E_NOMEM;
    row->sequence = sqlite3_column_int64(s, 0);
    row->step = sqlite3_column_int64(s, 1);
    row->phase = hash_of_column(s, 2);
    row->parent = sqlite3_column_int64(s, 5);
    usc_diff_item *item = realloc(l->item, (size_t)l->calls.room * sizeof *item);
    if (item == NULL) return USC_E_NOMEM;
    l->item = item;
    item += l->calls.n - 1;
    *item = (usc_diff_item){0};
    const usc_diff_named *module =
        usc_diff_table_find(&l->modules, sqlite3_column_int64(s, 4));
    item->op = op != NULL ? op->hash : 0;
    item->module = module != NULL ? module->hash : 0;
    item->given = hash_of_arguments(s, 6);
    row->flags = op != NULL ? op->flags : 0;
    if (o->modules) take_forward(row, item, (const char *)sqlite3_column_text(s, 6));
    if ((row->flags & USC_DIFF_BACKWARD) != 0) usc_diff_take_backward(row, state);
    if (state != NULL && strstr(state, "\"rng\"") != NULL) {
        row->flags |= USC_DIFF_DRAWS;
        row->random = hash_of_column(s, 7);
    }
    return USC_OK;
}

static usc_status take_arg(usc_diff_list *l, sqlite3_stmt *s, const usc_diff_options *o)
{
    (void)o;
    usc_diff_call *call = usc_diff_table_find(&l->calls, sqlite3_column_int64(s, 0));
    const char *role = (const char *)sqlite3_column_text(s, 1);
    if (call == NULL) return USC_OK;
    usc_diff_arg *row = add_row(&l->args);
    if (row == NULL) return USC_E_NOMEM;
    if (call->n_args++ == 0) call->first_arg = l->args.n - 1;
    row->role = role == NULL || strcmp(role, "in") == 0 ? USC_ROLE_IN
                : strcmp(role, "out") == 0              ? USC_ROLE_OUT
                                                        : USC_ROLE_MUTATED;
    row->path = usc_diff_mix((uint64_t)row->role, hash_of_column(s, 2));
    row->tensor = sqlite3_column_int64(s, 3);
    return USC_OK;
}

static usc_status scan(usc_diff_list *l, int sql, take_row *take,
                       const usc_diff_options *o, usc_error *err)
{
    sqlite3_stmt *s;
    bool row = false;
    usc_db *db = &l->trace->db;
    usc_status st = usc_db_get(db, sql, &s, err);
    if (st != USC_OK) return st;
    while ((st = usc_db_step(db, s, &row, err)) == USC_OK && row)
        if (take(l, s, o) != USC_OK) {
            st = usc_no_memory(l->trace->folder, err);
            break;
        }
    sqlite3_reset(s);
    return st;
}

/* ---- what a call is told by ---- */

static usc_diff_version *version_of(const usc_diff_list *l, const usc_diff_tensor *t)
{
    return t != NULL ? usc_diff_table_find(&l->versions, t->version) : NULL;
}

static usc_diff_storage *storage_of(const usc_diff_list *l, const usc_diff_tensor *t)
{
    const usc_diff_version *v = version_of(l, t);
    return v != NULL ? usc_diff_table_find(&l->storages, v->storage) : NULL;
}

/* What an input is known by: who wrote it, whose storage it is. */
static void add_input(const usc_diff_list *l, int64_t i, const usc_diff_arg *arg,
                      const usc_diff_tensor *t, uint64_t *lineage)
{
    usc_diff_item *item = &l->item[i];
    const usc_diff_storage *s = storage_of(l, t);
    int64_t from = arg->writer > 0 ? usc_diff_list_index(l, arg->writer) : -1;
    /* Whether what filled it unseen left a trace hangs on what lay there by chance. */
    if (from >= 0 && (l->call[from].flags & USC_DIFF_UNWRITTEN) != 0) from = -1;
    const usc_diff_item *maker = from >= 0 ? &l->item[from] : NULL;
    const uint64_t parts[] = {maker != NULL ? maker->op : 0,
                              maker != NULL ? maker->module : arg->path,
                              s != NULL ? s->owner : 0};
    for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++)
        item->producers = usc_diff_mix(item->producers, parts[k]);
    *lineage = usc_diff_mix(*lineage, maker != NULL ? maker->lineage
                                                    : usc_diff_mix(t->shape, parts[2]));
}

/* Storages that nobody touched before are this call's: of its module, or where it has
 * none (an optimizer's) of whose its other arguments are. So parameters, their gradients
 * and states are told apart where calls on them are not. */
static void own_storages(usc_diff_list *l, int64_t i)
{
    const usc_diff_call *call = &l->call[i];
    const usc_diff_item *item = &l->item[i];
    uint64_t owner = usc_diff_mix(item->op, item->module);
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < call->n_args; k++) {
            const usc_diff_arg *arg = &l->arg[call->first_arg + k];
            usc_diff_storage *s =
                storage_of(l, usc_diff_table_find(&l->tensors, arg->tensor));
            if (s == NULL) continue;
            if (pass == 0 && item->module == 0)
                owner = usc_diff_mix(owner, s->owner);
            else if (pass == 1 && s->owner == 0)
                s->owner = usc_diff_mix(owner, arg->path);
        }
}

static bool is_input(const usc_diff_list *l, const usc_diff_call *call, int64_t version)
{
    for (int k = 0; k < call->n_args; k++) {
        const usc_diff_arg *arg = &l->arg[call->first_arg + k];
        const usc_diff_version *v =
            version_of(l, usc_diff_table_find(&l->tensors, arg->tensor));
        if (arg->role == USC_ROLE_IN && v != NULL && v->id == version) return true;
    }
    return false;
}

/* What a module gives was written by it, for those that come after it: not what it was
 * given and hands on. */
static void give_results(usc_diff_list *l, int64_t i)
{
    const usc_diff_call *call = &l->call[i];
    for (int k = 0; k < call->n_args; k++) {
        const usc_diff_arg *arg = &l->arg[call->first_arg + k];
        usc_diff_version *v =
            version_of(l, usc_diff_table_find(&l->tensors, arg->tensor));
        if (arg->role != USC_ROLE_IN && v != NULL && !is_input(l, call, v->id) &&
            !usc_diff_gave_before(l, call, v->writer))
            v->writer = call->sequence;
    }
}

static void describe(usc_diff_list *l, int64_t i)
{
    const usc_diff_call *call = &l->call[i];
    usc_diff_item *item = &l->item[i];
    uint64_t lineage = usc_diff_mix(usc_diff_mix(item->op, item->module), item->given);
    for (int k = 0; k < call->n_args; k++) {
        usc_diff_arg *arg = &l->arg[call->first_arg + k];
        const usc_diff_tensor *t = usc_diff_table_find(&l->tensors, arg->tensor);
        const usc_diff_version *v = version_of(l, t);
        if (t == NULL) continue;
        arg->writer = v != NULL && v->writer < call->sequence ? v->writer : -1;
        item->shape = usc_diff_mix(usc_diff_mix(item->shape, arg->path), t->shape);
        item->dtype = usc_diff_mix(usc_diff_mix(item->dtype, arg->path), t->dtype);
        if (arg->role == USC_ROLE_IN)
            add_input(l, i, arg, t, &lineage);
        else
            item->output = usc_diff_mix(item->output, t->shape);
    }
    item->lineage = lineage;
    own_storages(l, i);
    if ((call->flags & (USC_DIFF_FORWARD | USC_DIFF_BACKWARD)) != 0) give_results(l, i);
}

/* Of forwards, which were written down as they ended: the one around each. */
static usc_status find_around(usc_diff_list *l, usc_error *err)
{
    int64_t *open = malloc((size_t)(l->n + 1) * sizeof *open), n = 0;
    if (open == NULL) return usc_no_memory(l->trace->folder, err);
    for (int64_t i = l->n; i-- > 0;) {
        if ((l->call[i].flags & USC_DIFF_FORWARD) == 0) continue;
        while (n > 0 && l->call[open[n - 1]].begun > l->call[i].begun)
            n--;
        l->call[i].parent = n > 0 ? l->call[open[n - 1]].sequence : 0;
        open[n++] = i;
    }
    free(open);
    return usc_diff_list_nest(l, err);
}

void usc_diff_list_place(usc_diff_list *l, int64_t shift)
{
    for (int64_t i = 0; i < l->n; i++)
        l->item[i].place =
            usc_diff_mix(l->call[i].phase, (uint64_t)(l->call[i].step - shift));
}

usc_status usc_diff_list_read(usc_trace *t, const usc_diff_options *options,
                              usc_diff_list *out, usc_error *err)
{
    *out = (usc_diff_list){.trace = t,
                           .calls = {.size = sizeof(usc_diff_call)},
                           .args = {.size = sizeof(usc_diff_arg)},
                           .tensors = {.size = sizeof(usc_diff_tensor)},
                           .versions = {.size = sizeof(usc_diff_version)},
                           .storages = {.size = sizeof(usc_diff_storage)},
                           .blobs = {.size = sizeof(usc_diff_named)},
                           .ops = {.size = sizeof(usc_diff_named)},
                           .modules = {.size = sizeof(usc_diff_named)}};
    const struct {
        int sql;
        take_row *take;
    } steps[] = {
        {USC_SQL_SCAN_OPS, take_op},
        {USC_SQL_SCAN_MODULES, take_module},
        {USC_SQL_SCAN_BLOBS, take_blob},
        {USC_SQL_SCAN_VERSIONS, take_version},
        {USC_SQL_SCAN_STORAGES, take_storage},
        {t->db.version < 2 ? USC_SQL_SCAN_TENSORS_1 : USC_SQL_SCAN_TENSORS, take_tensor},
        {USC_SQL_SCAN_CALLS, take_call},
        {USC_SQL_SCAN_ARGS, take_arg}};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        const usc_status st = scan(out, steps[i].sql, steps[i].take, options, err);
        if (st != USC_OK) return st;
    }
    out->n = out->calls.n;
    out->call = out->calls.row;
    out->arg = out->args.row;
    for (int64_t i = 0; i < out->n; i++)
        describe(out, i);
    return options->modules ? find_around(out, err) : USC_OK;
}

void usc_diff_list_free(usc_diff_list *l)
{
    usc_diff_table *const tables[] = {&l->calls,    &l->args,  &l->tensors, &l->versions,
                                      &l->storages, &l->blobs, &l->ops,     &l->modules};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        free(tables[i]->row);
    free(l->item);
    *l = (usc_diff_list){0};
}
