// SPDX-License-Identifier: Apache-2.0
// What the trace tells stands first, what a worker found takes its place where there is
// any. The protocol of a row: docs/background/architecture.md.
#include "run/row.h"

#include <stdio.h>
#include <string.h>

#include "base/line.h"

enum { SUMMARY_SIZE = 404, SPARE_METRICS = 2 };

static const char *or_empty(const char *text)
{
    return text != NULL ? text : "";
}

static const char *kept(usc_row *r, const char *text)
{
    return or_empty(usc_arena_text(&r->arena, text));
}

/* ---- what the trace tells ---- */

static void tell_dims(const char *name, const int64_t *dims, int n, usc_line *to)
{
    usc_line_add(to, ", \"%s\": [", name);
    for (int i = 0; i < n; i++)
        usc_line_add(to, "%s%lld", i > 0 ? ", " : "", (long long)dims[i]);
    usc_line_text(to, "]");
}

/* Where the tensors of a call were, how they were laid out, what their statistics are. */
static const char *arguments_of(usc_row *r, const usc_call *call)
{
    usc_line text = {0};
    for (int i = 0; i < call->n_args; i++) {
        const usc_call_arg *t = &call->arg[i];
        usc_line_text(&text, i > 0 ? ", {\"path\": " : "[{\"path\": ");
        usc_line_json(&text, t->path);
        usc_line_add(&text, ", \"role\": \"%s\", \"dtype\": ", usc_role_text(t->role));
        usc_line_json(&text, or_empty(t->dtype_name));
        tell_dims("sizes", t->sizes, t->ndim, &text);
        tell_dims("strides", t->strides, t->ndim, &text);
        usc_line_add(&text, ", \"offset\": %lld, \"device\": ", (long long)t->offset);
        if (t->device != NULL)
            usc_line_json(&text, t->device);
        else
            usc_line_text(&text, "null");
        if (t->stats != NULL && t->stats[0] == '{')
            usc_line_add(&text, ", \"stats\": %s", t->stats);
        usc_line_text(&text, "}");
    }
    if (text.n > 0) usc_line_text(&text, "]");
    const char *out = text.n > 0 ? kept(r, text.text) : NULL;
    r->arena.failed |= text.failed;
    usc_line_free(&text);
    return out;
}

static int64_t elements_given(const usc_call *call)
{
    int64_t n = 0;
    for (int i = 0; i < call->n_args; i++) {
        int64_t size = call->arg[i].role != USC_ROLE_IN;
        for (int axis = 0; axis < call->arg[i].ndim; axis++)
            size *= call->arg[i].sizes[axis];
        n += size;
    }
    return n;
}

/* The call that a pick begins with, for what all of it have in common. */
static const usc_call *call_of(const usc_calls *calls, const usc_pick *pick)
{
    return usc_calls_find(calls,
                          pick->forward != NULL ? pick->forward->call[0] : pick->call);
}

static void tell_call(usc_row *r, const usc_calls *calls, const usc_pick *pick)
{
    usc_result_row *row = &r->row;
    const usc_call *call = call_of(calls, pick);
    const usc_forward *f = pick->forward;
    *row = (usc_result_row){.call = pick->call, .stands_for = pick->stands_for};
    row->culprit = row->cause = row->sentence = row->notes = row->output = "";
    row->verdict = row->stack = row->args = "";
    row->step = call->step;
    row->phase = or_empty(call->phase);
    row->op = f != NULL ? f->op : call->op;
    row->module = f != NULL ? f->path : or_empty(call->module_path);
    row->module_class = f != NULL ? f->module_class : or_empty(call->module_class);
    if (r->verdict != USC_VERDICT_PASS) row->stack = or_empty(call->frames);
    if (f != NULL) return;
    char summary[SUMMARY_SIZE];
    r->arena.failed |= usc_call_summary(call, summary, sizeof summary, NULL) != USC_OK;
    row->args = kept(r, summary);
    row->n_elements = elements_given(call);
}

/* Room for `n` metrics and a few of ours; the arguments of what does not pass. */
static usc_metric *begin_metrics(usc_row *r, const usc_calls *calls, const usc_pick *pick,
                                 size_t n)
{
    usc_metric *metrics =
        usc_arena_take(&r->arena, (n + SPARE_METRICS) * sizeof *metrics);
    r->row.metrics = metrics;
    if (metrics == NULL || r->verdict == USC_VERDICT_PASS || pick->forward != NULL)
        return metrics;
    const char *given = arguments_of(r, call_of(calls, pick));
    if (given != NULL)
        metrics[r->row.n_metrics++] =
            (usc_metric){.output = -1, .name = "arguments", .text = given};
    return metrics;
}

/* ---- what a worker found ---- */

