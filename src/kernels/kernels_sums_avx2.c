// SPDX-License-Identifier: Apache-2.0
// Magnitudes and the hash of a watch for AVX2 with FMA and F16C; compiled with their
// flags, so nothing here may run before cpu_probe.c has said yes.
#include "base/compiler.h"
#include "kernels/kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#include <string.h>

static inline __m256 load_f32(const void *src, size_t i)
{
    return _mm256_loadu_ps((const float *)src + i);
}

static inline __m256 load_f16(const void *src, size_t i)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)((const uint16_t *)src + i)));
}

static inline __m256 load_bf16(const void *src, size_t i)
{
    const __m128i half = _mm_loadu_si128((const void *)((const uint16_t *)src + i));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* Four lanes of both sums; fields of their own, so that each stays in a register. */
typedef struct sums_4 {
    __m256d sum, square;
} sums_4;

static USC_ALWAYS_INLINE void add_four(sums_4 *s, __m128 x)
{
    const __m256d wide = _mm256_cvtps_pd(x);
    s->sum = _mm256_add_pd(s->sum, wide);
    s->square = _mm256_fmadd_pd(wide, wide, s->square);
}

static USC_ALWAYS_INLINE void add_eight(sums_4 *low, sums_4 *high, __m256 x)
{
    add_four(low, _mm256_castps256_ps128(x));
    add_four(high, _mm256_extractf128_ps(x, 1));
}

static sums_4 begin(const usc_sums_lanes *lanes, int i)
{
    return (sums_4){_mm256_loadu_pd(lanes->sum + i), _mm256_loadu_pd(lanes->squares + i)};
}

static void end(const sums_4 *s, usc_sums_lanes *lanes, int i)
{
    _mm256_storeu_pd(lanes->sum + i, s->sum);
    _mm256_storeu_pd(lanes->squares + i, s->square);
}

/* `max` holds bits of magnitudes; false where one of them is not finite: it is not taken.
 */
static bool add_counts(__m256i zeros, __m256i odd, __m256i max, usc_sums_lanes *lanes)
{
    int32_t zero[8], other[8], bits[8];
    float most[8];
    bool finite = true;
    _mm256_storeu_si256((void *)zero, zeros);
    _mm256_storeu_si256((void *)other, odd);
    _mm256_storeu_si256((void *)bits, max);
    memcpy(most, bits, sizeof most);
    for (int i = 0; i < 8; i++) {
        finite &= bits[i] < 0x7f800000;
        lanes->n_zero += zero[i];
        lanes->n_nonfinite += other[i];
        if ((double)most[i] > lanes->max) lanes->max = (double)most[i];
    }
    return finite;
}

static USC_ALWAYS_INLINE __m256i is_zero(__m256 x)
{
    return _mm256_cmpeq_epi32(_mm256_castps_si256(x), _mm256_setzero_si256());
}

static USC_ALWAYS_INLINE __m256i larger(__m256i max, __m256 x)
{
    return _mm256_max_epi32(max, _mm256_castps_si256(x));
}

static USC_ALWAYS_INLINE __m256 only_finite(__m256 x, __m256i *odd)
{
    const __m256i top = _mm256_set1_epi32(0x7f7fffff);
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_castps_si256(x), top);
    *odd = _mm256_sub_epi32(*odd, mask);
    return _mm256_andnot_ps(_mm256_castsi256_ps(mask), x);
}

static USC_ALWAYS_INLINE __m256 as_it_is(__m256 x, __m256i *odd)
{
    (void)odd;
    return x;
}

/* `n` is a multiple of 16; false, with lanes left half done, where an element is not
 * finite and MASK lets it through. Masked it adds +0, which changes no sum, and is
 * counted with the zeros that it becomes. Magnitudes have the order of their bits. The
 * square of a float32 is exact in double: a fused add changes nothing. */
