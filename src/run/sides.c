// SPDX-License-Identifier: Apache-2.0
// Which forms of an operator a device takes beside the CPU, and how long both need: one
// call of each operator is put into each dtype and layout by a worker, or timed.
#include <ulpscope/x/sides.h>

#include <stdlib.h>
#include <string.h>

#include "run/check.h"

/* The first layout goes before all others: a dtype that is refused there is not asked
 * for again. */
static const char *const layouts[] = {"dense",  "transposed", "gaps",
                                      "offset", "expanded",   "channels_last"};
static const char *const dtypes[] = {"float32",   "float16", "bfloat16", "float64",
                                     "complex64", "int64",   "bool"};
enum {
    N_LAYOUTS = sizeof layouts / sizeof layouts[0],
    N_DTYPES = sizeof dtypes / sizeof dtypes[0],
    N_FORMS = N_LAYOUTS * N_DTYPES
};

static const char *const sides[USC_N_SIDES] = {"both",    "refused", "cpu_refused",
                                               "neither", "died",    "untold"};

const char *usc_side_text(usc_side side)
{
    return (unsigned)side < USC_N_SIDES ? sides[side] : "";
}

typedef struct asking {
    usc_check check; /* its trace, calls and plan of operators */
    bool profile;
    usc_arena *texts; /* lives on in the result */
    int64_t *example; /* the call that stands for an operator */
    int64_t n_ops, n_jobs, next, n_done, n_bad;
    usc_sided *row; /* of each job: form by form, of all operators */
    bool *told;
} asking;

/* ---- as work of a crew ---- */

static bool is_wanted(const asking *c, int64_t job)
{
    const int64_t op = job % c->n_ops, form = job / c->n_ops;
    const int64_t dense = form % N_DTYPES * c->n_ops + op;
    return form < N_DTYPES || !c->told[dense] || c->row[dense].side == USC_SIDE_BOTH;
}

static bool more(void *ctx)
{
    asking *c = ctx;
    while (c->next < c->n_jobs && !is_wanted(c, c->next))
        c->next++;
    return c->next < c->n_jobs;
}

static int64_t take(void *ctx)
{
    asking *c = ctx;
    (void)more(c);
    return c->next++;
}

static void request(void *ctx, int64_t job, usc_line *to)
{
    const asking *c = ctx;
    usc_line_add(to, "{\"call\": %lld", (long long)c->example[job % c->n_ops]);
    if (!c->profile)
        usc_line_add(to, ", \"dtype\": \"%s\", \"layout\": \"%s\"", c->row[job].dtype,
                     c->row[job].layout);
}

static usc_side side_of(const char *text)
{
    for (int i = 0; i < USC_N_SIDES && text != NULL; i++)
        if (strcmp(text, sides[i]) == 0) return (usc_side)i;
    return USC_SIDE_UNTOLD;
}

static void hear_row(asking *c, const usc_json *said, usc_sided *to)
{
    to->side = side_of(usc_json_as_text(usc_json_get(said, "side")));
    to->raised = usc_said_text(c->texts, said, "raised");
    to->why = usc_said_text(c->texts, said, "why");
    to->device = usc_json_as_number(usc_json_get(said, "device"));
    to->cpu = usc_json_as_number(usc_json_get(said, "cpu"));
    if (!usc_json_as_integer(usc_json_get(said, "bytes"), &to->bytes)) to->bytes = 0;
}

static usc_status hear(void *ctx, const usc_crew_news *news, usc_error *err)
{
    asking *c = ctx;
    const usc_run_hooks *hooks = c->check.hooks;
    usc_sided *to = &c->row[news->job];
    if (news->event == USC_CREW_CAUSE) return USC_OK;
    if (news->event == USC_CREW_ROW) {
        hear_row(c, usc_json_get(news->row, "sided"), to);
    } else {
        const bool device = strcmp(news->phase, "reference") != 0;
        to->side = device ? USC_SIDE_DIED : USC_SIDE_UNTOLD;
        to->why = usc_kept_text(
            c->texts, news->event == USC_CREW_LATE ? "it did not return" : news->how);
    }
    c->told[news->job] = true;
    c->n_done++;
    c->n_bad += to->side == USC_SIDE_REFUSED || to->side == USC_SIDE_DIED;
    if (hooks->progress != NULL)
        hooks->progress(hooks->ctx, c->profile ? "timing" : "trying", c->n_done,
                        c->n_done + c->n_jobs - c->next, c->n_bad);
    return c->texts->failed ? usc_no_memory("fuzz", err) : USC_OK;
}

