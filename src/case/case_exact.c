// SPDX-License-Identifier: Apache-2.0
// Outputs that must agree in every bit: whole numbers, other dtypes, and floats of which
// one value alone is right. Neighbours: case_state.h; ties: case_choice.c.
#include "case/case_kept.h"
#include "case/case_state.h"

#include <math.h>
#include <string.h>

#include "kernels/walk_load.h"

enum { FEWEST_TURNED = 2 }; /* rows that tell of all */
enum { STEP_REPLAYS = 16 }; /* of what chooses or converts, and with other roundings */

static usc_case_stage take_admissible;

/* ---- whole numbers ---- */

static bool any_open(const usc_case *c)
{
    return c->n > 0 && memchr(c->open, 1, (size_t)c->n) != NULL;
}

/* ---- what all runs have in common ---- */

static int64_t width_of(const usc_case *c)
{
    return c->device.ndim > 0 ? c->device.sizes[c->device.ndim - 1] : 1;
}

static double sum_of(const double *row, int64_t width)
{
    double sum = 0;
    for (int64_t i = 0; i < width; i++)
        sum += row[i];
    return sum;
}

/* Marks the rows that a run changed: 1, or 2 where it changed their sum as well. */
static void note_rows(usc_case *c, const double *run)
{
    const int64_t width = width_of(c);
    const double *right = usc_case_wide(c, &c->native);
    if (c->turned == NULL) c->turned = usc_case_room(c, c->n, 1);
    if (width < 2 || right == NULL || c->turned == NULL) return;
    for (int64_t at = 0; at < c->n; at += width) {
        if (memcmp(run + at, right + at, (size_t)width * sizeof *run) == 0) continue;
        const bool kept = sum_of(run + at, width) == sum_of(right + at, width);
        uint8_t *row = &c->turned[at / width];
        *row = kept && *row < 2 ? 1 : 2;
    }
}

/* Where runs turn rows and never change their sum (one winner, so many chosen), a row of
 * another sum is none of theirs; marks it in c->open. */
static bool breaks_sums(usc_case *c)
{
    const int64_t width = width_of(c);
    int64_t n_turned = 0, n_open = 0;
    if (c->turned == NULL || width < 2) return false;
    for (int64_t k = 0; k < c->n / width; k++) {
        if (c->turned[k] == 2) return false;
        n_turned += c->turned[k];
    }
    const double *got = usc_case_wide(c, &c->device);
    const double *right = usc_case_wide(c, &c->native);
    if (n_turned < FEWEST_TURNED || got == NULL || right == NULL) return false;
    for (int64_t at = 0; at < c->n; at += width) {
        if (sum_of(got + at, width) == sum_of(right + at, width)) continue;
        for (int64_t i = at; i < at + width; i++)
            n_open += c->open[i] = got[i] != right[i];
    }
    return n_open > 0;
}

static usc_status broken_otherwise(usc_case *c)
{
    if (breaks_sums(c)) {
        usc_case_differ(c, &c->device, &c->native);
        return usc_case_pass(c, USC_STAGE_END);
    }
    const int64_t n_differ = c->f.judgement.n_mismatch;
    usc_case_conclude(c, USC_VERDICT_PASS, "%s", "");
    c->f.numbers = USC_NUMBERS_COUNT;
    c->f.judgement.n_mismatch = n_differ;
    usc_case_note(c, "ties broken otherwise");
    return usc_case_pass(c, c->o.admissible ? USC_STAGE_SETTLED : USC_STAGE_END);
}

/* What an admissible run gives is right as well. */
static bool close_equal(usc_case *c, const usc_tensor *other)
{
    if (other == NULL || !usc_case_fits(other, &c->device)) return true;
    const double *a = usc_case_wide(c, &c->device), *b = usc_case_wide(c, other);
    const unsigned char *raw_a = usc_case_plain(c, &c->device);
    const unsigned char *raw_b = usc_case_plain(c, other);
    if (a == NULL || b == NULL || raw_a == NULL || raw_b == NULL) return false;
    note_rows(c, b);
    const size_t size = usc_dtype_info_of(other->dtype)->size;
    const bool raw = other->dtype == c->device.dtype && !usc_case_is_float(other);
    for (int64_t i = 0; i < c->n; i++)
        if (raw ? memcmp(raw_a + (size_t)i * size, raw_b + (size_t)i * size, size) == 0
                : a[i] == b[i])
            c->open[i] = 0;
    return true;
}

