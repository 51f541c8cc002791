// SPDX-License-Identifier: Apache-2.0
// Two loss curves, their difference, and the noise that it has to exceed. Formulas:
// docs/reference/loss.md, sections 2 and 3.
#include <ulpscope/x/loss.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "loss/loss_noise.h"
#include "loss/loss_say.h"

enum { N_BLOCKS = 8, LEAST_FOR_DRIFT = 32, MOST_EARLY = 10, SENTENCE = 1024 };

/* Share of what differences between runs on other batches waver by, below which the
 * batches are common: in tests/curves others have 0.87 or more, common ones without a
 * gross fault 0.3 at most. */
#define COMMON 0.5
/* Standard errors beyond which a mean difference on common batches is none of chance. The
 * errors of neighbouring steps hang together, so honest pairs have up to 10. */
#define SURE 15

/* All that usc_loss_free frees, the result first. */
typedef struct comparison {
    usc_loss_result r;
    int64_t *steps;
    double *a, *b, *band, *difference, *work;
    char sentence[SENTENCE];
} comparison;

void usc_loss_free(usc_loss_result *result)
{
    comparison *c = (comparison *)result;
    if (c == NULL) return;
    free(c->steps);
    free(c->a);
    free(c->b);
    free(c->band);
    free(c->difference);
    free(c->work);
    free(c);
}

/* ---- the steps in common ---- */

static int64_t step_at(const usc_curve *c, int64_t i, bool numbered)
{
    return numbered ? c->steps[i] : i;
}

/* Takes the step that both have. */
static void take_common(comparison *c, int64_t step, double a, double b)
{
    usc_loss_result *r = &c->r;
    if (isfinite(a) && isfinite(b)) {
        c->steps[r->n] = step;
        c->a[r->n] = a;
        c->b[r->n] = b;
        c->difference[r->n++] = b - a;
    } else if (isfinite(a) || isfinite(b)) {
        if (r->bad_step < 0) r->bad_is_a = !isfinite(a);
        if (r->bad_step < 0) r->bad_step = step;
    } else {
        r->n_left_out++;
    }
}

static void match(comparison *c, const usc_curve *a, const usc_curve *b)
{
    const bool numbered = a->numbered && b->numbered;
    int64_t i = 0, j = 0;
    while (i < a->n || j < b->n) {
        const int64_t p = i < a->n ? step_at(a, i, numbered) : INT64_MAX;
        const int64_t q = j < b->n ? step_at(b, j, numbered) : INT64_MAX;
        if (p == q) take_common(c, p, a->values[i], b->values[j]);
        c->r.n_only_a += p < q;
        c->r.n_only_b += q < p;
        i += p <= q;
        j += q <= p;
    }
}

static usc_status none_common(const usc_curve *a, const usc_curve *b, usc_error *err)
{
    return usc_error_set(
        err, USC_E_RANGE, -1,
        "%s and %s have no step in common: %lld to %lld against %lld to %lld", a->name,
        b->name, (long long)a->steps[0], (long long)a->steps[a->n - 1],
        (long long)b->steps[0], (long long)b->steps[b->n - 1]);
}

/* Whether the i-th of one may be held against the i-th of the other where only one says
 * which step that is: where its steps have no gaps, or both hold as many. */
static bool by_place_is_sound(const usc_curve *a, const usc_curve *b)
{
    const usc_curve *numbered = a->numbered ? a : b;
    return a->numbered == b->numbered || a->n == b->n ||
           numbered->steps[numbered->n - 1] - numbered->steps[0] == numbered->n - 1;
}

static usc_status no_places(const usc_curve *a, const usc_curve *b, usc_error *err)
{
    const usc_curve *with = a->numbered ? a : b, *without = a->numbered ? b : a;
    return usc_error_set(err, USC_E_RANGE, -1,
                         "%s gives %lld losses of steps %lld to %lld, and %s gives %lld "
                         "without steps: which "
                         "belongs to which is not known. Say with --regex '(?P<step>...) "
                         "... (?P<loss>...)' "
                         "where its steps stand, or give a file that has them",
                         with->name, (long long)with->n, (long long)with->steps[0],
                         (long long)with->steps[with->n - 1], without->name,
                         (long long)without->n);
}

