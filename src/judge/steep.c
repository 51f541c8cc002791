// SPDX-License-Identifier: Apache-2.0
// Whether a perturbed replay moved further than a slope usually does: then a step may lie
// between, and somebody has to look closer. One pass that ends at the first such element.
#include "kernels/walk_load.h"

#include "base/float_env.h"

#include <assert.h>
#include <math.h>

static double root_mean_square(const usc_walk *walk, int64_t n)
{
    usc_walk_room room;
    double values[USC_JUDGE_BLOCK], sum = 0;
    int64_t live = 0;
    for (int64_t at = 0; at < n; at += USC_JUDGE_BLOCK) {
        const size_t count =
            (size_t)(n - at < USC_JUDGE_BLOCK ? n - at : USC_JUDGE_BLOCK);
        const double *v = usc_walk_load(walk, at, count, &room, values);
        for (size_t i = 0; i < count; i++) {
            if (!isfinite(v[i])) continue;
            sum += v[i] * v[i];
            live++;
        }
    }
    return live > 0 ? sqrt(sum / (double)live) : 0;
}

/* Whether an element of one block moved by more than `share` of max(|truth|, least). */
static bool steep_block(const double *t, const double *m, size_t count, double share,
                        double least)
{
    bool found = false;
    for (size_t i = 0; i < count; i++)
        found |=
            isfinite(t[i]) && !(fabs(m[i] - t[i]) <= share * fmax(fabs(t[i]), least));
    return found;
}

static bool any_steep(const usc_walk *truth, const usc_walk *moved, int64_t n,
                      double share)
{
    usc_walk_room room[2];
    double t_room[USC_JUDGE_BLOCK], m_room[USC_JUDGE_BLOCK], typical = -1;
    for (int64_t at = 0; at < n; at += USC_JUDGE_BLOCK) {
        const size_t count =
            (size_t)(n - at < USC_JUDGE_BLOCK ? n - at : USC_JUDGE_BLOCK);
        const double *t = usc_walk_load(truth, at, count, &room[0], t_room);
        const double *m = usc_walk_load(moved, at, count, &room[1], m_room);
        if (!steep_block(t, m, count, share, 0)) continue;
        if (typical < 0) typical = root_mean_square(truth, n); /* seldom needed */
        if (steep_block(t, m, count, share, typical)) return true;
    }
    return false;
}

usc_status usc_judge_steep(const usc_tensor *truth, const usc_tensor *moved, double share,
                           bool *out, usc_error *err)
{
    assert(truth && moved);
    assert(out);
    *out = false;
    if (truth->dtype != USC_F64 || moved->dtype != USC_F64)
        return usc_error_set(err, USC_E_DTYPE, -1, "%s and %s: float64 is meant",
                             usc_dtype_info_of(truth->dtype)->name,
                             usc_dtype_info_of(moved->dtype)->name);
    usc_status st = usc_walk_check_dims("moved result", moved, truth, err);
    int64_t n = 0;
    if (st == USC_OK) st = usc_tensor_numel(truth, &n, err);
    if (st != USC_OK || n == 0) return st;
    const usc_walk t = usc_walk_over(truth), m = usc_walk_over(moved);
    const usc_float_env env = usc_float_env_enter();
    *out = any_steep(&t, &m, n, share);
    usc_float_env_leave(env);
    return USC_OK;
}
