// SPDX-License-Identifier: Apache-2.0
// What the interception glue offers to the CPython extension, in plain C. The extension
// opens the session and knows Python (stacks, modules, phases); the glue knows torch.
// Looked up by name in usc_glue_intercept.so: USC_INTERCEPT_TABLE.
#ifndef USC_INTERCEPT_GLUE_H
#define USC_INTERCEPT_GLUE_H

#include <ulpscope/capture.h>

USC_BEGIN_DECLS

/** Where the calling thread is in the user's program, as only the extension knows. All
 * are called with or without the GIL. */
typedef struct usc_intercept_place {
    int64_t (*stack)(usc_capture *c); /* id of the Python stack; 0: none */
    int64_t (*module)(bool backward); /* id of the innermost module of this thread; with
                                         `backward` only if it was entered inside one */
    bool (*optimizer)(void);          /* whether this thread is inside optimizer.step() */
    bool (*graph)(const char *type);  /* whether this thread's stream of a device type is
                                         recording a graph: nothing may be read then */
} usc_intercept_place;

typedef struct usc_intercept_options {
    usc_intercept_place place;
    const char *ops; /* PATTERN; NULL: every operator */
    bool debug;      /* hash inputs around each call, note writes that no schema tells */
} usc_intercept_options;

typedef struct usc_intercept_table {
    /** The hooks that usc_capture_open needs. Static. */
    const usc_capture_hooks *hooks;
    /**
     * Registers kernels for every operator, which hand their calls to `c`. One session at
     * a time; where `c` is attached already they stay, and what is known of forward calls
     * is forgotten, for a new step. Errors: USC_E_BUSY where one is attached,
     * USC_E_UNSUPPORTED where torch refuses.
     */
    usc_status (*attach)(usc_capture *c, const usc_intercept_options *options,
                         usc_error *err);
    /** Removes the kernels and waits until no thread uses the session any more. Must be
     * called without the GIL. Nothing attached: does nothing. */
    void (*detach)(void);
    /** Registers kernels for operators that were registered since the last call. */
    void (*adopt)(void);
    /** Whether this thread runs a node of an autograd graph. */
    bool (*backward)(void);
    /** Device types that calls touched so far, e.g. "cpu,sim". Static text per call. */
    const char *(*devices)(void);
} usc_intercept_table;

#define USC_INTERCEPT_TABLE "usc_intercept"

USC_END_DECLS
#endif
