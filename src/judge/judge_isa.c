// SPDX-License-Identifier: Apache-2.0
// Which of the judge's kernel tables goes with this processor; compiled without any
// instruction set flag.
#include "judge/judge_kernels.h"

#include "base/compiler.h"

const usc_judge_kernels *usc_judge_kernels_active(void)
{
#if defined(__x86_64__)
    if (USC_CPU_HAS("avx2") && USC_CPU_HAS("fma") && USC_CPU_HAS("f16c"))
        return &usc_judge_kernels_avx2;
#endif
    return &usc_judge_kernels_scalar;
}
