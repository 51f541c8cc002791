// SPDX-License-Identifier: Apache-2.0
// A check while it runs. Neighbours: check_run.c (the whole), check_chosen.c (which
// calls), check_settings.c (what is told to others), check_shares.c (ranks),
// check_split.c (times), check_selftest.c.
#ifndef USC_RUN_CHECK_H
#define USC_RUN_CHECK_H

#include <ulpscope/trace.h>
#include <ulpscope/x/run.h>

#include "base/line.h"
#include "run/agenda.h"
#include "run/crew.h"
#include "run/fuzz_plan.h"
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
    char unmatched[256]; /* of --ops, what matches nothing */
    usc_line left;       /* of a whole trace, why not all of its calls are checked */
    usc_result *result;
    usc_agenda agenda;
    usc_split split;
    int64_t n_done, n_flagged;
    bool goes_on, begun;
    const char *others; /* what computes in rank 0, JSON; NULL: this is it, or is alone */
    double start, before; /* clock, and seconds of earlier parts of this run */
    usc_arena texts;
    usc_keys unknown; /* names of operators that are unknown here, in `unknown_text` */
    usc_line unknown_text;
    usc_keys fired;     /* texts of planted faults that fired */
    usc_fuzz_plan plan; /* of drawn cases: these, those that have a row, the next one */
    usc_keys known, covered; /* operators of what they were drawn from */
    int64_t next, n_taken;
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

/** Reads the calls of a trace into new `calls` and chooses those that match a PATTERN
 * (NULL: all), `distinct`: one of each signature. Memory: both are the caller's, also
 * after an error. Errors: those of the trace, USC_E_NOMEM. */
USC_NODISCARD usc_status usc_choose_ops(usc_trace *trace, const char *ops, bool distinct,
                                        usc_calls **calls, usc_selection *picks,
                                        usc_error *err);

/** Reads the calls and chooses among them; remarks on the trace, a line each. Errors:
 * USC_E_NOT_FOUND where nothing is left. */
USC_NODISCARD usc_status usc_check_choose(usc_check *c, usc_error *err);

/** JSON of the options that choose calls or change verdicts. Memory: in c->texts; NULL
 * without. */
const char *usc_check_option_text(usc_check *c);

/** Appends to a worker's settings what it imports: what the trace names, and `imports`.
 */
void usc_put_imports(usc_trace *trace, const char *const *imports, int n, usc_line *to);

/** Appends a member of an object that has some already; "" for NULL. */
void usc_put_text(const char *name, const char *value, usc_line *to);

/** A copy of a text, and of what a worker says under a key; "" for none. */
const char *usc_kept_text(usc_arena *arena, const char *text);
const char *usc_said_text(usc_arena *arena, const usc_json *said, const char *key);

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

/* ---- handing out, and what came of it: for whoever runs the crew ---- */

usc_status usc_check_begin(void *ctx, const usc_json *message, usc_error *err);
usc_status usc_check_hear(void *ctx, const usc_crew_news *news, usc_error *err);

/** The row of a pick whose worker was lost. */
USC_NODISCARD usc_status usc_check_row_of_loss(const usc_check *c, const usc_pick *pick,
                                               const usc_crew_news *news, usc_row *row,
                                               usc_error *err);

/** Counts a row that was written, and tells of the progress. */
void usc_check_count(usc_check *c, const usc_crew_news *news, const usc_row *row);

/* ---- drawn cases: fuzz_run.c ---- */

/** In place of usc_check_choose. Errors: as there. */
USC_NODISCARD usc_status usc_fuzz_choose(usc_check *c, usc_error *err);

/** Draws and judges until cases or time are spent, or the user stops it. */
USC_NODISCARD usc_status usc_fuzz_cases(usc_check *c, bool *stopped, usc_error *err);
int64_t usc_check_room(void *ctx, int64_t job);
void usc_check_ask(void *ctx, int64_t job, usc_line *to);

/** Works through what `work` hands out, by `jobs` workers; `meet`: starts one in any
 * case.
 */
USC_NODISCARD usc_status usc_check_work(usc_check *c, const usc_crew_work *work, int jobs,
                                        bool meet, bool *stopped, usc_error *err);

/* ---- ranks (check_shares.c) ---- */

/** Whether the rows of this process are a part, which rank 0 takes in. */
bool usc_check_is_part(const usc_check *c);

/** Waits until rank 0 has begun, and learns what OUT holds. *idle: there is nothing to do
 * here. Errors: USC_E_IO where rank 0 is gone. */
USC_NODISCARD usc_status usc_check_meet(usc_check *c, usc_keys *known, bool *idle,
                                        usc_error *err);

/** Works on shares until none is left; `known`: calls that have a row, NULL for none but
 * those of c->result. */
USC_NODISCARD usc_status usc_check_share(usc_check *c, usc_keys *known, bool *stopped,
                                         usc_error *err);

/** Whether OUT holds parts. */
bool usc_check_has_parts(const char *out);

/** Takes the parts that lie in OUT into c->result, and away; `drop`: only away. */
USC_NODISCARD usc_status usc_check_gather(usc_check *c, bool drop, usc_error *err);

/** Plants mistakes into the right results of every operator and keeps what was caught. */
USC_NODISCARD usc_status usc_check_self_test(usc_check *c, bool *stopped, usc_error *err);

#endif
