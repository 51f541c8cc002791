// SPDX-License-Identifier: Apache-2.0
// Which calls of a trace a device runs, and how: one of each signature is tried by a
// worker; what it says is added up by operator and dtypes.
#include <ulpscope/x/coverage.h>

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "run/check.h"
#include "run/crew.h"

typedef struct covering {
    const usc_coverage_options *options;
    const usc_run_hooks *hooks;
    usc_trace *trace;
    usc_calls *calls;
    usc_selection picks;
    usc_arena *texts; /* lives on in the result */
    usc_covered *row; /* of each pick */
    int64_t next, n_done, n_bad;
} covering;

static const char *const ways[USC_N_WAYS] = {"native",  "fallback", "refused",
                                             "lacking", "died",     "untold"};

const char *usc_way_text(usc_way way)
{
    return (unsigned)way < USC_N_WAYS ? ways[way] : "";
}

/* ---- as work of a crew ---- */

static bool more(void *ctx)
{
    const covering *c = ctx;
    return c->next < c->picks.n;
}

static int64_t take(void *ctx)
{
    return ((covering *)ctx)->next++;
}

static void request(void *ctx, int64_t job, usc_line *to)
{
    usc_line_add(to, "{\"call\": %lld",
                 (long long)((const covering *)ctx)->picks.pick[job].call);
}

static usc_way way_of(const char *text)
{
    for (int i = 0; i < USC_N_WAYS && text != NULL; i++)
        if (strcmp(text, ways[i]) == 0) return (usc_way)i;
    return USC_WAY_UNTOLD;
}

static usc_status hear(void *ctx, const usc_crew_news *news, usc_error *err)
{
    covering *c = ctx;
    usc_covered *to = &c->row[news->job];
    if (news->event == USC_CREW_CAUSE) return USC_OK;
    if (news->event == USC_CREW_ROW) {
        const usc_json *said = usc_json_get(news->row, "covered");
        const double seconds = usc_json_as_number(usc_json_get(said, "seconds"));
        to->way = way_of(usc_json_as_text(usc_json_get(said, "way")));
        to->why = usc_said_text(c->texts, said, "why");
        to->dtypes = usc_said_text(c->texts, said, "dtypes");
        to->seconds = seconds > 0 ? seconds * (double)to->n_calls : 0;
    } else {
        to->way = USC_WAY_DIED;
        to->why = usc_kept_text(
            c->texts, news->event == USC_CREW_LATE ? "it did not return" : news->how);
    }
    c->n_done++;
    if (to->way != USC_WAY_NATIVE) c->n_bad++;
    if (c->hooks->progress != NULL)
        c->hooks->progress(c->hooks->ctx, "trying", c->n_done, c->picks.n, c->n_bad);
    return c->texts->failed ? usc_no_memory("coverage", err) : USC_OK;
}

/* ---- what is tried ---- */

static usc_status choose(covering *c, usc_error *err)
{
    const usc_coverage_options *o = c->options;
    /* The operators that ran, on whatever device: what a composite one of them is made
     * of shows as calls of its own. */
    usc_status st = usc_choose_ops(c->trace, o->ops, true, &c->calls, &c->picks, err);
    if (st == USC_OK && c->picks.n == 0)
        st = usc_error_set(err, USC_E_NOT_FOUND, -1,
                           "no call of %s matches: nothing to try", o->trace);
    return st;
}

static usc_status prepare(covering *c, usc_error *err)
{
    c->row = usc_arena_take(c->texts, (size_t)(c->picks.n + 1) * sizeof *c->row);
    for (int64_t i = 0; c->row != NULL && i < c->picks.n; i++) {
        const usc_pick *pick = &c->picks.pick[i];
        c->row[i] = (usc_covered){
            .op = usc_kept_text(c->texts, usc_calls_find(c->calls, pick->call)->op),
            .dtypes = "",
            .way = USC_WAY_UNTOLD,
            .why = "",
            .n_calls = pick->stands_for,
        };
    }
    return c->texts->failed ? usc_no_memory("coverage", err) : USC_OK;
}

static void settings_of(covering *c, int jobs, usc_line *to)
{
    const usc_coverage_options *o = c->options;
    usc_line_text(to, "{\"kind\": \"coverage\"");
    usc_put_text("trace", usc_absolute(c->texts, o->trace), to);
    usc_put_text("trace_id", usc_trace_meta(c->trace, "id"), to);
    usc_put_text("device", o->device, to);
    usc_put_text("home", c->picks.home, to);
    usc_line_add(to, ", \"fresh\": %s, \"threads\": %d", o->fresh ? "true" : "false",
                 o->cores / jobs > 0 ? o->cores / jobs : 1);
    usc_put_imports(c->trace, o->imports, o->n_imports, to);
    usc_line_text(to, "}");
}

static usc_status try_all(covering *c, bool *stopped, usc_error *err)
{
    const usc_crew_work work = {
        .ctx = c, .more = more, .take = take, .request = request, .hear = hear};
    const usc_coverage_options *o = c->options;
    const int jobs = o->jobs > 0 ? o->jobs : 1;
    usc_line settings = {0};
    settings_of(c, jobs, &settings);
    const usc_crew_settings crew = {.text = settings.text,
                                    .size = jobs,
                                    .timeout =
                                        o->timeout > 0 ? o->timeout : USC_RUN_TIMEOUT};
    usc_status st = settings.failed || c->texts->failed
                        ? usc_no_memory("coverage", err)
                        : usc_crew_run(&crew, &work, c->hooks, stopped, err);
    usc_line_free(&settings);
    return st;
}

