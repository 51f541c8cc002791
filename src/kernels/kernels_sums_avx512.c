// SPDX-License-Identifier: Apache-2.0
// Magnitudes and the hash of a watch for AVX-512 (F, BW, DQ, VL): the sixteen lanes of
// the definition are two registers. Nothing here may run before cpu_probe.c has said yes.
#include "base/compiler.h"
#include "kernels/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#include <immintrin.h>

static inline __m512 load_f32(const void *src, size_t i)
{
    return _mm512_loadu_ps((const float *)src + i);
}

static inline __m512 load_f16(const void *src, size_t i)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)((const uint16_t *)src + i)));
}

static inline __m512 load_bf16(const void *src, size_t i)
{
    const __m256i half = _mm256_loadu_si256((const void *)((const uint16_t *)src + i));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* Bits of the sixteen largest magnitudes, all finite. */
static double largest(__m512i max)
{
    return (double)_mm512_reduce_max_ps(_mm512_castsi512_ps(max));
}

/* `n` is a multiple of 16. The square of a float32 is exact in double: a fused add
 * changes nothing. What is not finite adds +0, which changes no sum. Magnitudes have the
 * order of their bits. */
#define SUMS(NAME, LOAD)                                                                 \
    static USC_NOINLINE void NAME(const void *src, size_t n, usc_sums_lanes *lanes)      \
    {                                                                                    \
        const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);                         \
        const __m512i top = _mm512_set1_epi32(0x7f800000);                               \
        __m512d low = _mm512_loadu_pd(lanes->sum);                                       \
        __m512d high = _mm512_loadu_pd(lanes->sum + 8);                                  \
        __m512d low_2 = _mm512_loadu_pd(lanes->squares);                                 \
        __m512d high_2 = _mm512_loadu_pd(lanes->squares + 8);                            \
        __m512i max = _mm512_setzero_si512();                                            \
        int64_t n_finite = 0, n_other = 0;                                               \
        for (size_t i = 0; i < n; i += 16) {                                             \
            const __m512i bits =                                                         \
                _mm512_and_si512(_mm512_castps_si512(LOAD(src, i)), magnitude);          \
            const __mmask16 finite = _mm512_cmplt_epi32_mask(bits, top);                 \
            const __m512i x = _mm512_maskz_mov_epi32(finite, bits);                      \
            max = _mm512_max_epi32(max, x);                                              \
            n_finite += _mm_popcnt_u32(finite);                                          \
            n_other += _mm_popcnt_u32(_mm512_test_epi32_mask(bits, bits));               \
            const __m512 value = _mm512_castsi512_ps(x);                                 \
            const __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(value));            \
            const __m512d b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(value, 1));         \
            low = _mm512_add_pd(low, a);                                                 \
            high = _mm512_add_pd(high, b);                                               \
            low_2 = _mm512_fmadd_pd(a, a, low_2);                                        \
            high_2 = _mm512_fmadd_pd(b, b, high_2);                                      \
        }                                                                                \
        _mm512_storeu_pd(lanes->sum, low);                                               \
        _mm512_storeu_pd(lanes->sum + 8, high);                                          \
        _mm512_storeu_pd(lanes->squares, low_2);                                         \
        _mm512_storeu_pd(lanes->squares + 8, high_2);                                    \
        if (largest(max) > lanes->max) lanes->max = largest(max);                        \
        lanes->n_nonfinite += (int64_t)n - n_finite;                                     \
        lanes->n_zero += (int64_t)n - n_other;                                           \
    }
SUMS(groups_f32, load_f32)
SUMS(groups_f16, load_f16)
SUMS(groups_bf16, load_bf16)

#define WHOLE(NAME, GROUPS, DTYPE, T)                                                    \
    static void NAME(const void *src, size_t n, usc_sums_lanes *lanes)                   \
    {                                                                                    \
        const size_t n_groups = n - n % USC_LANES;                                       \
        GROUPS(src, n_groups, lanes);                                                    \
        usc_sums_scalar(DTYPE, (const T *)src + n_groups, n - n_groups, lanes);          \
    }
WHOLE(sums_f32, groups_f32, USC_F32, float)
WHOLE(sums_f16, groups_f16, USC_F16, uint16_t)
WHOLE(sums_bf16, groups_bf16, USC_BF16, uint16_t)

/* Eight words at once; a key moves on by as many places. Two sums, for each waits for the
 * one before. */
static uint64_t mix(const void *src, size_t n_words, uint64_t first)
{
    const unsigned char *at = src;
    const size_t n_groups = n_words - n_words % 16;
    uint64_t places[8];
    for (uint64_t k = 0; k < 8; k++)
        places[k] = (first + 1 + k) * USC_MIX_STEP;
    const __m512i step = _mm512_set1_epi64((int64_t)(8 * USC_MIX_STEP));
    const __m512i steps = _mm512_add_epi64(step, step);
    __m512i keys = _mm512_loadu_si512(places), keys_2 = _mm512_add_epi64(keys, step);
    __m512i sum = _mm512_setzero_si512(), sum_2 = sum;
    for (size_t i = 0; i < n_groups; i += 16) {
        USC_PREFETCH(at + 8 * (i + n_words)); /* of the block that comes next */
        USC_PREFETCH(at + 8 * (i + n_words) + 64);
        const __m512i x = _mm512_xor_si512(_mm512_loadu_si512(at + 8 * i), keys);
        const __m512i y = _mm512_xor_si512(_mm512_loadu_si512(at + 8 * i + 64), keys_2);
        sum = _mm512_add_epi64(sum, x);
        sum_2 = _mm512_add_epi64(sum_2, y);
        sum = _mm512_add_epi64(sum, _mm512_mul_epu32(x, _mm512_srli_epi64(x, 32)));
        sum_2 = _mm512_add_epi64(sum_2, _mm512_mul_epu32(y, _mm512_srli_epi64(y, 32)));
        keys = _mm512_add_epi64(keys, steps);
        keys_2 = _mm512_add_epi64(keys_2, steps);
    }
    uint64_t lanes[8], total = 0; /* the compiler's own reduction adds signed numbers */
    _mm512_storeu_si512(lanes, _mm512_add_epi64(sum, sum_2));
    for (int i = 0; i < 8; i++)
        total += lanes[i];
    return total +
           usc_mix_scalar(at + 8 * n_groups, n_words - n_groups, first + n_groups);
}

void usc_kernels_fill_sums_avx512(usc_kernels *kernels)
{
    kernels->sums[USC_F32] = sums_f32;
    kernels->sums[USC_F16] = sums_f16;
    kernels->sums[USC_BF16] = sums_bf16;
    kernels->mix = mix;
}
#else
void usc_kernels_fill_sums_avx512(usc_kernels *kernels)
{
    (void)kernels;
}
#endif