/* ---- what is asked ---- */

/* How well a call stands for its operator: the largest for its time, else one of floats
 * with four axes, since layouts need them. -1: it has nothing in it. */
static int64_t fitness(const asking *c, int64_t call)
{
    const usc_call *at = usc_calls_find(c->check.calls, call);
    int64_t bytes = 0, axes = 0, floats = 0;
    for (int i = 0; i < at->n_args; i++) {
        const usc_call_arg *a = &at->arg[i];
        const usc_dtype_info *info = usc_dtype_info_of(usc_dtype_by_name(a->dtype_name));
        int64_t n = (int64_t)info->size;
        if (a->role != USC_ROLE_IN) continue;
        for (int axis = 0; axis < a->ndim; axis++)
            n *= a->sizes[axis];
        if (n == 0) return -1;
        bytes += n;
        if (a->ndim <= 4 && a->ndim > axes) axes = a->ndim;
        if (info->kind == USC_KIND_FLOAT) floats = 1;
    }
    return c->profile ? bytes : 8 * floats + axes;
}

static void choose_examples(asking *c)
{
    const usc_fuzz_plan *plan = &c->check.plan;
    for (int64_t op = 0; op < plan->n_ops; op++) {
        int64_t best = -2;
        if (!plan->wanted[op]) continue;
        for (int64_t i = plan->first[op]; i < plan->first[op + 1]; i++) {
            const int64_t call = plan->pick[plan->order[i]].call;
            const int64_t fits = fitness(c, call);
            if (fits <= best) continue;
            best = fits;
            c->example[c->n_ops] = call;
        }
        c->n_ops++;
    }
}

static usc_status prepare(asking *c, usc_error *err)
{
    const int64_t forms = c->profile ? 1 : N_FORMS;
    const size_t n = (size_t)c->check.plan.n_wanted, jobs = n * (size_t)forms;
    c->example = usc_arena_take(c->texts, (n + 1) * sizeof *c->example);
    c->row = usc_arena_take(c->texts, (jobs + 1) * sizeof *c->row);
    c->told = usc_arena_take(c->texts, (jobs + 1) * sizeof *c->told);
    if (c->texts->failed) return usc_no_memory("fuzz", err);
    choose_examples(c);
    c->n_jobs = forms * c->n_ops;
    for (int64_t job = 0; job < c->n_jobs; job++) {
        const int64_t form = job / c->n_ops;
        const usc_call *call = usc_calls_find(c->check.calls, c->example[job % c->n_ops]);
        char args[512] = "";
        if (c->profile && usc_call_summary(call, args, sizeof args, err) != USC_OK)
            return err->status;
        c->told[job] = false;
        c->row[job] = (usc_sided){.op = form == 0 ? usc_kept_text(c->texts, call->op)
                                                  : c->row[job % c->n_ops].op,
                                  .dtype = c->profile ? "" : dtypes[form % N_DTYPES],
                                  .layout = c->profile ? "" : layouts[form / N_DTYPES],
                                  .args = usc_kept_text(c->texts, args),
                                  .side = USC_SIDE_UNTOLD,
                                  .raised = "",
                                  .why = ""};
    }
    return c->texts->failed ? usc_no_memory("fuzz", err) : USC_OK;
}

