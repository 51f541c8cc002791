// SPDX-License-Identifier: Apache-2.0
// Two traces: their pairs, and where differences begin. diff.h
#include <stdlib.h>

#include "diff/align.h"
#include "diff/diffs.h"

/* ---- pairs ---- */

/* Steps of the second trace count from the first's where they have none in common. */
static void place_both(usc_diff *d)
{
    const usc_diff_list *a = &d->list[0], *b = &d->list[1];
    const int64_t first[] = {a->call[0].step, b->call[0].step};
    const bool apart =
        a->call[a->n - 1].step < first[1] || b->call[b->n - 1].step < first[0];
    for (int side = 0; side < 2; side++) {
        d->shift[side] = apart ? first[side] : 0;
        usc_diff_list_place(&d->list[side], d->shift[side]);
    }
}

static bool make_rows(usc_diff *d, const usc_diff_pair *pair, int64_t n)
{
    d->row = calloc((size_t)n + 1, sizeof *d->row);
    for (int side = 0; side < 2; side++) {
        const int64_t n_calls = d->list[side].n;
        d->row_of[side] = malloc((size_t)n_calls * sizeof *d->row_of[side]);
        d->alone[side] = malloc((size_t)(n_calls + 1) * sizeof *d->alone[side]);
        if (d->row_of[side] == NULL || d->alone[side] == NULL) return false;
        for (int64_t i = 0; i < n_calls; i++)
            d->row_of[side][i] = -1;
        for (int64_t i = 0; i < n; i++)
            d->row_of[side][side == 0 ? pair[i].a : pair[i].b] = i;
        for (int64_t i = 0; i < n_calls; i++)
            if (d->row_of[side][i] < 0)
                d->alone[side][d->n_alone[side]++] = d->list[side].call[i].sequence;
    }
    if (d->row == NULL) return false;
    for (int64_t i = 0; i < n; i++) {
        const usc_diff_call *a = &d->list[0].call[pair[i].a];
        const int64_t parent = usc_diff_list_index(&d->list[0], a->parent);
        d->row[i] = (usc_diff_row){.call_a = a->sequence,
                                   .call_b = d->list[1].call[pair[i].b].sequence,
                                   .how = pair[i].how,
                                   .parent = parent >= 0 ? d->row_of[0][parent] : -1};
    }
    d->n = n;
    return true;
}

static usc_status pair_up(usc_diff *d, usc_error *err)
{
    usc_diff_pair *pair = NULL;
    int64_t n = 0;
    place_both(d);
    usc_status st = usc_diff_align(d->list[0].item, d->list[0].n, d->list[1].item,
                                   d->list[1].n, &pair, &n, err);
    if (st == USC_OK) st = usc_diff_regroup(d, pair, &n, err);
    if (st == USC_OK && !make_rows(d, pair, n)) st = usc_no_memory("diff", err);
    free(pair);
    return st;
}

/* ---- where it begins ---- */

usc_status usc_diff_open(usc_trace *a, usc_trace *b, const usc_diff_options *options,
                         usc_diff **out, usc_error *err)
{
    *out = NULL;
    usc_diff *d = calloc(1, sizeof *d);
    if (d == NULL) return usc_no_memory("diff", err);
    if (options != NULL) d->options = *options;
    d->texts.alloc = usc_libc_alloc;
    usc_status st = usc_diff_list_read(a, &d->options, &d->list[0], err);
    if (st == USC_OK) st = usc_diff_list_read(b, &d->options, &d->list[1], err);
    for (int side = 0; side < 2 && st == USC_OK; side++)
        if (d->list[side].n == 0)
            st = usc_error_set(
                err, USC_E_NOT_FOUND, side, "the %s trace has no %s%s%s%s",
                side == 0 ? "first" : "second",
                d->options.modules ? "forward passes of modules" : "calls",
                d->options.phase != NULL ? " of the phase " : "",
                d->options.phase != NULL ? d->options.phase : "",
                d->options.modules ? "; capture both runs with --level module" : "");
    if (st == USC_OK) st = pair_up(d, err);
    for (int64_t i = 0; i < d->n && st == USC_OK; i++)
        st = usc_diff_compare(d, i, err);
    if (st == USC_OK) st = usc_diff_count_entered(d, err);
    if (st == USC_OK) st = usc_diff_count_unseen(d, err);
    if (st == USC_OK) {
        usc_diff_find_computing(d);
        usc_diff_clear_holders(d);
        usc_diff_carry(d);
        *out = d;
    } else {
        usc_diff_close(d);
    }
    return st;
}

