// SPDX-License-Identifier: Apache-2.0
// ascend-v1: cosine, then the largest error, then shares of relative errors, each able to
// end the matter. docs/reference/metrics.md, 3. Neighbour: standard_ascend_ratio.c.
#include "standard/standard_trial.h"

#include <float.h>
#include <math.h>

usc_ascend_error usc_ascend_error_of(double device, double raised, double eps, bool wide)
{
    if (wide) {
        const double error = fabs(device - raised), divisor = fabs(raised) + eps;
        return (usc_ascend_error){error, error / divisor, divisor};
    }
    const float error = fabsf((float)device - (float)raised);
    const float divisor = fabsf((float)raised) + (float)eps, relative = error / divisor;
    return (usc_ascend_error){(double)error, (double)relative, (double)divisor};
}

double usc_ascend_eps(usc_dtype device, usc_dtype raised)
{
    if (device == USC_BF16) return 0x1p-8;
    return raised == USC_F64 ? 0x1p-52 : raised == USC_F16 ? 0x1p-10 : 0x1p-23;
}

enum { HUNDREDTH, THOUSANDTH, TEN_THOUSANDTH, N_SHARES };

static const double limits[N_SHARES] = {1e-2, 1e-3, 1e-4};

/* What one pass finds. */
typedef struct shares {
    double max;             /* largest absolute error; NaN where one is */
    double share[N_SHARES]; /* of elements whose relative error is below the limit */
    bool wide;
} shares;

static shares measure(const usc_trial *c, usc_trial_reader *d, usc_trial_reader *b)
{
    shares out = {.wide = d->dtype == USC_F64 || b->dtype == USC_F64};
    const double eps = usc_ascend_eps(c->dtype, b->dtype);
    int64_t n[N_SHARES] = {0};
    for (int64_t at = 0; at < c->n; at += USC_JUDGE_BLOCK) {
        const size_t count = usc_trial_count(c, at);
        const double *x = usc_trial_load(d, at, count);
        const double *y = usc_trial_load(b, at, count);
        for (size_t i = 0; i < count; i++) {
            const usc_ascend_error e = usc_ascend_error_of(x[i], y[i], eps, out.wide);
            if (isnan(e.absolute) || e.absolute > out.max) out.max = e.absolute;
            for (int k = 0; k < N_SHARES; k++)
                n[k] += e.relative < (out.wide ? limits[k] : (double)(float)limits[k]);
        }
    }
    for (int k = 0; k < N_SHARES; k++)
        out.share[k] = (double)n[k] / (double)c->n;
    return out;
}

/* Whether the cosine lets the output go on; else the opinion is formed. */
static bool cosine_holds(usc_trial *c, usc_trial_reader *d, usc_trial_reader *b)
{
    if (c->n == 1) return true;
    const double max_d = usc_trial_largest(c, d), max_b = usc_trial_largest(c, b);
    const bool zero_d = max_d <= DBL_EPSILON, zero_b = max_b <= DBL_EPSILON;
    if (zero_d && zero_b) return true;
    if (zero_d || zero_b) {
        usc_trial_decide(c, false, NULL, "all of the %s is zero",
                         zero_d ? "device's output" : "reference");
        return false;
    }
    const double cosine = usc_trial_cosine(c, d, b, max_d, max_b);
    usc_trial_metric(c, "cosine", cosine);
    if (isnan(cosine) || cosine > 0.99) return true;
    usc_trial_decide(c, false, NULL, "cosine %.6g is not above 0.99", cosine);
    return false;
}

/* Whether a share of elements is large enough. */
static bool enough(const shares *s, int k)
{
    return s->share[k] > 1 - limits[k];
}

static void decide(usc_trial *c, bool pass, bool warn, const shares *s, int k)
{
    const char *const words[N_SHARES] = {"1 %", "0.1 %", "0.01 %"};
    usc_trial_decide(c, pass, warn ? "warning" : NULL,
                     "%.6g of the elements are within %s", s->share[k], words[k]);
}

/* Which dtypes can be compared at all. */
static bool known(usc_dtype dtype)
{
    return dtype == USC_BOOL || dtype == USC_U8 || dtype == USC_I8 || dtype == USC_I32 ||
           dtype == USC_I64;
}

void usc_rule_ascend_v1(usc_trial *c)
{
    usc_trial_reader d, b;
    if (!c->is_float) {
        if (known(c->dtype))
            usc_trial_integers(c);
        else
            usc_trial_decide(c, false, NULL, "%s outputs are not compared",
                             usc_dtype_info_of(c->dtype)->name);
        return;
    }
    if (usc_trial_no_rule(c)) return;
    if (!usc_trial_open(c, USC_ROLE_DEVICE, &d) ||
        !usc_trial_open(c, USC_ROLE_RAISED, &b))
        return;
    const bool holds = cosine_holds(c, &d, &b);
    const shares s = measure(c, &d, &b);
    usc_trial_metric(c, "max_abs", s.max);
    usc_trial_metric(c, "share_1e-2", s.share[HUNDREDTH]);
    usc_trial_metric(c, "share_1e-3", s.share[THOUSANDTH]);
    usc_trial_metric(c, "share_1e-4", s.share[TEN_THOUSANDTH]);
    if (!holds) return;
    if (s.max < (s.wide ? 0.001 : (double)0.001f))
        usc_trial_decide(c, true, NULL, "largest error %.3g is below 0.001", s.max);
    else if (c->is_low && !enough(&s, HUNDREDTH))
        decide(c, false, false, &s, HUNDREDTH);
    else if (!enough(&s, THOUSANDTH))
        decide(c, false, c->is_low, &s, THOUSANDTH);
    else if (!c->is_low && !enough(&s, TEN_THOUSANDTH))
        decide(c, false, true, &s, TEN_THOUSANDTH);
    else
        decide(c, true, false, &s, c->is_low ? THOUSANDTH : TEN_THOUSANDTH);
}
