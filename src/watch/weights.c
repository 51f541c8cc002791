// SPDX-License-Identifier: Apache-2.0
// Nothing but the optimizer's step may change a weight, or what it keeps for one: the
// hash after the step against the hash before the next use. The one check for what is
// sharded, which has no copy elsewhere. No false alarm but where the program itself
// writes in between (loading a checkpoint, swapping in averaged weights): feed no row of
// a site BEFORE then.
#include "watch/watch_state.h"

typedef struct after {
    uint64_t hash;
    int64_t step;
} after;

static const struct kept {
    usc_watch_site after, before;
    const char *what;
} kept[] = {
    {USC_WATCH_WEIGHT, USC_WATCH_WEIGHT_BEFORE, "weight"},
    {USC_WATCH_MOMENT1, USC_WATCH_MOMENT1_BEFORE, "first moment of"},
    {USC_WATCH_MOMENT2, USC_WATCH_MOMENT2_BEFORE, "second moment of"},
};

static void hold(usc_watch_view *v, const struct kept *k, const usc_watch_row *r)
{
    after *a = usc_watch_series(v, k->after, r->tensor, r->rank);
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
                  "the %s '%s' on rank %ld is not what the optimizer left after step "
                  "%lld: it changed in memory before step %lld",
                  k->what, usc_watch_name(v, r->tensor), (long)r->rank,
                  (long long)a->step, (long long)v->step);
    a->hash = r->hash64; /* told once */
}

void usc_watch_weights(usc_watch_view *v)
{
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        const usc_watch_row *rows;
        size_t n = usc_watch_rows_of(v, kept[i].before, &rows);
        for (size_t k = 0; k < n && v->status == USC_OK; k++)
            hold(v, &kept[i], &rows[k]);
        n = usc_watch_rows_of(v, kept[i].after, &rows);
        for (size_t k = 0; k < n && v->status == USC_OK; k++) {
            after *a = usc_watch_series(v, kept[i].after, rows[k].tensor, rows[k].rank);
            if (a != NULL) *a = (after){rows[k].hash64, v->step};
        }
    }
}
