// SPDX-License-Identifier: Apache-2.0
// The check of one trace from its beginning to its end.
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
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

/* ---- beginning ---- */

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

/* ---- what came of a call ---- */

/* Phases that are the device's: "" for none, else what was done meanwhile. */
static const char *while_device(const char *phase)
{
    if (strcmp(phase, "device") == 0) return "";
    return strcmp(phase, "compiling") == 0 ? " while compiling" : NULL;
}

usc_status usc_check_row_of_loss(const usc_check *c, const usc_pick *pick,
                                 const usc_crew_news *news, usc_row *row, usc_error *err)
{
    char why[160];
    const char *meanwhile = while_device(news->phase);
    usc_verdict verdict = USC_VERDICT_UNJUDGED;
    if (news->event == USC_CREW_LOST && meanwhile != NULL) {
        verdict = USC_VERDICT_CRASHED;
        (void)snprintf(why, sizeof why, "the device's process %s%s", news->how,
                       meanwhile);
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

/* ---- handing out ---- */

static bool more(void *ctx)
{
    return usc_agenda_more(&((usc_check *)ctx)->agenda);
}

static int64_t take(void *ctx)
{
    return usc_agenda_take(&((usc_check *)ctx)->agenda);
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

/* ---- what is said at the end ---- */

static void say_unknown(const usc_check *c)
{
    if (c->unknown.n == 0) return;
    usc_json *argv = NULL;
    const char *text = usc_trace_meta(c->trace, "argv"), *script = NULL;
    if (text != NULL)
        (void)!usc_json_parse(text, strlen(text), "argv", "is no JSON", &argv, NULL);
    if (argv != NULL) script = usc_json_as_text(usc_json_item(argv, 0));
    usc_check_say(c,
                  "%s unknown here; what registers such operators can be named with "
                  "--import, e.g. --import %s",
                  c->unknown_text.text,
                  script != NULL && *script != '\0' ? script : "FILE.py");
    usc_json_free(argv);
}

/* Whether a fault of this text ends its process, which then could not tell that it
 * fired, and some process ended so. */
static bool may_have_ended(const usc_check *c, const char *fault, size_t n)
{
    const struct {
        const char *kind;
        usc_verdict verdict;
    } ends[] = {{"crash", USC_VERDICT_CRASHED}, {"hang", USC_VERDICT_TIMEOUT}};
    for (size_t at = 0; at < n; at += strcspn(fault + at, ":;") + 1)
        for (size_t i = 0; i < 2; i++) {
            const size_t size = strlen(ends[i].kind);
            const char after = at + size < n ? fault[at + size] : ':';
            if (at + size <= n && strncmp(fault + at, ends[i].kind, size) == 0 &&
                after == ':' && c->split.seen[ends[i].verdict])
                return true;
        }
    return false;
}

/* Names planted faults that fired at no call. */
static void say_idle(usc_check *c)
{
    const char *faults = usc_result_get(c->result, "faults");
    usc_line idle = {0};
    for (const char *p = faults != NULL ? faults : ""; *p != '\0';) {
        p += strspn(p, "; ");
        size_t n = strcspn(p, ";");
        const char *next = p + n;
        while (n > 0 && p[n - 1] == ' ')
            n--;
        const bool fired = usc_keys_find(&c->fired, usc_hash_bytes(p, n)) != NULL;
        if (n > 0 && !fired && !may_have_ended(c, p, n))
            usc_line_add(&idle, "%s%.*s", idle.n > 0 ? "; " : "", (int)n, p);
        p = next;
    }
    if (idle.n > 0 && !c->fired.failed)
        usc_check_say(c, "planted, but fired at no call: %s", idle.text);
    usc_line_free(&idle);
}

static void say_left(const usc_check *c)
{
    usc_line text = {0};
    char of[1024];
    if (c->agenda.n_left == 0) return;
    usc_agenda_tell_left(&c->agenda, of, sizeof of);
    usc_line_text(&text, "the budget is spent: ");
    usc_line_count(&text, c->agenda.n_left);
    usc_line_text(&text, " of ");
    usc_line_count(&text, c->picks.n);
    usc_line_add(&text,
                 " calls are left out, of %s; the same command goes on with them (%s)",
                 of, c->options->out);
    if (text.text != NULL) usc_check_say(c, "%s", text.text);
    usc_line_free(&text);
}

static void say_all(usc_check *c, int jobs)
{
    const int64_t *calls;
    int64_t n = 0;
    say_unknown(c);
    if (usc_result_done(c->result, &calls, &n, NULL) == USC_OK && n == c->split.calls &&
        n > 0)
        say_idle(c); /* all of them in this run */
    if (c->split.calls > 0) {
        usc_line text = {0};
        usc_split_tell(&c->split, usc_run_clock() - c->start, jobs, c->options->verbose,
                       &text);
        if (text.text != NULL) usc_check_say(c, "%s", text.text);
        usc_line_free(&text);
    }
    say_left(c);
}

/* ---- the whole ---- */

static usc_status set_seconds(usc_check *c, usc_error *err)
{
    char text[32];
    (void)usc_format(text, sizeof text, "%.1f", c->before + usc_run_clock() - c->start);
    return usc_result_set(c->result, "seconds", text, err);
}

static usc_status interrupted(usc_check *c)
{
    if (c->begun)
        (void)!set_seconds(c, NULL); /* the rows are safe without it */
    else
        usc_check_say(c, "interrupted before anything was checked");
    if (c->begun)
        usc_check_say(c, "interrupted; the same command goes on from here (%s)",
                      c->options->out);
    return USC_OK;
}

/* Indices of the picks that have no row yet, in `todo`. */
static usc_status find_todo(usc_check *c, int64_t *todo, int64_t *n_todo, usc_error *err)
{
    const int64_t *done;
    int64_t n;
    usc_keys known = {0};
    const usc_status st = usc_result_done(c->result, &done, &n, err);
    if (st != USC_OK) return st;
    c->goes_on = n > 0;
    for (int64_t i = 0; i < n; i++)
        (void)usc_keys_put(&known, (usc_hash128){.low = (uint64_t)done[i]}, i);
    *n_todo = 0;
    for (int64_t i = 0; i < c->picks.n; i++)
        if (usc_keys_find(&known,
                          (usc_hash128){.low = (uint64_t)c->picks.pick[i].call}) == NULL)
            todo[(*n_todo)++] = i;
    usc_keys_free(&known);
    c->n_done = c->picks.n - *n_todo;
    usc_line text = {0};
    usc_line_count(&text, c->n_done);
    usc_line_text(&text, " of ");
    usc_line_count(&text, c->picks.n);
    if (n > 0 && text.text != NULL && !c->begun)
        usc_check_say(c, "resuming: %s calls done", text.text);
    usc_line_free(&text);
    return USC_OK;
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
    return st;
}

static usc_status end_run(usc_check *c, usc_error *err)
{
    const char *state = c->agenda.n_left > 0 ? "budget" : "done";
    usc_status st = usc_result_set(c->result, "state", state, err);
    if (st == USC_OK) st = set_seconds(c, err);
    return usc_advise(st, usc_safe_advice, err);
}

static usc_status check_calls(usc_check *c, const int64_t *todo, int64_t n_todo,
                              usc_run_end *end, usc_error *err)
{
    const usc_check_options *o = c->options;
    const double finish = o->budget > 0 ? c->start + o->budget : 0;
    int64_t jobs = o->jobs > 0 ? o->jobs : o->cores;
    bool stopped = false;
    if (jobs > n_todo) jobs = n_todo > 0 ? n_todo : 1;
    c->agenda.calls = c->calls;
    c->agenda.pick = c->picks.pick;
    usc_status st = usc_agenda_begin(&c->agenda, todo, n_todo, finish, err);
    const usc_crew_work work = {.ctx = c,
                                .more = more,
                                .take = take,
                                .room = usc_check_room,
                                .request = usc_check_ask,
                                .ready = usc_check_begin,
                                .hear = usc_check_hear};
    if (st == USC_OK) st = usc_check_work(c, &work, (int)jobs, !c->begun, &stopped, err);
    if (st == USC_OK && !stopped && !c->begun &&
        usc_result_get(c->result, "state") == NULL)
        return usc_error_set(
            err, USC_E_NOT_FOUND, -1,
            "the budget was spent before a worker was ready: nothing was "
            "checked, %s is as it was",
            o->out);
    if (st == USC_OK && !stopped) say_all(c, (int)jobs);
    if (st == USC_OK && !stopped && o->self_test)
        st = usc_check_self_test(c, &stopped, err);
    *end = stopped ? USC_RUN_INTERRUPTED : USC_RUN_DONE;
    if (st != USC_OK) return st;
    return stopped ? interrupted(c) : end_run(c, err);
}

/* In place of the calls of the trace. */
static usc_status check_drawn(usc_check *c, usc_run_end *end, usc_error *err)
{
    bool stopped = false;
    usc_status st = usc_fuzz_cases(c, &stopped, err);
    if (st == USC_OK && !stopped)
        say_all(c, c->options->jobs > 0 ? c->options->jobs : c->options->cores);
    if (stopped) *end = USC_RUN_INTERRUPTED;
    if (st != USC_OK) return st;
    return stopped ? interrupted(c) : set_seconds(c, err);
}

static usc_status check_all(usc_check *c, usc_run_end *end, usc_error *err)
{
    int64_t n_todo = 0;
    c->start = usc_run_clock();
    const char *before = usc_result_get(c->result, "seconds");
    c->before = before != NULL ? usc_parse_number(before, NULL) : 0;
    if (c->options->fuzz != NULL) return check_drawn(c, end, err);
    if (c->hooks->ranks != NULL) {
        bool stopped = false;
        usc_status st = usc_check_share(c, NULL, &stopped, err);
        if (st == USC_OK && stopped) *end = USC_RUN_INTERRUPTED;
        if (st == USC_OK && stopped) st = interrupted(c);
        if (st == USC_OK && !stopped) st = usc_check_gather(c, false, err);
        if (st != USC_OK || stopped) return st;
    }
    int64_t *todo = malloc((size_t)(c->picks.n + 1) * sizeof *todo);
    if (todo == NULL) return usc_no_memory("check", err);
    usc_status st = find_todo(c, todo, &n_todo, err);
    if (st == USC_OK) st = check_calls(c, todo, n_todo, end, err);
    free(todo);
    return st;
}

static void close_all(usc_check *c, bool whole)
{
    if (whole)
        usc_result_close(c->result);
    else
        usc_result_discard(c->result);
    usc_agenda_free(&c->agenda);
    usc_selection_free(&c->picks);
    usc_calls_free(c->calls);
    usc_trace_close(c->trace);
    usc_arena_free(&c->texts);
    usc_keys_free(&c->unknown);
    usc_keys_free(&c->fired);
    usc_keys_free(&c->known);
    usc_keys_free(&c->covered);
    usc_line_free(&c->unknown_text);
    usc_line_free(&c->remarks);
    usc_line_free(&c->left);
}

/* Whether OUT holds a finished run, which this one replaces. */
static bool is_finished(const char *out)
{
    usc_result *there = NULL;
    if (usc_result_open(out, &there, NULL) != USC_OK) return false;
    const char *state = usc_result_get(there, "state");
    const bool finished = state != NULL && strcmp(state, "done") == 0;
    usc_result_close(there);
    return finished;
}

/* The process that writes OUT. */
static usc_status check_whole(usc_check *c, usc_run_end *end, usc_error *err)
{
    const usc_check_options *o = c->options;
    const bool parts = usc_check_has_parts(o->out);
    const bool drop = parts && (o->force || is_finished(o->out));
    usc_status st = usc_advise(usc_check_open_result(c, err), usc_out_advice, err);
    if (st == USC_OK && parts) st = usc_check_gather(c, drop, err);
    return st == USC_OK ? check_all(c, end, err) : st;
}

/* A process that writes a part of OUT. */
static usc_status check_part(usc_check *c, usc_run_end *end, usc_error *err)
{
    usc_keys known = {0};
    bool idle = false, stopped = false;
    c->start = usc_run_clock();
    usc_status st = usc_check_meet(c, &known, &idle, err);
    if (st == USC_OK && !idle) {
        st = usc_advise(usc_check_open_result(c, err), usc_out_advice, err);
        if (st == USC_OK) st = usc_check_share(c, &known, &stopped, err);
        if (st == USC_OK && stopped) {
            *end = USC_RUN_INTERRUPTED;
            st = interrupted(c);
        } else if (st == USC_OK && c->split.calls > 0) {
            usc_line text = {0};
            usc_split_tell(&c->split, usc_run_clock() - c->start, c->options->cores,
                           c->options->verbose, &text);
            if (text.text != NULL) usc_check_say(c, "%s", text.text);
            usc_line_free(&text);
        }
    }
    usc_keys_free(&known);
    return st;
}

usc_status usc_check_trace(const usc_check_options *options, const usc_run_hooks *hooks,
                           usc_run_end *end, usc_error *err)
{
    usc_check c = {.options = options,
                   .hooks = hooks,
                   .texts = {.alloc = usc_libc_alloc},
                   .agenda = {.arena = {.alloc = usc_libc_alloc}}};
    usc_error own;
    if (err == NULL) err = &own;
    *end = USC_RUN_DONE;
    const bool part = usc_check_is_part(&c);
    usc_status st = usc_trace_open(options->trace, NULL, &c.trace, err);
    if (st == USC_OK)
        st = options->fuzz != NULL ? usc_fuzz_choose(&c, err) : usc_check_choose(&c, err);
    st = usc_advise(st, NULL, err);
    if (st == USC_OK) st = part ? check_part(&c, end, err) : check_whole(&c, end, err);
    close_all(&c, !part && st == USC_OK && *end == USC_RUN_DONE);
    return st;
}
