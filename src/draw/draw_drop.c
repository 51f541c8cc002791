// SPDX-License-Identifier: Apache-2.0
// Dropouts: the mask that an output shows; rrelu: the slopes. Neighbours: draw_drop.h.
#include "draw/draw_drop.h"

#include "case/findings.h"

#include <math.h>
#include <string.h>

#define APART 0x1p-4 /* of a value: kept and dropped are told apart */

const usc_tensor *usc_draw_input(const usc_draw_call *call, usc_error *err)
{
    const usc_draw_argument *a = usc_draw_argument_of(call, "input");
    if (a == NULL || a->tensor == NULL) a = usc_draw_argument_of(call, "self");
    if (a != NULL && a->tensor != NULL &&
        usc_dtype_info_of(a->tensor->dtype)->kind == USC_KIND_FLOAT)
        return a->tensor;
    (void)usc_error_set(err, USC_E_ARG, -1, "%s without an input of floats", call->op);
    return NULL;
}

/* An answer as doubles; no mask yet. */
static usc_status read_answer(const usc_tensor *x, const usc_tensor *y, usc_arena *arena,
                              usc_drop_answer *out, usc_error *err)
{
    int64_t n = 0, n_y = 0;
    usc_status st = usc_tensor_numel(x, &n, err);
    if (st == USC_OK) st = usc_tensor_numel(y, &n_y, err);
    if (st != USC_OK) return st;
    if (n != n_y)
        return usc_error_set(err, USC_E_SHAPE, -1, "%lld elements of an input of %lld",
                             (long long)n_y, (long long)n);
    *out = (usc_drop_answer){.x = x, .y = y, .n = n};
    out->xs = usc_draws_doubles(arena, x, n);
    out->ys = usc_draws_doubles(arena, y, n);
    out->kept = usc_arena_take(arena, (size_t)n);
    out->shown = usc_arena_take(arena, (size_t)n);
    return arena->failed ? usc_no_memory("a dropout", err) : USC_OK;
}

/* What was kept, and where the output shows it. */
static void find_mask(const usc_drop_form *form, usc_drop_answer *a)
{
    const usc_dtype_info *info = usc_dtype_info_of(a->y->dtype);
    const double small = info->kind == USC_KIND_FLOAT ? ldexp(1, info->emin) : 0;
    for (int64_t i = 0; i < a->n; i++) {
        const double x = a->xs[i], y = a->ys[i];
        if (!form->alpha) {
            a->kept[i] = y != 0 && !(isnan(y) && isinf(x));
            a->shown[i] = isfinite(x) && fabs(x) > small;
            continue;
        }
        const double kept = usc_drop_value(form, x, true);
        const double dropped = usc_drop_value(form, x, false);
        /* Inf is kept as Inf; between Inf and Inf there is no distance */
        a->kept[i] = isinf(x) ? isinf(y) != 0 : fabs(y - kept) <= fabs(y - dropped);
        a->shown[i] = isfinite(x) && fabs(kept - dropped) > APART * fabs(kept);
    }
}

/* The operator gives the mask itself. */
static usc_status take_mask(const usc_tensor *mask, usc_arena *arena, usc_drop_answer *a,
                            usc_error *err)
{
    int64_t n = 0;
    const usc_status st = usc_tensor_numel(mask, &n, err);
    if (st != USC_OK) return st;
    if (n != a->n)
        return usc_error_set(err, USC_E_SHAPE, -1, "a mask of %lld elements for %lld",
                             (long long)n, (long long)a->n);
    const double *m = usc_draws_doubles(arena, mask, n);
    if (m == NULL) return usc_no_memory("a dropout", err);
    for (int64_t i = 0; i < n; i++) {
        a->kept[i] = m[i] != 0;
        a->shown[i] = 1;
    }
    return USC_OK;
}

/* One draw for each sample and channel; how many are dropped in part. */
static int64_t gather_features(const usc_drop_form *form, usc_drop_answer *a)
{
    const int dims = a->x->ndim == form->unbatched ? 1 : 2;
    int64_t size = 1, torn = 0;
    for (int axis = dims; axis < a->x->ndim; axis++)
        size *= a->x->sizes[axis];
    const int64_t n = size > 0 ? a->n / size : 0;
    for (int64_t k = 0; k < n; k++) {
        bool kept = false, gone = false;
        for (int64_t i = k * size; i < (k + 1) * size; i++) {
            kept = kept || (a->kept[i] != 0 && a->shown[i] != 0);
            gone = gone || (a->kept[i] == 0 && a->shown[i] != 0);
        }
        torn += kept && gone;
        a->kept[k] = kept;
        a->shown[k] = kept || gone;
    }
    a->n = n;
    return torn;
}

/* The mask of one answer as draws. */
static usc_status draw_mask(const usc_drop_form *form, usc_drop_answer *a,
                            uint64_t stream, usc_arena *arena, usc_draws *d,
                            usc_error *err)
{
    const int64_t torn = form->features ? gather_features(form, a) : 0;
    usc_tensor kept, shown, shape = *a->x;
    if (form->features) shape.ndim = a->x->ndim == form->unbatched ? 1 : 2;
    usc_status st = usc_tensor_make(&kept, a->kept, USC_U8, 1, &a->n, err);
    if (st == USC_OK) st = usc_tensor_make(&shown, a->shown, USC_U8, 1, &a->n, err);
    if (st != USC_OK) return st;
    const usc_draw_mask mask = {.kept = &kept,
                                .shown = &shown,
                                .kept_again = &kept,
                                .shown_again = &shown,
                                .chance = 1 - form->p};
    usc_draws_begin(d, arena, a->n);
    if (d->u == NULL) return usc_no_memory("a dropout", err);
    usc_draws_shape(d, &shape);
    st = usc_draws_of_mask(d, &mask, stream, err);
    if (torn > 0 && d->outside.text[0] == '\0')
        (void)usc_clause_set(&d->outside, "%s features are dropped in part",
                             usc_count(torn).text);
    return st;
}

