// SPDX-License-Identifier: Apache-2.0
// What the glue offers to the extension for calls that are to be computed another way.
// Looked up by name in usc_glue_intercept.so: USC_REROUTE_TABLE. A library of its own
// table: sessions (intercept_glue.h) and routes know nothing of each other; a session
// stands above and sees what a route made of a call.
#ifndef USC_REROUTE_GLUE_H
#define USC_REROUTE_GLUE_H

#include <ulpscope/status.h>

USC_BEGIN_DECLS

typedef enum usc_reroute_kind {
    USC_REROUTE_FALLBACK,   /* on the CPU */
    USC_REROUTE_CAST,       /* in another dtype, where the tensors are */
    USC_REROUTE_SUBSTITUTE, /* by a Python function */
    USC_REROUTE_REDUCTION,  /* reducing collectives, in float32 */
    USC_REROUTE_TIME,       /* as it is, and how long it takes */
    USC_REROUTE_COUNT,      /* as it is, and how often */
    USC_REROUTE_OBSERVE     /* as it is, and what it got and gave, as JSON lines */
} usc_reroute_kind;

typedef struct usc_reroute_options {
    usc_reroute_kind kind;
    const char *ops;        /* PATTERN */
    const char *dtype;      /* of a cast: "float32" */
    void *function;         /* of a substitute: PyObject *, which outlives the route */
    const int64_t *threads; /* native ids; NULL: all */
    int64_t n_threads;
    const char *modules; /* PATTERN over paths (usc_pattern_covers); NULL: all */
    bool draws; /* only operators that draw random numbers; of attention the calls that
                   drop out */
    const char *output; /* of observing: the file, which is appended to */
    int level;          /* 1 metadata, 2 signatures too, 3 `length` values, 4 all values,
                           5 and 6 both with signatures */
    int64_t length;
    bool (*optimizer)(
        void); /* of time and observing: whether this thread is in an optimizer's step */
} usc_reroute_options;

typedef struct usc_reroute_time {
    const char *op, *phase;
    int64_t n;
    double total_ms, most_ms;
    bool by_event; /* the device's own time, else the clock's */
} usc_reroute_time;

typedef struct usc_reroute_table {
    /**
     * Registers kernels in front of those of the devices for the operators that match,
     * with a new route in them, which is on. A later route wins over an earlier one.
     * Errors: USC_E_ARG for a dtype that is none; USC_E_UNSUPPORTED where torch refuses.
     */
    usc_status (*enter)(const usc_reroute_options *options, int64_t *route,
                        usc_error *err);
    /** Switches a route on or off; its kernels stay. */
    void (*set_on)(int64_t route, bool on);
    /** Takes a route out, and kernels that no other one needs; waits until no thread is
     * in it. Its counts stay readable. Without the GIL. */
    void (*leave)(int64_t route);
    /** Takes in operators and devices that came since. Cheap where there are none. */
    void (*adopt)(void);
    /** The operator that comes `i`-th among those that a route computed, and how often;
     * false behind the last. The text is valid until the process ends. */
    bool (*calls)(int64_t route, int64_t i, const char **op, int64_t *n);
    /** The `i`-th sentence on what a route could not do; NULL behind the last. */
    const char *(*problem)(int64_t route, int64_t i);
    /** The `i`-th operator and phase ("forward") whose calls were timed; false behind the
     * last. `i` 0 takes stock, of which the others are rows: one thread at a time. */
    bool (*times)(int64_t route, int64_t i, usc_reroute_time *out);
    /** How many operators the PATTERN of a route matched. */
    int64_t (*n_operators)(int64_t route);
    /** Whether a route is for the module of this path. */
    bool (*covers)(int64_t route, const char *path);
    /** This thread goes into a module, which is `meant` or not; out of the innermost one;
     * is in how many; is in none. Of a route without `modules` all do nothing. */
    void (*enter_module)(int64_t route, bool meant);
    void (*leave_module)(int64_t route);
    int64_t (*module_depth)(int64_t route);
    void (*leave_modules)(int64_t route);
} usc_reroute_table;

#define USC_REROUTE_TABLE "usc_reroute"

USC_END_DECLS
#endif
