// SPDX-License-Identifier: Apache-2.0
// One operator invocation: what was called, with what, where. And lists of them: which of
// a list a replay takes. Neighbours: value.h (arguments), trace.h (reads calls).
//
// Threads: safe, while nobody adds to or frees the list at hand.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_CALL_H
#define ULPSCOPE_CALL_H

#include <ulpscope/stats.h>
#include <ulpscope/tensor.h>
#include <ulpscope/value.h>

USC_BEGIN_DECLS

/* IN: before the call. MUTATED: an argument that the call writes, as it was left (the
 * same argument also has its IN row). OUT: what the call returned. */
typedef enum usc_role { USC_ROLE_IN, USC_ROLE_OUT, USC_ROLE_MUTATED } usc_role;

/** Text of a role as in trace.db: "in", "out", "mutated". Memory: static. */
USC_API const char *usc_role_text(usc_role role);

/** One argument or result of a call, with everything needed to rebuild it. */
typedef struct usc_call_arg {
    usc_role role;
    const char *path;
    int64_t tensor, version, storage, generation, blob;
    int64_t writer; /* call that wrote this version, 0: from outside */
    int64_t storage_bytes;
    int64_t first; /* byte of the storage at which the blob begins */
    const char *device;
    const char *dtype_name;
    int ndim;
    const int64_t *sizes, *strides; /* `ndim` of each; NULL may stand for none */
    int64_t offset;
    bool requires_grad;
    const char *stats;      /* JSON or NULL */
    const usc_range *range; /* in its place where a running session took it; NULL: not */
    const char *form;       /* as in usc_tensor_row */
} usc_call_arg;

/**
 * One number of the statistics of an argument, by the name of its field (stats.h):
 * "n_nan", "max". False, and 0 in *out, where there is none: no statistics, or no finite
 * element.
 */
USC_API bool usc_call_arg_stat(const usc_call_arg *arg, const char *name, double *out);

/**
 * The range of an argument, from `range` or from `stats`. False, and zeros in *out, where
 * there is neither. min and max are 0 where no element is finite, and so is what of
 * `stats` cannot be.
 */
USC_API bool usc_call_arg_range(const usc_call_arg *arg, usc_range *out);

/** One call. Texts may be NULL where a trace does not tell. */
typedef struct usc_call {
    int64_t sequence, step, parent, thread;
    int64_t module, stack, n_children;
    const char *phase, *op, *schema, *module_path, *module_class, *frames;
    const char *args, *state, *status;
    bool composite;
    int n_args;
    const usc_call_arg *arg;
} usc_call;

/**
 * The arguments of a call in one line: dtypes and shapes of tensors, others as they are,
 * "float32[6, 8], 1". At most 400 bytes, cut at a character.
 *
 * Memory:  allocates and frees; `out` gets at most `size` bytes with the zero.
 * Errors:  USC_E_NOMEM, `out` is empty then; what cannot be read is left out.
 */
USC_API USC_NODISCARD usc_status usc_call_summary(const usc_call *call, char *out,
                                                  size_t size, usc_error *err);

/* ---- lists ---- */

typedef struct usc_calls usc_calls;

/** An empty list. Memory: freed by usc_calls_free. Errors: USC_E_NOMEM. */
USC_API USC_NODISCARD usc_status usc_calls_create(usc_calls **out, usc_error *err);

/** Frees a list and all selections of it become invalid; NULL is allowed. */
USC_API void usc_calls_free(usc_calls *calls);

/** Adds a copy of a call; sequences ascend. Errors: USC_E_NOMEM, USC_E_ARG (order),
 * USC_E_CORRUPT (arguments or state that cannot be read). */
USC_API USC_NODISCARD usc_status usc_calls_add(usc_calls *calls, const usc_call *call,
                                               usc_error *err);

/** The calls, ascending, and their number. Memory: until usc_calls_add or
 * usc_calls_free. */
USC_API const usc_call *usc_calls_list(const usc_calls *calls, int64_t *n);

/** The call of that number, NULL where there is none. Memory: as usc_calls_list. */
USC_API const usc_call *usc_calls_find(const usc_calls *calls, int64_t sequence);

/** A range of steps, both ends included. */
typedef struct usc_steps {
    int64_t first, last;
} usc_steps;

