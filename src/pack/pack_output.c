// SPDX-License-Identifier: Apache-2.0
// The verdict on one output from stored operands. S and N come as two numbers per element
// and are given to the judge as one replay that shows exactly them.
#include "pack/pack_finding.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define DELTA 0x1p-20    /* by which a replay moves the inputs */
#define ROUNDING 0x1p-24 /* of float32 */
#define EPS 4.0          /* a jump is met within so many ulps of 1 */

/* Everything that one look needs, in float64 and side by side. */
typedef struct operands {
    usc_tensor device, reference, yardstick, moved, low, flushed;
    bool has_flushed;
} operands;

void usc_pack_say(usc_pack_finding *f, usc_verdict verdict, const char *path,
                  const char *format, ...)
{
    va_list args;
    *f = (usc_pack_finding){.path = path, .verdict = verdict};
    f->j.i_worst = f->j.i_bad = -1;
    f->j.bits = f->j.yardstick_bits = (double)NAN;
    if (verdict == USC_VERDICT_WRONG) f->j.bits = 0;
    va_start(args, format);
    (void)vsnprintf(f->reason, sizeof f->reason, format, args);
    va_end(args);
}

const char *usc_pack_dtype_text(const usc_safetensor *t)
{
    return t->tensor.dtype != USC_DTYPE_NONE ? usc_dtype_info_of(t->tensor.dtype)->name
                                             : t->dtype_name;
}

static usc_status no_memory(const char *path, usc_error *err)
{
    return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", path);
}

static usc_status numel_of(const usc_safetensor *t, int64_t *n, usc_error *err)
{
    return usc_tensor_numel(&t->tensor, n, err);
}

/* ---- operands ---- */

/* Room for `like` in another dtype. */
static usc_status room_like(const usc_pack_work *w, const usc_tensor *like,
                            usc_dtype dtype, usc_tensor *out, usc_error *err)
{
    int64_t n = 0;
    usc_status st = usc_tensor_numel(like, &n, err);
    if (st != USC_OK) return st;
    const size_t size = usc_dtype_info_of(dtype)->size;
    if ((uint64_t)n > SIZE_MAX / 2 / size) return no_memory("an output", err);
    void *data = usc_arena_take(w->arena, (size_t)n * size + 1);
    if (data == NULL) return no_memory("an output", err);
    return usc_tensor_make(out, data, dtype, like->ndim, like->sizes, err);
}

/* The values of `t` as float64; where they lie already, without a copy. */
static usc_status widened(const usc_pack_work *w, const usc_safetensor *t,
                          usc_tensor *out, usc_error *err)
{
    if (t->tensor.dtype == USC_F64) {
        *out = t->tensor;
        return USC_OK;
    }
    int64_t n = 0;
    usc_status st = numel_of(t, &n, err);
    if (st == USC_OK) st = room_like(w, &t->tensor, USC_F64, out, err);
    if (st == USC_OK && n > 0)
        usc_dtype_widen(t->tensor.dtype, t->tensor.data, out->data, (size_t)n);
    return st;
}

/* The replay whose S and N are the stored ones. Where nothing is known but the reference,
 * N = |R| / 2: the operator counts as inexact and no scale changes. */
static usc_status make_replay(const usc_pack_work *w, const usc_pack_operands *o,
                              operands *x, usc_error *err)
{
    int64_t n = 0;
    usc_tensor s = {0}, noise = {0};
    usc_status st = usc_tensor_numel(&x->reference, &n, err);
    if (st == USC_OK) st = room_like(w, &x->reference, USC_F64, &x->moved, err);
    if (st == USC_OK) st = room_like(w, &x->reference, USC_F64, &x->low, err);
    if (st == USC_OK && o->s != NULL) st = widened(w, o->s, &s, err);
    if (st == USC_OK && o->n != NULL) st = widened(w, o->n, &noise, err);
    if (st != USC_OK) return st;
    const double *r = x->reference.data, *s_of = s.data, *n_of = noise.data;
    double *moved = x->moved.data, *low = x->low.data;
    for (int64_t i = 0; i < n; i++) {
        moved[i] = s_of != NULL ? r[i] + fabs(s_of[i]) * DELTA : r[i];
        low[i] = moved[i];
        if (o->bare)
            low[i] += fabs(r[i]) * (0.5 * ROUNDING);
        else if (n_of != NULL && !o->exact)
            low[i] += n_of[i] * ROUNDING;
    }
    return USC_OK;
}

