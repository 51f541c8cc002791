// SPDX-License-Identifier: Apache-2.0
// Statistics against a slow obvious definition in long double, over dtypes, sizes,
// offsets and strides, and equal bits on every instruction set and thread count.
#include <ulpscope/stats.h>
#include <ulpscope/trace.h>
#include <ulpscope/x/kernels.h>

// cmocka wants these in front of it
#include <setjmp.h>
#include <stdarg.h>
// and then itself
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_N = 300000 };
static unsigned char memory[8 * (MAX_N + 64)];
static uint64_t seed = 20261121;

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed * 0x2545f4914f6cdd1du;
}

static const double specials[] = {0.0,
                                  -0.0,
                                  1.0,
                                  -1.0,
                                  (double)INFINITY,
                                  -(double)INFINITY,
                                  (double)NAN,
                                  0x1p-126,
                                  0x1p-127,
                                  -0x1p-149,
                                  0x1p-14,
                                  0x1p-15,
                                  1e38,
                                  -0x1p-133,
                                  0x1p-1030,
                                  65504.0,
                                  255.0,
                                  -128.0};

static double random_value(int mode)
{
    const uint64_t r = next_random();
    if (mode == 1 && r % 5 == 0)
        return specials[(r >> 8) % (sizeof specials / sizeof specials[0])];
    return ldexp((double)(int64_t)(r >> 11) - 0x1p52, (int)(r % 20) - 56);
}

/* Mode 0: finite and usual; 1: with special values in between. */
static void fill(usc_dtype dtype, size_t n, int mode)
{
    const size_t size = usc_dtype_info_of(dtype)->size;
    for (size_t i = 0; i < n; i++) {
        double x = random_value(mode) * (size > 2 ? 100.0 : 5.0);
        /* beyond 2^53 the definition below, which widens, would round integers */
        if (usc_dtype_info_of(dtype)->kind != USC_KIND_FLOAT)
            x = fmin(fmax(x, -1e15), 1e15);
        usc_dtype_narrow(dtype, &x, memory + i * size, 1);
    }
}

static double element(const usc_tensor *t, int64_t index)
{
    int64_t offset = 0;
    for (int i = t->ndim - 1; i >= 0; i--) {
        offset += index % t->sizes[i] * t->strides[i];
        index /= t->sizes[i];
    }
    double x;
    const int64_t size = (int64_t)usc_dtype_info_of(t->dtype)->size;
    usc_dtype_widen(t->dtype, (const char *)t->data + offset * size, &x, 1);
    return x;
}

static int64_t numel_of(const usc_tensor *t)
{
    int64_t n;
    assert_int_equal(usc_tensor_numel(t, &n, NULL), USC_OK);
    return n;
}

static void assert_near(double got, long double want, long double scale)
{
    if (isnan(want))
        assert_true(isnan(got));
    else
        assert_true(fabsl((long double)got - want) <= 1e-13L * scale);
}

static void naive_counts(const usc_tensor *t, usc_stats *want, long double *absolute)
{
    const usc_dtype_info *info = usc_dtype_info_of(t->dtype);
    long double sum = 0, squares = 0;
    int64_t n_finite = 0;
    want->n = numel_of(t);
    want->min = want->max = (double)NAN;
    want->sorted = info->kind != USC_KIND_FLOAT;
    for (int64_t i = 0; i < want->n; i++) {
        const double x = element(t, i);
        if (i > 0 && x < element(t, i - 1)) want->sorted = false;
        want->n_nan += isnan(x) != 0;
        want->n_pos_inf += isinf(x) && x > 0;
        want->n_neg_inf += isinf(x) && x < 0;
        if (!isfinite(x)) continue;
        n_finite++;
        want->n_zero += fpclassify(x) == FP_ZERO;
        want->n_subnormal += info->kind == USC_KIND_FLOAT && fabs(x) > 0.0 &&
                             fabs(x) < ldexp(1.0, info->emin);
        want->min = fmin(want->min, x);
        want->max = fmax(want->max, x);
        sum += (long double)x;
        squares += (long double)x * (long double)x;
        *absolute += fabsl((long double)x);
        if (fabs(x) > 0.0) {
            int exponent;
            (void)frexp(x, &exponent);
            int bin = exponent - 1 - USC_BINADE_MIN;
            bin = bin < 0 ? 0 : bin >= USC_N_BINADES ? USC_N_BINADES - 1 : bin;
            want->histogram[x < 0.0][bin]++;
            want->n_histogram++;
        }
    }
    want->mean = n_finite > 0 ? (double)(sum / n_finite) : (double)NAN;
    *absolute = n_finite > 0 ? *absolute / n_finite : 0;
    want->l2 = (double)sqrtl(squares);
}

