// SPDX-License-Identifier: Apache-2.0
// Of `ulpscope diff`: the calls at which a difference begins, or all that differ (--own),
// are run again on their own inputs, in float64 as well, on both sides; see diff.h.
#include "diff.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <ulpscope/result.h>

#include "hooks.h"
#include "scratch.h"

enum { MOST_JUDGED = 50, NOT_HERE = -1 }; /* without --own */

/* One pair of calls to run again, and what was heard of it. */
typedef struct pair {
    int64_t row, call[2];
    char *verdict[2], *sentence[2];
} pair;

/* A call of one side, and the pair that it is of. */
typedef struct place {
    int64_t call;
    pair *of;
} place;

/* What is to be heard of one side. */
typedef struct hearing {
    usc_trace *trace;
    place *place; /* ascending by call */
    int64_t n;
    int side;
} hearing;

/* The pair whose call that is; without one, that with a call below it. */
static pair *pair_of(const hearing *h, int64_t call)
{
    int64_t low = 0, high = h->n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (h->place[middle].call < call)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < h->n; low++)
        if (cli_lies_below(h->trace, h->place[low].call, call)) return h->place[low].of;
    return NULL;
}

static usc_status hear_row(void *ctx, const usc_result_row *row, usc_error *err)
{
    hearing *h = ctx;
    pair *p = pair_of(h, row->call);
    if (p == NULL || p->verdict[h->side] != NULL) return USC_OK;
    p->verdict[h->side] = strdup(row->verdict);
    p->sentence[h->side] = strdup(row->sentence != NULL ? row->sentence : "");
    if (p->verdict[h->side] == NULL || p->sentence[h->side] == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "diff: no memory");
    return USC_OK;
}

/* The device of the first of the calls that is not on the CPU, by its first result; "cpu"
 * where all are. Data are made there also where a model runs elsewhere. */
static void device_of(usc_trace *t, const int64_t *calls, int64_t n, char *out,
                      size_t size)
{
    usc_call call;
    (void)snprintf(out, size, "cpu");
    for (int64_t i = 0; i < n; i++) {
        if (usc_trace_read_call(t, calls[i], &call, NULL) != USC_OK) continue;
        int k = 0;
        while (k < call.n_args &&
               (call.arg[k].role == USC_ROLE_IN || call.arg[k].device == NULL))
            k++;
        if (k == call.n_args || cli_same_type(call.arg[k].device, "cpu")) continue;
        (void)snprintf(out, size, "%s", call.arg[k].device);
        return;
    }
}

static int by_call(const void *a, const void *b)
{
    const int64_t x = ((const place *)a)->call, y = ((const place *)b)->call;
    return (x > y) - (x < y);
}

static int judge_side(const usc_check_options *given, const char *path, hearing *h,
                      int64_t *wanted)
{
    char home[64], folder[PATH_MAX];
    usc_check_options o = *given;
    usc_run_end end = USC_RUN_DONE;
    usc_result *result = NULL;
    usc_error err;
    cli_hooks hooks;
    qsort(h->place, (size_t)h->n, sizeof *h->place, by_call);
    for (int64_t i = 0; i < h->n; i++)
        wanted[i] = h->place[i].call;
    device_of(h->trace, wanted, h->n, home, sizeof home);
    if (!cli_scratch_make("ulpscope-diff", folder, sizeof folder)) return CLI_TROUBLE;
    o.trace = path;
    o.out = folder;
    o.calls = wanted;
    o.n_calls = h->n;
    if (o.device == NULL) o.device = home;
    o.faults = cli_faults(o.device, o.faults);
    cli_hooks_begin(&hooks, "diff");
    usc_status st = usc_check_trace(&o, &hooks.hooks, &end, &err);
    cli_hooks_end(&hooks);
    if (st == USC_OK && end == USC_RUN_DONE) st = usc_result_open(folder, &result, &err);
    if (st == USC_OK && result != NULL) st = usc_result_walk(result, hear_row, h, &err);
    usc_result_close(result);
    cli_scratch_remove(folder);
    if (end == USC_RUN_INTERRUPTED) return CLI_INTERRUPTED;
    if (st == USC_OK) return CLI_SAME;
    if (given->device != NULL) {
        cli_fail("%s", err.text);
        return cli_fail(
            "calls of %s could not be run again on %s; --device names another "
            "device, with --no-judge nothing is run",
            path, o.device);
    }
    cli_fail("calls of %s could not be run again on %s, limits alone tell (%s); --device "
             "names a device that is here",
             path, o.device, err.text);
    return NOT_HERE;
}

/* Whether a call is to be run again that begins a difference; with `own` any that
 * differs. */
