// SPDX-License-Identifier: Apache-2.0
// What the kernels for AVX-512 (F, BW, DQ, VL) share, beside what they have from
// judge_avx2.h: eight doubles or sixteen floats at a time. Included by judge_*_avx512.c
// only.
#ifndef USC_JUDGE_AVX512_H
#define USC_JUDGE_AVX512_H

#include "kernels/judge_avx2.h"

static USC_ALWAYS_INLINE __m512d size_of(__m512d x)
{
    return _mm512_andnot_pd(_mm512_set1_pd(-0.0), x);
}

/* The largest of eight numbers, at least 0; NaN is none. */
static inline double largest_of_eight(__m512d x)
{
    double lanes[8], largest = 0;
    _mm512_storeu_pd(lanes, x);
    for (int k = 0; k < 8; k++)
        largest = lanes[k] > largest ? lanes[k] : largest;
    return largest;
}

static USC_ALWAYS_INLINE __m512 join(__m256 low, __m256 high)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

/* quarter_edges(), once more for each parity of the exponent: the permutation looks at
 * its lowest bit as well. */
static USC_ALWAYS_INLINE __m512i wide_quarter_edges(void)
{
    return _mm512_broadcast_i64x4(quarter_edges());
}

static USC_ALWAYS_INLINE __m512i wide_edges_of(__m512i edges, __m512 scores)
{
    return _mm512_permutexvar_epi32(_mm512_srli_epi32(_mm512_castps_si512(scores), 20),
                                    edges);
}

static USC_ALWAYS_INLINE __m512i wide_quarters_from(__m512i edge, __m512 scores)
{
    return _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(scores), edge), 21);
}

/* Bin = quarters - 475, held within 0 and the last bin. */
static USC_ALWAYS_INLINE __m512i wide_bins_of(__m512i quarters)
{
    const __m512i first = _mm512_set1_epi32((127 - 8) * 4 - 1);
    const __m512i last = _mm512_set1_epi32(USC_N_SCORE_BINS - 1);
    const __m512i bins = _mm512_sub_epi32(_mm512_max_epi32(quarters, first), first);
    return _mm512_min_epi32(bins, last);
}

/* Bins of sixteen scores, a byte each. */
static USC_ALWAYS_INLINE __m128i bins_of_sixteen(__m512i edges, __m512 scores)
{
    const __m512i edge = wide_edges_of(edges, scores);
    return _mm512_cvtepi32_epi8(wide_bins_of(wide_quarters_from(edge, scores)));
}

#endif
