// SPDX-License-Identifier: Apache-2.0
// Fast sums for AVX-512; see fast.h. Nothing here may run before the processor is known
// to have it.
#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include <immintrin.h>
#define LANES 16
#define NAME "avx512"
#define TABLE usc_sim_fast_avx512
#define FUSED(a, b, c) (lanes_t) _mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c))
#include "fast_lanes.h"
#else
#include "fast.h"
const fast_isa usc_sim_fast_avx512 = {.name = NULL};
#endif
