// SPDX-License-Identifier: Apache-2.0
// What the options of a check choose of a trace, and what is to be said of it.
#include <stdlib.h>
#include <string.h>

#include <ulpscope/x/unmatched.h>

#include "run/check.h"

enum { MOST_NAMED = 3 };

usc_status usc_choose_ops(usc_trace *trace, const char *ops, bool distinct,
                          usc_calls **calls, usc_selection *picks, usc_error *err)
{
    const usc_trace_filter filter = {.ops = ops, .step = -1};
    const int64_t *matching = NULL;
    int64_t n = 0;
    usc_status st = usc_calls_create(calls, err);
    if (st == USC_OK) st = usc_trace_read_calls(trace, *calls, err);
    if (st == USC_OK && ops != NULL)
        st = usc_trace_select(trace, &filter, &matching, &n, err);
    const int64_t none = 0; /* an empty list is not no list */
    const usc_select_options options = {.wanted = ops == NULL ? NULL
                                                  : n > 0     ? matching
                                                              : &none,
                                        .n_wanted = n,
                                        .distinct = distinct};
    return st == USC_OK ? usc_select(*calls, &options, picks, err) : st;
}

/* ---- the options that leave calls out ---- */

/* As they are written: "#3 --ops 'mm'"; "" for none. */
static void filters_of(const usc_check_options *o, usc_line *to)
{
    const struct {
        const char *name, *value;
    } filters[] = {
        {"ops", o->ops}, {"module", o->module}, {"phase", o->phase}, {"step", o->step}};
    if (o->call >= 0) usc_line_add(to, "#%lld", (long long)o->call);
    if (o->calls != NULL)
        usc_line_add(to, "%sa list of %lld", to->n > 0 ? " " : "", (long long)o->n_calls);
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++)
        if (filters[i].value != NULL && filters[i].value[0] != '\0')
            usc_line_add(to, "%s--%s '%s'", to->n > 0 ? " " : "", filters[i].name,
                         filters[i].value);
}

static usc_status find_wanted(usc_check *c, int64_t *out, int64_t *n, usc_error *err)
{
    const usc_check_options *o = c->options;
    const usc_trace_filter filter = {
        .ops = o->ops, .module = o->module, .phase = o->phase, .step = -1};
    usc_steps *steps = NULL;
    usc_wanted w = {.call = o->call, .calls = o->calls, .n_calls = o->n_calls};
    usc_status st = USC_OK;
    if (o->step != NULL) st = usc_steps_read(o->step, &steps, &w.n_steps, err);
    w.steps = steps;
    if (st == USC_OK)
        st = usc_trace_select(c->trace, &filter, &w.matching, &w.n_matching, err);
    if (st == USC_OK) usc_calls_wanted(c->calls, &w, out, n);
    free(steps);
    return st;
}

/* Whether a trace holds calls of Python functions alone: --level api, or a dump. */
static bool holds_api_alone(const usc_check *c)
{
    int64_t n;
    const usc_call *call = usc_calls_list(c->calls, &n);
    for (int64_t i = 0; i < n; i++)
        if (!usc_call_is_api(&call[i])) return false;
    return n > 0;
}

/* Whether calls of Python functions are what was asked for, by number or by a pattern
 * that matches nothing else. */
static bool names_api(const usc_check *c, const int64_t *wanted, int64_t n)
{
    const usc_check_options *o = c->options;
    const usc_call *one = o->call >= 0 ? usc_calls_find(c->calls, o->call) : NULL;
    if (o->level != USC_LEVEL_CALL) return false;
    if (one != NULL) return usc_call_is_api(one);
    for (int64_t i = 0; i < n; i++)
        if (!usc_call_is_api(usc_calls_find(c->calls, wanted[i]))) return false;
    return n > 0;
}

/* ---- nothing is left ---- */

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Operators of the calls that were asked for, a few of them. */
static void name_ops(const usc_check *c, const int64_t *wanted, int64_t n, usc_line *to)
{
    const char **names = malloc((size_t)(n + 1) * sizeof *names);
    if (names == NULL) return;
    for (int64_t i = 0; i < n; i++)
        names[i] = usc_calls_find(c->calls, wanted[i])->op;
    qsort(names, (size_t)n, sizeof *names, compare_texts);
    int told = 0;
    for (int64_t i = 0; i < n && told < MOST_NAMED; i++)
        if (i == 0 || strcmp(names[i], names[i - 1]) != 0)
            usc_line_add(to, "%s%s", told++ > 0 ? ", " : "", names[i]);
    free(names);
}

