// SPDX-License-Identifier: Apache-2.0
// Two traces: their pairs, and where differences begin. diff.h
#include <stdlib.h>
#include <string.h>

#include <ulpscope/verdict.h>

#include "diff/align.h"
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
           kind == USC_DIFF_ENTERED || kind == USC_DIFF_DREW ||
           kind == USC_DIFF_UNPAIRED || kind == USC_DIFF_BEYOND;
}

/* ---- pairs ---- */

/* Steps of the second trace count from the first's where they have none in common. */
static void place_both(usc_diff *d)
{
    const usc_diff_list *a = &d->list[0], *b = &d->list[1];
    const int64_t first[] = {a->call[0].step, b->call[0].step};
    const bool apart =
        a->call[a->n - 1].step < first[1] || b->call[b->n - 1].step < first[0];
    for (int side = 0; side < 2; side++)
        usc_diff_list_place(&d->list[side], apart ? first[side] : 0);
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

/* A difference that begins in a call below another one does not begin in that. */
static void clear_holders(usc_diff *d)
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

/* Sources of rows again, from the first on, and how many inherit from each. */
static void carry(usc_diff *d)
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
    if (st == USC_OK) {
        clear_holders(d);
        carry(d);
        *out = d;
    } else {
        usc_diff_close(d);
    }
    return st;
}

static void free_said(usc_diff_heard *h)
{
    const char *const all[] = {h->verdict_a, h->verdict_b, h->sentence_a, h->sentence_b};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free((void *)(uintptr_t)all[i]);
}

void usc_diff_close(usc_diff *d)
{
    if (d == NULL) return;
    for (int side = 0; side < 2; side++) {
        usc_diff_list_free(&d->list[side]);
        free(d->row_of[side]);
        free(d->alone[side]);
    }
    for (int64_t i = 0; i < d->n_said; i++)
        free_said(&d->said[i].heard);
    free(d->said);
    free(d->row);
    free(d->size);
    usc_keys_free(&d->entered);
    usc_keys_free(&d->measured);
    usc_arena_free(&d->texts);
    free(d);
}

/* ---- what it came to ---- */

usc_diff_summary usc_diff_sum(const usc_diff *d)
{
    usc_diff_summary s = {.n_a = d->list[0].n,
                          .n_b = d->list[1].n,
                          .n_paired = d->n,
                          .first = -1,
                          .n_unpaired_a = d->n_alone[0],
                          .n_unpaired_b = d->n_alone[1],
                          .basis = USC_DIFF_BY_BITS};
    for (int64_t i = 0; i < d->n; i++) {
        const usc_diff_row *row = &d->row[i];
        s.n_how[row->how]++;
        s.n_kind[row->kind]++;
        if (row->kind != USC_DIFF_UNTOLD && row->out_arg >= 0 && row->out.basis < s.basis)
            s.basis = row->out.basis;
        if (s.first < 0 && usc_diff_begins(row->kind)) s.first = i;
    }
    s.same = s.first < 0;
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

/* ---- what a replay says ---- */

const usc_diff_heard *usc_diff_heard_of(const usc_diff *d, int64_t row)
{
    for (int64_t i = 0; i < d->n_said; i++)
        if (d->said[i].row == row) return &d->said[i].heard;
    return NULL;
}

static bool copy_said(const usc_diff_heard *from, usc_diff_heard *to)
{
    const char *const in[] = {from->verdict_a, from->verdict_b, from->sentence_a,
                              from->sentence_b};
    const char **const out[] = {&to->verdict_a, &to->verdict_b, &to->sentence_a,
                                &to->sentence_b};
    for (size_t i = 0; i < sizeof in / sizeof in[0]; i++) {
        if (in[i] == NULL) continue;
        *out[i] = strdup(in[i]);
        if (*out[i] == NULL) return false;
    }
    return true;
}

/* Whether a verdict says that the call is honest. */
static bool is_honest(const char *verdict)
{
    return verdict != NULL && usc_verdict_by_text(verdict) == USC_VERDICT_PASS;
}

static bool is_flagged(const char *verdict)
{
    return verdict != NULL && usc_verdict_flagged(usc_verdict_by_text(verdict));
}

/* What the verdicts on both calls make of a row's kind. */
static usc_diff_kind heard_as(usc_diff_kind kind, const usc_diff_heard *h)
{
    if (kind == USC_DIFF_MADE || kind == USC_DIFF_GREW)
        return is_honest(h->verdict_a) && is_honest(h->verdict_b) ? USC_DIFF_ROUNDED
                                                                  : kind;
    const bool one = (is_flagged(h->verdict_a) && is_honest(h->verdict_b)) ||
                     (is_honest(h->verdict_a) && is_flagged(h->verdict_b));
    return one ? USC_DIFF_ERRED : kind;
}

usc_status usc_diff_hear(usc_diff *d, int64_t row, const usc_diff_heard *heard,
                         usc_error *err)
{
    if (row < 0 || row >= d->n)
        return usc_error_set(err, USC_E_ARG, row, "diff: there is no row %lld",
                             (long long)row);
    const usc_diff_kind kind = d->row[row].kind, now = heard_as(kind, heard);
    if (now == kind && !usc_diff_begins(kind)) return USC_OK;
    usc_diff_said *more = realloc(d->said, (size_t)(d->n_said + 1) * sizeof *more);
    if (more == NULL) return usc_no_memory("diff", err);
    d->said = more;
    d->said[d->n_said] = (usc_diff_said){.row = row};
    if (!copy_said(heard, &d->said[d->n_said++].heard)) return usc_no_memory("diff", err);
    if (now == kind) return USC_OK;
    d->row[row].kind = now;
    if (now == USC_DIFF_ERRED) d->row[row].source = -1;
    carry(d);
    return USC_OK;
}
