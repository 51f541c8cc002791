// SPDX-License-Identifier: Apache-2.0
// A made-up training run for the tests of a watch: gradients of some tensors on some
// ranks, whose levels wander as those of real runs do, and what a test changes in them.
#ifndef USC_TESTS_WATCH_RUN_H
#define USC_TESTS_WATCH_RUN_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ulpscope/x/watch.h>

enum { RUN_TENSORS = 6, RUN_NUMEL = 4096, RUN_SEEN = 64 };

typedef struct run {
    usc_watch *watch;
    int world;
    uint64_t state;
    int64_t ids[RUN_TENSORS];
    double level[RUN_TENSORS]; /* log2 of the mean */
    double seconds;
    /* what was said */
    int n_events, n_of_kind[USC_N_WATCH_KINDS];
    usc_watch_event first; /* texts are gone */
    char sentence[512], name[64], all[1 << 16];
} run;

/* What a test does to a row; `n` of them, of the step. */
typedef void (*run_change)(run *r, int64_t step, usc_watch_row *rows, size_t n);

static inline double run_uniform(run *r)
{
    r->state = r->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(r->state >> 11) * 0x1p-53;
}

/* About normal: twelve uniforms. */
static inline double run_normal(run *r)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += run_uniform(r);
    return sum;
}

static inline void run_begin(run *r, const char *config, int world)
{
    usc_error err;
    usc_watch_config c;
    *r = (run){.world = world, .state = 1};
    usc_watch_config_init(&c, USC_WATCH_SOUND);
    c.world = world;
    if (usc_watch_config_parse(&c, config, &err) != USC_OK ||
        usc_watch_create(&c, &r->watch, &err) != USC_OK) {
        printf("%s\n", err.text);
        abort();
    }
    for (int t = 0; t < RUN_TENSORS; t++) {
        char name[64];
        (void)snprintf(name, sizeof name, "layers.%d.weight", t);
        const usc_watch_tensor_info info = {.name = name, .dtype = USC_BF16, .ndim = 2};
        if (usc_watch_tensor(r->watch, &info, &r->ids[t], &err) != USC_OK) abort();
        r->level[t] = -14 - t;
    }
}

static inline usc_watch_row run_row(run *r, int64_t step, usc_watch_site site, int rank,
                                    int t, double mean)
{
    const double peak = mean * exp2(2.1 + 0.15 * run_normal(r));
    return (usc_watch_row){.step = step,
                           .rank = rank,
                           .site = site,
                           .tensor = r->ids[t],
                           .max_abs = peak,
                           .sum_abs = mean * RUN_NUMEL,
                           .sum_sq = 1.57 * mean * mean * RUN_NUMEL,
                           .numel = RUN_NUMEL,
                           .hash64 = (uint64_t)step * 1000 + (uint64_t)t + 1};
}

static inline void run_take_events(run *r)
{
    usc_watch_event e;
    while (usc_watch_next(r->watch, &e)) {
        const size_t n = strlen(r->all);
        (void)snprintf(r->all + n, sizeof r->all - n, "%lld %s %s %d %s\n",
                       (long long)e.step, usc_watch_kind_text(e.kind), e.name,
                       (int)e.rank, e.sentence);
        if (r->n_events++ == 0) {
            r->first = e;
            (void)snprintf(r->sentence, sizeof r->sentence, "%s", e.sentence);
            (void)snprintf(r->name, sizeof r->name, "%s", e.name);
        }
        r->n_of_kind[e.kind]++;
    }
}

/* The gradients (`site`) of one step. */
static inline size_t run_rows(run *r, int64_t step, usc_watch_site site,
                              usc_watch_row *rows)
{
    const double together = 0.3 * run_normal(r);
    size_t n = 0;
    for (int t = 0; t < RUN_TENSORS; t++)
        for (int rank = 0; rank < r->world; rank++)
            rows[n++] = run_row(r, step, site, rank, t,
                                exp2(r->level[t] + together + 0.2 * run_normal(r)));
    return n;
}

/* Steps `from` up to `to`, five seconds each. */
static inline void run_steps(run *r, usc_watch_site site, int64_t from, int64_t to,
                             run_change change)
{
    usc_error err;
    usc_watch_row rows[RUN_TENSORS * 16];
    for (int64_t step = from; step < to; step++) {
        const size_t n = run_rows(r, step, site, rows);
        if (change != NULL) change(r, step, rows, n);
        r->seconds += 5;
        if (usc_watch_feed(r->watch, rows, n, &err) != USC_OK ||
            usc_watch_step(r->watch, step, r->seconds, &err) != USC_OK) {
            printf("%s\n", err.text);
            abort();
        }
        run_take_events(r);
    }
}

static inline void run_end(run *r)
{
    usc_watch_free(r->watch);
}

#endif
