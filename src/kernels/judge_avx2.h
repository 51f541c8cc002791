// SPDX-License-Identifier: Apache-2.0
// What the kernels for AVX2 share: the largest of some lanes, bins of scores and their
// count. Included by judge_*_avx2.c and judge_avx512.h only.
#ifndef USC_JUDGE_AVX2_H
#define USC_JUDGE_AVX2_H

#include "base/compiler.h"
#include "kernels/judge_kernels.h"

#include <immintrin.h>

#include <string.h>

/* The largest of four numbers, at least 0; NaN is none. */
static inline double largest_of(__m256d x)
{
    double lanes[4], largest = 0;
    _mm256_storeu_pd(lanes, x);
    for (int k = 0; k < 4; k++)
        largest = lanes[k] > largest ? lanes[k] : largest;
    return largest;
}

/* What carries a significand into the next quarter of its octave exactly from 2^(k/4) on,
 * by the upper three bits of the significand. */
static USC_ALWAYS_INLINE __m256i quarter_edges(void)
{
    return _mm256_setr_epi32(0, 0x200000 - 0x1837f1, 0, 0x400000 - 0x3504f4, 0,
                             0x600000 - 0x5744fd, 0, 0);
}

static USC_ALWAYS_INLINE __m256i edges_of(__m256i edges, __m256 scores)
{
    return _mm256_permutevar8x32_epi32(
        edges, _mm256_srli_epi32(_mm256_castps_si256(scores), 20));
}

static USC_ALWAYS_INLINE __m256i quarters_from(__m256i edge, __m256 scores)
{
    return _mm256_srli_epi32(_mm256_add_epi32(_mm256_castps_si256(scores), edge), 21);
}

/* Four times the exponent field plus the quarter octave, of eight scores. */
static USC_ALWAYS_INLINE __m256i quarters_of(__m256i edges, __m256 scores)
{
    return quarters_from(edges_of(edges, scores), scores);
}

/* Bin = quarters - 475, held within 0 and the last bin. */
static USC_ALWAYS_INLINE __m128i bins_of(__m256i a, __m256i b)
{
    const __m256i words = _mm256_subs_epu16(_mm256_packus_epi32(a, b),
                                            _mm256_set1_epi16((127 - 8) * 4 - 1));
    const __m256i bytes = _mm256_packus_epi16(words, words);
    const __m128i joined = _mm_unpacklo_epi64(_mm256_castsi256_si128(bytes),
                                              _mm256_extracti128_si256(bytes, 1));
    return _mm_min_epu8(joined, _mm_set1_epi8((char)(USC_N_SCORE_BINS - 1)));
}

/* Adds the bins of a block, two neighbours at once where all are low, as nearly all bins
 * of an honest output are. They come from memory again: taken out of a vector one by one
 * they would cost twice as much. */
static inline void count_block(const __m128i *bins, size_t count, uint8_t highest,
                               usc_screened *out)
{
    if (highest == 0) return;
    if (highest >= USC_N_LOW_BINS) {
        uint64_t words[USC_JUDGE_BLOCK / 8];
        memcpy(words, bins, count);
        for (size_t i = 0; i < count / 8; i++)
            if (words[i] != 0) usc_count_eight(words[i], &out->counters);
        return;
    }
    uint16_t pairs[USC_JUDGE_BLOCK / 2];
    const __m128i weights = _mm_set1_epi16(1 | USC_N_LOW_BINS << 8);
    for (size_t i = 0; i < count / 16; i++)
        _mm_storeu_si128((__m128i *)pairs + i, _mm_maddubs_epi16(bins[i], weights));
    for (size_t i = 0; i < count / 2; i += 8) {
        out->pairs[pairs[i]]++;
        out->pairs[pairs[i + 1]]++;
        out->pairs[pairs[i + 2]]++;
        out->pairs[pairs[i + 3]]++;
        out->pairs[pairs[i + 4]]++;
        out->pairs[pairs[i + 5]]++;
        out->pairs[pairs[i + 6]]++;
        out->pairs[pairs[i + 7]]++;
    }
}

/* The largest of sixteen bins. */
static inline uint8_t highest_of(__m128i bins)
{
    uint8_t lanes[16], highest = 0;
    _mm_storeu_si128((__m128i *)lanes, bins);
    for (int k = 0; k < 16; k++)
        highest = lanes[k] > highest ? lanes[k] : highest;
    return highest;
}

#endif