/* What all of them gave, at once: along a first axis. */
static usc_status take_all_admissible(usc_case *c, usc_error *err)
{
    const usc_tensor *all = c->given.a;
    if (all == NULL) return usc_case_pass(c, USC_STAGE_FREE);
    if (!usc_case_stacked(c, all))
        return usc_error_set(err, USC_E_SHAPE, -1,
                             "%s: admissible numbers are not along a first axis of its "
                             "form",
                             c->o.path);
    const size_t size = usc_dtype_info_of(all->dtype)->size;
    usc_tensor one = c->device;
    const unsigned char *raw = usc_case_plain(c, all);
    for (int64_t k = 0; k < all->sizes[0] && raw != NULL; k++) {
        const usc_status st =
            usc_tensor_make(&one, raw + (size_t)(k * c->n) * size, all->dtype,
                            c->device.ndim, c->device.sizes, err);
        if (st != USC_OK || !close_equal(c, &one)) return st; /* the driver tells */
    }
    return any_open(c) ? usc_case_pass(c, USC_STAGE_FREE) : broken_otherwise(c);
}

static usc_status take_admissible(usc_case *c, usc_error *err)
{
    if (usc_case_given(c, USC_GIVEN_SUMS)) return take_all_admissible(c, err);
    const bool rounding = c->rounding, kept = c->kept != NULL;
    const int k = c->want.k;
    const bool none = usc_case_given(c, USC_GIVEN_NONE);
    if (usc_case_given(c, USC_GIVEN_AS_ASKED) && kept) {
        usc_case_keep_run(c, c->given.a);
        usc_case_keep_run(c, c->given.b);
    } else if (usc_case_given(c, USC_GIVEN_AS_ASKED) &&
               !(close_equal(c, c->given.a) && close_equal(c, c->given.b)))
        return USC_OK; /* the driver tells */
    if (!kept && !any_open(c)) return broken_otherwise(c);
    if (!none && k + 1 < STEP_REPLAYS)
        return usc_case_ask(c, rounding ? USC_WANT_ROUNDING : USC_WANT_ADMISSIBLE, k + 1,
                            take_admissible);
    if (rounding && kept) usc_case_keep_runs(c);
    if (rounding) return usc_case_pass(c, kept ? USC_STAGE_KEEP_SETTLED : USC_STAGE_FREE);
    c->rounding = true;
    return usc_case_ask(c, USC_WANT_ROUNDING, 0, take_admissible);
}

static usc_status ask_admissible(usc_case *c)
{
    if (c->o.admissible) return usc_case_ask(c, USC_WANT_ADMISSIBLE, 0, take_admissible);
    return usc_case_pass(c, USC_STAGE_FREE);
}

static usc_status take_choice(usc_case *c, usc_error *err)
{
    (void)err;
    static const usc_choice none;
    const bool known = usc_case_given(c, USC_GIVEN_AS_ASKED) && c->given.choice != NULL;
    if (c->kept != NULL) {
        if (known) usc_case_keep_choice(c, c->given.choice);
        return ask_admissible(c);
    }
    usc_tensor got = c->device, want = c->native;
    const void *a = usc_case_plain(c, &got), *b = usc_case_plain(c, &want);
    c->open = usc_case_room(c, c->n, 1);
    if (a == NULL || b == NULL || c->open == NULL) return USC_OK; /* the driver tells */
    usc_case_mark_open(c, known ? c->given.choice : &none, a, b, c->open);
    if (!any_open(c)) return broken_otherwise(c);
    return ask_admissible(c);
}

static usc_status take_native(usc_case *c, usc_error *err)
{
    const bool known = usc_case_given(c, USC_GIVEN_AS_ASKED) && c->given.a != NULL;
    c->native = known ? *c->given.a : c->yardstick;
    if (c->kept != NULL) {
        usc_case_keep_native(c);
        return usc_case_ask(c, USC_WANT_CHOICE, 0, take_choice);
    }
    if (c->native.dtype != c->device.dtype || !usc_case_fits(&c->native, &c->device)) {
        usc_case_conclude(c, USC_VERDICT_UNJUDGED,
                          "no reference in this dtype on the CPU");
        return usc_case_pass(c, USC_STAGE_END);
    }
    usc_judgement j;
    const usc_status st = usc_judge_exact(&c->device, &c->native, &j, err);
    if (st != USC_OK) return st;
    usc_case_conclude(c, j.verdict, "%s", j.reason);
    c->f.bits = j.bits;
    c->f.numbers = USC_NUMBERS_ALL;
    c->f.judgement = j;
    if (j.verdict == USC_VERDICT_PASS) return usc_case_pass(c, USC_STAGE_END);
    return usc_case_ask(c, USC_WANT_CHOICE, 0, take_choice);
}