void usc_diff_close(usc_diff *d)
{
    if (d == NULL) return;
    for (int side = 0; side < 2; side++) {
        usc_diff_list_free(&d->list[side]);
        free(d->row_of[side]);
        free(d->alone[side]);
    }
    usc_diff_forget_heard(d);
    free(d->row);
    free(d->size);
    usc_keys_free(&d->entered);
    usc_keys_free(&d->measured);
    usc_arena_free(&d->texts);
    free(d);
}

/* ---- what it came to ---- */

/* Row i, if a difference begins there and none did before, or if it makes an error and
 * none before did. */
static void take_first(const usc_diff *d, int64_t i, usc_diff_summary *s)
{
    const usc_diff_kind kind = d->row[i].kind;
    if (!usc_diff_begins(kind) || (kind == USC_DIFF_ENTERED && !d->options.replicas))
        return;
    if (s->first < 0 || (usc_diff_errs(kind) && !usc_diff_errs(d->row[s->first].kind)))
        s->first = i;
}

static bool is_accepted(const usc_diff *d, const usc_diff_row *row)
{
    const int64_t i = usc_diff_list_index(&d->list[0], row->call_a);
    return i >= 0 && (d->list[0].call[i].flags & USC_DIFF_ACCEPTED) != 0;
}

static void count_told(const usc_diff *d, const usc_diff_row *row, usc_diff_summary *s)
{
    if (!row->computes || row->kind == USC_DIFF_SAME) return;
    const bool stands = row->judged == USC_DIFF_STANDS && !row->partly;
    const bool untold = row->judged == USC_DIFF_NOT_JUDGED ||
                        row->judged == USC_DIFF_NO_VERDICT ||
                        (row->judged == USC_DIFF_STANDS && row->partly);
    const bool accepted = untold && is_accepted(d, row);
    s->n_differ += row->kind != USC_DIFF_UNTOLD;
    s->n_stand += stands;
    s->n_alike += row->judged == USC_DIFF_ALIKE;
    s->n_accepted += accepted;
    s->n_untold += untold && !accepted;
}

usc_diff_summary usc_diff_sum(const usc_diff *d)
{
    usc_diff_summary s = {.n_a = d->list[0].n,
                          .n_b = d->list[1].n,
                          .n_paired = d->n,
                          .first = -1,
                          .n_unpaired_a = d->n_alone[0],
                          .n_unpaired_b = d->n_alone[1],
                          .entered = d->outside,
                          .unseen = d->unseen,
                          .basis = USC_DIFF_BY_BITS};
    for (int64_t i = 0; i < d->n; i++) {
        const usc_diff_row *row = &d->row[i];
        s.n_how[row->how]++;
        s.n_kind[row->kind]++;
        if (row->kind != USC_DIFF_UNTOLD && row->out.basis != USC_DIFF_BY_NOTHING &&
            row->out.basis < s.basis)
            s.basis = row->out.basis;
        take_first(d, i, &s);
        count_told(d, row, &s);
    }
    s.same =
        s.first < 0 && s.n_untold + s.n_alike == 0 && s.n_kind[USC_DIFF_ENTERED] == 0;
    s.lacking = usc_diff_lacks_steps(d, 0) || usc_diff_lacks_steps(d, 1);
    s.partial = s.same && s.unseen.n[0] + s.unseen.n[1] > 0;
    s.same = s.same && !s.partial;
    return s;
}

const usc_diff_row *usc_diff_rows(const usc_diff *d, int64_t *n)
{
    *n = d->n;
    return d->row;
}

const int64_t *usc_diff_alone(const usc_diff *d, int side, int64_t *n)
{
    *n = d->n_alone[side];
    return d->alone[side];
}
