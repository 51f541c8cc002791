// SPDX-License-Identifier: Apache-2.0
// Standards with one number for the whole tensor: cosine, normalised mean squared error,
// and errors distributed like those of the CPU in the same dtype.
// docs/reference/metrics.md, 3.
#include "standard/standard_trial.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- cosine ---- */

double usc_trial_largest(const usc_trial *c, usc_trial_reader *r)
{
    double max = 0;
    for (int64_t at = 0; at < c->n; at += USC_JUDGE_BLOCK) {
        const size_t count = usc_trial_count(c, at);
        const double *x = usc_trial_load(r, at, count);
        for (size_t i = 0; i < count; i++) {
            if (isnan(x[i])) return x[i];
            if (fabs(x[i]) > max) max = fabs(x[i]);
        }
    }
    return max;
}

double usc_trial_cosine(const usc_trial *c, usc_trial_reader *a, usc_trial_reader *b,
                        double max_a, double max_b)
{
    usc_trial_sum aa = {0}, ab = {0}, bb = {0};
    for (int64_t at = 0; at < c->n; at += USC_JUDGE_BLOCK) {
        const size_t count = usc_trial_count(c, at);
        const double *x = usc_trial_load(a, at, count);
        const double *y = usc_trial_load(b, at, count);
        for (size_t i = 0; i < count; i++) {
            const double p = x[i] / max_a, q = y[i] / max_b;
            aa.lane[i % USC_JUDGE_LANES] += p * p;
            ab.lane[i % USC_JUDGE_LANES] += p * q;
            bb.lane[i % USC_JUDGE_LANES] += q * q;
        }
    }
    const double norm = sqrt(usc_trial_total(&aa)) * sqrt(usc_trial_total(&bb));
    const double cosine = usc_trial_total(&ab) / norm;
    return cosine > 1 ? 1 : cosine < -1 ? -1 : cosine;
}

void usc_rule_cosine(usc_trial *c)
{
    usc_trial_reader d, r;
    if (!usc_trial_open(c, USC_ROLE_DEVICE, &d) || !usc_trial_open(c, USC_ROLE_TRUE, &r))
        return;
    const double max_d = usc_trial_largest(c, &d), max_r = usc_trial_largest(c, &r);
    const double limit = c->standard->parameters[0];
    double cosine = max_d == 0 && max_r == 0 ? 1 : 0;
    if (isnan(max_d) || isnan(max_r))
        cosine = (double)NAN;
    else if (max_d != 0 && max_r != 0)
        cosine = usc_trial_cosine(c, &d, &r, max_d, max_r);
    usc_trial_metric(c, "cosine", cosine);
    usc_trial_decide(c, cosine >= limit, NULL, "cosine %.9g, the limit is %g", cosine,
                     limit);
}

/* ---- ggml-nmse ---- */

static double ggml_limit(const usc_trial *c)
{
    static const char *const contractions[] = {"mm",
                                               "bmm",
                                               "matmul",
                                               "linear",
                                               "addmm",
                                               "baddbmm",
                                               "addbmm",
                                               "mv",
                                               "addmv",
                                               "einsum",
                                               "conv*",
                                               "_conv*",
                                               "slow_conv*",
                                               "mkldnn_conv*",
                                               "scaled_dot_product_*",
                                               "_scaled_dot_product_*",
                                               NULL};
    const double given = c->standard->parameters[0];
    if (given >= 0) return given;
    return usc_trial_op_is(c, contractions) ? 5e-4 : 1e-7;
}

static bool infinite(float x)
{
    return isinf(x) || x == FLT_MAX || x == -FLT_MAX;
}

/* Why the loss is not even computed, NULL where it is. */
static const char *ggml_refusal(float device, float native)
{
    if (isnan(device) || isnan(native)) return "NaN";
    if (!infinite(device) && !infinite(native)) return NULL;
    if (!infinite(device) || !infinite(native)) return "inf mismatch";
    return signbit(device) != signbit(native) ? "inf sign mismatch" : NULL;
}

