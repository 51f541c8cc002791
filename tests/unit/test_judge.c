// SPDX-License-Identifier: Apache-2.0
// The verdict on one output: each rule with a case that passes and a fault that is named.
#include "judge_fixture.h"

static const usc_dtype float_dtypes[] = {USC_F32, USC_BF16, USC_F16, USC_F64};

static void test_honest_outputs_pass_at_the_first_look(void **state)
{
    (void)state;
    const int64_t sizes[] = {0, 1, 7, 8, 9, 511, 512, 513, 70001};
    for (size_t t = 0; t < 4; t++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            fixture f = fixture_make(float_dtypes[t], sizes[s]);
            usc_judge *judge = NULL;
            usc_judgement v;
            assert_int_equal(fixture_open(&f, &judge), USC_OK);
            assert_int_equal(usc_judge_look(judge, &v, NULL), USC_OK);
            assert_false(v.needs_appeal);
            assert_int_equal(v.verdict, USC_VERDICT_PASS);
            assert_int_equal(v.n, sizes[s]);
            assert_true(sizes[s] == 0 ? isnan(v.bits) != 0 : v.bits >= 0 && v.bits <= 53);
            usc_judge_close(judge);
            fixture_free(&f);
        }
}

static void test_one_bad_element_is_wrong_in_every_dtype(void **state)
{
    (void)state;
    for (size_t t = 0; t < 4; t++) {
        fixture f = fixture_make(float_dtypes[t], 1000);
        fixture_set(&f, 700, f.r[700] * 1.5);
        const usc_judgement v = fixture_judge(&f);
        assert_int_equal(v.verdict, USC_VERDICT_WRONG);
        assert_int_equal(v.i_worst, 700);
        fixture_free(&f);
    }
}

static void test_noise_of_ten_bits_is_reduced_and_measured(void **state)
{
    (void)state;
    fixture f = fixture_make(USC_F32, 4096);
    uint64_t seed = 7;
    for (int64_t i = 0; i < f.n; i++)
        fixture_set(&f, i, f.r[i] * (1 + 0x1p-10 * (2 * fixture_random(&seed) - 1)));
    const usc_judgement v = fixture_judge(&f);
    assert_int_equal(v.verdict, USC_VERDICT_REDUCED);
    assert_true(fabs(v.bits - 10) < 0.5);
    assert_false(v.bound);
    assert_true(v.yardstick_bits > 20);
    fixture_free(&f);
}

static void test_one_sided_error_is_found_below_the_other_limits(void **state)
{
    (void)state;
    for (int one_sided = 0; one_sided < 2; one_sided++) {
        fixture f = fixture_make(USC_F32, 4096);
        for (int64_t i = 0; i < f.n; i++) {
            const double off = one_sided || i % 2 ? 18 * 0x1p-24 : -18 * 0x1p-24;
            fixture_set(&f, i, f.r[i] * (1 + off));
        }
        f.s = 1;
        f.fan_in = 1024;
        const usc_judgement v = fixture_judge(&f);
        assert_int_equal(v.verdict, one_sided ? USC_VERDICT_REDUCED : USC_VERDICT_PASS);
        fixture_free(&f);
    }
}

static void test_error_behind_bad_conditioning_is_found_relative_to_the_cpu(void **state)
{
    (void)state;
    fixture f = fixture_make(USC_F32, 4096);
    f.s = 100; /* 100 roundings of the input's own uncertainty */
    for (int64_t i = 0; i < f.n; i++)
        fixture_set(&f, i, f.r[i] * (1 + (i % 2 ? 1000 : -1000) * 0x1p-24));
    f.fan_in = 4;
    const usc_judgement loose = fixture_judge(&f);
    assert_int_equal(loose.verdict, USC_VERDICT_PASS); /* first look: 10 roundings */
    for (int64_t i = 0; i < f.n; i++)
        fixture_set(&f, i, f.r[i] * (1 + (i % 2 ? 2000 : -2000) * 0x1p-24));
    const usc_judgement v = fixture_judge(&f);
    assert_int_equal(v.verdict, USC_VERDICT_REDUCED);
    assert_true(v.max <= v.t_max && v.rel > 1000);
    fixture_free(&f);
}

