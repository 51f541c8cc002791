// SPDX-License-Identifier: Apache-2.0
// The kernels for AVX2 with FMA and F16C; compiled with their flags, so nothing here may
// run before cpu_probe.c has said yes, and nothing inline is shared with other units.
#include "base/compiler.h"
#include "kernels/kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "kernels/float8.h"

#include <immintrin.h>
#include <math.h>

/* The definition, for the elements behind the last full group of lanes. */
static usc_kernels scalar;

static __m256 load_f32(const float *src)
{
    return _mm256_loadu_ps(src);
}

static __m256 load_f16(const uint16_t *src)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)src));
}

static __m256 load_bf16(const uint16_t *src)
{
    const __m128i half = _mm_loadu_si128((const __m128i *)(const void *)src);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

static int64_t sum_epi32(__m256i v)
{
    int32_t parts[8];
    _mm256_storeu_si256((__m256i *)(void *)parts, v);
    int64_t sum = 0;
    for (int i = 0; i < 8; i++)
        sum += parts[i];
    return sum;
}

static int64_t sum_epi64(__m256i v)
{
    int64_t parts[4];
    _mm256_storeu_si256((__m256i *)(void *)parts, v);
    return parts[0] + parts[1] + parts[2] + parts[3];
}

static void add_range_ps(__m256 min, __m256 max, usc_stats_lanes *lanes)
{
    float low[8], high[8];
    _mm256_storeu_ps(low, min);
    _mm256_storeu_ps(high, max);
    for (int i = 0; i < 8; i++) {
        if ((double)low[i] < lanes->min) lanes->min = (double)low[i];
        if ((double)high[i] > lanes->max) lanes->max = (double)high[i];
    }
}

static void add_range_pd(__m256d min, __m256d max, usc_stats_lanes *lanes)
{
    double low[4], high[4];
    _mm256_storeu_pd(low, min);
    _mm256_storeu_pd(high, max);
    for (int i = 0; i < 4; i++) {
        if (low[i] < lanes->min) lanes->min = low[i];
        if (high[i] > lanes->max) lanes->max = high[i];
    }
}

/* A NaN or Inf among the elements shows in the sums of squares. */
static bool lanes_finite(const usc_stats_lanes *lanes)
{
    bool finite = true;
    for (int i = 0; i < USC_LANES; i++)
        finite &= lanes->squares[i] <= 0x1.fffffffffffffp1023;
    return finite;
}

static __m256i magnitude_bits(__m256 x)
{
    return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
}

/* The sums of a block, lane by lane; fields of their own, so that each stays in a
 * register. */
typedef struct sums_16 {
    __m256d sum_0, sum_1, sum_2, sum_3;
    __m256d square_0, square_1, square_2, square_3;
} sums_16;

static inline sums_16 sums_begin(const usc_stats_lanes *lanes)
{
    return (sums_16){
        .sum_0 = _mm256_loadu_pd(lanes->sum),
        .sum_1 = _mm256_loadu_pd(lanes->sum + 4),
        .sum_2 = _mm256_loadu_pd(lanes->sum + 8),
        .sum_3 = _mm256_loadu_pd(lanes->sum + 12),
        .square_0 = _mm256_loadu_pd(lanes->squares),
        .square_1 = _mm256_loadu_pd(lanes->squares + 4),
        .square_2 = _mm256_loadu_pd(lanes->squares + 8),
        .square_3 = _mm256_loadu_pd(lanes->squares + 12),
    };
}

static inline void sums_add_four(__m256d *sum, __m256d *square, __m128 x)
{
    const __m256d wide = _mm256_cvtps_pd(x);
    *sum = _mm256_add_pd(*sum, wide);
    *square = _mm256_fmadd_pd(wide, wide, *square);
}

static inline void sums_add(sums_16 *s, __m128 a, __m128 b, __m128 c, __m128 d)
{
    sums_add_four(&s->sum_0, &s->square_0, a);
    sums_add_four(&s->sum_1, &s->square_1, b);
    sums_add_four(&s->sum_2, &s->square_2, c);
    sums_add_four(&s->sum_3, &s->square_3, d);
}

static inline void sums_end(const sums_16 *s, usc_stats_lanes *lanes)
{
    _mm256_storeu_pd(lanes->sum, s->sum_0);
    _mm256_storeu_pd(lanes->sum + 4, s->sum_1);
    _mm256_storeu_pd(lanes->sum + 8, s->sum_2);
    _mm256_storeu_pd(lanes->sum + 12, s->sum_3);
    _mm256_storeu_pd(lanes->squares, s->square_0);
    _mm256_storeu_pd(lanes->squares + 4, s->square_1);
    _mm256_storeu_pd(lanes->squares + 8, s->square_2);
    _mm256_storeu_pd(lanes->squares + 12, s->square_3);
}

static __m128 low_half(__m256 x)
{
    return _mm256_castps256_ps128(x);
}

static __m128 high_half(__m256 x)
{
    return _mm256_extractf128_ps(x, 1);
}

/* Number of lanes whose sign bit is set. */
static int count_signs(__m256 mask)
{
    return _mm_popcnt_u32((unsigned)_mm256_movemask_ps(mask));
}

/* Eight elements with 0 for those that are not finite, which are counted. */
static inline __m256 only_finite(__m256 x, usc_stats_lanes *lanes, __m256 *min,
                                 __m256 *max)
{
    const __m256 pos = _mm256_set1_ps(INFINITY), neg = _mm256_set1_ps(-INFINITY);
    const __m256i bits = magnitude_bits(x);
    const __m256 finite =
        _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(0x7f800000), bits));
    if (_mm256_movemask_ps(finite) != 0xff) {
        lanes->n_nan += count_signs(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
        lanes->n_pos_inf += count_signs(_mm256_cmp_ps(x, pos, _CMP_EQ_OQ));
        lanes->n_neg_inf += count_signs(_mm256_cmp_ps(x, neg, _CMP_EQ_OQ));
    }
    *min = _mm256_min_ps(*min, _mm256_blendv_ps(pos, x, finite));
    *max = _mm256_max_ps(*max, _mm256_blendv_ps(neg, x, finite));
    return _mm256_and_ps(x, finite);
}

