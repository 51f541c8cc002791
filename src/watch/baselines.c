// SPDX-License-Identifier: Apache-2.0
// What other tools look at, in one table file, to be held against: each is its documented
// rule, no more. `replicas` alone is the replica hash of Megatron-LM. Mode asd has a file
// of its own.
#include "watch/track.h"

#include <math.h>

/* L2 norm of a row. */
static double norm_of(const usc_watch_row *r)
{
    if (r->n_nonfinite > 0) return (double)NAN;
    return r->numel > 0 ? sqrt(r->sum_sq) : fabs(r->value);
}

/* L2 norm over all gradients of a rank; reduced ones where there are any. */
static size_t gradients_of(const usc_watch_view *v, const usc_watch_row **rows)
{
    const size_t n = usc_watch_rows_of(v, USC_WATCH_REDUCED, rows);
    return n > 0 ? n : usc_watch_rows_of(v, USC_WATCH_GRAD, rows);
}

static void tell(usc_watch_view *v, const usc_watch_row *r, usc_watch_kind kind,
                 double value, double limit)
{
    const usc_watch_finding f = {.kind = kind,
                                 .tensor = r->tensor,
                                 .rank = r->rank,
                                 .score = isnan(value) ? HUGE_VAL : value,
                                 .threshold = limit,
                                 .action = USC_WATCH_CHECK};
    if (r->tensor >= 0)
        usc_watch_say(v, &f,
                      "%s: '%s' on rank %ld has %.6g at step %lld; the limit is %.6g",
                      usc_watch_detector_text(v->detector), usc_watch_name(v, r->tensor),
                      (long)r->rank, value, (long long)v->step, limit);
    else
        usc_watch_say(v, &f, "%s: rank %ld has %.6g at step %lld; the limit is %.6g",
                      usc_watch_detector_text(v->detector), (long)r->rank, value,
                      (long long)v->step, limit);
}

/* ---- torch_npu's version 2, as its operator is documented (aclnnSilentCheck) ---- */

typedef struct asd2 {
    double previous, low, high;
    int64_t n;
} asd2;

/* L1, which alarms, and L2 with default limits: a value above `upper`, or one that jumps
 * by more than `sigma` times the range so far. Nothing within the first 100. */
static void step_asd2(usc_watch_view *v, const usc_watch_row *r, asd2 *s)
{
    enum { WARM = 100 };
    const double upper = 1e6, sigma = 1e5, value = norm_of(r);
    const double range = s->high - s->low;
    const double jump = range > 0 ? fabs(value - s->previous) / range : 0;
    const bool ready = s->n >= WARM;
    const double score = fmax(value / upper, ready ? jump / sigma : 0);
    usc_watch_note(v, isnan(value) ? HUGE_VAL : score, 1);
    if (isnan(value) || value > upper || (ready && jump > sigma)) {
        tell(v, r, isnan(value) ? USC_WATCH_NONFINITE : USC_WATCH_SPIKE, value,
             ready && value <= upper ? s->previous + sigma * range : upper);
        return;
    }
    s->low = s->n > 0 ? fmin(s->low, value) : value;
    s->high = s->n > 0 ? fmax(s->high, value) : value;
    s->previous = value;
    s->n++;
}

void usc_watch_asd2(usc_watch_view *v)
{
    const usc_watch_row *rows;
    const size_t n = usc_watch_rows_of(v, USC_WATCH_GRAD, &rows);
    for (size_t i = 0; i < n && v->status == USC_OK; i++) {
        asd2 *s = usc_watch_series(v, USC_WATCH_GRAD, rows[i].tensor, rows[i].rank);
        if (s != NULL) step_asd2(v, &rows[i], s);
    }
}

/* ---- one number a rank: the global norm ---- */

/* The rows of a rank as one: numel 0, `value` the norm. */
static void for_each_rank(usc_watch_view *v,
                          void (*step)(usc_watch_view *v, const usc_watch_row *norm))
{
    const usc_watch_row *rows;
    const size_t n = gradients_of(v, &rows);
    const int32_t world = v->w->config.world;
    double *sums = usc_watch_scratch(v, 2 * (size_t)world);
    if (sums == NULL) return;
    double *fed = sums + world;
    for (int32_t r = 0; r < world; r++)
        sums[r] = fed[r] = 0;
    for (size_t i = 0; i < n; i++) {
        const double norm = norm_of(&rows[i]);
        sums[rows[i].rank] += norm * norm;
        fed[rows[i].rank] = 1;
    }
    for (int32_t r = 0; r < world && v->status == USC_OK; r++) {
        const usc_watch_row norm = {.step = v->step,
                                    .rank = r,
                                    .site = USC_WATCH_GRAD,
                                    .tensor = -1,
                                    .value = sqrt(sums[r])};
        if (fed[r] > 0) step(v, &norm);
        sums = v->w->scratch; /* nobody asks for more meanwhile */
        fed = sums + world;
    }
}