static usc_status load(const usc_pack_work *w, const usc_safetensor *device,
                       const usc_pack_operands *o, operands *x, usc_error *err)
{
    *x = (operands){.device = device->tensor};
    usc_status st = widened(w, o->reference, &x->reference, err);
    if (st == USC_OK && o->yardstick != NULL)
        st = widened(w, o->yardstick, &x->yardstick, err);
    else if (st == USC_OK)
        x->yardstick = x->reference;
    x->has_flushed = o->flushed != NULL;
    if (st == USC_OK && x->has_flushed) st = widened(w, o->flushed, &x->flushed, err);
    return st == USC_OK ? make_replay(w, o, x, err) : st;
}

/* ---- floats ---- */

static usc_status decide(usc_judge *judge, const usc_pack_operands *o, const operands *x,
                         usc_pack_finding *f, usc_error *err)
{
    usc_status st = usc_judge_replay(judge, &x->moved, &x->low, err);
    if (st == USC_OK) st = usc_judge_look(judge, &f->j, err);
    if (st == USC_OK && f->j.needs_appeal) {
        const usc_appeal appeal = {.fan_in = o->fan_in >= 1 ? o->fan_in : 1,
                                   .movement = o->movement,
                                   .flushed = x->has_flushed ? &x->flushed : NULL};
        st = usc_judge_appeal(judge, &appeal, &f->j, err);
    }
    if (st != USC_OK) return st;
    f->verdict = f->j.verdict;
    f->measured = true;
    (void)snprintf(f->reason, sizeof f->reason, "%s", f->j.reason);
    f->n_examples = 0;
    if (f->verdict != USC_VERDICT_PASS)
        st = usc_judge_worst(judge, USC_PACK_EXAMPLES, f->examples, &f->n_examples, err);
    return st;
}

static usc_status judge_once(const usc_pack_work *w, const usc_pack_operands *o,
                             const operands *x, usc_pack_finding *f, usc_error *err)
{
    const usc_judge_options options = {.alloc = w->options->alloc,
                                       .n_threads = w->options->n_threads};
    usc_judge *judge = NULL;
    usc_status st =
        usc_judge_open(&x->device, &x->reference, &x->yardstick, &options, &judge, err);
    if (st == USC_OK) st = decide(judge, o, x, f, err);
    usc_judge_close(judge);
    return st;
}

/* The device's output with the true value wherever it took a step that a replay took as
 * well; *any is false where there is no such element. */
static usc_status without_jumps(const usc_pack_work *w, const usc_pack_operands *o,
                                operands *x, bool *any, usc_error *err)
{
    int64_t n = 0, n_jumps = 0;
    usc_tensor copy;
    *any = false;
    usc_status st = usc_tensor_numel(&x->device, &n, err);
    if (st == USC_OK) st = numel_of(o->jump_at, &n_jumps, err);
    if (st == USC_OK) st = room_like(w, &x->device, x->device.dtype, &copy, err);
    if (st != USC_OK || n == 0) return st;
    const usc_dtype_info *info = usc_dtype_info_of(x->device.dtype);
    const double near = EPS * ldexp(1, 1 - info->sig_bits);
    const int64_t *at = o->jump_at->tensor.data;
    const double *values = o->jump_values->tensor.data, *r = x->reference.data;
    memcpy(copy.data, x->device.data, (size_t)n * info->size);
    for (int64_t i = 0; i < n_jumps; i++) {
        if (at[i] < 0 || at[i] >= n) continue;
        void *place = (unsigned char *)copy.data + (size_t)at[i] * info->size;
        double d;
        usc_dtype_widen(copy.dtype, place, &d, 1);
        if (!(fabs(d - values[i]) <= near * fabs(values[i]))) continue;
        usc_dtype_narrow(copy.dtype, &r[at[i]], place, 1);
        *any = true;
    }
    x->device = copy;
    return USC_OK;
}

