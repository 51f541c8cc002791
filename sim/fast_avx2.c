// SPDX-License-Identifier: Apache-2.0
// Fast sums for AVX2 with FMA; see fast.h. Nothing here may run before the processor is known
// to have it.
#if defined(__AVX2__) && defined(__FMA__)
#include "fast_turn.h"
#define LANES 8
#define NAME "avx2"
#define TABLE usc_sim_fast_avx2
#define FUSED(a, b, c) (lanes_t) _mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c))
#define MAD(a, b, c) (wide_t) _mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c))
#define ROOT(x) (half_t) _mm_sqrt_ps((__m128)(x))
#define WIDEN(x) (wide_t) _mm256_cvtps_pd((__m128)(x)) /* gcc 12 takes it in halves */
#define TURN turn_by_shuffles
#include "fast_lanes.h"
#else
#include "fast.h"
const fast_isa usc_sim_fast_avx2 = {.name = NULL};
#endif