/* Loading halves a second time is cheaper than taking a register apart. */
#define T float
#define LOAD load_f32
#define LOW(src, x) _mm_loadu_ps(src)
#define HIGH(src, x) _mm_loadu_ps((src) + 4)
#define TINY 0x00800000
#define DTYPE USC_F32
#define FINITE finite_f32
#define MASKED masked_f32
#define TINIES tinies_f32
#define RANGE range_f32
#define NAME stats_f32
#include "kernels/stats_avx2.inc"

#define T uint16_t
#define LOAD load_bf16
#define LOW(src, x) low_half(x)
#define HIGH(src, x) high_half(x)
#define TINY 0x00800000
#define DTYPE USC_BF16
#define FINITE finite_bf16
#define MASKED masked_bf16
#define TINIES tinies_bf16
#define RANGE range_bf16
#define NAME stats_bf16
#include "kernels/stats_avx2.inc"

#define T uint16_t
#define LOAD load_f16
#define LOW(src, x) low_half(x)
#define HIGH(src, x) high_half(x)
#define TINY 0x38800000
#define DTYPE USC_F16
#define FINITE finite_f16
#define MASKED masked_f16
#define TINIES tinies_f16
#define RANGE range_f16
#define NAME stats_f16
#include "kernels/stats_avx2.inc"

typedef struct wide_state {
    __m256d sum, squares, min, max;
    __m256i zeros, tinies;
} wide_state;

/* Four finite doubles; product and sum are rounded apart, as in the definition. */
static inline void add_four(const double *src, wide_state *s)
{
    const __m256d x = _mm256_loadu_pd(src);
    const __m256d magnitude = _mm256_andnot_pd(_mm256_set1_pd(-0.0), x);
    const __m256d zero = _mm256_cmp_pd(x, _mm256_setzero_pd(), _CMP_EQ_OQ);
    const __m256d tiny = _mm256_cmp_pd(magnitude, _mm256_set1_pd(0x1p-1022), _CMP_LT_OQ);
    s->zeros = _mm256_sub_epi64(s->zeros, _mm256_castpd_si256(zero));
    s->tinies = _mm256_sub_epi64(s->tinies, _mm256_castpd_si256(tiny));
    s->min = _mm256_min_pd(s->min, x);
    s->max = _mm256_max_pd(s->max, x);
    s->sum = _mm256_add_pd(s->sum, x);
    s->squares = _mm256_add_pd(s->squares, _mm256_mul_pd(x, x));
}

static wide_state wide_begin(const double *sum, const double *squares)
{
    return (wide_state){
        .sum = _mm256_loadu_pd(sum),
        .squares = _mm256_loadu_pd(squares),
        .min = _mm256_set1_pd((double)INFINITY),
        .max = _mm256_set1_pd(-(double)INFINITY),
        .zeros = _mm256_setzero_si256(),
        .tinies = _mm256_setzero_si256(),
    };
}

static void wide_end(const wide_state *s, double *sum, double *squares,
                     usc_stats_lanes *lanes)
{
    _mm256_storeu_pd(sum, s->sum);
    _mm256_storeu_pd(squares, s->squares);
    add_range_pd(s->min, s->max, lanes);
    const int64_t n_zero = sum_epi64(s->zeros);
    lanes->n_zero += n_zero;
    lanes->n_subnormal += sum_epi64(s->tinies) - n_zero;
}