static usc_status judge_float(const usc_pack_work *w, const usc_safetensor *device,
                              const usc_pack_operands *o, usc_pack_finding *f,
                              usc_error *err)
{
    operands x;
    bool any = false;
    usc_status st = load(w, device, o, &x, err);
    if (st == USC_OK) st = judge_once(w, o, &x, f, err);
    const bool settled =
        f->verdict == USC_VERDICT_PASS || f->verdict == USC_VERDICT_UNJUDGED;
    if (st != USC_OK || settled || o->jump_at == NULL) return st;
    st = without_jumps(w, o, &x, &any, err);
    return st == USC_OK && any ? judge_once(w, o, &x, f, err) : st;
}

/* ---- what must agree in every bit ---- */

static void show_worst(const usc_tensor *device, const usc_tensor *want,
                       usc_pack_finding *f)
{
    const int64_t i = f->j.i_worst;
    if (i < 0) return;
    const size_t at = (size_t)i * usc_dtype_info_of(device->dtype)->size;
    usc_example *e = &f->examples[0];
    *e = (usc_example){.index = i, .score = (double)INFINITY};
    usc_dtype_widen(device->dtype, (const char *)device->data + at, &e->device, 1);
    usc_dtype_widen(want->dtype, (const char *)want->data + at, &e->reference, 1);
    e->yardstick = e->reference;
    f->n_examples = 1;
}

static usc_status judge_exact(const usc_pack_work *w, const usc_safetensor *device,
                              const usc_pack_operands *o, usc_pack_finding *f,
                              usc_error *err)
{
    const usc_tensor *want = &o->reference->tensor;
    const usc_status st = usc_judge_exact(&device->tensor, want, &f->j, err);
    if (st != USC_OK) return st;
    f->j.yardstick_bits = 24;
    f->verdict = f->j.verdict;
    f->measured = true;
    (void)snprintf(f->reason, sizeof f->reason, "%s", f->j.reason);
    if (f->verdict == USC_VERDICT_PASS) return USC_OK;
    if (usc_pack_same_choice(w, &o->choice, &device->tensor, want)) {
        f->verdict = USC_VERDICT_PASS;
        f->j = (usc_judgement){.bits = 24, .yardstick_bits = 24, .n = f->j.n};
        f->ties = true;
        return USC_OK;
    }
    show_worst(&device->tensor, want, f);
    return USC_OK;
}

/* Dtypes that nobody here computes with. */
static void judge_bytes(const usc_safetensor *device, const usc_pack_operands *o,
                        usc_pack_finding *f)
{
    const usc_safetensor *want = o->reference;
    if (strcmp(want->dtype_name, device->dtype_name) == 0 &&
        want->bytes == device->bytes &&
        memcmp(want->tensor.data, device->tensor.data, (size_t)want->bytes) == 0) {
        f->verdict = USC_VERDICT_PASS;
        f->j.bits = f->j.yardstick_bits = 24;
        return;
    }
    usc_pack_say(f, USC_VERDICT_UNJUDGED, o->path, "%s is not judged yet",
                 usc_pack_dtype_text(device));
}

/* ---- other people's rules ---- */

static usc_status judge_foreign(const usc_pack_work *w, const usc_safetensor *device,
                                const usc_pack_operands *o, usc_pack_finding *f,
                                usc_error *err)
{
    const bool is_float =
        usc_dtype_info_of(o->reference->tensor.dtype)->kind == USC_KIND_FLOAT;
    usc_opinion opinion;
    usc_standard_operands held = {.device = &device->tensor, .op = o->op};
    held.of[is_float ? USC_OPERAND_REFERENCE : USC_OPERAND_NATIVE] =
        &o->reference->tensor;
    if (o->native != NULL) held.of[USC_OPERAND_NATIVE] = &o->native->tensor;
    if (o->yardstick != NULL) held.of[USC_OPERAND_YARDSTICK] = &o->yardstick->tensor;
    const usc_status st = usc_standard_judge(&w->standard, &held, &opinion, err);
    if (st != USC_OK) return st;
    usc_pack_say(f, opinion.verdict, o->path, "%s", opinion.reason);
    int64_t n = 0;
    if (usc_tensor_numel(&device->tensor, &n, err) != USC_OK) return err->status;
    f->j.n = n;
    f->j.bits = (double)NAN; /* they have none */
    f->standard = w->standard.name;
    f->n_metrics = opinion.n_metrics;
    memcpy(f->metrics, opinion.metrics, sizeof f->metrics);
    return USC_OK;
}