static void read_texts(usc_json_taker *t, const usc_json *found, usc_result_row *row)
{
    const struct {
        const char *key;
        const char **to;
    } texts[] = {{"culprit", &row->culprit},
                 {"cause", &row->cause},
                 {"sentence", &row->sentence},
                 {"notes", &row->notes},
                 {"output", &row->output},
                 {"args", &row->args},
                 {"op", &row->op}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        *texts[i].to = usc_json_text(t, found, texts[i].key, *texts[i].to);
}

/* A number; "nan", "inf" and "-inf" for what JSON lacks, null for NaN. */
static double number_at(const usc_json *object, const char *key, double otherwise)
{
    const usc_json *value = usc_json_get(object, key);
    return value != NULL ? usc_json_as_number(value) : otherwise;
}

static void read_numbers(usc_json_taker *t, const usc_json *found, usc_row *r)
{
    usc_result_row *row = &r->row;
    row->bits = number_at(found, "bits", 0);
    row->yardstick_bits = number_at(found, "yardstick_bits", 0);
    row->bound = usc_json_flag(t, found, "bound");
    row->n_elements = usc_json_integer(t, found, "n_elements", row->n_elements);
    row->t_device = usc_json_integer(t, found, "t_device", 0);
    row->t_reference = usc_json_integer(t, found, "t_reference", 0);
    row->t_perturbed = usc_json_integer(t, found, "t_perturbed", 0);
    row->t_judge = usc_json_integer(t, found, "t_judge", 0);
    row->t_total = usc_json_integer(t, found, "t_total", 0);
    r->t_wide = usc_json_integer(t, found, "t_wide", 0);
    r->t_causes = usc_json_integer(t, found, "t_causes", 0);
}

static int small_at(const usc_json *list, size_t i)
{
    int64_t value;
    (void)usc_json_as_integer(usc_json_item(list, i), &value);
    return value > INT32_MAX || value < INT32_MIN ? 0 : (int)value;
}

/* [output, name, value, text] each. */
static void read_metrics(const usc_json *list, usc_metric *metrics, int *n)
{
    for (size_t i = 0; i < usc_json_size(list); i++) {
        const usc_json *m = usc_json_item(list, i);
        const char *name = usc_json_as_text(usc_json_item(m, 1));
        if (name == NULL) continue;
        metrics[(*n)++] = (usc_metric){.output = small_at(m, 0),
                                       .name = name,
                                       .value = usc_json_as_number(usc_json_item(m, 2)),
                                       .text = usc_json_as_text(usc_json_item(m, 3))};
    }
}

/* [output, rank, index, device, reference, yardstick, score] each. */
static void read_examples(usc_row *r, const usc_json *list)
{
    const size_t n = usc_json_size(list);
    usc_result_example *out = usc_arena_take(&r->arena, (n + 1) * sizeof *out);
    if (out == NULL) return;
    for (size_t i = 0; i < n; i++) {
        const usc_json *e = usc_json_item(list, i);
        const char *index = usc_json_as_text(usc_json_item(e, 2));
        double number[4];
        for (size_t k = 0; k < 4; k++)
            number[k] = usc_json_as_number(usc_json_item(e, 3 + k));
        out[i] = (usc_result_example){small_at(e, 0), small_at(e, 1), or_empty(index),
                                      number[0],      number[1],      number[2],
                                      number[3]};
    }
    r->row.examples = out;
    r->row.n_examples = (int)n;
}

static usc_status finished(usc_row *r, usc_status st, usc_error *err)
{
    r->row.verdict = usc_verdict_text(r->verdict);
    if (st == USC_OK && r->arena.failed)
        st = usc_error_set(err, USC_E_NOMEM, -1, "a row: no memory");
    if (st != USC_OK) usc_row_free(r);
    return st;
}

usc_status usc_row_found(const usc_calls *calls, const usc_pick *pick,
                         const usc_json *found, usc_row *out, usc_error *err)
{
    usc_json_taker t = {.name = "a worker's row", .err = err};
    *out = (usc_row){.arena = {.alloc = usc_libc_alloc}};
    const char *verdict = usc_json_text(&t, found, "verdict", "");
    out->verdict = usc_verdict_by_text(verdict);
    if (out->verdict == USC_N_VERDICTS) usc_json_wrong(&t, "verdict", "is none");
    tell_call(out, calls, pick);
    read_texts(&t, found, &out->row);
    read_numbers(&t, found, out);
    const usc_json *metrics = usc_json_list(&t, found, "metrics");
    usc_metric *room = begin_metrics(out, calls, pick, usc_json_size(metrics));
    if (room != NULL) read_metrics(metrics, room, &out->row.n_metrics);
    read_examples(out, usc_json_list(&t, found, "examples"));
    return finished(out, t.status, err);
}

usc_status usc_row_lost(const usc_calls *calls, const usc_pick *pick, usc_verdict verdict,
                        const char *reason, usc_row *out, usc_error *err)
{
    *out = (usc_row){.arena = {.alloc = usc_libc_alloc}, .verdict = verdict};
    tell_call(out, calls, pick);
    usc_line sentence = {0};
    usc_line_add(&sentence, "%s: %s", out->row.op, reason);
    out->row.sentence = sentence.failed ? "" : kept(out, sentence.text);
    out->arena.failed |= sentence.failed;
    usc_line_free(&sentence);
    usc_metric *metrics = begin_metrics(out, calls, pick, 1);
    if (metrics != NULL)
        metrics[out->row.n_metrics++] =
            (usc_metric){.output = -1, .name = "reason", .text = kept(out, reason)};
    return finished(out, USC_OK, err);
}

void usc_row_free(usc_row *row)
{
    usc_arena_free(&row->arena);
    *row = (usc_row){0};
}
