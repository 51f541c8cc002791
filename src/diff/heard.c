// SPDX-License-Identifier: Apache-2.0
// What verdicts on the calls of a pair make of it: diff.h. Nobody here judges.
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <ulpscope/verdict.h>

#include "diff/diffs.h"

/* Bits by which two that are accused may differ: what both do alike is no difference. */
#define ALIKE 2.0

const usc_diff_heard *usc_diff_heard_of(const usc_diff *d, int64_t row)
{
    const bool there = row >= 0 && row < d->n && d->said_of != NULL;
    return there && d->said_of[row] > 0 ? &d->said[d->said_of[row] - 1] : NULL;
}

static void free_heard(usc_diff_heard *h)
{
    for (int side = 0; side < 2; side++) {
        free((void *)(uintptr_t)h->verdict[side]);
        free((void *)(uintptr_t)h->sentence[side]);
        free((void *)(uintptr_t)h->cause[side]);
    }
}

void usc_diff_forget_heard(usc_diff *d)
{
    for (int64_t i = 0; i < d->n_said; i++)
        free_heard(&d->said[i]);
    free(d->said);
    free(d->said_of);
    d->said = NULL;
    d->said_of = NULL;
    d->n_said = d->said_room = 0;
}

static bool copy(const char *from, const char **to)
{
    if (from != NULL) *to = strdup(from);
    return from == NULL || *to != NULL;
}

/* Room for one more. */
static bool make_room(usc_diff *d)
{
    if (d->said_of == NULL) d->said_of = calloc((size_t)d->n + 1, sizeof *d->said_of);
    if (d->said_of == NULL) return false;
    if (d->n_said < d->said_room) return true;
    const int64_t room = d->said_room > 0 ? 2 * d->said_room : 64;
    usc_diff_heard *more = realloc(d->said, (size_t)room * sizeof *more);
    if (more == NULL) return false;
    d->said = more;
    d->said_room = room;
    return true;
}

static usc_status keep_heard(usc_diff *d, int64_t row, const usc_diff_heard *heard,
                             usc_error *err)
{
    if (!make_room(d)) return usc_no_memory("diff", err);
    usc_diff_heard *to = &d->said[d->n_said++];
    d->said_of[row] = d->n_said;
    *to = (usc_diff_heard){0};
    for (int side = 0; side < 2; side++) {
        to->bits[side] = heard->bits[side];
        if (!copy(heard->verdict[side], &to->verdict[side]) ||
            !copy(heard->sentence[side], &to->sentence[side]) ||
            !copy(heard->cause[side], &to->cause[side]))
            return usc_no_memory("diff", err);
    }
    return USC_OK;
}

/* ---- what two verdicts come to ---- */

/* `undefined`: the operator promises nothing there, and keeps it. */
static bool is_honest(const char *verdict)
{
    if (verdict == NULL) return false;
    const usc_verdict v = usc_verdict_by_text(verdict);
    return v == USC_VERDICT_PASS || v == USC_VERDICT_UNDEFINED;
}

static bool is_flagged(const char *verdict)
{
    return verdict != NULL && usc_verdict_flagged(usc_verdict_by_text(verdict));
}

bool usc_diff_alike(const char *const verdict[2], const double bits[2])
{
    assert(verdict && verdict[0] && verdict[1] && bits);
    return strcmp(verdict[0], verdict[1]) == 0 && !(fabs(bits[0] - bits[1]) > ALIKE) &&
           isnan(bits[0]) == isnan(bits[1]);
}

/* Whether NaN that came in leaves the side that passes little to be wrong in, where the
 * other one has numbers: what both do alike is not seen then. */
static bool is_drowned(const usc_diff_row *row, const usc_diff_heard *h, int flagged)
{
    return usc_verdict_by_text(h->verdict[flagged]) != USC_VERDICT_NONFINITE &&
           row->in.n_special > 0 && 2 * row->out.n_special > row->out.n;
}

static usc_diff_judged judged_as(const usc_diff_row *row, const usc_diff_heard *h)
{
    const bool flagged[] = {is_flagged(h->verdict[0]), is_flagged(h->verdict[1])};
    const bool honest[] = {is_honest(h->verdict[0]), is_honest(h->verdict[1])};
    if (flagged[0] && flagged[1])
        return usc_diff_alike(h->verdict, h->bits) ? USC_DIFF_ALIKE : USC_DIFF_ERRS;
    if (honest[0] && honest[1]) return USC_DIFF_STANDS;
    if (!(flagged[0] && honest[1]) && !(honest[0] && flagged[1]))
        return USC_DIFF_NO_VERDICT;
    return is_drowned(row, h, flagged[1]) ? USC_DIFF_NO_VERDICT : USC_DIFF_ERRS;
}

/* What becomes of a row that was judged so. */
static usc_diff_kind kind_after(const usc_diff_row *row, usc_diff_judged judged)
{
    const bool equal = !(usc_diff_height(&row->in) > 0);
    const usc_diff_kind kind = row->kind;
    switch (judged) {
    case USC_DIFF_ERRS:
        return equal ? USC_DIFF_MADE : USC_DIFF_ERRED;
    case USC_DIFF_STANDS: /* of two that were asked otherwise, each may be right */
        if (kind == USC_DIFF_ENTERED
                ? row->number
                : row->how == USC_DIFF_GIVEN && kind != USC_DIFF_SAME)
            return USC_DIFF_ASKED;
        return kind == USC_DIFF_MADE || kind == USC_DIFF_GREW
                   ? equal && !row->out.reshaped ? USC_DIFF_ROUNDED : USC_DIFF_INHERITED
                   : kind;
    case USC_DIFF_ALIKE: /* MADE: equal inputs, and further apart than rounding brings
                            them */
    case USC_DIFF_NO_VERDICT:
        return kind == USC_DIFF_GREW ? USC_DIFF_INHERITED : kind;
    case USC_DIFF_NOT_JUDGED:
        break;
    }
    return kind;
}

bool usc_diff_wants_verdicts(const usc_diff *d, int64_t i)
{
    const usc_diff_row *row = &d->row[i];
    return row->computes && row->out_arg >= 0 && row->out.basis >= USC_DIFF_BY_DATA &&
           row->kind != USC_DIFF_SAME && row->kind != USC_DIFF_UNTOLD &&
           row->kind != USC_DIFF_DREW;
}

usc_status usc_diff_hear(usc_diff *d, int64_t i, const usc_diff_heard *heard,
                         usc_error *err)
{
    if (i < 0 || i >= d->n)
        return usc_error_set(err, USC_E_ARG, i, "diff: there is no row %lld",
                             (long long)i);
    usc_diff_row *row = &d->row[i];
    row->judged = judged_as(row, heard);
    row->partly = heard->partly;
    const usc_diff_kind kind = row->kind, now = kind_after(row, row->judged);
    const usc_status st = keep_heard(d, i, heard, err);
    if (st != USC_OK || now == kind) return st;
    row->kind = now;
    if (now == USC_DIFF_ERRED || now == USC_DIFF_ASKED) row->source = -1;
    usc_diff_clear_holders(d);
    usc_diff_carry(d);
    return USC_OK;
}
