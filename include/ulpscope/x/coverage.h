// SPDX-License-Identifier: Apache-2.0
// Which operators of a captured run a device has: natively, by falling back on the CPU,
// or not at all; and which to write next. Neighbours: run.h (the hooks of a run),
// call.h (which calls).
//
// Threads: any thread may call what is here, with arguments that no other one uses.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_COVERAGE_H
#define ULPSCOPE_X_COVERAGE_H

#include <ulpscope/x/run.h>

USC_BEGIN_DECLS

/** How a device runs calls, from best to worst. */
typedef enum usc_way {
    USC_WAY_NATIVE,   /* a kernel of the device, or one that is composed of others */
    USC_WAY_FALLBACK, /* on the CPU, with copies there and back */
    USC_WAY_REFUSED,  /* it has the operator and refuses this dtype or layout */
    USC_WAY_LACKING,  /* it has no such operator */
    USC_WAY_DIED,     /* the process that tried it died or hung */
    USC_WAY_UNTOLD,   /* the call could not be made again */
    USC_N_WAYS
} usc_way;

/** "native", "fallback", ...; "" for other values. Memory: static text. */
USC_API const char *usc_way_text(usc_way way);

/** Calls of one operator with one list of dtypes that go one way. */
typedef struct usc_covered {
    const char *op;     /* "aten::mm" */
    const char *dtypes; /* of its tensors, as they come: "float32, int64" */
    usc_way way;
    const char *why; /* a clause of the first of them; "" for none */
    int64_t n_calls; /* in the trace */
    double seconds;  /* that all of them take on this machine's CPU */
} usc_covered;

typedef struct usc_coverage {
    int64_t n; /* rows, by operator, then dtypes */
    const usc_covered *row;
    int64_t n_calls;
    int64_t
        n_within; /* of the trace beside these: what they are made of was tried; 0 where
                         only some operators were asked for */
    double seconds;
    void *memory;
} usc_coverage;

typedef struct usc_coverage_options {
    const char *trace;  /* folder */
    const char *device; /* "npu:0" */
    const char *faults; /* planted in the simulated device; NULL: none */
    const char *ops;    /* PATTERN; NULL: all */
    const char *const *imports;
    int n_imports;
    bool fresh;     /* ask the device again also for what is known of it */
    int jobs;       /* workers; 0: one */
    int cores;      /* that may be used; at least 1 */
    double timeout; /* seconds for one call; 0: USC_RUN_TIMEOUT */
} usc_coverage_options;

/**
 * Tries one call of each signature of a trace on a device. Nothing is judged.
 *
 * Memory:  *out is freed by usc_coverage_free.
 * Threads: as usc_check_trace.
 * Errors:  as usc_check_trace; *out is empty then, and where the run was interrupted.
 */
USC_API USC_NODISCARD usc_status usc_coverage_trace(const usc_coverage_options *options,
                                                    const usc_run_hooks *hooks,
                                                    usc_coverage *out, usc_run_end *end,
                                                    usc_error *err);

/**
 * Operators to write next: those at which the program stops, and of those that fall back
 * the fewest with which `share` (0 to 1) of the CPU time of the step, and the same of its
 * calls, run natively, costliest first; all that are not native where that is not reached
 * without them.
 *
 * Memory: *ops holds *n names that live as long as `c`; freed by the caller, with free().
 * Errors: USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_coverage_next(const usc_coverage *c, double share,
                                                   const char ***ops, int64_t *n,
                                                   usc_error *err);

/** Frees; an empty one is allowed. */
USC_API void usc_coverage_free(usc_coverage *c);

USC_END_DECLS
#endif
