// SPDX-License-Identifier: Apache-2.0
// What has to be the same bits on several ranks: weights after the step, optimizer state,
// reduced gradients. The majority's hash names the ranks that have another one; without a
// majority (two ranks, a tie) nobody is named, and a replay decides. Score: ranks that
// differ. A false alarm is a collision of 64 bits the other way round: there is none; a
// missed one has a chance of 2^-64. Sharded tensors: weights.c.
#include "watch/watch_state.h"

/* Of one (site, tensor): the last disagreement that was told. */
typedef struct told {
    uint64_t minority; /* mix of the ranks in it; 0: all agreed */
} told;

static bool has_hash(const usc_watch_row *r)
{
    return r->hash64 != 0;
}

/* The hash that most ranks have, by Boyer and Moore's vote; how many have it in *votes.
 */
static uint64_t majority_of(const usc_watch_row *rows, size_t n, size_t *voters,
                            size_t *votes)
{
    uint64_t candidate = 0;
    size_t lead = 0;
    *voters = *votes = 0;
    for (size_t i = 0; i < n; i++) {
        if (!has_hash(&rows[i])) continue;
        ++*voters;
        if (lead == 0) candidate = rows[i].hash64;
        if (rows[i].hash64 == candidate)
            lead++;
        else
            lead--;
    }
    for (size_t i = 0; i < n; i++)
        *votes += has_hash(&rows[i]) && rows[i].hash64 == candidate;
    return candidate;
}

static const char *what_of(usc_watch_site site)
{
    if (site == USC_WATCH_REDUCED) return "reduced gradient";
    if (site == USC_WATCH_MOMENT1) return "first moment";
    return site == USC_WATCH_MOMENT2 ? "second moment" : "weight";
}

static void tell(usc_watch_view *v, const usc_watch_row *r, size_t votes, size_t voters,
                 size_t n_other)
{
    const bool named = 2 * votes > voters;
    const usc_watch_finding f = {.kind = named ? USC_WATCH_REPLICA : USC_WATCH_UNDECIDED,
                                 .tensor = r->tensor,
                                 .rank = named ? r->rank : -1,
                                 .score = (double)n_other,
                                 .threshold = 0.5,
                                 .action = USC_WATCH_CHECK};
    if (named)
        usc_watch_say(
            v, &f,
            "the %s of '%s' on rank %ld is not what the other ranks have, at "
            "step %lld: %zu of %zu agree, and it should be the same bits on all",
            what_of(r->site), usc_watch_name(v, r->tensor), (long)r->rank,
            (long long)v->step, votes, voters);
    else
        usc_watch_say(v, &f,
                      "the %s of '%s' should be the same bits on all %zu ranks, and is "
                      "not, at step %lld; no majority says which is right: compute the "
                      "step again on both (replay) to tell",
                      what_of(r->site), usc_watch_name(v, r->tensor), voters,
                      (long long)v->step);
}

static void vote(usc_watch_view *v, const usc_watch_row *rows, size_t n)
{
    size_t voters, votes;
    uint64_t minority = 0;
    const uint64_t right = majority_of(rows, n, &voters, &votes);
    if (voters < 2) return;
    usc_watch_note(v, (double)(voters - votes), 0.5);
    for (size_t i = 0; i < n; i++)
        if (has_hash(&rows[i]) && rows[i].hash64 != right)
            minority = minority * 31 + (uint64_t)rows[i].rank + 1;
    told *t = usc_watch_series(v, rows[0].site, rows[0].tensor, 0);
    if (t == NULL || t->minority == minority) return;
    t->minority = minority;
    for (size_t i = 0; i < n; i++) {
        if (!has_hash(&rows[i]) || rows[i].hash64 == right) continue;
        tell(v, &rows[i], votes, voters, voters - votes);
        if (2 * votes <= voters) return;
    }
}

void usc_watch_replicas(usc_watch_view *v)
{
    static const usc_watch_site sites[] = {USC_WATCH_REDUCED, USC_WATCH_WEIGHT,
                                           USC_WATCH_MOMENT1, USC_WATCH_MOMENT2};
    for (size_t s = 0; s < sizeof sites / sizeof sites[0]; s++) {
        const usc_watch_row *rows;
        const size_t n = usc_watch_rows_of(v, sites[s], &rows);
        for (size_t i = 0, same; i < n && v->status == USC_OK; i += same) {
            same = usc_watch_same_tensor(rows + i, n - i);
            const int64_t tensor = rows[i].tensor;
            if (tensor >= 0 && v->w->tensors[tensor].sharded) continue;
            vote(v, rows + i, same);
        }
    }
}
