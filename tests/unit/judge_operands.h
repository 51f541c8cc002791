// SPDX-License-Identifier: Apache-2.0
// Operands for the judge's kernels, and every contender in turn.
#ifndef USC_TESTS_JUDGE_OPERANDS_H
#define USC_TESTS_JUDGE_OPERANDS_H

#include "judge_contenders.h"
#include "judge_fixture.h"

#include <ulpscope/x/kernels.h>

enum { N = USC_JUDGE_BLOCK };

static const usc_score_params params = {
    .min_power = 0x1p-126,
    .half_ulp = 0x1p-8,
    .ulp_inverse = 0x1p7,
    .largest = 0x1.fep127,
    .overflow = 0x1.ffp127,
    .unit = 0x1p-24,
    .floor = 0x1p-125,
    .s_factor = 0x1p15,
    .n_factor = 0x1p15,
    .s_unknown = 1e300,
    .expect = 3,
};

static inline void for_each(void (*check)(const contender *by))
{
    contender all[MAX_CONTENDERS];
    const int n = contenders(all);
    if (n == 0) skip();
    for (int k = 0; k < n; k++)
        check(&all[k]);
}

#endif
