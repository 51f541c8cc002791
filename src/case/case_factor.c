// SPDX-License-Identifier: Apache-2.0
// One factor in all of a result. Statistics of independent rows round independently, up
// here and down there: what is off by the same share everywhere left something out of a
// formula (an epsilon, one of n, a constant), however small the share is beside what the
// limits of single elements allow. Neighbours: case_state.h.
#include "base/number.h"
#include "case/case_shares.h"
#include "case/case_state.h"
#include "judge/slopes.h"

#include <math.h>
#include <string.h>

#define ROUNDING 0x1p-24 /* of float32 */
/* Roundings that all rows may have in common where nothing is added, and no constant's
 * rounding grows. */
#define STEADY 5.0
#define EXPLAINED 0.5   /* of the squared errors, at the least */
#define SURE 6.0        /* times its uncertainty */
#define JUMPS 0x1p-8    /* of an element: no rounding, and nothing to do with a factor */
#define FITS 0x1p-4     /* of a factor: what a result may be off by that has it */
#define NEARLY_ALL 0.95 /* of the elements */
#define VARIED 1.5      /* the largest is so many times the smallest */
#define DRIFTS 2.0      /* times what sums drift in one accumulator: another may */
#define SMALL 0x1p-10   /* a share that is told as one */
#define SHOWN 8.0       /* roundings of a 16-bit element that no honest row shows */
/* times fewer elements are off by a factor than without it */
#define TELLING 6
/* elements that tell a factor of a result that passes; and one that shows in each */
enum {
    BLOCKS = 16,
    FEWEST = 32,
    FEWEST_OFF = 8,
    FEWEST_ROWS = 8,
    FEWEST_SHOWN = 6,
    MOST_SEEN = 64
};

static usc_case_stage take_added;

/* ---- groups, of which each may have a bias of its own ---- */

/* Sums over the elements of one index along an axis, or over all. */
typedef struct group {
    double e, r;
    int64_t n;
} group;

typedef struct grouping {
    int64_t size, inner; /* of the axis; elements of one index that lie in a row */
    group *of;           /* NULL: no bias is taken away */
} grouping;

static int64_t index_of(const grouping *g, int64_t i)
{
    return g->of != NULL ? i / g->inner % g->size : 0;
}

static bool counts(double d, double r)
{
    return isfinite(d) && isfinite(r) && fabs(d - r) <= JUMPS * fabs(r);
}

static bool sum_up(usc_case *c, grouping *g, int axis)
{
    const usc_tensor *t = &c->device;
    *g = (grouping){.size = 1, .inner = 1};
    if (axis < 0) return true;
    g->size = t->sizes[axis];
    for (int k = axis + 1; k < t->ndim; k++)
        g->inner *= t->sizes[k];
    g->of = usc_case_room(c, g->size, sizeof *g->of);
    if (g->of == NULL) return false;
    for (int64_t i = 0; i < c->n; i++) {
        group *one = &g->of[index_of(g, i)];
        if (!isfinite(c->d[i]) || !isfinite(c->r[i])) continue;
        one->e += c->d[i] - c->r[i];
        one->r += c->r[i];
        one->n++;
    }
    return true;
}

/* The truth without the bias of its group. */
static double centred(const grouping *g, int64_t i, double r)
{
    const group *one = g->of != NULL ? &g->of[index_of(g, i)] : NULL;
    return one != NULL && one->n > 0 ? r - one->r / (double)one->n : r;
}

static double error_beside(const grouping *g, int64_t i, double e)
{
    const group *one = g->of != NULL ? &g->of[index_of(g, i)] : NULL;
    return one != NULL && one->n > 0 ? e - one->e / (double)one->n : e;
}

/* ---- what passes: errors that are one share of the result ---- */

/* Whether most elements have about that share, not a few large ones. */
static bool has_most(const usc_case *c, const grouping *g, double factor)
{
    int64_t n = 0, n_have = 0;
    for (int64_t i = 0; i < c->n; i++) {
        if (!isfinite(c->d[i]) || !isfinite(c->r[i])) continue;
        const double share = factor * centred(g, i, c->r[i]);
        const double e = error_beside(g, i, c->d[i] - c->r[i]);
        n += share != 0;
        n_have += share != 0 && fabs(e - share) <= fabs(share) / 2;
    }
    return 3 * n_have >= 2 * n;
}