/* ---- adding up ---- */

static int by_place(const void *a, const void *b)
{
    const usc_covered *x = a, *y = b;
    int order = strcmp(x->op, y->op);
    if (order == 0) order = strcmp(x->dtypes, y->dtypes);
    return order != 0 ? order : (int)x->way - (int)y->way;
}

static void add_up(covering *c, usc_coverage *out)
{
    qsort(c->row, (size_t)c->picks.n, sizeof *c->row, by_place);
    for (int64_t i = 0; i < c->picks.n; i++) {
        const usc_covered *from = &c->row[i];
        usc_covered *last = out->n > 0 ? &c->row[out->n - 1] : NULL;
        out->n_calls += from->n_calls;
        out->seconds += from->seconds;
        if (last != NULL && by_place(last, from) == 0) {
            last->n_calls += from->n_calls;
            last->seconds += from->seconds;
        } else {
            c->row[out->n++] = *from;
        }
    }
    out->row = c->row;
    if (c->options->ops == NULL) out->n_within = c->calls->n - out->n_calls;
}

usc_status usc_coverage_trace(const usc_coverage_options *options,
                              const usc_run_hooks *hooks, usc_coverage *out,
                              usc_run_end *end, usc_error *err)
{
    usc_error own;
    if (err == NULL) err = &own;
    *out = (usc_coverage){0};
    *end = USC_RUN_DONE;
    covering c = {.options = options, .hooks = hooks};
    bool stopped = false;
    c.texts = calloc(1, sizeof *c.texts);
    if (c.texts == NULL) return usc_no_memory("coverage", err);
    c.texts->alloc = usc_libc_alloc;
    usc_status st = usc_trace_open(options->trace, NULL, &c.trace, err);
    if (st == USC_OK) st = choose(&c, err);
    st = usc_advise(st, NULL, err);
    if (st == USC_OK) st = prepare(&c, err);
    if (st == USC_OK) st = try_all(&c, &stopped, err);
    out->memory = c.texts;
    if (st == USC_OK && !stopped)
        add_up(&c, out);
    else
        usc_coverage_free(out);
    if (stopped) *end = USC_RUN_INTERRUPTED;
    usc_selection_free(&c.picks);
    usc_calls_free(c.calls);
    usc_trace_close(c.trace);
    return st;
}

void usc_coverage_free(usc_coverage *c)
{
    if (c->memory != NULL) usc_arena_free(c->memory);
    free(c->memory);
    *c = (usc_coverage){0};
}

/* ---- what to write next ---- */

typedef struct wish {
    const char *op;
    int64_t n_calls;
    double seconds, weight; /* the larger of its shares of time and calls */
    bool stops;             /* the program does not get beyond it */
} wish;

static int by_weight(const void *a, const void *b)
{
    const wish *x = a, *y = b;
    if (x->stops != y->stops) return x->stops ? -1 : 1;
    if (x->weight != y->weight) return x->weight < y->weight ? 1 : -1;
    return strcmp(x->op, y->op);
}

/* The operators that are not all native, each with what it keeps from being so. */
static int64_t wishes_of(const usc_coverage *c, wish *to)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++) {
        const usc_covered *r = &c->row[i];
        if (r->way == USC_WAY_NATIVE || r->way == USC_WAY_UNTOLD) continue;
        if (n == 0 || strcmp(to[n - 1].op, r->op) != 0) to[n++] = (wish){.op = r->op};
        to[n - 1].n_calls += r->n_calls;
        to[n - 1].seconds += r->seconds;
        to[n - 1].stops |= r->way != USC_WAY_FALLBACK;
    }
    for (int64_t i = 0; i < n; i++) {
        const double calls = (double)to[i].n_calls / (double)c->n_calls;
        const double time = c->seconds > 0 ? to[i].seconds / c->seconds : 0;
        to[i].weight = calls > time ? calls : time;
    }
    return n;
}

usc_status usc_coverage_next(const usc_coverage *c, double share, const char ***ops,
                             int64_t *n, usc_error *err)
{
    wish *wishes = calloc((size_t)c->n + 1, sizeof *wishes);
    *n = 0;
    *ops = calloc((size_t)c->n + 1, sizeof **ops);
    if (wishes == NULL || *ops == NULL) {
        free(wishes);
        free(*ops);
        *ops = NULL;
        return usc_no_memory("coverage", err);
    }
    const int64_t n_wishes = wishes_of(c, wishes);
    double calls = 0, seconds = 0; /* that are not native */
    for (int64_t i = 0; i < n_wishes; i++) {
        calls += (double)wishes[i].n_calls;
        seconds += wishes[i].seconds;
    }
    qsort(wishes, (size_t)n_wishes, sizeof *wishes, by_weight);
    const double left_calls = (1 - share) * (double)c->n_calls;
    const double left_seconds = (1 - share) * c->seconds;
    while (*n < n_wishes &&
           (wishes[*n].stops || calls > left_calls || seconds > left_seconds)) {
        calls -= (double)wishes[*n].n_calls;
        seconds -= wishes[*n].seconds;
        (*ops)[*n] = wishes[*n].op;
        ++*n;
    }
    free(wishes);
    return USC_OK;
}
