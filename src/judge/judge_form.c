// SPDX-License-Identifier: Apache-2.0
// What the form of the output tells where its errors are no larger than honest ones may
// be: significands that are all short, subnormal numbers that are all zero. Neighbour:
// judge_rule.c, which asks.
#include "judge/judge_state.h"

#include <math.h>
#include <string.h>

#define ROUNDED_TO_11 0x1p-11 /* of a number: cut off, not only rounded */
#define FLOAT16_NORMAL 0x1p-14
#define FLOAT16_SHOWS 0x1p-22 /* four times its smallest: no rounding gives 0 there */

/* Whether a number needs more than the 11 bits of TF32 and float16 (bfloat16 has 8). */
static bool is_long(double x)
{
    int exponent;
    const double significand = ldexp(frexp(x, &exponent), 11);
    return significand != trunc(significand);
}

/* What cancels is short by itself: one that is off by more than 11 bits round should not
 * have been long. */
static void count_float32(const double *d, const double *r, size_t n, usc_form *form)
{
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(d[i]) || !isfinite(r[i])) continue;
        form->n_long += is_long(d[i]);
        form->n_long_truth += is_long((double)(float)r[i]) &&
                              fabs(d[i] - r[i]) <= ROUNDED_TO_11 * fabs(r[i]);
    }
}

static void count_float16(const double *d, const double *r, size_t n, usc_form *form)
{
    for (size_t i = 0; i < n; i++) {
        const double size = fabs(r[i]);
        if (!(size >= FLOAT16_SHOWS && size < 0.9 * FLOAT16_NORMAL)) continue;
        form->n_subnormal++;
        form->n_zero += d[i] == 0;
    }
}

usc_form usc_judge_form(usc_judge *j)
{
    usc_form form = {0};
    usc_judge_scratch *s = &j->scratch[0];
    if (j->dtype != USC_F32 && j->dtype != USC_F16) return form;
    for (int64_t at = 0; at < j->n; at += USC_JUDGE_BLOCK) {
        const int64_t left = j->n - at;
        const size_t count = (size_t)(left < USC_JUDGE_BLOCK ? left : USC_JUDGE_BLOCK);
        const double *d = usc_walk_load(&j->d, at, count, &s->room, s->d);
        const double *r = usc_walk_load(&j->r, at, count, &s->r_room, s->r);
        if (j->dtype == USC_F32)
            count_float32(d, r, count, &form);
        else
            count_float16(d, r, count, &form);
    }
    return form;
}
