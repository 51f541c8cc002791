// SPDX-License-Identifier: Apache-2.0
// The names of usc_stats.structure in trace.db, for writing and reading.
#ifndef USC_TRACE_TRACE_STATS_H
#define USC_TRACE_TRACE_STATS_H

#include <ulpscope/stats.h>

typedef struct usc_structure_name {
    unsigned bit;
    const char *text;
} usc_structure_name;

/* Ends with a NULL text. */
extern const usc_structure_name usc_structure_names[];

#endif
