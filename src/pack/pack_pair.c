// SPDX-License-Identifier: Apache-2.0
// Tensors against references of the same names: for who has no pack. Neighbour:
// pack_judge.c, which knows what an operator does.
#include "base/float_env.h"
#include "base/words.h"
#include "files/tensor_set.h"
#include "pack/pack_operands.h"

#include <ulpscope/stats.h>

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char bare_remark[] =
    "no sensitivities were given: an error counts relative to |reference|. What keeps 16 "
    "bits beside the mean of its tensor and not more is neither right nor wrong by that: "
    "give the size of the terms with --scale";
static const char scale_remark[] = "no sensitivities were given: an error counts "
                                   "relative to |reference|, or to the scale "
                                   "where that is larger";
static const char float32_remark[] =
    "%lld references are float32: what they have lost themselves counts as the device's";

typedef struct pair {
    usc_pack_work w;
    usc_arena arena;
    usc_tensor_set device, reference, scale;
    usc_result *result;
    int64_t n, n_float32;
    bool by_place;             /* no name is in both */
    int64_t first;             /* the first that is wrong, from 1 on; 0: none */
    char wrong[256];           /* its name */
    int64_t n_odd, n_with_odd; /* NaN and Inf that both have, and in how many tensors */
    char odd[256];             /* the first of these */
} pair;

/* Why there is nothing to judge; false where there is something. */
static bool refuse(const usc_safetensor *device, const usc_safetensor *reference,
                   char *why, size_t size)
{
    const usc_dtype d = device->tensor.dtype, r = reference->tensor.dtype;
    const bool computed = usc_dtype_info_of(d)->kind == USC_KIND_FLOAT &&
                          usc_dtype_info_of(r)->kind == USC_KIND_FLOAT;
    if (!computed || r == USC_F64 || (r == USC_F32 && d != USC_F64)) return false;
    (void)snprintf(why, size, "a %s reference is too coarse for a %s output",
                   usc_pack_dtype_text(reference), usc_pack_dtype_text(device));
    return true;
}

/* What leaves nothing to compare: no elements, or NaN alone on both sides; NULL where
 * something is. *n_odd: how many elements of the reference are NaN or Inf. */
static usc_status find_nothing(const usc_safetensor *device,
                               const usc_safetensor *reference, const char **why,
                               usc_verdict *verdict, int64_t *n_odd, usc_error *err)
{
    usc_range d, r;
    *verdict = USC_VERDICT_UNJUDGED;
    *why = NULL;
    *n_odd = 0;
    if (device->tensor.dtype == USC_DTYPE_NONE ||
        reference->tensor.dtype == USC_DTYPE_NONE ||
        usc_pack_is_float(device) != usc_pack_is_float(reference) ||
        !usc_pack_same_shape(&device->tensor, &reference->tensor))
        return USC_OK; /* judged as what it is */
    usc_status st = usc_range_compute(&reference->tensor, &r, err);
    if (st == USC_OK) st = usc_range_compute(&device->tensor, &d, err);
    if (st != USC_OK) return st;
    *n_odd = r.n_nan + r.n_pos_inf + r.n_neg_inf;
    if (r.n == 0) {
        *verdict = USC_VERDICT_UNDEFINED; /* there is nothing to judge */
        *why = "it has no elements: nothing is compared";
    } else if (r.n_nan == r.n && d.n_nan == d.n)
        *why = "all of it is NaN on both sides: nothing is compared";
    return USC_OK;
}

/* Counts what is NaN or Inf on both sides: where the case does not accuse, the device
 * has what the reference has. */
static void note_odd(pair *p, const char *name, int64_t n_odd)
{
    const usc_finding *worst = usc_findings_worst(usc_case_findings(p->w.c));
    if (n_odd == 0 || (worst != NULL && worst->verdict == USC_VERDICT_NONFINITE)) return;
    if (p->n_with_odd == 0) (void)snprintf(p->odd, sizeof p->odd, "%s", name);
    p->n_odd += n_odd;
    p->n_with_odd++;
}

/* The mean size of the finite elements, for each of them; *out stays without data where
 * that is 0. */
