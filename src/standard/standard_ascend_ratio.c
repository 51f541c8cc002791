// SPDX-License-Identifier: Apache-2.0
// The ascend standards that know small values, ulps and a second device: one pass of
// counts over an answer and the raised run, then a rule each.
// docs/reference/metrics.md, 3.
#include "standard/standard_trial.h"

#include <float.h>
#include <math.h>

/* Thresholds of a dtype, as msprobe has them: 1e-16 is meant there as 2^-16. */
typedef struct bounds {
    double small;       /* up to here a value is small */
    double small_atol;  /* ascend-absolute: allowed error of small values */
    double bench_atol;  /* ascend-benchmark: the same */
    double rtol;        /* ascend-absolute */
    double least_error; /* a benchmark's error counts as no less */
    double largest;     /* infinities are clipped to this */
    int min_exponent, fraction;
    double many_ulps;
} bounds;

static const bounds *bounds_of(usc_dtype dtype)
{
    static const bounds f16 = {0x1p-10, 0x1p-16, 1e-16, 0x1p-10, 0x1p-11,
                               65504,   -14,     10,    1};
    static const bounds bf16 = {0x1p-10,    1e-16, 1e-16, 0x1p-8, 0x1p-8,
                                0x1.fep127, -126,  7,     1};
    static const bounds f32 = {0x1p-20,         0x1p-30, 0x1p-30, 0x1p-20, 0x1p-14,
                               (double)FLT_MAX, -126,    23,      32};
    return dtype == USC_F16 ? &f16 : dtype == USC_BF16 ? &bf16 : &f32;
}

/* What one pass finds of an answer held against the raised run. */
typedef struct counts {
    int64_t n_small, n_small_bench,
        n_small_abs;          /* small values, and those that are off */
    int64_t n_odd, n_odd_bad; /* not finite on one side */
    int64_t n_normal, n_normal_bad;
    int64_t n_above, n_below, n_many;
    double max_rel, max_ulp;
    usc_trial_sum rel, square, ulp;
} counts;

/* One pass and what it needs. */
typedef struct pass {
    const bounds *b;
    usc_dtype carrier; /* what numpy holds the answer in: bfloat16 travels as float32 */
    double eps;
    bool wide;          /* errors are computed in float64 */
    bool wide_exponent; /* so are exponents: the raised run is float64 */
    bool wide_ulps;     /* so are ulps: the answer is float32 */
    bool counts_ulps;   /* they cost more than all the rest */
} pass;

static double narrowed(double x, bool wide)
{
    return wide ? x : (double)(float)x;
}

static double clipped(double x, double largest)
{
    return x > largest ? largest : x < -largest ? -largest : x;
}

/* Whether a pair that is not finite agrees: both NaN, or close once clipped. */
static bool odd_agrees(const pass *p, double x, double same, double divisor)
{
    if (isnan(x) && isnan(same)) return true;
    double off = fabs(clipped(x, p->b->largest) - clipped(same, p->b->largest));
    if (p->carrier == USC_F16)
        off = off > 65519 ? (double)INFINITY : off;
    else
        off = (double)(float)off;
    return narrowed(off / divisor, p->wide) <= p->b->rtol;
}

static double ulps_off(const pass *p, double x, double y)
{
    const double size = fabs(y);
    double log = size == 0 ? 0 : log2(size);
    if (!p->wide_exponent) log = (double)(float)log;
    double exponent = size == 0 ? 0 : floor(log);
    if (exponent < p->b->min_exponent) exponent = p->b->min_exponent;
    double scale = exp2(-exponent + p->b->fraction);
    scale = narrowed(scale, p->wide_exponent && p->wide_ulps);
    const double off = narrowed(x - y, p->wide_ulps);
    return fabs(narrowed(off * scale, p->wide_ulps));
}

static void count_finite(const pass *p, double y, const usc_ascend_error *e, size_t lane,
                         counts *out)
{
    if (fabs(y) <= p->b->small) {
        out->n_small++;
        out->n_small_bench += e->absolute > narrowed(p->b->bench_atol, p->wide);
        out->n_small_abs += e->absolute > narrowed(p->b->small_atol, p->wide);
        return;
    }
    out->n_normal++;
    out->n_normal_bad += e->relative > p->b->rtol;
    out->square.lane[lane] += narrowed(e->absolute * e->absolute, p->wide);
    out->rel.lane[lane] += e->relative;
    if (e->relative > out->max_rel) out->max_rel = e->relative;
}

