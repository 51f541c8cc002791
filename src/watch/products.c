// SPDX-License-Identifier: Apache-2.0
// Row checksums of matrix products (Huang and Abraham, "Algorithm-based fault tolerance
// for matrix operations", 1984) with a bound from the variance of rounding: a result is
// rounded once, uniformly within an ulp of at most eps |y|; the accumulation adds up
// n_inner roundings of partial sums, whose squares are at most about `terms` and, at the
// end, `squares`. docs/reference/watch-reference.md, "Row checksums".
#include <ulpscope/x/watch_products.h>

#include <math.h>

enum { DEVIATIONS = 8 };

static double bound_of(const usc_product *p, const usc_product_sums *s)
{
    const usc_dtype_info *info = usc_dtype_info_of(p->dtype);
    const double eps = exp2(1 - info->sig_bits);
    const double usual = p->dtype == USC_F64 ? 0x1p-53 : 0x1p-24;
    const double unit = p->unit > 0 ? p->unit : usual;
    /* below the smallest normal number an ulp is that of a fixed point */
    const double quantum = exp2(info->emin) * eps;
    const double variance = eps * eps / 12 * s->squares +
                            quantum * quantum / 12 * USC_PRODUCT_COLUMNS +
                            unit * unit * (double)p->n_inner * (s->terms + s->squares);
    return DEVIATIONS * sqrt(variance);
}

double usc_product_over(const usc_product *p, const usc_product_sums *sums, int64_t n,
                        int64_t *worst)
{
    double most = 0;
    int64_t at = -1;
    for (int64_t i = 0; i < n; i++) {
        const usc_product_sums *s = &sums[i];
        if (!isfinite(s->expected) || !isfinite(s->terms)) continue;
        const double over =
            isfinite(s->sum) ? fabs(s->sum - s->expected) / bound_of(p, s) : HUGE_VAL;
        if (at < 0 || over > most) {
            most = over;
            at = i;
        }
    }
    if (worst != NULL) *worst = at;
    return most;
}

/* Both not finite, or within the bound of each other. */
static bool agree(double a, double b, double bound)
{
    if (!isfinite(a) || !isfinite(b)) return !isfinite(a) && !isfinite(b);
    return fabs(a - b) <= bound;
}

usc_product_verdict usc_product_settle(const usc_product *p,
                                       const usc_product_sums *suspect,
                                       const usc_product_again *again)
{
    usc_product_sums s = *suspect;
    if (!isfinite(s.squares)) /* by Cauchy and Schwarz, and for a bias */
        s.squares = (double)p->n_inner * s.terms + s.expected * s.expected;
    const double bound = bound_of(p, &s);
    if (!agree(again->other, again->wide, bound) || agree(s.sum, again->wide, bound) ||
        agree(s.sum, again->other, bound))
        return USC_PRODUCT_RIGHT;
    return agree(again->same, again->wide, bound) ? USC_PRODUCT_PASSING
                                                  : USC_PRODUCT_LASTING;
}