/* The factor that errors of float32 have in common, less 1; 0 where it is none. */
static double common(const usc_case *c, const grouping *g)
{
    double er[BLOCKS] = {0}, rr[BLOCKS] = {0}, ee = 0, all_er = 0, all_rr = 0;
    for (int64_t i = 0; i < c->n; i++) {
        if (!isfinite(c->d[i]) || !isfinite(c->r[i])) continue;
        const double r = centred(g, i, c->r[i]);
        const double e = error_beside(g, i, c->d[i] - c->r[i]);
        const int b = (int)((double)i / (double)c->n * BLOCKS);
        er[b] += e * r;
        rr[b] += r * r;
        ee += e * e;
    }
    for (int b = 0; b < BLOCKS; b++) {
        all_er += er[b];
        all_rr += rr[b];
    }
    const double factor = all_rr > 0 ? all_er / all_rr : 0;
    double spread = 0;
    for (int b = 0; b < BLOCKS; b++) {
        const double off = (rr[b] > 0 ? er[b] / rr[b] : 0) - factor;
        spread += off * off;
    }
    const double unsure = sqrt(spread / (BLOCKS * (BLOCKS - 1)));
    const bool explains = factor * all_er >= EXPLAINED * ee;
    const bool sure = explains && fabs(factor) >= SURE * unsure;
    return sure && has_most(c, g, factor) ? factor : 0;
}

/* Whether a truth was not seen yet; of many the first count. */
static bool is_new(double r, double seen[MOST_SEEN], int *n_seen)
{
    for (int k = 0; k < *n_seen; k++)
        if (seen[k] == r) return false;
    if (*n_seen < MOST_SEEN) seen[(*n_seen)++] = r;
    return true;
}

/* The same where the output's own rounding hides all but the elements that lie next to
 * its borders: those that took the other side all moved the same way. Elements of one
 * truth are one. */
static double shown(const usc_case *c, const grouping *g)
{
    double seen[MOST_SEEN];
    int n_seen = 0;
    int64_t n = 0, n_more = 0;
    double sum = 0;
    for (int64_t i = 0; i < c->n; i++) {
        const double d = c->d[i], r = c->r[i];
        if (!counts(d, r) && usc_case_distance(c, d, r) > 0) continue;
        const double own = centred(g, i, r), off = usc_case_distance(c, d, r);
        if (!(off > SHOWN * ROUNDING * fabs(own)) || !is_new(r, seen, &n_seen)) continue;
        n++;
        n_more += (d > r) == (own > 0);
        sum += off / fabs(own);
    }
    if (n < FEWEST_SHOWN) return 0;
    const double share = (double)n_more / (double)n;
    if (share <= 1 - 1.0 / FEWEST_SHOWN && share >= 1.0 / FEWEST_SHOWN) return 0;
    const double mean = 2 * sum / (double)n - SHOWN * ROUNDING;
    return share > 0.5 ? mean : -mean;
}

/* ---- what is reduced: the truth times a number, beside a bias ---- */

static double least_squares(const usc_case *c, const grouping *g)
{
    double er = 0, rr = 0;
    for (int64_t i = 0; i < c->n; i++) {
        if (!isfinite(c->r[i]) || !isfinite(c->d[i])) continue;
        const double r = centred(g, i, c->r[i]);
        er += error_beside(g, i, c->d[i] - c->r[i]) * r;
        rr += r * r;
    }
    return rr > 0 ? er / rr : 0;
}

/* How many elements lie off the truth times 1 + `more`, with the bias of their group. */
static int64_t count_off(const usc_case *c, const grouping *g, double more, double reach)
{
    int64_t n_off = 0;
    for (int64_t i = 0; i < c->n; i++) {
        const double r = c->r[i], d = c->d[i];
        if (r == 0 || !isfinite(r)) continue;
        const double own = centred(g, i, r), e = d - r;
        const double bias = more != 0 ? e - error_beside(g, i, e) : 0;
        n_off += !isfinite(d) || usc_case_distance(c, d, r + more * own + bias) >
                                     reach * fmax(fabs(r), fabs(own));
    }
    return n_off;
}