static void test_distance_is_to_the_interval_that_rounds_to_the_value(void **state)
{
    (void)state;
    /* bfloat16 at 1: rounds from [1 - 2^-9, 1 + 2^-8] */
    const struct {
        double r;
        int64_t n_mismatch;
    } cases[] = {
        {1 - 0x1p-9, 0}, {1 - 0x1.01p-9, 1}, {1 + 0x1p-8, 0}, {1 + 0x1.01p-8, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int negative = 0; negative < 2; negative++) {
            fixture f = fixture_make(USC_BF16, 1);
            f.r[0] = negative ? -cases[i].r : cases[i].r;
            f.y[0] = (float)f.r[0];
            fixture_set(&f, 0, negative ? -1 : 1);
            const usc_judgement v = fixture_judge(&f);
            assert_int_equal(v.n_mismatch, cases[i].n_mismatch);
            fixture_free(&f);
        }
}

static void test_subnormals_have_the_smallest_ulp(void **state)
{
    (void)state;
    fixture f = fixture_make(USC_F32, 40);
    for (int64_t i = 0; i < f.n; i++)
        fixture_set(&f, i, f.r[i] = (double)f.y[i]);
    f.r[0] = 0x1p-149 * 5.5; /* half-way: both neighbours are right */
    f.y[0] = (float)f.r[0];
    for (int below = 0; below < 3; below++) {
        fixture_set(&f, 0, 0x1p-149 * (6 - below));
        const usc_judgement v = fixture_judge(&f);
        assert_int_equal(v.verdict, USC_VERDICT_PASS);
        assert_int_equal(v.n_mismatch, below == 2);
    }
    fixture_free(&f);
}

static void test_overflow_to_inf_is_a_rounding(void **state)
{
    (void)state;
    fixture f = fixture_make(USC_F16, 40);
    f.r[3] = 65520; /* the smallest that rounds to Inf */
    f.y[3] = 65520;
    fixture_set(&f, 3, (double)INFINITY);
    assert_int_equal(fixture_judge(&f).verdict, USC_VERDICT_PASS);
    f.r[3] = (double)(f.y[3] = 60000); /* Inf here is an error */
    usc_judgement v = fixture_judge(&f);
    assert_int_equal(v.verdict, USC_VERDICT_NONFINITE);
    assert_int_equal(v.i_bad, 3);
    f.r[3] = (double)(f.y[3] = 1e6); /* and so is the largest number here */
    fixture_set(&f, 3, 65504);
    v = fixture_judge(&f);
    assert_int_equal(v.verdict, USC_VERDICT_NONFINITE);
    fixture_free(&f);
}

/* One element of 40: truth, CPU in float32, device; what becomes of it. */
static void test_nan_and_inf_must_stand_where_the_truth_has_them(void **state)
{
    (void)state;
    const double nan = (double)NAN, inf = (double)INFINITY;
    const struct {
        double r, y, d;
        usc_verdict expected;
    } cases[] = {
        {1, 1, nan, USC_VERDICT_NONFINITE},      {1, 1, inf, USC_VERDICT_NONFINITE},
        {nan, nan, nan, USC_VERDICT_PASS},       {nan, nan, 1, USC_VERDICT_NONFINITE},
        {inf, inf, inf, USC_VERDICT_PASS},       {inf, inf, -inf, USC_VERDICT_NONFINITE},
        {inf, inf, 3e38, USC_VERDICT_NONFINITE}, {inf, nan, nan, USC_VERDICT_PASS},
        {1, inf, inf, USC_VERDICT_UNJUDGED},     {1, nan, nan, USC_VERDICT_UNJUDGED},
        {1, inf, 1, USC_VERDICT_PASS},           {0, 0, -0.0, USC_VERDICT_PASS},
    };
    for (size_t t = 0; t < 2; t++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            fixture f = fixture_make(float_dtypes[t], 40);
            f.r[11] = cases[i].r;
            f.y[11] = (float)cases[i].y;
            fixture_set(&f, 11, cases[i].d);
            const usc_judgement v = fixture_judge(&f);
            assert_int_equal(v.verdict, cases[i].expected);
            fixture_free(&f);
        }
}

static void test_flushed_subnormals_are_a_note(void **state)
{
    (void)state;
    fixture f = fixture_make(USC_F32, 64);
    f.r[5] = (double)(f.y[5] = 0x1p-130f);
    fixture_set(&f, 5, 0);
    usc_judgement v = fixture_judge(&f);
    assert_int_equal(v.verdict, USC_VERDICT_PASS);
    assert_true(v.flushes);
    assert_int_equal(v.n_flushed, 1);
    /* another subnormal is no zero */
    fixture_set(&f, 5, -0x1p-127);
    assert_int_equal(fixture_judge(&f).verdict, USC_VERDICT_WRONG);
    fixture_set(&f, 5, 0);
    /* a flushed intermediate: only the flushed replay knows it */
    fixture_set(&f, 9, f.r[9] * 1.25);
    assert_int_equal(fixture_judge(&f).verdict, USC_VERDICT_WRONG);
    f.flushed = malloc(sizeof(float) * 64);
    memcpy(f.flushed, f.y, sizeof(float) * 64);
    f.flushed[9] = (float)(f.r[9] * 1.25);
    v = fixture_judge(&f);
    assert_int_equal(v.verdict, USC_VERDICT_PASS);
    assert_true(v.flushes);
    fixture_free(&f);
}

/* A device that keeps most subnormals loses the others by a fault. */
static void test_what_is_kept_elsewhere_is_not_flushed(void **state)
{
    (void)state;
    for (int n_zero = 1; n_zero <= 64; n_zero += 21) {
        fixture f = fixture_make(USC_F32, 64);
        for (int64_t i = 0; i < 64; i++) {
            f.r[i] = (double)(f.y[i] = (float)((double)(i + 1) * 0x1p-135));
            fixture_set(&f, i, i < n_zero ? 0 : f.r[i]);
        }
        const usc_judgement v = fixture_judge(&f);
        assert_int_equal(v.verdict == USC_VERDICT_PASS, n_zero >= 32);
        assert_int_equal(v.n_flushed, n_zero >= 32 ? n_zero : 0);
        assert_int_equal(v.flushes, n_zero >= 32);
        fixture_free(&f);
    }
}

/* A flushed replay that rounds otherwise is none. */
static void test_a_last_bit_is_no_flushing(void **state)
{
    (void)state;
    fixture f = fixture_make(USC_F32, 64);
    f.flushed = malloc(sizeof(float) * 64);
    for (int64_t i = 0; i < 64; i++) {
        f.flushed[i] = nextafterf(f.y[i], 0);
        fixture_set(&f, i, f.r[i] * (1 + 0x1p-20));
    }
    const usc_judgement v = fixture_judge(&f);
    assert_false(v.flushes);
    assert_int_equal(v.n_flushed, 0);
    assert_int_equal(v.n_mismatch, 64);
    fixture_free(&f);
}

static void test_float16_flushing_is_reduced(void **state)
{
    (void)state;
    fixture f = fixture_make(USC_F16, 64);
    f.r[5] = (double)(f.y[5] = 0x1p-16f);
    fixture_set(&f, 5, 0);
    const usc_judgement v = fixture_judge(&f);
    assert_int_equal(v.verdict, USC_VERDICT_REDUCED);
    assert_true(v.flushes);
    assert_true(v.bits == 11);
    fixture_free(&f);
}

static void test_a_value_that_the_cpu_produces_is_no_error(void **state)
{
    (void)state;
    fixture f = fixture_make(USC_F32, 64);
    f.y[5] = (float)(f.r[5] * 2); /* float32 on the CPU jumps elsewhere */
    fixture_set(&f, 5, (double)f.y[5]);
    assert_int_equal(fixture_judge(&f).verdict, USC_VERDICT_PASS);
    fixture_set(&f, 5, f.r[5] * 3);
    assert_int_equal(fixture_judge(&f).verdict, USC_VERDICT_WRONG);
    fixture_free(&f);
}

static void test_a_jump_of_another_replay_explains_nothing(void **state)
{
    (void)state;
    fixture f = fixture_make(USC_F32, 64);
    fixture_set(&f, 5, f.r[5] * 3);
    usc_judge *judge = NULL;
    assert_int_equal(fixture_open(&f, &judge), USC_OK);
    double saved = f.r[5];
    /* what steps admit is for a case to ask, which knows them from slopes */
    double *rk = malloc(64 * sizeof *rk);
    memcpy(rk, f.r, 64 * sizeof *rk);
    rk[5] = saved * 3;
    const usc_tensor jump = fixture_view(rk, USC_F64, 64);
    assert_int_equal(usc_judge_replay(judge, &jump, &jump, NULL), USC_OK);
    usc_judgement v;
    assert_int_equal(fixture_appeal(&f, judge, &v), USC_OK);
    assert_int_equal(v.verdict, USC_VERDICT_WRONG);
    usc_judge_close(judge);
    free(rk);
    fixture_free(&f);
}

/* Y = R everywhere makes the operator exact; moved values must then agree exactly. */
static void test_exact_operators_get_no_tolerance(void **state)
{
    (void)state;
    for (int movement = 0; movement < 2; movement++) {
        fixture f = fixture_make(USC_F32, 64);
        f.movement = movement != 0;
        f.s = 0;
        for (int64_t i = 0; i < f.n; i++) {
            f.r[i] = (double)f.y[i];
            fixture_set(&f, i, f.r[i]);
        }
        usc_judgement v = fixture_judge(&f);
        assert_int_equal(v.verdict, USC_VERDICT_PASS);
        assert_true(v.exact);
        fixture_set(&f, 3, f.r[3] * (1 + 0x1p-21));
        v = fixture_judge(&f);
        assert_int_equal(v.verdict, movement ? USC_VERDICT_WRONG : USC_VERDICT_PASS);
        fixture_free(&f);
    }
}

static void test_errors_within_one_output_ulp_are_never_wrong(void **state)
{
    (void)state;
    fixture f = fixture_make(USC_BF16, 1000);
    fixture_set(&f, 3, 1.0 + 0x1p-7);
    f.r[3] = 1;
    f.y[3] = 1;
    assert_int_equal(fixture_judge(&f).verdict, USC_VERDICT_REDUCED);
    fixture_set(&f, 3, 1.0 + 0x1p-6);
    assert_int_equal(fixture_judge(&f).verdict, USC_VERDICT_WRONG);
    fixture_free(&f);
}

static void test_few_elements_with_some_bits_are_reduced(void **state)
{
    (void)state;
    for (int64_t n = 15; n < 17; n++) {
        fixture f = fixture_make(USC_F32, n);
        fixture_set(&f, 3, f.r[3] * (1 + 0x1p-9));
        assert_int_equal(fixture_judge(&f).verdict,
                         n < 16 ? USC_VERDICT_REDUCED : USC_VERDICT_WRONG);
        fixture_free(&f);
    }
}

/* Ill-conditioned elements: `n_ill` of 100, off by `error`; another one by `other`. */
static usc_judgement judge_ill(int n_ill, double error, double other)
{
    fixture f = fixture_make(USC_F32, 100);
    usc_judge *judge = NULL;
    usc_judgement v;
    for (int i = 0; i < n_ill; i++)
        fixture_set(&f, i, f.r[i] * (1 + error));
    fixture_set(&f, 99, f.r[99] * (1 + other));
    assert_int_equal(fixture_open(&f, &judge), USC_OK);
    double rk[100];
    for (int i = 0; i < 100; i++)
        rk[i] = i < n_ill ? f.r[i] * 9 : f.r[i];
    const usc_tensor r = fixture_view(rk, USC_F64, 100);
    const usc_tensor y = fixture_view(f.y, USC_F32, 100);
    assert_int_equal(usc_judge_replay(judge, &r, &y, NULL), USC_OK);
    assert_int_equal(usc_judge_look(judge, &v, NULL), USC_OK);
    const usc_appeal appeal = {.fan_in = 1};
    if (v.needs_appeal)
        assert_int_equal(usc_judge_appeal(judge, &appeal, &v, NULL), USC_OK);
    usc_judge_close(judge);
    fixture_free(&f);
    return v;
}

static void test_where_float32_keeps_no_bits_nothing_is_judged(void **state)
{
    (void)state;
    static const struct {
        int n_ill;
        double error, other;
        usc_verdict verdict;
    } table[] = {
        {55, 4 * 0x1p-24, 0, USC_VERDICT_UNJUDGED}, /* S leaves no bits */
        {55, 0.25, 0, USC_VERDICT_UNJUDGED},
        {45, 0.25, 0, USC_VERDICT_PASS},
        {45, 0.25, 0x1p-12, USC_VERDICT_WRONG}, /* the others are judged */
        {55, 0.25, 0x1p-12, USC_VERDICT_WRONG},
        {55, 0, 0, USC_VERDICT_PASS}, /* right in all elements: nobody need be asked */
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const usc_judgement v = judge_ill(table[i].n_ill, table[i].error, table[i].other);
        assert_int_equal(v.verdict, table[i].verdict);
        if (table[i].error > 0) assert_int_equal(v.n_ill, table[i].n_ill);
    }
}

/* Sums over many terms may err as much; that their last 13 bits are zero is no chance. */
static void test_a_number_rounded_to_fewer_bits_is_reduced(void **state)
{
    (void)state;
    for (int rounded = 0; rounded < 2; rounded++) {
        fixture f = fixture_make(USC_F32, 8);
        f.fan_in = 65536;
        for (int i = 0; i < 8; i++) {
            f.r[i] = 1.234382; /* 95 roundings away */
            f.y[i] = (float)f.r[i];
            fixture_set(&f, i, rounded ? 1.234375 : 1.2343751);
        }
        const usc_judgement near = fixture_judge(&f);
        assert_int_equal(near.verdict, rounded ? USC_VERDICT_REDUCED : USC_VERDICT_PASS);
        fixture_free(&f);
    }
}

static void test_what_the_dtype_hides_is_not_claimed(void **state)
{
    (void)state;
    fixture f = fixture_make(USC_BF16, 100);
    const usc_judgement v = fixture_judge(&f);
    assert_true(v.bound);
    assert_true(v.bits < 24 - 7 && v.bits > 10); /* 100 elements of 8 bits each */
    fixture_free(&f);
}

/* A double computed as carefully as the reference may differ from it in the last bits;
 * one computed in float32 may not pass, although the yardstick gives that very value. */
/* Where nothing finite was judged no bits are claimed, and the reason says why. */
static void test_a_truth_without_numbers_claims_no_bits(void **state)
{
    (void)state;
    for (size_t t = 0; t < 4; t++)
        for (int64_t n = 0; n <= 3000; n += 1000) {
            fixture f = fixture_make(float_dtypes[t], n);
            for (int64_t i = 0; i < n; i++) {
                f.r[i] = i % 3 ? (double)NAN : (double)INFINITY;
                f.y[i] = (float)f.r[i];
                fixture_set(&f, i, f.r[i]);
            }
            usc_judgement v = fixture_judge(&f);
            assert_int_equal(v.verdict, USC_VERDICT_PASS);
            assert_int_equal(v.n_finite, 0);
            assert_true(isnan(v.bits) && isnan(v.yardstick_bits) && !v.bound);
            assert_non_null(strstr(v.reason, n == 0 ? "no elements" : "nothing finite"));
            if (n > 0) {
                fixture_set(&f, 1, 1.0); /* a number where there is none */
                v = fixture_judge(&f);
                assert_int_equal(v.verdict, USC_VERDICT_NONFINITE);
                assert_int_equal(v.i_bad, 1);
                f.r[7] = (double)(f.y[7] = 2);
                fixture_set(&f, 1, (double)NAN);
                fixture_set(&f, 7, 2.0);
                v = fixture_judge(&f);
                assert_int_equal(v.verdict, USC_VERDICT_PASS);
                assert_int_equal(v.n_finite, 1);
                assert_true(v.bits >= 0);
            }
            fixture_free(&f);
        }
}

static void test_float64_is_judged_in_its_own_roundings(void **state)
{
    (void)state;
    fixture f = fixture_make(USC_F64, 1000);
    for (int64_t i = 0; i < f.n; i++)
        fixture_set(&f, i, f.r[i] * (1 + 4 * 0x1p-53));
    assert_int_equal(fixture_judge(&f).verdict, USC_VERDICT_PASS);
    for (int64_t i = 0; i < f.n; i++)
        fixture_set(&f, i, (double)f.y[i]);
    const usc_judgement v = fixture_judge(&f);
    assert_int_equal(v.verdict, USC_VERDICT_REDUCED);
    assert_true(fabs(v.bits - 24.5) < 1.5);
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_honest_outputs_pass_at_the_first_look),
        cmocka_unit_test(test_one_bad_element_is_wrong_in_every_dtype),
        cmocka_unit_test(test_noise_of_ten_bits_is_reduced_and_measured),
        cmocka_unit_test(test_one_sided_error_is_found_below_the_other_limits),
        cmocka_unit_test(test_error_behind_bad_conditioning_is_found_relative_to_the_cpu),
        cmocka_unit_test(test_distance_is_to_the_interval_that_rounds_to_the_value),
        cmocka_unit_test(test_subnormals_have_the_smallest_ulp),
        cmocka_unit_test(test_overflow_to_inf_is_a_rounding),
        cmocka_unit_test(test_nan_and_inf_must_stand_where_the_truth_has_them),
        cmocka_unit_test(test_flushed_subnormals_are_a_note),
        cmocka_unit_test(test_what_is_kept_elsewhere_is_not_flushed),
        cmocka_unit_test(test_a_last_bit_is_no_flushing),
        cmocka_unit_test(test_float16_flushing_is_reduced),
        cmocka_unit_test(test_a_value_that_the_cpu_produces_is_no_error),
        cmocka_unit_test(test_a_jump_of_another_replay_explains_nothing),
        cmocka_unit_test(test_exact_operators_get_no_tolerance),
        cmocka_unit_test(test_errors_within_one_output_ulp_are_never_wrong),
        cmocka_unit_test(test_few_elements_with_some_bits_are_reduced),
        cmocka_unit_test(test_where_float32_keeps_no_bits_nothing_is_judged),
        cmocka_unit_test(test_a_number_rounded_to_fewer_bits_is_reduced),
        cmocka_unit_test(test_what_the_dtype_hides_is_not_claimed),
        cmocka_unit_test(test_a_truth_without_numbers_claims_no_bits),
        cmocka_unit_test(test_float64_is_judged_in_its_own_roundings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