static usc_status make(const usc_curve *a, const usc_curve *b, comparison **out,
                       usc_error *err)
{
    const size_t n = (size_t)(a->n < b->n ? a->n : b->n);
    comparison *c = calloc(1, sizeof *c);
    if (c == NULL) return usc_no_memory("loss", err);
    c->steps = calloc(n, sizeof *c->steps);
    c->a = calloc(n, sizeof *c->a);
    c->b = calloc(n, sizeof *c->b);
    c->band = calloc(n, sizeof *c->band);
    c->difference = calloc(n, sizeof *c->difference);
    c->work = calloc(n, sizeof *c->work);
    *out = c;
    if (!by_place_is_sound(a, b)) return no_places(a, b, err);
    if (c->steps == NULL || c->a == NULL || c->b == NULL || c->band == NULL ||
        c->difference == NULL || c->work == NULL)
        return usc_no_memory("loss", err);
    c->r.bad_step = -1;
    match(c, a, b);
    c->r.steps = c->steps;
    c->r.a = c->a;
    c->r.b = c->b;
    c->r.band = c->band;
    if (c->r.n + c->r.n_left_out == 0 && c->r.bad_step < 0) return none_common(a, b, err);
    return USC_OK;
}

/* ---- noise ---- */

/* The value of a repeat at a step, from *at on; false where it has none that is finite.
 */
static bool value_at(const usc_curve *c, int64_t step, bool numbered, int64_t *at,
                     double *out)
{
    while (*at < c->n && step_at(c, *at, numbered) < step)
        ++*at;
    if (*at == c->n || step_at(c, *at, numbered) != step) return false;
    *out = c->values[*at];
    return isfinite(*out);
}

/* Variance of the repeats and `a` at each step, to c->work. */
static usc_status take_repeats(comparison *c, const usc_curve *a,
                               const usc_loss_options *o, usc_error *err)
{
    const double n_runs = (double)o->n_repeats + 1;
    double *sum = calloc((size_t)c->r.n, sizeof *sum);
    if (sum == NULL) return usc_no_memory("loss", err);
    memcpy(sum, c->a, (size_t)c->r.n * sizeof *sum);
    for (int64_t i = 0; i < c->r.n; i++)
        c->work[i] = c->a[i] * c->a[i];
    usc_status st = USC_OK;
    for (size_t k = 0; k < o->n_repeats && st == USC_OK; k++) {
        const usc_curve *repeat = o->repeats[k];
        int64_t at = 0;
        for (int64_t i = 0; i < c->r.n && st == USC_OK; i++) {
            double value;
            const bool there = value_at(repeat, c->steps[i],
                                        a->numbered && repeat->numbered, &at, &value);
            if (!there)
                st = usc_error_set(
                    err, USC_E_RANGE, c->steps[i],
                    "%s has no finite loss at step %lld: repeats must be as "
                    "long as what they stand for",
                    repeat->name, (long long)c->steps[i]);
            else
                sum[i] += value, c->work[i] += value * value;
        }
    }
    for (int64_t i = 0; i < c->r.n; i++) {
        const double square = c->work[i] - sum[i] * sum[i] / n_runs;
        c->work[i] = square > 0 ? square / (n_runs - 1) : 0;
    }
    free(sum);
    return st;
}

/* What o->tolerance stands for. */
static double tolerance_of(const usc_loss_options *o)
{
    return o->tolerance > 0 ? o->tolerance : 1e-3;
}

/* How rough the difference is, of how rough it were if the runs saw other batches. */
static void look_at_batches(comparison *c)
{
    usc_loss_result *r = &c->r;
    r->common = (double)NAN;
    if (r->n < USC_LOSS_FEW) return;
    const double a = usc_loss_waver(c->a, r->n, c->work),
                 b = usc_loss_waver(c->b, r->n, c->work),
                 difference = usc_loss_waver(c->difference, r->n, c->work);
    r->common = difference > 0 ? difference / hypot(a, b) : 0;
}

/* Two runs differ by 1.41 deviations; of n differences none is above sqrt(2 ln 100 n) by
 * chance in 99 of 100 cases. Few repeats know their deviation badly. */
static double factor_of(const comparison *c, size_t n_repeats)
{
    const double most = sqrt(2 * log(100 * (double)c->r.n));
    return sqrt(2) * most * (n_repeats > 0 ? 1 + 1 / (double)n_repeats : 1);
}

