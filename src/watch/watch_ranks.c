// SPDX-License-Identifier: Apache-2.0
// Gradients before the reduction, rank against rank at the same step: what the data or
// the schedule does to all of them says nothing here, what one device does shows at once.
// Of each tensor the deviation of every rank from the median rank, less what that rank
// has in common over all its tensors (its batch), against how far ranks of this tensor
// usually lie apart. Needs three ranks. docs/reference/watch-reference.md, "Detectors".
#include "watch/track.h"

#include <math.h>

enum {
    LEAST_RANKS = 3,
    TIMES = 4 /* how far ranks usually lie apart: more is unlike them */
};

/* Of one tensor: the largest deviation of a rank, over time. */
typedef struct spread {
    usc_tracker channel[USC_N_CHANNELS];
    uint64_t outside[USC_N_CHANNELS]; /* ranks (mod 64) that were so at the last step */
} spread;

_Static_assert(sizeof(spread) + sizeof(void *) <= USC_WATCH_SERIES_BYTES, "as promised");

/* What deviates less than this is nothing that data do not do: bits. */
static const double least_of[USC_N_CHANNELS] = {4, 1.5};

/* off[i]: how far row i lies from the median rank of its tensor; NaN: not known. */
static void measure(const usc_watch_row *rows, size_t n, usc_channel c, double *off,
                    double *room)
{
    double both[USC_N_CHANNELS];
    for (size_t i = 0, same; i < n; i += same) {
        size_t known = 0;
        same = usc_watch_same_tensor(rows + i, n - i);
        for (size_t k = i; k < i + same; k++) {
            const bool has =
                !usc_row_nonfinite(&rows[k]) && usc_track_bits(&rows[k], both);
            off[k] = has ? both[c] : (double)NAN;
            if (!isnan(off[k])) room[known++] = off[k];
        }
        const double median =
            known >= LEAST_RANKS ? usc_median(room, known) : (double)NAN;
        for (size_t k = i; k < i + same; k++)
            off[k] -= median;
    }
}

static void tell(usc_watch_view *v, const usc_watch_row *r, usc_channel c, double off,
                 double threshold)
{
    const usc_watch_finding f = {.kind = USC_WATCH_RANK,
                                 .tensor = r->tensor,
                                 .rank = r->rank,
                                 .score = fabs(off),
                                 .threshold = threshold,
                                 .action = USC_WATCH_CHECK};
    usc_watch_say(
        v, &f,
        "the gradient of '%s' on rank %ld is unlike its peers at step %lld: its "
        "%s is 2^%.1f times %s than theirs (up to 2^%.1f is usual), and the "
        "other tensors of that rank are not",
        usc_watch_name(v, r->tensor), (long)r->rank, (long long)v->step,
        c == USC_CHANNEL_PEAK ? "largest element" : "mean", fabs(off),
        off > 0 ? "larger" : "smaller", threshold);
}

/* The rows of one tensor. */
static void look_at(usc_watch_view *v, const usc_watch_row *rows, size_t n, usc_channel c,
                    const double *off, const double *common)
{
    spread *s = usc_watch_series(v, USC_WATCH_GRAD, rows[0].tensor, 0);
    if (s == NULL) return;
    usc_tracker *t = &s->channel[c];
    const bool ready = usc_tracker_ready(t);
    const double usual = ready ? exp2(usc_tracker_median(t)) : least_of[c];
    const double threshold = least_of[c] + TIMES * usual;
    uint64_t outside = 0;
    double largest = 0;
    for (size_t i = 0; i < n; i++) {
        if (isnan(off[i])) continue;
        const double all = isnan(common[rows[i].rank]) ? 0 : common[rows[i].rank];
        /* less of a peak than the peers' is no element that stands out */
        const double score = c == USC_CHANNEL_PEAK ? off[i] - all : fabs(off[i] - all);
        const uint64_t bit = UINT64_C(1) << (rows[i].rank % 64);
        usc_watch_note(v, score, threshold);
        if (score > threshold) outside |= bit;
        if ((outside & bit & ~s->outside[c]) != 0)
            tell(v, &rows[i], c, off[i] - all, threshold);
        if (score <= threshold) largest = fmax(largest, fabs(off[i] - all));
    }
    if (largest > 0) usc_tracker_accept(t, log2(largest));
    s->outside[c] = outside;
}

static void look_at_channel(usc_watch_view *v, const usc_watch_row *rows, size_t n,
                            usc_channel c, double *room)
{
    const int32_t world = v->w->config.world;
    double *off = room, *sorted = off + n, *common = sorted + n, *ends = common + world;
    measure(rows, n, c, off, sorted);
    usc_track_common(rows, n, world, off, common, ends, sorted);
    for (size_t i = 0, same; i < n && v->status == USC_OK; i += same) {
        same = usc_watch_same_tensor(rows + i, n - i);
        if (same >= LEAST_RANKS) look_at(v, rows + i, same, c, off + i, common);
    }
}

void usc_watch_ranks(usc_watch_view *v)
{
    const usc_watch_row *rows;
    const size_t n = usc_watch_rows_of(v, USC_WATCH_GRAD, &rows);
    if (n == 0 || v->w->config.world < LEAST_RANKS) return;
    double *room = usc_watch_scratch(v, 2 * n + 2 * (size_t)v->w->config.world);
    for (usc_channel c = 0; room != NULL && c < USC_N_CHANNELS; c++)
        look_at_channel(v, rows, n, c, room);
}
