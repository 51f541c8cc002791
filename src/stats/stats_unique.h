// SPDX-License-Identifier: Apache-2.0
// Whether integers repeat, without allocating. Neighbour: stats.c.
#ifndef USC_STATS_STATS_UNIQUE_H
#define USC_STATS_STATS_UNIQUE_H

#include "tensor/walk.h"

enum { USC_UNIQUE_LIMIT = 65536 };

/** Whether no value of the walk comes twice. `low` and `high` are its extremes; false
 * as well for more than USC_UNIQUE_LIMIT elements. */
bool usc_stats_unique(const usc_walk *walk, usc_dtype dtype, int64_t low, int64_t high);

#endif