static void check_range(const usc_tensor *t, const usc_stats *all)
{
    const usc_range want = usc_range_of(all);
    usc_range got;
    for (int level = 0; level < 2; level++) {
        assert_int_equal(usc_kernels_select(level == 0 ? "scalar" : "auto", NULL),
                         USC_OK);
        assert_int_equal(usc_range_compute(t, &got, NULL), USC_OK);
        assert_memory_equal(&got, &want, sizeof got);
    }
}

static void check(const usc_tensor *t, bool full_histogram)
{
    usc_stats got, want = {0};
    usc_error err;
    long double absolute = 0;
    assert_int_equal(usc_stats_compute(t, NULL, &got, &err), USC_OK);
    check_range(t, &got);
    naive_counts(t, &want, &absolute);
    assert_int_equal(got.n, want.n);
    assert_int_equal(got.n_nan, want.n_nan);
    assert_int_equal(got.n_pos_inf, want.n_pos_inf);
    assert_int_equal(got.n_neg_inf, want.n_neg_inf);
    assert_int_equal(got.n_zero, want.n_zero);
    assert_int_equal(got.n_subnormal, want.n_subnormal);
    assert_near(got.min, (long double)want.min, 0);
    assert_near(got.max, (long double)want.max, 0);
    assert_near(got.mean, (long double)want.mean, absolute);
    assert_near(got.l2, (long double)want.l2, (long double)want.l2);
    assert_int_equal(got.sorted, want.sorted);
    if (!full_histogram) return;
    assert_int_equal(got.n_histogram, want.n_histogram);
    assert_memory_equal(got.histogram, want.histogram, sizeof got.histogram);
}

static usc_tensor vector(usc_dtype dtype, int64_t n, int64_t offset, int64_t stride)
{
    const int64_t size = (int64_t)usc_dtype_info_of(dtype)->size;
    return (usc_tensor){.data = memory + offset * size,
                        .dtype = dtype,
                        .ndim = 1,
                        .sizes = {n},
                        .strides = {stride}};
}

static const int64_t lengths[] = {0, 1, 7, 8, 9, 511, 512, 513, 4095, 4096, 4097, 20000};
enum { N_LENGTHS = sizeof lengths / sizeof lengths[0] };

static void test_all_dtypes_sizes_offsets(void **state)
{
    (void)state;
    printf("seed %llu\n", (unsigned long long)seed);
    for (int d = 1; d < USC_N_DTYPES; d++)
        for (int mode = 0; mode < 2; mode++) {
            fill((usc_dtype)d, 20016, mode);
            for (int i = 0; i < N_LENGTHS; i++)
                for (int offset = 0; offset < (lengths[i] < 600 ? 8 : 2); offset++) {
                    const usc_tensor t = vector((usc_dtype)d, lengths[i], offset, 1);
                    check(&t, lengths[i] <= 8192); /* above, it is sampled */
                }
        }
}

static void test_strides(void **state)
{
    (void)state;
    for (int d = 1; d < USC_N_DTYPES; d++) {
        fill((usc_dtype)d, 20000, 1);
        const int64_t steps[] = {2, 3, 17};
        for (int i = 0; i < 3; i++) {
            usc_tensor t = vector((usc_dtype)d, 1100, 0, steps[i]);
            check(&t, true);
            t = vector((usc_dtype)d, 1100, 1099 * steps[i], -steps[i]);
            check(&t, true);
        }
        usc_tensor t = vector((usc_dtype)d, 5000, 4999, -1);
        check(&t, true);
        t = (usc_tensor){.data = memory,
                         .dtype = (usc_dtype)d,
                         .ndim = 4,
                         .sizes = {5, 1, 6, 40},
                         .strides = {300, 7, 1, 7}};
        check(&t, true);
        t.ndim = 0;
        check(&t, true);
    }
}

