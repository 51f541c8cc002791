// SPDX-License-Identifier: Apache-2.0
// Faults to plant in the rows of a run.
#ifndef USC_TESTS_WATCH_PLANTED_H
#define USC_TESTS_WATCH_PLANTED_H

#include "watch_scale.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ulpscope/x/watch_products.h>

#include "watch_run.h"

enum { STEPS = 400, AT = 300 };

/* ---- planted ---- */

static inline usc_watch_row *victim(run *r, usc_watch_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (rows[i].tensor == r->ids[3] && rows[i].rank == r->world - 1) return &rows[i];
    return NULL;
}

static inline void flip(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    usc_watch_row *v = victim(r, rows, n);
    if (step != AT) return;
    v->max_abs *= 16; /* a bit of an element's exponent */
    v->sum_abs += v->max_abs;
    v->sum_sq += v->max_abs * v->max_abs;
}

static inline void zeros(run *r, int64_t step, usc_watch_row *rows, size_t n)
{
    usc_watch_row *v = victim(r, rows, n);
    if (step < AT) return;
    v->max_abs = v->sum_abs = v->sum_sq = 0;
    v->n_zero = v->numel;
}

#endif