/* One answer; `f`: where what was kept is judged, or NULL. */
static usc_status draw_answer(const usc_draw_call *call, const usc_drop_form *form,
                              bool again, usc_arena *arena, usc_draws *d, usc_findings *f,
                              usc_error *err)
{
    usc_drop_answer a;
    const usc_draw_output *o = call->outputs, *last = &o[call->n_outputs - 1];
    const usc_tensor *x = usc_draw_input(call, err);
    if (x == NULL) return USC_E_ARG;
    usc_status st = read_answer(x, again ? o->again : o->first, arena, &a, err);
    if (st != USC_OK) return st;
    if (call->n_outputs > 1)
        st = take_mask(again ? last->again : last->first, arena, &a, err);
    else
        find_mask(form, &a);
    if (st == USC_OK && f != NULL) st = usc_judge_kept(form, &a, o->path, arena, f, err);
    if (st != USC_OK) return st;
    return draw_mask(form, &a, again ? USC_DRAW_AGAIN : USC_DRAW_FIRST, arena, d, err);
}

static bool was_asked_again(const usc_draw_call *call)
{
    for (int i = 0; i < call->n_outputs; i++)
        if (call->outputs[i].again == NULL) return false;
    return true;
}

usc_status usc_judge_dropout(const usc_draw_call *call, const usc_drop_form *form,
                             usc_arena *arena, usc_findings *f, usc_error *err)
{
    usc_draws d, other;
    const bool again = was_asked_again(call);
    usc_status st = draw_answer(call, form, false, arena, &d, f, err);
    if (st == USC_OK && again)
        st = draw_answer(call, form, true, arena, &other, NULL, err);
    if (st != USC_OK) return st;
    usc_tensor drawn = *call->outputs[call->n_outputs - 1].first;
    if (form->features) st = usc_tensor_make(&drawn, NULL, USC_U8, 1, &d.n, err);
    if (st != USC_OK) return st;
    return usc_draws_finding(f, call->outputs[call->n_outputs - 1].path, &drawn, &d,
                             again ? &other : NULL, err);
}

/* ---- rrelu ---- */

typedef struct slopes {
    double low, high, eps, tiny;
} slopes;

/* One element, and whether it may be. */
static bool put_slope(const slopes *s, usc_draws *d, uint64_t stream, int64_t i, double x,
                      double y)
{
    if (!(x < 0)) return y == x || (isnan(x) && isnan(y));
    if (!isfinite(x)) return true;
    const double slope = y / x, reach = s->eps * fabs(slope) + s->tiny / fabs(x);
    if (!(slope + reach >= s->low && slope - reach <= s->high)) return false;
    const double width = s->high - s->low;
    if (width > 0)
        usc_draws_put(d, stream, i, fmax((slope - reach - s->low) / width, 0),
                      fmin((slope + reach - s->low) / width, 1));
    return true;
}

static usc_status draw_slopes(const usc_draw_call *call, const slopes *s, bool again,
                              usc_arena *arena, usc_draws *d, usc_error *err)
{
    usc_drop_answer a;
    const usc_draw_output *o = call->outputs;
    const usc_tensor *x = usc_draw_input(call, err);
    if (x == NULL) return USC_E_ARG;
    const usc_status st = read_answer(x, again ? o->again : o->first, arena, &a, err);
    if (st != USC_OK) return st;
    usc_draws_begin(d, arena, a.n);
    if (d->u == NULL) return usc_no_memory("a dropout", err);
    usc_draws_shape(d, x);
    d->slack = 4 * s->eps;
    const uint64_t stream = again ? USC_DRAW_AGAIN : USC_DRAW_FIRST;
    for (int64_t i = 0; i < a.n; i++)
        if (!put_slope(s, d, stream, i, a.xs[i], a.ys[i]) && d->outside.text[0] == '\0')
            (void)usc_clause_set(&d->outside,
                                 "%.6g of %.6g at element %s, a slope it never draws",
                                 a.ys[i], a.xs[i], usc_count(i).text);
    if (call->n_outputs < 2 || again || d->outside.text[0] != '\0') return USC_OK;
    usc_drop_answer noise;
    const usc_status st_noise = read_answer(x, o[1].first, arena, &noise, err);
    for (int64_t i = 0; i < a.n && st_noise == USC_OK; i++)
        if (fabs(noise.ys[i] * a.xs[i] - a.ys[i]) > 4 * s->eps * fabs(a.ys[i]) + s->tiny)
            (void)usc_clause_set(&d->outside, "noise that does not belong to the result");
    return st_noise;
}

usc_status usc_judge_slopes(const usc_draw_call *call, double low, double high,
                            usc_arena *arena, usc_findings *f, usc_error *err)
{
    usc_draws d, other;
    const usc_draw_output *o = call->outputs;
    const usc_dtype_info *info = usc_dtype_info_of(o->first->dtype);
    const slopes s = {low, high, ldexp(1, 1 - info->sig_bits), ldexp(1, info->emin)};
    usc_status st = draw_slopes(call, &s, false, arena, &d, err);
    if (st == USC_OK && o->again != NULL)
        st = draw_slopes(call, &s, true, arena, &other, err);
    if (st == USC_OK)
        st = usc_draws_finding(f, o->path, o->first, &d, o->again != NULL ? &other : NULL,
                               err);
    for (int i = 1; i < call->n_outputs && st == USC_OK; i++)
        st = usc_findings_say(f, USC_VERDICT_PASS, o[i].path, "", err);
    return st;
}
