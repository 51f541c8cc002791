// SPDX-License-Identifier: Apache-2.0
// The verdicts that a call can have: one list for judge, databases and reports.
//
// Threads: safe.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_VERDICT_H
#define ULPSCOPE_VERDICT_H

#include <ulpscope/api.h>

USC_BEGIN_DECLS

/* name, text in databases and reports, whether it makes `check` exit with 1 by default.
 * Order is precedence: the verdict of a call is the first that one of its outputs has. */
#define USC_VERDICT_LIST(X)                                                              \
    X(CRASHED, "crashed", 1)                                                             \
    X(TIMEOUT, "timeout", 1)                                                             \
    X(NONFINITE, "nonfinite", 1)                                                         \
    X(WRONG, "wrong", 1)                                                                 \
    X(REDUCED, "reduced", 1)                                                             \
    X(INTERMITTENT, "intermittent", 1)                                                   \
    X(INTERNAL, "internal", 0)                                                           \
    X(UNDEFINED, "undefined", 0)                                                         \
    X(UNJUDGED, "unjudged", 0)                                                           \
    X(UNSUPPORTED, "unsupported", 0)                                                     \
    X(PASS, "pass", 0)

typedef enum usc_verdict {
#define USC_VERDICT_ENUM(id, text, flagged) USC_VERDICT_##id,
    USC_VERDICT_LIST(USC_VERDICT_ENUM)
#undef USC_VERDICT_ENUM
        USC_N_VERDICTS
} usc_verdict;

/** Text of a verdict as it stands in result.db, e.g. "reduced"; "unknown" otherwise.
 * Memory: static. */
USC_API const char *usc_verdict_text(usc_verdict verdict);

/** The verdict with that text; USC_N_VERDICTS where there is none, and for NULL. */
USC_API usc_verdict usc_verdict_by_text(const char *text);

/** Whether a verdict says that nobody judged: internal (a mistake of ulpscope itself),
 * unjudged, unsupported. */
USC_API bool usc_verdict_missing(usc_verdict verdict);

/** Whether a verdict makes `check` exit with 1 when nothing excuses it. */
USC_API bool usc_verdict_flagged(usc_verdict verdict);

USC_END_DECLS
#endif
