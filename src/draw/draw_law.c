// SPDX-License-Identifier: Apache-2.0
// The laws of torch's random operators. A value of a discrete law owns the part of [0, 1)
// that is as long as its probability; one of a continuous law the part that rounding to
// its dtype leaves open. Drawn honestly, a point taken at chance from each element's part
// is even on [0, 1), whatever the law. Formulas: docs/reference/metrics.md, 4.
#include "draw/draw_special.h"
#include "draw/draws.h"

#include "kernels/walk_load.h"

#include <math.h>

#define NEVER 1e-8 /* the chance of any element to lie that far out in a tail */

struct usc_law {
    /* The chance of v or less, of more than v; each exact in its own tail. No `above`:
     * there are no tails. */
    double (*below)(double v, const double *p);
    double (*above)(double v, const double *p);
    bool (*inside)(double v, const double *p);
    /* The one value that these parameters leave; NULL: there always is a choice. */
    bool (*fixed)(const double *p, double *value);
    bool whole; /* whole numbers */
    bool hits;  /* ones and zeros, the first parameter is the chance of a one */
};

/* ---- continuous ---- */

static double even_below(double v, const double *p)
{
    return (v - p[0]) / (p[1] - p[0]);
}

static bool even_inside(double v, const double *p)
{
    return v >= p[0] && v < p[1];
}

static bool even_inside_closed(double v, const double *p)
{
    return v >= p[0] && v <= p[1];
}

static bool even_fixed(const double *p, double *value)
{
    *value = p[0];
    return p[0] == p[1];
}

const usc_law usc_law_even = {even_below, NULL, even_inside, even_fixed, false, false};
const usc_law usc_law_even_closed = {even_below, NULL,  even_inside_closed,
                                     even_fixed, false, false};

static double normal_below(double v, const double *p)
{
    return usc_normal_below((v - p[0]) / p[1]);
}

static double normal_above(double v, const double *p)
{
    return usc_normal_below((p[0] - v) / p[1]);
}

static bool any_number(double v, const double *p)
{
    (void)p;
    return !isnan(v);
}

/* No draw moves a mean that is infinite or NaN. */
static bool normal_fixed(const double *p, double *value)
{
    *value = p[0];
    return p[1] == 0 || (!isfinite(p[0]) && isfinite(p[1]));
}

const usc_law usc_law_normal = {normal_below, normal_above, any_number,
                                normal_fixed, false,        false};

static double exponential_below(double v, const double *p)
{
    return -expm1(-p[0] * fmax(v, 0));
}

static double exponential_above(double v, const double *p)
{
    return exp(-p[0] * fmax(v, 0));
}

static bool not_negative(double v, const double *p)
{
    (void)p;
    return v >= 0;
}

const usc_law usc_law_exponential = {
    exponential_below, exponential_above, not_negative, NULL, false, false};

static double cauchy_below(double v, const double *p)
{
    const double t = (v - p[0]) / p[1], pi = 3.14159265358979323846;
    return t < 0 ? atan2(1, -t) / pi : 0.5 + atan(t) / pi;
}

static double cauchy_above(double v, const double *p)
{
    return cauchy_below(2 * p[0] - v, p);
}

const usc_law usc_law_cauchy = {cauchy_below, cauchy_above, any_number,
                                NULL,         false,        false};

static double log_normal_below(double v, const double *p)
{
    return usc_normal_below((log(fmax(v, 0)) - p[0]) / p[1]);
}

static double log_normal_above(double v, const double *p)
{
    return usc_normal_below((p[0] - log(fmax(v, 0))) / p[1]);
}

const usc_law usc_law_log_normal = {
    log_normal_below, log_normal_above, not_negative, NULL, false, false};

/* ---- whole numbers ---- */

static double whole_below(double v, const double *p)
{
    return (v - p[0] + 1) / (p[1] - p[0]);
}

const usc_law usc_law_whole = {whole_below, NULL, even_inside, NULL, true, false};

static double bernoulli_below(double v, const double *p)
{
    return v < 0 ? 0 : v < 1 ? 1 - p[0] : 1;
}

static bool zero_or_one(double v, const double *p)
{
    (void)p;
    return v == 0 || v == 1;
}

static bool bernoulli_fixed(const double *p, double *value)
{
    *value = p[0] <= 0 ? 0 : 1;
    return p[0] <= 0 || p[0] >= 1;
}

const usc_law usc_law_bernoulli = {bernoulli_below, NULL, zero_or_one,
                                   bernoulli_fixed, true, true};

static double geometric_below(double v, const double *p)
{
    return -expm1(fmax(v, 0) * log1p(-p[0]));
}

static bool from_one(double v, const double *p)
{
    (void)p;
    return v >= 1;
}

static bool geometric_fixed(const double *p, double *value)
{
    *value = 1;
    return p[0] >= 1;
}

