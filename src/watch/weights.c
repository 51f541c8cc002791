// SPDX-License-Identifier: Apache-2.0
// Nothing but the optimizer's step may change a weight: its hash after the step against
// its hash before the next use. The one check for sharded weights, which have no copy
// elsewhere. No false alarm but where the program itself writes weights in between
// (loading a checkpoint, swapping in averaged weights): feed no WEIGHT_BEFORE then.
#include "watch/watch_state.h"

typedef struct after {
    uint64_t hash;
    int64_t step;
} after;

static void hold(usc_watch_view *v, const usc_watch_row *r)
{
    after *a = usc_watch_series(v, USC_WATCH_WEIGHT, r->tensor, r->rank);
    if (a == NULL || a->hash == 0 || r->hash64 == 0) return;
    const bool same = a->hash == r->hash64;
    usc_watch_note(v, same ? 0 : 1, 0.5);
    if (same) return;
    const usc_watch_finding f = {.kind = USC_WATCH_CHANGED,
                                 .tensor = r->tensor,
                                 .rank = r->rank,
                                 .score = 1,
                                 .threshold = 0.5,
                                 .action = "ulpscope doctor"};
    usc_watch_say(v, &f,
                  "the weight '%s' on rank %ld is not what the optimizer left after step "
                  "%lld: it changed in memory before step %lld",
                  usc_watch_name(v, r->tensor), (long)r->rank, (long long)a->step,
                  (long long)v->step);
    a->hash = r->hash64; /* told once */
}

void usc_watch_weights(usc_watch_view *v)
{
    const usc_watch_row *rows;
    size_t n = usc_watch_rows_of(v, USC_WATCH_WEIGHT_BEFORE, &rows);
    for (size_t i = 0; i < n && v->status == USC_OK; i++)
        hold(v, &rows[i]);
    n = usc_watch_rows_of(v, USC_WATCH_WEIGHT, &rows);
    for (size_t i = 0; i < n && v->status == USC_OK; i++) {
        after *a = usc_watch_series(v, USC_WATCH_WEIGHT, rows[i].tensor, rows[i].rank);
        if (a != NULL) *a = (after){rows[i].hash64, v->step};
    }
}
