// SPDX-License-Identifier: Apache-2.0
// The life of a judge: opening, closing, its threads. Neighbours: judge_replay.c (what
// the replays add up to), judge_rule.c (what it decides).
#include "judge/judge_state.h"

#include "base/float_env.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static void *take(const usc_alloc *alloc, size_t size)
{
    void *p = alloc->resize(alloc->ctx, NULL, 0, size);
    if (p != NULL) memset(p, 0, size);
    return p;
}

static void give(const usc_alloc *alloc, void *p, size_t size)
{
    if (p != NULL) (void)alloc->resize(alloc->ctx, p, size, 0);
}

static size_t sums_size(const usc_judge *j)
{
    return (size_t)(usc_judge_n_chunks(j) + 1) * sizeof(double);
}

static usc_score_params params_of(usc_dtype dtype)
{
    const usc_dtype_info *info = usc_dtype_info_of(dtype);
    const int p = info->sig_bits;
    const double top = info->largest, edge = top + ldexp(1.0, info->emax - p);
    /* half way to the next number goes to the even one, which may be the largest */
    const bool stays = info->top == USC_TOP_NAN;
    const bool wide = dtype == USC_F64;
    return (usc_score_params){
        .min_power = ldexp(1.0, info->emin),
        .half_ulp = ldexp(1.0, -p),
        .ulp_inverse = ldexp(1.0, p - 1),
        .largest = top,
        .overflow = wide    ? (double)INFINITY
                    : stays ? nextafter(edge, (double)INFINITY)
                            : edge,
        .unit = wide ? 0x1p-53 : 0x1p-24,
        .floor = wide ? 0x1p-1021 : 0x1p-125,
    };
}

static usc_status open_operands(usc_judge *j, const usc_tensor *device,
                                const usc_tensor *reference, const usc_tensor *yardstick,
                                usc_error *err)
{
    const usc_dtype_info *info = usc_dtype_info_of(device->dtype);
    if (info->kind != USC_KIND_FLOAT)
        return usc_error_set(err, USC_E_DTYPE, -1, "the device's output is %s, no float",
                             info->name);
    usc_status st = usc_tensor_numel(device, &j->n, err);
    if (st == USC_OK) st = usc_judge_check("reference", reference, device, false, err);
    if (st == USC_OK) st = usc_judge_check("yardstick", yardstick, device, true, err);
    if (st == USC_OK && j->pairs &&
        (device->ndim == 0 || device->sizes[device->ndim - 1] != 2))
        st = usc_error_set(err, USC_E_SHAPE, device->ndim - 1,
                           "pairs of real and imaginary parts: the last axis is not 2");
    if (st != USC_OK) return st;
    j->device = *device;
    j->dtype = device->dtype;
    j->small = info->emin > usc_dtype_info_of(USC_F32)->emin;
    j->wide = device->dtype == USC_F64;
    j->params = params_of(device->dtype);
    if (j->n == 0) return USC_OK;
    j->d = usc_walk_over(device);
    j->r = usc_walk_over(reference);
    /* A float32 result excuses nothing of a float64 output. */
    j->y = usc_walk_over(j->wide ? reference : yardstick);
    return USC_OK;
}

usc_status usc_judge_open(const usc_tensor *device, const usc_tensor *reference,
                          const usc_tensor *yardstick, const usc_judge_options *options,
                          usc_judge **out, usc_error *err)
{
    assert(device && reference && yardstick);
    assert(out);
    static const usc_judge_options defaults;
    if (options == NULL) options = &defaults;
    const usc_alloc *alloc = options->alloc != NULL ? options->alloc : &usc_libc_alloc;
    *out = NULL;

    usc_judge *j = take(alloc, sizeof *j);
    if (j == NULL) return usc_error_set(err, USC_E_NOMEM, -1, "judge: no memory");
    j->alloc = *alloc;
    j->n_threads = options->n_threads < 1                   ? 1
                   : options->n_threads > USC_JUDGE_THREADS ? USC_JUDGE_THREADS
                                                            : options->n_threads;
    j->kernels = usc_judge_kernels_active();
    j->pairs = options->pairs;
    usc_status st = open_operands(j, device, reference, yardstick, err);
    if (st != USC_OK) goto done;
    j->scratch = take(alloc, (size_t)j->n_threads * sizeof *j->scratch);
    if (j->scratch != NULL) j->chunk_sums = take(alloc, sums_size(j));
    if (j->chunk_sums == NULL) {
        st = usc_error_set(err, USC_E_NOMEM, -1, "judge: no memory");
        goto done;
    }
    const usc_float_env env = usc_float_env_enter();
    j->exact = j->wide || usc_judge_equal(j, &j->r, &j->y); /* wide: Y is R */
    usc_float_env_leave(env);
    *out = j;
    j = NULL;

done:
    usc_judge_close(j);
    return st;
}

void usc_judge_close(usc_judge *judge)
{
    if (judge == NULL) return;
    const usc_alloc alloc = judge->alloc;
    give(&alloc, judge->s, usc_judge_acc_size(judge));
    give(&alloc, judge->n_acc, usc_judge_acc_size(judge));
    give(&alloc, judge->flags, (size_t)judge->n);
    give(&alloc, judge->scratch, (size_t)judge->n_threads * sizeof *judge->scratch);
    give(&alloc, judge->chunk_sums, sums_size(judge));
    give(&alloc, judge, sizeof *judge);
}

/* ---- threads */
