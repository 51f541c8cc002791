// SPDX-License-Identifier: Apache-2.0
// A device beside the CPU, operator by operator, without a verdict: which dtypes and
// memory layouts it takes, and how long it needs. Neighbours: fuzz.h (judges drawn
// calls), coverage.h (what a device has of a captured run).
//
// Threads: any thread may call what is here, with arguments that no other one uses.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_SIDES_H
#define ULPSCOPE_X_SIDES_H

#include <ulpscope/x/run.h>

USC_BEGIN_DECLS

/** Who takes a call. */
typedef enum usc_side {
    USC_SIDE_BOTH,
    USC_SIDE_REFUSED,     /* the CPU takes it, the device raises */
    USC_SIDE_CPU_REFUSED, /* the device takes it, the CPU raises */
    USC_SIDE_NEITHER,
    USC_SIDE_DIED,   /* the device's process died or hung */
    USC_SIDE_UNTOLD, /* the operator has no such form, or nothing could be asked */
    USC_N_SIDES
} usc_side;

/** "both", "refused", ...; "" for other values. Memory: static text. */
USC_API const char *usc_side_text(usc_side side);

/** One form of an operator. */
typedef struct usc_sided {
    const char *op;
    const char *dtype, *layout; /* "" in a profile */
    const char *args;           /* of a profile: "float32[64, 64], float32[64]" */
    usc_side side;
    const char *raised; /* class of the exception: "NotImplementedError"; "" for none */
    const char *why;    /* a clause */
    double device, cpu; /* of a profile: seconds of one call, medians */
    int64_t bytes;      /* of a profile: of inputs and results */
} usc_sided;

typedef struct usc_sides {
    int64_t n,
        n_ops; /* rows, by operator, dtype, layout; of a profile the slowest first */
    const usc_sided *row;
    const char *unmatched; /* globs of `ops` that match no operator, "'a', 'b'"; "" */
    void *memory;
} usc_sides;

/**
 * Asks a device and the CPU for forms of the operators of a trace, of each by one of its
 * calls: with `profile` how long it takes, else each dtype and layout whether it goes.
 * Of `options` those are read that say from what (trace, ops, imports), on what (device,
 * via, faults) and how (jobs, cores, timeout; `force`: ask also for what is known of this
 * version of the device).
 *
 * Memory:  *out is freed by usc_sides_free.
 * Threads: as usc_check_trace.
 * Errors:  as usc_check_trace; *out is empty then, and where the run was interrupted.
 */
USC_API USC_NODISCARD usc_status usc_sides_ask(const usc_check_options *options,
                                               bool profile, const usc_run_hooks *hooks,
                                               usc_sides *out, usc_run_end *end,
                                               usc_error *err);

/** Frees; an empty one is allowed. */
USC_API void usc_sides_free(usc_sides *s);

USC_END_DECLS
#endif
