// SPDX-License-Identifier: Apache-2.0
// What this processor can do; compiled without any instruction set flag, since it runs
// before one is known to be there.
#ifndef USC_BASE_CPU_PROBE_H
#define USC_BASE_CPU_PROBE_H

#include <stdbool.h>

/** Whether AVX2, FMA and F16C are all there and the system saves their registers. */
bool usc_cpu_has_avx2(void);

/** The same of AVX-512 F, BW, DQ and VL, beside those. */
bool usc_cpu_has_avx512(void);

#endif