usc_status usc_pack_standard(usc_pack_work *w, usc_error *err)
{
    int n;
    const char *name = w->options->standard;
    const usc_status st =
        usc_standard_parse(name != NULL ? name : "ulpscope", &w->standard, err);
    w->foreign = st == USC_OK && w->standard.info != usc_standard_list(&n);
    return st;
}

/* ---- one output ---- */

static bool same_shape(const usc_tensor *a, const usc_tensor *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->sizes, b->sizes, (size_t)a->ndim * sizeof a->sizes[0]) == 0;
}

static void shape_text(const usc_tensor *t, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "[");
    for (int i = 0; i < t->ndim && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%lld", i > 0 ? ", " : "",
                                 (long long)t->sizes[i]);
    if (used < size) (void)snprintf(out + used, size - used, "]");
}

/* A bad pack has operands that are not of one shape, or dtypes that no pack has. */
static usc_status check_operands(const usc_pack_operands *o, usc_error *err)
{
    const usc_safetensor *const all[] = {o->yardstick, o->s, o->n, o->flushed};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i] == NULL) continue;
        const usc_dtype dtype = all[i]->tensor.dtype;
        if ((dtype != USC_F64 && dtype != USC_F32) ||
            !same_shape(&all[i]->tensor, &o->reference->tensor))
            return usc_error_set(
                err, USC_E_CORRUPT, -1,
                "%s: %s: not float32 or float64 of the reference's shape", all[i]->path,
                all[i]->name);
    }
    if (o->jump_at == NULL) return USC_OK;
    if (o->jump_values == NULL || o->jump_at->tensor.dtype != USC_I64 ||
        o->jump_values->tensor.dtype != USC_F64 ||
        !same_shape(&o->jump_at->tensor, &o->jump_values->tensor))
        return usc_error_set(err, USC_E_CORRUPT, -1, "%s: %s: bad list of jumps",
                             o->jump_at->path, o->jump_at->name);
    return USC_OK;
}

static bool is_float(const usc_safetensor *t)
{
    return usc_dtype_info_of(t->tensor.dtype)->kind == USC_KIND_FLOAT;
}

usc_status usc_pack_output(const usc_pack_work *w, const usc_safetensor *device,
                           const usc_pack_operands *o, usc_pack_finding *out,
                           usc_error *err)
{
    const usc_tensor *d = &device->tensor, *r = &o->reference->tensor;
    usc_pack_say(out, USC_VERDICT_WRONG, o->path, "%s", "");
    usc_status st = check_operands(o, err);
    if (st != USC_OK) return st;
    if (!same_shape(d, r)) {
        char got[256], want[256];
        shape_text(d, got, sizeof got);
        shape_text(r, want, sizeof want);
        usc_pack_say(out, USC_VERDICT_WRONG, o->path,
                     "shape %.100s where %.100s is right", got, want);
        return USC_OK;
    }
    if (o->free) {
        out->verdict = USC_VERDICT_PASS;
        out->j.bits = out->j.yardstick_bits = 24;
    } else if (d->dtype == USC_DTYPE_NONE || r->dtype == USC_DTYPE_NONE) {
        judge_bytes(device, o, out);
    } else if (is_float(device) != is_float(o->reference)) {
        usc_pack_say(out, USC_VERDICT_WRONG, o->path, "%s where %s is right",
                     usc_pack_dtype_text(device), usc_pack_dtype_text(o->reference));
        return USC_OK;
    } else if (w->foreign) {
        st = judge_foreign(w, device, o, out, err);
    } else if (is_float(device)) {
        st = judge_float(w, device, o, out, err);
    } else if (d->dtype != r->dtype) {
        usc_pack_say(out, USC_VERDICT_WRONG, o->path, "%s where %s is right",
                     usc_pack_dtype_text(device), usc_pack_dtype_text(o->reference));
        return USC_OK;
    } else {
        st = judge_exact(w, device, o, out, err);
    }
    out->path = o->path;
    out->ndim = d->ndim;
    memcpy(out->sizes, d->sizes, sizeof out->sizes);
    return st;
}
