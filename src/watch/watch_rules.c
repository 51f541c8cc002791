// SPDX-License-Identifier: Apache-2.0
// What each detector keeps and who decides: one row each.
#include "watch/asd.h"

/* A few numbers of any value, beside counts that may be anything but negative. */
enum { SMALL = 64 };

static bool two_trackers(const void *series)
{
    const usc_tracker *t = series;
    return usc_tracker_sound(&t[0]) && usc_tracker_sound(&t[1]);
}

#define ROW(id, size, sound, function)                                                   \
    [USC_WATCH_BY_##id] = {.series_size = size, .series_sound = sound, .decide = function}
#define TRACK(id, function)                                                              \
    [USC_WATCH_BY_##id] = {.series_size = sizeof(usc_track),                             \
                           .rank_size = usc_track_rank_size,                             \
                           .series_sound = usc_track_sound,                              \
                           .decide = function}

const usc_watch_rule usc_watch_rules[USC_N_WATCH_DETECTORS] = {
    TRACK(TEMPORAL, usc_watch_temporal),
    ROW(RANKS, 2 * sizeof(usc_tracker) + SMALL, two_trackers, usc_watch_ranks),
    ROW(REPLICAS, SMALL, NULL, usc_watch_replicas),
    ROW(WEIGHTS, SMALL, NULL, usc_watch_weights),
    ROW(COLLECTIVES, 0, NULL, usc_watch_collectives),
    ROW(MATMULS, 0, NULL, usc_watch_matmuls),
    ROW(DEAD, SMALL, usc_dead_sound, usc_watch_dead),
    TRACK(RATIO, usc_watch_ratio),
    TRACK(MOMENTS, usc_watch_moments),
    ROW(AUDIT, 0, NULL, usc_watch_audit),
    [USC_WATCH_BY_ASD] = {.series_size = SMALL,
                          .rank_size = usc_asd_rank_size,
                          .rank_sound = usc_asd_rank_sound,
                          .decide = usc_watch_asd},
    ROW(ASD2, SMALL, NULL, usc_watch_asd2),
    ROW(MEGATRON, SMALL, NULL, usc_watch_megatron),
    ROW(TURBULENCE, SMALL, NULL, usc_watch_turbulence),
    ROW(ZSCORE, USC_WATCH_SERIES_BYTES, usc_zscore_sound, usc_watch_zscore),
    ROW(NAN, 0, NULL, usc_watch_nan),
};
