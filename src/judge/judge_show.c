// SPDX-License-Identifier: Apache-2.0
// What to show of a judged output: its worst elements, and where along each axis the
// failing ones lie.
#include "judge/judge_state.h"

#include "base/float_env.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Steps to a power of two by which one element is worse than another, and where the first
 * begins: no power of two lies upon the border between two of them. */
#define RANKS 64
#define FIRST_RANK 0.37

static usc_status check_looked(const usc_judge *j, usc_error *err)
{
    if (j->looked) return USC_OK;
    return usc_error_set(err, USC_E_ARG, -1, "a look or an appeal must come first");
}

typedef struct worst {
    usc_example *out;
    int n, n_found;
} worst;

/* A score to a hundredth: where all lie as far off (zeros for whatever is right) the last
 * bits of what they are held to, which a pack keeps as float32, choose none. */
static double rank_of(double score)
{
    return isfinite(score) ? floor(log2(score) * RANKS + FIRST_RANK) : score;
}

/* Keeps the list sorted; elements come in index order, so equal ranks stay in it. */
static void insert_worst(void *ctx, const usc_element *e)
{
    worst *w = ctx;
    const double score = e->bad ? (double)INFINITY : e->score;
    const bool full = w->n_found == w->n;
    if (full && !(score > w->out[w->n - 1].score)) return; /* most end here */
    const double rank = rank_of(score);
    if (full && !(rank > rank_of(w->out[w->n - 1].score))) return;
    int at = full ? w->n - 1 : w->n_found++;
    for (; at > 0 && rank_of(w->out[at - 1].score) < rank; at--)
        w->out[at] = w->out[at - 1];
    w->out[at] = (usc_example){.index = e->index,
                               .device = e->d,
                               .reference = e->r,
                               .yardstick = e->y,
                               .score = score};
}

usc_status usc_judge_worst(usc_judge *judge, int n, usc_example *out, int *n_found,
                           usc_error *err)
{
    assert(judge);
    assert(n <= 0 || out);
    assert(n_found);
    *n_found = 0;
    const usc_status st = check_looked(judge, err);
    if (st != USC_OK || n <= 0) return st;
    worst w = {.out = out, .n = n};
    const usc_float_env env = usc_float_env_enter();
    usc_judge_each(judge, &judge->view, insert_worst, &w);
    usc_float_env_leave(env);
    *n_found = w.n_found;
    return USC_OK;
}

enum { SLICES = 64 };

typedef struct positions {
    const usc_judge *j;
    double counts[USC_MAX_DIMS][SLICES];
} positions;

static int slice_of(int64_t position, int64_t size)
{
    return (int)(((double)position + 0.5) * SLICES / (double)size);
}

static void count_position(void *ctx, const usc_element *e)
{
    positions *p = ctx;
    if (!e->bad && !(e->score > p->j->view.t_fast)) return;
    int64_t rest = e->index;
    for (int axis = p->j->device.ndim - 1; axis >= 0; axis--) {
        const int64_t size = p->j->device.sizes[axis];
        p->counts[axis][slice_of(rest % size, size)] += 1;
        rest /= size;
    }
}

usc_status usc_judge_positions(usc_judge *judge, float out[USC_MAX_DIMS][64],
                               usc_error *err)
{
    assert(judge);
    assert(out);
    memset(out, 0, sizeof(float) * USC_MAX_DIMS * SLICES);
    const usc_status st = check_looked(judge, err);
    if (st != USC_OK || judge->n == 0) return st;
    positions p = {.j = judge};
    const usc_float_env env = usc_float_env_enter();
    usc_judge_each(judge, &judge->view, count_position, &p);
    usc_float_env_leave(env);
    for (int axis = 0; axis < judge->device.ndim; axis++) {
        const int64_t size = judge->device.sizes[axis];
        double held[SLICES] = {0}; /* elements in each slice */
        for (int64_t i = 0; i < size; i++)
            held[slice_of(i, size)] += (double)(judge->n / size);
        for (int s = 0; s < SLICES; s++)
            if (held[s] > 0) out[axis][s] = (float)(p.counts[axis][s] / held[s]);
    }
    return USC_OK;
}