void usc_rule_ggml(usc_trial *c)
{
    usc_trial_reader d, e;
    usc_trial_sum error = {0}, size = {0};
    if (!usc_trial_open(c, USC_ROLE_DEVICE, &d) ||
        !usc_trial_open(c, USC_ROLE_EXPECTED, &e))
        return;
    for (int64_t at = 0; at < c->n; at += USC_JUDGE_BLOCK) {
        const size_t count = usc_trial_count(c, at);
        const double *x = usc_trial_load(&d, at, count);
        const double *y = usc_trial_load(&e, at, count);
        for (size_t i = 0; i < count; i++) {
            const float a = (float)x[i], b = (float)y[i], off = a - b;
            const char *refusal = ggml_refusal(a, b);
            if (refusal != NULL) {
                usc_trial_decide(c, false, NULL, "%s: %g against %g at element %lld",
                                 refusal, (double)a, (double)b, (long long)at + (int)i);
                return;
            }
            const float squared_off = off * off, squared = a * a;
            error.lane[i % USC_JUDGE_LANES] += (double)squared_off;
            size.lane[i % USC_JUDGE_LANES] += (double)squared;
        }
    }
    const double nmse = usc_trial_total(&error) / usc_trial_total(&size);
    const double limit = ggml_limit(c);
    usc_trial_metric(c, "nmse", nmse);
    usc_trial_metric(c, "limit", limit);
    usc_trial_decide(c, !(nmse > limit), NULL, "NMSE %.3g, the limit is %g", nmse, limit);
}

/* ---- neuron-3way ---- */

enum { N_BINS = 100 };

/* The distances of an answer to the raised run. */
typedef struct spread {
    double max, sum; /* of the distances, of their squares */
    double bins[N_BINS];
} spread;

static void bin(spread *s, double error, double width)
{
    const double place = width > 0 ? error / width * N_BINS : 0;
    s->bins[place >= N_BINS ? N_BINS - 1 : (int)place] += 1;
}

/* One pass: sums where `width` is NaN, else histograms up to `width`. */
static void neuron_pass(const usc_trial *c, usc_trial_reader r[3], double width,
                        spread out[2])
{
    usc_trial_sum sums[2];
    memset(sums, 0, sizeof sums);
    for (int64_t at = 0; at < c->n; at += USC_JUDGE_BLOCK) {
        const size_t count = usc_trial_count(c, at);
        const double *truth = usc_trial_load(&r[2], at, count);
        for (int k = 0; k < 2; k++) {
            const double *x = usc_trial_load(&r[k], at, count);
            for (size_t i = 0; i < count; i++) {
                const double error = fabs(x[i] - truth[i]);
                if (!isnan(width)) {
                    bin(&out[k], error, width);
                } else {
                    sums[k].lane[i % USC_JUDGE_LANES] += error * error;
                    if (!(error <= out[k].max)) out[k].max = error;
                }
            }
        }
    }
    if (!isnan(width)) return;
    for (int k = 0; k < 2; k++)
        out[k].sum = usc_trial_total(&sums[k]);
}

/* Share that two histograms of n elements have in common: the sum of sqrt(p q). */
static double overlap(const spread s[2], int64_t n)
{
    double sum = 0;
    for (int i = 0; i < N_BINS; i++)
        sum += sqrt(s[0].bins[i] / (double)n * (s[1].bins[i] / (double)n));
    return sum;
}

static double ratio(double device, double native)
{
    return device == 0 ? 0 : device / native;
}

void usc_rule_neuron(usc_trial *c)
{
    usc_trial_reader r[3];
    spread s[2];
    memset(s, 0, sizeof s);
    if (!c->is_float) {
        usc_trial_integers(c);
        return;
    }
    if (!usc_trial_open(c, USC_ROLE_DEVICE, &r[0]) ||
        !usc_trial_open(c, USC_ROLE_EXPECTED, &r[1]) ||
        !usc_trial_open(c, USC_ROLE_RAISED, &r[2]))
        return;
    neuron_pass(c, r, (double)NAN, s);
    if (!isfinite(s[0].sum) || !isfinite(s[1].sum)) {
        usc_trial_decide(c, false, NULL, "an error is not finite");
        return;
    }
    neuron_pass(c, r, fmax(s[0].max, s[1].max), s);
    const double bc = overlap(s, c->n), sigma = ratio(sqrt(s[0].sum), sqrt(s[1].sum));
    const double worst = ratio(s[0].max, s[1].max);
    usc_trial_metric(c, "bc", bc);
    usc_trial_metric(c, "sigma_ratio", sigma);
    usc_trial_metric(c, "linf_ratio", worst);
    usc_trial_decide(c, (bc >= 0.99 || sigma <= 1) && worst < 5 && sigma < 3, NULL,
                     "overlap %.4g, sigma ratio %.4g, largest error %.4g times the CPU's",
                     bc, sigma, worst);
}
