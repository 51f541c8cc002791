// SPDX-License-Identifier: Apache-2.0
// Processor detection through the compiler's built-ins.
#include "kernels/cpu_probe.h"

#include "base/compiler.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

/* clang's built-in knows this name from version 15 on. The registers are AVX's, of which
 * the built-in was asked before. */
static bool has_f16c(void)
{
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#else
static bool has_f16c(void)
{
    return false;
}
#endif

bool usc_cpu_has_avx2(void)
{
    return USC_CPU_HAS("avx2") && USC_CPU_HAS("fma") && has_f16c();
}

bool usc_cpu_has_avx512(void)
{
    return usc_cpu_has_avx2() && USC_CPU_HAS("avx512f") && USC_CPU_HAS("avx512bw") &&
           USC_CPU_HAS("avx512dq") && USC_CPU_HAS("avx512vl");
}
