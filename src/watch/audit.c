// SPDX-License-Identifier: Apache-2.0
// The audit by replay: a micro-batch computed by its own rank and, once more, by others
// gives the same bits, or one of them computes wrongly. Rows of site REPLAY: `value` is
// the rank whose micro-batch it was, `rank` the one that computed. With three or more the
// majority names the rank; two are both suspects, unless one of them is so with two
// others at the same step. No false alarm where kernels are deterministic; where they are
// not, do not audit. A rank that has found by itself that its micro-batch was computed
// wrongly says so by a row of value -1, where two further runs agree, or -2, where each
// of three is another one although earlier ones agreed.
#include "watch/watch_state.h"

typedef struct counted {
    uint64_t hash;
    size_t n;
} counted;

/* The hash that most of n rows have. */
static counted most_common(const usc_watch_row *rows, size_t n)
{
    counted best = {0};
    for (size_t i = 0; i < n; i++) {
        counted c = {.hash = rows[i].hash64};
        for (size_t k = 0; k < n; k++)
            c.n += rows[k].hash64 == c.hash;
        if (c.n > best.n) best = c;
    }
    return best;
}

/* How many rows from the first on are of the same tensor and micro-batch. */
static size_t group_of(const usc_watch_row *rows, size_t n)
{
    size_t same = 1;
    while (same < n && rows[same].tensor == rows[0].tensor &&
           rows[same].value == rows[0].value)
        same++;
    return same;
}

static bool is_pair(const usc_watch_row *rows, size_t n)
{
    return n == 2 && rows[0].value >= 0 && rows[0].hash64 != rows[1].hash64;
}

/* In how many pairs a rank has other bits than the other one. */
static size_t n_pairs(const usc_watch_row *rows, size_t n, int32_t rank)
{
    size_t found = 0;
    for (size_t i = 0, same; i < n; i += same) {
        same = group_of(rows + i, n - i);
        found +=
            is_pair(rows + i, same) && (rows[i].rank == rank || rows[i + 1].rank == rank);
    }
    return found;
}

/* Of the pair at `at`: where one of both is in more pairs than the other it is wrong, and
 * is told once. Whether that decides it. */
static bool name_of_pairs(usc_watch_view *v, const usc_watch_row *rows, size_t n,
                          size_t at)
{
    const usc_watch_row *pair = rows + at;
    const size_t first = n_pairs(rows, n, pair[0].rank),
                 second = n_pairs(rows, n, pair[1].rank);
    if (first == second) return false;
    const int32_t rank = pair[first > second ? 0 : 1].rank;
    if (n_pairs(rows, at, rank) > 0) return true;
    const usc_watch_finding f = {.kind = USC_WATCH_REPLAY_DIFFERS,
                                 .tensor = pair[0].tensor,
                                 .rank = rank,
                                 .score = (double)n_pairs(rows, n, rank),
                                 .threshold = 0.5,
                                 .action = USC_WATCH_CHECK};
    usc_watch_say(v, &f,
                  "rank %ld and %.0f others compute the same micro-batches differently, "
                  "and those others agree, told at step %lld, first at '%s'",
                  (long)rank, f.score, (long long)v->step,
                  usc_watch_name(v, pair[0].tensor));
    return true;
}

static void hold(usc_watch_view *v, const usc_watch_row *rows, size_t n)
{
    const counted best = most_common(rows, n);
    usc_watch_note(v, (double)(n - best.n), 0.5);
    for (size_t i = 0; i < n; i++) {
        if (rows[i].hash64 == best.hash) continue;
        const bool named = 2 * best.n > n;
        const usc_watch_finding f = {.kind = USC_WATCH_REPLAY_DIFFERS,
                                     .tensor = rows[i].tensor,
                                     .rank = named ? rows[i].rank : -1,
                                     .score = (double)(n - best.n),
                                     .threshold = 0.5,
                                     .action = USC_WATCH_CHECK};
        if (named)
            usc_watch_say(v, &f,
                          "rank %ld computes the micro-batch of rank %.0f otherwise than "
                          "%zu others at step %lld, at '%s'",
                          (long)rows[i].rank, rows[i].value, best.n, (long long)v->step,
                          usc_watch_name(v, rows[i].tensor));
        else
            usc_watch_say(v, &f,
                          "ranks %ld and %ld compute the micro-batch of rank %.0f "
                          "differently at step %lld, at '%s': one of them is wrong; a "
                          "third one tells which",
                          (long)rows[0].rank, (long)rows[i].rank, rows[i].value,
                          (long long)v->step, usc_watch_name(v, rows[i].tensor));
        if (!named) return;
    }
}

static void tell_own(usc_watch_view *v, const usc_watch_row *r)
{
    const usc_watch_finding f = {.kind = USC_WATCH_REPLAY_DIFFERS,
                                 .tensor = r->tensor,
                                 .rank = r->rank,
                                 .score = 1,
                                 .threshold = 0.5,
                                 .action = USC_WATCH_CHECK};
    usc_watch_say(v, &f,
                  "a micro-batch on rank %ld gave '%s' other bits at step %lld than when "
                  "it was computed again, and of three runs %s",
                  (long)r->rank, usc_watch_name(v, r->tensor), (long long)v->step,
                  r->value > -2 ? "two agree: a passing fault"
                                : "no two agree, as earlier ones did: a fault that "
                                  "comes and goes");
}

void usc_watch_audit(usc_watch_view *v)
{
    const usc_watch_row *rows;
    const size_t n = usc_watch_rows_of(v, USC_WATCH_REPLAY, &rows);
    for (size_t i = 0, same; i < n && v->status == USC_OK; i += same) {
        same = group_of(rows + i, n - i);
        for (size_t k = i; rows[i].value < 0 && k < i + same; k++)
            tell_own(v, &rows[k]);
        if (is_pair(rows + i, same) && name_of_pairs(v, rows, n, i)) continue;
        if (same > 1 && rows[i].value >= 0) hold(v, rows + i, same);
    }
}
