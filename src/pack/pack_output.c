// SPDX-License-Identifier: Apache-2.0
// The verdict on one output from stored operands: what must agree in every bit, and other
// people's rules. Neighbour: pack_float.c.
#include "kernels/kernels.h"
#include "pack/pack_finding.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

usc_status usc_pack_no_memory(const char *path, usc_error *err)
{
    return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", path);
}

uint8_t *usc_pack_marks(const usc_pack_work *w, int64_t n)
{
    uint8_t *marks = usc_arena_take(w->arena, (size_t)n + 1);
    return marks != NULL ? memset(marks, 0, (size_t)n) : NULL;
}

static double element(const usc_tensor *t, int64_t i)
{
    double v;
    const size_t size = usc_dtype_info_of(t->dtype)->size;
    usc_kernels_widen(t->dtype, (const char *)t->data + (size_t)i * size, &v, 1);
    return v;
}

/* `wrong` for elements that have to be exact, with the first of them as examples. */
void usc_pack_say_differ(const usc_tensor *device, const usc_tensor *want,
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

void usc_pack_say_undefined(const usc_pack_operands *o, int64_t n, usc_pack_finding *f)
{
    usc_pack_say(f, USC_VERDICT_UNDEFINED, o->path, "%s",
                 o->why_unpromised != NULL ? o->why_unpromised : "nothing is promised");
    f->j.n = n;
}

bool usc_pack_unpromised(const usc_pack_operands *o, int64_t i)
{
    return o->unpromised != NULL && ((const uint8_t *)o->unpromised->tensor.data)[i] != 0;
}

/* Whether one of the values that conversions give stands there; of any, where none are
 * told. */
static bool is_usual(const usc_pack_operands *o, const usc_tensor *got, int64_t n,
                     int64_t i)
{
    if (o->usual == NULL) return true;
    const usc_tensor *t = &o->usual->tensor;
    const size_t size = usc_dtype_info_of(got->dtype)->size;
    const char *at = (const char *)got->data + (size_t)i * size;
    for (int64_t k = 0; k < t->sizes[0]; k++)
        if (memcmp(at, (const char *)t->data + (size_t)(k * n + i) * size, size) == 0)
            return true;
    return false;
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
    uint8_t *open = usc_pack_marks(w, n);
    if (open == NULL) return usc_pack_no_memory(device->name, err);
    usc_pack_mark_open(w, &o->choice, got, want, open);
    for (int64_t i = 0; i < n; i++) {
        n_open += open[i] != 0;
        if (usc_pack_unpromised(o, i) && is_usual(o, got, n, i)) open[i] = 0;
        n_promised += open[i] != 0;
    }
    if (n_promised > 0) {
        usc_pack_say_differ(got, want, open, n, f);
    } else if (n_open > 0) {
        usc_pack_say_undefined(o, n, f);
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
    const usc_tensor a = usc_safetensor_bytes(want), b = usc_safetensor_bytes(device);
    if (strcmp(want->dtype_name, device->dtype_name) == 0 && a.sizes[0] == b.sizes[0] &&
        memcmp(a.data, b.data, (size_t)a.sizes[0]) == 0) {
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
    int64_t n = 0;
    usc_status st = usc_standard_judge(&w->standard, &held, &opinion, err);
    if (st == USC_OK) st = usc_tensor_numel(&device->tensor, &n, err);
    if (st != USC_OK) return st;
    usc_pack_say(f, opinion.verdict, o->path, "%s", opinion.reason);
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

static usc_status check_floats(const usc_safetensor *t, const usc_pack_operands *o,
                               usc_error *err)
{
    if (t == NULL) return USC_OK;
    const usc_dtype dtype = t->tensor.dtype;
    if ((dtype == USC_F64 || dtype == USC_F32) &&
        same_shape(&t->tensor, &o->reference->tensor))
        return USC_OK;
    return usc_error_set(err, USC_E_CORRUPT, -1,
                         "%s: %s: not float32 or float64 of the reference's shape",
                         t->path, t->name);
}

static usc_status check_marks(const usc_safetensor *t, const usc_pack_operands *o,
                              usc_error *err)
{
    if (t == NULL ||
        (t->tensor.dtype == USC_U8 && same_shape(&t->tensor, &o->reference->tensor)))
        return USC_OK;
    return usc_error_set(err, USC_E_CORRUPT, -1,
                         "%s: %s: not uint8 of the reference's shape", t->path, t->name);
}

/* Both sides of every corner, or none. */
static usc_status check_sides(const usc_pack_operands *o, usc_error *err)
{
    const usc_safetensor *low = o->side_low, *high = o->side_high;
    if (low == NULL && high == NULL) return USC_OK;
    if (low != NULL && high != NULL && low->tensor.dtype == USC_F64 &&
        high->tensor.dtype == USC_F64 &&
        same_shape(&low->tensor, &o->reference->tensor) &&
        same_shape(&high->tensor, &o->reference->tensor))
        return USC_OK;
    return usc_error_set(err, USC_E_CORRUPT, -1, "%s: sides of corners do not fit",
                         o->reference->path);
}

/* Values to choose among, of any shape: layout_of and forgive_pooled look at that. */
static usc_status check_choice(const usc_safetensor *values, usc_error *err)
{
    if (values == NULL || values->tensor.dtype != USC_DTYPE_NONE) return USC_OK;
    return usc_error_set(err, USC_E_CORRUPT, -1,
                         "%s: %s: values to choose among cannot be %.40s", values->path,
                         values->name, values->dtype_name);
}

static usc_status check_jumps(const usc_pack_operands *o, usc_error *err)
{
    const usc_safetensor *places = o->jump_at, *values = o->jump_values;
    if (places == NULL) return USC_OK;
    if (values != NULL && places->tensor.dtype == USC_I64 &&
        values->tensor.dtype == USC_F64 && same_shape(&places->tensor, &values->tensor))
        return USC_OK;
    return usc_error_set(err, USC_E_CORRUPT, -1, "%s: %s: bad list of jumps",
                         places->path, places->name);
}

/* Values of the reference's dtype and shape, along a first axis. */
static usc_status check_usual(const usc_pack_operands *o, usc_error *err)
{
    if (o->usual == NULL) return USC_OK;
    usc_tensor one = o->usual->tensor;
    const bool stacked = one.ndim > 0;
    for (int d = 1; d < one.ndim; d++)
        one.sizes[d - 1] = one.sizes[d];
    one.ndim -= stacked;
    if (stacked && one.dtype == o->reference->tensor.dtype &&
        same_shape(&one, &o->reference->tensor))
        return USC_OK;
    return usc_error_set(err, USC_E_CORRUPT, -1,
                         "%s: %s: not along a first axis of the reference's form",
                         o->usual->path, o->usual->name);
}

/* A bad pack has operands that are not of one shape, or dtypes that no pack has. */
static usc_status check_operands(const usc_pack_operands *o, usc_error *err)
{
    usc_status st = check_floats(o->yardstick, o, err);
    for (int i = 0; i < USC_PACK_LOOKS && st == USC_OK; i++) {
        st = check_floats(o->s[i], o, err);
        if (st == USC_OK) st = check_floats(o->n[i], o, err);
    }
    for (int i = 0; i < USC_PACK_FLUSHED && st == USC_OK; i++)
        st = check_floats(o->flushed[i], o, err);
    if (st != USC_OK) return st;
    st = check_marks(o->unpromised, o, err);
    if (st == USC_OK) st = check_sides(o, err);
    if (st == USC_OK) st = check_usual(o, err);
    if (st == USC_OK) st = check_marks(o->kinds, o, err);
    if (st == USC_OK) st = check_choice(o->choice.values, err);
    return st == USC_OK ? check_jumps(o, err) : st;
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
        st = usc_pack_float(w, device, o, out, err);
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
