// SPDX-License-Identifier: Apache-2.0
// What a run on files puts into result.db. The rows are those of a check
// (usc_findings_row). Neighbour: pack_cause.c, for the second time that a row is put.
#include "pack/pack_operands.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

int64_t usc_pack_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The name of a number of an opinion, which lives as long as the row. */
static const char *metric_name(const usc_pack_work *w, const char *metric)
{
    char text[256];
    usc_opinion_metric_name(&w->standard, metric, text, sizeof text);
    char *name = usc_arena_take(w->arena, strlen(text) + 1);
    return name != NULL ? strcpy(name, text) : "";
}

/* The numbers of opinions, and which side is missing, as metrics. */
static usc_status add_metrics(const usc_pack_work *w, usc_result_row *row, usc_error *err)
{
    const int n = w->said.n;
    usc_metric *out =
        usc_arena_take(w->arena, ((size_t)n * USC_OPINION_METRICS + 1) * sizeof *out);
    if (out == NULL) return usc_no_memory(row->op, err);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < w->said.items[i].n_metrics; k++)
            out[row->n_metrics++] =
                (usc_metric){i, metric_name(w, w->said.items[i].metrics[k].name),
                             w->said.items[i].metrics[k].value, NULL};
    if (w->lacks != NULL)
        out[row->n_metrics++] = (usc_metric){-1, "lacks", (double)NAN, w->lacks};
    row->metrics = out;
    return w->arena->failed ? usc_no_memory(row->op, err) : USC_OK;
}

usc_status usc_pack_put(const usc_pack_work *w, usc_result *result, usc_result_row *row,
                        usc_error *err)
{
    char why[512] = "";
    usc_findings *found = usc_case_findings(w->c);
    const usc_finding *worst = usc_findings_worst(found);
    const bool pass = worst->verdict == USC_VERDICT_PASS;
    const int n = w->said.n, i = n > 0 ? usc_opinions_worst(w->said.items, n) : 0;
    if (n > 0 && w->said.items[i].verdict == worst->verdict)
        usc_opinion_text(&w->standard, &w->said.items[i], w->said.paths[i], why,
                         sizeof why);
    const usc_said said = {
        .op = row->op, .verdict = worst->verdict, .worst = worst, .reason = why};
    if (pass) row->stack = "";
    usc_status st = pass ? USC_OK : add_metrics(w, row, err);
    if (st == USC_OK) st = usc_findings_row(found, &said, row, err);
    return st == USC_OK ? usc_result_put(result, row, err) : st;
}

usc_status usc_pack_put_cause(const usc_pack_work *w, usc_result *result,
                              usc_result_row *row, const char *cause, usc_error *err)
{
    char sentence[2048];
    usc_findings *found = usc_case_findings(w->c);
    const usc_finding *worst = usc_findings_worst(found);
    const usc_said said = {.op = row->op,
                           .verdict = worst->verdict,
                           .worst = worst,
                           .cause = cause,
                           .left_out = usc_findings_left_out(found)};
    usc_said_sentence(&said, sentence, sizeof sentence);
    row->cause = cause;
    row->sentence = sentence;
    return usc_result_put(result, row, err);
}

/* ---- the run ---- */

usc_status usc_pack_begin(const usc_pack_work *w, const usc_run *run, usc_result **out,
                          usc_error *err)
{
    const char *folder = w->options->out != NULL ? w->options->out : "ulpscope-out";
    usc_status st = usc_result_create(folder, run, w->options->force, out, err);
    if (st == USC_OK) st = usc_result_clear(*out, err); /* outputs may have changed */
    if (st == USC_OK) st = usc_result_set(*out, "state", "running", err);
    return st;
}

usc_status usc_pack_end(usc_result *result, int64_t n_selected, const char *remarks,
                        usc_error *err)
{
    char n[24];
    (void)snprintf(n, sizeof n, "%lld", (long long)n_selected);
    usc_status st = usc_result_set(result, "n_selected", n, err);
    if (st == USC_OK) st = usc_result_set(result, "remarks", remarks, err);
    if (st == USC_OK) st = usc_result_set(result, "state", "done", err);
    return st;
}
