// SPDX-License-Identifier: Apache-2.0
// A check of calls that nobody made: workers draw each case from an example of the trace.
// Cases are numbers without an end; what is kept of one is a row as of any call.
#include <stdlib.h>
#include <string.h>

#include <ulpscope/x/fuzz.h>
#include <ulpscope/x/pattern.h>
#include <ulpscope/x/unmatched.h>

#include "base/number.h"
#include "run/check.h"

static const usc_pick *pick_of(const usc_check *c, int64_t number)
{
    return usc_fuzz_plan_pick(&c->plan, c->options->fuzz->seed, number);
}

static bool is_done(const usc_check *c, int64_t number)
{
    return usc_keys_find(&c->known, (usc_hash128){.low = (uint64_t)number}) != NULL;
}

/* ---- handing out ---- */

/* The cases of a run, in their order: those of a list, or all; with `signatures` each
 * example as it is before anything is drawn. */
static int64_t number_at(const usc_check *c, int64_t i)
{
    const usc_fuzz_options *f = c->options->fuzz;
    if (f->list != NULL) return f->list[i];
    if (!f->signatures) return i;
    return i < c->picks.n ? (int64_t)(USC_FUZZ_AS_IS | (uint64_t)i) : i - c->picks.n;
}

/* The next case that is wanted and has no row yet; -1 behind the last of a list. Without
 * a list there always is one: each operator has its turn. */
static int64_t find_next(usc_check *c)
{
    const usc_fuzz_options *f = c->options->fuzz;
    for (;; c->next++) {
        if (f->list != NULL && c->next >= f->n_cases) return -1;
        const int64_t number = number_at(c, c->next);
        if (pick_of(c, number) != NULL && !is_done(c, number)) return number;
    }
}

static bool more(void *ctx)
{
    usc_check *c = ctx;
    const usc_check_options *o = c->options;
    if (o->budget > 0 && usc_run_clock() - c->start >= o->budget) return false;
    if (o->fuzz->list == NULL && c->n_taken >= o->fuzz->n_cases) return false;
    return find_next(c) >= 0;
}

static int64_t take(void *ctx)
{
    usc_check *c = ctx;
    const int64_t number = find_next(c);
    c->next++;
    c->n_taken++;
    return number;
}

static void request(void *ctx, int64_t number, usc_line *to)
{
    const usc_check *c = ctx;
    usc_line_add(to, "{\"call\": %lld, \"example\": %lld", (long long)number,
                 (long long)pick_of(c, number)->call);
}

/* ---- what came of a case ---- */

/* How the tensors of the example lay is not how those of the case did: a worker tells. */
static void leave_out_example(usc_row *row)
{
    usc_metric *m = NULL;
    int n = 0;
    if (row->row.n_metrics == 0 || strcmp(row->row.metrics[0].name, "arguments") != 0)
        return;
    m = usc_arena_take(&row->arena, (size_t)row->row.n_metrics * sizeof *m);
    for (int i = 1; m != NULL && i < row->row.n_metrics; i++)
        m[n++] = row->row.metrics[i];
    row->row.metrics = m;
    row->row.n_metrics = n;
}

/* Notes the operator that a case was drawn from. */
static void cover(usc_check *c, const usc_pick *pick)
{
    const usc_call *call = pick != NULL ? usc_calls_find(c->calls, pick->call) : NULL;
    if (call != NULL) (void)usc_keys_put(&c->covered, usc_key_of(call->op), 0);
}

static usc_status hear(void *ctx, const usc_crew_news *news, usc_error *err)
{
    usc_check *c = ctx;
    usc_row row;
    const bool found = news->row != NULL;
    const usc_pick *pick = pick_of(c, news->job);
    if (news->event == USC_CREW_CAUSE && !found)
        return usc_advise(usc_result_settle(c->result, news->job, err), usc_safe_advice,
                          err);
    usc_status st = found ? usc_row_found(c->calls, pick, news->row, &row, err)
                          : usc_check_row_of_loss(c, pick, news, &row, err);
    if (st != USC_OK) return st;
    row.row.call = news->job;
    row.row.stands_for = 1;
    row.row.step = 0;
    leave_out_example(&row);
    cover(c, pick);
    if (c->hooks->covered != NULL)
        c->hooks->covered(c->hooks->ctx, (int64_t)c->covered.n);
    st = usc_advise(usc_result_put(c->result, &row.row, err), usc_safe_advice, err);
    if (st == USC_OK && news->event != USC_CREW_CAUSE)
        usc_check_count(c, news, &row);
    else if (st == USC_OK)
        usc_split_explain(&c->split, &row);
    usc_row_free(&row);
    return st;
}

/* ---- what is drawn from ---- */

/* Operators that a program calls are drawn from, not those they run inside of them: the
 * first that holds one that was asked for; NULL: none does. */
static const char *holder(const usc_check *c, const char *ops)
{
    for (int64_t i = 0; i < c->picks.n; i++) {
        const usc_pick *pick = &c->picks.pick[i];
        for (int64_t k = 0; k < pick->n_children; k++)
            if (usc_pattern_match(ops, usc_calls_find(c->calls, pick->child[k])->op))
                return usc_calls_find(c->calls, pick->call)->op;
    }
    return NULL;
}

