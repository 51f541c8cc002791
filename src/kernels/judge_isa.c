// SPDX-License-Identifier: Apache-2.0
// Which of the judge's kernel tables goes with the instruction set that the library uses.
#include "kernels/judge_kernels.h"

#include <ulpscope/x/kernels.h>

#include <string.h>

const usc_judge_kernels *usc_judge_kernels_active(void)
{
#if defined(__x86_64__)
    const char *isa = usc_kernels_isa();
    if (strcmp(isa, "avx512") == 0) return &usc_judge_kernels_avx512;
    if (strcmp(isa, "avx2") == 0) return &usc_judge_kernels_avx2;
#endif
    return &usc_judge_kernels_scalar;
}
