// SPDX-License-Identifier: Apache-2.0
// What `ulpscope overflow` found, and how it says so. Neighbours: cmd_overflow.c
// (options, the whole), overflow_find.c (sources in a trace), overflow_told.c (the rule
// of normal and abnormal, which compat_check.c goes by as well), overflow_say.c (text and
// JSON).
#ifndef ULPSCOPE_CLI_OVERFLOW_H
#define ULPSCOPE_CLI_OVERFLOW_H

#include <ulpscope/trace.h>
#include <ulpscope/verdict.h>
#include <ulpscope/x/flow.h>
#include <ulpscope/x/run.h>

/* What a replay says of a call. */
typedef enum overflow_told {
    OVERFLOW_UNTOLD,  /* nobody replayed it, or that told nothing */
    OVERFLOW_NORMAL,  /* an honest computation gives NaN or Inf as well, or there is none
                       */
    OVERFLOW_ABNORMAL /* it does not: the device's fault */
} overflow_told;

/* What is known of a call that was replayed. */
typedef struct overflow_evidence {
    usc_verdict verdict;
    const char *sentence; /* on it */
    double n_nan_inf;     /* that the replaying device gave */
    bool seen;            /* the captured run gave some, of finite inputs */
    bool home;            /* it was replayed on the type of device that captured it */
    bool made_up;         /* inputs were drawn from statistics */
} overflow_evidence;

/** How NaN and Inf of a call are told; `*words` is why: static, or the sentence given. */
overflow_told overflow_tell(const overflow_evidence *e, const char **words);

/** "untold", "normal", "abnormal". Memory: static. */
const char *overflow_text(overflow_told told);

/* A call at which NaN or Inf comes to be, and what becomes of them. */
typedef struct overflow_source {
    usc_flow_event event;
    int64_t step;
    int64_t n_carried, last; /* calls that carry it on, the last of them */
    int64_t n_ended;
    overflow_told told;
    char *sentence; /* of the replay, NULL: none; malloc'd */
} overflow_source;

typedef struct overflow_found {
    overflow_source *source; /* ascending by call */
    int64_t n, size;
    int64_t n_calls; /* all calls that were looked at */
    int64_t n_odd;   /* of them with NaN or Inf */
    bool statistics; /* the trace has any */
} overflow_found;

/** Goes through a trace. Memory: freed by overflow_free. Errors: those of the trace. */
USC_NODISCARD usc_status overflow_find(usc_trace *t, overflow_found *out, usc_error *err);

void overflow_free(overflow_found *f);

/** Whether a source is a birth: what a replay can say something of. */
bool overflow_is_birth(const overflow_source *s);

/** Takes what a check of the births left in folder `out`. `home`: it ran on the type of
 * device that the trace is from. Errors: those of the results and the trace. */
USC_NODISCARD usc_status overflow_hear(overflow_found *f, usc_trace *t, const char *out,
                                       bool home, usc_error *err);

typedef struct overflow_words {
    bool json, all; /* all: sources that were meant as well */
    int64_t limit;
    const usc_steps *steps;
    size_t n_steps;
    const char *trace;
} overflow_words;

/** Prints what was found. Errors: those of the trace. */
USC_NODISCARD usc_status overflow_say(const overflow_found *f, usc_trace *t,
                                      const overflow_words *words, usc_error *err);

#endif
