// SPDX-License-Identifier: Apache-2.0
// Statistics from anywhere, as texts and as numbers: a stand-in or an error, never a
// crash.
#include "generate_sample.h"

#include <ulpscope/trace.h>

#include <stdio.h>

/* ---- statistics from anywhere ---- */

static void assert_refused(usc_dtype dtype, usc_stats s, const char *why)
{
    usc_error err = {0};
    const usc_tensor like = tensor_of(NULL, dtype, 10, 10);
    const size_t size = 100 * usc_dtype_info_of(dtype)->size;
    const usc_status st =
        usc_stand_in_make(&like, &s, NULL, test_stream, made, size, &err);
    assert_int_equal(st, USC_E_CORRUPT);
    if (strstr(err.text, why) == NULL) fail_msg("%s", err.text);
}

static void test_statistics_that_cannot_be_are_refused(void **state)
{
    (void)state;
    const usc_stats good = {.n = 100, .min = -1, .max = 1};
    usc_stats s = good;
    s.n = 90;
    assert_refused(USC_F32, s, "n 90 against");
    s.n = 0;
    assert_refused(USC_F32, s, "n 0 against");
    s = good;
    s.n_nan = 60;
    s.n_zero = 50;
    assert_refused(USC_F32, s, "n_zero 50");
    s = good;
    s.n_pos_inf = -1;
    assert_refused(USC_F32, s, "n_pos_inf -1");
    s = good;
    s.min = 2;
    assert_refused(USC_F32, s, "from 2 to 1");
    s = good;
    s.max = (double)NAN;
    assert_refused(USC_F32, s, "nan");
    s = good;
    s.n_pos_inf = 1;
    assert_refused(USC_F8_E4M3, s, "Inf");
    assert_refused(USC_I32, s, "Inf");
    s = good;
    s.histogram[0][4 - USC_BINADE_MIN] = 5;
    s.n_histogram = 5;
    assert_refused(USC_F32, s, "binade 4");
    s = good;
    s.int_min = -1;
    s.int_max = 1;
    s.histogram[0][-29 - USC_BINADE_MIN] = 100; /* of integers: fractions */
    s.n_histogram = 100;
    assert_refused(USC_I64, s, "binade -29");
    s = good;
    s.n_histogram = 101;
    assert_refused(USC_F32, s, "n_histogram");
    s = good;
    s.int_min = 5;
    s.int_max = 4;
    assert_refused(USC_I64, s, "int_min 5");
}

/* Any number in any field: an error or a tensor, never a crash (run under ASan too). */
static void test_random_statistics_never_crash(void **state)
{
    (void)state;
    static const usc_dtype dtypes[] = {USC_F32, USC_F16, USC_I64,        USC_BOOL,
                                       USC_U8,  USC_F64, USC_F8_E4M3FNUZ};
    int n_made = 0;
    for (int k = 0; k < 4000; k++) {
        const usc_dtype dtype = dtypes[k % 7];
        fill(dtype, 100, k / 7 % 8);
        const usc_tensor t = tensor_of(real, dtype, 10, 10);
        usc_stats s = stats_of(&t);
        int64_t *const fields[] = {&s.n_zero,        &s.n_nan,        &s.int_min,
                                   &s.int_max,       &s.n_histogram,  &s.n_subnormal,
                                   &s.int_above_min, &s.int_below_max};
        double *const numbers[] = {&s.min, &s.max, &s.mean, &s.l2, &s.fill};
        *fields[below(8)] = uniform() < 0.5 ? below(120) : INT64_MIN + below(3);
        *numbers[below(5)] = uniform() < 0.5 ? (double)NAN : 1e300 * (uniform() - 0.5);
        s.histogram[below(2)][below(USC_N_BINADES)] += (int32_t)below(3);
        s.structure = (unsigned)below(512);
        const usc_stand_in_options o = {.need = (usc_need)below(4), .limit = below(3)};
        const size_t size = 100 * usc_dtype_info_of(dtype)->size;
        n_made += usc_stand_in_make(&t, &s, &o, test_stream, made, size, NULL) == USC_OK;
    }
    assert_true(n_made > 500 && n_made < 3500);
}

static void test_statistics_come_back_from_their_text(void **state)
{
    (void)state;
    static char text[20000];
    for (int k = 0; k < 200; k++) {
        const usc_dtype dtype = k % 2 ? USC_F32 : USC_I64;
        fill(dtype, 400, k % 8);
        if (k % 10 == 1) {
            fill_form(USC_LOWER);
            usc_dtype_narrow(dtype, wide, real, 400);
        }
        const usc_tensor t = tensor_of(real, dtype, 20, 20);
        const usc_stats s = stats_of(&t);
        usc_stats back;
        (void)usc_stats_to_json(&s, text, sizeof text);
        assert_int_equal(usc_stats_from_json(text, &back, NULL), USC_OK);
        assert_memory_equal(back.histogram, s.histogram, sizeof s.histogram);
        assert_int_equal(back.structure, s.structure);
        assert_true(back.fingerprint == s.fingerprint);
        assert_int_equal(back.n_histogram, s.n_histogram);
        assert_int_equal(back.int_above_min, s.int_above_min);
        make(&t, &s, NULL, made);
        make(&t, &back, NULL, again);
        assert_memory_equal(made, again, 400 * usc_dtype_info_of(dtype)->size);
    }
}

static void test_bad_texts_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "[]",
                                      "{\"n\": \"four\"}",
                                      "{\"histogram\": {\"pos\": {\"x\": 1}}}",
                                      "{\"histogram\": {\"pos\": {\"900\": 1}}}",
                                      "{\"histogram\": {\"pos\": {\"0\": -1}}}",
                                      "{\"fingerprint\": \"xyz\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        usc_stats s;
        usc_error err = {0};
        assert_int_equal(usc_stats_from_json(bad[i], &s, &err), USC_E_CORRUPT);
        assert_non_null(strstr(err.text, "statistics"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statistics_that_cannot_be_are_refused),
        cmocka_unit_test(test_random_statistics_never_crash),
        cmocka_unit_test(test_statistics_come_back_from_their_text),
        cmocka_unit_test(test_bad_texts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
