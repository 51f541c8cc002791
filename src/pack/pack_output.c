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
    usc_status st = usc_judge_look(judge, &f->j, err);
    if (st == USC_OK && f->j.verdict != USC_VERDICT_PASS) {
        st = usc_judge_replay(judge, &x->moved, &x->low, err);
        if (st == USC_OK) st = usc_judge_look(judge, &f->j, err);
    }
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
                                       .n_threads = w->options->n_threads,
                                       .pairs = o->pairs};
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

static uint8_t *marks_of(const usc_pack_work *w, int64_t n)
{
    uint8_t *marks = usc_arena_take(w->arena, (size_t)n + 1);
    return marks != NULL ? memset(marks, 0, (size_t)n) : NULL;
}

static double element(const usc_tensor *t, int64_t i)
{
    double v;
    const size_t size = usc_dtype_info_of(t->dtype)->size;
    usc_dtype_widen(t->dtype, (const char *)t->data + (size_t)i * size, &v, 1);
    return v;
}

/* `wrong` for elements that have to be exact, with the first of them as examples. */
static void say_differ(const usc_tensor *device, const usc_tensor *want,
                       const uint8_t *open, int64_t n, usc_pack_finding *f)
{
    usc_judgement j = {.n = n, .yardstick_bits = 24, .i_worst = -1, .i_bad = -1};
    f->n_examples = 0;
    for (int64_t i = 0; i < n; i++) {
        if (open[i] == 0) continue;
        if (j.n_mismatch++ == 0) j.i_worst = i;
        if (f->n_examples == USC_PACK_EXAMPLES) continue;
        const double right = element(want, i);
        f->examples[f->n_examples++] =
            (usc_example){i, element(device, i), right, right, (double)INFINITY};
    }
    f->j = j;
    f->measured = true;
    f->verdict = USC_VERDICT_WRONG;
    (void)snprintf(f->reason, sizeof f->reason, "%lld elements differ",
                   (long long)j.n_mismatch);
}

static void say_undefined(const usc_pack_operands *o, int64_t n, usc_pack_finding *f)
{
    usc_pack_say(f, USC_VERDICT_UNDEFINED, o->path, "%s",
                 o->why_unpromised != NULL ? o->why_unpromised : "nothing is promised");
    f->j.n = n;
}

static bool unpromised_at(const usc_pack_operands *o, int64_t i)
{
    return o->unpromised != NULL && ((const uint8_t *)o->unpromised->tensor.data)[i] != 0;
}

