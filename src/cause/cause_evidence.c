// SPDX-License-Identifier: Apache-2.0
// What rounding allows each element, what is off beyond it, and how many errors of their
// own there are. Looks at a sample where there are very many elements. Neighbours:
// cause_weigh.c (holds numbers against it).
#include "cause/cause_state.h"

#include <string.h>

enum { GLANCE = 128 }; /* elements that tell an explanation from none */

/* ---- the sample ---- */

static double error_of(const usc_cause *c, int64_t i)
{
    const double error = fabs(value_at(&c->d, i) - value_at(&c->t, i));
    return isnan(error) ? (double)INFINITY : error;
}

/* Errors in bins: those of a higher bin are larger. */
static uint32_t bin_of(double error)
{
    uint64_t bits;
    memcpy(&bits, &error, sizeof bits);
    return (uint32_t)(bits >> 48);
}

/* The bin above which at most `most` errors lie, and how many of it fit as well. */
static uint32_t threshold(usc_cause *c, int64_t most, int64_t *room)
{
    enum { BINS = 1 << 16 };
    uint32_t *count = usc_cause_room(c, BINS, sizeof *count);
    uint32_t bin = BINS - 1;
    *room = most;
    if (count == NULL) return bin;
    memset(count, 0, BINS * sizeof *count);
    for (int64_t i = 0; i < c->d.n; i++)
        count[bin_of(error_of(c, i))]++;
    for (; bin > 0 && count[bin] <= *room; bin--)
        *room -= count[bin];
    return bin;
}

/* Every so many elements, and those that differ most. */
static bool sample(usc_cause *c, evidence *e)
{
    const int64_t n = c->d.n;
    e->n = n;
    if (n <= MOST_SAMPLED) return true;
    const int64_t step = usc_cause_step(n, MOST_SAMPLED / 2);
    int64_t room = 0, k = 0;
    const uint32_t bin = threshold(c, MOST_SAMPLED / 2, &room);
    e->places = usc_arena_take(&c->kept, (MOST_SAMPLED + 2) * sizeof *e->places);
    if (e->places == NULL) return false;
    for (int64_t i = 0; i < n && k < MOST_SAMPLED + 2; i++) {
        const uint32_t own = bin_of(error_of(c, i));
        const bool most = own > bin || (own == bin && room-- > 0);
        if (most || i % step == 0) e->places[k++] = i;
    }
    e->n = k;
    return true;
}

/* ---- what rounding allows ---- */

static void set_slack(usc_cause *c, evidence *e, double *noise)
{
    double sum = 0;
    int64_t finite = 0;
    for (int64_t k = 0; k < e->n; k++) {
        const int64_t i = e->places != NULL ? e->places[k] : k;
        const double own = fabs(value_at(&c->y, i) - e->truth[k]);
        noise[k] = e->slack[k] = isfinite(own) ? own : (double)NAN;
        if (!isfinite(e->truth[k])) continue;
        sum += e->truth[k] * e->truth[k];
        finite++;
    }
    const double typical = finite > 0 ? sqrt(sum / (double)finite) : 0;
    const double common =
        fmin(usc_cause_nth(noise, e->n, (e->n + 1) / 2 - 1), typical * 0x1p-20);
    const int bits = c->d.dtype == USC_F64 ? 53 : c->bits;
    for (int64_t k = 0; k < e->n; k++) {
        const double t = isfinite(e->truth[k]) ? fabs(e->truth[k]) : 0;
        e->slack[k] = ldexp(t, -bits) * 1.02 + 6 * e->slack[k] + 3 * common;
    }
}

/* Every so many of the places, at least GLANCE where there are as many. */
static int sparse(const int64_t *from, int64_t n, int64_t *to)
{
    const int64_t step = n > 2 * GLANCE ? ((n + GLANCE - 1) / GLANCE) | 1 : 1;
    int k = 0;
    for (int64_t i = 0; i < n; i += step)
        to[k++] = from[i];
    return k;
}

