// SPDX-License-Identifier: Apache-2.0
// The options of `ulpscope run` that have operators computed another way, as the variable
// that python/ulpscope/program/reroute.py reads.
#ifndef ULPSCOPE_CLI_RUN_REROUTE_H
#define ULPSCOPE_CLI_RUN_REROUTE_H

#include <stdbool.h>

/**
 * Takes the value of --fallback (PATTERN), --cast (PATTERN=DTYPE) or --substitute
 * (OP=module:function); `what` is the option's name. Of several that match a call
 * the last one has it. False, and a message, where it is none.
 */
bool run_reroute_take(const char *what, const char *value);

/** Whether any was taken. */
bool run_reroute_any(void);

/** Puts them into ULPSCOPE_REROUTE, behind what stands there; false, and a message, where
 * that fails. */
bool run_reroute_set(void);

#endif