static usc_status find_band(comparison *c, const usc_curve *a, const usc_curve *b,
                            const usc_loss_options *o, usc_error *err)
{
    usc_status st = USC_OK;
    const int64_t n = c->r.n;
    const double grain = (a->grain + b->grain) / 2;
    c->r.noise = n < USC_LOSS_FEW       ? USC_LOSS_NOISE_ROUNDING
                 : o->n_repeats > 0     ? USC_LOSS_NOISE_REPEATS
                 : c->r.common < COMMON ? USC_LOSS_NOISE_DIFFERENCES
                                        : USC_LOSS_NOISE_ROUGHNESS;
    c->r.n_repeats = (int64_t)o->n_repeats;
    if (c->r.noise == USC_LOSS_NOISE_REPEATS) {
        st = take_repeats(c, a, o, err);
        if (st == USC_OK) st = usc_loss_spread(c->work, n, c->band, err);
    } else if (c->r.noise == USC_LOSS_NOISE_ROUGHNESS) {
        st = usc_loss_roughness(c->a, n, false, c->band, err);
    } else if (c->r.noise == USC_LOSS_NOISE_DIFFERENCES) {
        st = usc_loss_roughness(c->difference, n, true, c->band, err);
        if (st == USC_OK) st = usc_loss_roughness(c->a, n, false, c->work, err);
        for (int64_t i = 0; st == USC_OK && i < n; i++)
            c->band[i] = fmin(c->band[i], c->work[i]);
    }
    const double factor = n > 0 ? factor_of(c, o->n_repeats) : 0;
    const double rounding = c->r.noise == USC_LOSS_NOISE_ROUNDING      ? 1e-5
                            : c->r.noise == USC_LOSS_NOISE_DIFFERENCES ? tolerance_of(o)
                                                                       : 1e-6;
    for (int64_t i = 0; i < n; i++)
        c->band[i] = factor * c->band[i] + grain + rounding * fabs(c->a[i]);
    return st;
}

/* ---- what it comes to ---- */

static usc_loss_point point_at(const comparison *c, int64_t i)
{
    const double a = c->a[i], d = c->difference[i];
    return (usc_loss_point){
        c->steps[i], a, c->b[i], d, a != 0 ? d / fabs(a) : (double)NAN, c->band[i]};
}

/* By how much they differ relatively: over all steps, and over the first few, where small
 * errors have not had the time to grow. */
static void look_at_relative(comparison *c)
{
    usc_loss_result *r = &c->r;
    const int64_t few = r->n / 20 < 3 ? 3 : r->n / 20;
    int64_t n = 0;
    r->n_early = few < MOST_EARLY ? few : MOST_EARLY;
    if (r->n_early > r->n) r->n_early = r->n;
    for (int64_t i = 0; i < r->n; i++) {
        if (c->a[i] == 0) continue;
        r->mean_relative += fabs(c->difference[i] / c->a[i]);
        n++;
        if (i < r->n_early) r->early_relative = r->mean_relative / (double)n;
    }
    r->mean_relative = n > 0 ? r->mean_relative / (double)n : (double)NAN;
}

static void look_at_points(comparison *c)
{
    usc_loss_result *r = &c->r;
    int64_t largest = 0, first = -1;
    double sum = 0;
    r->first.step = r->largest.step = r->last.step = -1;
    for (int64_t i = 0; i < r->n; i++) {
        const double size = fabs(c->difference[i]);
        sum += size;
        if (size > fabs(c->difference[largest])) largest = i;
        if (i > 0)
            r->area += (size + fabs(c->difference[i - 1])) / 2 *
                       (double)(c->steps[i] - c->steps[i - 1]);
        if (size <= c->band[i]) continue;
        r->n_outside++;
        if (first < 0) first = i;
    }
    if (r->n == 0) return;
    r->mean = sum / (double)r->n;
    r->largest = point_at(c, largest);
    r->last = point_at(c, r->n - 1);
    if (first >= 0) r->first = point_at(c, first);
}

/* Means of the difference over eight blocks of the second half: their deviation, told by
 * their steps from one to the next, for a drift that goes on growing is no noise; and
 * whether all lie on one side. */
static double block_spread(const comparison *c, bool *one_side)
{
    double mean[N_BLOCKS], away[N_BLOCKS - 1];
    const int64_t half = c->r.n / 2, n = c->r.n - half;
    int n_above = 0;
    for (int64_t k = 0; k < N_BLOCKS; k++) {
        const int64_t first = half + k * n / N_BLOCKS,
                      end = half + (k + 1) * n / N_BLOCKS;
        mean[k] = usc_loss_mean(c->difference + first, end - first);
        n_above += mean[k] > 0;
    }
    for (int k = 0; k + 1 < N_BLOCKS; k++)
        away[k] = fabs(mean[k + 1] - mean[k]) / sqrt(2);
    *one_side = n_above == 0 || n_above == N_BLOCKS;
    return 1.4826 * usc_loss_median(away, N_BLOCKS - 1);
}

