// SPDX-License-Identifier: Apache-2.0
// Why an output is accused, as far as the files show it. Asked once the row is written.
// Neighbours: pack_row.c (writes it), include/ulpscope/cause.h (names it).
#include "pack/pack_operands.h"

#include <string.h>

#include <ulpscope/cause.h>

static bool accused(const usc_pack_work *w, int i)
{
    return usc_verdict_flagged(usc_findings_at(usc_case_findings(w->c), i)->verdict) &&
           w->seen[i].device != NULL;
}

/* The output that tells most: the worst, but values rather than the positions that go
 * with them, which ties leave open. -1 where the worst is no output. */
static int decisive(const usc_pack_work *w)
{
    const usc_finding *worst = usc_findings_worst(usc_case_findings(w->c));
    int at = -1;
    for (int i = 0; i < usc_findings_count(usc_case_findings(w->c)) && at < 0; i++)
        if (usc_findings_at(usc_case_findings(w->c), i) == worst && accused(w, i)) at = i;
    for (int i = 0; i < usc_findings_count(usc_case_findings(w->c)) && at >= 0; i++)
        if (!usc_pack_is_float(w->seen[at].device) && accused(w, i) &&
            usc_pack_is_float(w->seen[i].device))
            at = i;
    return at;
}

/* What else the output may be taken for: arguments and other outputs of the call. */
static usc_status add_others(const usc_pack_work *w, int at, const usc_pack_inputs *in,
                             usc_cause_operands *o, usc_error *err)
{
    const int n = usc_findings_count(usc_case_findings(w->c));
    const size_t room = (size_t)(n + in->n) * sizeof *o->others + 1;
    usc_cause_named *named = usc_arena_take(w->arena, room);
    if (named == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "search for a cause: no memory");
    o->others = named;
    for (int i = 0; i < n; i++)
        if (i != at && w->seen[i].device != NULL)
            named[o->n_others++] =
                (usc_cause_named){usc_findings_at(usc_case_findings(w->c), i)->path,
                                  w->seen[i].operands.reference->tensor};
    o->inputs = named + o->n_others;
    for (int i = 0; i < in->n; i++) {
        const usc_safetensor *t = usc_safetensors_find(in->tensors, in->items[i].name);
        if (t == NULL) continue;
        named[o->n_others + o->n_inputs++] =
            (usc_cause_named){in->items[i].argument, t->tensor};
        if (strcmp(in->items[i].name,
                   usc_findings_at(usc_case_findings(w->c), at)->path) == 0)
            o->before = &t->tensor;
    }
    return USC_OK;
}

usc_status usc_pack_cause(const usc_pack_work *w, const usc_pack_inputs *inputs,
                          usc_cause_found *out, usc_error *err)
{
    static const usc_pack_inputs none;
    const int at = decisive(w);
    usc_cause *c = NULL;
    *out = (usc_cause_found){0};
    if (at < 0) return USC_OK;
    const usc_finding *f = usc_findings_at(usc_case_findings(w->c), at);
    const usc_pack_operands *held = &w->seen[at].operands;
    const usc_tensor *device = &w->seen[at].device->tensor;
    const usc_tensor *truth = &held->reference->tensor;
    if (device->dtype == USC_DTYPE_NONE || truth->dtype == USC_DTYPE_NONE ||
        held->other_dtype || held->free)
        return USC_OK; /* the reason says all */
    if (!usc_pack_same_shape(device, truth)) {
        usc_cause_shape(device, truth, out);
        return USC_OK;
    }
    usc_cause_operands o = {
        .device = device,
        .truth = truth,
        .yardstick = held->yardstick != NULL ? &held->yardstick->tensor : truth,
        .odd_is_excused = f->verdict != USC_VERDICT_NONFINITE,
        .verdict = usc_findings_worst(usc_case_findings(w->c))->verdict,
        .bits = f->bits,
        .adds = held->products > 1,
        .alloc = w->options->alloc};
    usc_status st = add_others(w, at, inputs != NULL ? inputs : &none, &o, err);
    if (st == USC_OK) st = usc_cause_open(&o, &c, err);
    if (st == USC_OK) st = usc_cause_ask(c, USC_CAUSE_ANYTHING, out, err);
    if (st == USC_OK) st = usc_cause_add_place(c, out, err);
    usc_cause_close(c);
    return st == USC_E_DTYPE || st == USC_E_SHAPE ? USC_OK : st; /* nothing to be said */
}
