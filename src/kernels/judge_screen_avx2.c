// SPDX-License-Identifier: Apache-2.0
// The quick kernels for AVX2. Their one text: judge_screen.inc.
#include "kernels/judge_kernels.h"

#if defined(__x86_64__)
#include "kernels/judge_lanes_avx2.h"

#define SCREEN_NAME usc_judge_screen_avx2
#define SCREEN_F32_NAME usc_judge_screen_f32_avx2
#include "kernels/judge_screen.inc"
#endif