/* Twice the 97.5 % point of Student's t by its degrees of freedom, for two means. */
static double student(int64_t freedom)
{
    static const double points[] = {12.71, 4.30, 3.18, 2.78, 2.57,
                                    2.45,  2.36, 2.31, 2.26};
    enum { N = sizeof points / sizeof points[0] };
    return sqrt(2) * (freedom <= N ? points[freedom - 1] : 2.2);
}

/* Deviation of the repeats' means over the last quarter. */
static double repeats_spread(const comparison *c, const usc_curve *a,
                             const usc_loss_options *o, int64_t first)
{
    double sum = usc_loss_mean(c->a + first, c->r.n - first), squares = sum * sum;
    for (size_t k = 0; k < o->n_repeats; k++) {
        const usc_curve *repeat = o->repeats[k];
        double mean = 0, value = 0;
        int64_t at = 0;
        for (int64_t i = first; i < c->r.n; i++)
            if (value_at(repeat, c->steps[i], a->numbered && repeat->numbered, &at,
                         &value))
                mean += value / (double)(c->r.n - first);
        sum += mean;
        squares += mean * mean;
    }
    const double n = (double)o->n_repeats + 1, square = squares - sum * sum / n;
    return square > 0 ? sqrt(square / (n - 1)) : 0;
}

static usc_status look_at_drift(comparison *c, const usc_curve *a,
                                const usc_loss_options *o, usc_error *err)
{
    usc_loss_result *r = &c->r;
    const int64_t quarter = r->n / 4, first = r->n - quarter;
    bool one_side = true;
    if (r->n < LEAST_FOR_DRIFT) return USC_OK;
    for (int64_t i = 0; i < r->n; i++)
        c->work[i] = fabs(c->a[i]);
    const double level = usc_loss_mean(c->work + first, quarter);
    r->drift = usc_loss_mean(c->difference + first, quarter);
    r->drift_relative = level > 0 ? r->drift / level : (double)NAN;
    const usc_status st = usc_loss_roughness(c->difference, quarter, false, c->work, err);
    if (st != USC_OK) return st;
    r->early_noise = usc_loss_median(c->work, (size_t)quarter);
    const double spread = r->noise == USC_LOSS_NOISE_REPEATS
                              ? student(r->n_repeats) * repeats_spread(c, a, o, first)
                              : 5 * block_spread(c, &one_side);
    double limit = spread;
    if (r->noise == USC_LOSS_NOISE_DIFFERENCES) {
        r->drift_noise = usc_loss_waver(c->difference + first, quarter, c->work) /
                         sqrt((double)quarter);
        limit = one_side ? fmin(spread, SURE * r->drift_noise) : SURE * r->drift_noise;
        one_side = true;
    }
    r->drift_limit = fmax(limit, tolerance_of(o) * level);
    r->drifts = one_side && fabs(r->drift) > r->drift_limit;
    return USC_OK;
}

usc_status usc_loss_compare(const usc_curve *a, const usc_curve *b,
                            const usc_loss_options *options, usc_loss_result **out,
                            usc_error *err)
{
    static const usc_loss_options usual;
    const usc_loss_options *o = options != NULL ? options : &usual;
    comparison *c = NULL;
    *out = NULL;
    usc_status st = make(a, b, &c, err);
    if (st == USC_OK) look_at_batches(c);
    if (st == USC_OK) st = find_band(c, a, b, o, err);
    if (st == USC_OK) look_at_points(c);
    if (st == USC_OK) look_at_relative(c);
    if (st == USC_OK) st = look_at_drift(c, a, o, err);
    if (st == USC_OK) {
        c->r.differ = c->r.bad_step >= 0 || c->r.n_outside > 0 || c->r.drifts;
        const double tolerance = tolerance_of(o);
        c->r.told =
            c->r.differ || !usc_loss_doubt(a, b, &c->r, tolerance, o->tolerance > 0,
                                           c->sentence, sizeof c->sentence);
        if (c->r.told) usc_loss_sentence(a, b, &c->r, c->sentence, sizeof c->sentence);
        c->r.sentence = c->sentence;
        *out = &c->r;
    } else if (c != NULL) {
        usc_loss_free(&c->r);
    }
    return st;
}
