// SPDX-License-Identifier: Apache-2.0
// What a case that keeps has found out by now, put away for whoever judges later: whatever
// stage finds it calls it. Neighbours: case_keep.c asks; case_state.h.
#include "case/case_kept.h"

#include <math.h>
#include <string.h>

/* ---- what is kept ---- */

static void *kept_room(usc_case *c, size_t n, size_t size)
{
    if (n > SIZE_MAX / 2 / size) c->keeping.failed = true;
    return c->keeping.failed ? NULL : usc_arena_take(&c->keeping, n * size + 1);
}

static const char *kept_text(usc_case *c, const char *text)
{
    const size_t size = text != NULL ? strlen(text) + 1 : 0;
    char *out = text != NULL ? kept_room(c, size, 1) : NULL;
    return out != NULL ? memcpy(out, text, size) : NULL;
}

/* Elements that lie in a row, as a tensor that is kept. */
void usc_case_keep_put(usc_case *c, const usc_tensor **to, const void *data,
                       usc_dtype dtype, int ndim, const int64_t *sizes)
{
    usc_tensor t, *out = kept_room(c, 1, sizeof *out);
    int64_t n = 0;
    if (out == NULL || usc_tensor_make(&t, data, dtype, ndim, sizes, NULL) != USC_OK ||
        usc_tensor_numel(&t, &n, NULL) != USC_OK || (data == NULL && n > 0))
        return;
    const size_t size = (size_t)n * usc_dtype_info_of(dtype)->size;
    void *room = kept_room(c, size, 1);
    if (room == NULL) return;
    if (n > 0) memcpy(room, data, size);
    *out = t;
    out->data = room;
    *to = out;
}

static void put_like(usc_case *c, const usc_tensor **to, const void *data,
                     usc_dtype dtype)
{
    usc_case_keep_put(c, to, data, dtype, c->device.ndim, c->device.sizes);
}

void usc_case_keep_tensor(usc_case *c, const usc_tensor **to, const usc_tensor *t)
{
    usc_case_keep_put(c, to, usc_case_plain(c, t), t->dtype, t->ndim, t->sizes);
}

/* As float32 where it holds all of it. */
void usc_case_keep_sum(usc_case *c, const usc_tensor **to, const double *x)
{
    bool holds = c->device.dtype != USC_F64;
    for (int64_t i = 0; i < c->n && holds; i++)
        holds = !isfinite(x[i]) || isfinite((float)x[i]);
    float *low = holds ? usc_case_room(c, c->n, sizeof *low) : NULL;
    for (int64_t i = 0; i < c->n && low != NULL; i++)
        low[i] = (float)x[i];
    put_like(c, to, low != NULL ? (const void *)low : x, low != NULL ? USC_F32 : USC_F64);
}

/* ---- what other stages found out ---- */

void usc_case_keep_kinds(usc_case *c)
{
    bool any = false;
    for (int64_t i = 0; i < c->n && !any; i++)
        any = c->marks[i] != 0;
    if (any) put_like(c, &c->kept->of.kinds, c->marks, USC_U8);
}

void usc_case_keep_steps(usc_case *c)
{
    usc_case_keep_tensor(c, &c->kept->of.jump_at, c->given.a);
    usc_case_keep_tensor(c, &c->kept->of.jump_values, c->given.b);
}

void usc_case_keep_nearby(usc_case *c)
{
    struct usc_kept_tensors *of = &c->kept->of;
    if (c->n == 0 || memchr(c->marks, 1, (size_t)c->n) == NULL) return;
    put_like(c, &of->near_steps, c->marks, USC_U8);
    put_like(c, &of->near_low, c->sides.low, USC_F64);
    put_like(c, &of->near_high, c->sides.high, USC_F64);
}

void usc_case_keep_added(usc_case *c)
{
    if (c->added.low == NULL) return;
    put_like(c, &c->kept->of.added_low, c->added.low, USC_F64);
    put_like(c, &c->kept->of.added_high, c->added.high, USC_F64);
}

void usc_case_keep_ties(usc_case *c)
{
    put_like(c, &c->kept->of.ties, c->marks, USC_U8);
}

void usc_case_keep_narrow(usc_case *c, int place, const double *run)
{
    struct usc_kept_tensors *of = &c->kept->of;
#define USC_KEPT_TO(name) &of->name,
    const usc_tensor **const to[] = {USC_KEPT_NARROW_LIST(USC_KEPT_TO)};
#undef USC_KEPT_TO
    if (place >= 0 && place < (int)(sizeof to / sizeof to[0]))
        usc_case_keep_sum(c, to[place], run);
}

void usc_case_keep_sides(usc_case *c, const double *low, const double *high, double least)
{
    const int64_t one = 1;
    usc_case_keep_put(c, &c->kept->of.run_least, &least, USC_F64, 1, &one);
    put_like(c, &c->kept->of.run_low, low, USC_F64);
    put_like(c, &c->kept->of.run_high, high, USC_F64);
}

