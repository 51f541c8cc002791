// SPDX-License-Identifier: Apache-2.0
// A kernel in C: what glue/grid/grid_core.h does for one in C++.
#ifndef USC_TESTS_GRID_BY_HAND_H
#define USC_TESTS_GRID_BY_HAND_H

#include <ulpscope_sim/grid.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

typedef struct by_hand {
    void (*kernel)(void *ctx); /* of one thread */
    void *ctx;
    usc_grid_kernel launch;
} by_hand;

static inline void threads_by_hand(void *ctx)
{
    const by_hand *h = ctx;
    usc_grid_state *s = &usc_grid_now;
    while (usc_grid_more()) {
        const unsigned n_waits = s->n_waits, end = s->end;
        s->thread = s->at;
        for (unsigned next = s->next; next < end && s->n_waits == n_waits; next++) {
            h->kernel(h->ctx);
            if (s->n_waits == n_waits) s->thread.x++;
        }
        if (s->n_waits == n_waits) s->next = end;
    }
}

static inline usc_status run_by_hand(by_hand *h, usc_error *err)
{
    h->launch.threads = threads_by_hand;
    h->launch.ctx = h;
    return usc_grid_run(&h->launch, err);
}

#endif
