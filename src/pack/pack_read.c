// SPDX-License-Identifier: Apache-2.0
// The manifest of a pack. It may come from anywhere: what is missing or of another kind
// is a damaged pack.
#include "pack/pack_read.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/path.h"

struct usc_manifest {
    usc_alloc alloc;
    usc_json *root;
    const usc_json *calls;
    const char *trace_id;
    size_t next; /* call */
    char path[USC_PATH_SIZE];
};

/* ---- opening ---- */

static usc_status read_json(usc_manifest *m, usc_error *err)
{
    FILE *file = fopen(m->path, "rb");
    if (file == NULL && errno == ENOENT)
        return usc_error_set(err, USC_E_NOT_FOUND, -1,
                             "%s: no such file: is this a folder that ulpscope pack "
                             "wrote?",
                             m->path);
    if (file == NULL)
        return usc_error_set(err, USC_E_IO, -1, "%s: %s", m->path, strerror(errno));
    const usc_status st =
        usc_json_read(file, m->path, "not the manifest of a pack", &m->root, err);
    (void)fclose(file);
    return st;
}

static usc_status check_head(usc_manifest *m, usc_error *err)
{
    usc_json_taker t = {.name = m->path, .err = err};
    const char *format = usc_json_text(&t, m->root, "format", "");
    const int64_t version = usc_json_integer(&t, m->root, "version", 0);
    m->trace_id = usc_json_text(&t, m->root, "trace_id", "");
    m->calls = usc_json_list(&t, m->root, "calls");
    if (strcmp(format, "ulpscope-pack") != 0)
        return usc_error_set(err, USC_E_CORRUPT, -1, "%s: not the manifest of a pack",
                             m->path);
    if (t.status == USC_OK && version != USC_PACK_VERSION)
        return usc_error_set(err, USC_E_VERSION, -1,
                             "%s: written in pack format %lld; this program knows %d "
                             "only: make the pack again",
                             m->path, (long long)version, USC_PACK_VERSION);
    return t.status;
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
    if (st == USC_OK) st = check_head(m, err);
    if (st == USC_OK) {
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
    usc_json_free(m->root);
    (void)alloc.resize(alloc.ctx, m, sizeof *m, 0);
}

const char *usc_manifest_trace_id(const usc_manifest *m)
{
    return m->trace_id;
}

/* ---- calls ---- */

static const char *text(usc_json_taker *t, const usc_json *object, const char *key)
{
    return usc_json_text(t, object, key, "");
}

static usc_result_row read_row(usc_json_taker *t, const usc_json *c, usc_arena *arena)
{
    const usc_json *stack = usc_json_list(t, c, "stack");
    const int64_t stands_for = usc_json_integer(t, c, "stands_for", 1);
    return (usc_result_row){
        .call = usc_json_integer(t, c, "call", 0),
        .step = usc_json_integer(t, c, "step", 0),
        .stands_for = stands_for < 1 ? 1 : stands_for,
        .notes = usc_json_flag(t, c, "made_up") ? "made-up inputs" : "",
        .op = text(t, c, "op"),
        .phase = text(t, c, "phase"),
        .module = text(t, c, "module"),
        .module_class = text(t, c, "module_class"),
        .args = text(t, c, "summary"),
        .stack = stack != NULL ? usc_json_print(stack, arena) : "",
        .culprit = "",
        .cause = "",
    };
}

static usc_freedom read_freedom(usc_json_taker *t, const usc_json *c)
{
    const usc_json *o = usc_json_object(t, c, "together");
    const char *gauge = usc_json_text(t, o, "gauge", NULL);
    const int64_t dim = usc_json_integer(t, o, "dim", -1);
    const int64_t ndim = usc_json_integer(t, o, "ndim", 0);
    const int64_t inverse = usc_json_integer(t, o, "inverse", -1);
    if (dim < -1 || dim >= USC_MAX_DIMS || ndim < 0 || ndim > USC_MAX_DIMS ||
        inverse < -1 || inverse > USC_PACK_OUTPUTS ||
        (gauge != NULL && usc_gauge_by_name(gauge) == NULL)) {
        usc_json_wrong(t, "together", "is nothing that outputs leave free");
        return (usc_freedom){.inverse = -1};
    }
    return (usc_freedom){.unsorted = dim >= 0,
                         .dim = (int)dim,
                         .inverse = (int)inverse,
                         .gauge = gauge != NULL ? usc_gauge_by_name(gauge) : NULL,
                         .ndim = (int)ndim,
                         .fewest = usc_json_integer(t, o, "fewest", 0),
                         .rounding = usc_json_number(t, o, "rounding", 0)};
}

usc_status usc_manifest_next(usc_manifest *m, usc_arena *arena, usc_pack_call *out,
                             bool *more, usc_error *err)
{
    const usc_json *c = usc_json_item(m->calls, m->next);
    *more = c != NULL;
    if (c == NULL) return USC_OK;
    usc_json_taker t = {.name = m->path, .err = err};
    snprintf(t.place, sizeof t.place, "calls[%zu]", m->next++);
    *out = (usc_pack_call){.row = read_row(&t, c, arena),
                           .unjudged = usc_json_text(&t, c, "unjudged", NULL),
                           .undefined = usc_json_text(&t, c, "undefined", NULL),
                           .file = usc_json_text(&t, c, "operands_file", NULL),
                           .inputs_file = usc_json_text(&t, c, "inputs_file", NULL),
                           .inputs = usc_json_list(&t, c, "inputs"),
                           .outputs = usc_json_list(&t, c, "outputs"),
                           .undefined_outputs = usc_json_list(&t, c, "undefined_outputs"),
                           .together = read_freedom(&t, c)};
    if (arena->failed) return usc_no_memory(m->path, err);
    if (out->row.op[0] == '\0') usc_json_wrong(&t, "op", "is missing");
    if (usc_json_get(c, "call") == NULL) usc_json_wrong(&t, "call", "is missing");
    if (usc_json_size(out->outputs) > USC_PACK_OUTPUTS)
        usc_json_wrong(&t, "outputs", "is too long");
    out->n_outputs = (int)usc_json_size(out->outputs);
    return t.status;
}

/* ---- outputs ---- */

/* The tensor that the manifest names under `key`; NULL where it names none. */
static const usc_safetensor *operand(usc_json_taker *t, const usc_json *names,
                                     const usc_safetensors *tensors, const char *key)
{
    const char *name = usc_json_text(t, names, key, NULL);
    if (name == NULL) return NULL;
    const usc_safetensor *found =
        tensors != NULL ? usc_safetensors_find(tensors, name) : NULL;
    if (found == NULL) {
        char how[160];
        snprintf(how, sizeof how, "names %.80s, which its operands do not hold", name);
        usc_json_wrong(t, key, how);
    }
    return found;
}

static void find_operands(usc_json_taker *t, const usc_json *names,
                          const usc_safetensors *tensors, usc_pack_operands *o)
{
#define FIND(name) o->name = operand(t, names, tensors, #name);
    USC_KEPT_LIST(FIND)
#undef FIND
}

static void read_window(usc_json_taker *t, const usc_json *window, usc_choice *c)
{
    c->n_window = (int)usc_json_size(window);
    if (usc_json_size(window) > USC_POOLED) {
        usc_json_wrong(t, "choice", "pools over too many dimensions");
        c->n_window = 0;
    }
    for (int d = 0; d < c->n_window; d++) {
        const usc_json *four = usc_json_item(window, (size_t)d);
        int64_t *const to[] = {&c->kernel[d], &c->stride[d], &c->padding[d],
                               &c->dilation[d]};
        for (size_t i = 0; i < 4; i++)
            if (!usc_json_as_integer(usc_json_item(four, i), to[i]))
                usc_json_wrong(t, "choice", "has a window that is not four integers");
    }
}

static void read_choice(usc_json_taker *t, const usc_json *choice, usc_choice *c)
{
    const int64_t dim = usc_json_integer(t, choice, "dim", -1);
    if (dim < -1 || dim >= USC_MAX_DIMS) usc_json_wrong(t, "choice", "has no such dim");
    *c = (usc_choice){.dim = (int)dim,
                      .slack = usc_json_number(t, choice, "slack", 0),
                      .once = usc_json_flag(t, choice, "once"),
                      .cumulative = usc_json_flag(t, choice, "cumulative"),
                      .counts = usc_json_flag(t, choice, "counts")};
    read_window(t, usc_json_list(t, choice, "window"), c);
}

static void read_dtypes(usc_json_taker *t, const usc_json *output, usc_pack_entry *e)
{
    e->dtypes = usc_json_list(t, output, "dtypes");
    for (size_t i = 0; i < usc_json_size(e->dtypes); i++)
        if (usc_json_as_text(usc_json_item(e->dtypes, i)) == NULL)
            usc_json_wrong(t, "dtypes", "is no list of names");
}

static int count(usc_json_taker *t, const usc_json *output, const char *key)
{
    const int64_t n = usc_json_integer(t, output, key, 0);
    if (n < 0 || n > USC_PACK_OUTPUTS) usc_json_wrong(t, key, "is no number of replays");
    return (int)n;
}

/* What one reading of a call has of an output. */
static void read_reading(usc_json_taker *t, const usc_json *output,
                         const usc_safetensors *tensors, usc_pack_operands *o)
{
    *o = (usc_pack_operands){.path = text(t, output, "path"),
                             .reading = text(t, output, "reading"),
                             .refused = text(t, output, "refused"),
                             .note = text(t, output, "note")};
#define READ(name) o->name = usc_json_flag(t, output, #name);
    USC_KEPT_FLAG_LIST(READ)
#undef READ
#define READ(name) o->name = count(t, output, #name);
    USC_KEPT_COUNT_LIST(READ)
#undef READ
#define READ(name) o->name = usc_json_number(t, output, #name, 0);
    USC_KEPT_NUMBER_LIST(READ)
#undef READ
    read_choice(t, usc_json_object(t, output, "choice"), &o->how);
    find_operands(t, usc_json_object(t, output, "operands"), tensors, o);
}

static void read_readings(usc_json_taker *t, const usc_json *output,
                          const usc_safetensors *tensors, usc_arena *arena,
                          usc_pack_operands *o)
{
    const usc_json *list = usc_json_list(t, output, "readings");
    const size_t n = usc_json_size(list);
    if (n > USC_PACK_READINGS) usc_json_wrong(t, "readings", "is too long");
    if (n == 0 || n > USC_PACK_READINGS) return;
    usc_pack_operands *all = usc_arena_take(arena, n * sizeof *all);
    for (size_t i = 0; i < n && all != NULL; i++) {
        read_reading(t, usc_json_item(list, i), tensors, &all[i]);
        if (all[i].reference == NULL)
            usc_json_wrong(t, "readings", "has one without a reference");
    }
    o->readings = all;
    o->n_readings = all != NULL ? (int)n : 0;
}

static void read_output(usc_json_taker *t, const usc_json *output,
                        const usc_safetensors *tensors, usc_arena *arena,
                        usc_pack_entry *e)
{
    *e = (usc_pack_entry){.name = text(t, output, "name"),
                          .unjudged = usc_json_text(t, output, "unjudged", NULL)};
    usc_pack_operands *o = &e->operands;
    read_reading(t, output, tensors, o);
    read_dtypes(t, output, e);
    read_readings(t, output, tensors, arena, o);
    if (e->unjudged == NULL && o->reference == NULL)
        usc_json_wrong(t, "operands", "has no reference");
}

usc_status usc_manifest_outputs(usc_manifest *m, const usc_json *outputs,
                                const usc_safetensors *tensors, usc_arena *arena,
                                usc_pack_entry *out, usc_error *err)
{
    usc_json_taker t = {.name = m->path, .err = err};
    for (size_t i = 0; i < usc_json_size(outputs) && t.status == USC_OK; i++) {
        snprintf(t.place, sizeof t.place, "calls[%zu].outputs[%zu]", m->next - 1, i);
        read_output(&t, usc_json_item(outputs, i), tensors, arena, &out[i]);
    }
    return arena->failed ? usc_no_memory(m->path, err) : t.status;
}
