// SPDX-License-Identifier: Apache-2.0
// What every run of a crew shares: it begins, calls are asked for and heard of, losses
// become rows, progress is told. Neighbours: check_run.c (the calls of a trace),
// check_shares.c (ranks), fuzz_run.c (drawn cases).
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/arena.h"
#include "base/number.h"
#include "run/check.h"
#include "run/crew.h"
#include "run/identity.h"
#include "run/rooms.h"

#define SAFE "; the results so far are safe, the same command goes on from there"

const usc_advice usc_out_advice[] = {
    {USC_E_EXISTS, "; name another folder with -o, or --force to replace it"},
    {USC_E_VERSION, "; a newer ulpscope is needed, or --force to replace it"},
    {USC_E_CORRUPT, "; --force replaces it, -o names another folder"},
    {USC_E_BUSY, "; wait until it ends, or name another folder with -o"},
    {USC_OK, NULL}};

const usc_advice usc_safe_advice[] = {{USC_E_IO, SAFE}, {USC_OK, NULL}};

/* Of workers that cannot begin, or a device that is lost, when calls have been judged. */
static const usc_advice lost_advice[] = {{USC_E_ARG, SAFE}, {USC_OK, NULL}};

usc_status usc_advise(usc_status st, const usc_advice *advice, usc_error *err)
{
    if (err == NULL || st == USC_OK) return st;
    const char *text = advice == NULL ? usc_status_advice(st) : "";
    for (; advice != NULL && advice->text != NULL; advice++)
        if (advice->status == st) text = advice->text;
    const size_t n = strlen(err->text);
    (void)snprintf(err->text + n, sizeof err->text - n, "%s", text);
    return st;
}

void usc_check_say(const usc_check *c, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    (void)usc_format_list(text, sizeof text, format, args);
    va_end(args);
    if (c->hooks->say != NULL) c->hooks->say(c->hooks->ctx, text);
}

/* How many there will be: of drawn cases as many as there is time for. */
static int64_t total_of(const usc_check *c)
{
    const usc_check_options *o = c->options;
    if (o->fuzz == NULL) return c->picks.n;
    const double part = o->budget > 0 ? (usc_run_clock() - c->start) / o->budget : 0;
    const int64_t known = (int64_t)c->known.n;
    const double more = part > 0 ? (double)(c->n_done - known) / part : 0;
    const bool timed = o->budget > 0 && (double)(o->fuzz->n_cases - known) > more;
    return timed ? known + (int64_t)more : o->fuzz->n_cases;
}

/* How many calls as those so far took are left: those in work, and as many of the others
 * as there is time for. */
static double expected_of(const usc_check *c)
{
    const double now = usc_run_clock(), budget = c->options->budget;
    const double in_work = (double)(c->picks.n - c->n_done - c->agenda.n_left);
    const double calls = in_work + usc_agenda_weight(&c->agenda);
    if (!(budget > 0) || c->split.calls == 0) return calls;
    const double one = (now - c->start) / (double)c->split.calls;
    return one > 0 ? fmin(calls, fmax(0, c->start + budget - now) / one) : calls;
}

static void show_progress(const usc_check *c)
{
    const bool expects = c->hooks->expected != NULL && c->agenda.n_items > 0;
    if (expects) c->hooks->expected(c->hooks->ctx, expected_of(c));
    if (c->hooks->progress != NULL)
        c->hooks->progress(c->hooks->ctx, "checking", c->n_done, total_of(c),
                           c->n_flagged);
}

static double timeout_of(const usc_check *c)
{
    return c->options->timeout > 0 ? c->options->timeout : USC_RUN_TIMEOUT;
}