/* Megatron-LM's rerun state machine: NaN and Inf, and 10 times the largest of the first
 * 100 samples, frozen after them. */
typedef struct largest {
    double most;
    int64_t n;
} largest;

static void step_megatron(usc_watch_view *v, const usc_watch_row *norm)
{
    enum { SAMPLES = 100, TIMES = 10 };
    largest *s = usc_watch_series(v, USC_WATCH_GRAD, -1, norm->rank);
    if (s == NULL) return;
    if (!isfinite(norm->value)) {
        tell(v, norm, USC_WATCH_NONFINITE, norm->value, TIMES * s->most);
        return;
    }
    if (s->n < SAMPLES) {
        s->most = fmax(s->most, norm->value);
        s->n++;
        return;
    }
    usc_watch_note(v, norm->value, TIMES * s->most);
    if (norm->value >= TIMES * s->most)
        tell(v, norm, USC_WATCH_SPIKE, norm->value, TIMES * s->most);
}

void usc_watch_megatron(usc_watch_view *v)
{
    for_each_rank(v, step_megatron);
}

/* The classic: so many standard deviations above the mean of the last 100 norms. */
enum { ZSCORE_WINDOW = 100, ZSCORE_LIMIT = 5 };

typedef struct window {
    float value[ZSCORE_WINDOW];
    int32_t n, next;
} window;

_Static_assert(sizeof(window) + sizeof(void *) <= USC_WATCH_SERIES_BYTES, "as promised");

bool usc_zscore_sound(const void *series)
{
    const window *s = series;
    return s->n >= 0 && s->n <= ZSCORE_WINDOW && s->next >= 0 && s->next < ZSCORE_WINDOW;
}

static void step_zscore(usc_watch_view *v, const usc_watch_row *norm)
{
    window *s = usc_watch_series(v, USC_WATCH_GRAD, -1, norm->rank);
    if (s == NULL) return;
    double sum = 0, squares = 0;
    for (int i = 0; i < s->n; i++) {
        sum += (double)s->value[i];
        squares += (double)s->value[i] * (double)s->value[i];
    }
    const double n = s->n, mean = n > 0 ? sum / n : 0;
    const double deviation = n > 1 ? sqrt(fmax(0, (squares - sum * mean) / (n - 1))) : 0;
    if (!isfinite(norm->value)) {
        tell(v, norm, USC_WATCH_NONFINITE, norm->value, mean + ZSCORE_LIMIT * deviation);
        return;
    }
    if (s->n == ZSCORE_WINDOW && deviation > 0) {
        const double z = (norm->value - mean) / deviation;
        usc_watch_note(v, z, ZSCORE_LIMIT);
        if (z > ZSCORE_LIMIT) tell(v, norm, USC_WATCH_SPIKE, z, ZSCORE_LIMIT);
    }
    s->value[s->next] = (float)norm->value;
    s->next = (s->next + 1) % ZSCORE_WINDOW;
    if (s->n < ZSCORE_WINDOW) s->n++;
}

void usc_watch_zscore(usc_watch_view *v)
{
    for_each_rank(v, step_zscore);
}

/* ---- msprobe's AnomalyTurbulence: |x| > (1 + 0.5) * average, which 0.99 of itself and
 * 0.01 of |x| then becomes, abnormal or not; the first sample seeds ---- */

static void step_turbulence(usc_watch_view *v, const usc_watch_row *r, double *average)
{
    const double limit = 1.5, norm = norm_of(r);
    if (*average == 0) {
        *average = norm;
        return;
    }
    usc_watch_note(v, isnan(norm) || isnan(*average) ? 0 : norm, limit * *average);
    if (norm > limit * *average) tell(v, r, USC_WATCH_SPIKE, norm, limit * *average);
    *average = 0.99 * *average + 0.01 * norm;
}

void usc_watch_turbulence(usc_watch_view *v)
{
    const usc_watch_row *rows;
    const size_t n = gradients_of(v, &rows);
    for (size_t i = 0; i < n && v->status == USC_OK; i++) {
        double *s = usc_watch_series(v, USC_WATCH_GRAD, rows[i].tensor, rows[i].rank);
        if (s != NULL) step_turbulence(v, &rows[i], s);
    }
}

/* ---- NaN and Inf ---- */

void usc_watch_nan(usc_watch_view *v)
{
    static const usc_watch_site sites[] = {USC_WATCH_GRAD, USC_WATCH_REDUCED,
                                           USC_WATCH_WEIGHT, USC_WATCH_LOSS};
    for (size_t s = 0; s < sizeof sites / sizeof sites[0]; s++) {
        const usc_watch_row *rows;
        const size_t n = usc_watch_rows_of(v, sites[s], &rows);
        for (size_t i = 0; i < n && v->status == USC_OK; i++)
            if (usc_row_nonfinite(&rows[i]))
                tell(v, &rows[i], USC_WATCH_NONFINITE, (double)NAN, 1);
    }
}