#define SUMS(NAME, LOAD, MASK)                                                           \
    static USC_NOINLINE bool NAME(const void *src, size_t n, usc_sums_lanes *lanes)      \
    {                                                                                    \
        const __m256 sign = _mm256_set1_ps(-0.0f);                                       \
        sums_4 a = begin(lanes, 0), b = begin(lanes, 4);                                 \
        sums_4 c = begin(lanes, 8), d = begin(lanes, 12);                                \
        __m256i zeros = _mm256_setzero_si256(), max = zeros, odd = zeros;                \
        for (size_t i = 0; i < n; i += 16) {                                             \
            const __m256 x = MASK(_mm256_andnot_ps(sign, LOAD(src, i)), &odd);           \
            const __m256 y = MASK(_mm256_andnot_ps(sign, LOAD(src, i + 8)), &odd);       \
            zeros = _mm256_sub_epi32(zeros, _mm256_add_epi32(is_zero(x), is_zero(y)));   \
            max = larger(larger(max, x), y);                                             \
            add_eight(&a, &b, x);                                                        \
            add_eight(&c, &d, y);                                                        \
        }                                                                                \
        end(&a, lanes, 0);                                                               \
        end(&b, lanes, 4);                                                               \
        end(&c, lanes, 8);                                                               \
        end(&d, lanes, 12);                                                              \
        return add_counts(_mm256_sub_epi32(zeros, odd), odd, max, lanes);                \
    }
SUMS(finite_f32, load_f32, as_it_is)
SUMS(finite_f16, load_f16, as_it_is)
SUMS(finite_bf16, load_bf16, as_it_is)
SUMS(masked_f32, load_f32, only_finite)
SUMS(masked_f16, load_f16, only_finite)
SUMS(masked_bf16, load_bf16, only_finite)

#define WHOLE(NAME, FINITE, MASKED, DTYPE, T)                                            \
    static void NAME(const void *src, size_t n, usc_sums_lanes *lanes)                   \
    {                                                                                    \
        const size_t n_groups = n - n % USC_LANES;                                       \
        const usc_sums_lanes before = *lanes;                                            \
        if (!FINITE(src, n_groups, lanes)) {                                             \
            *lanes = before;                                                             \
            (void)MASKED(src, n_groups, lanes);                                          \
        }                                                                                \
        usc_sums_scalar(DTYPE, (const T *)src + n_groups, n - n_groups, lanes);          \
    }
WHOLE(sums_f32, finite_f32, masked_f32, USC_F32, float)
WHOLE(sums_f16, finite_f16, masked_f16, USC_F16, uint16_t)
WHOLE(sums_bf16, finite_bf16, masked_bf16, USC_BF16, uint16_t)

/* What four doubles add up to, and what is counted of them. */
typedef struct wide_4 {
    sums_4 s;
    __m256d max;
    __m256i zeros, odd;
} wide_4;

/* The square of a double is not exact: a product and a sum of its own. */
static USC_ALWAYS_INLINE void add_wide(wide_4 *w, const double *at)
{
    const __m256d x = _mm256_andnot_pd(_mm256_set1_pd(-0.0), _mm256_loadu_pd(at));
    const __m256d top = _mm256_set1_pd(0x1.fffffffffffffp1023);
    const __m256d finite = _mm256_cmp_pd(x, top, _CMP_LE_OQ);
    const __m256d y = _mm256_and_pd(x, finite);
    const __m256i is_none =
        _mm256_cmpeq_epi64(_mm256_castpd_si256(x), _mm256_setzero_si256());
    w->odd = _mm256_add_epi64(w->odd, _mm256_castpd_si256(finite));
    w->zeros = _mm256_sub_epi64(w->zeros, is_none);
    w->max = _mm256_max_pd(w->max, y);
    w->s.sum = _mm256_add_pd(w->s.sum, y);
    w->s.square = _mm256_add_pd(w->s.square, _mm256_mul_pd(y, y));
}

static USC_ALWAYS_INLINE wide_4 begin_wide(const usc_sums_lanes *lanes, int i)
{
    const __m256i zero = _mm256_setzero_si256();
    return (wide_4){begin(lanes, i), _mm256_setzero_pd(), zero, zero};
}

