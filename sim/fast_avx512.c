// SPDX-License-Identifier: Apache-2.0
// Fast sums for AVX-512; see fast.h. Nothing here may run before the processor is known
// to have it.
#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include "fast_turn.h"
#define LANES 16
#define NAME "avx512"
#define TABLE usc_sim_fast_avx512
#define FUSED(a, b, c) (lanes_t) _mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c))
#define MAD(a, b, c) (wide_t) _mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c))
#define ROOT(x) (half_t) _mm256_sqrt_ps((__m256)(x))
#define WIDEN(x) (wide_t) _mm512_cvtps_pd((__m256)(x)) /* gcc 12 takes it in halves */
#define TURN turn_by_shuffles
#include "fast_lanes.h"
#else
#include "fast.h"
const fast_isa usc_sim_fast_avx512 = {.name = NULL};
#endif
