// SPDX-License-Identifier: Apache-2.0
// Tensors against references of the same names: for who has no pack. Neighbour:
// pack_judge.c, which knows what an operator does.
#include "base/float_env.h"
#include "pack/pack_operands.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const char bare_remark[] =
    "no sensitivities were given: an error counts relative to |reference|. Where large "
    "terms cancel, honest float32 may look wrong; give their size with --scale";
static const char scale_remark[] = "no sensitivities were given: an error counts "
                                   "relative to |reference|, or to the scale "
                                   "where that is larger";
static const char float32_remark[] =
    "%lld references are float32: what they have lost themselves counts as the device's";

typedef struct pair {
    usc_pack_work w;
    usc_arena arena;
    usc_safetensors *device, *reference, *scale;
    usc_result *result;
    int64_t n, n_float32;
} pair;

/* Why there is nothing to judge; false where there is something. */
static bool refuse(const usc_safetensor *device, const usc_safetensor *reference,
                   char *why, size_t size)
{
    const usc_dtype d = device->tensor.dtype, r = reference->tensor.dtype;
    const bool computed = usc_dtype_info_of(d)->kind == USC_KIND_FLOAT &&
                          usc_dtype_info_of(r)->kind == USC_KIND_FLOAT;
    if (!computed || r == USC_F64 || (r == USC_F32 && d != USC_F64)) return false;
    (void)snprintf(why, size,
                   "a %s reference is too coarse for a %s output; give it in float64",
                   usc_pack_dtype_text(reference), usc_pack_dtype_text(device));
    return true;
}

static usc_status judge_tensor(pair *p, const char *name, usc_error *err)
{
    char why[256];
    const usc_safetensor *device = usc_safetensors_find(p->device, name);
    const usc_safetensor *reference = usc_safetensors_find(p->reference, name);
    if (device == NULL)
        return usc_pack_say(&p->w, USC_VERDICT_UNSUPPORTED, "", err,
                            "the device gave no such tensor");
    if (reference == NULL)
        return usc_pack_say(&p->w, USC_VERDICT_UNJUDGED, "", err,
                            "there is no reference of that name");
    if (refuse(device, reference, why, sizeof why))
        return usc_pack_say(&p->w, USC_VERDICT_UNJUDGED, "", err, "%s", why);
    const usc_dtype d = device->tensor.dtype, r = reference->tensor.dtype;
    p->n_float32 += r == USC_F32;
    const usc_safetensor *s =
        p->scale != NULL ? usc_safetensors_find(p->scale, name) : NULL;
    const bool computed = d != USC_DTYPE_NONE && r != USC_DTYPE_NONE;
    const bool floats = usc_pack_is_float(device) && usc_pack_is_float(reference);
    const usc_pack_operands o = {.path = "",
                                 .op = name,
                                 .reference = reference,
                                 .s1 = s,
                                 .s2 = s,
                                 .s4 = s,
                                 .usual_dtype = usc_pack_dtype_text(reference),
                                 .other_dtype = computed && !floats && d != r,
                                 .fan_in = 1,
                                 .bare = true};
    return usc_pack_output(&p->w, device, &o, err);
}

static usc_status add_tensor(pair *p, const usc_safetensor *t, usc_error *err)
{
    char args[256];
    const int64_t begin = usc_pack_now();
    usc_arena_reset(&p->arena);
    usc_status st = usc_pack_open_case(&p->w, 1, err);
    if (st == USC_OK) st = judge_tensor(p, t->name, err);
    if (st != USC_OK) return st;
    size_t n = (size_t)snprintf(args, sizeof args, "%s[", usc_pack_dtype_text(t));
    for (int i = 0; i < t->tensor.ndim && n < sizeof args - 24; i++)
        n += (size_t)snprintf(args + n, sizeof args - n, "%s%lld", i > 0 ? ", " : "",
                              (long long)t->tensor.sizes[i]);
    (void)snprintf(args + n, sizeof args - n, "]");
    usc_result_row row = {.call = ++p->n,
                          .phase = "",
                          .op = t->name,
                          .culprit = "",
                          .module = "",
                          .module_class = "",
                          .cause = "",
                          .notes = "",
                          .args = args,
                          .stack = "",
                          .stands_for = 1};
    row.t_judge = row.t_total = usc_pack_now() - begin;
    usc_cause_found found;
    st = usc_pack_put(&p->w, p->result, &row, err);
    if (st == USC_OK) st = usc_pack_cause(&p->w, NULL, &found, err);
    if (st != USC_OK || found.code == USC_CAUSE_NONE) return st;
    return usc_pack_put_cause(&p->w, p->result, &row, found.text, err);
}

/* All names of both files, each once, in order. */
static usc_status judge_all(pair *p, usc_error *err)
{
    int64_t i = 0, k = 0;
    usc_status st = USC_OK;
    while (st == USC_OK) {
        const usc_safetensor *d = usc_safetensors_at(p->device, i);
        const usc_safetensor *r = usc_safetensors_at(p->reference, k);
        if (d == NULL && r == NULL) break;
        const int order = d == NULL ? 1 : r == NULL ? -1 : strcmp(d->name, r->name);
        i += order <= 0;
        k += order >= 0;
        st = add_tensor(p, order <= 0 ? d : r, err);
    }
    return st;
}

static usc_status open_all(pair *p, const char *device, const char *reference,
                           usc_error *err)
{
    const usc_pack_options *o = p->w.options;
    usc_status st = usc_safetensors_open(device, o->alloc, &p->device, err);
    if (st == USC_OK) st = usc_safetensors_open(reference, o->alloc, &p->reference, err);
    if (st == USC_OK && o->scale != NULL)
        st = usc_safetensors_open(o->scale, o->alloc, &p->scale, err);
    if (st != USC_OK) return st;
    const usc_run run = {.trace = reference,
                         .trace_id = reference,
                         .device = device,
                         .standard = p->w.standard.name,
                         .faults = "",
                         .options = o->scale != NULL ? "{\"scale\": true}" : "{}",
                         .environment = "{}"};
    return usc_pack_begin(&p->w, &run, &p->result, err);
}

static usc_status end(pair *p, usc_error *err)
{
    char remarks[1024];
    int n = snprintf(remarks, sizeof remarks, "%s",
                     p->scale != NULL ? scale_remark : bare_remark);
    if (p->n_float32 > 0) {
        n += snprintf(remarks + n, sizeof remarks - (size_t)n, "\n");
        (void)snprintf(remarks + n, sizeof remarks - (size_t)n, float32_remark,
                       (long long)p->n_float32);
    }
    return usc_pack_end(p->result, p->n, remarks, err);
}

usc_status usc_pair_judge(const char *device, const char *reference,
                          const usc_pack_options *options, usc_error *err)
{
    assert(device && reference);
    static const usc_pack_options defaults;
    if (options == NULL) options = &defaults;
    pair p = {.w = {.options = options}};
    p.arena.alloc = options->alloc != NULL ? *options->alloc : usc_libc_alloc;
    p.w.arena = &p.arena;
    usc_status st = usc_pack_standard(&p.w, err);
    if (st == USC_OK) st = open_all(&p, device, reference, err);
    const usc_float_env env = usc_float_env_enter();
    if (st == USC_OK) st = judge_all(&p, err);
    usc_float_env_leave(env);
    if (st == USC_OK) st = end(&p, err);
    usc_result_close(p.result);
    usc_safetensors_close(p.scale);
    usc_safetensors_close(p.reference);
    usc_safetensors_close(p.device);
    usc_case_close(p.w.c);
    usc_arena_free(&p.arena);
    return st;
}
