// SPDX-License-Identifier: Apache-2.0
// Perturbed inputs of a replay. Signs come from a counter, not from a sequence: element i
// of replay k moves the same way whoever computes it and in whatever order.
#include <ulpscope/x/rounding_runs.h>

#include "kernels/walk_load.h"

#include "base/compiler.h"
#include "base/float_env.h"
#include "base/mix.h"

#include <assert.h>
#include <float.h>
#include <math.h>

/* First four rows of Hadamard's matrix: over four replays, elements at the same place in
 * up to four arguments move in orthogonal ways. */
static const signed char hadamard[4][4] = {
    {1, 1, 1, 1}, {1, -1, 1, -1}, {1, 1, -1, -1}, {1, -1, -1, 1}};

static uint64_t stream_of(uint64_t seed, uint64_t k, uint64_t salt)
{
    const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15);
    return usc_mixed(usc_mixed(usc_mixed(seed + odd) + (k + 1) * odd) + salt * odd);
}

static uint64_t draw(uint64_t stream, uint64_t counter)
{
    return usc_mixed(stream + (counter + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

/* x times one of two factors, as float32 holds it; doubles beyond float32 stay doubles.
 */
static double moved(double x, double factor)
{
    const double y = x * factor;
    const double narrow = (double)(float)y;
    if (!isfinite(narrow)) return isfinite(y) ? y : x;
    return fabs(y) < 0x1p-126 ? y : narrow;
}

typedef struct perturb_work {
    double factors[2];      /* by sign bit */
    double share, full;     /* share < 1: which elements move, and their factor */
    uint64_t stream, below; /* draws below that move */
    bool wide;
} perturb_work;

/* The least draw that is no less than a share of all of them, as doubles are compared. */
static uint64_t least_beyond(double share)
{
    uint64_t low = 0, high = UINT64_MAX;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if ((double)middle < share * 0x1p64)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static USC_NOINLINE void perturb_some(const perturb_work *w, int64_t at, size_t count,
                                      const double *x, double *out)
{
    for (size_t i = 0; i < count; i++) {
        const double y = x[i] * w->full;
        const bool hit = draw(w->stream, (uint64_t)at + i) < w->below;
        out[i] = (hit & (fabs(y) <= DBL_MAX)) ? y : x[i];
    }
}

/* Elements of float32 or narrower, which stay numbers of float32. */
static void perturb_narrow(const double factors[2], uint64_t bits, size_t n,
                           const double *x, double *out)
{
    for (size_t k = 0; k < n; k++) {
        const double y = (double)(float)(x[k] * factors[bits >> k & 1]);
        out[k] = fabs(y) <= DBL_MAX ? y : x[k];
    }
}

static USC_NOINLINE void perturb_block(const perturb_work *w, int64_t at, size_t count,
                                       const double *x, double *out)
{
    if (w->share < 1) {
        perturb_some(w, at, count, x, out);
        return;
    }
    for (size_t i = 0; i < count; i += 64) { /* blocks begin at multiples of 64 */
        uint64_t bits = draw(w->stream, ((uint64_t)at + i) / 64);
        const size_t end = count - i < 64 ? count : i + 64;
        if (!w->wide) {
            perturb_narrow(w->factors, bits, end - i, x + i, out + i);
            continue;
        }
        for (size_t k = i; k < end; k++, bits >>= 1)
            out[k] = moved(x[k], w->factors[bits & 1]);
    }
}

/* Into one of two rooms, the other of which is NULL. */
static usc_status perturb(const usc_tensor *x, const usc_perturbation *how, double *wide,
                          float *narrow, usc_error *err)
{
    const usc_dtype_info *info = usc_dtype_info_of(x->dtype);
    if (info->kind != USC_KIND_FLOAT)
        return usc_error_set(err, USC_E_DTYPE, -1, "%s: only floats are moved",
                             info->name);
    if (how->replay < 0 || how->argument < 0)
        return usc_error_set(err, USC_E_ARG, -1, "replay %d, argument %d: from 0 on",
                             how->replay, how->argument);
    int64_t n = 0;
    const usc_status st = usc_tensor_numel(x, &n, err);
    if (st != USC_OK || n == 0) return st;

    const double delta = how->delta > 0 ? how->delta : USC_DELTA;
    const double h = hadamard[how->replay % 4][how->argument % 4];
    const bool some = how->share > 0 && how->share < 1;
    /* same signs for all arguments; which elements move differs */
    const perturb_work w = {
        .factors = {1 - delta * h, 1 + delta * h},
        .share = some ? how->share : 1,
        .full = 1 + delta,
        .stream = stream_of(how->seed, (uint64_t)how->replay,
                            some ? (uint64_t)how->argument + 1 : 0),
        .below = some ? least_beyond(how->share) : 0,
        .wide = x->dtype == USC_F64,
    };
    if (narrow != NULL && (some || w.wide))
        return usc_error_set(err, USC_E_ARG, -1, "float32 does not hold these");
    const usc_walk walk = usc_walk_over(x);
    usc_walk_room room;
    double values[USC_JUDGE_BLOCK], moved_to[USC_JUDGE_BLOCK];
    const usc_float_env env = usc_float_env_enter();
    for (int64_t at = 0; at < n; at += USC_JUDGE_BLOCK) {
        const size_t count =
            (size_t)(n - at < USC_JUDGE_BLOCK ? n - at : USC_JUDGE_BLOCK);
        const double *v = usc_walk_load(&walk, at, count, &room, values);
        perturb_block(&w, at, count, v, wide != NULL ? wide + at : moved_to);
        for (size_t i = 0; narrow != NULL && i < count; i++)
            narrow[at + (int64_t)i] = (float)moved_to[i];
    }
    usc_float_env_leave(env);
    return USC_OK;
}

usc_status usc_perturb(const usc_tensor *x, const usc_perturbation *how, double *out,
                       usc_error *err)
{
    assert(x && how);
    assert(out);
    return perturb(x, how, out, NULL, err);
}

usc_status usc_perturb_narrow(const usc_tensor *x, const usc_perturbation *how,
                              float *out, usc_error *err)
{
    assert(x && how);
    assert(out);
    return perturb(x, how, NULL, out, err);
}
