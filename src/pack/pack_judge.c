// SPDX-License-Identifier: Apache-2.0
// Outputs in files against a pack. Neighbours: pack_read.c (the manifest), pack_output.c
// (one output), python/ulpscope/session/pack.py (writes packs).
#include "base/words.h"
#include "pack/pack_read.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/float_env.h"
#include "base/path.h"

typedef struct packed {
    usc_pack_work w;
    usc_arena arena, marks; /* of one call; of the whole run */
    const char *folder;
    usc_manifest *manifest;
    usc_safetensors *outputs;
    bool *used; /* per tensor of the outputs: its call is in the pack */
    usc_result *result;
    usc_held_room *held; /* of the outputs of one call */
    int64_t n;
} packed;

/* First tensor of the outputs whose name is not before `name`. */
static int64_t first_from(const usc_safetensors *set, const char *name)
{
    int64_t low = 0, high = usc_safetensors_count(set);
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (strcmp(usc_safetensors_at(set, middle)->name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* How many outputs were given for a call: all names that begin with "12/". */
static int64_t count_given(packed *p, int64_t call)
{
    char prefix[32];
    int64_t n = 0;
    const size_t size = (size_t)snprintf(prefix, sizeof prefix, "%lld/", (long long)call);
    for (int64_t i = first_from(p->outputs, prefix);; i++, n++) {
        const usc_safetensor *t = usc_safetensors_at(p->outputs, i);
        if (t == NULL || strncmp(t->name, prefix, size) != 0) return n;
        p->used[i] = true;
    }
}

/* Whether a dtype is among those that the manifest allows; an empty list allows all. */
static bool allowed(const usc_json *dtypes, const char *dtype)
{
    const size_t n = usc_json_size(dtypes);
    for (size_t i = 0; i < n; i++)
        if (strcmp(usc_json_as_text(usc_json_item(dtypes, i)), dtype) == 0) return true;
    return n == 0;
}

static usc_status judge_entry(packed *p, usc_pack_entry *e, const usc_safetensor *device,
                              usc_error *err)
{
    usc_pack_operands *o = &e->operands;
    if (e->unjudged != NULL)
        return usc_pack_say(&p->w, USC_VERDICT_UNJUDGED, o->path, err, "%s", e->unjudged);
    o->usual_dtype = usc_json_as_text(usc_json_item(e->dtypes, 0));
    o->other_dtype = !allowed(e->dtypes, usc_pack_dtype_text(device));
    return usc_pack_output(&p->w, device, o, err);
}

/* How many outputs were given that nothing is promised of. */
static int64_t count_undefined(const packed *p, const usc_pack_call *call)
{
    int64_t n = 0;
    for (size_t i = 0; i < usc_json_size(call->undefined_outputs); i++) {
        const char *name = usc_json_as_text(usc_json_item(call->undefined_outputs, i));
        n += name != NULL && usc_safetensors_find(p->outputs, name) != NULL;
    }
    return n;
}

/* Outputs as they are held to what the pack has: where they leave something free
 * together, in the order and the gauge of that. */
static usc_status bring(packed *p, const usc_pack_call *call,
                        const usc_pack_entry *entries, usc_safetensor *devices,
                        usc_error *err)
{
    int n = 0;
    usc_held *all = usc_arena_take(&p->arena, (size_t)call->n_outputs * sizeof *all + 1);
    int *at = usc_arena_take(&p->arena, (size_t)call->n_outputs * sizeof *at + 1);
    if (all == NULL || at == NULL) return usc_no_memory(call->row.op, err);
    for (int i = 0; i < call->n_outputs; i++) {
        const usc_pack_operands *o = &entries[i].operands;
        if (devices[i].name == NULL || o->reference == NULL) continue;
        all[n] = (usc_held){o->path, devices[i].tensor, o->reference->tensor};
        at[n++] = i;
    }
    const usc_status st =
        usc_held_bring(&call->together, all, n, p->w.options->alloc, &p->held, err);
    for (int k = 0; k < n && st == USC_OK; k++)
        devices[at[k]].tensor.data = all[k].device.data;
    return st;
}

static usc_status find_devices(packed *p, const usc_pack_call *call,
                               const usc_pack_entry *entries, usc_safetensor **out,
                               usc_error *err)
{
    usc_safetensor *all =
        usc_arena_take(&p->arena, (size_t)call->n_outputs * sizeof *all + 1);
    *out = all;
    if (all == NULL) return usc_no_memory(call->row.op, err);
    for (int i = 0; i < call->n_outputs; i++) {
        const usc_safetensor *t = usc_safetensors_find(p->outputs, entries[i].name);
        all[i] = t != NULL ? *t : (usc_safetensor){.name = NULL};
    }
    return bring(p, call, entries, all, err);
}

static usc_status judge_outputs(packed *p, const usc_pack_call *call,
                                usc_pack_entry *entries, usc_error *err)
{
    int64_t n = 0;
    usc_safetensor *devices = NULL;
    const int64_t n_given = count_given(p, call->row.call) - count_undefined(p, call);
    usc_status st = usc_pack_open_case(&p->w, call->n_outputs + 1, err);
    if (st == USC_OK) st = find_devices(p, call, entries, &devices, err);
    for (int i = 0; i < call->n_outputs && st == USC_OK; i++) {
        if (devices[i].name == NULL) continue;
        entries[i].operands.op = call->row.op;
        st = judge_entry(p, &entries[i], &devices[i], err);
        n++;
    }
    if (st != USC_OK) return st;
    if (n_given == 0 && call->n_outputs > 0)
        return usc_pack_lack(&p->w, USC_LACKS_OUTPUT, USC_VERDICT_UNSUPPORTED,
                             USC_NOT_GIVEN, err);
    if (n < call->n_outputs || n_given > n)
        return usc_pack_say(&p->w, USC_VERDICT_WRONG, "", err, USC_MISCOUNTED,
                            (long long)n_given, (long long)call->n_outputs);
    if (n == 0) return usc_pack_say(&p->w, USC_VERDICT_PASS, "", err, "%s", "");
    return USC_OK;
}

static usc_status open_operands(packed *p, const usc_pack_call *call,
                                usc_safetensors **out, usc_error *err)
{
    char path[USC_PATH_SIZE];
    *out = NULL;
    if (call->file == NULL) return USC_OK;
    const usc_status st = usc_path_join(path, p->folder, call->file, err);
    return st == USC_OK ? usc_safetensors_open(path, p->w.options->alloc, out, err) : st;
}

static bool flagged(usc_case *c)
{
    const usc_finding *worst = usc_findings_worst(usc_case_findings(c));
    return worst != NULL && usc_verdict_flagged(worst->verdict);
}

static usc_status judge_held_to(packed *p, usc_pack_call *call,
                                const usc_safetensors *tensors, usc_error *err)
{
    const size_t n = (size_t)call->n_outputs;
    usc_pack_entry *entries = usc_arena_take(&p->arena, n * sizeof *entries + 1);
    if (entries == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", call->row.op);
    const usc_status st = usc_manifest_outputs(p->manifest, call->outputs, tensors,
                                               &p->arena, entries, err);
    return st == USC_OK ? judge_outputs(p, call, entries, err) : st;
}

/* ---- causes ---- */

static usc_status name_inputs(packed *p, const usc_pack_call *call,
                              const usc_safetensors *tensors, usc_pack_inputs *out,
                              usc_error *err)
{
    const size_t n = usc_json_size(call->inputs);
    struct usc_pack_input *items = usc_arena_take(&p->arena, n * sizeof *items + 1);
    *out = (usc_pack_inputs){.tensors = tensors, .items = items};
    if (items == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", call->row.op);
    for (size_t i = 0; i < n; i++) {
        const usc_json *input = usc_json_item(call->inputs, i);
        const char *name = usc_json_as_text(usc_json_get(input, "name"));
        const char *argument = usc_json_as_text(usc_json_get(input, "argument"));
        if (name != NULL)
            items[out->n++] =
                (struct usc_pack_input){name, argument != NULL ? argument : name};
    }
    return USC_OK;
}

/* The row once more, with its cause where the files show one. The arguments help where
 * the pack still has them. */
static usc_status add_cause(packed *p, usc_pack_call *call, usc_error *err)
{
    char path[USC_PATH_SIZE];
    usc_cause_found found;
    usc_pack_inputs inputs = {0};
    usc_safetensors *tensors = NULL;
    usc_status st = USC_OK;
    if (call->inputs_file != NULL &&
        usc_path_join(path, p->folder, call->inputs_file, NULL) == USC_OK &&
        usc_safetensors_open(path, p->w.options->alloc, &tensors, NULL) == USC_OK)
        st = name_inputs(p, call, tensors, &inputs, err);
    if (st == USC_OK) st = usc_pack_cause(&p->w, &inputs, &found, err);
    usc_safetensors_close(tensors);
    if (st != USC_OK || found.code == USC_CAUSE_NONE) return st;
    return usc_pack_put_cause(&p->w, p->result, &call->row, found.text, err);
}

/* Verdicts on all outputs of a call. */
static usc_status judge_call(packed *p, usc_pack_call *call, usc_error *err)
{
    const int64_t begin = usc_pack_now();
    usc_safetensors *tensors = NULL;
    usc_status st = USC_OK;
    if (call->unjudged != NULL || call->undefined != NULL) {
        const bool undefined = call->unjudged == NULL;
        st = usc_pack_open_case(&p->w, 1, err);
        if (st == USC_OK)
            st = usc_pack_say(
                &p->w, undefined ? USC_VERDICT_UNDEFINED : USC_VERDICT_UNJUDGED, "", err,
                "%s", undefined ? call->undefined : call->unjudged);
        (void)count_given(p, call->row.call);
    } else {
        st = open_operands(p, call, &tensors, err);
        if (st == USC_OK) st = judge_held_to(p, call, tensors, err);
    }
    call->row.t_judge = call->row.t_total = usc_pack_now() - begin;
    if (st == USC_OK) st = usc_pack_put(&p->w, p->result, &call->row, err);
    if (st == USC_OK && flagged(p->w.c)) st = add_cause(p, call, err);
    usc_held_free(p->held);
    p->held = NULL;
    usc_safetensors_close(tensors);
    return st;
}

static usc_status judge_all(packed *p, usc_error *err)
{
    for (;;) {
        usc_pack_call call;
        bool more = false;
        usc_arena_reset(&p->arena);
        usc_status st = usc_manifest_next(p->manifest, &p->arena, &call, &more, err);
        if (st != USC_OK || !more) return st;
        p->n++;
        st = judge_call(p, &call, err);
        if (st != USC_OK) return st;
    }
}

static usc_status end(packed *p, usc_error *err)
{
    char remarks[512] = "";
    int64_t n = 0, first = -1;
    for (int64_t i = 0; i < usc_safetensors_count(p->outputs); i++) {
        if (p->used[i]) continue;
        if (n++ == 0) first = i;
    }
    if (n > 0)
        (void)snprintf(
            remarks, sizeof remarks,
            "%lld tensor%s of the outputs belong%s to no call of the pack, for "
            "example %.80s; names are like 12/out[0], see pack.json",
            (long long)n, n == 1 ? "" : "s", n == 1 ? "s" : "",
            usc_safetensors_at(p->outputs, first)->name);
    return usc_pack_end(p->result, p->n, remarks, err);
}

static usc_status open_all(packed *p, const char *outputs, usc_error *err)
{
    const usc_alloc *alloc = p->w.options->alloc;
    usc_status st = usc_manifest_open(p->folder, alloc, &p->manifest, err);
    if (st == USC_OK) st = usc_safetensors_open(outputs, alloc, &p->outputs, err);
    if (st != USC_OK) return st;
    const size_t n = (size_t)usc_safetensors_count(p->outputs);
    p->used = usc_arena_take(&p->marks, n + 1);
    if (p->used == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", outputs);
    memset(p->used, 0, n);
    const usc_run run = {.trace = p->folder,
                         .trace_id = usc_manifest_trace_id(p->manifest),
                         .device = outputs,
                         .standard = p->w.standard.name,
                         .faults = "",
                         .options = "{}",
                         .environment = "{}"};
    return usc_pack_begin(&p->w, &run, &p->result, err);
}

usc_status usc_pack_judge(const char *pack, const char *outputs,
                          const usc_pack_options *options, usc_error *err)
{
    assert(pack && outputs);
    static const usc_pack_options defaults;
    if (options == NULL) options = &defaults;
    packed p = {.w = {.options = options}, .folder = pack};
    p.arena.alloc = options->alloc != NULL ? *options->alloc : usc_libc_alloc;
    p.marks.alloc = p.arena.alloc;
    p.w.arena = &p.arena;
    usc_status st = usc_pack_standard(&p.w, err);
    if (st == USC_OK) st = open_all(&p, outputs, err);
    const usc_float_env env = usc_float_env_enter();
    if (st == USC_OK) st = judge_all(&p, err);
    usc_float_env_leave(env);
    if (st == USC_OK) st = end(&p, err);
    usc_result_close(p.result);
    usc_safetensors_close(p.outputs);
    usc_manifest_close(p.manifest);
    usc_case_close(p.w.c);
    usc_arena_free(&p.arena);
    usc_arena_free(&p.marks);
    return st;
}
