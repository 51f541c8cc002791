// SPDX-License-Identifier: Apache-2.0
// A verdict from device and reference alone, and a scale where there is one. Neighbour:
// judge_replay.c.
#include "judge/judge_state.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Arrays of one double per element. */
typedef struct rooms {
    usc_alloc alloc;
    size_t size; /* bytes of each */
    double *reference, *s, *n;
} rooms;

static usc_status take(rooms *r, double **out, usc_error *err)
{
    *out = r->alloc.resize(r->alloc.ctx, NULL, 0, r->size);
    if (*out != NULL) return USC_OK;
    return usc_error_set(err, USC_E_NOMEM, -1, "judge: no memory for %zu bytes", r->size);
}

static void give_back(rooms *r)
{
    double *const all[] = {r->reference, r->s, r->n};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i] != NULL) (void)r->alloc.resize(r->alloc.ctx, all[i], r->size, 0);
}

static usc_status contiguous(const usc_tensor *like, const double *data, usc_tensor *out,
                             usc_error *err)
{
    return usc_tensor_make(out, data, USC_F64, like->ndim, like->sizes, err);
}

static size_t count_at(int64_t n, int64_t at)
{
    return (size_t)(n - at < USC_JUDGE_BLOCK ? n - at : USC_JUDGE_BLOCK);
}

static void widen_all(const usc_tensor *t, int64_t n, double *to)
{
    usc_walk_room room;
    double values[USC_JUDGE_BLOCK];
    const usc_walk w = usc_walk_over(t);
    for (int64_t at = 0; at < n; at += USC_JUDGE_BLOCK) {
        const size_t count = count_at(n, at);
        const double *v = usc_walk_load(&w, at, count, &room, values);
        memcpy(to + at, v, count * sizeof *v);
    }
}

/* N = |R| / 2: the operator counts as inexact, and no scale changes. */
static usc_status set_sums(usc_judge *judge, const usc_tensor *reference,
                           const usc_tensor *scale, rooms *r, usc_error *err)
{
    usc_status st = take(r, &r->s, err);
    if (st == USC_OK) st = take(r, &r->n, err);
    if (st != USC_OK) return st;
    widen_all(reference, judge->n, r->n);
    for (int64_t i = 0; i < judge->n; i++)
        r->n[i] = fabs(r->n[i]) * 0.5;
    if (scale != NULL)
        widen_all(scale, judge->n, r->s);
    else
        memset(r->s, 0, r->size);
    return usc_judge_set_sums(judge, r->s, r->n, err);
}

/* R alone first, as it takes no memory; most good outputs end there. */
static usc_status decide(usc_judge *judge, const usc_tensor *reference,
                         const usc_tensor *scale, rooms *r, usc_judgement *out,
                         usc_error *err)
{
    static const usc_appeal appeal = {.fan_in = 1};
    usc_status st = usc_judge_look(judge, out, err);
    if (st != USC_OK || out->verdict == USC_VERDICT_PASS) return st;
    st = set_sums(judge, reference, scale, r, err);
    if (st == USC_OK) st = usc_judge_look(judge, out, err);
    if (st == USC_OK && out->needs_appeal)
        st = usc_judge_appeal(judge, &appeal, out, err);
    return st;
}

static usc_status check(const usc_tensor *device, const usc_tensor *reference,
                        const usc_tensor *scale, usc_error *err)
{
    const usc_dtype r = reference->dtype;
    if (r != USC_F64 && (r != USC_F32 || device->dtype == USC_F64))
        return usc_error_set(err, USC_E_DTYPE, -1,
                             "a %s reference is too coarse for a %s output; give it in "
                             "float64",
                             usc_dtype_info_of(r)->name,
                             usc_dtype_info_of(device->dtype)->name);
    usc_status st = usc_walk_check_dims("reference", reference, device, err);
    if (st == USC_OK && scale != NULL)
        st = usc_judge_check("scale", scale, device, true, err);
    return st;
}

static usc_status judge_floats(const usc_tensor *device, const usc_tensor *reference,
                               const usc_tensor *scale, const usc_judge_options *options,
                               usc_judgement *out, usc_error *err)
{
    rooms r = {.alloc = options->alloc != NULL ? *options->alloc : usc_libc_alloc};
    usc_tensor wide = *reference;
    usc_judge *judge = NULL;
    int64_t n = 0;
    usc_status st = check(device, reference, scale, err);
    if (st == USC_OK) st = usc_tensor_numel(device, &n, err);
    if (st == USC_OK && (uint64_t)n >= SIZE_MAX / sizeof(double))
        st = usc_error_set(err, USC_E_RANGE, -1, "too many elements");
    r.size = ((size_t)n + 1) * sizeof(double);
    if (st == USC_OK && reference->dtype != USC_F64) {
        st = take(&r, &r.reference, err);
        if (st == USC_OK) widen_all(reference, n, r.reference);
        if (st == USC_OK) st = contiguous(reference, r.reference, &wide, err);
    }
    if (st == USC_OK) st = usc_judge_open(device, &wide, &wide, options, &judge, err);
    if (st == USC_OK) st = decide(judge, &wide, scale, &r, out, err);
    usc_judge_close(judge);
    give_back(&r);
    return st;
}

usc_status usc_judge_pair(const usc_tensor *device, const usc_tensor *reference,
                          const usc_tensor *scale, const usc_judge_options *options,
                          usc_judgement *out, usc_error *err)
{
    assert(device && reference);
    assert(out);
    static const usc_judge_options defaults;
    memset(out, 0, sizeof *out);
    const bool floats = usc_dtype_info_of(device->dtype)->kind == USC_KIND_FLOAT &&
                        usc_dtype_info_of(reference->dtype)->kind == USC_KIND_FLOAT;
    if (!floats) return usc_judge_exact(device, reference, out, err);
    const usc_status st = judge_floats(device, reference, scale,
                                       options != NULL ? options : &defaults, out, err);
    if (st != USC_OK) memset(out, 0, sizeof *out);
    return st;
}
