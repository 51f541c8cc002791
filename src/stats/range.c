// SPDX-License-Identifier: Apache-2.0
// Of the statistics of a tensor those that a running program is watched for. Nothing is
// cleared or carried along that they do not need: most tensors are small.
#include <ulpscope/stats.h>

#include "base/float_env.h"
#include "kernels/kernels.h"
#include "tensor/walk.h"

#include <assert.h>
#include <math.h>

static void add_gathered(const usc_walk *walk, usc_stats_function *add,
                         usc_stats_lanes *lanes)
{
    double scratch[USC_SAMPLE];
    for (int64_t i = 0; i < walk->n; i += USC_SAMPLE) {
        const int64_t rest = walk->n - i;
        const size_t n = rest < USC_SAMPLE ? (size_t)rest : USC_SAMPLE;
        usc_walk_gather(walk, i, n, scratch);
        add(scratch, n, lanes);
    }
}

static void add_dense(const usc_walk *walk, usc_stats_function *add,
                      usc_stats_lanes *lanes)
{
    for (int64_t i = 0; i < walk->n; i += USC_BLOCK) {
        const int64_t rest = walk->n - i;
        add(walk->base + (size_t)i * walk->size,
            rest < USC_BLOCK ? (size_t)rest : USC_BLOCK, lanes);
    }
}

/* As finish_range in stats.c. */
static void finish(const usc_walk *walk, usc_kind kind, const usc_stats_lanes *lanes,
                   usc_range *out)
{
    *out = (usc_range){.n = walk->n * walk->repeat,
                       .n_nan = lanes->n_nan * walk->repeat,
                       .n_pos_inf = lanes->n_pos_inf * walk->repeat,
                       .n_neg_inf = lanes->n_neg_inf * walk->repeat,
                       .min = (double)NAN,
                       .max = (double)NAN};
    if (kind == USC_KIND_FLOAT) {
        if (lanes->min > lanes->max) return;
        out->min = lanes->min + 0.0; /* -0 becomes +0 */
        out->max = lanes->max + 0.0;
    } else if (walk->n > 0) {
        const bool is_unsigned = kind == USC_KIND_UINT;
        out->min =
            is_unsigned ? (double)(uint64_t)lanes->int_min : (double)lanes->int_min;
        out->max =
            is_unsigned ? (double)(uint64_t)lanes->int_max : (double)lanes->int_max;
    }
}

usc_status usc_range_compute(const usc_tensor *t, usc_range *out, usc_error *err)
{
    assert(t);
    assert(out);
    *out = (usc_range){0};
    const usc_kind kind = usc_dtype_info_of(t->dtype)->kind;
    if (kind == USC_KIND_NONE)
        return usc_error_set(err, USC_E_DTYPE, -1, "range of dtype %s",
                             usc_dtype_info_of(t->dtype)->name);
    usc_walk walk;
    const usc_status st = usc_walk_begin(t, kind != USC_KIND_FLOAT, &walk, err);
    if (st != USC_OK) return st;
    usc_stats_function *const add = usc_kernels_get()->range[t->dtype];
    usc_stats_lanes lanes = {.min = (double)INFINITY, .max = -(double)INFINITY};
    const usc_float_env env = usc_float_env_enter();
    if (usc_walk_dense(&walk))
        add_dense(&walk, add, &lanes);
    else
        add_gathered(&walk, add, &lanes);
    finish(&walk, kind, &lanes, out);
    usc_float_env_leave(env);
    return USC_OK;
}

usc_range usc_range_of(const usc_stats *stats)
{
    return (usc_range){stats->n,         stats->n_nan, stats->n_pos_inf,
                       stats->n_neg_inf, stats->min,   stats->max};
}
