// SPDX-License-Identifier: Apache-2.0
// How `ulpscope show` prints one call of a trace to standard output.
#ifndef ULPSCOPE_CLI_SHOW_H
#define ULPSCOPE_CLI_SHOW_H

#include <stdio.h>

#include <ulpscope/trace.h>

/** Column titles of the list. */
void show_head(void);

/** A row of the list; with the statistics of its tensors below where asked. */
void show_line(const usc_call *call, bool stats);

/** Everything about one call. */
void show_whole(const usc_call *call);

/** Text of a trace on a terminal: nothing in it may steer that. */
/** "" for NULL. */
const char *show_text_of(const char *text);

void show_plain(const char *text);
void show_plain_to(FILE *to, const char *text);

/** "f32[6,8]" */
void show_shape(const usc_call_arg *arg);

/** Arguments, state and stack of a call as lines of a name and a value (show_args.c). */
void show_given(const usc_call *call);
void show_state(const usc_call *call);
void show_stack(const usc_call *call);

/** `at FILE:LINE, FUNCTION` of the innermost frame that is of no installed package, with
 * `before` in front; nothing where there is none. */
void show_own_line(const usc_call *call, const char *before);

/** Whether a text is JSON. */
bool show_json_valid(const char *json);

/** One line of JSON: docs/reference/report.md, "ulpscope show --json". */
void show_json(const usc_call *call);

#endif
