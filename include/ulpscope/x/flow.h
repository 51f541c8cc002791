// SPDX-License-Identifier: Apache-2.0
// NaN and Inf on their way through a run: at which call one is born, which calls carry it
// on, where it ends. By the statistics of tensors alone: no operator runs, no data are
// read. Whether a birth is the device's fault tells a replay (run.h).
//
// Threads: one thread at a time per flow, where a function does not say otherwise.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_FLOW_H
#define ULPSCOPE_X_FLOW_H

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

/** A storage came to its end: what was known of it goes, and its number may be given
 * anew. For flows that run on and on. */
USC_API void usc_flow_forget(usc_flow *flow, int64_t storage);

/**
 * What an event says, without the call's name: "12 +Inf among 512 elements of out[0];
 * all inputs are finite, the largest value is 300 (args[0]), float16 ends at 65504".
 * Empty where the event is CLEAN. `call` is the event's call.
 *
 * Memory:  at most `size` bytes with the zero go to `out`; what does not fit is cut.
 */
USC_API void usc_flow_say(const usc_call *call, const usc_flow_event *event, char *out,
                          size_t size);

/* ---- while a program runs ---- */

/** Where a NaN or an Inf came from. */
typedef struct usc_birth {
    usc_flow_event event;
    int64_t step;
    const char *value; /* "NaN" or "Inf": what came out, the worse of both */
    const char *op, *phase, *module;
    const char *inputs;   /* usc_call_summary */
    const char *sentence; /* all of it in one line */
    const char *frames;   /* JSON as in usc_call, NULL: not known */
} usc_birth;

typedef struct usc_births usc_births;

/**
 * An empty list that keeps the first `most` births (0: 1000) and counts the rest.
 *
 * Memory:  freed by usc_births_free.
 * Errors:  USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_births_create(int64_t most, usc_births **out,
                                                   usc_error *err);

/** Frees; NULL is allowed. */
USC_API void usc_births_free(usc_births *births);

/**
 * Takes the next call that ended, one thread at a time. Births are BORN, TURNED, and of
 * ENTERED those with NaN: an Inf that lay there before is most often a mask that is
 * meant, and where it does harm it turns to NaN.
 *
 * Memory:  nothing of `call` is kept but copies of texts, for births alone.
 * Errors:  USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_births_call(usc_births *births, const usc_call *call,
                                                 usc_error *err);

/** As usc_flow_forget, by the same thread. */
USC_API void usc_births_forget(usc_births *births, int64_t storage);

/** How many there were, and in `*kept`, unless that is NULL, how many can be read. Threads:
 * any. */
USC_API int64_t usc_births_count(usc_births *births, int64_t *kept);

/** The i-th that was kept; NULL where there is none. Memory: until usc_births_free.
 * Threads: any. */
USC_API const usc_birth *usc_births_at(usc_births *births, int64_t i);

USC_END_DECLS
#endif