/* Some elements that are far off; behind them, where these are no sample, some of all. */
static bool set_glance(usc_cause *c, evidence *e)
{
    int64_t *off = usc_cause_room(c, 2 * e->n, sizeof *off), n_off = 0, n_far = 0;
    e->glance = usc_arena_take(&c->kept, (4 * GLANCE + 8) * sizeof *e->glance);
    if (off == NULL || e->glance == NULL) return false;
    int64_t *far = off + e->n;
    for (int64_t k = 0; k < e->n; k++) {
        if (!e->off[k]) continue;
        off[n_off++] = k;
        if (!(fabs(e->device[k] - e->truth[k]) <= 4 * e->slack[k])) far[n_far++] = k;
    }
    const bool few = n_far < 8;
    e->n_far = few ? sparse(off, n_off, e->glance) : sparse(far, n_far, e->glance);
    e->n_glance = e->n_far;
    if ((few ? n_off : n_far) <= 2 * GLANCE)
        e->n_glance += sparse(off, n_off, e->glance + e->n_far);
    return true;
}

bool usc_cause_gather(usc_cause *c)
{
    evidence *e = &c->e;
    e->low = c->floats && c->bits < 24;
    if (!sample(c, e)) return false;
    double *all = usc_arena_take(&c->kept, (size_t)e->n * 4 * sizeof *all);
    double *noise = usc_cause_room(c, e->n, sizeof *noise);
    e->off = usc_arena_take(&c->kept, (size_t)e->n);
    if (all == NULL || noise == NULL || e->off == NULL) return false;
    e->device = all;
    e->truth = all + e->n;
    e->rounded = all + 2 * e->n;
    e->slack = all + 3 * e->n;
    for (int64_t k = 0; k < e->n; k++) {
        const int64_t i = e->places != NULL ? e->places[k] : k;
        e->device[k] = value_at(&c->d, i);
        e->truth[k] = value_at(&c->t, i);
        e->rounded[k] = c->floats ? rounded(c, e->truth[k]) : e->truth[k];
        e->slack[k] = 0;
    }
    if (c->floats) set_slack(c, e, noise);
    for (int64_t k = 0; k < e->n; k++) {
        e->off[k] = differs(e, k, e->device[k]);
        e->n_off += e->off[k];
    }
    return set_glance(c, e);
}

int64_t usc_cause_sample(const usc_cause *c, const int64_t **places, const uint8_t **off)
{
    *places = c->e.places;
    *off = c->e.off;
    return c->e.n;
}

/* ---- errors of their own ---- */

static bool live(const evidence *e, int64_t k)
{
    return isfinite(e->device[k]) && isfinite(e->truth[k]);
}

/* Whether within each slice the errors are a factor and an amount of the truth. */
static bool is_linear(usc_cause *c, uint32_t within)
{
    const evidence *e = &c->e;
    groups g = usc_cause_groups(c, within);
    double *sums = usc_cause_room(c, 4 * g.n + 2 * e->n, sizeof *sums);
    if (sums == NULL) return false;
    memset(sums, 0, (size_t)(4 * g.n) * sizeof *sums);
    double *t = sums, *r = t + g.n, *tt = r + g.n, *tr = tt + g.n;
    double *left = tr + g.n, *error = left + e->n;
    const double size = (double)e->n / (double)g.n;
    for (int64_t k = 0; k < e->n; k++, usc_cause_advance(&g)) {
        if (!live(e, k)) continue;
        t[g.row] += e->truth[k] / size;
        r[g.row] += (e->device[k] - e->truth[k]) / size;
    }
    for (int turn = 0; turn < 2; turn++)
        for (int64_t k = 0; k < e->n; k++, usc_cause_advance(&g)) {
            const int64_t i = g.row;
            const bool there = live(e, k);
            const double a = (there ? e->truth[k] : 0) - t[i];
            const double b = (there ? e->device[k] - e->truth[k] : 0) - r[i];
            if (turn == 0) {
                tt[i] += a * a;
                tr[i] += a * b;
                continue;
            }
            const double rest = b - tr[i] / fmax(tt[i], 1e-300) * a;
            left[k] = rest * rest;
            error[k] =
                there ? (e->device[k] - e->truth[k]) * (e->device[k] - e->truth[k]) : 0;
        }
    return usc_cause_middle(left, e->n) < 0.02 * usc_cause_middle(error, e->n);
}

