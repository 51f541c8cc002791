// SPDX-License-Identifier: Apache-2.0
// What a dropout kept, judged as any other operator with its mask given: a case asks, and
// the two formulas answer, in float64 and in float32. Neighbours: draw_drop.h.
#include "draw/draw_drop.h"

#include "case/findings.h"

#include <ulpscope/case.h>

#include <math.h>
#include <string.h>

/* alpha' of self-normalizing networks, lambda times alpha (Klambauer et al. 2017). */
#define SELU 1.7580993408473766
#define NEAR                                                                             \
    0x1p-20 /* of a step's size: float32 may round it to either side of a border */

enum { SEED = 0xd0 };

/* y = scale x + shift where kept, else rest. */
typedef struct affine {
    double scale, shift, rest;
} affine;

static affine affine_of(const usc_drop_form *form)
{
    const double p = form->p;
    if (!form->alpha) return (affine){p < 1 ? 1 / (1 - p) : 0, 0, 0};
    const double a = p < 1 ? 1 / sqrt((SELU * SELU * p + 1) * (1 - p)) : 0;
    return (affine){a, SELU * a * p, -SELU * a * (1 - p)};
}

double usc_drop_value(const usc_drop_form *form, double x, bool kept)
{
    const affine f = affine_of(form);
    return kept ? x * f.scale + f.shift : f.rest;
}

/* ---- the answers ---- */

typedef struct kept_values {
    const usc_drop_answer *a;
    affine f;
    usc_findings *findings;
    double largest;        /* |x| */
    double *r, *r_k, *x_k; /* truth, that of perturbed inputs, those */
    float *y, *y_k;
    usc_tensor first, second;
} kept_values;

/* Both formulas over some inputs; flushed: as a device does that knows no subnormals. */
static void compute(const kept_values *k, const double *x, double *r, float *y,
                    bool flushed)
{
    const float scale = (float)k->f.scale, shift = (float)k->f.shift;
    for (int64_t i = 0; i < k->a->n; i++) {
        const bool kept = k->a->kept[i] != 0;
        float narrow = (float)x[i];
        if (flushed && fabsf(narrow) < 0x1p-126F) narrow = 0;
        float low = narrow * scale + shift;
        if (!kept) low = (float)k->f.rest;
        if (flushed && fabsf(low) < 0x1p-126F) low = 0;
        y[i] = low;
        if (r != NULL) r[i] = kept ? x[i] * k->f.scale + k->f.shift : k->f.rest;
    }
}

static usc_status give_pair(kept_values *k, double *r, float *y, usc_given *out,
                            usc_error *err)
{
    const usc_tensor *like = k->a->y;
    usc_status st = usc_tensor_make(&k->first, r, USC_F64, like->ndim, like->sizes, err);
    if (st == USC_OK)
        st = usc_tensor_make(&k->second, y, USC_F32, like->ndim, like->sizes, err);
    *out = (usc_given){.form = USC_GIVEN_AS_ASKED, .a = &k->first, .b = &k->second};
    return st;
}

static usc_status answer(kept_values *k, const usc_want *want, usc_given *out,
                         usc_error *err)
{
    const usc_tensor *like = k->a->y;
    *out = (usc_given){.form = USC_GIVEN_NONE};
    if (want->kind == USC_WANT_REFERENCE) return give_pair(k, k->r, k->y, out, err);
    if (want->kind == USC_WANT_REPLAY) {
        const usc_perturbation how = {.seed = SEED, .replay = want->k};
        const usc_status st = usc_perturb(k->a->x, &how, k->x_k, err);
        if (st != USC_OK) return st;
        double *r = want->k == 0 ? k->r_k : k->r_k + k->a->n;
        float *y = want->k == 0 ? k->y_k : k->y_k + k->a->n;
        compute(k, k->x_k, r, y, false);
        return give_pair(k, r, y, out, err);
    }
    if (want->kind == USC_WANT_FLUSHED && want->k == 0) {
        compute(k, k->a->xs, NULL, k->y_k + k->a->n, true);
        *out = (usc_given){.form = USC_GIVEN_AS_ASKED, .a = &k->first};
        return usc_tensor_make(&k->first, k->y_k + k->a->n, USC_F32, like->ndim,
                               like->sizes, err);
    }
    if (want->kind == USC_WANT_FAN_IN)
        *out = (usc_given){.form = USC_GIVEN_AS_ASKED, .number = 1, .size = k->largest};
    if (want->kind == USC_WANT_FUNCTIONS || want->kind == USC_WANT_OVERFLOWS)
        *out = (usc_given){.form = USC_GIVEN_AS_ASKED};
    return USC_OK;
}

static usc_status ask(usc_case *c, kept_values *k, usc_error *err)
{
    for (;;) {
        usc_want want;
        usc_given given;
        usc_status st = usc_case_next(c, &want, err);
        if (st != USC_OK || want.kind == USC_WANT_NOTHING) return st;
        st = answer(k, &want, &given, err);
        if (st == USC_OK) st = usc_case_give(c, &given, err);
        if (st != USC_OK) return st;
    }
}

static usc_status judge_values(kept_values *k, const char *path, const usc_tensor *y,
                               usc_error *err)
{
    usc_case *c = NULL;
    const usc_case_options options = {.findings = k->findings};
    const usc_case_output output = {.path = path, .device = y, .single = true};
    usc_status st = usc_case_open(&options, &c, err);
    if (st == USC_OK) st = usc_case_begin(c, &output, err);
    if (st == USC_OK) st = ask(c, k, err);
    usc_case_close(c);
    return st;
}

/* ---- what else is right ---- */

