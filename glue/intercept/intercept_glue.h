// SPDX-License-Identifier: Apache-2.0
// What the interception glue offers to the CPython extension, in plain C. The extension
// opens the session and knows Python (stacks, modules, phases); the glue knows torch.
// Looked up by name in usc_glue_intercept.so: USC_INTERCEPT_TABLE.
#ifndef USC_INTERCEPT_GLUE_H
#define USC_INTERCEPT_GLUE_H

#include <ulpscope/x/capture.h>

USC_BEGIN_DECLS

/** A call of a Python function (torch.nn.functional.linear) around calls of operators,
 * while it runs. Memory of the extension, which derives from it. */
typedef struct usc_intercept_api {
    const usc_capture *session;
    int64_t op;               /* usc_capture_op */
    bool selected;            /* by the PATTERN: so are the calls below it */
    int64_t serial, sequence; /* the glue's; sequence 0: it has no row, for no operator
                                 was called */
    int slot;                 /* the glue's, and so is */
    struct usc_intercept_api *before;
} usc_intercept_api;

/** Where the calling thread is in the user's program, as only the extension knows. All
 * are called with or without the GIL. */
typedef struct usc_intercept_place {
    int64_t (*stack)(usc_capture *c); /* id of the Python stack; 0: none */
    int64_t (*module)(const usc_capture *c,
                      bool backward); /* id of the innermost module of this thread; with
                                         `backward` only if it was entered inside one */
    bool (*optimizer)(void);          /* whether this thread is inside optimizer.step() */
    bool (*graph)(const char *type);  /* whether this thread's stream of a device type is
                                         recording a graph: nothing may be read then */
    void (*meet)(void); /* NULL: API calls are not recorded. This thread is met for the
                           first time: they are to be seen here as well */
    /* JSON of an API call's arguments, after table.api_add for each tensor among them;
       this thread's until the next; NULL: the call is left out */
    const char *(*describe)(usc_intercept_api *call);
} usc_intercept_place;

typedef struct usc_intercept_options {
    usc_intercept_place place;
    const char *ops;        /* PATTERN; NULL: every operator */
    const char *modules;    /* PATTERN over paths (usc_pattern_covers); NULL: all */
    const int64_t *threads; /* native ids; NULL: all */
    int n_threads;
    bool aten;  /* record operators; else only the API calls around them */
    bool reads; /* look after each call whether it wrote what its schema says that it only
                   reads: such an argument has a row of the role MUTATED then */
    bool looks; /* of a session that is watched and keeps no calls: tensors of devices are
                   looked at where they lie (usc_capture_looked), not read */
    bool debug; /* hash inputs around each call, note writes that no schema tells */
} usc_intercept_options;

typedef struct usc_intercept_table {
    /** The hooks that usc_capture_open needs. Static. */
    const usc_capture_hooks *hooks;
    /**
     * Registers kernels for every operator, which hand their calls to `c`. Up to four
     * sessions at a time, each with numbers of its own; where `c` is attached already
     * they stay, and what is known of forward calls is forgotten, for a new step. Errors:
     * USC_E_BUSY where four are, USC_E_UNSUPPORTED where torch refuses.
     */
    usc_status (*attach)(usc_capture *c, const usc_intercept_options *options,
                         usc_error *err);
    /** Hands calls to `c` no more, and waits until no thread uses it; the kernels go with
     * the last session. Must be called without the GIL. Not attached: does nothing. */
    void (*detach)(const usc_capture *c);
    /** Path of a module whose id `place.module` may give. */
    void (*module)(const usc_capture *c, int64_t id, const char *path);
    /** Registers kernels for operators that were registered since the last call. */
    void (*adopt)(void);
    /** Whether this thread runs a node of an autograd graph. */
    bool (*backward)(void);
    /**
     * This thread is inside that API call from here on, until api_leave. Its row is
     * written when an operator is called that is recorded, or would be: reading a shape
     * leaves none.
     */
    void (*api_enter)(usc_intercept_api *call);
    /** It is inside the one before; tensors that are added from here on are results. */
    void (*api_leave)(usc_intercept_api *call);
    /** Takes note of a tensor (a PyObject *, under the GIL) for the row, or the end, of
     * this thread's API call. NULL: this glue was built without Python's headers. */
    void (*api_add)(void *object, usc_role role, const char *path, usc_maybe maybe);
    /** Writes the row of an API call now: of one below which no operator may be called.
     * Without the GIL. */
    void (*api_begin)(usc_intercept_api *call);
    /** Ends the row of a call, if it has one, with the tensors that were added. Without
     * the GIL. */
    void (*api_end)(usc_intercept_api *call, bool ok);
    /** Device types that calls touched so far, e.g. "cpu,sim". Static text per call. */
    const char *(*devices)(void);
    /**
     * Calls `tell` with each operator outside of aten and prims, and where it was defined
     * as torch says it ("registered at net.py:12"). Other threads may register kernels
     * meanwhile, which torch's own dump of an operator does not stand.
     */
    void (*places)(void (*tell)(void *ctx, const char *name, const char *place),
                   void *ctx);
    /**
     * What devices have counted for `c` so far is sent to the host, behind what they do
     * now; what has come goes to usc_capture_looked, and with `wait` all of it. Without
     * the GIL.
     */
    void (*settle)(usc_capture *c, bool wait);
    /** `c` is about to be closed: memory of devices that was used for it goes. */
    void (*forget_looks)(const usc_capture *c);
    /** The API call that this thread is inside of is a module's forward: its graph begins
     * with autograd's node number `first`, its backward pass is a call of operator `op`.
     */
    void (*api_graph)(const usc_intercept_api *call, int64_t op, uint64_t first);
    /** A parameter of that module (a PyObject *, under the GIL), whose gradient is a
     * result of its backward pass, at `path`. NULL: as of api_add. */
    void (*api_parameter)(const usc_intercept_api *call, void *object, const char *path);
} usc_intercept_table;

#define USC_INTERCEPT_TABLE "usc_intercept"

USC_END_DECLS
#endif
