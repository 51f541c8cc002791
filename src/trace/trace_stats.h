// SPDX-License-Identifier: Apache-2.0
// Statistics of a tensor as the JSON of column tensor.stats: docs/trace-format.md.
#ifndef USC_TRACE_STATS_H
#define USC_TRACE_STATS_H

#include <ulpscope/stats.h>

/* Holds any statistics: two histograms and sixteen numbers. */
#define USC_STATS_TEXT (2 * USC_N_BINADES * 20 + 1024)

/** Writes JSON; numbers with 17 digits, NaN as null, infinities as "inf", "-inf". */
void usc_trace_stats_text(const usc_stats *stats, char *out, size_t size);

#endif