static double rounded(usc_dtype dtype, double x)
{
    unsigned char raw[8];
    usc_dtype_narrow(dtype, &x, raw, 1);
    usc_dtype_widen(dtype, raw, &x, 1);
    return x;
}

/* Whether float32 may round to `y` what is `real`. */
static bool rounds_to(usc_dtype t, double y, double real, double size)
{
    const double near = NEAR * size;
    return y == rounded(t, real) || y == rounded(t, real - near) ||
           y == rounded(t, real + near);
}

/* What torch's own kernel computes on the CPU before the last rounding: every step rounded
 * to the dtype. `side`: to which border the product is taken, where it lies next to one. */
static double native_value(const usc_drop_form *form, usc_dtype t, double x, double kept,
                           int side)
{
    if (!form->alpha) return x * rounded(t, kept / (1 - form->p));
    const affine f = affine_of(form);
    const double shift = rounded(t, rounded(t, (kept - 1) * SELU * f.scale) + f.shift);
    const double product = x * rounded(t, kept * f.scale);
    return rounded(t, product + side * NEAR * fabs(product)) + shift;
}

static bool is_native(const usc_drop_form *form, usc_dtype t, double x, double y,
                      double kept)
{
    for (int side = -1; side <= 1; side++) {
        const double real = native_value(form, t, x, kept, side);
        if (rounds_to(t, y, real, fabs(real))) return true;
    }
    return false;
}

/* Where what is kept and what is dropped lie close, which it is was told by the truth, to
 * which the other may lie closer than what torch gives. */
static bool equals_native(const usc_drop_form *form, const usc_drop_answer *a)
{
    const usc_dtype t = a->y->dtype;
    for (int64_t i = 0; i < a->n; i++) {
        const double kept = a->kept[i] != 0 ? 1 : 0, x = a->xs[i], y = a->ys[i];
        if (!is_native(form, t, x, y, kept) &&
            (a->shown[i] != 0 || !is_native(form, t, x, y, 1 - kept)))
            return false;
    }
    return true;
}

/* Inf or NaN times a mask of zeros is NaN: what was dropped may be that. */
static const usc_tensor *without_void(const usc_drop_form *form, const usc_drop_answer *a,
                                      usc_arena *arena, usc_tensor *copy, usc_error *err)
{
    const usc_dtype t = a->y->dtype;
    const size_t size = usc_dtype_info_of(t)->size;
    unsigned char *raw = NULL;
    for (int64_t i = 0; i < a->n; i++) {
        if (a->kept[i] != 0 || isfinite(a->xs[i]) || !isnan(a->ys[i])) continue;
        if (raw == NULL) {
            raw = usc_arena_take(arena, (size_t)a->n * size);
            if (raw == NULL) return NULL;
            usc_dtype_narrow(t, a->ys, raw, (size_t)a->n);
        }
        const double value = usc_drop_value(form, 0, false);
        usc_dtype_narrow(t, &value, raw + (size_t)i * size, 1);
    }
    if (raw == NULL) return a->y;
    if (usc_tensor_make(copy, raw, t, a->y->ndim, a->y->sizes, err) != USC_OK)
        return NULL;
    return copy;
}

static usc_status take_over(const kept_values *k, const usc_drop_form *form,
                            const char *path, usc_findings *f, usc_error *err)
{
    const usc_finding *found = usc_findings_at(k->findings, 0);
    const usc_dtype t = k->a->y->dtype;
    const bool low = t == USC_BF16 || t == USC_F16;
    if (!low || !usc_verdict_flagged(found->verdict) || !equals_native(form, k->a))
        return usc_findings_add(f, found, err);
    const int i = usc_findings_count(f);
    usc_finding pass = {.path = path,
                        .verdict = USC_VERDICT_PASS,
                        .reason = "",
                        .bits = 24,
                        .yardstick_bits = 24,
                        .n = found->n,
                        .ndim = found->ndim};
    memcpy(pass.sizes, found->sizes, sizeof pass.sizes);
    const usc_status st = usc_findings_add(f, &pass, err);
    return st == USC_OK ? usc_findings_note(
                              f, i, "the scale is rounded to the dtype of the input", err)
                        : st;
}

usc_status usc_judge_kept(const usc_drop_form *form, const usc_drop_answer *a,
                          const char *path, usc_arena *arena, usc_findings *f,
                          usc_error *err)
{
    const size_t n = (size_t)a->n;
    usc_tensor copy;
    kept_values k = {.a = a, .f = affine_of(form)};
    const usc_tensor *y = without_void(form, a, arena, &copy, err);
    k.r = usc_arena_take(arena, n * sizeof *k.r);
    k.r_k = usc_arena_take(arena, 2 * n * sizeof *k.r_k);
    k.x_k = usc_arena_take(arena, n * sizeof *k.x_k);
    k.y = usc_arena_take(arena, n * sizeof *k.y);
    k.y_k = usc_arena_take(arena, 2 * n * sizeof *k.y_k);
    if (y == NULL || arena->failed)
        return usc_error_set(err, USC_E_NOMEM, -1, "a dropout: no memory");
    compute(&k, a->xs, k.r, k.y, false);
    for (int64_t i = 0; i < a->n; i++)
        if (isfinite(a->xs[i])) k.largest = fmax(k.largest, fabs(a->xs[i]));
    usc_status st = usc_findings_open(&f->arena.alloc, &k.findings, err);
    if (st == USC_OK) st = judge_values(&k, path, y, err);
    if (st == USC_OK) st = take_over(&k, form, path, f, err);
    usc_findings_close(k.findings);
    return st;
}
