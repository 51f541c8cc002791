// SPDX-License-Identifier: Apache-2.0
// The quick kernels for AVX-512. Their one text: judge_screen.inc.
#include "kernels/judge_kernels.h"

#if defined(__x86_64__)
#include "kernels/judge_lanes_avx512.h"

#define SCREEN_NAME usc_judge_screen_avx512
#define SCREEN_F32_NAME usc_judge_screen_f32_avx512
#include "kernels/judge_screen.inc"
#endif