static usc_status nothing_left(const usc_check *c, const int64_t *wanted, int64_t n,
                               usc_error *err)
{
    const usc_check_options *o = c->options;
    const char *what = o->level == USC_LEVEL_MODULE ? "forward of a module" : "call";
    usc_line told = {0}, more = {0};
    char likely[256] = "";
    usc_status st;
    filters_of(o, &told);
    if (told.n == 0) {
        st = usc_error_set(err, USC_E_NOT_FOUND, -1,
                           "no %s of %s can be replayed: nothing to check", what,
                           o->trace);
    } else if (n > 0 && o->level != USC_LEVEL_MODULE) {
        name_ops(c, wanted, n, &more);
        st = usc_error_set(
            err, USC_E_NOT_FOUND, -1,
            "what %s leaves of %s cannot be replayed (%s): nothing to check", told.text,
            o->trace, more.text != NULL ? more.text : "");
    } else {
        if (o->ops != NULL) usc_calls_likely(c->calls, o->ops, likely, sizeof likely);
        if (likely[0] != '\0') usc_line_add(&more, "; did you mean --ops %s?", likely);
        st = usc_error_set(err, USC_E_NOT_FOUND, -1,
                           "no %s of %s matches %s: nothing to check%s", what, o->trace,
                           told.text, more.text != NULL ? more.text : "");
    }
    usc_line_free(&told);
    usc_line_free(&more);
    return st;
}

/* ---- what is to be said of the trace ---- */

static void remark(usc_check *c, const char *text)
{
    if (c->remarks.n > 0) usc_line_text(&c->remarks, "\n");
    usc_line_text(&c->remarks, text);
}

static void remark_on_end(usc_check *c)
{
    const char *lost = usc_trace_meta(c->trace, "lost");
    usc_line text = {0};
    int64_t n, step = 0;
    if (lost != NULL) {
        usc_line_add(&text, "the trace is incomplete: %s", lost);
    } else {
        const char *complete = usc_trace_meta(c->trace, "complete");
        if (complete == NULL || strcmp(complete, "0") != 0) return;
        const usc_call *call = usc_calls_list(c->calls, &n);
        for (int64_t i = 0; i < n; i++)
            if (call[i].step > step) step = call[i].step;
        usc_line_add(&text,
                     "the trace is incomplete: the program ended or died in step %lld; "
                     "calls that follow are missing",
                     (long long)step);
    }
    if (!text.failed) remark(c, text.text);
    c->remarks.failed |= text.failed;
    usc_line_free(&text);
}

static void remark_on(usc_check *c)
{
    const char *data = usc_trace_meta(c->trace, "data");
    if (data != NULL && strcmp(data, "stats") == 0)
        remark(c, "the trace holds statistics only: inputs were drawn anew from them");
    remark_on_end(c);
    const char *compiled = usc_trace_meta(c->trace, "compiled_regions");
    const long n = compiled != NULL ? strtol(compiled, NULL, 10) : 0;
    if (n <= 0) return;
    usc_line text = {0};
    usc_line_add(
        &text,
        "%ld compiled %s not recorded: what torch.compile generated is not judged "
        "here; capture --no-compile, or check --via inductor",
        n, n == 1 ? "region was" : "regions were");
    if (!text.failed) remark(c, text.text);
    c->remarks.failed |= text.failed;
    usc_line_free(&text);
}

/* ---- what is left out of a whole trace ---- */

static int64_t index_of(const usc_calls *calls, int64_t sequence)
{
    int64_t n;
    const usc_call *first = usc_calls_list(calls, &n);
    const usc_call *call = usc_calls_find(calls, sequence);
    return call != NULL ? call - first : -1;
}

/* "58 were captured: 6 of them only hold others, 10 are checked within others": why a
 * check has fewer calls than the capture told. */
