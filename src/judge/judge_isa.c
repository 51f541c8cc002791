// SPDX-License-Identifier: Apache-2.0
// Which of the judge's kernel tables goes with the instruction set in use.
#include "judge/judge_kernels.h"

const usc_judge_kernels *usc_judge_kernels_active(void)
{
    return &usc_judge_kernels_scalar;
}