/* Whether nearly every element is that, and is not the truth, of values of more than one
 * size. */
static bool is_times(const usc_case *c, const grouping *g, double more)
{
    const double reach = fmax(FITS * fabs(more), USC_SHARED_BASE / 4 * ROUNDING);
    int64_t n = 0;
    double least = (double)INFINITY, most = 0;
    for (int64_t i = 0; i < c->n; i++) {
        if (c->r[i] == 0 || !isfinite(c->r[i])) continue;
        n++;
        least = fmin(least, fabs(c->r[i]));
        most = fmax(most, fabs(c->r[i]));
    }
    if (n < FEWEST_OFF || most < VARIED * least) return false;
    const int64_t n_off = count_off(c, g, more, reach),
                  n_were = count_off(c, g, 0, reach);
    return (double)n_off <= (1 - NEARLY_ALL) * (double)n &&
           n_were >= TELLING * (n_off > 0 ? n_off : 1);
}

static double whole_factor(const usc_case *c, const grouping *g)
{
    const double more = least_squares(c, g);
    return fabs(more) >= USC_SHARED_BASE * ROUNDING && is_times(c, g, more) ? more : 0;
}

/* ---- beside no bias, or beside one along an axis ---- */

/* The axes along which a bias may stand: the last, and that of channels. */
static bool has_rows(const usc_case *c, int axis)
{
    return axis >= 0 && axis < c->device.ndim && c->device.sizes[axis] > 0 &&
           c->n / c->device.sizes[axis] >= FEWEST_ROWS;
}

static double shared_factor(usc_case *c, bool reduced)
{
    const bool low = usc_dtype_info_of(c->device.dtype)->sig_bits < 24;
    const int last = c->device.ndim - 1;
    const int axes[3] = {-1, last, last > 1 ? 1 : -1};
    double most = 0;
    for (int k = 0; k < 3; k++) {
        grouping g;
        if (k > 0 && !has_rows(c, axes[k])) continue;
        if (!sum_up(c, &g, axes[k])) return 0; /* the driver tells */
        const double factor = reduced ? whole_factor(c, &g)
                              : low   ? shown(c, &g)
                                      : common(c, &g);
        if (fabs(factor) > fabs(most)) most = factor;
    }
    return most;
}

/* ---- the stage ---- */

/* Roundings that all elements may have in common. */
static double base_of(const usc_case *c)
{
    const bool steady = c->o.alone >= USC_ALONE_STEADY && c->device.dtype == USC_F32;
    return steady ? STEADY : USC_SHARED_BASE;
}

static void accuse(usc_case *c, double more)
{
    const usc_finding before = c->f;
    if (fabs(more) < SMALL)
        usc_case_conclude(c, USC_VERDICT_WRONG,
                          "nearly all of its elements are too %s by one share, %.3g",
                          more > 0 ? "large" : "small", fabs(more));
    else
        usc_case_conclude(c, USC_VERDICT_WRONG, "it is %.5g times what is right",
                          1 + more);
    const char *reason = c->f.reason;
    c->f = before;
    c->f.verdict = USC_VERDICT_WRONG;
    c->f.reason = reason;
    c->f.factor = 1 + more;
    c->f.bits = fmax(0, fmin(c->f.bits, -log2(fmax(fabs(more), ROUNDING))));
    c->f.bound = false;
}

/* By how much all elements but a few are off, whatever they are; 0 where that is nothing.
 * Noise, however coarse, is off by more here than there. */
