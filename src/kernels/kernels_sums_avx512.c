// SPDX-License-Identifier: Apache-2.0
// Magnitudes and the hash of a watch for AVX-512 (F, BW, DQ, VL): the sixteen lanes of
// the definition are two registers. Nothing here may run before cpu_probe.c has said yes.
#include "base/compiler.h"
#include "kernels/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__)
#include <immintrin.h>

/* Eight lanes of both sums. */
typedef struct sums_8 {
    __m512d sum, square;
} sums_8;

/* What is counted of 64 bytes at a time: in the lanes of the elements' own width. */
typedef struct counts {
    __m512i max, zeros;
} counts;

static USC_ALWAYS_INLINE void add_eight(sums_8 *s, __m256 x)
{
    const __m512d wide = _mm512_cvtps_pd(x);
    s->sum = _mm512_add_pd(s->sum, wide);
    s->square = _mm512_fmadd_pd(wide, wide, s->square);
}

static USC_ALWAYS_INLINE void add_sixteen(sums_8 *low, sums_8 *high, __m512i bits)
{
    const __m512 x = _mm512_castsi512_ps(bits);
    add_eight(low, _mm512_castps512_ps256(x));
    add_eight(high, _mm512_extractf32x8_ps(x, 1));
}

static sums_8 begin(const usc_sums_lanes *lanes, int i)
{
    return (sums_8){_mm512_loadu_pd(lanes->sum + i), _mm512_loadu_pd(lanes->squares + i)};
}

static void end(const sums_8 *s, usc_sums_lanes *lanes, int i)
{
    _mm512_storeu_pd(lanes->sum + i, s->sum);
    _mm512_storeu_pd(lanes->squares + i, s->square);
}

static USC_ALWAYS_INLINE void count_32(counts *c, __m512i magnitude)
{
    const __mmask16 none = _mm512_testn_epi32_mask(magnitude, magnitude);
    c->max = _mm512_max_epi32(c->max, magnitude);
    c->zeros = _mm512_mask_sub_epi32(c->zeros, none, c->zeros, _mm512_set1_epi32(-1));
}

static USC_ALWAYS_INLINE void count_16(counts *c, __m512i magnitude)
{
    const __mmask32 none = _mm512_testn_epi16_mask(magnitude, magnitude);
    c->max = _mm512_max_epu16(c->max, magnitude);
    c->zeros = _mm512_mask_sub_epi16(c->zeros, none, c->zeros, _mm512_set1_epi16(-1));
}

/* The largest of 32 numbers of 16 bits, and their sum, which a block does not overflow.
 */
static uint16_t take_16(const counts *c, usc_sums_lanes *lanes)
{
    uint16_t most[32], zeros[32], largest = 0;
    _mm512_storeu_si512(most, c->max);
    _mm512_storeu_si512(zeros, c->zeros);
    for (int i = 0; i < 32; i++) {
        lanes->n_zero += zeros[i];
        if (most[i] > largest) largest = most[i];
    }
    return largest;
}

static void take_max(double max, usc_sums_lanes *lanes)
{
    if (max > lanes->max) lanes->max = max;
}

/* Each of these: `n` is a multiple of their step; false, with lanes left half done, where
 * an element is not finite. Magnitudes have the order of their bits. The square of a
 * float32 is exact in double: a fused add changes nothing. */
static USC_NOINLINE bool finite_f32(const void *src, size_t n, usc_sums_lanes *lanes)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    sums_8 low = begin(lanes, 0), high = begin(lanes, 8);
    counts c = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    for (size_t i = 0; i < n; i += 16) {
        const __m512i bits =
            _mm512_and_si512(_mm512_loadu_si512((const float *)src + i), magnitude);
        count_32(&c, bits);
        add_sixteen(&low, &high, bits);
    }
    end(&low, lanes, 0);
    end(&high, lanes, 8);
    lanes->n_zero += _mm512_reduce_add_epi32(c.zeros);
    const int32_t max = _mm512_reduce_max_epi32(c.max);
    take_max((double)_mm512_reduce_max_ps(_mm512_castsi512_ps(c.max)), lanes);
    return max < 0x7f800000;
}