int64_t usc_cause_independent(usc_cause *c)
{
    evidence *e = &c->e;
    int64_t n = e->n_off > 0 ? e->n_off : 1;
    if (e->independent > 0) return e->independent;
    const int rank = c->d.ndim;
    const uint32_t all = rank < 32 ? (UINT32_C(1) << rank) - 1 : ~UINT32_C(0);
    for (int k = -1; k < 2 * rank && e->places == NULL && c->floats && rank > 0; k++) {
        const uint32_t one = k >= 0 ? UINT32_C(1) << (k / 2) : all;
        const uint32_t within = k >= 0 && k % 2 == 1 ? all & ~one : one;
        const int64_t slices = within != 0 ? usc_cause_groups(c, within).n : e->n;
        if (2 * slices < n && is_linear(c, within)) n = slices == 1 ? 1 : 2 * slices;
    }
    if (!c->work.failed) e->independent = n;
    return n;
}

/* Whether errors of one sign do not fill rows or columns. */
static bool is_mixed(usc_cause *c)
{
    const evidence *e = &c->e;
    const int64_t width =
        c->d.ndim > 1 && e->places == NULL ? c->d.sizes[c->d.ndim - 1] : 1;
    const int64_t height = e->n / width, most = height > width ? height : width;
    double *sum = usc_cause_room(c, 2 * most, sizeof *sum);
    if (sum == NULL || e->n_off < 64) return false;
    double *count = sum + most;
    for (int way = 0; way < 2; way++) {
        const int64_t lines = way == 0 ? width : height;
        int64_t n = 0;
        memset(sum, 0, (size_t)(2 * most) * sizeof *sum);
        for (int64_t k = 0; k < e->n; k++) {
            const double s = (e->device[k] - e->truth[k]) * e->truth[k];
            if (!e->off[k]) continue;
            sum[way == 0 ? k % width : k / width] += (s > 0) - (s < 0);
            count[way == 0 ? k % width : k / width] += 1;
        }
        for (int64_t k = 0; k < lines; k++)
            if (count[k] > 0) sum[n++] = fabs(sum[k]) / count[k];
        if (lines > 1 && (double)e->n_off / (double)lines > 8 &&
            !(usc_cause_middle(sum, n) < 0.6))
            return false;
    }
    return true;
}

usc_status usc_cause_errors_of(usc_cause *c, usc_cause_errors *out, usc_error *err)
{
    const evidence *e = &c->e;
    double signs = 0;
    const marks *far = usc_cause_far(c);
    *out = (usc_cause_errors){.far = far != NULL ? far->n : 0,
                              .independent = usc_cause_independent(c),
                              .mixed = is_mixed(c),
                              .few_values = usc_cause_few_values(c)};
    for (int64_t k = 0; k < e->n; k++) {
        const double s = (e->device[k] - e->truth[k]) * e->truth[k];
        if (!e->off[k]) continue;
        signs += (s > 0) - (s < 0);
        out->finite += live(e, k);
    }
    out->one_sided = e->n_off > 0 && fabs(signs) > 0.5 * (double)e->n_off;
    if (!c->work.failed && !c->kept.failed) return USC_OK;
    *out = (usc_cause_errors){0};
    return usc_error_set(err, USC_E_NOMEM, -1, "search for a cause: no memory");
}