static double offset_of(const usc_case *c)
{
    double sum = 0, low = (double)INFINITY, high = (double)-INFINITY;
    int64_t n = 0, n_have = 0;
    for (int64_t i = 0; i < c->n; i++) {
        if (!isfinite(c->d[i]) || !isfinite(c->r[i])) continue;
        sum += c->d[i] - c->r[i];
        low = fmin(low, c->r[i]);
        high = fmax(high, c->r[i]);
        n++;
    }
    const double offset = n > 0 ? sum / (double)n : 0;
    const double fits = FITS * fabs(offset);
    for (int64_t i = 0; i < c->n; i++)
        n_have += isfinite(c->d[i]) && isfinite(c->r[i]) &&
                  usc_case_distance(c, c->d[i], c->r[i] + offset) <= fits &&
                  usc_case_distance(c, c->d[i], c->r[i]) > fits; /* it shows */
    const bool all = n >= FEWEST_OFF && (double)n_have >= NEARLY_ALL * (double)n;
    return all && high - low >= fabs(offset) ? offset : 0;
}

static void accuse_offset(usc_case *c, double offset)
{
    char text[96];
    (void)usc_format(text, sizeof text, "nearly all of it is off by %.3g", offset);
    c->f.verdict = USC_VERDICT_WRONG;
    c->f.reason = usc_case_text(c, text);
    c->f.bound = false;
}

/* What the sums inside lose in one accumulator has a sign, where the terms are alike. */
static bool is_drift(usc_case *c, const usc_tensor *run)
{
    if (run == NULL || !usc_case_fits(run, &c->truth)) return false;
    const double *added = usc_case_wide(c, run);
    double er = 0, rr = 0;
    for (int64_t i = 0; i < c->n && added != NULL; i++) {
        if (!isfinite(c->r[i]) || !isfinite(added[i])) continue;
        er += (added[i] - c->r[i]) * c->r[i];
        rr += c->r[i] * c->r[i];
    }
    return rr > 0 && DRIFTS * fabs(er / rr) >= fabs(c->factor);
}

static usc_status take_added(usc_case *c, usc_error *err)
{
    (void)err;
    const bool sums = usc_case_given(c, USC_GIVEN_SUMS);
    if (!sums && !usc_case_given(c, USC_GIVEN_AS_ASKED)) {
        accuse(c, c->factor);
        return usc_case_pass(c, USC_STAGE_END);
    }
    if (is_drift(c, c->given.a) || (sums && is_drift(c, c->given.b)))
        return usc_case_pass(c, USC_STAGE_END);
    if (!sums && c->want.k == 0) return usc_case_ask(c, USC_WANT_ADDED, 1, take_added);
    accuse(c, c->factor);
    return usc_case_pass(c, USC_STAGE_END);
}

static usc_status weigh(usc_case *c)
{
    c->d = NULL;                          /* that of a look may be put right */
    if (!usc_case_load(c)) return USC_OK; /* the driver tells */
    const bool reduced = c->f.verdict == USC_VERDICT_REDUCED;
    const double most = usc_shared_drift(base_of(c), c->f.judgement.fan_in) *
                        (c->o.products ? USC_CUT_OFF : 1);
    c->factor = shared_factor(c, reduced);
    if (!reduced && fabs(c->factor) > most)
        return usc_case_ask(c, USC_WANT_ADDED, 0, take_added);
    const double offset = reduced && c->factor == 0 ? offset_of(c) : 0;
    if (reduced && c->factor != 0) accuse(c, c->factor);
    if (offset != 0) accuse_offset(c, offset);
    return usc_case_pass(c, USC_STAGE_END);
}

bool usc_case_may_have_factor(const usc_case *c)
{
    const usc_finding *f = &c->f;
    const bool passes = f->verdict == USC_VERDICT_PASS && !c->o.linear &&
                        f->judgement.max > base_of(c) && f->judgement.n_ill == 0 &&
                        c->n >= FEWEST;
    return !c->factor_tried && !c->narrow.weighing && c->kept == NULL && !c->o.bare &&
           !c->o.pairs && usc_case_is_float(&c->device) && c->device.dtype != USC_F64 &&
           f->numbers == USC_NUMBERS_ALL && !f->judgement.exact && c->n >= FEWEST_OFF &&
           (passes || f->verdict == USC_VERDICT_REDUCED);
}

usc_status usc_case_factor(usc_case *c, usc_error *err)
{
    (void)err;
    c->factor_tried = true;
    return weigh(c);
}
