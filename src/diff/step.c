// SPDX-License-Identifier: Apache-2.0
// One step of two traces: whether anything differs at all. diff.h
#include <inttypes.h>
#include <stdio.h>

#include "diff/diffs.h"

/* The first row that differs, which is no view and not the call around one, where there
 * is another; -1: none. */
static int64_t first_differing(const usc_diff *d)
{
    int64_t holder = -1;
    for (int64_t i = 0; i < d->n; i++) {
        const usc_diff_kind kind = d->row[i].kind;
        if (kind == USC_DIFF_SAME || kind == USC_DIFF_UNTOLD) continue;
        if (kind != USC_DIFF_HOLDS && d->row[i].computes) return i;
        if (holder < 0) holder = i;
    }
    return holder;
}

/* The call that wrote what row i reads and shows, where that has a partner: of inputs
 * that nobody kept nothing is told of it, and a view passes on what is different. */
static int64_t maker_of(const usc_diff *d, int64_t i)
{
    while (d->row[i].kind == USC_DIFF_INHERITED && d->row[i].from >= 0 &&
           d->row[i].from < i && d->row[d->row[i].from].kind != USC_DIFF_SAME)
        i = d->row[i].from;
    return i;
}

static usc_status say(usc_diff *d, usc_trace *a, usc_step_difference *out, usc_error *err)
{
    int64_t i = first_differing(d);
    char op[128], said[512];
    usc_call call;
    if (i < 0 && d->n_alone[0] + d->n_alone[1] == 0) return USC_OK;
    if (i < 0) {
        (void)snprintf(out->text, sizeof out->text, "%" PRId64 " calls have no partner",
                       d->n_alone[0] + d->n_alone[1]);
        return USC_OK;
    }
    i = maker_of(d, i);
    usc_status st = usc_trace_read_call(a, d->row[i].call_a, &call, err);
    if (st != USC_OK) return st;
    (void)snprintf(op, sizeof op, "%s", call.op);
    st = usc_diff_say(d, i, said, sizeof said, err);
    if (st != USC_OK) return st;
    out->call = d->row[i].call_a - d->list[0].call[0].sequence + 1;
    (void)snprintf(out->text, sizeof out->text, "call %" PRId64 " of the step, %s: %s",
                   out->call, op, said);
    return USC_OK;
}

usc_status usc_diff_step(const char *path, const char *other, int64_t step,
                         usc_step_difference *out, usc_error *err)
{
    const usc_diff_options options = {.one_step = true, .step = step};
    usc_trace *t[2] = {NULL, NULL};
    usc_diff *d = NULL;
    usc_error own;
    if (err == NULL) err = &own;
    *out = (usc_step_difference){.there = true};
    usc_status st = usc_trace_open(path, NULL, &t[0], err);
    if (st == USC_OK) st = usc_trace_open(other, NULL, &t[1], err);
    if (st == USC_OK) st = usc_diff_open(t[0], t[1], &options, &d, err);
    if (st == USC_E_NOT_FOUND && t[1] != NULL && err->where == 1) {
        out->there = false;
        st = USC_OK;
    } else if (st == USC_OK) {
        st = say(d, t[0], out, err);
    }
    usc_diff_close(d);
    for (int side = 0; side < 2; side++)
        usc_trace_close(t[side]);
    return st;
}
