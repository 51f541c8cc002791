// SPDX-License-Identifier: Apache-2.0
// What each detector keeps and who decides: one row each.
#include "watch/asd.h"

#define ROW(id, size, per_rank, function)                                                \
    [USC_WATCH_BY_##id] = {.series_size = size, .rank_size = per_rank, .decide = function}

enum { SMALL = 64 }; /* what keeps a few numbers of a series */

const usc_watch_rule usc_watch_rules[USC_N_WATCH_DETECTORS] = {
    ROW(TEMPORAL, sizeof(usc_track), usc_track_rank_size, usc_watch_temporal),
    ROW(RANKS, 2 * sizeof(usc_tracker) + SMALL, NULL, usc_watch_ranks),
    ROW(REPLICAS, SMALL, NULL, usc_watch_replicas),
    ROW(WEIGHTS, SMALL, NULL, usc_watch_weights),
    ROW(COLLECTIVES, 0, NULL, usc_watch_collectives),
    ROW(MATMULS, 0, NULL, usc_watch_matmuls),
    ROW(DEAD, SMALL, NULL, usc_watch_dead),
    ROW(RATIO, sizeof(usc_track), usc_track_rank_size, usc_watch_ratio),
    ROW(MOMENTS, sizeof(usc_track), usc_track_rank_size, usc_watch_moments),
    ROW(AUDIT, 0, NULL, usc_watch_audit),
    ROW(ASD, SMALL, usc_asd_rank_size, usc_watch_asd),
    ROW(ASD2, SMALL, NULL, usc_watch_asd2),
    ROW(MEGATRON, SMALL, NULL, usc_watch_megatron),
    ROW(TURBULENCE, SMALL, NULL, usc_watch_turbulence),
    ROW(ZSCORE, USC_WATCH_SERIES_BYTES, NULL, usc_watch_zscore),
    ROW(NAN, 0, NULL, usc_watch_nan),
};
