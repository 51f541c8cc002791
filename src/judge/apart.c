// SPDX-License-Identifier: Apache-2.0
// Whether float32 and float64 compute one function: how many elements differ by what no
// rounding explains, neither that of the inputs nor that of the steps inside. What lies
// between them is then no measure of what float32 loses.
#include "kernels/walk_load.h"

#include "base/float_env.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define FAR 0x1p-14 /* of a result's size: float32 seldom loses as much */
#define NOISE 16    /* times what moved inputs, or other roundings of the steps, do */
#define MOST 0.05   /* of the elements may lie further off: single steps and bad tails */

/* Operands of equal dims, a block at a time. */
enum { TRUTH, YARDSTICK, MOVED, WAS, MOST_GIVEN };

typedef struct blocks {
    int n_given;
    usc_walk walks[MOST_GIVEN];
    usc_walk_room rooms[MOST_GIVEN];
    double values[MOST_GIVEN][USC_JUDGE_BLOCK];
    const double *v[MOST_GIVEN];
    int64_t n;
} blocks;

static usc_status begin(blocks *b, const usc_tensor *const *given, int n_given,
                        usc_error *err)
{
    static const char *const names[] = {"reference", "yardstick", "moved result",
                                        "result before"};
    b->n_given = n_given;
    for (int i = 0; i < n_given; i++) {
        assert(given[i]);
        const usc_status st = usc_walk_check_dims(names[i], given[i], given[0], err);
        if (st != USC_OK) return st;
        if (given[i]->dtype != USC_F64 && given[i]->dtype != USC_F32)
            return usc_error_set(err, USC_E_DTYPE, -1, "%s: float32 or float64 is meant",
                                 names[i]);
        b->walks[i] = usc_walk_over(given[i]);
    }
    return usc_tensor_numel(given[0], &b->n, err);
}

static size_t load(blocks *b, int64_t at)
{
    const size_t count =
        (size_t)(b->n - at < USC_JUDGE_BLOCK ? b->n - at : USC_JUDGE_BLOCK);
    for (int i = 0; i < b->n_given; i++)
        b->v[i] = usc_walk_load(&b->walks[i], at, count, &b->rooms[i], b->values[i]);
    return count;
}

static double size_of(blocks *b)
{
    double sum = 0;
    int64_t live = 0;
    for (int64_t at = 0; at < b->n; at += USC_JUDGE_BLOCK) {
        const size_t count = load(b, at);
        for (size_t i = 0; i < count; i++) {
            const double t = b->v[TRUTH][i];
            if (!isfinite(t)) continue;
            sum += t * t;
            live++;
        }
    }
    return live > 0 ? sqrt(sum / (double)live) : 0;
}

/* Marks what lies far off; *far: whether that is more than a few. */
static void mark(blocks *b, uint8_t *marks, bool *far)
{
    const double least = size_of(b);
    int64_t n_odd = 0, n_known = 0;
    for (int64_t at = 0; at < b->n; at += USC_JUDGE_BLOCK) {
        const size_t count = load(b, at);
        for (size_t i = 0; i < count; i++) {
            const double t = b->v[TRUTH][i], apart = fabs(b->v[YARDSTICK][i] - t);
            const bool odd = isfinite(apart) && apart > FAR * fmax(fabs(t), least);
            marks[at + (int64_t)i] = odd;
            n_known += isfinite(apart);
            n_odd += odd;
        }
    }
    *far = (double)n_odd > MOST * (double)n_known;
}

/* Takes the marks from what moves as much. */
static void explain(blocks *b, uint8_t *marks, bool *far)
{
    int64_t n_odd = 0, n_known = 0;
    for (int64_t at = 0; at < b->n; at += USC_JUDGE_BLOCK) {
        const size_t count = load(b, at);
        for (size_t i = 0; i < count; i++) {
            const double apart = fabs(b->v[YARDSTICK][i] - b->v[TRUTH][i]);
            const double by = fabs(b->v[MOVED][i] - b->v[WAS][i]);
            if (isnan(by) || apart <= NOISE * by) marks[at + (int64_t)i] = 0;
            n_known += isfinite(apart);
            n_odd += marks[at + (int64_t)i] != 0;
        }
    }
    *far = (double)n_odd > MOST * (double)n_known;
}

usc_status usc_judge_apart(const usc_tensor *truth, const usc_tensor *yardstick,
                           uint8_t *marks, bool *far, usc_error *err)
{
    assert(marks && far);
    const usc_tensor *const given[] = {truth, yardstick};
    blocks b = {0};
    *far = false;
    const usc_status st = begin(&b, given, 2, err);
    if (st != USC_OK) return st;
    const usc_float_env env = usc_float_env_enter();
    mark(&b, marks, far);
    usc_float_env_leave(env);
    return USC_OK;
}

usc_status usc_judge_explain(const usc_tensor *truth, const usc_tensor *yardstick,
                             const usc_tensor *moved, const usc_tensor *was,
                             uint8_t *marks, bool *far, usc_error *err)
{
    assert(marks && far);
    const usc_tensor *const given[] = {truth, yardstick, moved, was};
    blocks b = {0};
    *far = false;
    const usc_status st = begin(&b, given, MOST_GIVEN, err);
    if (st != USC_OK) return st;
    const usc_float_env env = usc_float_env_enter();
    explain(&b, marks, far);
    usc_float_env_leave(env);
    return USC_OK;
}