/* Eight of 16 numbers. */
static inline __m512d chosen(const double *from, __m512i places)
{
    return _mm512_permutex2var_pd(_mm512_loadu_pd(from), places,
                                  _mm512_loadu_pd(from + 8));
}

static inline void interleave(__m512d even, __m512d odd, double *to)
{
    const __m512i first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
    const __m512i second = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    _mm512_storeu_pd(to, _mm512_permutex2var_pd(even, first, odd));
    _mm512_storeu_pd(to + 8, _mm512_permutex2var_pd(even, second, odd));
}

/* Of 32 elements those with even places lie in the low halves of words, the others in the
 * high ones: lanes 0, 2, 4, ... and 1, 3, 5, ... twice, in their order. */
static USC_NOINLINE bool finite_bf16(const void *src, size_t n, usc_sums_lanes *lanes)
{
    const __m512i magnitude = _mm512_set1_epi16(0x7fff);
    const __m512i upper = _mm512_set1_epi32(0x7fff0000);
    const __m512i evens = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
    const __m512i odds = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
    sums_8 even = {chosen(lanes->sum, evens), chosen(lanes->squares, evens)};
    sums_8 odd = {chosen(lanes->sum, odds), chosen(lanes->squares, odds)};
    counts c = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    for (size_t i = 0; i < n; i += 32) {
        const __m512i bits =
            _mm512_and_si512(_mm512_loadu_si512((const uint16_t *)src + i), magnitude);
        count_16(&c, bits);
        add_sixteen(&even, &even, _mm512_slli_epi32(bits, 16));
        add_sixteen(&odd, &odd, _mm512_and_si512(bits, upper));
    }
    interleave(even.sum, odd.sum, lanes->sum);
    interleave(even.square, odd.square, lanes->squares);
    const uint16_t max = take_16(&c, lanes);
    take_max((double)_mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(max << 16))),
             lanes);
    return max < 0x7f80;
}

static USC_NOINLINE bool finite_f16(const void *src, size_t n, usc_sums_lanes *lanes)
{
    const __m512i magnitude = _mm512_set1_epi16(0x7fff);
    sums_8 low = begin(lanes, 0), high = begin(lanes, 8);
    counts c = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    for (size_t i = 0; i < n; i += 32) {
        const __m512i bits =
            _mm512_and_si512(_mm512_loadu_si512((const uint16_t *)src + i), magnitude);
        const __m512 x = _mm512_cvtph_ps(_mm512_castsi512_si256(bits));
        const __m512 y = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(bits, 1));
        count_16(&c, bits);
        add_sixteen(&low, &high, _mm512_castps_si512(x));
        add_sixteen(&low, &high, _mm512_castps_si512(y));
    }
    end(&low, lanes, 0);
    end(&high, lanes, 8);
    const uint16_t max = take_16(&c, lanes);
    take_max((double)_cvtsh_ss(max), lanes);
    return max < 0x7c00;
}

/* Where an element of a block is not finite the definition does all of it. */
#define WHOLE(NAME, FINITE, STEP, DTYPE, T)                                              \
    static void NAME(const void *src, size_t n, usc_sums_lanes *lanes)                   \
    {                                                                                    \
        size_t n_groups = n - n % STEP;                                                  \
        const usc_sums_lanes before = *lanes;                                            \
        if (!FINITE(src, n_groups, lanes)) {                                             \
            *lanes = before;                                                             \
            n_groups = 0;                                                                \
        }                                                                                \
        usc_sums_scalar(DTYPE, (const T *)src + n_groups, n - n_groups, lanes);          \
    }
WHOLE(sums_f32, finite_f32, 16, USC_F32, float)
WHOLE(sums_f16, finite_f16, 32, USC_F16, uint16_t)
WHOLE(sums_bf16, finite_bf16, 32, USC_BF16, uint16_t)

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
