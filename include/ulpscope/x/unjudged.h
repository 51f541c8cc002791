// SPDX-License-Identifier: Apache-2.0
// What was not judged, in one line: every command that judges ends with it, and so do the
// modes inside a program.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_UNJUDGED_H
#define ULPSCOPE_X_UNJUDGED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ulpscope/report.h>

USC_BEGIN_DECLS

/** Calls of one operator that were not judged, for one reason. */
typedef struct usc_unjudged {
    const char *op;     /* "" where nobody knows: calls of any */
    const char *reason; /* a clause */
    int64_t n;
    const char *lacks; /* what `judge` was not given of it, a value of the metric `lacks`
                          (docs/reference/report.md); NULL or "": another reason */
} usc_unjudged;

/**
 * Writes "not judged: ext::rms_norm 10 calls (no float64 reference: ...; write
 * ulpscope.reference.register("ext::rms_norm"))", most calls first, without a line feed;
 * nothing for no calls. Items of one operator and reason count together; behind the first
 * few the rest is a number.
 *
 * Memory:  a copy of the items while it runs.
 * Threads: safe, one at a time per sink.
 * Errors:  those of the sink, USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_unjudged_put(const usc_unjudged *items, size_t n,
                                                  const usc_sink *sink, usc_error *err);

/** What to do about an item: by what it lacks, else by the words of its reason; "" where
 * nothing helps or the reason says it itself. Memory: `out`, cut where it is full.
 * Threads: safe. */
USC_API void usc_unjudged_remedy(const usc_unjudged *item, char *out, size_t size);

/** Whether a reason, or those of all outputs in "out[0]: WHY; out[1]: WHY", says that the
 * call was looked at, and that nobody can tell more of it: float32 itself leaves no bits of
 * it, or so few draws show no law. Held to what is promised all the same, it decides no
 * exit code. NULL: never. Threads: safe. */
USC_API bool usc_unjudged_is_told(const char *reason);

USC_END_DECLS
#endif
