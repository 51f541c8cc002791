// SPDX-License-Identifier: Apache-2.0
// A check while it runs. Neighbours: check_run.c (the whole), check_chosen.c (which
// calls), check_settings.c (what is told to others), check_split.c (times),
// check_selftest.c.
#ifndef USC_RUN_CHECK_H
#define USC_RUN_CHECK_H

#include <ulpscope/run.h>
#include <ulpscope/trace.h>

#include "base/line.h"
#include "run/agenda.h"
#include "run/row.h"
#include "json/json.h"

/* Where the time went, over all calls of this run: nanoseconds. */
enum { USC_N_PARTS = 5 };

typedef struct usc_split {
    int64_t calls, accused;
    int64_t part[USC_N_PARTS]; /* device, reference, perturbed, judge, causes */
    int64_t total, causes;
    /* Of calls that are not accused and of those that are: of one float64 replay of each,
     * and of all the rest but the device and the search for causes. */
    int64_t wide[2], rest[2];
    bool seen[USC_N_VERDICTS];
} usc_split;

typedef struct usc_check {
    const usc_check_options *options;
    const usc_run_hooks *hooks;
    usc_trace *trace;
    usc_calls *calls;
    usc_selection picks;
    usc_line remarks;
    usc_result *result;
    usc_agenda agenda;
    usc_split split;
    int64_t n_done, n_flagged;
    bool goes_on, begun;
    double start, before; /* clock, and seconds of earlier parts of this run */
    usc_arena texts;
    usc_keys unknown; /* names of operators that are unknown here, in `unknown_text` */
    usc_line unknown_text;
    usc_keys fired; /* texts of planted faults that fired */
} usc_check;

/** Says a formatted sentence to the user. */
void usc_check_say(const usc_check *c, const char *format, ...) USC_PRINTF(2, 3);

/** Appends what to do about a status to the text of an error. Returns it. */
typedef struct usc_advice {
    usc_status status;
    const char *text;
} usc_advice;
usc_status usc_advise(usc_status st, const usc_advice *advice, usc_error *err);

/** Of a damaged or newer trace; of results. Both end with a zero row. */
extern const usc_advice usc_out_advice[], usc_safe_advice[];

/** Reads all calls of a trace into `calls`. Errors: those of the trace. */
USC_NODISCARD usc_status usc_read_calls(usc_trace *trace, usc_calls *calls,
                                        usc_error *err);

/** Reads the calls and chooses among them; remarks on the trace, a line each. Errors:
 * USC_E_NOT_FOUND where nothing is left. */
USC_NODISCARD usc_status usc_check_choose(usc_check *c, usc_error *err);

/** JSON of the options that choose calls or change verdicts; of what the trace says the
 * workers import, "[]" for nothing. Memory: in c->texts; NULL without. */
const char *usc_check_option_text(usc_check *c);
const char *usc_recorded_imports(usc_trace *trace, usc_arena *arena);

/** The path from the root: the same wherever a command is given. NULL without memory. */
const char *usc_absolute(usc_arena *arena, const char *path);

/** Opens OUT. */
USC_NODISCARD usc_status usc_check_open_result(usc_check *c, usc_error *err);

/** What a worker is told when it starts, as JSON in `to`. */
void usc_check_settings(usc_check *c, int jobs, int64_t memory, usc_line *to);

/** The request for a pick, without its closing brace. */
void usc_check_request(const usc_pick *pick, bool compiled, usc_line *to);

/** Bytes that all workers may take; 0: nobody tells. */
int64_t usc_check_memory(const usc_check *c);

void usc_split_add(usc_split *s, const usc_row *row);
void usc_split_explain(usc_split *s, const usc_row *row);

/** One line: how many calls in what time; `verbose`: with what took how long. */
void usc_split_tell(const usc_split *s, double seconds, int jobs, bool verbose,
                    usc_line *to);

/** Plants mistakes into the right results of every operator and keeps what was caught. */
USC_NODISCARD usc_status usc_check_self_test(usc_check *c, bool *stopped, usc_error *err);

#endif
