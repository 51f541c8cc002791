// SPDX-License-Identifier: Apache-2.0
// Perturbed inputs of a replay. Signs come from a counter, not from a sequence: element i
// of replay k moves the same way whoever computes it and in whatever order.
#include "kernels/walk_load.h"

#include "base/compiler.h"
#include "base/float_env.h"

#include <assert.h>
#include <math.h>

/* First four rows of Hadamard's matrix: over four replays, elements at the same place in
 * up to four arguments move in orthogonal ways. */
static const signed char hadamard[4][4] = {
    {1, 1, 1, 1}, {1, -1, 1, -1}, {1, 1, -1, -1}, {1, -1, -1, 1}};

/* The finalizer of splitmix64: each input bit changes half of the output bits. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t stream_of(uint64_t seed, uint64_t k, uint64_t salt)
{
    const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15);
    return mix(mix(mix(seed + odd) + (k + 1) * odd) + salt * odd);
}

static uint64_t draw(uint64_t stream, uint64_t counter)
{
    return mix(stream + (counter + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

/* x times one of two factors, as float32 holds it; doubles beyond float32 stay doubles.
 */
static double moved(double x, double factor, bool wide)
{
    const double y = x * factor;
    const double narrow = (double)(float)y;
    if (!isfinite(narrow)) return wide && isfinite(y) ? y : x;
    return wide && fabs(y) < 0x1p-126 ? y : narrow;
}

typedef struct perturb_work {
    double factors[2];  /* by sign bit */
    double share, full; /* share < 1: which elements move, and their factor */
    uint64_t stream;
    bool wide;
} perturb_work;

static USC_NOINLINE void perturb_block(const perturb_work *w, int64_t at, size_t count,
                                       const double *x, double *out)
{
    if (w->share < 1) {
        const double below = w->share * 0x1p64;
        for (size_t i = 0; i < count; i++) {
            const bool hit = (double)draw(w->stream, (uint64_t)at + i) < below;
            const double y = x[i] * w->full;
            out[i] = hit && isfinite(y) ? y : x[i];
        }
        return;
    }
    for (size_t i = 0; i < count; i += 64) { /* blocks begin at multiples of 64 */
        uint64_t bits = draw(w->stream, ((uint64_t)at + i) / 64);
        const size_t end = count - i < 64 ? count : i + 64;
        for (size_t k = i; k < end; k++, bits >>= 1)
            out[k] = moved(x[k], w->factors[bits & 1], w->wide);
    }
}

usc_status usc_perturb(const usc_tensor *x, const usc_perturbation *how, double *out,
                       usc_error *err)
{
    assert(x && how);
    assert(out);
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
        .wide = x->dtype == USC_F64,
    };
    const usc_walk walk = usc_walk_over(x);
    usc_walk_room room;
    double values[USC_JUDGE_BLOCK];
    const usc_float_env env = usc_float_env_enter();
    for (int64_t at = 0; at < n; at += USC_JUDGE_BLOCK) {
        const size_t count =
            (size_t)(n - at < USC_JUDGE_BLOCK ? n - at : USC_JUDGE_BLOCK);
        const double *v = usc_walk_load(&walk, at, count, &room, values);
        perturb_block(&w, at, count, v, out + at);
    }
    usc_float_env_leave(env);
    return USC_OK;
}