static usc_status ask_all(asking *c, bool *stopped, usc_error *err)
{
    const usc_crew_work work = {
        .ctx = c, .more = more, .take = take, .request = request, .hear = hear};
    const usc_check_options *o = c->check.options;
    /* Two that are timed at once are in each other's way. */
    const int jobs = c->profile ? 1 : o->jobs > 0 ? o->jobs : o->cores;
    usc_line settings = {0};
    usc_line_text(&settings, "{\"kind\": \"sides\"");
    usc_put_text("trace", usc_absolute(c->texts, o->trace), &settings);
    usc_put_text("trace_id", usc_trace_meta(c->check.trace, "id"), &settings);
    usc_put_text("device", o->device, &settings);
    usc_put_text("via", o->via, &settings);
    usc_put_text("home", c->check.picks.home, &settings);
    usc_line_add(&settings, ", \"fresh\": %s, \"threads\": %d",
                 o->force ? "true" : "false", o->cores / jobs > 0 ? o->cores / jobs : 1);
    usc_put_imports(c->check.trace, o->imports, o->n_imports, &settings);
    usc_line_text(&settings, "}");
    const usc_crew_settings crew = {.text = settings.text,
                                    .size = jobs,
                                    .timeout =
                                        o->timeout > 0 ? o->timeout : USC_RUN_TIMEOUT};
    usc_status st = settings.failed || c->texts->failed
                        ? usc_no_memory("fuzz", err)
                        : usc_crew_run(&crew, &work, c->check.hooks, stopped, err);
    usc_line_free(&settings);
    return st;
}

/* ---- the whole ---- */

static int rank_of(const char *name, const char *const *names, int n)
{
    int i = 0;
    while (i < n && strcmp(names[i], name) != 0)
        i++;
    return i;
}

static int by_place(const void *a, const void *b)
{
    const usc_sided *x = a, *y = b;
    int order = strcmp(x->op, y->op);
    if (order == 0)
        order = rank_of(x->dtype, dtypes, N_DTYPES) - rank_of(y->dtype, dtypes, N_DTYPES);
    return order != 0 ? order
                      : rank_of(x->layout, layouts, N_LAYOUTS) -
                            rank_of(y->layout, layouts, N_LAYOUTS);
}

static int by_time(const void *a, const void *b)
{
    const usc_sided *x = a, *y = b;
    return x->device > y->device ? -1 : x->device < y->device ? 1 : strcmp(x->op, y->op);
}

usc_status usc_sides_ask(const usc_check_options *options, bool profile,
                         const usc_run_hooks *hooks, usc_sides *out, usc_run_end *end,
                         usc_error *err)
{
    usc_error own;
    bool stopped = false;
    if (err == NULL) err = &own;
    *out = (usc_sides){0};
    *end = USC_RUN_DONE;
    asking c = {
        .check = {.options = options, .hooks = hooks, .texts = {.alloc = usc_libc_alloc}},
        .profile = profile};
    c.texts = calloc(1, sizeof *c.texts);
    if (c.texts == NULL) return usc_no_memory("fuzz", err);
    c.texts->alloc = usc_libc_alloc;
    usc_status st = usc_trace_open(options->trace, NULL, &c.check.trace, err);
    if (st == USC_OK) st = usc_fuzz_choose(&c.check, err);
    st = usc_advise(st, NULL, err);
    if (st == USC_OK) st = prepare(&c, err);
    if (st == USC_OK) st = ask_all(&c, &stopped, err);
    *out = (usc_sides){.n = c.n_jobs,
                       .n_ops = c.n_ops,
                       .row = c.row,
                       .unmatched = usc_kept_text(c.texts, c.check.unmatched),
                       .memory = c.texts};
    if (st == USC_OK && !stopped)
        qsort(c.row, (size_t)c.n_jobs, sizeof *c.row, profile ? by_time : by_place);
    else
        usc_sides_free(out);
    if (stopped) *end = USC_RUN_INTERRUPTED;
    usc_selection_free(&c.check.picks);
    usc_calls_free(c.check.calls);
    usc_trace_close(c.check.trace);
    usc_arena_free(&c.check.texts);
    return st;
}

void usc_sides_free(usc_sides *s)
{
    if (s->memory != NULL) usc_arena_free(s->memory);
    free(s->memory);
    *s = (usc_sides){0};
}