usc_status usc_case_exact(usc_case *c, usc_error *err)
{
    (void)err;
    return usc_case_ask(c, USC_WANT_NATIVE, 0, take_native);
}

/* ---- dtypes that nobody here computes with ---- */

static usc_status take_bytes(usc_case *c, usc_error *err)
{
    (void)err;
    const usc_tensor *want = c->given.a, *got = &c->bytes;
    const bool known = usc_case_given(c, USC_GIVEN_AS_ASKED) && want != NULL;
    bool same = known && strcmp(c->text, c->o.dtype != NULL ? c->o.dtype : "") == 0 &&
                c->o.bytes != NULL && want->dtype == got->dtype &&
                usc_case_fits(want, got);
    if (same) {
        usc_judgement j;
        const usc_status st = usc_judge_exact(got, want, &j, err);
        if (st != USC_OK) return st;
        same = j.verdict == USC_VERDICT_PASS;
    }
    if (same)
        usc_case_conclude(c, USC_VERDICT_PASS, "%s", "");
    else
        usc_case_conclude(c, USC_VERDICT_UNJUDGED, "%s is not judged yet",
                          c->o.dtype != NULL ? c->o.dtype : "this dtype");
    return usc_case_pass(c, USC_STAGE_END);
}

usc_status usc_case_bytes(usc_case *c, usc_error *err)
{
    (void)err;
    return usc_case_ask(c, USC_WANT_NATIVE, 0, take_bytes);
}

/* ---- floats of which one value alone is right ---- */

/* Whether any element differs, block by block: none is kept. */
static bool differs(const usc_tensor *a, const usc_tensor *b, int64_t n)
{
    const usc_walk left = usc_walk_over(a), right = usc_walk_over(b);
    usc_walk_room room[2];
    double values[2][USC_JUDGE_BLOCK];
    for (int64_t i = 0; i < n; i += USC_JUDGE_BLOCK) {
        const size_t m = (size_t)(n - i < USC_JUDGE_BLOCK ? n - i : USC_JUDGE_BLOCK);
        const double *x = usc_walk_load(&left, i, m, &room[0], values[0]);
        const double *y = usc_walk_load(&right, i, m, &room[1], values[1]);
        for (size_t k = 0; k < m; k++)
            if (!(x[k] == y[k])) return true;
    }
    return false;
}

/* Flushed subnormals are left to the judge. */
static usc_status hold(usc_case *c)
{
    const double tiny = ldexp(1, usc_dtype_info_of(c->device.dtype)->emin);
    c->open = usc_case_room(c, c->n, 1);
    if (c->open == NULL || !usc_case_load(c) || !usc_case_spare(c, &c->device))
        return USC_OK; /* the driver tells */
    for (int64_t i = 0; i < c->n; i++) {
        const double d = c->d[i], want = usc_case_rounded(c, c->r[i]);
        const bool same = d == want || (isnan(d) && isnan(want));
        c->open[i] = !same && !(d == 0 && fabs(want) < tiny);
        usc_case_put(c, i, c->r[i]);
    }
    if (any_open(c)) {
        c->f = (usc_finding){.path = c->o.path};
        usc_case_differ(c, &c->device, &c->spared);
    }
    return usc_case_pass(c, USC_STAGE_END);
}

static usc_status know_whole(usc_case *c, usc_error *err)
{
    (void)err;
    if (usc_case_given(c, USC_GIVEN_AS_ASKED) && c->given.number != 0) return hold(c);
    return usc_case_pass(c, USC_STAGE_END);
}

usc_status usc_case_not_exact(usc_case *c, usc_error *err)
{
    (void)err;
    if (c->n == 0) return usc_case_pass(c, USC_STAGE_END);
    if (c->o.rounding) return hold(c);
    if (c->device.dtype != USC_F32 || !usc_case_fits(&c->truth, &c->yardstick) ||
        differs(&c->yardstick, &c->truth, c->n) || !differs(&c->device, &c->truth, c->n))
        return usc_case_pass(c, USC_STAGE_END);
    return usc_case_ask(c, USC_WANT_WHOLE, 0, know_whole);
}
