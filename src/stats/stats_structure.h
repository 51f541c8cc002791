// SPDX-License-Identifier: Apache-2.0
// What the rows and matrices of a tensor are like, and its fingerprint. Neighbour:
// stats.c.
#ifndef USC_STATS_STATS_STRUCTURE_H
#define USC_STATS_STATS_STRUCTURE_H

#include <ulpscope/stats.h>

#include "tensor/walk.h"

/** Sets structure, fill, fingerprint, int_above_min and int_below_max of `*s`, whose
 * other fields are set. A few rows are looked at, and of those only where the sums of
 * the whole tensor allow it. */
void usc_stats_structure(const usc_tensor *t, const usc_walk *walk, usc_stats *s);

#endif
