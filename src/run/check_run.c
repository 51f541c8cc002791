// SPDX-License-Identifier: Apache-2.0
// The check of one trace from its beginning to its end.
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/number.h"
#include "run/check.h"
#include "run/crew.h"
#include "run/rooms.h"

/* ---- handing out ---- */

static bool more(void *ctx)
{
    return usc_agenda_more(&((usc_check *)ctx)->agenda);
}

static int64_t take(void *ctx)
{
    return usc_agenda_take(&((usc_check *)ctx)->agenda);
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
static usc_status say_idle(usc_check *c, usc_error *err)
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
    usc_status st = USC_OK;
    if (idle.n > 0 && !c->fired.failed)
        st = usc_result_set(c->result, "idle_faults", idle.text, err);
    usc_line_free(&idle);
    return st;
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

static usc_status say_all(usc_check *c, int jobs, usc_error *err)
{
    const int64_t *calls;
    int64_t n = 0;
    usc_status st = USC_OK;
    say_unknown(c);
    if (usc_result_done(c->result, &calls, &n, NULL) == USC_OK && n == c->split.calls &&
        n > 0 && !c->options->partial)
        st = say_idle(c, err); /* all of them in this run */
    if (c->split.calls > 0) {
        usc_line text = {0};
        usc_split_tell(&c->split, usc_run_clock() - c->start, jobs, c->options->verbose,
                       &text);
        if (text.text != NULL) usc_check_say(c, "%s", text.text);
        usc_line_free(&text);
    }
    say_left(c);
    return st;
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
    if (st == USC_OK && !stopped) st = say_all(c, (int)jobs, err);
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
        st = say_all(c, c->options->jobs > 0 ? c->options->jobs : c->options->cores, err);
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