static void test_broadcast_axes_count_by_repetition(void **state)
{
    (void)state;
    for (int d = 1; d < USC_N_DTYPES; d++) {
        fill((usc_dtype)d, 2000, 1);
        usc_tensor t = {.data = memory,
                        .dtype = (usc_dtype)d,
                        .ndim = 3,
                        .sizes = {4, 30, 5},
                        .strides = {0, 1, 0}};
        check(&t, false);
        t.strides[1] = 0;
        check(&t, false);
    }
}

static bool same_bits(const usc_stats *a, const usc_stats *b)
{
    /* field by field where padding could differ */
    return memcmp(a, b, offsetof(usc_stats, sorted)) == 0 && a->sorted == b->sorted &&
           a->unique == b->unique && a->n_histogram == b->n_histogram &&
           memcmp(a->histogram, b->histogram, sizeof a->histogram) == 0;
}

static void check_same_bits(const usc_tensor *t)
{
    usc_stats want, got;
    assert_int_equal(usc_kernels_select("scalar", NULL), USC_OK);
    assert_int_equal(usc_stats_compute(t, NULL, &want, NULL), USC_OK);
    for (int level = 0; level < 2; level++) {
        assert_int_equal(usc_kernels_select(level == 0 ? "scalar" : "auto", NULL),
                         USC_OK);
        for (int n_threads = 1; n_threads <= 3; n_threads++) {
            const usc_stats_options options = {.n_threads = n_threads};
            assert_int_equal(usc_stats_compute(t, &options, &got, NULL), USC_OK);
            assert_true(same_bits(&got, &want));
        }
    }
}

static void test_equal_bits_on_every_isa_and_thread_count(void **state)
{
    (void)state;
    for (int d = 1; d < USC_N_DTYPES; d++)
        for (int mode = 0; mode < 2; mode++) {
            fill((usc_dtype)d, MAX_N, mode);
            for (int i = 0; i < N_LENGTHS; i++) {
                const usc_tensor t = vector((usc_dtype)d, lengths[i], 3, 1);
                check_same_bits(&t);
            }
            usc_tensor t = vector((usc_dtype)d, MAX_N, 0, 1);
            check_same_bits(&t);
            t = vector((usc_dtype)d, MAX_N / 2, MAX_N - 1, -2);
            check_same_bits(&t);
        }
}

static void test_transposed_has_the_bits_of_the_original(void **state)
{
    (void)state;
    fill(USC_F32, 70 * 90, 0);
    const usc_tensor t = {.data = memory,
                          .dtype = USC_F32,
                          .ndim = 2,
                          .sizes = {70, 90},
                          .strides = {90, 1}};
    const usc_tensor turned = {.data = memory,
                               .dtype = USC_F32,
                               .ndim = 2,
                               .sizes = {90, 70},
                               .strides = {1, 90}};
    usc_stats a, b;
    assert_int_equal(usc_stats_compute(&t, NULL, &a, NULL), USC_OK);
    assert_int_equal(usc_stats_compute(&turned, NULL, &b, NULL), USC_OK);
    assert_true(same_bits(&a, &b));
}

static void test_histogram_is_sampled_beyond_the_limit(void **state)
{
    (void)state;
    float *x = (float *)(void *)memory;
    for (int i = 0; i < MAX_N; i++)
        x[i] = (i / 512) % 37 == 0 ? 4.0f : -1.0f;
    const usc_tensor t = vector(USC_F32, MAX_N, 0, 1);
    usc_stats s;
    assert_int_equal(usc_stats_compute(&t, NULL, &s, NULL), USC_OK);
    /* 586 samples of 512, so every 37th is counted: 16 */
    assert_int_equal(s.n_histogram, s.histogram[0][2 - USC_BINADE_MIN]);
    assert_int_equal(s.n_histogram, 16 * 512);
    const usc_stats_options options = {.no_histogram = true};
    assert_int_equal(usc_stats_compute(&t, &options, &s, NULL), USC_OK);
    assert_int_equal(s.n_histogram, 0);
}

