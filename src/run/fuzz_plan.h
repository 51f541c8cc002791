// SPDX-License-Identifier: Apache-2.0
// Which example each case of a seed is drawn from. Neighbour: fuzz_run.c (runs them).
#ifndef USC_RUN_FUZZ_PLAN_H
#define USC_RUN_FUZZ_PLAN_H

#include <ulpscope/call.h>

#include "base/arena.h"

typedef struct usc_fuzz_plan {
    const usc_pick *pick;
    const int64_t *order; /* picks by operator, as the trace has them within one */
    const int64_t *first; /* of each operator, and one behind the last */
    const bool *wanted;   /* operators */
    int64_t n_ops, n_wanted;
} usc_fuzz_plan;

/** Sorts the picks by operator; `ops`: a PATTERN of those that are wanted, NULL for all.
 * Memory: in `arena`, and needs `picks`. Errors: USC_E_NOMEM. */
USC_NODISCARD usc_status usc_fuzz_plan_make(const usc_calls *calls,
                                            const usc_selection *picks, const char *ops,
                                            usc_arena *arena, usc_fuzz_plan *out,
                                            usc_error *err);

/** The example of a case; NULL where its operator is not wanted, and behind the last of
 * those that are taken as they are. */
const usc_pick *usc_fuzz_plan_pick(const usc_fuzz_plan *plan, uint64_t seed,
                                   int64_t number);

#endif
