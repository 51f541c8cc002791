// SPDX-License-Identifier: Apache-2.0
// Replays freed of steps. How strongly a result reacts to its inputs is a slope; a step
// (a label, a rounding, a comparison) that a moved input happens to cross is none, and an
// input that leaves the operator's domain tells nothing. A step is told from a slope by a
// second run, moved USC_NEARER_PART as far, which only float64 can tell from not moved at
// all: along a slope its difference is that part, across a step it is all or nothing, and
// all of it means that the input lies upon the step. Neighbours: slopes.h.
#include "judge/slopes.h"
#include "kernels/walk_load.h"

#include "base/float_env.h"

#include <assert.h>
#include <float.h>
#include <string.h>

static size_t block_at(int64_t n, int64_t at)
{
    return (size_t)(n - at < USC_JUDGE_BLOCK ? n - at : USC_JUDGE_BLOCK);
}

double usc_judge_typical(const usc_walk *walk, int64_t n)
{
    usc_walk_room room;
    double values[USC_JUDGE_BLOCK], sum = 0;
    int64_t live = 0;
    for (int64_t at = 0; at < n; at += USC_JUDGE_BLOCK) {
        const size_t count = block_at(n, at);
        const double *v = usc_walk_load(walk, at, count, &room, values);
        for (size_t i = 0; i < count; i++) {
            if (!isfinite(v[i])) continue;
            sum += v[i] * v[i];
            live++;
        }
    }
    return live > 0 ? sqrt(sum / (double)live) : 0;
}

/* ---- whether there may be any: one pass that ends at the first ---- */

static bool any_suspect(const double *t, const double *m, size_t count, double typical)
{
    bool found = false;
    for (size_t i = 0; i < count; i++)
        found |= usc_is_suspect(t[i], m[i], typical);
    return found;
}

static bool any_steep(const usc_walk *truth, const usc_walk *moved, int64_t n)
{
    usc_walk_room room[2];
    double t_room[USC_JUDGE_BLOCK], m_room[USC_JUDGE_BLOCK], typical = -1;
    for (int64_t at = 0; at < n; at += USC_JUDGE_BLOCK) {
        const size_t count = block_at(n, at);
        const double *t = usc_walk_load(truth, at, count, &room[0], t_room);
        const double *m = usc_walk_load(moved, at, count, &room[1], m_room);
        if (!any_suspect(t, m, count, 0)) continue;
        if (typical < 0) typical = usc_judge_typical(truth, n); /* seldom needed */
        if (any_suspect(t, m, count, typical)) return true;
    }
    return false;
}

static usc_status check(const usc_tensor *const *given, int n_given, int64_t *n,
                        usc_error *err)
{
    for (int i = 0; i < n_given; i++) {
        assert(given[i]);
        const usc_dtype d = given[i]->dtype;
        if (d != USC_F64 && (d != USC_F32 || i < 2))
            return usc_error_set(err, USC_E_DTYPE, -1, "%s: float64 is meant",
                                 usc_dtype_info_of(d)->name);
        const usc_status st =
            usc_walk_check_dims("moved result", given[i], given[0], err);
        if (st != USC_OK) return st;
    }
    return usc_tensor_numel(given[0], n, err);
}

usc_status usc_judge_steep(const usc_tensor *truth, const usc_tensor *moved, bool *out,
                           usc_error *err)
{
    const usc_tensor *const given[] = {truth, moved};
    int64_t n = 0;
    assert(out);
    *out = false;
    const usc_status st = check(given, 2, &n, err);
    if (st != USC_OK || n == 0) return st;
    const usc_walk t = usc_walk_over(truth), m = usc_walk_over(moved);
    const usc_float_env env = usc_float_env_enter();
    *out = any_steep(&t, &m, n);
    usc_float_env_leave(env);
    return USC_OK;
}

/* ---- without them ---- */

enum { TRUTH, MOVED, YARDSTICK, NARROW, NEARER, N_GIVEN };

/* One element that moved as no slope does: what the slope beside it gives; whether the
 * input lies beside a step. */
static double smooth(const double v[N_GIVEN], bool *beside)
{
    const double far = fabs(v[MOVED] - v[TRUTH]), step = v[NEARER] - v[TRUTH];
    *beside = usc_is_beside(far, fabs(step)) && isfinite(v[NEARER]);
    if (!*beside) return v[TRUTH];
    const double most = isnan(far) ? (double)INFINITY : fmin(far, DBL_MAX);
    const double slope = step / USC_NEARER_PART; /* at a root it has no bound */
    return v[TRUTH] + fmax(-most, fmin(most, slope));
}

static bool free_element(const double v[N_GIVEN], double typical, double *wide,
                         double *low, uint8_t *crossed)
{
    const double far = fabs(v[MOVED] - v[TRUTH]), near = fabs(v[NEARER] - v[TRUTH]);
    const bool slope = usc_is_slope(far, near) && isfinite(v[MOVED]);
    bool beside;
    *wide = v[MOVED];
    *low = v[NARROW];
    *crossed = 0;
    if (slope || !usc_is_suspect(v[TRUTH], v[MOVED], typical)) return false;
    const double lost = v[YARDSTICK] - v[TRUTH];
    *wide = smooth(v, &beside);
    if (isfinite(lost)) *low = *wide + lost;
    *crossed = isfinite(v[MOVED]) && isfinite(v[NEARER]) && usc_is_step(far, near);
    return true;
}

usc_status usc_judge_free_steps(const usc_tensor *truth, const usc_tensor *yardstick,
                                const usc_tensor *moved, const usc_tensor *narrow,
                                const usc_tensor *nearer, double *wide, double *low,
                                uint8_t *crossed, bool *any, usc_error *err)
{
    const usc_tensor *const given[N_GIVEN] = {truth, moved, yardstick, narrow, nearer};
    usc_walk walks[N_GIVEN];
    usc_walk_room rooms[N_GIVEN];
    double values[N_GIVEN][USC_JUDGE_BLOCK];
    const double *v[N_GIVEN];
    int64_t n = 0;
    assert(wide && low && crossed && any);
    *any = false;
    const usc_status st = check(given, N_GIVEN, &n, err);
    if (st != USC_OK || n == 0) return st;
    const usc_float_env env = usc_float_env_enter();
    for (int k = 0; k < N_GIVEN; k++)
        walks[k] = usc_walk_over(given[k]);
    const double typical = usc_judge_typical(&walks[TRUTH], n);
    for (int64_t at = 0; at < n; at += USC_JUDGE_BLOCK) {
        const size_t count = block_at(n, at);
        for (int k = 0; k < N_GIVEN; k++)
            v[k] = usc_walk_load(&walks[k], at, count, &rooms[k], values[k]);
        for (size_t i = 0; i < count; i++) {
            const double one[N_GIVEN] = {v[0][i], v[1][i], v[2][i], v[3][i], v[4][i]};
            *any |= free_element(one, typical, &wide[at + (int64_t)i],
                                 &low[at + (int64_t)i], &crossed[at + (int64_t)i]);
        }
    }
    usc_float_env_leave(env);
    return USC_OK;
}
