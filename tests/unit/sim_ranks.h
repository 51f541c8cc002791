// SPDX-License-Identifier: Apache-2.0
// Ranks for tests of simccl: threads of this process, each with its end of a communicator.
#ifndef USC_TESTS_SIM_RANKS_H
#define USC_TESTS_SIM_RANKS_H

#include <ulpscope_sim/ccl.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SECOND 1000000000

/* ---- ranks ----------------------------------------------------------------------- */

typedef struct rank {
    pthread_t thread;
    usc_ccl_options options;
    usc_ccl *c;
    usc_status (*act)(struct rank *r);
    usc_status st;
    usc_error err;
} rank;

static inline void *be(void *its)
{
    rank *r = its;
    r->st = usc_ccl_open(&r->options, &r->c, &r->err);
    if (r->st == USC_OK) r->st = r->act(r);
    return NULL;
}

static inline usc_ccl_options options_of(const char *name, int i, int n)
{
    usc_ccl_options o = {.rank = i, .size = n, .timeout_ns = (int64_t)60 * SECOND};
    snprintf(o.name, sizeof o.name, "%s", name);
    return o;
}

/* All run `act`; what came of it stands in ranks[i]. */
static inline void run_ranks(rank *ranks, int n, usc_status (*act)(rank *))
{
    char name[USC_CCL_NAME_TEXT];
    usc_ccl_new_name(name);
    for (int i = 0; i < n; i++) {
        ranks[i] = (rank){.options = options_of(name, i, n), .act = act};
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, be, &ranks[i]), 0);
    }
    for (int i = 0; i < n; i++)
        pthread_join(ranks[i].thread, NULL);
    for (int i = 0; i < n; i++)
        usc_ccl_close(ranks[i].c);
}

static inline void all_fine(usc_status (*act)(rank *))
{
    for (int n = 1; n <= 5; n++) {
        rank ranks[5];
        run_ranks(ranks, n, act);
        for (int i = 0; i < n; i++) {
            if (ranks[i].st != USC_OK) print_error("%s\n", ranks[i].err.text);
            assert_int_equal(ranks[i].st, USC_OK);
        }
    }
}

#define EXPECT(condition)                                                                \
    do {                                                                                 \
        if (!(condition))                                                                \
            return usc_error_set(&r->err, USC_E_ARG, -1, "rank %d of %d, line %d",       \
                                 r->options.rank, r->options.size, __LINE__);            \
    } while (0)

static inline usc_status run_one(rank *r, usc_ccl_kind kind, usc_ccl_op op,
                                 usc_dtype dtype, const usc_ccl_buffer *from,
                                 size_t n_from, const usc_ccl_buffer *to, size_t n_to,
                                 int root)
{
    const usc_ccl_call call = {.kind = kind,
                               .op = op,
                               .dtype = dtype,
                               .root = root,
                               .from = from,
                               .to = to,
                               .n_from = n_from,
                               .n_to = n_to};
    return usc_ccl_run(r->c, &call, &r->err);
}

static inline void two_do(usc_status (*act)(rank *))
{
    rank ranks[2];
    run_ranks(ranks, 2, act);
    for (int i = 0; i < 2; i++) {
        if (ranks[i].st != USC_OK) print_error("%s\n", ranks[i].err.text);
        assert_int_equal(ranks[i].st, USC_OK);
    }
}

#endif
