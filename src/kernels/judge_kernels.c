// SPDX-License-Identifier: Apache-2.0
// The judge's inner loops in plain C: the definition. Every operation is one IEEE double
// operation in the order written, so that wider instruction sets give the same bits.
#include "kernels/judge_kernels.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* As the machine's max and min: the second operand where one is NaN. */
static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* The power of two at or below x, at least the smallest normal of the device's dtype. */
static double power_of(const usc_score_params *p, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= UINT64_C(0x7ff0000000000000);
    memcpy(&x, &bits, sizeof bits);
    return larger(x, p->min_power);
}

/* One over the ulp, in the device's dtype, of a number of that size. */
static double ulp_inverse(const usc_score_params *p, double size)
{
    const double power = power_of(p, size);
    uint64_t bits;
    memcpy(&bits, &power, sizeof bits);
    bits = UINT64_C(0x7fe0000000000000) - bits;
    double inverse;
    memcpy(&inverse, &bits, sizeof bits);
    return inverse * p->ulp_inverse;
}

/* From r to the interval of reals that round to the finite d. */
static double distance(const usc_score_params *p, double d, double r)
{
    const double size = fabs(d);
    const double power = power_of(p, size);
    const double above = power * p->half_ulp;
    const double below = size == power && size > p->min_power ? above * 0.5 : above;
    const double beyond = copysign(1.0, d) * r - size;
    return larger(fabs(beyond) - (beyond > 0 ? above : below), 0.0);
}

/* max(|R|, S, N, floor) */
static double scale_of(const usc_score_params *p, double size, double s, double n)
{
    if (!(s <= DBL_MAX)) s = p->s_unknown;
    n = larger(n, 0.0); /* NaN, some float32 replay overflowed: counts as none */
    return larger(larger(size, s), larger(n, p->floor));
}

#define ACC float
#define ACC_MAX FLT_MAX
#define NAME(x) narrow_##x
#include "kernels/judge_kernels.inc"
#undef ACC
#undef ACC_MAX
#undef NAME

#define ACC double
#define ACC_MAX DBL_MAX
#define NAME(x) wide_##x
#include "kernels/judge_kernels.inc"

void usc_judge_score_wide(const usc_score_params *p, const double *d, const double *r,
                          const double *s, const double *n, size_t count, double *score,
                          usc_score_sums *sums)
{
    wide_score(p, d, r, s, n, count, score, sums);
}

bool usc_judge_accumulate_wide(const double *r, const double *rk, const double *yk,
                               size_t count, double *s, double *n)
{
    return wide_accumulate(r, rk, yk, count, s, n);
}

/* Quarter octaves: the exponent, and where the significand lies among 2^(1/4), 2^(2/4),
 * 2^(3/4). Scores are rounded to float first: a bin needs no more. */
static void bin_scores(const double *score, size_t count, uint8_t *bins)
{
    for (size_t i = 0; i < count; i++) {
        const float x = (float)score[i];
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        const int32_t fraction = (int32_t)(bits & 0x7fffff);
        int32_t bin = ((int32_t)(bits >> 23) - 127 + 8) * 4 + 1;
        bin += (fraction > 0x1837f0) + (fraction > 0x3504f3) + (fraction > 0x5744fc);
        bin = bin < 0 ? 0 : bin >= USC_N_SCORE_BINS ? USC_N_SCORE_BINS - 1 : bin;
        bins[i] = (uint8_t)(score[i] > 0 ? bin : USC_BIN_MATCH);
    }
}

const usc_judge_kernels usc_judge_kernels_scalar = {
    .score = narrow_score,
    .bin = bin_scores,
    .accumulate = narrow_accumulate,
};
