// SPDX-License-Identifier: Apache-2.0
// Operators take turns, whatever the number of their examples: a case names its operator
// and one of the operator's examples, whichever operators are wanted.
#include "run/fuzz_plan.h"

#include <stdlib.h>
#include <string.h>

#include <ulpscope/x/fuzz.h>
#include <ulpscope/x/pattern.h>

typedef struct named {
    const char *op;
    int64_t i;
} named;

static int by_name(const void *a, const void *b)
{
    const named *x = a, *y = b;
    const int order = strcmp(x->op, y->op);
    return order != 0 ? order : x->i < y->i ? -1 : x->i > y->i;
}

usc_status usc_fuzz_plan_make(const usc_calls *calls, const usc_selection *picks,
                              const char *ops, usc_arena *arena, usc_fuzz_plan *out,
                              usc_error *err)
{
    const size_t room = (size_t)picks->n + 1;
    *out = (usc_fuzz_plan){.pick = picks->pick};
    named *names = usc_arena_take(arena, room * sizeof *names);
    int64_t *order = usc_arena_take(arena, room * sizeof *order);
    int64_t *first = usc_arena_take(arena, room * sizeof *first);
    bool *wanted = usc_arena_take(arena, room * sizeof *wanted);
    if (arena->failed) return usc_no_memory("fuzz", err);
    for (int64_t i = 0; i < picks->n; i++)
        names[i] = (named){usc_calls_find(calls, picks->pick[i].call)->op, i};
    qsort(names, (size_t)picks->n, sizeof *names, by_name);
    for (int64_t i = 0; i < picks->n; i++) {
        order[i] = names[i].i;
        if (i > 0 && strcmp(names[i].op, names[i - 1].op) == 0) continue;
        wanted[out->n_ops] = usc_pattern_match(ops, names[i].op);
        out->n_wanted += wanted[out->n_ops];
        first[out->n_ops++] = i;
    }
    first[out->n_ops] = picks->n;
    out->order = order;
    out->first = first;
    out->wanted = wanted;
    return USC_OK;
}

/* Examples by their operators, as they stand in `order`. */
static const usc_pick *as_is(const usc_fuzz_plan *plan, int64_t k)
{
    int64_t op = 0;
    if (k >= plan->first[plan->n_ops]) return NULL;
    while (plan->first[op + 1] <= k)
        op++;
    return plan->wanted[op] ? &plan->pick[plan->order[k]] : NULL;
}

const usc_pick *usc_fuzz_plan_pick(const usc_fuzz_plan *plan, uint64_t seed,
                                   int64_t number)
{
    const uint64_t k = (uint64_t)number & ((UINT64_C(1) << USC_FUZZ_STEP_BIT) - 1);
    if ((k & USC_FUZZ_AS_IS) != 0) return as_is(plan, (int64_t)(k & ~USC_FUZZ_AS_IS));
    const int64_t op = usc_fuzz_operator(seed, k, plan->n_ops);
    if (!plan->wanted[op]) return NULL;
    const int64_t from = plan->first[op], n = plan->first[op + 1] - from;
    return &plan->pick[plan->order[from + usc_fuzz_example(seed, k, n)]];
}
