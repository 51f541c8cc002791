// SPDX-License-Identifier: Apache-2.0
// What all ask of a pair: its kind, its calls as they were recorded, how far apart two
// tensors are. Neighbours: compare.c, which fills the rows.
#include <math.h>
#include <string.h>

#include "diff/diffs.h"

static const char *const texts[USC_N_DIFF_KINDS] = {
#define TEXT(id, text) [USC_DIFF_##id] = (text),
    USC_DIFF_KIND_LIST(TEXT)
#undef TEXT
};

const char *usc_diff_kind_text(usc_diff_kind kind)
{
    return (unsigned)kind < USC_N_DIFF_KINDS ? texts[kind] : "unknown";
}

bool usc_diff_begins(usc_diff_kind kind)
{
    return kind == USC_DIFF_MADE || kind == USC_DIFF_GREW || kind == USC_DIFF_ERRED ||
           kind == USC_DIFF_ASKED || kind == USC_DIFF_ENTERED || kind == USC_DIFF_DREW ||
           kind == USC_DIFF_UNPAIRED || kind == USC_DIFF_BEYOND;
}

bool usc_diff_errs(usc_diff_kind kind)
{
    return kind == USC_DIFF_MADE || kind == USC_DIFF_GREW || kind == USC_DIFF_ERRED;
}

void usc_diff_clear_holders(usc_diff *d)
{
    for (int64_t i = d->n - 1; i >= 0; i--) {
        if (!usc_diff_begins(d->row[i].kind)) continue;
        for (int64_t up = d->row[i].parent; up >= 0; up = d->row[up].parent)
            if (usc_diff_begins(d->row[up].kind) || d->row[up].kind == USC_DIFF_HOLDS) {
                d->row[up].kind = USC_DIFF_HOLDS;
                d->row[up].source = i;
            }
    }
}

void usc_diff_carry(usc_diff *d)
{
    for (int64_t i = 0; i < d->n; i++)
        d->row[i].n_carried = 0;
    for (int64_t i = 0; i < d->n; i++) {
        usc_diff_row *row = &d->row[i];
        if (row->kind != USC_DIFF_INHERITED || row->from < 0) continue;
        const usc_diff_row *from = &d->row[row->from];
        row->source = usc_diff_begins(from->kind) ? row->from : from->source;
        if (row->source >= 0) d->row[row->source].n_carried++;
    }
}

usc_status usc_diff_read(usc_diff *d, int side, int64_t sequence, usc_call *out,
                         usc_error *err)
{
    usc_arena *a = &d->texts;
    const usc_status st = usc_trace_read_call(d->list[side].trace, sequence, out, err);
    if (st != USC_OK) return st;
    usc_call_arg *args = usc_arena_take(a, (size_t)(out->n_args + 1) * sizeof *args);
    for (int i = 0; args != NULL && i < out->n_args; i++) {
        args[i] = out->arg[i];
        args[i].path = usc_arena_text(a, args[i].path);
        args[i].dtype_name = usc_arena_text(a, args[i].dtype_name);
        args[i].stats = usc_arena_text(a, args[i].stats);
        args[i].form = usc_arena_text(a, args[i].form);
        const size_t size = (size_t)args[i].ndim * sizeof *args[i].sizes;
        args[i].sizes = usc_arena_copy(a, args[i].sizes, size);
        args[i].strides = usc_arena_copy(a, args[i].strides, size);
        args[i].device = NULL;
    }
    out->arg = args;
    out->op = usc_arena_text(a, out->op);
    out->module_path = usc_arena_text(a, out->module_path);
    out->module_class = usc_arena_text(a, out->module_class);
    out->phase = usc_arena_text(a, out->phase);
    out->frames = out->schema = out->args = out->state = out->status = NULL;
    return a->failed ? usc_no_memory("diff", err) : USC_OK;
}

int usc_diff_partner(const usc_call *in, const usc_call_arg *arg, int at)
{
    for (int k = -1; k < in->n_args; k++) {
        const int i = k < 0 ? at : k;
        if (i < in->n_args && in->arg[i].role == arg->role &&
            strcmp(in->arg[i].path, arg->path) == 0)
            return i;
    }
    return -1;
}

usc_diff_basis usc_diff_known(const usc_diff *d, const usc_diff_tensor *a,
                              const usc_diff_tensor *b, bool *equal)
{
    const uint64_t bytes_a = usc_diff_list_bytes(&d->list[0], a);
    const uint64_t bytes_b = usc_diff_list_bytes(&d->list[1], b);
    *equal = false;
    if (bytes_a != 0 && bytes_b != 0 && !d->options.statistics) {
        *equal = bytes_a == bytes_b && a->view == b->view;
        return USC_DIFF_BY_BITS;
    }
    if (a->stats == 0 || b->stats == 0) return USC_DIFF_BY_NOTHING;
    *equal = a->stats == b->stats;
    return USC_DIFF_BY_STATISTICS;
}

double usc_diff_height(const usc_diff_size *s)
{
    if (s->n_special > 0 || s->reshaped) return (double)INFINITY;
    return s->worst > s->rms ? s->worst : s->rms;
}