/* What computed before, held against what computes now. */
static usc_status compare_inputs(usc_check *c, const usc_json *facts, usc_error *err)
{
    char changed[400] = "it does not say what computed";
    usc_json *before = NULL;
    const char *known = c->others;
    usc_status st =
        known == NULL ? usc_result_find(c->result, "inputs", &known, err) : USC_OK;
    if (st != USC_OK) return st;
    if (known != NULL)
        st = usc_json_parse(known, strlen(known), "inputs", "are no JSON", &before, err);
    if (before != NULL &&
        !usc_identity_difference(before, facts, changed, sizeof changed))
        st = usc_no_memory("check", err);
    usc_json_free(before);
    if (st == USC_E_NOMEM || changed[0] == '\0') return st;
    if (c->others != NULL)
        return usc_error_set(err, USC_E_EXISTS, -1,
                             "this rank would compute with something else than rank 0: "
                             "%s; make them equal, the others go on without it",
                             changed);
    return usc_error_set(err, USC_E_EXISTS, -1,
                         "%s holds a run that was cut short, and since then: %s; --force "
                         "begins anew, -o names another folder",
                         c->options->out, changed);
}

/* The first worker is ready and tells what computes: the run begins. Until then OUT is as
 * an earlier run left it. */
usc_status usc_check_begin(void *ctx, const usc_json *message, usc_error *err)
{
    usc_check *c = ctx;
    const usc_json *facts = usc_json_get(message, "ready");
    const bool compared = c->goes_on || c->others != NULL;
    usc_status st = compared ? compare_inputs(c, facts, err) : USC_OK;
    if (st != USC_OK) return st;
    usc_arena arena = {.alloc = usc_libc_alloc};
    char selected[24];
    (void)usc_format(selected, sizeof selected, "%lld", (long long)c->picks.n);
    const char *regions = usc_trace_meta(c->trace, "compiled_regions");
    const char *complete = usc_trace_meta(c->trace, "complete");
    const bool cut = complete != NULL && strcmp(complete, "0") == 0;
    const usc_json *environment = usc_json_get(message, "environment");
    const char *inputs = usc_json_print(facts, &arena);
    const char *said = environment != NULL ? usc_json_print(environment, &arena) : NULL;
    if (arena.failed || c->remarks.failed || c->left.failed)
        st = usc_no_memory("check", err);
    const struct {
        const char *key, *value;
    } keys[] = {{"inputs", inputs},
                {"state", "running"},
                {"n_selected", selected},
                {"left_out", c->left.text != NULL ? c->left.text : ""},
                {"remarks", c->remarks.text != NULL ? c->remarks.text : ""},
                {"unmatched", c->unmatched},
                {"idle_faults", ""},
                {"compiled_regions", regions != NULL ? regions : "0"},
                {"trace_incomplete", cut ? "1" : "0"},
                {"environment", said}};
    for (size_t i = 0; st == USC_OK && i < sizeof keys / sizeof keys[0]; i++)
        if (keys[i].value != NULL)
            st = usc_result_set(c->result, keys[i].key, keys[i].value, err);
    usc_arena_free(&arena);
    c->begun = st == USC_OK;
    const usc_run_ranks *ranks = c->hooks->ranks;
    if (c->begun && ranks != NULL && ranks->rank == 0) (void)ranks->meet(ranks->ctx);
    return usc_advise(st, usc_safe_advice, err);
}

/* Phases that are the device's: "" for none, else what was done meanwhile. */
static const char *while_device(const char *phase)
{
    if (strcmp(phase, "device") == 0) return "";
    return strcmp(phase, "compiling") == 0 ? " while compiling" : NULL;
}

usc_status usc_check_row_of_loss(const usc_check *c, const usc_pick *pick,
                                 const usc_crew_news *news, usc_row *row, usc_error *err)
{
    char why[400];
    const char *meanwhile = while_device(news->phase);
    usc_verdict verdict = USC_VERDICT_UNJUDGED;
    if (news->event == USC_CREW_LOST && meanwhile != NULL) {
        verdict = USC_VERDICT_CRASHED;
        (void)snprintf(why, sizeof why, "the device's process %s%s%s%s", news->how,
                       meanwhile, news->words[0] != '\0' ? "; it last wrote: " : "",
                       news->words);
    } else if (news->event == USC_CREW_LOST) {
        (void)snprintf(why, sizeof why,
                       "the CPU's process %s while computing the reference", news->how);
    } else if (meanwhile != NULL) {
        verdict = USC_VERDICT_TIMEOUT;
        (void)usc_format(why, sizeof why, "no answer from the device in %g s%s",
                         timeout_of(c), meanwhile);
    } else {
        (void)usc_format(why, sizeof why, "the reference took longer than %g s",
                         timeout_of(c));
    }
    return usc_row_lost(c->calls, pick, verdict, why, row, err);
}

