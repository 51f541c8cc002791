// SPDX-License-Identifier: Apache-2.0
// Fast sums for AVX2 with FMA; see fast.h. Nothing here may run before the processor is known
// to have it.
#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define LANES 8
#define NAME "avx2"
#define TABLE usc_sim_fast_avx2
#define FUSED(a, b, c) (lanes_t) _mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c))
#include "fast_lanes.h"
#else
#include "fast.h"
const fast_isa usc_sim_fast_avx2 = {.name = NULL};
#endif