/* An operator that rounds gives the exact result; subnormals may be flushed. */
static usc_status check_rounding(const usc_pack_work *w, const operands *x,
                                 usc_pack_finding *f, usc_error *err)
{
    int64_t n = 0, n_open = 0;
    usc_tensor want;
    usc_status st = usc_tensor_numel(&x->device, &n, err);
    if (st == USC_OK) st = room_like(w, &x->device, x->device.dtype, &want, err);
    uint8_t *open = st == USC_OK ? marks_of(w, n) : NULL;
    if (st != USC_OK) return st;
    if (open == NULL) return no_memory("an output", err);
    const double tiny = ldexp(1, usc_dtype_info_of(want.dtype)->emin);
    usc_dtype_narrow(want.dtype, x->reference.data, want.data, (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        const double d = element(&x->device, i), r = element(&want, i);
        const bool same = d == r || (isnan(d) && isnan(r));
        open[i] = !same && !(d == 0 && fabs(r) < tiny);
        n_open += open[i];
    }
    if (n_open > 0) say_differ(&x->device, &want, open, n, f);
    return USC_OK;
}

/* The device's output with the true value wherever nothing is promised. */
static usc_status without_unpromised(const usc_pack_work *w, const usc_pack_operands *o,
                                     operands *x, bool *any, usc_error *err)
{
    int64_t n = 0;
    usc_tensor copy;
    *any = false;
    usc_status st = usc_tensor_numel(&x->device, &n, err);
    if (st == USC_OK) st = room_like(w, &x->device, x->device.dtype, &copy, err);
    if (st != USC_OK || n == 0) return st;
    const size_t size = usc_dtype_info_of(copy.dtype)->size;
    const double *r = x->reference.data;
    memcpy(copy.data, x->device.data, (size_t)n * size);
    for (int64_t i = 0; i < n; i++) {
        unsigned char *place = (unsigned char *)copy.data + (size_t)i * size;
        if (!unpromised_at(o, i)) continue;
        usc_dtype_narrow(copy.dtype, &r[i], place, 1);
        *any |= memcmp(place, (const char *)x->device.data + (size_t)i * size, size) != 0;
    }
    x->device = copy;
    return USC_OK;
}

static bool accused(const usc_pack_finding *f)
{
    return f->verdict != USC_VERDICT_PASS && f->verdict != USC_VERDICT_UNJUDGED;
}

/* One that fails is judged again without the steps that a replay took just as the device
 * did, and without the elements of which the operator promises nothing. */
static usc_status judge_float(const usc_pack_work *w, const usc_safetensor *device,
                              const usc_pack_operands *o, usc_pack_finding *f,
                              usc_error *err)
{
    operands x;
    bool any = false;
    usc_status st = load(w, device, o, &x, err);
    if (st == USC_OK) st = judge_once(w, o, &x, f, err);
    if (st == USC_OK && f->verdict == USC_VERDICT_PASS && o->rounding)
        return check_rounding(w, &x, f, err);
    if (st == USC_OK && accused(f) && o->jump_at != NULL) {
        st = without_jumps(w, o, &x, &any, err);
        if (st == USC_OK && any) st = judge_once(w, o, &x, f, err);
    }
    if (st != USC_OK || !accused(f) || o->unpromised == NULL) return st;
    st = without_unpromised(w, o, &x, &any, err);
    if (st == USC_OK && any) st = judge_once(w, o, &x, f, err);
    if (st == USC_OK && any && f->verdict == USC_VERDICT_PASS)
        say_undefined(o, f->j.n, f);
    return st;
}

/* ---- what must agree in every bit ---- */

static usc_status judge_exact(const usc_pack_work *w, const usc_safetensor *device,
                              const usc_pack_operands *o, usc_pack_finding *f,
                              usc_error *err)
{
    const usc_tensor *got = &device->tensor, *want = &o->reference->tensor;
    const usc_status st = usc_judge_exact(got, want, &f->j, err);
    if (st != USC_OK) return st;
    f->j.yardstick_bits = 24;
    f->verdict = f->j.verdict;
    f->measured = true;
    if (f->verdict == USC_VERDICT_PASS) return USC_OK;
    const int64_t n = f->j.n;
    int64_t n_open = 0, n_promised = 0;
    uint8_t *open = marks_of(w, n);
    if (open == NULL) return no_memory(device->name, err);
    usc_pack_mark_open(w, &o->choice, got, want, open);
    for (int64_t i = 0; i < n; i++) {
        n_open += open[i] != 0;
        if (unpromised_at(o, i)) open[i] = 0;
        n_promised += open[i] != 0;
    }
    if (n_promised > 0) {
        say_differ(got, want, open, n, f);
    } else if (n_open > 0) {
        say_undefined(o, n, f);
    } else {
        f->verdict = USC_VERDICT_PASS;
        f->j = (usc_judgement){.bits = 24, .yardstick_bits = 24, .n = n};
        f->ties = true;
    }
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
    if (o->unpromised != NULL &&
        (o->unpromised->tensor.dtype != USC_U8 ||
         !same_shape(&o->unpromised->tensor, &o->reference->tensor)))
        return usc_error_set(err, USC_E_CORRUPT, -1,
                             "%s: %s: not uint8 of the reference's shape",
                             o->unpromised->path, o->unpromised->name);
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