static usc_status take_typical(pair *p, const usc_safetensor *reference,
                               usc_safetensor *out, usc_error *err)
{
    const usc_tensor *t = &reference->tensor;
    int64_t n = 0, n_finite = 0;
    double sum = 0;
    usc_status st = usc_tensor_numel(t, &n, err);
    if (st != USC_OK) return st;
    for (int64_t i = 0; i < n; i++) {
        const double x = t->dtype == USC_F64 ? ((const double *)t->data)[i]
                                             : (double)((const float *)t->data)[i];
        if (!isfinite(x)) continue;
        sum += fabs(x) / (double)n;
        n_finite++;
    }
    const double mean = n_finite > 0 ? sum * ((double)n / (double)n_finite) : 0;
    if (mean <= 0 || !isfinite(mean)) return USC_OK;
    double *all = usc_arena_take(&p->arena, (size_t)n * sizeof *all);
    if (all == NULL) return usc_no_memory(reference->name, err);
    for (int64_t i = 0; i < n; i++)
        all[i] = mean;
    *out = *reference;
    return usc_tensor_make(&out->tensor, all, USC_F64, t->ndim, t->sizes, err);
}

/* Two tensors of one name, held to a scale; NULL: to |reference|. */
static usc_status judge_by(pair *p, const char *name, const usc_safetensor *device,
                           const usc_safetensor *reference, const usc_safetensor *s,
                           usc_error *err)
{
    const usc_dtype d = device->tensor.dtype, r = reference->tensor.dtype;
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

static const usc_finding *accused(const pair *p)
{
    const usc_finding *worst = usc_findings_worst(usc_case_findings(p->w.c));
    return worst != NULL && usc_verdict_flagged(worst->verdict) ? worst : NULL;
}

/* Whether a result is off beside the mean of its tensor by more than what it may have been
 * made of explains: float32 through dozens of layers keeps 19 bits and more, TF32 11 of its
 * inputs. Where there are no numbers it is wrong by what it is. */
static bool is_told(const usc_finding *f)
{
    enum { BITS = 16, ROUNDINGS_OF_ONE = 1024 };
    return f->numbers != USC_NUMBERS_ALL || !(f->bits >= BITS) ||
           f->judgement.n_bad > 0 || f->judgement.max > ROUNDINGS_OF_ONE;
}

/* Without a scale a tensor passes by |reference| alone, and is accused of what is far off
 * beside the mean of its elements: between the two lies what sums of large terms that
 * cancel do and what was inherited, and what damage to small elements does. */
static usc_status judge_bare(pair *p, const char *name, const usc_safetensor *device,
                             const usc_safetensor *reference, usc_error *err)
{
    usc_safetensor typical = {.name = NULL};
    char why[256];
    double beside = 24;
    usc_status st = take_typical(p, reference, &typical, err);
    const bool has = typical.tensor.data != NULL;
    if (st == USC_OK && has) st = judge_by(p, name, device, reference, &typical, err);
    const usc_finding *worst = st == USC_OK && has ? accused(p) : NULL;
    const bool told = !has || (worst != NULL && is_told(worst));
    if (worst != NULL) beside = worst->bits;
    if (st == USC_OK) st = usc_pack_open_case(&p->w, 1, err);
    if (st == USC_OK) st = judge_by(p, name, device, reference, NULL, err);
    worst = st == USC_OK ? accused(p) : NULL;
    if (worst == NULL || told) return st;
    (void)snprintf(why, sizeof why,
                   "it keeps %.1f bits beside the mean of the tensor and %.1f in its "
                   "small elements: as float32 does where large terms cancel or layers "
                   "before have erred, which nobody said",
                   beside, worst->bits);
    st = usc_pack_open_case(&p->w, 1, err);
    return st == USC_OK
               ? usc_pack_lack(&p->w, USC_LACKS_SCALE, USC_VERDICT_UNJUDGED, why, err)
               : st;
}

/* Two tensors of one name. */
static usc_status judge_given(pair *p, const char *name, const usc_safetensor *device,
                              const usc_safetensor *reference, usc_error *err)
{
    const usc_safetensor *s = usc_tensor_set_find(&p->scale, name);
    p->n_float32 += reference->tensor.dtype == USC_F32;
    const bool floats = usc_pack_is_float(device) && usc_pack_is_float(reference) &&
                        device->tensor.dtype != USC_DTYPE_NONE &&
                        reference->tensor.dtype != USC_DTYPE_NONE;
    if (s == NULL && floats && !p->w.foreign &&
        usc_pack_same_shape(&device->tensor, &reference->tensor))
        return judge_bare(p, name, device, reference, err);
    return judge_by(p, name, device, reference, s, err);
}

/* A comparison of a file with itself says nothing. */
static bool is_one_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

static usc_status judge_tensor(pair *p, const char *name, const usc_safetensor *device,
                               const usc_safetensor *reference, usc_error *err)
{
    char why[512];
    if (device == NULL)
        return usc_pack_say(&p->w, USC_VERDICT_WRONG, "", err,
                            "missing: the device gave no such tensor");
    if (reference == NULL)
        return usc_pack_lack(&p->w, USC_LACKS_REFERENCE, USC_VERDICT_UNJUDGED,
                             "there is no reference of that name", err);
    if (is_one_file(device->path, reference->path)) {
        (void)snprintf(why, sizeof why, "both sides are the one file %s",
                       reference->path);
        return usc_pack_lack(&p->w, USC_LACKS_OTHER, USC_VERDICT_UNJUDGED, why, err);
    }
    if (refuse(device, reference, why, sizeof why))
        return usc_pack_lack(&p->w, USC_LACKS_FINER, USC_VERDICT_UNJUDGED, why, err);
    const char *nothing;
    usc_verdict verdict;
    int64_t n_odd;
    usc_status st = find_nothing(device, reference, &nothing, &verdict, &n_odd, err);
    if (st == USC_OK && nothing != NULL)
        st = usc_pack_say(&p->w, verdict, "", err, "%s", nothing);
    else if (st == USC_OK)
        st = judge_given(p, name, device, reference, err);
    if (st == USC_OK) note_odd(p, name, n_odd);
    return st;
}

/* Keeps the first row that accuses. */
static void note_first(pair *p, const usc_result_row *row)
{
    if (p->first > 0 || !usc_verdict_flagged(usc_verdict_by_text(row->verdict))) return;
    p->first = row->call;
    (void)snprintf(p->wrong, sizeof p->wrong, "%s", row->op);
}

static usc_status add_tensor(pair *p, const char *name, const usc_safetensor *device,
                             const usc_safetensor *reference, usc_error *err)
{
    char args[256];
    const usc_safetensor *t = device != NULL ? device : reference;
    const int64_t begin = usc_pack_now();
    usc_arena_reset(&p->arena);
    usc_status st = usc_pack_open_case(&p->w, 1, err);
    if (st == USC_OK) st = judge_tensor(p, name, device, reference, err);
    if (st != USC_OK) return st;
    size_t n = (size_t)snprintf(args, sizeof args, "%s[", usc_pack_dtype_text(t));
    for (int i = 0; i < t->tensor.ndim && n < sizeof args - 24; i++)
        n += (size_t)snprintf(args + n, sizeof args - n, "%s%lld", i > 0 ? ", " : "",
                              (long long)t->tensor.sizes[i]);
    (void)snprintf(args + n, sizeof args - n, "]");
    usc_result_row row = {.call = ++p->n,
                          .phase = "",
                          .op = name,
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
    if (st == USC_OK) note_first(p, &row);
    if (st == USC_OK) st = usc_pack_cause(&p->w, NULL, &found, err);
    if (st != USC_OK || found.code == USC_CAUSE_NONE) return st;
    return usc_pack_put_cause(&p->w, p->result, &row, found.text, err);
}

/* Whether the two have as many tensors, and none of the same name. */
static bool are_by_place(const pair *p)
{
    if (p->device.n != p->reference.n) return false;
    for (int64_t i = 0; i < p->reference.n; i++)
        if (usc_tensor_set_find(&p->device, p->reference.items[i].name) != NULL)
            return false;
    return true;
}

/* The references in their order, then what the device alone has. */
static usc_status judge_all(pair *p, usc_error *err)
{
    usc_status st = USC_OK;
    p->by_place = are_by_place(p);
    for (int64_t i = 0; st == USC_OK && i < p->reference.n; i++) {
        const usc_safetensor *r = &p->reference.items[i];
        const usc_safetensor *d =
            p->by_place ? &p->device.items[i] : usc_tensor_set_find(&p->device, r->name);
        st = add_tensor(p, r->name, d, r, err);
    }
    for (int64_t i = 0; st == USC_OK && !p->by_place && i < p->device.n; i++) {
        const usc_safetensor *d = &p->device.items[i];
        if (usc_tensor_set_find(&p->reference, d->name) == NULL)
            st = add_tensor(p, d->name, d, NULL, err);
    }
    return st;
}

static usc_run run_of(const usc_pack_work *w, const char *device, const char *reference)
{
    const usc_pack_options *o = w->options;
    const char *truth = o->reference_name != NULL ? o->reference_name : reference;
    return (usc_run){.trace = truth,
                     .trace_id = truth,
                     .device = o->device_name != NULL ? o->device_name : device,
                     .standard = w->standard.name,
                     .faults = "",
                     .options = o->scale != NULL ? "{\"scale\": true}" : "{}",
                     .environment = "{}"};
}

static usc_status open_all(pair *p, const char *device, const char *reference,
                           usc_error *err)
{
    const usc_pack_options *o = p->w.options;
    usc_tensor_set_options of = {.dtype = o->raw_dtype[0], .ndim = o->raw_ndim};
    memcpy(of.sizes, o->raw_sizes, sizeof of.sizes);
    usc_status st = usc_tensor_set_open(device, &of, &p->device, err);
    of.dtype = o->raw_dtype[1];
    if (st == USC_OK) st = usc_tensor_set_open(reference, &of, &p->reference, err);
    if (st == USC_OK && o->scale != NULL)
        st = usc_tensor_set_open(o->scale, &of, &p->scale, err);
    if (st != USC_OK) return st;
    const usc_run run = run_of(&p->w, device, reference);
    return usc_pack_begin(&p->w, &run, &p->result, err);
}

/* A line behind what is there already. */
static void add_remark(char *remarks, size_t size, const char *format, ...)
{
    const size_t n = strlen(remarks);
    va_list args;
    if (n + 2 > size) return;
    (void)snprintf(remarks + n, size - n, n > 0 ? "\n" : "");
    va_start(args, format);
    (void)vsnprintf(remarks + strlen(remarks), size - strlen(remarks), format, args);
    va_end(args);
}

static void tell_skipped(const usc_tensor_set *set, char *remarks, size_t size)
{
    if (set->n_skipped > 0)
        add_remark(remarks, size,
                   "%lld files were left out, which hold no tensors; the last: "
                   "%.300s",
                   (long long)set->n_skipped, set->skipped);
}

static usc_status end(pair *p, usc_error *err)
{
    char remarks[4096] = "";
    if (p->first > 0)
        add_remark(
            remarks, sizeof remarks,
            "in the order of the references the first that is wrong is '%s', %lld of "
            "%lld",
            p->wrong, (long long)p->first, (long long)p->n);
    if (p->by_place && strcmp(p->device.items[0].name, p->reference.items[0].name) != 0)
        add_remark(
            remarks, sizeof remarks,
            "no name is in both: the i-th tensor stands for the i-th ('%.200s' for "
            "'%.200s')",
            p->device.items[0].name, p->reference.items[0].name);
    if (p->n_odd > 0)
        add_remark(remarks, sizeof remarks,
                   "NaN or Inf on both sides: %lld element%s of %lld tensor%s, the "
                   "first in '%.200s': no number is compared there",
                   (long long)p->n_odd, p->n_odd == 1 ? "" : "s",
                   (long long)p->n_with_odd, p->n_with_odd == 1 ? "" : "s", p->odd);
    tell_skipped(&p->device, remarks, sizeof remarks);
    tell_skipped(&p->reference, remarks, sizeof remarks);
    add_remark(remarks, sizeof remarks, "%s",
               p->scale.n > 0 ? scale_remark : bare_remark);
    if (p->n_float32 > 0)
        add_remark(remarks, sizeof remarks, float32_remark, (long long)p->n_float32);
    return usc_pack_end(p->result, p->n, remarks, err);
}

usc_status usc_pair_may_write(const char *device, const char *reference,
                              const usc_pack_options *options, usc_error *err)
{
    assert(device && reference && options);
    usc_pack_work w = {.options = options};
    usc_result *r = NULL;
    usc_status st = usc_pack_standard(&w, err);
    if (st != USC_OK || options->force) return st; /* which would replace what is there */
    const usc_run run = run_of(&w, device, reference);
    st = usc_result_create(options->out != NULL ? options->out : "ulpscope-out", &run,
                           options->force, &r, err);
    usc_result_discard(r);
    return st;
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
    usc_tensor_set_close(&p.scale);
    usc_tensor_set_close(&p.reference);
    usc_tensor_set_close(&p.device);
    usc_case_close(p.w.c);
    usc_arena_free(&p.arena);
    return st;
}