/* Planted faults that fired, and operators that nobody here has. */
static void note_remarks(usc_check *c, const usc_json *found, const char *op)
{
    const usc_json *fired = usc_json_get(found, "fired");
    for (size_t i = 0; i < usc_json_size(fired); i++) {
        const char *text = usc_json_as_text(usc_json_item(fired, i));
        if (text != NULL) (void)usc_keys_put(&c->fired, usc_key_of(text), 0);
    }
    if (!usc_json_is_true(usc_json_get(found, "unknown"))) return;
    const int64_t n = (int64_t)c->unknown.n;
    if (usc_keys_put(&c->unknown, usc_key_of(op), n) != n) return;
    usc_line_add(&c->unknown_text, "%s%s", n > 0 ? ", " : "", op);
}

void usc_check_count(usc_check *c, const usc_crew_news *news, const usc_row *row)
{
    usc_split_add(&c->split, row);
    c->n_done++;
    c->n_flagged += usc_verdict_flagged(row->verdict);
    if (news->row != NULL) note_remarks(c, news->row, row->row.op);
    show_progress(c);
}

usc_status usc_check_hear(void *ctx, const usc_crew_news *news, usc_error *err)
{
    usc_check *c = ctx;
    usc_row row;
    const bool found = news->row != NULL;
    const usc_pick *pick = &c->picks.pick[news->job];
    if (news->event == USC_CREW_CAUSE && !found)
        return usc_advise(usc_result_settle(c->result, pick->call, err), usc_safe_advice,
                          err);
    usc_status st = found ? usc_row_found(c->calls, pick, news->row, &row, err)
                          : usc_check_row_of_loss(c, pick, news, &row, err);
    if (st != USC_OK) return st;
    st = usc_advise(usc_result_put(c->result, &row.row, err), usc_safe_advice, err);
    if (news->event == USC_CREW_CAUSE) {
        usc_split_explain(&c->split, &row);
    } else if (st == USC_OK) {
        usc_agenda_hear(&c->agenda, news->job, row.verdict, row.row.bits,
                        (double)row.row.t_total / 1e9);
        usc_check_count(c, news, &row);
    }
    usc_row_free(&row);
    return st;
}

int64_t usc_check_room(void *ctx, int64_t job)
{
    const usc_check *c = ctx;
    return usc_room_of_pick(c->calls, &c->picks.pick[job]);
}

void usc_check_ask(void *ctx, int64_t job, usc_line *to)
{
    const usc_check *c = ctx;
    const char *via = c->options->via;
    usc_check_request(&c->picks.pick[job], via != NULL && via[0] != '\0', to);
    usc_line_add(to, ", \"stands_for\": %lld", (long long)c->picks.pick[job].stands_for);
}

usc_status usc_check_work(usc_check *c, const usc_crew_work *work, int jobs, bool meet,
                          bool *stopped, usc_error *err)
{
    usc_line settings = {0};
    const int64_t memory = usc_check_memory(c);
    usc_check_settings(c, jobs, memory, &settings);
    const usc_crew_settings crew = {.text = settings.text,
                                    .size = jobs,
                                    .timeout = timeout_of(c),
                                    .memory = memory,
                                    .meet = meet};
    usc_status st = USC_OK;
    if (settings.failed || c->texts.failed) st = usc_no_memory("check", err);
    show_progress(c);
    if (st == USC_OK) st = usc_crew_run(&crew, work, c->hooks, stopped, err);
    usc_line_free(&settings);
    return c->n_done > 0 ? usc_advise(st, lost_advice, err) : st;
}