/* `n` elements in each of the four went in: those that were finite were taken off. */
static void end_wide(const wide_4 *w, size_t n, usc_sums_lanes *lanes, int i)
{
    double most[4];
    int64_t zeros[4], odd[4];
    end(&w->s, lanes, i);
    _mm256_storeu_pd(most, w->max);
    _mm256_storeu_si256((void *)zeros, w->zeros);
    _mm256_storeu_si256((void *)odd, w->odd);
    for (int k = 0; k < 4; k++) {
        lanes->n_zero += zeros[k];
        lanes->n_nonfinite += (int64_t)n + odd[k];
        if (most[k] > lanes->max) lanes->max = most[k];
    }
}

static void sums_f64(const void *src, size_t n, usc_sums_lanes *lanes)
{
    const double *x = src;
    const size_t n_groups = n - n % USC_LANES;
    wide_4 a = begin_wide(lanes, 0), b = begin_wide(lanes, 4);
    wide_4 c = begin_wide(lanes, 8), d = begin_wide(lanes, 12);
    for (size_t i = 0; i < n_groups; i += USC_LANES) {
        add_wide(&a, x + i);
        add_wide(&b, x + i + 4);
        add_wide(&c, x + i + 8);
        add_wide(&d, x + i + 12);
    }
    end_wide(&a, n_groups / USC_LANES, lanes, 0);
    end_wide(&b, n_groups / USC_LANES, lanes, 4);
    end_wide(&c, n_groups / USC_LANES, lanes, 8);
    end_wide(&d, n_groups / USC_LANES, lanes, 12);
    usc_sums_scalar(USC_F64, x + n_groups, n - n_groups, lanes);
}

/* Four words at once; a key moves on by as many places. Two sums, for each waits for the
 * one before. */
static uint64_t mix(const void *src, size_t n_words, uint64_t first)
{
    const unsigned char *at = src;
    const size_t n_groups = n_words - n_words % 8;
    const uint64_t key = (first + 1) * USC_MIX_STEP;
    __m256i keys = _mm256_setr_epi64x((int64_t)key, (int64_t)(key + USC_MIX_STEP),
                                      (int64_t)(key + 2 * USC_MIX_STEP),
                                      (int64_t)(key + 3 * USC_MIX_STEP));
    const __m256i step = _mm256_set1_epi64x((int64_t)(4 * USC_MIX_STEP));
    __m256i keys_2 = _mm256_add_epi64(keys, step);
    const __m256i steps = _mm256_add_epi64(step, step);
    __m256i sum = _mm256_setzero_si256(), sum_2 = sum;
    for (size_t i = 0; i < n_groups; i += 8) {
        USC_PREFETCH(at + 8 * (i + n_words)); /* of the block that comes next */
        const __m256i x =
            _mm256_xor_si256(_mm256_loadu_si256((const void *)(at + 8 * i)), keys);
        const __m256i y =
            _mm256_xor_si256(_mm256_loadu_si256((const void *)(at + 8 * i + 32)), keys_2);
        sum = _mm256_add_epi64(sum, x);
        sum_2 = _mm256_add_epi64(sum_2, y);
        sum = _mm256_add_epi64(sum, _mm256_mul_epu32(x, _mm256_srli_epi64(x, 32)));
        sum_2 = _mm256_add_epi64(sum_2, _mm256_mul_epu32(y, _mm256_srli_epi64(y, 32)));
        keys = _mm256_add_epi64(keys, steps);
        keys_2 = _mm256_add_epi64(keys_2, steps);
    }
    uint64_t parts[4];
    _mm256_storeu_si256((void *)parts, _mm256_add_epi64(sum, sum_2));
    return parts[0] + parts[1] + parts[2] + parts[3] +
           usc_mix_scalar(at + 8 * n_groups, n_words - n_groups, first + n_groups);
}

void usc_kernels_fill_sums_avx2(usc_kernels *kernels)
{
    kernels->sums[USC_F32] = sums_f32;
    kernels->sums[USC_F16] = sums_f16;
    kernels->sums[USC_BF16] = sums_bf16;
    kernels->sums[USC_F64] = sums_f64;
    kernels->mix = mix;
}
#else
void usc_kernels_fill_sums_avx2(usc_kernels *kernels)
{
    (void)kernels;
}
#endif