static usc_status nothing_drawn(const usc_check *c, usc_error *err)
{
    const usc_check_options *o = c->options;
    const char *within = o->ops != NULL ? holder(c, o->ops) : NULL;
    char likely[256] = "";
    if (within != NULL)
        return usc_error_set(err, USC_E_NOT_FOUND, -1,
                             "--ops '%s' runs in %s inside of %s only, and calls are "
                             "drawn from what the program itself called: --ops %s",
                             o->ops, o->trace, within, within);
    if (o->ops != NULL) usc_calls_likely(c->calls, o->ops, likely, sizeof likely);
    return usc_error_set(err, USC_E_NOT_FOUND, -1,
                         "no operator of %s matches --ops '%s': nothing to draw from"
                         "%s%s%s",
                         o->trace, o->ops != NULL ? o->ops : "*",
                         likely[0] != '\0' ? "; did you mean --ops " : "", likely,
                         likely[0] != '\0' ? "?" : "");
}

static void find_unmatched(usc_check *c)
{
    const int64_t n = c->picks.n;
    const char **names = calloc((size_t)n + 1, sizeof *names);
    if (names == NULL) return;
    for (int64_t i = 0; i < n; i++)
        names[i] = usc_calls_find(c->calls, c->picks.pick[i].call)->op;
    usc_pattern_unmatched(c->options->ops, names, n, c->unmatched, sizeof c->unmatched);
    free(names);
}

/* ---- the whole ---- */

usc_status usc_fuzz_choose(usc_check *c, usc_error *err)
{
    usc_status st = usc_calls_create(&c->calls, err);
    if (st == USC_OK) st = usc_trace_read_calls(c->trace, c->calls, err);
    if (st != USC_OK) return st;
    /* On no device that captured them: cases are the same for whoever is tested. */
    const usc_select_options all = {.target = "any", .distinct = true};
    st = usc_select(c->calls, &all, &c->picks, err);
    if (st == USC_OK)
        st = usc_fuzz_plan_make(c->calls, &c->picks, c->options->ops, &c->texts, &c->plan,
                                err);
    if (st == USC_OK && c->plan.n_wanted == 0) return nothing_drawn(c, err);
    if (st == USC_OK) find_unmatched(c);
    return st;
}

static usc_status find_known(usc_check *c, usc_error *err)
{
    const int64_t *done;
    int64_t n;
    const usc_status st = usc_result_done(c->result, &done, &n, err);
    if (st != USC_OK) return st;
    for (int64_t i = 0; i < n; i++) {
        (void)usc_keys_put(&c->known, (usc_hash128){.low = (uint64_t)done[i]}, i);
        cover(c, pick_of(c, done[i]));
    }
    c->goes_on = n > 0;
    c->n_done = c->n_taken = n;
    if (n > 0) usc_check_say(c, "resuming: %lld cases done", (long long)n);
    return c->known.failed ? usc_no_memory("fuzz", err) : USC_OK;
}

static usc_status end_cases(usc_check *c, usc_error *err)
{
    char text[24];
    (void)usc_format(text, sizeof text, "%lld", (long long)c->n_done);
    usc_status st = usc_result_set(c->result, "n_selected", text, err);
    if (st == USC_OK) st = usc_result_set(c->result, "state", "done", err);
    return usc_advise(st, usc_safe_advice, err);
}

usc_status usc_fuzz_cases(usc_check *c, bool *stopped, usc_error *err)
{
    const usc_check_options *o = c->options;
    const int jobs = o->jobs > 0 ? o->jobs : o->cores;
    const usc_crew_work work = {.ctx = c,
                                .more = more,
                                .take = take,
                                .request = request,
                                .ready = usc_check_begin,
                                .hear = hear};
    usc_status st = find_known(c, err);
    if (st == USC_OK) st = usc_check_work(c, &work, jobs, true, stopped, err);
    if (st == USC_OK && !*stopped) st = end_cases(c, err);
    return st;
}

usc_status usc_fuzz_find(const char *trace, uint64_t seed, int64_t number, int64_t *call,
                         usc_error *err)
{
    const usc_fuzz_options fuzz = {.seed = seed};
    const usc_check_options options = {.trace = trace, .call = -1, .fuzz = &fuzz};
    usc_check c = {.options = &options, .texts = {.alloc = usc_libc_alloc}};
    *call = 0;
    usc_status st = usc_trace_open(trace, NULL, &c.trace, err);
    if (st == USC_OK) st = usc_fuzz_choose(&c, err);
    const usc_pick *pick = st == USC_OK ? pick_of(&c, number) : NULL;
    if (pick != NULL) *call = pick->call;
    if (st == USC_OK && pick == NULL)
        st = usc_error_set(err, USC_E_NOT_FOUND, -1, "%s has no example of case %lld",
                           trace, (long long)number);
    usc_selection_free(&c.picks);
    usc_calls_free(c.calls);
    usc_trace_close(c.trace);
    usc_arena_free(&c.texts);
    return st;
}
