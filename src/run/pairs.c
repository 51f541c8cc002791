// SPDX-License-Identifier: Apache-2.0
// Pairs of calls of two traces as work of a crew: pairs.h. A worker opens both traces.
#include <ulpscope/x/pairs.h>

#include <math.h>
#include <string.h>

#include <ulpscope/verdict.h>

#include "base/arena.h"
#include "run/check.h"
#include "run/crew.h"

enum { PAIRS_PER_JOB = 24 /* a process takes seconds to start */ };

typedef struct judging {
    const usc_pairs_options *options;
    const usc_run_hooks *hooks;
    const usc_pair *pair;
    int64_t n, next, n_done, n_accused;
    bool enough;
    usc_trace *trace[2];
    usc_arena texts;
} judging;

/* ---- as work of a crew ---- */

static bool more(void *ctx)
{
    const judging *j = ctx;
    return !j->enough && j->next < j->n;
}

static int64_t take(void *ctx)
{
    judging *j = ctx;
    return j->next++;
}

static void request(void *ctx, int64_t job, usc_line *to)
{
    const judging *j = ctx;
    const usc_pair *p = &j->pair[job];
    usc_line_add(to, "{\"call\": %lld, \"other\": %lld, \"equal\": %s",
                 (long long)p->call[0], (long long)p->call[1],
                 p->equal ? "true" : "false");
}

static usc_paired found_in(const usc_json *said)
{
    usc_paired found = {.bits = (double)NAN};
    if (said == NULL) return found;
    found.verdict = usc_json_as_text(usc_json_get(said, "verdict"));
    found.sentence = usc_json_as_text(usc_json_get(said, "sentence"));
    found.cause = usc_json_as_text(usc_json_get(said, "cause"));
    if (found.cause != NULL && found.cause[0] == '\0') found.cause = NULL;
    found.not_judged = usc_json_as_text(usc_json_get(said, "not_judged"));
    found.bits = usc_json_as_number(usc_json_get(said, "bits"));
    return found;
}

/* Of a pair whose worker is gone: both sides, since nobody knows which call it was. */
static void lost(const judging *j, const usc_crew_news *news, usc_paired found[2])
{
    static const char *const verdict[] = {"crashed", "timeout"};
    const bool late = news->event == USC_CREW_LATE;
    const bool device = strcmp(news->phase, "reference") != 0;
    for (int side = 0; side < 2; side++) {
        found[side] = (usc_paired){.bits = (double)NAN};
        if (j->pair[news->job].call[side] == 0) continue;
        found[side].verdict = device ? verdict[late] : "unjudged";
        found[side].sentence = late ? "it did not return in time" : news->how;
    }
}

static usc_status hear(void *ctx, const usc_crew_news *news, usc_error *err)
{
    judging *j = ctx;
    usc_paired found[2];
    (void)err;
    if (news->event == USC_CREW_CAUSE) return USC_OK;
    if (news->event == USC_CREW_ROW) {
        found[0] = found_in(usc_json_get(news->row, "a"));
        found[1] = found_in(usc_json_get(news->row, "b"));
    } else {
        lost(j, news, found);
    }
    j->n_done++;
    for (int side = 0; side < 2; side++)
        if (found[side].verdict != NULL &&
            usc_verdict_flagged(usc_verdict_by_text(found[side].verdict))) {
            j->n_accused++;
            break;
        }
    if (!j->options->heard(j->options->ctx, news->job, found)) j->enough = true;
    if (j->hooks->progress != NULL)
        j->hooks->progress(j->hooks->ctx, "judging", j->n_done, j->n, j->n_accused);
    return USC_OK;
}

/* ---- the whole ---- */

static int workers_for(const judging *j)
{
    const usc_pairs_options *o = j->options;
    const int64_t wanted = (j->n + PAIRS_PER_JOB - 1) / PAIRS_PER_JOB;
    if (o->jobs > 0) return o->jobs;
    return (int)(wanted < o->cores ? wanted : o->cores);
}

static void settings_for(judging *j, int jobs, usc_line *to)
{
    const usc_pairs_options *o = j->options;
    const int share = o->cores / jobs > 0 ? o->cores / jobs : 1;
    usc_line_text(to, "{\"kind\": \"pairs\"");
    usc_put_text("trace", usc_absolute(&j->texts, o->trace[0]), to);
    usc_put_text("other", usc_absolute(&j->texts, o->trace[1]), to);
    usc_put_text("device", o->device, to);
    usc_line_add(to, ", \"threads\": %d, \"causes\": %.17g",
                 o->threads > 0 ? o->threads : share, o->causes);
    usc_put_imports(j->trace[0], o->imports, o->n_imports, to);
    usc_line_text(to, "}");
}

static usc_status work_through(judging *j, bool *stopped, usc_error *err)
{
    const usc_crew_work work = {
        .ctx = j, .more = more, .take = take, .request = request, .hear = hear};
    const int jobs = workers_for(j);
    usc_line settings = {0};
    settings_for(j, jobs, &settings);
    const double timeout =
        j->options->timeout > 0 ? j->options->timeout : USC_RUN_TIMEOUT;
    const usc_crew_settings crew = {
        .text = settings.text, .size = jobs, .timeout = 2 * timeout};
    const usc_status st = settings.failed || j->texts.failed
                              ? usc_no_memory("diff", err)
                              : usc_crew_run(&crew, &work, j->hooks, stopped, err);
    usc_line_free(&settings);
    return st;
}

usc_status usc_pairs_judge(const usc_pairs_options *options, const usc_pair *pair,
                           int64_t n, const usc_run_hooks *hooks, int64_t *n_left,
                           usc_run_end *end, usc_error *err)
{
    usc_error own;
    bool stopped = false;
    if (err == NULL) err = &own;
    *end = USC_RUN_DONE;
    *n_left = n;
    if (n == 0) return USC_OK;
    judging j = {.options = options,
                 .hooks = hooks,
                 .pair = pair,
                 .n = n,
                 .texts = {.alloc = usc_libc_alloc}};
    usc_status st = USC_OK;
    for (int side = 0; side < 2 && st == USC_OK; side++)
        st = usc_trace_open(options->trace[side], NULL, &j.trace[side], err);
    if (st == USC_OK) st = work_through(&j, &stopped, err);
    *n_left = n - j.next;
    if (stopped) *end = USC_RUN_INTERRUPTED;
    for (int side = 0; side < 2; side++)
        usc_trace_close(j.trace[side]);
    usc_arena_free(&j.texts);
    return st;
}
