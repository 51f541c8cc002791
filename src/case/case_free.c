// SPDX-License-Identifier: Apache-2.0
// Elements of which an operator promises nothing: floats that an integer type does not
// hold, several updates of one place. Neighbours: case_state.h; subgradients:
// case_corner.c.
#include "case/case_kept.h"
#include "case/case_state.h"

#include <math.h>
#include <string.h>

static usc_case_stage take_writes;

/* ---- what is done with them ---- */

/* The finding of an output of floats without them. */
static usc_status after_spared(usc_case *c, usc_error *err)
{
    (void)err;
    if (c->f.verdict == USC_VERDICT_PASS)
        usc_case_undefined(c, c->n_marks);
    else
        usc_case_excuse(c, c->excuse, c->n_marks);
    return usc_case_pass(c, USC_STAGE_END);
}

/* Whole numbers: what differs besides is wrong. */
static usc_status without_marked(usc_case *c)
{
    int64_t n_differ = 0, n_open = 0;
    for (int64_t i = 0; i < c->n; i++) {
        n_differ += c->open[i] != 0;
        c->open[i] = c->open[i] && !c->marks[i];
        n_open += c->open[i];
    }
    if (n_open > 0)
        usc_case_differ(c, &c->device, &c->native);
    else
        usc_case_undefined(c, n_differ);
    return usc_case_pass(c, USC_STAGE_END);
}

usc_status usc_case_freed(usc_case *c, usc_error *err)
{
    if (!usc_case_is_float(&c->device) || c->o.exact) return without_marked(c);
    return usc_case_look(c, &c->spared, after_spared, err);
}

/* Marks that are in question go free; false where there are none. */
static bool free_marked(usc_case *c, usc_excuse excuse)
{
    c->n_marks = 0;
    for (int64_t i = 0; i < c->n; i++) {
        c->marks[i] = c->marks[i] && c->open[i];
        c->n_marks += c->marks[i];
    }
    c->excuse = excuse;
    const bool wide = usc_case_is_float(&c->device) && !c->o.exact;
    return c->n_marks > 0 && (!wide || usc_case_put_right(c, &c->device));
}

/* ---- conversions ---- */

static usc_status ask_writes(usc_case *c)
{
    return usc_case_ask(c, USC_WANT_WRITES, 0, take_writes);
}

static usc_status free_range(usc_case *c)
{
    if (free_marked(c, USC_EXCUSE_OUT_OF_RANGE)) return usc_case_pass(c, USC_STAGE_FREED);
    return ask_writes(c);
}

/* Where they are many, as long as the device gives what some conversion gives. */
static usc_status take_usual(usc_case *c, usc_error *err)
{
    const usc_tensor *usual = c->given.a;
    if (usual == NULL || !usc_case_stacked(c, usual))
        return usc_error_set(err, USC_E_SHAPE, -1,
                             "%s: conversions are not along a first axis of its form",
                             c->o.path);
    if (c->kept != NULL) {
        usc_case_keep_usual(c, usual);
        return ask_writes(c);
    }
    const size_t size = usc_dtype_info_of(c->device.dtype)->size;
    const unsigned char *got = usc_case_plain(c, &c->device);
    const unsigned char *all = usc_case_plain(c, usual);
    if (got == NULL || all == NULL) return USC_OK; /* the driver tells */
    for (int64_t i = 0; i < c->n; i++) {
        bool any = false;
        for (int64_t k = 0; k < usual->sizes[0] && !any && c->marks[i]; k++)
            any = memcmp(got + (size_t)i * size, all + (size_t)(k * c->n + i) * size,
                         size) == 0;
        c->marks[i] = any;
    }
    return free_range(c);
}

static usc_status take_held(usc_case *c, usc_error *err)
{
    (void)err;
    const usc_tensor *mask = c->given.a;
    if (!usc_case_given(c, USC_GIVEN_AS_ASKED) || mask == NULL ||
        !usc_case_fits(mask, &c->device))
        return ask_writes(c);
    const double *open = usc_case_wide(c, mask);
    if (open == NULL) return USC_OK; /* the driver tells */
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++) {
        c->marks[i] = open[i] != 0;
        n += c->marks[i];
    }
    if (c->kept != NULL) {
        usc_case_keep_held(c, n > 0);
        return n > 0 ? usc_case_ask(c, USC_WANT_USUAL, 0, take_usual) : ask_writes(c);
    }
    const double most = usc_excuse_info_of(USC_EXCUSE_OUT_OF_RANGE)->most;
    if (n > 0 && (double)n > fmax(1, most * (double)c->n))
        return usc_case_ask(c, USC_WANT_USUAL, 0, take_usual);
    return free_range(c);
}