/**
 * Reads "2,5-8".
 *
 * Memory:  *out holds *n ranges and is freed by the caller, with free(). Both may be NULL
 *          where it is only to be checked.
 * Errors:  USC_E_ARG, the text says what is wrong with which part; USC_E_NOMEM. *out is
 *          NULL then.
 */
USC_API USC_NODISCARD usc_status usc_steps_read(const char *text, usc_steps **out,
                                                size_t *n, usc_error *err);

/** Whether a step is in one of `n` ranges; of none, it is. */
USC_API bool usc_steps_have(const usc_steps *steps, size_t n, int64_t step);

/** The calls of one autograd node, in a backward pass. */
typedef struct usc_backward {
    int64_t of; /* the forward call */
    int64_t n;
    const int64_t *call;
} usc_backward;

/** The forward pass of one module: a run of calls that it or a module inside it made. */
typedef struct usc_forward {
    const char *path; /* as the model names it, "" for the model itself */
    const char *op;   /* "module:PATH" */
    const char *module_class;
    int64_t n_calls;
    const int64_t *call;
    int64_t n_kept; /* tensor versions that are read after it, ascending */
    const int64_t *kept;
} usc_forward;

/** One thing to replay: a call, or the forward of a module. */
typedef struct usc_pick {
    int64_t call;       /* what names it among the results */
    int64_t n_children; /* calls below it, to find a culprit */
    const int64_t *child;
    int64_t stands_for; /* calls that it stands for, itself included */
    int64_t n_backward;
    const usc_backward *backward;
    const usc_forward *forward; /* NULL: a call */
} usc_pick;

typedef struct usc_selection {
    const char *home; /* device type that captured the calls */
    int64_t n;
    const usc_pick *pick; /* ascending; of modules: by first call, inner ones last */
    void *memory;
} usc_selection;

/** What is replayed as one: a call of an operator (or of what stands for it), of a Python
 * function, or the forward of a module. */
typedef enum usc_level {
    USC_LEVEL_CALL,
    USC_LEVEL_API,
    USC_LEVEL_MODULE,
} usc_level;

/** Whether a call is one of a Python function: its name has no "::". */
USC_API bool usc_call_is_api(const usc_call *call);

/* Name of the calls that stand for the forward pass of a module as a whole: what went in
 * and came out. They are not run again. */
#define USC_CALL_FORWARD "module.forward"

/* Of those that stand for its backward pass: gradients came in, and what came out are
 * those of its inputs and parameters. */
#define USC_CALL_BACKWARD "module.backward"

typedef struct usc_select_options {
    const char *target;    /* device type that will replay; NULL: the home */
    const int64_t *wanted; /* ascending; NULL: all */
    int64_t n_wanted;
    bool distinct; /* one for each signature */
    usc_level level;
} usc_select_options;

/**
 * Which calls a replay takes. On the device type that captured them the ATen calls; on
 * any other the outermost portable call stands for the ATen calls below it, so that the
 * target's own fused kernels are what is tested. At the level of Python functions the
 * outermost of them stands for what is below it on every device; of one that is not
 * portable the ATen calls are taken.
 *
 * Memory:  *out is freed by usc_selection_free and needs `calls`.
 * Errors:  USC_E_NOMEM; *out is empty then.
 */
USC_API USC_NODISCARD usc_status usc_select(const usc_calls *calls,
                                            const usc_select_options *options,
                                            usc_selection *out, usc_error *err);

/** Frees; an empty one is allowed. */
USC_API void usc_selection_free(usc_selection *s);

/** What is asked of a list of calls. */
typedef struct usc_wanted {
    const int64_t *matching; /* numbers that pass other filters, ascending */
    int64_t n_matching;
    int64_t call;         /* this one or those below it; -1: any */
    const int64_t *calls; /* these or those below them, ascending; NULL: any */
    int64_t n_calls;
    const usc_steps *steps;
    size_t n_steps; /* 0: any */
} usc_wanted;

/**
 * The numbers of the calls that are wanted.
 *
 * Memory:  *out has room for as many as `matching`, *n are used.
 */
USC_API void usc_calls_wanted(const usc_calls *calls, const usc_wanted *wanted,
                              int64_t *out, int64_t *n);

/**
 * Operators of the list that a PATTERN that matches none may have meant, at most three,
 * with commas between: torch.mm, aten.mm.default and MM mean aten::mm. "" for none.
 */
USC_API void usc_calls_likely(const usc_calls *calls, const char *pattern, char *out,
                              size_t size);

USC_END_DECLS
#endif