void usc_case_keep_run_steps(usc_case *c, const int64_t *at, const double *values,
                             int64_t n)
{
    usc_case_keep_put(c, &c->kept->of.run_at, at, USC_I64, 1, &n);
    usc_case_keep_put(c, &c->kept->of.run_values, values, USC_F64, 1, &n);
}

void usc_case_keep_lost(usc_case *c, const double *lost, const double *cut,
                        const double *shares, int64_t n_shares)
{
    usc_case_keep_sum(c, &c->kept->of.lost, lost);
    if (cut != NULL) usc_case_keep_sum(c, &c->kept->of.lost_cut, cut);
    usc_case_keep_put(c, &c->kept->of.lost_shares, shares, USC_F64, 1, &n_shares);
}

void usc_case_keep_corners(usc_case *c, const uint8_t *where, int64_t n_sums)
{
    struct usc_kept_tensors *of = &c->kept->of;
    if (c->n == 0 || memchr(where, 1, (size_t)c->n) == NULL) return;
    put_like(c, &of->unpromised, where, USC_U8);
    put_like(c, &of->side_low, c->sides.low, USC_F64);
    put_like(c, &of->side_high, c->sides.high, USC_F64);
    usc_case_keep_put(c, &of->sums_low, c->sides.low_sums, USC_F64, 1, &n_sums);
    usc_case_keep_put(c, &of->sums_high, c->sides.high_sums, USC_F64, 1, &n_sums);
}

void usc_case_keep_native(usc_case *c)
{
    usc_case_keep_tensor(c, &c->kept->of.reference, &c->native);
}

void usc_case_keep_choice(usc_case *c, const usc_choice *how)
{
    c->kept->how = *how;
    c->kept->how.values = NULL;
    usc_case_keep_tensor(c, &c->kept->of.choice, how->values);
}

void usc_case_keep_held(usc_case *c, bool any)
{
    if (any) put_like(c, &c->kept->of.unpromised, c->marks, USC_U8);
}

void usc_case_keep_usual(usc_case *c, const usc_tensor *usual)
{
    usc_case_keep_tensor(c, &c->kept->of.usual, usual);
}

/* ---- updates that share their place with another ---- */

void usc_case_keep_writes(usc_case *c, const int64_t *counts, const int64_t *rows)
{
    struct usc_kept_tensors *of = &c->kept->of;
    const usc_tensor *values = c->given.b;
    const int64_t n = c->given.a->sizes[0], width = c->given.a->sizes[1];
    const size_t size = usc_dtype_info_of(values->dtype)->size;
    const int64_t *places = usc_case_plain(c, c->given.a);
    const unsigned char *raw = usc_case_plain(c, values);
    int64_t *to = usc_case_room(c, n * width, sizeof *to);
    int64_t *row_to = usc_case_room(c, n, sizeof *row_to);
    unsigned char *raw_to = usc_case_room(c, n * width, size);
    if (c->work.failed) return; /* the driver tells */
    int64_t sizes[2] = {0, width};
    for (int64_t u = 0; u < n; u++) {
        if (rows[u] < 0 || rows[u] >= c->n || counts[rows[u]] < 2) continue;
        const int64_t at = sizes[0]++;
        row_to[at] = rows[u];
        memcpy(to + at * width, places + u * width, (size_t)width * sizeof *to);
        memcpy(raw_to + (size_t)(at * width) * size, raw + (size_t)(u * width) * size,
               (size_t)width * size);
    }
    if (sizes[0] == 0) return;
    usc_case_keep_put(c, &of->write_at, to, USC_I64, 2, sizes);
    usc_case_keep_put(c, &of->writes, raw_to, values->dtype, 2, sizes);
    usc_case_keep_put(c, &of->write_rows, row_to, USC_I64, 1, sizes);
}

/* ---- whole numbers that hang on roundings ---- */

/* One more run, unless another gave the same. What the output's dtype does not hold no
 * device can give: there the right number stands in. */
void usc_case_keep_run(usc_case *c, const usc_tensor *run)
{
    const size_t size = usc_dtype_info_of(c->device.dtype)->size;
    const size_t row = (size_t)c->n * size;
    if (run == NULL || c->n == 0 || !usc_case_fits(run, &c->device)) return;
    const double *wide = usc_case_wide(c, run);
    const unsigned char *right = usc_case_plain(c, &c->native);
    if (c->n_runs == c->runs_room) {
        void *more = usc_arena_grow(&c->work, c->runs, c->n_runs, &c->runs_room, row);
        if (more != NULL) c->runs = more;
    }
    if (c->work.failed || wide == NULL || right == NULL) return; /* the driver tells */
    unsigned char *to = c->runs + c->n_runs * row;
    memcpy(to, right, row);
    for (int64_t i = 0; i < c->n; i++) {
        unsigned char place[8];
        double back;
        usc_dtype_narrow(c->device.dtype, &wide[i], place, 1);
        usc_dtype_widen(c->device.dtype, place, &back, 1);
        if (back == wide[i]) memcpy(to + (size_t)i * size, place, size);
    }
    bool known = memcmp(to, right, row) == 0;
    for (size_t k = 0; k < c->n_runs && !known; k++)
        known = memcmp(to, c->runs + k * row, row) == 0;
    c->n_runs += !known;
}

