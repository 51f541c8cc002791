// SPDX-License-Identifier: Apache-2.0
// The judge's kernel tables that run here and must give the bits of the scalar one. Those
// of AVX-512 also run emulated, where the build found SIMDe (avx512_by_simde.h).
#ifndef USC_TESTS_JUDGE_CONTENDERS_H
#define USC_TESTS_JUDGE_CONTENDERS_H

#include "base/cpu_probe.h"
#include "kernels/judge_kernels.h"

#include <stdio.h>

enum { MAX_CONTENDERS = 3 };

typedef struct contender {
    const char *name;
    const usc_judge_kernels *table;
    bool (*screen_f32)(const usc_score_params *p, const usc_screen_operands *o,
                       size_t count, usc_screened *out);
} contender;

#if defined(USC_SIMDE)
extern const usc_judge_kernels usc_judge_kernels_emulated;
bool usc_judge_screen_f32_emulated(const usc_score_params *p,
                                   const usc_screen_operands *o, size_t count,
                                   usc_screened *out);
#endif

/* Their number. */
static inline int contenders(contender out[MAX_CONTENDERS])
{
    int n = 0;
#if defined(__x86_64__)
    if (usc_cpu_has_avx2())
        out[n++] =
            (contender){"avx2", &usc_judge_kernels_avx2, usc_judge_screen_f32_avx2};
    if (usc_cpu_has_avx512())
        out[n++] =
            (contender){"avx512", &usc_judge_kernels_avx512, usc_judge_screen_f32_avx512};
#if defined(USC_SIMDE)
    if (usc_cpu_has_avx2()) /* what the emulation is compiled for */
        out[n++] = (contender){"avx512, emulated", &usc_judge_kernels_emulated,
                               usc_judge_screen_f32_emulated};
#endif
#endif
    for (int k = 0; k < n; k++)
        printf("kernels: %s\n", out[k].name);
    return n;
}

#endif