/* ---- several updates of one place ---- */

/* How many updates go to each row, by the row of each. */
static int64_t *count_rows(usc_case *c, const usc_tensor *rows, int64_t n_updates)
{
    int64_t *counts = usc_case_room(c, c->n, sizeof *counts);
    const int64_t *row = usc_case_plain(c, rows);
    if (counts == NULL || row == NULL) return NULL;
    for (int64_t u = 0; u < n_updates; u++)
        if (row[u] >= 0 && row[u] < c->n) counts[row[u]]++;
    return counts;
}

static bool are_writes(const usc_case *c)
{
    const usc_tensor *places = c->given.a, *values = c->given.b, *rows = c->given.c;
    return usc_case_given(c, USC_GIVEN_AS_ASKED) && places != NULL && values != NULL &&
           rows != NULL && places->dtype == USC_I64 && rows->dtype == USC_I64 &&
           places->ndim == 2 && rows->ndim == 1 && usc_case_fits(places, values) &&
           rows->sizes[0] == places->sizes[0];
}

/* Each element has to hold one of the updates of its place. Rows may be torn between two:
 * threads that write the same row at once do that, torch's own on the CPU among them. */
static bool mark_writes(usc_case *c)
{
    const int64_t n_updates = c->given.a->sizes[0], width = c->given.a->sizes[1];
    const int64_t *places = usc_case_plain(c, c->given.a);
    const int64_t *row = usc_case_plain(c, c->given.c);
    const double *values = usc_case_wide(c, c->given.b);
    const double *got = usc_case_wide(c, &c->device);
    const int64_t *counts = count_rows(c, c->given.c, n_updates);
    if (c->kept != NULL && row != NULL && counts != NULL) {
        usc_case_keep_writes(c, counts, row);
        return true; /* nothing is marked */
    }
    if (places == NULL || row == NULL || values == NULL || got == NULL || counts == NULL)
        return false;
    for (int64_t u = 0; u < n_updates; u++) {
        if (row[u] < 0 || row[u] >= c->n || counts[row[u]] < 2) continue;
        for (int64_t i = u * width; i < (u + 1) * width; i++) {
            const int64_t at = places[i];
            if (at < 0 || at >= c->n) continue;
            if (got[at] == values[i] || (isnan(got[at]) && isnan(values[i])))
                c->marks[at] = 1;
        }
    }
    return true;
}

static usc_status take_writes(usc_case *c, usc_error *err)
{
    (void)err;
    if (are_writes(c)) {
        memset(c->marks, 0, (size_t)c->n);
        if (!mark_writes(c)) return USC_OK; /* the driver tells */
        if (free_marked(c, USC_EXCUSE_WRITTEN_TWICE))
            return usc_case_pass(c, USC_STAGE_FREED);
    }
    if (usc_case_is_float(&c->device) && !c->o.exact)
        return usc_case_pass(c, USC_STAGE_CORNERS);
    if (c->kept == NULL) usc_case_differ(c, &c->device, &c->native);
    return usc_case_pass(c, USC_STAGE_END);
}

/* ---- in turn ---- */

/* Of floats all that differ are in question; of whole numbers c->open says which. */
usc_status usc_case_free(usc_case *c, usc_error *err)
{
    (void)err;
    c->d = NULL;
    c->marks = usc_case_room(c, c->n, 1);
    if (!usc_case_is_float(&c->device) || c->o.exact)
        return usc_case_ask(c, USC_WANT_HELD, 0, take_held);
    c->open = usc_case_room(c, c->n, 1);
    if (c->open == NULL || !usc_case_load(c)) return USC_OK; /* the driver tells */
    for (int64_t i = 0; i < c->n; i++)
        c->open[i] = c->kept != NULL || c->d[i] != usc_case_rounded(c, c->r[i]);
    return ask_writes(c);
}
