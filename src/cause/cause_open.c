// SPDX-License-Identifier: Apache-2.0
// Opens the search for the cause of one accused output. Neighbours: cause.c, which asks.
#include "cause/cause_state.h"

#include <assert.h>
#include <string.h>

#include "tensor/walk.h"

static bool like(const usc_tensor *t, const usc_tensor *device)
{
    return t->ndim == device->ndim &&
           memcmp(t->sizes, device->sizes, (size_t)t->ndim * sizeof t->sizes[0]) == 0;
}

/* Whether every axis of a tensor is one of the last of the device's, or of size 1. */
static bool broadcasts(const usc_tensor *t, const usc_tensor *device)
{
    const int more = device->ndim - t->ndim;
    if (more < 0 || t->ndim == 0) return false;
    for (int a = 0; a < t->ndim; a++)
        if (t->sizes[a] != 1 && t->sizes[a] != device->sizes[a + more]) return false;
    return true;
}

/* Whether a tensor may be what the device gave, or part of it, or an index of its rows.
 */
static bool useful(const usc_tensor *t, const usc_tensor *device)
{
    const usc_kind kind = usc_dtype_info_of(t->dtype)->kind;
    const bool index = kind == USC_KIND_INT || kind == USC_KIND_UINT;
    usc_tensor rows = *device;
    if (index && t->ndim > 0 && t->ndim < device->ndim) rows.ndim = t->ndim;
    return like(t, &rows) || (kind == USC_KIND_FLOAT && broadcasts(t, device));
}

static bool take_named(usc_cause *c, const usc_cause_operands *o,
                       const usc_cause_named *from, int n, operand **out, int *n_out)
{
    *n_out = 0;
    *out = usc_arena_take(&c->kept, (size_t)n * sizeof **out + 1);
    if (*out == NULL) return false;
    for (int i = 0; i < n; i++) {
        operand *taken = &(*out)[*n_out];
        if (!useful(&from[i].tensor, o->device)) continue;
        if (!usc_cause_operand(&from[i].tensor, &c->kept, taken)) return false;
        char *name = usc_arena_take(&c->kept, strlen(from[i].name) + 1);
        if (name == NULL) return false;
        taken->name = strcpy(name, from[i].name);
        (*n_out)++;
    }
    return true;
}

static usc_status check(const usc_cause_operands *o, usc_error *err)
{
    int64_t n = 0;
    usc_status st = usc_tensor_numel(o->device, &n, err);
    if (st == USC_OK) st = usc_walk_check_dims("truth", o->truth, o->device, err);
    if (st == USC_OK) st = usc_walk_check_dims("yardstick", o->yardstick, o->device, err);
    if (st != USC_OK) return st;
    if (n == 0) return usc_error_set(err, USC_E_SHAPE, -1, "the output is empty");
    const usc_kind kind = usc_dtype_info_of(o->device->dtype)->kind;
    const usc_kind truth = usc_dtype_info_of(o->truth->dtype)->kind;
    if (kind == USC_KIND_NONE || truth == USC_KIND_NONE ||
        (kind == USC_KIND_FLOAT) != (truth == USC_KIND_FLOAT) ||
        usc_dtype_info_of(o->yardstick->dtype)->kind == USC_KIND_NONE)
        return usc_error_set(err, USC_E_DTYPE, -1,
                             "no cause of such dtypes: the device has %s, the truth %s",
                             usc_dtype_info_of(o->device->dtype)->name,
                             usc_dtype_info_of(o->truth->dtype)->name);
    return USC_OK;
}

/* Formats that no dtype of the call has room for: nobody rounds to those. */
static unsigned barred(const usc_cause_operands *o)
{
    bool half = o->device->dtype == USC_F16, brain = o->device->dtype == USC_BF16;
    bool wide = !half && !brain;
    for (int i = 0; i < o->n_inputs; i++) {
        const usc_dtype t = o->inputs[i].tensor.dtype;
        half |= t == USC_F16;
        brain |= t == USC_BF16;
        wide |= t == USC_F32 || t == USC_F64;
    }
    return wide ? 0
                : (brain ? 0 : USC_CAUSE_BF16) | (half ? 0 : USC_CAUSE_F16) |
                      USC_CAUSE_TF32;
}

static bool take_operands(usc_cause *c, const usc_cause_operands *o)
{
    const usc_dtype_info *info = usc_dtype_info_of(o->device->dtype);
    const bool narrow = info->kind == USC_KIND_FLOAT && info->sig_bits < 24;
    c->floats = info->kind == USC_KIND_FLOAT;
    c->bits = narrow ? info->sig_bits : 24;
    c->emin = narrow ? info->emin : -126;
    c->least_normal = narrow ? ldexp(1, info->emin) : 0;
    c->safely = narrow ? ldexp(1, info->emax) : 0;
    c->has_before = o->before != NULL && like(o->before, o->device);
    c->verdict = o->verdict;
    c->effective = o->bits;
    c->heads = o->heads;
    c->parts = o->parts;
    c->formats_barred = barred(o);
    usc_cause_hint(c, o->adds, o->formats);
    return usc_cause_operand(o->device, &c->kept, &c->d) &&
           usc_cause_operand(o->truth, &c->kept, &c->t) &&
           usc_cause_operand(o->yardstick, &c->kept, &c->y) &&
           (!c->has_before || usc_cause_operand(o->before, &c->kept, &c->before)) &&
           take_named(c, o, o->inputs, o->n_inputs, &c->inputs, &c->n_inputs) &&
           take_named(c, o, o->others, o->n_others, &c->others, &c->n_others);
}

/* Puts what is excused right, in a copy. */
static bool excuse_odd(usc_cause *c)
{
    operand *d = &c->d;
    unsigned char *copy = NULL;
    for (int64_t i = 0; i < d->n; i++) {
        const double right = rounded(c, value_at(&c->t, i));
        if (isfinite(value_at(d, i)) || !isfinite(right)) continue;
        if (copy == NULL) {
            copy = usc_arena_take(&c->kept, (size_t)d->n * d->size);
            if (copy == NULL) return false;
            memcpy(copy, d->data, (size_t)d->n * d->size);
            d->data = copy;
        }
        usc_dtype_narrow(d->dtype, &right, copy + (size_t)i * d->size, 1);
    }
    return true;
}

usc_status usc_cause_open(const usc_cause_operands *operands, usc_cause **out,
                          usc_error *err)
{
    assert(operands && out);
    const usc_alloc *alloc = operands->alloc != NULL ? operands->alloc : &usc_libc_alloc;
    *out = NULL;
    const usc_status st = check(operands, err);
    if (st != USC_OK) return st;
    usc_cause *c = alloc->resize(alloc->ctx, NULL, 0, sizeof *c);
    if (c == NULL) return usc_no_memory("search for a cause", err);
    *c = (usc_cause){.kept = {.alloc = *alloc}, .work = {.alloc = *alloc}};
    if (!take_operands(c, operands) ||
        (operands->odd_is_excused && c->floats && !excuse_odd(c)) ||
        !usc_cause_gather(c)) {
        usc_cause_close(c);
        return usc_no_memory("search for a cause", err);
    }
    usc_arena_reset(&c->work);
    *out = c;
    return USC_OK;
}

void usc_cause_close(usc_cause *c)
{
    if (c == NULL) return;
    const usc_alloc alloc = c->kept.alloc;
    usc_arena_free(&c->kept);
    usc_arena_free(&c->work);
    alloc.resize(alloc.ctx, c, sizeof *c, 0);
}

void usc_cause_hint(usc_cause *c, bool adds, unsigned formats)
{
    c->adds = adds;
    c->formats = formats;
}
