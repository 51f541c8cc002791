// SPDX-License-Identifier: Apache-2.0
// NaN and Inf on their way through a run: at which call one is born, which calls carry it
// on, where it ends. By the statistics of tensors alone: no operator runs, no data are
// read. Whether a birth is the device's fault tells a replay (run.h).
//
// Threads: one thread at a time per flow.
#ifndef ULPSCOPE_FLOW_H
#define ULPSCOPE_FLOW_H

#include <ulpscope/call.h>

USC_BEGIN_DECLS

/* name, text:
 *
 * BORN     NaN or Inf came out, all inputs were finite
 *
 * TURNED   NaN came out, of inputs that had Inf and no NaN: inf - inf, 0 * inf, a row
 *          that is masked whole; or an Inf of a sign that was not meant, beside a meant
 *          one
 *
 * WRITTEN  an argument that is a number asked for it: fill_(-inf), full(..., nan)
 *
 * ENTERED  it came from outside of the calls seen: data, a parameter, an operator that
 *          was not captured; the call is the first that read it
 *
 * CARRIED  it came in, and so it came out
 *
 * ENDED    it came in, and nothing of it came out: masks, where, nan_to_num
 *
 * CLEAN    none of it */
#define USC_FLOW_LIST(X)                                                                 \
    X(CLEAN, "clean")                                                                    \
    X(BORN, "born")                                                                      \
    X(TURNED, "turned")                                                                  \
    X(WRITTEN, "written")                                                                \
    X(ENTERED, "entered")                                                                \
    X(CARRIED, "carried")                                                                \
    X(ENDED, "ended")

typedef enum usc_flow_kind {
#define USC_FLOW_ENUM(id, text) USC_FLOW_##id,
    USC_FLOW_LIST(USC_FLOW_ENUM)
#undef USC_FLOW_ENUM
        USC_N_FLOW_KINDS
} usc_flow_kind;

/** Text of a kind: "born"; "unknown" for other values. Memory: static. */
USC_API const char *usc_flow_text(usc_flow_kind kind);

/** What one call did. Counts are elements. */
typedef struct usc_flow_event {
    usc_flow_kind kind;
    int64_t call;   /* its number */
    int64_t source; /* the call at which it was born, written or entered: this one
                       where it is that; 0 of CLEAN */
    int arg;        /* of call->arg: the output that shows it, of ENTERED and ENDED the
                       input; -1 of CLEAN */
    int from;       /* input that brought it, of BORN the one with the largest value;
                       -1: none */
    int64_t n, n_nan, n_pos_inf, n_neg_inf; /* of `arg` */
    double largest; /* of all finite values of the inputs, in magnitude */
} usc_flow_event;

typedef struct usc_flow usc_flow;

/** A flow that has seen nothing. Memory: freed by usc_flow_free. Errors: USC_E_NOMEM. */
USC_API USC_NODISCARD usc_status usc_flow_create(usc_flow **out, usc_error *err);

/** Frees; NULL is allowed. */
USC_API void usc_flow_free(usc_flow *flow);

/**
 * What the next call did; calls come in the order of their numbers. One with calls below
 * it is CLEAN: those tell. A call is one kind alone: where NaN or Inf comes in already, a
 * further one that is born there is not seen, so mend the first and look again. Memory
 * that nobody has written (aten::empty) counts as finite. A sign of Inf that a number
 * asked for is meant: it excuses Inf of that sign alone.
 *
 * Memory:  keeps nothing of `call`; some bytes for each storage that holds NaN or Inf.
 * Errors:  USC_E_NOMEM. Tensors without statistics tell nothing.
 */
USC_API USC_NODISCARD usc_status usc_flow_call(usc_flow *flow, const usc_call *call,
                                               usc_flow_event *out, usc_error *err);

USC_END_DECLS
#endif
