// SPDX-License-Identifier: Apache-2.0
// What the replays add up to: S and N of every element, kept from the second
// replay on. Of a first one that came with its look only the operands are kept; a block's
// S and N are then computed when they are asked for. Neighbour: judge_pass.c, which asks.
#include "base/float_env.h"
#include "judge/judge_state.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

enum { HUGE_FROM = 4 << 20 };

size_t usc_judge_acc_size(const usc_judge *j)
{
    return (size_t)j->n * (j->wide ? sizeof(double) : sizeof(float));
}

/* Room for one number per element, not set: the first replay clears it block by block,
 * while it lies in the cache. Huge pages save most of the cost of touching it first. */
static void *take_array(const usc_alloc *alloc, size_t size)
{
    void *p = alloc->resize(alloc->ctx, NULL, 0, size);
#if defined(__linux__)
    const uintptr_t page = 4096, at = ((uintptr_t)p + page - 1) / page * page;
    if (p != NULL && size > HUGE_FROM)
        (void)madvise((void *)at, (size - page) / page * page, MADV_HUGEPAGE);
#endif
    return p;
}

static usc_status take_accumulators(usc_judge *j, usc_error *err)
{
    if (j->n == 0 || j->flags != NULL) return USC_OK;
    if (j->s == NULL) j->s = take_array(&j->alloc, usc_judge_acc_size(j));
    if (j->s != NULL && j->n_acc == NULL)
        j->n_acc = take_array(&j->alloc, usc_judge_acc_size(j));
    if (j->n_acc != NULL) j->flags = take_array(&j->alloc, (size_t)j->n);
    if (j->flags != NULL) return USC_OK;
    return usc_error_set(err, USC_E_NOMEM, -1, "judge: no memory for %lld elements",
                         (long long)j->n);
}

/* Where the sums of a block lie. */
typedef struct sums_at {
    void *s, *n;
} sums_at;

static sums_at stored_at(const usc_judge *j, int64_t at)
{
    const size_t offset = (size_t)at * (j->wide ? sizeof(double) : sizeof(float));
    return (sums_at){(unsigned char *)j->s + offset, (unsigned char *)j->n_acc + offset};
}

static bool add_block(const usc_judge *j, const double *r, const double *rk,
                      const double *yk, size_t count, const sums_at *to)
{
    return j->wide ? usc_judge_accumulate_wide(r, rk, yk, count, to->s, to->n)
                   : j->kernels->accumulate(r, rk, yk, count, to->s, to->n);
}

static void clear_block(const usc_judge *j, const sums_at *to, size_t count)
{
    const size_t size = j->wide ? sizeof(double) : sizeof(float);
    memset(to->s, 0, count * size);
    memset(to->n, 0, count * size);
}

typedef struct replay_work {
    usc_judge *j;
    usc_walk rk, yk;
    bool exact[USC_JUDGE_THREADS];
} replay_work;

static bool accumulate_block(usc_judge *j, usc_judge_scratch *s, const replay_work *w,
                             int64_t at, size_t count)
{
    const double *r = usc_walk_load(&j->r, at, count, &s->room, s->r);
    const double *rk = usc_walk_load(&w->rk, at, count, &s->room, s->k);
    const double *yk = usc_walk_load(&w->yk, at, count, &s->room, s->y);
    const sums_at to = stored_at(j, at);
    if (j->n_replays == 1) {
        clear_block(j, &to, count);
        memset(j->flags + at, 0, count);
    }
    return add_block(j, r, rk, yk, count, &to);
}

static void accumulate_chunks(void *ctx, int thread, int64_t first, int64_t last)
{
    replay_work *w = ctx;
    usc_judge *j = w->j;
    const int64_t chunk = (int64_t)USC_JUDGE_BLOCK * USC_BLOCKS_PER_CHUNK;
    bool exact = true;
    for (int64_t at = first * chunk; at < j->n && at < last * chunk;
         at += USC_JUDGE_BLOCK) {
        const size_t count =
            (size_t)(j->n - at < USC_JUDGE_BLOCK ? j->n - at : USC_JUDGE_BLOCK);
        exact &= accumulate_block(j, &j->scratch[thread], w, at, count);
    }
    w->exact[thread] = exact;
}

static void accumulate(usc_judge *j, const usc_walk *rk, const usc_walk *yk)
{
    replay_work w = {.j = j, .rk = *rk, .yk = *yk};
    for (int t = 0; t < USC_JUDGE_THREADS; t++)
        w.exact[t] = true;
    usc_judge_split(j, accumulate_chunks, &w);
    for (int t = 0; t < USC_JUDGE_THREADS; t++)
        j->exact &= w.exact[t];
}

