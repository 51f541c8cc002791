// SPDX-License-Identifier: Apache-2.0
// Sources of NaN and Inf in a trace, and what a replay says of them; see overflow.h.
#include "cli.h"
#include "overflow/overflow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ulpscope/result.h>

static usc_status no_memory(usc_error *err)
{
    return usc_error_set(err, USC_E_NOMEM, -1, "overflow: no memory");
}

bool overflow_is_birth(const overflow_source *s)
{
    return s->event.kind == USC_FLOW_BORN || s->event.kind == USC_FLOW_TURNED;
}

void overflow_free(overflow_found *f)
{
    for (int64_t i = 0; i < f->n; i++)
        free(f->source[i].sentence);
    free(f->source);
    *f = (overflow_found){0};
}

static bool is_source(usc_flow_kind kind)
{
    return kind == USC_FLOW_BORN || kind == USC_FLOW_TURNED || kind == USC_FLOW_WRITTEN ||
           kind == USC_FLOW_ENTERED;
}

static bool add(overflow_found *f, const usc_flow_event *event, int64_t step)
{
    if (f->n == f->size) {
        const int64_t size = f->size > 0 ? 2 * f->size : 64;
        overflow_source *more = realloc(f->source, (size_t)size * sizeof *more);
        if (more == NULL) return false;
        f->source = more;
        f->size = size;
    }
    f->source[f->n++] = (overflow_source){.event = *event, .step = step};
    return true;
}

static overflow_source *source_of(const overflow_found *f, int64_t call)
{
    int64_t low = 0, high = f->n;
    while (low < high) {
        const int64_t mid = low + (high - low) / 2;
        if (f->source[mid].event.call < call)
            low = mid + 1;
        else
            high = mid;
    }
    return low < f->n && f->source[low].event.call == call ? &f->source[low] : NULL;
}

static bool count(overflow_found *f, const usc_call *call, const usc_flow_event *event)
{
    f->n_calls++;
    for (int i = 0; i < call->n_args && !f->statistics; i++)
        f->statistics = call->arg[i].stats != NULL;
    if (event->kind == USC_FLOW_CLEAN) return true;
    f->n_odd++;
    if (is_source(event->kind)) return add(f, event, call->step);
    overflow_source *source = source_of(f, event->source);
    if (source == NULL) return true;
    if (event->kind == USC_FLOW_ENDED) {
        source->n_ended++;
        return true;
    }
    source->n_carried++;
    source->last = event->call;
    return true;
}

usc_status overflow_find(usc_trace *t, overflow_found *out, usc_error *err)
{
    *out = (overflow_found){0};
    usc_flow *flow = NULL;
    const int64_t *found;
    int64_t n;
    usc_status st = usc_trace_select(t, NULL, &found, &n, err);
    if (st != USC_OK) return st;
    st = usc_flow_create(&flow, err);
    for (int64_t i = 0; i < n && st == USC_OK; i++) {
        usc_call call;
        usc_flow_event event;
        st = usc_trace_read_call(t, found[i], &call, err);
        if (st == USC_OK) st = usc_flow_call(flow, &call, &event, err);
        if (st == USC_OK && !count(out, &call, &event)) st = no_memory(err);
    }
    usc_flow_free(flow);
    return st;
}

/* ---- what a replay says ---- */

typedef struct hearing {
    overflow_found *found;
    usc_trace *trace;
    bool home, made_up;
} hearing;

static double metric_of(const usc_result_row *row, const char *name)
{
    double sum = 0;
    for (int i = 0; i < row->n_metrics; i++)
        if (strcmp(row->metrics[i].name, name) == 0) sum += row->metrics[i].value;
    return sum;
}

static usc_status hear_row(void *ctx, const usc_result_row *row, usc_error *err)
{
    const hearing *h = ctx;
    const overflow_evidence evidence = {.verdict = usc_verdict_by_text(row->verdict),
                                        .sentence = row->sentence,
                                        .n_nan_inf = metric_of(row, "n_nan_inf"),
                                        .seen = true,
                                        .home = h->home,
                                        .made_up = h->made_up};
    for (int64_t i = 0; i < h->found->n; i++) {
        overflow_source *s = &h->found->source[i];
        const char *words;
        if (!overflow_is_birth(s) || s->sentence != NULL) continue;
        if (!cli_lies_below(h->trace, s->event.call, row->call)) continue;
        s->told = overflow_tell(&evidence, &words);
        s->sentence = strdup(words);
        if (s->sentence == NULL) return no_memory(err);
    }
    return USC_OK;
}

usc_status overflow_hear(overflow_found *f, usc_trace *t, const char *out, bool home,
                         usc_error *err)
{
    const char *data = usc_trace_meta(t, "data");
    hearing h = {f, t, home, data != NULL && strcmp(data, "stats") == 0};
    usc_result *result = NULL;
    usc_status st = usc_result_open(out, &result, err);
    if (st == USC_OK) st = usc_result_walk(result, hear_row, &h, err);
    usc_result_close(result);
    return st;
}