static void test_float64_beyond_the_range_of_squares(void **state)
{
    (void)state;
    double x[] = {1.5e308, 1.5e308, -1e308, (double)INFINITY};
    int64_t n = 4;
    usc_tensor t;
    usc_stats s;
    assert_int_equal(usc_tensor_make(&t, x, USC_F64, 1, &n, NULL), USC_OK);
    assert_int_equal(usc_stats_compute(&t, NULL, &s, NULL), USC_OK);
    assert_near(s.mean, 2e308L / 3, 1e308L);
    assert_true(isinf(s.l2));
    x[0] = 3e-200, x[1] = 4e-200, x[2] = 0.0;
    assert_int_equal(usc_stats_compute(&t, NULL, &s, NULL), USC_OK);
    assert_near(s.l2, 5e-200L, 5e-200L);
    x[0] = 3e200, x[1] = -4e200;
    assert_int_equal(usc_stats_compute(&t, NULL, &s, NULL), USC_OK);
    assert_near(s.l2, 5e200L, 5e200L);
}

static bool unique_of(usc_dtype dtype, int64_t n)
{
    const usc_tensor t = vector(dtype, n, 0, 1);
    usc_stats s;
    assert_int_equal(usc_stats_compute(&t, NULL, &s, NULL), USC_OK);
    return s.unique;
}

static void test_uniqueness(void **state)
{
    (void)state;
    int64_t *x = (int64_t *)(void *)memory;
    for (int64_t i = 0; i < MAX_N; i++)
        x[i] = i;
    assert_true(unique_of(USC_I64, MAX_N)); /* sorted: any length */
    x[MAX_N - 1] = MAX_N - 2;
    assert_false(unique_of(USC_I64, MAX_N));
    for (int64_t i = 0; i < 65536; i++)
        x[i] = (i * 40503 & 65535) - 30000; /* a permutation of a small range */
    assert_true(unique_of(USC_I64, 65536));
    x[100] = x[60000];
    assert_false(unique_of(USC_I64, 65536));
    for (int64_t i = 0; i < 65536; i++)
        x[i] = (int64_t)((uint64_t)i * 0x9e3779b97f4a7c15u); /* the whole range */
    assert_true(unique_of(USC_I64, 65536));
    assert_true(unique_of(USC_U64, 65536));
    assert_true(unique_of(USC_I64, 2));
    assert_false(unique_of(USC_I64, 65537)); /* not looked for */
    x[9] = x[65000];
    assert_false(unique_of(USC_I64, 65536));
    memcpy(memory, "\xff\x00", 2);
    assert_true(unique_of(USC_BOOL, 2));
    memcpy(memory, "\xff\x00\x01", 3);
    assert_false(unique_of(USC_BOOL, 3));
}

static void test_extreme_integers_are_exact(void **state)
{
    (void)state;
    int64_t x[] = {INT64_MAX, INT64_MIN, 0};
    const int64_t n = 3;
    usc_tensor t;
    usc_stats s;
    assert_int_equal(usc_tensor_make(&t, x, USC_I64, 1, &n, NULL), USC_OK);
    assert_int_equal(usc_stats_compute(&t, NULL, &s, NULL), USC_OK);
    assert_true(s.int_min == INT64_MIN && s.int_max == INT64_MAX && s.unique);
    assert_int_equal(s.histogram[0][62 - USC_BINADE_MIN], 1); /* not rounded up to 2^63 */
    assert_int_equal(s.histogram[1][63 - USC_BINADE_MIN], 1);
    x[0] = -1;
    t.dtype = USC_U64;
    assert_int_equal(usc_stats_compute(&t, NULL, &s, NULL), USC_OK);
    assert_true((uint64_t)s.int_max == UINT64_MAX && s.int_min == 0);
}

