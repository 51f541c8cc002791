// SPDX-License-Identifier: Apache-2.0
// The generator against published words, and values on which kernels break.
#include "generate_sample.h"

#include "generate/values.h"

/* ---- the generator ---- */

/* The three vectors that come with the authors' Random123, philox4x32, 10 rounds. */
static void test_words_are_the_published_ones(void **state)
{
    (void)state;
    static const struct {
        usc_stream d;
        uint64_t i;
        uint32_t words[4];
    } known[] = {
        {{0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{UINT64_MAX, UINT64_MAX},
         UINT64_MAX,
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{UINT64_C(0x299f31d0a4093822), UINT64_C(0x0370734413198a2e)},
         UINT64_C(0x85a308d3243f6a88),
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
        uint32_t words[4];
        usc_stream_words(known[k].d, known[k].i, words);
        assert_memory_equal(words, known[k].words, sizeof words);
    }
}

static void test_normal_has_its_moments_and_its_bits(void **state)
{
    (void)state;
    enum { N = 200000 };
    double sum[5] = {0};
    for (uint64_t i = 0; i < N; i++) {
        const double x = usc_stream_normal(test_stream, i);
        for (int k = 1; k < 5; k++)
            sum[k] += pow(x, k);
    }
    assert_true(fabs(sum[1] / N) < 0.01 && fabs(sum[2] / N - 1) < 0.01);
    assert_true(fabs(sum[3] / N) < 0.03 && fabs(sum[4] / N - 3) < 0.1);
    /* Box and Muller by libm, which may differ in its last bits */
    for (uint64_t i = 0; i < 1000; i++) {
        uint32_t w[4];
        usc_stream_words(test_stream, i, w);
        const double a = (double)(((uint64_t)w[0] << 32 | w[1]) >> 11) * 0x1p-53;
        const double b = (double)(((uint64_t)w[2] << 32 | w[3]) >> 11) * 0x1p-53;
        const double x = sqrt(-2 * log(1 - a)) * cos(2 * 3.14159265358979323846 * b);
        assert_true(fabs(usc_stream_normal(test_stream, i) - x) < 1e-13);
    }
}

static void test_many_normals_are_those_of_one_each(void **state)
{
    (void)state;
    double many[700];
    for (int64_t n = 0; n <= 700; n = n * 3 / 2 + 1) {
        usc_stream d = test_stream;
        d.number += (uint64_t)n;
        usc_stream_normals(d, (uint64_t)n * 31, n, many);
        for (int64_t i = 0; i < n; i++) {
            const double one = usc_stream_normal(d, (uint64_t)(n * 31 + i));
            assert_memory_equal(&many[i], &one, sizeof one);
        }
    }
}

static void test_places_are_permutations(void **state)
{
    (void)state;
    static unsigned char seen[5000];
    for (uint64_t n = 1; n <= 5000; n = n * 3 / 2 + 1) {
        memset(seen, 0, sizeof seen);
        uint64_t n_fixed = 0;
        for (uint64_t i = 0; i < n; i++) {
            const uint64_t at = usc_stream_place(test_stream, i, n);
            assert_true(at < n && !seen[at]);
            seen[at] = 1;
            n_fixed += at == i;
        }
        assert_true(n < 100 || n_fixed < 10);
    }
    assert_true(usc_stream_place(test_stream, 5, UINT64_C(1) << 63) < UINT64_C(1) << 63);
}

/* ---- hard cases ---- */

static void test_hard_values_are_what_their_names_say(void **state)
{
    (void)state;
    enum { N = 64 * 40 };
    fill(USC_F32, N, 0);
    const usc_tensor like = tensor_of(real, USC_F32, 64, 40);
    usc_stats of[USC_N_STRESS];
    for (int k = 0; k < USC_N_STRESS; k++) {
        const usc_stress kind = usc_stress_by_text(usc_stress_text((usc_stress)k));
        assert_int_equal(kind, k);
        usc_error err = {0};
        const usc_status st =
            usc_stress_make(kind, &like, test_stream, made, 4 * N, &err);
        assert_int_equal(st, kind == USC_STRESS_INDEX ? USC_E_DTYPE : USC_OK);
        if (st != USC_OK) continue;
        assert_int_equal(usc_stress_make(kind, &like, test_stream, again, 4 * N, NULL),
                         0);
        assert_memory_equal(made, again, 4 * N);
        const usc_tensor m = tensor_of(made, USC_F32, 64, 40);
        of[k] = stats_of(&m);
        assert_true((of[k].n_nan > 0) == (kind == USC_STRESS_NAN));
        assert_true((of[k].n_pos_inf + of[k].n_neg_inf > 0) == (kind == USC_STRESS_INF));
    }
    assert_true(of[USC_STRESS_ZEROS].n_zero > N / 3);
    assert_int_equal(of[USC_STRESS_ALL_ZEROS].n_zero, N);
    assert_true(of[USC_STRESS_SUBNORMALS].n_subnormal > N / 3);
    assert_true(of[USC_STRESS_NEAR_OVERFLOW].max > 1e34);
    assert_true(of[USC_STRESS_OUTLIERS].max > 100 && of[USC_STRESS_WIDE].max > 1e4);
    assert_true(of[USC_STRESS_COMMON_OFFSET].min > 90);
    assert_true(fabs(of[USC_STRESS_CANCELLATION].mean) < 0.01);
    assert_true(of[USC_STRESS_TIES].min >= -1 && of[USC_STRESS_TIES].max <= 1);
    assert_true((of[USC_STRESS_ONE_HOT].structure & USC_ROWS_ONE_HOT) != 0);
    assert_true((of[USC_STRESS_SORTED].structure & USC_ROWS_RISE) != 0);
}

static void test_hard_values_keep_to_the_domain(void **state)
{
    (void)state;
    fill(USC_F32, 400, 2);
    const usc_tensor like = tensor_of(real, USC_F32, 20, 20);
    for (int k = 0; k < USC_N_STRESS; k++) {
        if (k == USC_STRESS_INDEX) continue;
        assert_int_equal(
            usc_stress_make((usc_stress)k, &like, test_stream, made, 1600, NULL), 0);
        const usc_tensor m = tensor_of(made, USC_F32, 20, 20);
        assert_true(!(stats_of(&m).min < 0));
    }
    int64_t *x = (int64_t *)(void *)real;
    for (int i = 0; i < 400; i++)
        x[i] = i % 13;
    const usc_tensor labels = tensor_of(real, USC_I64, 20, 20);
    assert_int_equal(
        usc_stress_make(USC_STRESS_INDEX, &labels, test_stream, made, 3200, NULL), 0);
    const usc_tensor m = tensor_of(made, USC_I64, 20, 20);
    assert_true(stats_of(&m).int_min >= 0 && stats_of(&m).int_max == 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_are_the_published_ones),
        cmocka_unit_test(test_normal_has_its_moments_and_its_bits),
        cmocka_unit_test(test_many_normals_are_those_of_one_each),
        cmocka_unit_test(test_places_are_permutations),
        cmocka_unit_test(test_hard_values_are_what_their_names_say),
        cmocka_unit_test(test_hard_values_keep_to_the_domain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
