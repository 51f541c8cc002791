// SPDX-License-Identifier: Apache-2.0
// Calls of two traces, judged pair by pair as ulpscope check judges: each on its own
// recorded inputs, by what its run recorded. Neighbours: diff.h (which pairs), run.h (the
// hooks).
//
// Threads: any thread may call what is here, with arguments that no other one uses.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_PAIRS_H
#define ULPSCOPE_X_PAIRS_H

#include <ulpscope/x/run.h>

USC_BEGIN_DECLS

/** What was found of one call. Texts are valid in `heard` alone; NULL where there is
 * nothing. */
typedef struct usc_paired {
    const char *verdict, *sentence, *cause;
    double bits;            /* effective; NaN: not known */
    const char *not_judged; /* usc_findings_left_out; NULL: nothing */
} usc_paired;

/** One pair. */
typedef struct usc_pair {
    int64_t call[2]; /* sequence numbers; 0: that trace has no such call */
    bool equal; /* both are the same call on equal inputs: one reference serves both */
} usc_pair;

typedef struct usc_pairs_options {
    const char *trace[2]; /* folders */
    const char *device; /* calls are run again there; NULL: what was recorded is judged */
    const char *const *imports;
    int n_imports;
    int jobs;       /* workers; 0: by the number of pairs, one for each core at most */
    int cores;      /* that may be used; at least 1 */
    int threads;    /* of each worker; 0: an equal part of the cores */
    double causes;  /* seconds for one search; 0: none */
    double timeout; /* seconds for one pair; 0: USC_RUN_TIMEOUT */
    void *ctx;
    /* What was found of pair i, in the order in which they are done. False: enough was
     * heard, what was not begun is left out. */
    bool (*heard)(void *ctx, int64_t i, const usc_paired found[2]);
} usc_pairs_options;

/**
 * Judges pairs in their order. *n_left is how many were not begun.
 *
 * Memory:  keeps nothing.
 * Threads: as usc_check_trace.
 * Errors:  as usc_check_trace.
 */
USC_API USC_NODISCARD usc_status usc_pairs_judge(const usc_pairs_options *options,
                                                 const usc_pair *pair, int64_t n,
                                                 const usc_run_hooks *hooks,
                                                 int64_t *n_left, usc_run_end *end,
                                                 usc_error *err);

USC_END_DECLS
#endif
