// SPDX-License-Identifier: Apache-2.0
// What all passes over the elements need: operands that fit, parameters, and a share of
// the chunks for each thread. Neighbours: judge_state.h.
#include "judge/judge_state.h"

#include "base/float_env.h"

#include <math.h>
#include <pthread.h>

int64_t usc_judge_n_chunks(const usc_judge *j)
{
    const int64_t chunk = (int64_t)USC_JUDGE_BLOCK * USC_BLOCKS_PER_CHUNK;
    return j->n / chunk + (j->n % chunk != 0);
}

usc_status usc_judge_check(const char *what, const usc_tensor *t,
                           const usc_tensor *device, bool float32_too, usc_error *err)
{
    if (t->dtype != USC_F64 && !(float32_too && t->dtype == USC_F32))
        return usc_error_set(err, USC_E_DTYPE, -1, "%s is %s, not %s", what,
                             usc_dtype_info_of(t->dtype)->name,
                             float32_too ? "float32 or float64" : "float64");
    return usc_walk_check_dims(what, t, device, err);
}

bool usc_judge_equal(usc_judge *j, const usc_walk *a, const usc_walk *b)
{
    usc_judge_scratch *s = j->scratch;
    for (int64_t at = 0; at < j->n; at += USC_JUDGE_BLOCK) {
        const size_t count =
            (size_t)(j->n - at < USC_JUDGE_BLOCK ? j->n - at : USC_JUDGE_BLOCK);
        const double *x = usc_walk_load(a, at, count, &s->room, s->r);
        const double *y = usc_walk_load(b, at, count, &s->room, s->y);
        unsigned differ = 0;
        for (size_t i = 0; i < count; i++)
            differ |= !((x[i] == y[i]) | ((x[i] != x[i]) & (y[i] != y[i])));
        if (differ) return false;
    }
    return true;
}

typedef struct share {
    void (*work)(void *, int, int64_t, int64_t);
    void *ctx;
    int thread;
    int64_t first, last;
    pthread_t id;
    bool started;
} share;

static void *run_share(void *arg)
{
    const share *s = arg;
    const usc_float_env env = usc_float_env_enter();
    s->work(s->ctx, s->thread, s->first, s->last);
    usc_float_env_leave(env);
    return NULL;
}

void usc_judge_split(const usc_judge *j, void (*work)(void *, int, int64_t, int64_t),
                     void *ctx)
{
    share shares[USC_JUDGE_THREADS];
    const int64_t n_chunks = usc_judge_n_chunks(j);
    const int n =
        n_chunks < j->n_threads ? (int)(n_chunks > 0 ? n_chunks : 1) : j->n_threads;
    for (int t = 0; t < n; t++) {
        shares[t] =
            (share){.work = work,
                    .ctx = ctx,
                    .thread = t,
                    .first = n_chunks / n * t + (t < n_chunks % n ? t : n_chunks % n),
                    .last = n_chunks / n * (t + 1) +
                            (t + 1 < n_chunks % n ? t + 1 : n_chunks % n)};
        if (t > 0)
            shares[t].started =
                pthread_create(&shares[t].id, NULL, run_share, &shares[t]) == 0;
    }
    for (int t = 0; t < n; t++) { /* the caller's own share, and what found no thread */
        if (!shares[t].started) (void)run_share(&shares[t]);
    }
    for (int t = 0; t < n; t++)
        if (shares[t].started) (void)pthread_join(shares[t].id, NULL);
}

/* Sizes up to so many floors are below what a device that flushes subnormals can tell. */
#define NEGLIGIBLE 32

usc_score_params usc_judge_params(const usc_judge *j, const usc_view *view)
{
    usc_score_params p = j->params;
    const double root = sqrt(j->n_replays > 0 ? (double)j->n_replays : 1.0);
    p.s_factor = view->exact ? 0 : 1 / (USC_STORED * root);
    p.n_factor = view->exact ? 0 : 1 / (USC_STORED * root);
    p.s_unknown = view->exact ? 0 : 1e300;
    p.expect = view->expect;
    p.typical = fmax(view->typical, NEGLIGIBLE * p.floor);
    p.leave_out = view->leave_out;
    return p;
}
