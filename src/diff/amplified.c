// SPDX-License-Identifier: Apache-2.0
// What rounding alone, amplified by the model, makes of a result, beside what the two
// runs make of it; formulas in docs/reference/diff.md. The replays are made by who calls.
#include <math.h>
#include <string.h>

#include "diff/diffs.h"
#include "diff/measure.h"

/* Times as far apart as the furthest of a few replays. Of few numbers, those of a few
 * replays may all lie close by chance. */
enum { FEW = 16, BEYOND = 8, BEYOND_FEW = 32 };

double usc_diff_beyond(int64_t n)
{
    return n < FEW ? BEYOND_FEW : BEYOND;
}

static int result_at(const usc_call *c, const char *path)
{
    for (int i = 0; i < c->n_args; i++)
        if (c->arg[i].role != USC_ROLE_IN && strcmp(c->arg[i].path, path) == 0) return i;
    return -1;
}

usc_status usc_diff_amplify(usc_diff *d, int64_t call, const char *path, double noise,
                            usc_error *err)
{
    usc_call a, b;
    usc_diff_size size;
    const int64_t at = usc_diff_list_index(&d->list[0], call);
    const int64_t i = at >= 0 ? d->row_of[0][at] : -1;
    if (i < 0 || isnan(noise)) return USC_OK;
    usc_diff_row *row = &d->row[i];
    if (row->kind == USC_DIFF_SAME) return USC_OK;
    usc_arena_reset(&d->texts);
    usc_status st = usc_diff_read(d, 0, row->call_a, &a, err);
    if (st == USC_OK) st = usc_diff_read(d, 1, row->call_b, &b, err);
    if (st != USC_OK) return st;
    const int own = result_at(&a, path);
    const int other = own >= 0 ? usc_diff_partner(&b, &a.arg[own], own) : -1;
    if (other < 0) return USC_OK;
    st = usc_diff_measure(d->list[0].trace, &a.arg[own], d->list[1].trace, &b.arg[other],
                          false, 0, &size, err);
    if (st != USC_OK || size.basis != USC_DIFF_BY_DATA) return st;
    const double floor = fmax(noise, 1); /* what is stored is rounded once */
    const double apart = size.n_special > 0 ? (double)INFINITY : size.rms;
    const double share = apart / (floor * usc_diff_beyond(size.n));
    if (row->noise > 0 && !(share > row->share)) return USC_OK;
    row->noise = floor;
    row->apart = apart;
    row->share = share;
    return USC_OK;
}

void usc_diff_weigh(usc_diff *d)
{
    int64_t first = -1;
    for (int64_t i = 0; i < d->n; i++) {
        if (usc_diff_begins(d->row[i].kind)) return;
        if (first < 0 && d->row[i].share > 1) first = i;
    }
    if (first >= 0) d->row[first].kind = USC_DIFF_BEYOND;
}