static void stats_f64(const void *src, size_t n, usc_stats_lanes *lanes)
{
    const double *at = src;
    const size_t n_groups = n - n % USC_LANES;
    usc_stats_lanes trial = *lanes;
    wide_state s = wide_begin(trial.sum, trial.squares);
    wide_state t = wide_begin(trial.sum + 4, trial.squares + 4);
    wide_state u = wide_begin(trial.sum + 8, trial.squares + 8);
    wide_state v = wide_begin(trial.sum + 12, trial.squares + 12);
    for (size_t i = 0; i < n_groups; i += USC_LANES) {
        add_four(at + i, &s);
        add_four(at + i + 4, &t);
        add_four(at + i + 8, &u);
        add_four(at + i + 12, &v);
    }
    wide_end(&s, trial.sum, trial.squares, &trial);
    wide_end(&t, trial.sum + 4, trial.squares + 4, &trial);
    wide_end(&u, trial.sum + 8, trial.squares + 8, &trial);
    wide_end(&v, trial.sum + 12, trial.squares + 12, &trial);
    if (lanes_finite(&trial))
        *lanes = trial;
    else /* rare in float64, so the definition itself serves */
        scalar.stats[USC_F64](at, n_groups, lanes);
    scalar.stats[USC_F64](at + n_groups, n - n_groups, lanes);
}

static void range_f64(const void *src, size_t n, usc_stats_lanes *lanes)
{
    enum { AT_ONCE = 8 };
    const double *at = src;
    const size_t n_groups = n - n % AT_ONCE;
    const __m256d zero = _mm256_setzero_pd();
    __m256d min = _mm256_set1_pd((double)INFINITY),
            max = _mm256_set1_pd(-(double)INFINITY);
    __m256d nan = zero, nan_2 = zero;
    for (size_t i = 0; i < n_groups; i += AT_ONCE) {
        const __m256d a = _mm256_loadu_pd(at + i), b = _mm256_loadu_pd(at + i + 4);
        nan = _mm256_fmadd_pd(a, zero, nan);
        nan_2 = _mm256_fmadd_pd(b, zero, nan_2);
        min = _mm256_min_pd(min, _mm256_min_pd(a, b));
        max = _mm256_max_pd(max, _mm256_max_pd(a, b));
    }
    const __m256d any = _mm256_add_pd(nan, nan_2);
    size_t n_done = n_groups;
    if (_mm256_movemask_pd(_mm256_cmp_pd(any, any, _CMP_UNORD_Q)) != 0)
        n_done = 0; /* rare in float64, so the definition itself serves */
    else
        add_range_pd(min, max, lanes);
    scalar.range[USC_F64](at + n_done, n - n_done, lanes);
}

static inline void store_widened(__m256 x, double *dst)
{
    _mm256_storeu_pd(dst, _mm256_cvtps_pd(_mm256_castps256_ps128(x)));
    _mm256_storeu_pd(dst + 4, _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)));
}

static void widen_f32(const void *src, double *dst, size_t n)
{
    const float *s = src;
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        store_widened(load_f32(s + i), dst + i);
    scalar.widen[USC_F32](s + i, dst + i, n - i);
}

static void widen_f16(const void *src, double *dst, size_t n)
{
    const uint16_t *s = src;
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        store_widened(load_f16(s + i), dst + i);
    scalar.widen[USC_F16](s + i, dst + i, n - i);
}

static void widen_bf16(const void *src, double *dst, size_t n)
{
    const uint16_t *s = src;
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        store_widened(load_bf16(s + i), dst + i);
    scalar.widen[USC_BF16](s + i, dst + i, n - i);
}

static USC_ALWAYS_INLINE void widen_f8(usc_dtype dtype, const uint8_t *s, double *dst,
                                       size_t n)
{
    const __m256 factor = _mm256_set1_ps(usc_half_factor(dtype));
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(s + i));
        const __m256 x = _mm256_cvtph_ps(usc_half_of_bytes(dtype, bytes));
        store_widened(_mm256_mul_ps(x, factor), dst + i);
    }
    scalar.widen[dtype](s + i, dst + i, n - i);
}

static void widen_e5m2(const void *src, double *dst, size_t n)
{
    widen_f8(USC_F8_E5M2, src, dst, n);
}

static void widen_e4m3(const void *src, double *dst, size_t n)
{
    widen_f8(USC_F8_E4M3, src, dst, n);
}

bool usc_kernels_fill_avx2(usc_kernels *kernels)
{
    usc_kernels_fill_scalar(&scalar);
    kernels->widen[USC_F8_E5M2] = widen_e5m2;
    kernels->widen[USC_F8_E4M3] = widen_e4m3;
    kernels->widen[USC_F32] = widen_f32;
    kernels->widen[USC_F16] = widen_f16;
    kernels->widen[USC_BF16] = widen_bf16;
    kernels->stats[USC_F64] = stats_f64;
    kernels->stats[USC_F32] = stats_f32;
    kernels->stats[USC_F16] = stats_f16;
    kernels->stats[USC_BF16] = stats_bf16;
    kernels->range[USC_F64] = range_f64;
    kernels->range[USC_F32] = range_f32;
    kernels->range[USC_F16] = range_f16;
    kernels->range[USC_BF16] = range_bf16;
    return true;
}

#else

bool usc_kernels_fill_avx2(usc_kernels *kernels)
{
    (void)kernels;
    return false;
}

#endif