#if defined(__SSE2__)
#include <xmmintrin.h>

static void test_flush_to_zero_of_the_caller_changes_nothing(void **state)
{
    (void)state;
    fill(USC_F32, 3000, 1);
    const usc_tensor t = vector(USC_F32, 3000, 0, 1);
    usc_stats plain, flushed;
    assert_int_equal(usc_stats_compute(&t, NULL, &plain, NULL), USC_OK);
    const unsigned int before = _mm_getcsr();
    _mm_setcsr(before | 0x8040u);
    const usc_status st = usc_stats_compute(&t, NULL, &flushed, NULL);
    _mm_setcsr(before);
    assert_int_equal(st, USC_OK);
    assert_true(plain.n_subnormal > 0);
    assert_true(same_bits(&plain, &flushed));
}
#endif

static void test_bad_views_are_refused_and_leave_zero(void **state)
{
    (void)state;
    usc_tensor t = vector(USC_DTYPE_NONE, 3, 0, 1);
    usc_stats s;
    usc_error err;
    assert_int_equal(usc_stats_compute(&t, NULL, &s, &err), USC_E_DTYPE);
    assert_int_equal(s.n, 0);
    t = vector(USC_F32, -3, 0, 1);
    assert_int_equal(usc_stats_compute(&t, NULL, &s, &err), USC_E_SHAPE);
    assert_int_equal(err.where, 0);
    t = vector(USC_F32, INT64_MAX, 0, INT64_MAX);
    assert_int_equal(usc_stats_compute(&t, NULL, &s, &err), USC_E_RANGE);
}

static void test_json(void **state)
{
    (void)state;
    const float x[] = {0.25f, -3.0f, 0.3f, NAN};
    memcpy(memory, x, sizeof x);
    const usc_tensor t = vector(USC_F32, 4, 0, 1);
    usc_stats s;
    char text[512];
    assert_int_equal(usc_stats_compute(&t, NULL, &s, NULL), USC_OK);
    s.l2 = (double)NAN;
    const size_t length = usc_stats_to_json(&s, text, sizeof text);
    assert_int_equal(length, strlen(text));
    assert_string_equal(
        text, "{\"n\":4,\"n_nan\":1,\"n_pos_inf\":0,\"n_neg_inf\":0,\"n_zero\":0,"
              "\"n_subnormal\":0,\"min\":-3,\"max\":0.30000001192092896,"
              "\"mean\":-0.81666666269302368,\"l2\":null,\"int_min\":0,"
              "\"int_max\":0,\"sorted\":false,\"unique\":false,"
              "\"fingerprint\":\"0d6797d7f3491713\",\"n_histogram\":3,"
              "\"histogram\":{\"pos\":{\"-2\":2},\"neg\":{\"1\":1}}}");
    assert_int_equal(usc_stats_to_json(&s, NULL, 0), length);
    assert_int_equal(usc_stats_to_json(&s, text, 6), length);
    assert_string_equal(text, "{\"n\":");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_dtypes_sizes_offsets),
        cmocka_unit_test(test_strides),
        cmocka_unit_test(test_broadcast_axes_count_by_repetition),
        cmocka_unit_test(test_equal_bits_on_every_isa_and_thread_count),
        cmocka_unit_test(test_transposed_has_the_bits_of_the_original),
        cmocka_unit_test(test_histogram_is_sampled_beyond_the_limit),
        cmocka_unit_test(test_float64_beyond_the_range_of_squares),
        cmocka_unit_test(test_uniqueness),
        cmocka_unit_test(test_extreme_integers_are_exact),
#if defined(__SSE2__)
        cmocka_unit_test(test_flush_to_zero_of_the_caller_changes_nothing),
#endif
        cmocka_unit_test(test_bad_views_are_refused_and_leave_zero),
        cmocka_unit_test(test_json),
    };
    return cmocka_run_group_tests_name("stats", tests, NULL, NULL);
}