const usc_law usc_law_geometric = {geometric_below, NULL, from_one,
                                   geometric_fixed, true, false};

static double poisson_below(double v, const double *p)
{
    return v < 0 ? 0 : usc_gamma_above(v + 1, p[0]);
}

static bool a_count(double v, const double *p)
{
    (void)p;
    return v >= 0 && isfinite(v);
}

static bool poisson_fixed(const double *p, double *value)
{
    *value = 0;
    return p[0] == 0;
}

const usc_law usc_law_poisson = {poisson_below, NULL, a_count,
                                 poisson_fixed, true, false};

/* ---- the walk ---- */

/* Half the distance to the next larger magnitude in a dtype. */
static double half_spacing(double v, const usc_dtype_info *info)
{
    if (info->kind != USC_KIND_FLOAT) return 0.5;
    const double size = fmin(fmax(fabs(v), ldexp(1, info->emin)), info->largest);
    return ldexp(1, ilogb(size) - info->sig_bits);
}

typedef struct law_walk {
    usc_draws *d;
    const usc_law *law;
    const usc_dtype_info *info;
    usc_dtype dtype;
    uint64_t stream;
    double never;           /* a chance that no element has */
    double widths, widest;  /* of the parts, over known elements */
    double slope, variance; /* of ones with probabilities of their own */
    double least, largest;  /* probability */
    bool fixed;             /* somewhere */
    bool truth;             /* of values only whether they are zero */
} law_walk;

static double in_range(double u)
{
    return fmin(fmax(u, 0), 1);
}

/* The score statistic of a slope that is not 1 between ones and their probabilities, on
 * the scale of log odds. */
static void weigh_hit(law_walk *w, double v, double p)
{
    const double odds = fmin(fmax(log(p) - log1p(-p), -4), 4);
    w->slope += odds * (v - p);
    w->variance += odds * odds * p * (1 - p);
    w->least = fmin(w->least, p);
    w->largest = fmax(w->largest, p);
    w->d->hits[w->d->n_hits++] = v != 0;
}

/* Whether a whole number is one, of those that its dtype holds. */
static void put_whole(law_walk *w, int64_t i, double v, const double *p)
{
    /* large counts round in low precision */
    const double half = fmax(half_spacing(v, w->info), 0.5);
    /* towards zero, below a power of two, numbers lie closer */
    const double inner = fmax(half_spacing(nextafter(v, 0), w->info), 0.5);
    if (v != rint(v) && !isinf(v)) {
        usc_draws_refuse(w->d, i, v);
        return;
    }
    const double low = w->law->below(rint(v - (v > 0 ? inner : half) - 0.5), p);
    const double high = w->law->below(rint(v + (v < 0 ? inner : half) - 0.5), p);
    usc_draws_put(w->d, w->stream, i, in_range(low), in_range(high));
    if (w->law->hits) weigh_hit(w, v, p[0]);
}

static void put_number(law_walk *w, int64_t i, double value, const double *p)
{
    usc_draws *d = w->d;
    const double half = half_spacing(value, w->info);
    const double most = w->info->largest > 0 ? w->info->largest : (double)INFINITY;
    const double v = fmin(fmax(value, -most), most); /* a tail may overflow */
    const double low = w->law->below(v - half, p), high = w->law->below(v + half, p);
    if (w->law->above != NULL &&
        (high < w->never || w->law->above(v - half, p) < w->never)) {
        usc_draws_refuse(d, i, value);
        return;
    }
    w->widths += high - low;
    w->widest = fmax(w->widest, high - low);
    const int64_t at = usc_draws_place(d, i);
    if (at >= 0 && d->values != NULL) d->values[at] = v;
    usc_draws_put(d, w->stream, i, in_range(low), in_range(high));
}

static double held(const law_walk *w, double v)
{
    unsigned char raw[8];
    usc_dtype_narrow(w->dtype, &v, raw, 1);
    usc_dtype_widen(w->dtype, raw, &v, 1);
    return v;
}

/* Whether a value may be drawn. Bounds that belong to the range are rounded to the dtype
 * first, as every other number is: -1 is bfloat16's -0.99999. */
static bool inside(const law_walk *w, double v, const double *p)
{
    if (w->law->inside(v, p)) return true;
    const double rounded[USC_LAW_PARAMETERS] = {held(w, p[0]), held(w, p[1])};
    return w->law == &usc_law_even_closed && w->law->inside(v, rounded);
}

/* Of a spread that is infinite or NaN nothing is known but that no draw is a number. */
static bool has_no_spread(const law_walk *w, const double *p)
{
    return w->law == &usc_law_normal && !isfinite(p[1]);
}