static void count_block(const pass *p, const double *x, const double *y, size_t count,
                        counts *out)
{
    double same[USC_JUDGE_BLOCK];
    _Alignas(8) unsigned char raw[USC_JUDGE_BLOCK * 4];
    usc_dtype_narrow(p->carrier, y, raw, count);
    usc_kernels_widen(p->carrier, raw, same, count);
    for (size_t i = 0; i < count; i++) {
        const usc_ascend_error e = usc_ascend_error_of(x[i], y[i], p->eps, p->wide);
        const size_t lane = i % USC_JUDGE_LANES;
        if (isfinite(x[i]) && isfinite(same[i])) {
            count_finite(p, y[i], &e, lane, out);
        } else {
            out->n_odd++;
            out->n_odd_bad += !odd_agrees(p, x[i], same[i], e.divisor);
        }
        out->n_above += x[i] > same[i];
        out->n_below += x[i] < same[i];
        if (!p->counts_ulps) continue;
        const double ulps = ulps_off(p, x[i], y[i]);
        out->n_many += ulps > p->b->many_ulps;
        out->ulp.lane[lane] += ulps;
        if (isnan(ulps) || ulps > out->max_ulp) out->max_ulp = ulps;
    }
}

/* Counts for an answer: the device's, or a second device's. False where the opinion is
 * formed already. */
static bool measure(usc_trial *c, usc_trial_role answer, bool ulps, counts *out)
{
    usc_trial_reader a, r;
    *out = (counts){0};
    if (!usc_trial_open(c, answer, &a) || !usc_trial_open(c, USC_ROLE_RAISED, &r))
        return false;
    const pass p = {
        .b = bounds_of(c->dtype),
        .carrier = c->dtype == USC_F16 ? USC_F16 : USC_F32,
        .eps = usc_ascend_eps(c->dtype, r.dtype),
        .wide = c->dtype == USC_F32 && r.dtype == USC_F64,
        .wide_exponent = r.dtype == USC_F64,
        .wide_ulps = c->dtype == USC_F32,
        .counts_ulps = ulps,
    };
    for (int64_t at = 0; at < c->n; at += USC_JUDGE_BLOCK) {
        const size_t count = usc_trial_count(c, at);
        count_block(&p, usc_trial_load(&a, at, count), usc_trial_load(&r, at, count),
                    count, out);
    }
    return true;
}

static double share(int64_t n, int64_t of)
{
    return of == 0 ? 0 : (double)n / (double)of;
}

/* Integers must be equal; float64 and float8 are left out. True where that settles it. */
static bool settled(usc_trial *c)
{
    if (usc_trial_no_rule(c)) return true;
    if (c->is_float && c->dtype != USC_F64) return false;
    if (c->is_float)
        usc_trial_unjudged(c, "float64 outputs are skipped");
    else
        usc_trial_integers(c);
    return true;
}

void usc_rule_ascend_absolute(usc_trial *c)
{
    counts f;
    if (settled(c) || !measure(c, USC_ROLE_DEVICE, false, &f)) return;
    usc_trial_metric(c, "inf_nan_share", share(f.n_odd_bad, f.n_odd));
    usc_trial_metric(c, "rel_share", share(f.n_normal_bad, f.n_normal));
    usc_trial_metric(c, "abs_share", share(f.n_small_abs, f.n_small));
    usc_trial_decide(c, f.n_odd_bad + f.n_normal_bad + f.n_small_abs == 0, NULL,
                     "beyond bounds: %lld of %lld values, %lld of %lld small ones, "
                     "%lld of %lld not finite",
                     (long long)f.n_normal_bad, (long long)f.n_normal,
                     (long long)f.n_small_abs, (long long)f.n_small,
                     (long long)f.n_odd_bad, (long long)f.n_odd);
}

/* ---- against a second device ---- */

/* A number of the device over that of the second device. */
typedef struct ratio {
    double value;
    bool consistent; /* false: only one is Inf or NaN, or they differ in kind */
} ratio;

static ratio ratio_of(double device, double second, double least)
{
    if (isinf(device) || isinf(second)) return (ratio){(double)NAN, device == second};
    if (isnan(device) || isnan(second))
        return (ratio){(double)NAN, isnan(device) && isnan(second)};
    return (ratio){fabs(device) / fmax(fabs(second), least), true};
}

/* Infinite or NaN on both sides counts as agreement. */
static bool within(ratio r, double limit)
{
    return r.consistent && !(r.value > limit);
}

