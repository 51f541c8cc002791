// SPDX-License-Identifier: Apache-2.0
// Processor detection through the compiler's built-ins.
#include "kernels/cpu_probe.h"

#include "base/compiler.h"

bool usc_cpu_has_avx2(void)
{
    return USC_CPU_HAS("avx2") && USC_CPU_HAS("fma") && USC_CPU_HAS("f16c");
}

bool usc_cpu_has_avx512(void)
{
    return usc_cpu_has_avx2() && USC_CPU_HAS("avx512f") && USC_CPU_HAS("avx512bw") &&
           USC_CPU_HAS("avx512dq") && USC_CPU_HAS("avx512vl");
}