static void put_element(law_walk *w, int64_t i, double v, const double *p)
{
    double only;
    if (w->law->fixed != NULL && w->law->fixed(p, &only)) {
        w->fixed = true;
        only = held(w, only);
        if (v != only && !(isnan(v) && isnan(only))) usc_draws_refuse(w->d, i, v);
    } else if (has_no_spread(w, p)) {
        w->fixed = true;
        if (isfinite(v)) usc_draws_refuse(w->d, i, v);
    } else if (!inside(w, v, p)) {
        usc_draws_refuse(w->d, i, v);
    } else if (w->law->whole) {
        put_whole(w, i, v, p);
    } else {
        put_number(w, i, v, p);
    }
}

/* What all elements together come to. */
static void conclude(law_walk *w)
{
    usc_draws *d = w->d;
    const int sig = w->info->kind == USC_KIND_FLOAT ? w->info->sig_bits : 8;
    const double digit = ldexp(1, -(sig < 24 ? sig : 24));
    if (w->fixed || w->law->whole) d->values = NULL;
    if (!w->law->whole && d->n_known > 0) {
        d->slack = w->widths / (double)d->n_known + digit;
        d->atom = fmax(w->widest, digit);
    }
    if (!w->law->hits) return;
    d->chance = w->least;
    if (w->least == w->largest) return;
    d->hits = NULL;
    const double z = w->slope / sqrt(w->variance);
    if (w->variance > 50 && fabs(z) > 5.5)
        (void)usc_clause_set(&d->odd, "ones do not follow their probabilities (z = %.1f)",
                             z);
}

enum { SHOWN = USC_LAW_PARAMETERS };

/* One parameter of all elements. */
typedef struct parameter_walk {
    usc_walk walk;
    usc_walk_room room;
    double values[USC_JUDGE_BLOCK];
    bool varies;
} parameter_walk;

static usc_status begin_parameter(parameter_walk *w, const usc_parameter *p,
                                  const usc_tensor *like, usc_error *err)
{
    usc_tensor view;
    w->varies = p->tensor != NULL;
    for (int i = 0; i < USC_JUDGE_BLOCK; i++)
        w->values[i] = p->number;
    if (!w->varies) return USC_OK;
    const usc_status st = usc_draws_broadcast(p->tensor, like, &view, err);
    return st == USC_OK ? usc_walk_begin(&view, true, &w->walk, err) : st;
}

static const double *loaded(parameter_walk *w, int64_t at, size_t count)
{
    if (!w->varies) return w->values;
    return usc_walk_load(&w->walk, at, count, &w->room, w->values);
}

static void walk_law(law_walk *w, const usc_walk *t, parameter_walk *with, int64_t n)
{
    usc_walk_room room;
    double values[USC_JUDGE_BLOCK];
    for (int64_t at = 0; at < n; at += USC_JUDGE_BLOCK) {
        const size_t count =
            (size_t)(n - at < USC_JUDGE_BLOCK ? n - at : USC_JUDGE_BLOCK);
        const double *v = usc_walk_load(t, at, count, &room, values);
        const double *a = loaded(&with[0], at, count), *b = loaded(&with[1], at, count);
        const double *shown = loaded(&with[SHOWN], at, count);
        for (size_t i = 0; i < count; i++) {
            if (shown[i] == 0) continue;
            const double value = w->truth ? v[i] != 0 : v[i];
            put_element(w, at + (int64_t)i, value, (const double[]){a[i], b[i]});
        }
    }
}

usc_status usc_draws_of_law(usc_draws *d, const usc_law *law, const usc_parameter *p,
                            const usc_law_values *values, usc_error *err)
{
    usc_walk walk;
    const int64_t n = d->n;
    const usc_tensor *t = values->tensor;
    const usc_parameter shown = {.number = 1, .tensor = values->shown};
    parameter_walk with[USC_LAW_PARAMETERS + 1];
    usc_status st = usc_walk_begin(t, true, &walk, err);
    for (int k = 0; k < USC_LAW_PARAMETERS && st == USC_OK; k++)
        st = begin_parameter(&with[k], &p[k], t, err);
    if (st == USC_OK) st = begin_parameter(&with[SHOWN], &shown, t, err);
    if (st != USC_OK || n == 0) return st;
    d->values = law->whole ? NULL : usc_arena_take(d->arena, (size_t)d->n_u * 8);
    d->hits = law->hits ? usc_arena_take(d->arena, (size_t)n) : NULL;
    if (d->arena->failed) return usc_error_set(err, USC_E_NOMEM, -1, "draws: no memory");
    law_walk w = {
        .d = d,
        .law = law,
        .info = usc_dtype_info_of(t->dtype),
        .dtype = t->dtype,
        .stream = values->stream,
        .truth = values->truth,
        .never = NEVER / (double)n,
        .least = 1,
    };
    d->varies = p[0].tensor != NULL || p[1].tensor != NULL;
    walk_law(&w, &walk, with, n);
    conclude(&w);
    if (law != &usc_law_whole || d->varies || w.fixed || d->n_impossible > 0)
        return USC_OK;
    return usc_draws_take_whole(d, t, p[0].number, p[1].number - p[0].number, err);
}
