// SPDX-License-Identifier: Apache-2.0
// Faults put into numbers on purpose: what a watch is measured by. A schedule says what
// goes wrong, when and where; the bits that change follow from it and a seed alone.
//
// Threads: one injector, one thread at a time.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_INJECT_H
#define ULPSCOPE_X_INJECT_H

#include <ulpscope/dtype.h>

USC_BEGIN_DECLS

/* id, name in a schedule, what it does to the chosen elements;
 * docs/reference/watch-reference.md, "Faults" */
#define USC_INJECT_LIST(X)                                                               \
    X(FLIP, "flip", "one bit flips: `bit`, or one that is drawn")                        \
    X(MASK, "mask", "the bits of `mask` flip, or `bits` that are drawn")                 \
    X(CARRY, "carry", "a carry too many into bit `bit`, or with `value` 0 one too few")  \
    X(STUCK, "stuck", "`bit` is always `value`")                                         \
    X(SCALE, "scale", "times `factor`; its distance to 1 times `growth` each step")      \
    X(ZERO, "zero", "zeros")                                                             \
    X(STALE, "stale", "what the call before had there")                                  \
    X(SHIFT, "shift", "what lies `shift` elements behind, wrapping around")              \
    X(SWAP, "swap", "the two halves of the elements change places")                      \
    X(NARROW, "narrow", "rounded to bfloat16")

typedef enum usc_inject_kind {
#define USC_INJECT_ENUM(id, name, what) USC_INJECT_##id,
    USC_INJECT_LIST(USC_INJECT_ENUM)
#undef USC_INJECT_ENUM
        USC_N_INJECT_KINDS
} usc_inject_kind;

/** Where numbers are that may be harmed. */
typedef struct usc_inject_place {
    int64_t step;
    int64_t rank;
    const char *site; /* "grad", "reduced", "weight", "moment1", ... */
    const char *name; /* of the tensor, or of the operator: "blocks.0.up.weight" */
} usc_inject_place;

/** What was done to one tensor by one line of the schedule. */
typedef struct usc_injected {
    int64_t step, line; /* of the schedule, from 1 */
    int64_t element;    /* the first that changed */
    int64_t n_changed;
    uint64_t before, after; /* its bits */
} usc_injected;

typedef struct usc_injector usc_injector;

/** Name of a kind ("flip") and what it does, in a few words; NULL for other values.
 * Memory: static. */
USC_API const char *usc_inject_kind_name(usc_inject_kind kind);
USC_API const char *usc_inject_kind_text(usc_inject_kind kind);

/**
 * Reads a schedule: a line of JSON for each fault; empty lines are allowed.
 *
 *     {"step": 3, "rank": 1, "site": "grad", "name": "blocks.*", "fault": "flip", "bit":
 * 30}
 *
 * When and where: `step` and `steps` (how many; -1: from then on; default 1), `rank` (-1:
 * all, the default), `site` and `name` (PATTERNs; default: all), `p` (probability of each
 * call, default 1). Which elements: `element` (the first, negative from the end; drawn
 * where not given), `count` (default 1; -1: to the end), `every` (distance of two,
 * default 1; 0: the size of the last axis, which is a column). What: `fault` and its own
 * members (USC_INJECT_LIST).
 *
 * Memory:  *out is freed by usc_injector_free; NULL after an error.
 * Errors:  USC_E_CORRUPT with line and member, also for a member that is not known;
 *          USC_E_RANGE, USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_injector_make(const char *schedule, size_t size,
                                                   uint64_t seed, usc_injector **out,
                                                   usc_error *err);

/** Frees; NULL is allowed. */
USC_API void usc_injector_free(usc_injector *injector);

/** Whether a fault is due at this place, whatever chance says: costs no pass over data.
 */
USC_API bool usc_injector_due(const usc_injector *injector,
                              const usc_inject_place *place);

/**
 * Applies what is due to `n` elements that lie one behind the other, `columns` in a row
 * (the size of the last axis). The same calls in the same order change the same bits.
 *
 * Numbers: a fault that computes (scale, narrow) does so in double, rounded once; the
 *          others change bits and look at no value.
 * Errors:  USC_E_DTYPE for USC_DTYPE_NONE and for `scale`, `narrow` and a `bit` that the
 *          dtype does not have (nothing is changed by that line), USC_E_NOMEM (stale).
 */
USC_API USC_NODISCARD usc_status usc_injector_apply(usc_injector *injector,
                                                    const usc_inject_place *place,
                                                    usc_dtype dtype, void *data,
                                                    int64_t n, int64_t columns,
                                                    usc_error *err);

/** The i-th tensor that was changed, in turn; false (and *out zero) beyond the last. The
 * first 4096 are kept. */
USC_API bool usc_injector_done(const usc_injector *injector, int64_t i,
                               usc_injected *out);

USC_END_DECLS
#endif
