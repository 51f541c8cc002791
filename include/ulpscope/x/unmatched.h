// SPDX-License-Identifier: Apache-2.0
// What of a PATTERN (ulpscope/x/pattern.h) matched nothing: a misspelt name among others,
// of which a result would say nothing.
//
// Threads: safe.
// NULL: where a contract says so.
#ifndef ULPSCOPE_X_UNMATCHED_H
#define ULPSCOPE_X_UNMATCHED_H

#include <ulpscope/call.h>
#include <ulpscope/x/capture.h>

USC_BEGIN_DECLS

/**
 * The globs of `pattern` without `!` that match none of `n` names of operators, quoted,
 * with commas between; as many as there is room for. "" for none; `pattern` may be NULL.
 *
 * Memory:  allocates nothing.
 */
USC_API void usc_pattern_unmatched(const char *pattern, const char *const *names,
                                   int64_t n, char *out, size_t size);

/** The same of the operators of a list of calls. "" where memory is short. */
USC_API void usc_calls_unmatched(const usc_calls *calls, const char *pattern, char *out,
                                 size_t size);

/** The same of the operators that a trace has calls of, which are not read one by one. ""
 * also where the trace cannot be read. */
USC_API void usc_trace_unmatched(usc_trace *t, const char *pattern, char *out,
                                 size_t size);

/** The same of the operators that a session has met so far. Threads: safe. */
USC_API void usc_capture_unmatched(usc_capture *c, const char *pattern, char *out,
                                   size_t size);

USC_END_DECLS
#endif
