// SPDX-License-Identifier: Apache-2.0
// What a pair of calls is said to have done: diff.h.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/line.h"
#include "diff/diffs.h"

static const char *text_of(const char *text)
{
    return text != NULL ? text : "";
}

/* "512 of 4,096 elements, the worst by 4.1e+03 roundings of float32" */
static void add_size(usc_line *to, const usc_diff_size *s, const usc_call_arg *arg)
{
    usc_line_add(to, "%s", text_of(arg->path));
    if (s->reshaped) {
        usc_line_text(to, " has another shape");
        return;
    }
    if (s->basis == USC_DIFF_BY_STATISTICS) {
        usc_line_text(to, " has other statistics");
    } else {
        usc_line_text(to, " differs in ");
        usc_line_count(to, s->n_differ);
        usc_line_text(to, " of ");
        usc_line_count(to, s->n);
        usc_line_text(to, s->n == 1 ? " element" : " elements");
    }
    if (s->n_special > 0) {
        usc_line_text(to, ", NaN or Inf in ");
        usc_line_count(to, s->n_special);
        usc_line_text(to, s->n_special == 1 ? " place" : " places");
    }
    if (s->worst > 0)
        usc_line_add(to, ", by up to %.3g roundings of %s", s->worst,
                     text_of(arg->dtype_name));
}

/* Of a module's backward pass inputs are gradients. */
static const char *inputs_of(const usc_call *a)
{
    return strcmp(text_of(a->op), USC_CALL_BACKWARD) == 0 ? "the gradients that come in"
                                                          : "the inputs";
}

/* "aten::mul, call 12 of B, which has no partner" */
static usc_status name_lone(usc_diff *d, const usc_diff_row *row, char *out, size_t size,
                            usc_error *err)
{
    const int side = row->lone[0] > 0 ? 0 : 1;
    usc_call call;
    out[0] = '\0';
    if (row->kind != USC_DIFF_UNPAIRED || row->lone[side] <= 0) return USC_OK;
    const usc_status st = usc_diff_read(d, side, row->lone[side], &call, err);
    if (st == USC_OK)
        (void)snprintf(out, size, "%s, call %" PRId64 " of %c, which has no partner,",
                       text_of(call.op), row->lone[side], "AB"[side]);
    return st;
}

static void add_kind(usc_line *to, const usc_diff_row *row, const usc_call *a,
                     const char *lone)
{
    const usc_call_arg *in = row->in_arg >= 0 ? &a->arg[row->in_arg] : NULL;
    const usc_call_arg *out = row->out_arg >= 0 ? &a->arg[row->out_arg] : NULL;
    switch (row->kind) {
    case USC_DIFF_SAME:
        usc_line_text(to, "the results are the same");
        return;
    case USC_DIFF_UNTOLD:
        if (!(usc_diff_height(&row->out) > 0)) {
            usc_line_text(to, "nothing was kept that could be compared");
            return;
        }
        usc_line_text(to, "of an input nothing was kept, ");
        break;
    case USC_DIFF_DREW:
        usc_line_text(to, "it draws other random numbers: the seeds or states of the "
                          "generators differ");
        return;
    case USC_DIFF_ENTERED:
        usc_line_text(to, "what comes from outside of the traces differs: ");
        if (in != NULL) add_size(to, &row->in, in);
        return;
    case USC_DIFF_UNPAIRED:
        usc_line_add(to, "it reads what %s wrote: ",
                     lone[0] != '\0' ? lone : "a call without a partner");
        if (in != NULL) add_size(to, &row->in, in);
        return;
    case USC_DIFF_MADE:
    case USC_DIFF_ROUNDED:
        if (in == NULL)
            usc_line_text(to, "it reads no tensor, ");
        else if (!(usc_diff_height(&row->in) > 0))
            usc_line_add(to, "%s are the same, ", inputs_of(a));
        break;
    case USC_DIFF_GREW:
        usc_line_add(to, "%s differ by %.3g roundings, ", inputs_of(a), row->in.worst);
        break;
    case USC_DIFF_ERRED:
        usc_line_text(to, "the inputs differ already, and it errs on its own: ");
        break;
    case USC_DIFF_ASKED:
        usc_line_text(to, "both are right, each on its own inputs, but asked otherwise: "
                          "arguments that are no tensors differ, ");
        break;
    case USC_DIFF_INHERITED:
        usc_line_add(to, "%s differ already, ",
                     usc_diff_height(&row->in) > 0
                         ? inputs_of(a)
                         : "what it was made of in the forward pass");
        break;
    case USC_DIFF_BEYOND:
        usc_line_add(to,
                     "no call makes a difference, but rounding alone, amplified by this "
                     "model, gives %.3g roundings, and here are %.3g: ",
                     row->noise, row->apart);
        break;
    case USC_DIFF_HOLDS:
        usc_line_text(to, "a call below it makes the difference, ");
        break;
    case USC_N_DIFF_KINDS:
        break;
    }
    if (out != NULL) add_size(to, &row->out, out);
    if (row->kind == USC_DIFF_ROUNDED)
        usc_line_text(to, row->judged == USC_DIFF_STANDS
                              ? ": rounding, for both are right"
                              : ": what another order of adding may do");
}

static void add_verdicts(usc_line *to, const usc_diff_heard *h)
{
    for (int i = 0; i < 2; i++) {
        if (h->verdict[i] == NULL) continue;
        usc_line_add(to, "; %c: %s", "AB"[i], h -> verdict[i]);
        if (h->sentence[i] != NULL && strcmp(h->verdict[i], "pass") != 0)
            usc_line_add(to, " (%s)", h->sentence[i]);
    }
}

usc_status usc_diff_say(usc_diff *d, int64_t i, char *out, size_t size, usc_error *err)
{
    usc_line line = {0};
    usc_call a;
    if (size > 0) out[0] = '\0';
    if (i < 0 || i >= d->n)
        return usc_error_set(err, USC_E_ARG, i, "diff: there is no row %lld",
                             (long long)i);
    usc_arena_reset(&d->texts);
    char lone[256];
    usc_status st = name_lone(d, &d->row[i], lone, sizeof lone, err);
    if (st == USC_OK) st = usc_diff_read(d, 0, d->row[i].call_a, &a, err);
    if (st != USC_OK) return st;
    add_kind(&line, &d->row[i], &a, lone);
    const usc_diff_heard *heard = usc_diff_heard_of(d, i);
    if (heard != NULL) add_verdicts(&line, heard);
    (void)snprintf(out, size, "%s", text_of(line.text));
    usc_line_free(&line);
    return USC_OK;
}