static bool is_wanted(const usc_diff_row *row, bool own)
{
    if (row->out.basis == USC_DIFF_BY_STATISTICS) return false; /* nothing to run on */
    const usc_diff_kind k = row->kind;
    if (k == USC_DIFF_MADE || k == USC_DIFF_GREW) return true;
    return own && (k == USC_DIFF_INHERITED || k == USC_DIFF_ROUNDED ||
                   k == USC_DIFF_ENTERED || k == USC_DIFF_UNPAIRED);
}

/* The pairs to run again, `*n` of them; NULL without memory. */
static pair *list_pairs(const usc_diff *d, bool own, int64_t *n)
{
    int64_t n_rows;
    const usc_diff_row *rows = usc_diff_rows(d, &n_rows);
    pair *all = calloc((size_t)n_rows + 1, sizeof *all);
    bool *holds = calloc((size_t)n_rows + 1, sizeof *holds);
    *n = 0;
    for (int64_t i = 0; holds != NULL && i < n_rows; i++)
        if (rows[i].parent >= 0) holds[rows[i].parent] = true;
    for (int64_t i = 0; all != NULL && holds != NULL && i < n_rows; i++) {
        if (!is_wanted(&rows[i], own) || (own && holds[i])) continue;
        if (!own && *n == MOST_JUDGED) break;
        all[(*n)++] = (pair){.row = i, .call = {rows[i].call_a, rows[i].call_b}};
    }
    free(holds);
    if (holds != NULL) return all;
    free(all);
    return NULL;
}

static int judge_both(pair *all, int64_t n, usc_trace *const t[2],
                      const diff_words *words, const usc_check_options *options)
{
    place *places = calloc((size_t)n + 1, sizeof *places);
    int64_t *wanted = calloc((size_t)n + 1, sizeof *wanted);
    int code = places != NULL && wanted != NULL ? CLI_SAME : cli_fail("no memory");
    for (int side = 0; side < 2 && code == CLI_SAME; side++) {
        hearing h = {.trace = t[side], .place = places, .n = n, .side = side};
        for (int64_t i = 0; i < n; i++)
            places[i] = (place){.call = all[i].call[side], .of = &all[i]};
        code = judge_side(options, words->path[side], &h, wanted);
    }
    free(places);
    free(wanted);
    return code;
}

/* ---- what was not judged ---- */

/* Takes a sentence over: "OP is VERDICT: WHY" or "OP: WHY". */
static bool add_unjudged(diff_unjudged *u, char *sentence, const char *verdict)
{
    char is[64];
    (void)snprintf(is, sizeof is, " is %s", verdict);
    char *why = strstr(sentence, ": "), *end = strstr(sentence, is);
    usc_unjudged *more = realloc(u->item, (u->n + 1) * sizeof *more);
    if (more == NULL) return false;
    u->item = more;
    if (end == NULL || (why != NULL && why < end)) end = why;
    if (end != NULL) *end = '\0';
    u->item[u->n++] = (usc_unjudged){sentence, why != NULL ? why + 2 : "", 1};
    return true;
}

/* One side of a pair, where that was not judged: its sentence goes over. */
static void keep_unjudged(diff_unjudged *u, pair *p)
{
    for (int side = 0; side < 2; side++) {
        const char *verdict = p->verdict[side];
        if (verdict == NULL || !usc_verdict_missing(usc_verdict_by_text(verdict)))
            continue;
        if (add_unjudged(u, p->sentence[side], verdict)) p->sentence[side] = NULL;
        return;
    }
}

usc_status diff_put_unjudged(diff_unjudged *u, bool quiet, usc_error *err)
{
    const usc_sink sink = usc_sink_stream(stdout);
    usc_status st = quiet ? USC_OK : usc_unjudged_put(u->item, u->n, &sink, err);
    if (st == USC_OK && !quiet && u->n > 0) (void)fputc('\n', stdout);
    for (size_t i = 0; i < u->n; i++)
        free((void *)(uintptr_t)u->item[i].op);
    free(u->item);
    *u = (diff_unjudged){0};
    return st;
}

int diff_judge(usc_diff *d, usc_trace *const t[2], const diff_words *words,
               const usc_check_options *options, diff_unjudged *unjudged)
{
    int64_t n;
    pair *all = list_pairs(d, words->own, &n);
    if (all == NULL) return cli_fail("no memory");
    int code = n > 0 ? judge_both(all, n, t, words, options) : CLI_SAME;
    for (int64_t i = 0; i < n; i++) {
        pair *p = &all[i];
        const usc_diff_heard heard = {p->verdict[0], p->verdict[1], p->sentence[0],
                                      p->sentence[1]};
        usc_error err;
        if (code == CLI_SAME && usc_diff_hear(d, p->row, &heard, &err) != USC_OK)
            code = cli_fail("%s", err.text);
        keep_unjudged(unjudged, p);
        for (int side = 0; side < 2; side++) {
            free(p->verdict[side]);
            free(p->sentence[side]);
        }
    }
    free(all);
    return code == NOT_HERE ? CLI_SAME : code;
}