void usc_case_keep_runs(usc_case *c)
{
    usc_tensor t = c->device;
    if (c->n_runs == 0 || t.ndim == USC_MAX_DIMS) return;
    memmove(&t.sizes[1], &t.sizes[0], (size_t)t.ndim * sizeof t.sizes[0]);
    t.sizes[0] = (int64_t)c->n_runs;
    usc_case_keep_put(c, &c->kept->of.admissible, c->runs, t.dtype, t.ndim + 1, t.sizes);
}

/* ---- the output ---- */

static usc_status keep_anew(usc_case *c, usc_error *err)
{
    usc_kept *k = c->kept = kept_room(c, 1, sizeof *k);
    if (k == NULL) return usc_no_memory(c->o.path, err);
    *k = (usc_kept){.path = kept_text(c, c->o.path),
                    .captured = kept_text(c, c->o.captured),
                    .ndim = c->device.ndim,
                    .carries = c->o.carries,
                    .exact = c->o.exact,
                    .free = c->o.free,
                    .linear = c->o.linear,
                    .multiplies = c->o.products,
                    .never_rounds = c->o.never_rounds,
                    .adds = c->o.adds,
                    .alone = c->o.alone,
                    .pairs = c->o.pairs,
                    .rounding = c->o.rounding};
    memcpy(k->sizes, c->device.sizes, sizeof k->sizes);
    return USC_OK;
}

usc_status usc_case_keep_begin(usc_case *c, usc_error *err)
{
    if (c->n_all == c->all_room) {
        void *more =
            usc_arena_grow(&c->keeping, c->all, c->n_all, &c->all_room, sizeof *c->all);
        if (more != NULL) c->all = more;
    }
    usc_status st = USC_OK;
    if (c->keeping.failed) st = usc_no_memory(c->o.path, err);
    if (st == USC_OK) st = keep_anew(c, err);
    if (st == USC_OK) c->all[c->n_all++] = c->kept;
    return st;
}

usc_status usc_case_keep_reading(usc_case *c, usc_error *err)
{
    const usc_status st = keep_anew(c, err);
    if (st != USC_OK) return st;
    const int number = c->reading.at;
    c->kept->reading =
        usc_want_text(number == USC_READING_UNREAD      ? USC_WANT_UNREAD
                      : number == USC_READING_UNWRITTEN ? USC_WANT_UNWRITTEN
                                                        : USC_WANT_READING);
    usc_case_keep_note(c);
    return USC_OK;
}

void usc_case_keep_apart(usc_case *c)
{
    put_like(c, &c->kept->of.own_low, c->apart.low, USC_F64);
    put_like(c, &c->kept->of.own_high, c->apart.high, USC_F64);
    put_like(c, &c->kept->of.own_nan, c->apart.odd, USC_U8);
}

void usc_case_keep_refused(usc_case *c, usc_excuse excuse)
{
    const usc_excuse_info *info = usc_excuse_info_of(excuse);
    if (info != NULL) c->kept->refused = info->code;
}

void usc_case_keep_excepted(usc_case *c, const usc_tensor *marks)
{
    const double *marked = usc_case_wide(c, marks);
    uint8_t *out = usc_case_room(c, c->n, 1);
    if (marked == NULL || out == NULL) return; /* the driver tells */
    for (int64_t i = 0; i < c->n; i++)
        out[i] = marked[i] != 0;
    put_like(c, &c->kept->of.excepted, out, USC_U8);
}

void usc_case_keep_note(usc_case *c)
{
    c->kept->note = kept_text(c, c->reading.note);
}

void usc_case_kept_reading(usc_case *c)
{
    if (c->f.verdict == USC_VERDICT_UNJUDGED) return; /* nothing to judge by */
    c->reading.last->next = c->kept;
    c->reading.last = c->kept;
}

void usc_case_keep_dtype(usc_case *c)
{
    if (usc_case_given(c, USC_GIVEN_AS_ASKED)) c->kept->dtype = kept_text(c, c->text);
}

void usc_case_keep_free(usc_case *c)
{
    const size_t size = usc_dtype_info_of(c->device.dtype)->size;
    put_like(c, &c->kept->of.reference, usc_case_room(c, c->n, size), c->device.dtype);
}

/* An output of which it turned out that there is nothing to judge it by. */
void usc_case_keep_end(usc_case *c)
{
    if (c->f.verdict != USC_VERDICT_UNJUDGED) return;
    c->kept->of = (struct usc_kept_tensors){0};
    c->kept->unjudged = kept_text(c, c->f.reason);
}