static void tell_left(usc_check *c)
{
    int64_t n, n_hold = 0, n_within = 0, n_else = 0;
    const usc_call *call = usc_calls_list(c->calls, &n);
    char *mark = calloc((size_t)n + 1, 1);
    if (mark == NULL) return;
    for (int64_t i = 0; i < c->picks.n; i++) {
        const usc_pick *p = &c->picks.pick[i];
        const int64_t own = index_of(c->calls, p->call);
        if (own >= 0) mark[own] = 'p';
        for (int64_t k = 0; k < p->n_children; k++) {
            const int64_t child = index_of(c->calls, p->child[k]);
            if (child >= 0) mark[child] = 'c';
        }
    }
    for (int64_t i = 0; i < n; i++) {
        n_within += mark[i] == 'c';
        n_hold += mark[i] == 0 && call[i].composite;
        n_else += mark[i] == 0 && !call[i].composite;
    }
    free(mark);
    const struct {
        int64_t n;
        const char *one, *many;
    } parts[] = {{n_hold, "only holds others", "only hold others"},
                 {n_within, "is checked within another", "are checked within others"},
                 {n_else, "ran elsewhere, failed or gives nothing",
                  "ran elsewhere, failed or give nothing"}};
    const char *between = ": ";
    if (n == c->picks.n) return;
    usc_line_count(&c->left, n);
    usc_line_text(&c->left, " were captured");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].n == 0) continue;
        usc_line_text(&c->left, between);
        usc_line_count(&c->left, parts[i].n);
        usc_line_add(&c->left, " %s", parts[i].n == 1 ? parts[i].one : parts[i].many);
        between = ", ";
    }
}

/* ---- the whole ---- */

static usc_status check_there(const usc_check *c, usc_error *err)
{
    int64_t n;
    const usc_call *call = usc_calls_list(c->calls, &n);
    const char *trace = c->options->trace;
    if (n == 0) {
        const char *lost = usc_trace_meta(c->trace, "lost");
        return usc_error_set(err, USC_E_NOT_FOUND, -1,
                             "%s holds no calls: %s; capture it again", trace,
                             lost != NULL ? lost : "nothing to check");
    }
    if (c->options->call < 0 || usc_calls_find(c->calls, c->options->call) != NULL)
        return USC_OK;
    return usc_error_set(
        err, USC_E_NOT_FOUND, -1,
        "%s holds no call %lld: it has %lld to %lld; ulpscope show lists "
        "them",
        trace, (long long)c->options->call, (long long)call[0].sequence,
        (long long)call[n - 1].sequence);
}

usc_status usc_check_choose(usc_check *c, usc_error *err)
{
    usc_line filters = {0};
    char target[64];
    int64_t n = 0, n_wanted = 0;
    usc_status st = usc_calls_create(&c->calls, err);
    if (st == USC_OK) st = usc_trace_read_calls(c->trace, c->calls, err);
    if (st == USC_OK) st = check_there(c, err);
    if (st != USC_OK) return st;
    (void)usc_calls_list(c->calls, &n);
    int64_t *wanted = malloc((size_t)(n + 1) * sizeof *wanted);
    if (wanted == NULL) return usc_error_set(err, USC_E_NOMEM, -1, "trace: no memory");
    filters_of(c->options, &filters);
    const bool narrow = filters.n > 0;
    if (filters.failed) st = usc_error_set(err, USC_E_NOMEM, -1, "check: no memory");
    usc_line_free(&filters);
    if (st == USC_OK && narrow) st = find_wanted(c, wanted, &n_wanted, err);
    (void)snprintf(target, sizeof target, "%.*s", (int)strcspn(c->options->device, ":"),
                   c->options->device);
    usc_select_options options = {.target = target,
                                  .wanted = narrow ? wanted : NULL,
                                  .n_wanted = n_wanted,
                                  .distinct = c->options->distinct,
                                  .level = c->options->level};
    if (names_api(c, wanted, n_wanted) ||
        (options.level == USC_LEVEL_CALL && holds_api_alone(c)))
        options.level = USC_LEVEL_API;
    if (st == USC_OK) st = usc_select(c->calls, &options, &c->picks, err);
    if (st == USC_OK && c->picks.n == 0) st = nothing_left(c, wanted, n_wanted, err);
    if (st == USC_OK && c->options->ops != NULL)
        usc_calls_unmatched(c->calls, c->options->ops, c->unmatched, sizeof c->unmatched);
    if (st == USC_OK) remark_on(c);
    if (st == USC_OK && !narrow && !options.distinct && options.level == USC_LEVEL_CALL)
        tell_left(c);
    free(wanted);
    return st;
}
