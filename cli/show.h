// SPDX-License-Identifier: Apache-2.0
// How `ulpscope show` prints one call of a trace to standard output.
#ifndef ULPSCOPE_CLI_SHOW_H
#define ULPSCOPE_CLI_SHOW_H

#include <ulpscope/trace.h>

/** Column titles of the list. */
void show_head(void);

/** A row of the list; with the statistics of its tensors below where asked. */
void show_line(const usc_trace_call *call, bool stats);

/** Everything about one call. */
void show_whole(const usc_trace_call *call);

/** One line of JSON: docs/report.md, "ulpscope show --json". */
void show_json(const usc_trace_call *call);

#endif