void usc_rule_ascend_ulp(usc_trial *c)
{
    counts f, second;
    if (settled(c) || !measure(c, USC_ROLE_DEVICE, true, &f) ||
        !measure(c, USC_ROLE_SECOND, true, &second))
        return;
    const double n = (double)c->n, least = bounds_of(c->dtype)->least_error;
    const double mean = usc_trial_total(&f.ulp) / n, many = (double)f.n_many / n;
    const ratio means = ratio_of(mean, usc_trial_total(&second.ulp) / n, least);
    const ratio manies = ratio_of(many, (double)second.n_many / n, least);
    const bool few = c->dtype == USC_F32 ? mean < 64 || many < 0.05 : many < 0.001;
    usc_trial_metric(c, "max_ulp", f.max_ulp);
    usc_trial_metric(c, "mean_ulp", mean);
    usc_trial_metric(c, "ulp_share", many);
    usc_trial_metric(c, "ulp_share_ratio", manies.value);
    usc_trial_decide(c, means.consistent && (few || manies.value < 1), NULL,
                     "mean %.4g ulp, %.4g of the elements beyond %g ulp", mean, many,
                     bounds_of(c->dtype)->many_ulps);
}

/* Numbers that are compared, in the order of `names`. */
enum { SMALL, RMSE, MAX_REL, MEAN_REL, BALANCE, N_NUMBERS };

static void numbers_of(const usc_trial *c, const counts *f, double out[N_NUMBERS])
{
    const double n = (double)c->n, masked = n - (double)f->n_normal;
    const double mean = usc_trial_total(&f->square) / n;
    out[SMALL] = share(f->n_small_bench, f->n_small);
    out[RMSE] = sqrt(mean * (n / (n - masked + 0.0001) + 0.0001));
    out[MAX_REL] = f->max_rel;
    out[MEAN_REL] = f->n_normal == 0 ? 0 : usc_trial_total(&f->rel) / (double)f->n_normal;
    out[BALANCE] = fabs((double)(f->n_above - f->n_below)) / n;
}

/* Limits of the ratios by the operator's level. */
static const double *limits_of(const usc_trial *c)
{
    static const char *const level_1[] = {"embedding",
                                          "npu_fusion_attention_grad",
                                          "npu_fusion_attention",
                                          "scatter_",
                                          "scatter_add_",
                                          NULL};
    static const char *const level_2[] = {"addmm",
                                          "npu_cross_entropy_loss",
                                          "npu_cross_entropy_loss_backward",
                                          "GELU",
                                          "layer_norm",
                                          "matmul",
                                          "mm",
                                          "index",
                                          "one_hot",
                                          "sum",
                                          "npu_rms_norm",
                                          "npu_rms_norm_backward",
                                          "nonzero",
                                          NULL};
    static const double limits[3][BALANCE] = {
        {2, 2, 10, 2}, {2, 1.5, 5, 1.5}, {2, 1.2, 2, 1.2}};
    if (usc_trial_op_is(c, level_2)) return limits[2];
    return limits[usc_trial_op_is(c, level_1) ? 1 : 0];
}

void usc_rule_ascend_benchmark(usc_trial *c)
{
    static const char *const names[N_NUMBERS] = {
        "small_ratio", "rmse_ratio", "max_rel_ratio", "mean_rel_ratio", "balance_ratio"};
    counts f, second;
    if (settled(c) || !measure(c, USC_ROLE_DEVICE, false, &f) ||
        !measure(c, USC_ROLE_SECOND, false, &second))
        return;
    const double *limits = limits_of(c);
    double of_f[N_NUMBERS], of_second[N_NUMBERS];
    numbers_of(c, &f, of_f);
    numbers_of(c, &second, of_second);
    int failed = -1;
    ratio r[N_NUMBERS];
    for (int i = 0; i < N_NUMBERS; i++) {
        r[i] = ratio_of(of_f[i], of_second[i], bounds_of(c->dtype)->least_error);
        usc_trial_metric(c, names[i], r[i].value);
        if (i != BALANCE && failed < 0 && !within(r[i], limits[i])) failed = i;
    }
    usc_trial_metric(c, "rmse", of_f[RMSE]);
    usc_trial_metric(c, "max_rel", of_f[MAX_REL]);
    usc_trial_metric(c, "mean_rel", of_f[MEAN_REL]);
    if (failed < 0)
        usc_trial_decide(c, true, NULL, "no error is much above the second device's");
    else
        usc_trial_decide(c, false, NULL, "%s %.4g, the limit is %g", names[failed],
                         r[failed].value, limits[failed]);
}