usc_status usc_judge_store(usc_judge *j, usc_error *err)
{
    const usc_status st = take_accumulators(j, err);
    if (st != USC_OK || !j->lazy) return st;
    j->lazy = false;
    if (j->n > 0) accumulate(j, &j->rk, &j->yk);
    return USC_OK;
}

usc_status usc_judge_replay(usc_judge *judge, const usc_tensor *reference_k,
                            const usc_tensor *yardstick_k, usc_error *err)
{
    assert(judge);
    assert(reference_k && yardstick_k);
    const usc_tensor *like = &judge->device;
    usc_status st =
        usc_judge_check("reference of a replay", reference_k, like, false, err);
    if (st == USC_OK)
        st = usc_judge_check("yardstick of a replay", yardstick_k, like, true, err);
    if (st == USC_OK) st = usc_judge_store(judge, err);
    if (st != USC_OK) return st;
    judge->n_replays++;
    judge->looked = false;
    if (judge->n == 0) return USC_OK;
    const usc_walk rk = usc_walk_over(reference_k), yk = usc_walk_over(yardstick_k);
    accumulate(judge, &rk, &yk);
    return USC_OK;
}

usc_status usc_judge_sums(usc_judge *judge, double *s, double *n, usc_error *err)
{
    assert(judge && judge->n_replays > 0);
    const usc_status st = usc_judge_store(judge, err);
    if (st != USC_OK) return st;
    static const usc_view view;
    const usc_score_params p = usc_judge_params(judge, &view);
    for (int64_t i = 0; i < judge->n; i++) {
        s[i] = p.s_factor * usc_judge_stored(judge, judge->s, i);
        n[i] = p.n_factor * usc_judge_stored(judge, judge->n_acc, i);
    }
    return USC_OK;
}

static void put(const usc_judge *j, void *to, int64_t i, double x)
{
    const double stored = USC_STORED * x, most = (double)FLT_MAX;
    if (j->wide)
        ((double *)to)[i] = stored;
    else /* as a replay is stored, which ends at the largest float */
        ((float *)to)[i] = (float)(stored > most ? most : stored);
}

/* Whether replays to both sides lose nothing in float32. */
static bool loses_nothing(double r, double s, double n)
{
    for (int sign = 1; sign >= -1; sign -= 2) {
        const double rk = r + sign * (s * USC_DELTA), yk = rk + n * 0x1p-24;
        if (rk != yk && !(isnan(rk) && isnan(yk))) return false;
    }
    return true;
}

static bool set_block(usc_judge *j, const double *s, const double *n, int64_t at,
                      size_t count)
{
    usc_judge_scratch *room = &j->scratch[0];
    const double *r = usc_walk_load(&j->r, at, count, &room->r_room, room->r);
    bool exact = true;
    for (size_t k = 0; k < count; k++) {
        const int64_t i = at + (int64_t)k;
        const bool any = isfinite(r[k]);
        exact &= loses_nothing(r[k], s[i], n[i]);
        put(j, j->s, i, any ? s[i] : (double)NAN);
        put(j, j->n_acc, i, any ? n[i] : (double)NAN);
        j->flags[i] = 0;
    }
    return exact;
}

usc_status usc_judge_set_sums(usc_judge *judge, const double *s, const double *n,
                              usc_error *err)
{
    assert(judge && judge->n_replays == 0);
    assert(s && n);
    const usc_status st = take_accumulators(judge, err);
    if (st != USC_OK) return st;
    const usc_float_env env = usc_float_env_enter();
    for (int64_t at = 0; at < judge->n; at += USC_JUDGE_BLOCK) {
        const int64_t left = judge->n - at;
        judge->exact &= set_block(
            judge, s, n, at, (size_t)(left < USC_JUDGE_BLOCK ? left : USC_JUDGE_BLOCK));
    }
    usc_float_env_leave(env);
    judge->n_replays = 1;
    judge->looked = false;
    return USC_OK;
}

usc_scales usc_judge_scales(const usc_judge *j, usc_judge_scratch *s, bool exact,
                            int64_t at, size_t count, const double *r)
{
    static const double nothing[USC_JUDGE_BLOCK];
    if (exact || j->n_replays == 0) return (usc_scales){nothing, nothing}; /* S = N = 0 */
    if (!j->lazy) {
        const sums_at from = stored_at(j, at);
        return (usc_scales){from.s, from.n};
    }
    const sums_at to = {&s->s, &s->n};
    const double *rk = usc_walk_load(&j->rk, at, count, &s->k_room, s->k);
    const double *yk = usc_walk_load(&j->yk, at, count, &s->k_room, s->y);
    clear_block(j, &to, count);
    (void)add_block(j, r, rk, yk, count, &to);
    return (usc_scales){to.s, to.n};
}
