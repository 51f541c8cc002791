// SPDX-License-Identifier: Apache-2.0
// Standards that ask whether elements are close: |a - b| <= atol + rtol |b|, computed as
// torch computes it, in the dtype of the tensors. docs/reference/metrics.md, 3.
#include "standard/standard_trial.h"

#include <math.h>
#include <string.h>

typedef struct tolerance {
    double atol, rtol;
} tolerance;

/* How two outputs agree. max_abs and max_rel are over finite elements that do not. */
typedef struct closeness {
    int64_t n_apart;
    double max_abs, max_rel;
} closeness;

/* One block: what may be lost and what is, each operation rounded as torch rounds it. */
typedef struct block {
    double error[USC_JUDGE_BLOCK], allowed[USC_JUDGE_BLOCK];
} block;

static void round_all(usc_dtype dtype, double *x, size_t count)
{
    _Alignas(8) unsigned char room[USC_JUDGE_BLOCK * 2];
    usc_dtype_narrow(dtype, x, room, count);
    usc_kernels_widen(dtype, room, x, count);
}

static void fill_double(block *out, const double *a, const double *b, size_t count,
                        tolerance t)
{
    for (size_t i = 0; i < count; i++) {
        out->error[i] = fabs(a[i] - b[i]);
        out->allowed[i] = t.atol + fabs(t.rtol * b[i]);
    }
}

static void fill_float(block *out, const double *a, const double *b, size_t count,
                       tolerance t)
{
    const float rtol = (float)t.rtol;
    for (size_t i = 0; i < count; i++) {
        const float error = (float)a[i] - (float)b[i], part = rtol * (float)b[i];
        out->error[i] = (double)fabsf(error);
        out->allowed[i] = (double)fabsf(part);
    }
}

/* float16 and bfloat16 are computed in float32 and rounded after each step; of the two
 * tolerances torch rounds atol alone to the dtype. */
static void fill(const usc_trial *c, block *out, const double *a, const double *b,
                 size_t count, tolerance t)
{
    if (c->dtype == USC_F64) {
        fill_double(out, a, b, count, t);
        return;
    }
    fill_float(out, a, b, count, t);
    double term = (double)(float)t.atol;
    if (c->is_low) {
        round_all(c->dtype, out->allowed, count);
        round_all(c->dtype, &term, 1);
    }
    for (size_t i = 0; i < count; i++) {
        const float sum = (float)term + (float)out->allowed[i];
        out->allowed[i] = (double)sum;
    }
    if (!c->is_low) return;
    round_all(c->dtype, out->allowed, count);
    round_all(c->dtype, out->error, count);
}

static void note_apart(closeness *out, double a, double b)
{
    out->n_apart++;
    if (!isfinite(a) || !isfinite(b)) return;
    const double error = fabs(a - b);
    if (error > out->max_abs) out->max_abs = error;
    if (error / fabs(b) > out->max_rel) out->max_rel = error / fabs(b);
}

/* What is held against what. */
typedef struct pair {
    usc_trial_reader d, e;
    bool swapped; /* the tolerance grows with the device's values */
} pair;

/* Doubles do not tell large 64-bit integers apart: their bytes do. */
static void mark_equal(const usc_trial *c, pair *p, int64_t at, bool *equal)
{
    const size_t count = usc_trial_count(c, at), size = p->d.walk.size;
    if (!c->is_float && p->e.walk.dtype == c->dtype) {
        const char *x = usc_walk_raw(&p->d.walk, at, count, &p->d.room);
        const char *y = usc_walk_raw(&p->e.walk, at, count, &p->e.room);
        for (size_t i = 0; i < count; i++)
            equal[i] = memcmp(x + i * size, y + i * size, size) == 0;
        return;
    }
    const double *x = usc_trial_load(&p->d, at, count);
    const double *y = usc_trial_load(&p->e, at, count);
    for (size_t i = 0; i < count; i++)
        equal[i] = x[i] == y[i];
}

static void count_apart(const usc_trial *c, pair *p, int64_t at, tolerance t,
                        closeness *out)
{
    block work;
    bool equal[USC_JUDGE_BLOCK];
    mark_equal(c, p, at, equal);
    const size_t count = usc_trial_count(c, at);
    const double *x = usc_trial_load(&p->d, at, count);
    const double *y = usc_trial_load(&p->e, at, count);
    const double *a = p->swapped ? y : x, *b = p->swapped ? x : y;
    const bool tolerant = t.atol != 0 || t.rtol != 0;
    if (tolerant) fill(c, &work, a, b, count, t);
    for (size_t i = 0; i < count; i++) {
        if (equal[i]) continue;
        if (tolerant && isfinite(work.error[i]) && work.error[i] <= work.allowed[i])
            continue;
        note_apart(out, a[i], b[i]);
    }
}

/* Holds the device to `role`; `swapped`: the tolerance grows with the device's values.
 * False where the opinion is formed already. */
static bool compare(usc_trial *c, usc_trial_role role, tolerance t, bool swapped,
                    closeness *out)
{
    pair p;
    p.swapped = swapped;
    *out = (closeness){0};
    if (!usc_trial_open(c, USC_ROLE_DEVICE, &p.d) || !usc_trial_open(c, role, &p.e))
        return false;
    if (role == USC_ROLE_TRUE) {
        p.e.rounds = p.e.dtype != c->dtype;
        p.e.dtype = c->dtype;
    }
    for (int64_t at = 0; at < c->n; at += USC_JUDGE_BLOCK)
        count_apart(c, &p, at, t, out);
    return true;
}

