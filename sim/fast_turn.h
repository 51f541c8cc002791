// SPDX-License-Identifier: Apache-2.0
// Eight rows of eight terms, turned by shuffles of AVX; part of fast_avx2.c and fast_avx512.c.
#include <immintrin.h>
#include <stddef.h>

static inline void turn_by_shuffles(const float *from, ptrdiff_t row, float *to,
                                    size_t width)
{
    __m256 r[8], pairs[8], fours[8];
    for (int i = 0; i < 8; i++)
        r[i] = _mm256_loadu_ps(from + i * row);
    for (int i = 0; i < 8; i += 2) {
        pairs[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            fours[i + 2 * j] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], 0x44);
            fours[i + 2 * j + 1] =
                _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], 0xee);
        }
    for (size_t i = 0; i < 4; i++) {
        _mm256_storeu_ps(to + i * width,
                         _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * width,
                         _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31));
    }
}
