// SPDX-License-Identifier: Apache-2.0
// The verdict on outputs of 8 bits, which are judged in their own steps and overflow in
// either manner.
#include "judge_fixture.h"

static const usc_dtype bytes_of[] = {USC_F8_E5M2, USC_F8_E4M3, USC_F8_E5M2FNUZ,
                                     USC_F8_E4M3FNUZ};

/* Correctly rounded passes; steps of one number, scaled and lost subnormals do not. */
static void test_float8_is_judged_in_its_own_steps(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        fixture f = fixture_make(bytes_of[k], 5000);
        usc_judgement v = fixture_judge(&f);
        assert_int_equal(v.verdict, USC_VERDICT_PASS);
        assert_true(v.bound && v.bits > 4);
        for (int64_t i = 0; i < f.n; i++) /* half of them one number off */
            fixture_set(&f, i, f.r[i] * (i % 2 ? 1.25 : 1));
        v = fixture_judge(&f);
        assert_true(v.verdict == USC_VERDICT_WRONG || v.verdict == USC_VERDICT_REDUCED);
        for (int64_t i = 0; i < f.n; i++)
            fixture_set(&f, i, i == 4000 ? f.r[i] * 4 : f.r[i]);
        v = fixture_judge(&f);
        assert_int_equal(v.verdict, USC_VERDICT_WRONG);
        assert_int_equal(v.i_worst, 4000);
        const double tiny = ldexp(1, usc_dtype_info_of(bytes_of[k])->emin);
        for (int64_t i = 0; i < f.n; i++) {
            f.r[i] = i % 3 ? f.r[i] : tiny * 0.5 * copysign(1, f.r[i]);
            f.y[i] = (float)f.r[i];
            fixture_set(&f, i, i % 3 ? f.r[i] : 0);
        }
        v = fixture_judge(&f);
        assert_int_equal(v.verdict, USC_VERDICT_REDUCED);
        assert_true(v.flushes);
        fixture_free(&f);
    }
}

/* Beyond the largest number: Inf where there is one; else NaN, or the largest number. */
static void test_float8_overflows_in_either_manner(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        const usc_dtype_info *info = usc_dtype_info_of(bytes_of[k]);
        const bool has_inf = info->top == USC_TOP_INF;
        fixture f = fixture_make(bytes_of[k], 1000);
        for (int64_t i = 0; i < 10; i++) {
            f.r[i] = (i % 2 ? -1 : 1) * info->largest * 4;
            f.y[i] = (float)f.r[i];
            fixture_set(&f, i, f.r[i]);
        }
        usc_judgement v = fixture_judge(&f);
        assert_int_equal(v.verdict, USC_VERDICT_PASS);
        fixture_set(&f, 3, -info->largest); /* stays there */
        v = fixture_judge(&f);
        assert_int_equal(v.verdict, has_inf ? USC_VERDICT_NONFINITE : USC_VERDICT_PASS);
        fixture_set(&f, 3, info->largest); /* the wrong end */
        assert_int_equal(fixture_judge(&f).verdict, USC_VERDICT_NONFINITE);
        fixture_set(&f, 3, f.r[3]);
        fixture_set(&f, 500, (double)NAN); /* where the truth is a small number */
        v = fixture_judge(&f);
        assert_int_equal(v.verdict, USC_VERDICT_NONFINITE);
        assert_int_equal(v.i_bad, 500);
        f.r[500] = (double)NAN;
        f.y[500] = NAN;
        assert_int_equal(fixture_judge(&f).verdict, USC_VERDICT_PASS);
        fixture_set(&f, 500, 1); /* swallowed */
        assert_int_equal(fixture_judge(&f).verdict, USC_VERDICT_NONFINITE);
        fixture_free(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_float8_is_judged_in_its_own_steps),
        cmocka_unit_test(test_float8_overflows_in_either_manner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