static void put_metrics(usc_trial *c, const closeness *found, tolerance t)
{
    usc_trial_metric(c, "mismatched", (double)found->n_apart);
    usc_trial_metric(c, "max_abs", found->max_abs);
    usc_trial_metric(c, "max_rel", found->max_rel);
    usc_trial_metric(c, "atol", t.atol);
    usc_trial_metric(c, "rtol", t.rtol);
}

static void close_rule(usc_trial *c, tolerance t, bool swapped)
{
    closeness found;
    if (!compare(c, USC_ROLE_EXPECTED, t, swapped, &found)) return;
    put_metrics(c, &found, t);
    usc_trial_decide(c, found.n_apart == 0, NULL,
                     "%lld of %lld elements beyond atol %g and rtol %g",
                     (long long)found.n_apart, (long long)c->n, t.atol, t.rtol);
}

void usc_rule_torch_close(usc_trial *c)
{
    static const tolerance by_dtype[USC_N_DTYPES] = {
        [USC_F64] = {1e-7, 1e-7},
        [USC_F32] = {1e-5, 1.3e-6},
        [USC_F16] = {1e-5, 1e-3},
        [USC_BF16] = {1e-5, 1.6e-2},
    };
    close_rule(c, by_dtype[c->dtype], false);
}

void usc_rule_allclose(usc_trial *c)
{
    const double *p = c->standard->parameters;
    if (usc_trial_no_rule(c)) return;
    close_rule(c, (tolerance){p[0], p[1]}, false);
}

/* KernelBench calls allclose(reference, device). */
void usc_rule_kernelbench(usc_trial *c)
{
    const double tol = c->is_low ? 1e-2 : 1e-4;
    if (usc_trial_no_rule(c)) return;
    close_rule(c, (tolerance){tol, tol}, true);
}

/* ---- inductor-same ---- */

/* Root mean square distances to the float64 reference, and where NaN are. */
typedef struct distances {
    double device, native;
    bool nan_reference, nan_device, nan_native;
} distances;

static bool measure(usc_trial *c, distances *out)
{
    usc_trial_reader d, r, e;
    usc_trial_sum of_d = {0}, of_e = {0};
    *out = (distances){0};
    if (!usc_trial_open(c, USC_ROLE_DEVICE, &d) ||
        !usc_trial_open(c, USC_ROLE_TRUE, &r) ||
        !usc_trial_open(c, USC_ROLE_EXPECTED, &e))
        return false;
    for (int64_t at = 0; at < c->n; at += USC_JUDGE_BLOCK) {
        const size_t count = usc_trial_count(c, at);
        const double *x = usc_trial_load(&d, at, count);
        const double *y = usc_trial_load(&r, at, count);
        const double *z = usc_trial_load(&e, at, count);
        for (size_t i = 0; i < count; i++) {
            of_d.lane[i % USC_JUDGE_LANES] += (y[i] - x[i]) * (y[i] - x[i]);
            of_e.lane[i % USC_JUDGE_LANES] += (y[i] - z[i]) * (y[i] - z[i]);
            out->nan_reference |= isnan(y[i]);
            out->nan_device |= isnan(x[i]);
            out->nan_native |= isnan(z[i]);
        }
    }
    out->device = sqrt(usc_trial_total(&of_d) / (double)c->n);
    out->native = sqrt(usc_trial_total(&of_e) / (double)c->n);
    return true;
}

static double multiplier(const usc_trial *c, double tol)
{
    const usc_tensor *t = c->in->device;
    const bool one_by_one = t->ndim == 4 && t->sizes[2] == 1 && t->sizes[3] == 1;
    return c->is_low || c->n < 1000 || one_by_one || tol >= 2e-2 ? 3 : 2;
}

/* The device may be right where the CPU in the same dtype is NaN. */
static bool better_than_native(usc_trial *c, const distances *found)
{
    closeness loose;
    const tolerance t = {4e-2, 4e-2};
    if (found->nan_reference || found->nan_device || !found->nan_native) return false;
    return compare(c, USC_ROLE_TRUE, t, true, &loose) && loose.n_apart == 0;
}

void usc_rule_inductor(usc_trial *c)
{
    const double tol = c->standard->parameters[0];
    const usc_tensor *reference = c->in->of[USC_OPERAND_REFERENCE];
    closeness found;
    if (usc_trial_no_rule(c)) return;
    if (!compare(c, USC_ROLE_EXPECTED, (tolerance){tol, tol}, true, &found)) return;
    usc_trial_metric(c, "mismatched", (double)found.n_apart);
    if (found.n_apart == 0) {
        usc_trial_decide(c, true, NULL, "all elements are within %g", tol);
        return;
    }
    distances rms;
    if (reference == NULL || reference->dtype != USC_F64) {
        usc_trial_decide(c, false, NULL, "%lld of %lld elements beyond %g",
                         (long long)found.n_apart, (long long)c->n, tol);
        return;
    }
    if (!measure(c, &rms)) return;
    const double times = multiplier(c, tol), limit = times * rms.native + tol / 10;
    usc_trial_metric(c, "rmse", rms.device);
    usc_trial_metric(c, "rmse_native", rms.native);
    usc_trial_metric(c, "multiplier", times);
    const bool better = better_than_native(c, &rms);
    usc_trial_decide(c, better || rms.device <= limit, NULL,
                     better ? "RMSE %.3g (limit %.3g): right where the CPU gives NaN"
                            : "RMSE %.3g to float64, the limit is %.3g",
                     rms.device, limit);
}
