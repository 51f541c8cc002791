// SPDX-License-Identifier: Apache-2.0
// Faults by a schedule: every kind on every dtype, the bits it names and no other; where,
// when and how often; the same bits again; schedules that are refused.
#include <ulpscope/x/inject.h>

// cmocka wants these in front of it
#include <setjmp.h>
#include <stdarg.h>
// and then itself
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

enum { N = 64 };

static usc_injector *make(const char *schedule)
{
    usc_injector *out;
    usc_error err = {0};
    const usc_status st = usc_injector_make(schedule, strlen(schedule), 7, &out, &err);
    if (st != USC_OK) print_message("%s\n", err.text);
    assert_int_equal(st, USC_OK);
    return out;
}

static const usc_inject_place here = {0, 0, "grad", "up.weight"};

/* Applies to 64 elements at step `step`; how many elements are not as before. */
static int apply_at(usc_injector *injector, usc_dtype dtype, void *data, int64_t step)
{
    const size_t size = usc_dtype_info_of(dtype)->size;
    unsigned char before[8 * N];
    usc_error err = {0};
    usc_inject_place at = here;
    int n = 0;
    at.step = step;
    memcpy(before, data, size * N);
    assert_int_equal(usc_injector_apply(injector, &at, dtype, data, N, 8, &err), USC_OK);
    for (size_t i = 0; i < N; i++)
        n += memcmp(before + i * size, (char *)data + i * size, size) != 0;
    return n;
}

static int apply_once(const char *schedule, usc_dtype dtype, void *data)
{
    usc_injector *injector = make(schedule);
    const int n = apply_at(injector, dtype, data, 0);
    usc_injector_free(injector);
    return n;
}

static void test_a_flip_changes_the_bit_it_names_in_any_dtype(void **state)
{
    (void)state;
    for (int d = 1; d < USC_N_DTYPES; d++) {
        const size_t size = usc_dtype_info_of((usc_dtype)d)->size;
        for (size_t bit = 0; bit < 8 * size; bit++) {
            unsigned char data[8 * N];
            char line[96];
            memset(data, 0x55, sizeof data);
            (void)snprintf(line, sizeof line,
                           "{\"fault\": \"flip\", \"bit\": %zu, \"element\": 5}", bit);
            assert_int_equal(apply_once(line, (usc_dtype)d, data), 1);
            assert_int_equal(data[5 * size + bit / 8], 0x55 ^ (1 << bit % 8));
        }
    }
}

/* Schedules on float32 of 0, 1, 2, ...: how many elements change, one of them and its
 * bits. */
static const struct {
    const char *schedule;
    int n, element;
    float value;
} kinds[] = {
    {"{\"fault\": \"mask\", \"mask\": \"0x80400000\", \"element\": 1}", 1, 1, -1.5f},
    {"{\"fault\": \"carry\", \"bit\": 22, \"element\": 4}", 1, 4, 6.0f},
    {"{\"fault\": \"carry\", \"bit\": 23, \"value\": 0, \"element\": -1}", 1, 63, 31.5f},
    {"{\"fault\": \"stuck\", \"bit\": 31, \"count\": -1, \"element\": 2, \"every\": 8}",
     8, 10, -10.0f},
    {"{\"fault\": \"stuck\", \"bit\": 31, \"value\": 0, \"count\": -1, \"element\": 0}",
     0, 0, 0.0f},
    {"{\"fault\": \"scale\", \"factor\": 2, \"element\": 0, \"count\": -1}", 63, 3, 6.0f},
    {"{\"fault\": \"zero\", \"element\": 8, \"count\": 16}", 16, 23, 0.0f},
    {"{\"fault\": \"zero\", \"element\": 3, \"count\": -1, \"every\": 0}", 8, 11, 0.0f},
    {"{\"fault\": \"shift\", \"shift\": 4, \"element\": 0, \"count\": 16}", 16, 1, 5.0f},
    {"{\"fault\": \"shift\", \"shift\": -1, \"element\": 0, \"count\": 16}", 16, 0,
     15.0f},
    {"{\"fault\": \"swap\", \"element\": 0, \"count\": 8}", 8, 0, 4.0f},
    {"{\"fault\": \"swap\", \"element\": 8, \"count\": 5}", 4, 8, 10.0f},
};

static void fill(float data[N], float first)
{
    for (int i = 0; i < N; i++)
        data[i] = first + (float)i;
}

static void test_each_kind_does_what_it_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        float data[N];
        fill(data, 0);
        const int n = apply_once(kinds[i].schedule, USC_F32, data);
        if (n != kinds[i].n) print_message("%s\n", kinds[i].schedule);
        assert_int_equal(n, kinds[i].n);
        assert_memory_equal(&data[kinds[i].element], &kinds[i].value, sizeof(float));
    }
    float data[N];
    for (int i = 0; i < N; i++)
        data[i] = 1.0f + 0x1p-9f;
    assert_int_equal(apply_once("{\"fault\": \"narrow\", \"element\": 0, \"count\": -1}",
                                USC_F32, data),
                     N);
    assert_true(data[0] == 1.0f);
}

static void
test_a_drift_grows_and_stale_numbers_are_those_of_the_call_before(void **state)
{
    (void)state;
    float data[N];
    usc_injector *drift = make("{\"fault\": \"scale\", \"factor\": 1.5, \"growth\": 2, "
                               "\"steps\": 2, \"element\": 1}");
    for (int64_t step = 0; step < 3; step++) {
        static const float expected[] = {1.5f, 2.0f, 1.0f};
        fill(data, 0);
        apply_at(drift, USC_F32, data, step);
        assert_true(data[1] == expected[step]);
    }
    usc_injector_free(drift);
    usc_injector *stale = make("{\"fault\": \"stale\", \"step\": 1, \"element\": 60, "
                               "\"count\": -1}");
    fill(data, 0);
    assert_int_equal(apply_at(stale, USC_F32, data, 0), 0);
    fill(data, 100);
    assert_int_equal(apply_at(stale, USC_F32, data, 1), 4);
    assert_true(data[59] == 159.0f && data[60] == 60.0f);
    usc_injector_free(stale);
}

static void test_when_and_where(void **state)
{
    (void)state;
    usc_injector *one =
        make("\n{\"fault\": \"flip\", \"step\": 2, \"steps\": 2, \"rank\": 1, "
             "\"site\": \"grad\", \"name\": \"up.*\"}\n");
    static const struct {
        usc_inject_place at;
        bool due;
    } places[] = {
        {{2, 1, "grad", "up.bias"}, true},    {{3, 1, "grad", "up.bias"}, true},
        {{4, 1, "grad", "up.bias"}, false},   {{1, 1, "grad", "up.bias"}, false},
        {{2, 0, "grad", "up.bias"}, false},   {{2, 1, "weight", "up.bias"}, false},
        {{2, 1, "grad", "down.bias"}, false},
    };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        float data[N];
        usc_error err;
        usc_injected done;
        const int64_t n = (int64_t)i;
        fill(data, 0);
        assert_int_equal(usc_injector_due(one, &places[i].at), places[i].due);
        assert_int_equal(
            usc_injector_apply(one, &places[i].at, USC_F32, data, N, 8, &err), USC_OK);
        assert_int_equal(usc_injector_done(one, n, &done), places[i].due);
        assert_int_equal(done.line, places[i].due ? 2 : 0);
    }
    usc_injector_free(one);
}

static void test_chance_is_kept_to_and_repeats(void **state)
{
    (void)state;
    static float runs[2][N];
    int n[2] = {0};
    for (int run = 0; run < 2; run++) {
        usc_injector *some =
            make("{\"fault\": \"mask\", \"bits\": 3, \"steps\": -1, \"p\": 0.25}");
        fill(runs[run], 0);
        for (int64_t step = 0; step < 400; step++)
            n[run] += apply_at(some, USC_F32, runs[run], step);
        usc_injector_free(some);
    }
    assert_int_equal(n[0], n[1]);
    assert_in_range(n[0], 70, 130);
    assert_memory_equal(runs[0], runs[1], sizeof runs[0]);
}

static void test_what_changed_is_told(void **state)
{
    (void)state;
    float data[N];
    usc_injected done;
    usc_injector *one = make("{\"fault\": \"flip\", \"bit\": 30, \"element\": 1}");
    fill(data, 0);
    apply_at(one, USC_F32, data, 0);
    assert_true(usc_injector_done(one, 0, &done));
    assert_int_equal(done.before, 0x3f800000);
    assert_int_equal(done.after, 0x7f800000);
    assert_int_equal(done.element, 1);
    assert_int_equal(done.n_changed, 1);
    assert_false(usc_injector_done(one, 1, &done));
    usc_injector_free(one);
}

static const struct {
    const char *schedule, *says;
} refused[] = {
    {"{\"fault\": \"flop\"}", "fault must be flip"},
    {"{}", "fault must be flip"},
    {"{\"fault\": \"flip\", \"bits\": 0}", "bits must be 1 or more"},
    {"{\"fault\": \"flip\", \"tensor\": \"x\"}", "tensor is not known; members are"},
    {"{\"fault\": \"flip\", \"steps\": 0}", "steps must be -1"},
    {"{\"fault\": \"flip\", \"p\": 2}", "p must lie between 0 and 1"},
    {"{\"fault\": \"mask\", \"mask\": \"0xzz\"}", "mask is no hexadecimal number"},
    {"{\"fault\": \"flip\", \"name\": \",\"}", "name is no PATTERN"},
    {"{\"fault\": \"flip\"}\n[]", "schedule, line 2:  is no object"},
    {"{\"fault\": \"flip\"", "schedule, line 1: not a fault as JSON"},
};

static void test_a_bad_schedule_is_a_sentence_and_no_injector(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        usc_injector *out;
        usc_error err = {0};
        const char *text = refused[i].schedule;
        assert_int_equal(usc_injector_make(text, strlen(text), 0, &out, &err),
                         USC_E_CORRUPT);
        assert_null(out);
        if (strstr(err.text, refused[i].says) == NULL) print_message("%s\n", err.text);
        assert_non_null(strstr(err.text, refused[i].says));
    }
}

static void test_a_fault_that_a_dtype_cannot_have_changes_nothing(void **state)
{
    (void)state;
    static const char *const schedules[] = {"{\"fault\": \"scale\"}",
                                            "{\"fault\": \"flip\", \"bit\": 8}"};
    for (size_t i = 0; i < 2; i++) {
        uint8_t data[N] = {0};
        static const uint8_t zeros[N];
        usc_error err = {0};
        usc_injector *one = make(schedules[i]);
        assert_int_equal(usc_injector_apply(one, &here, USC_U8, data, N, 8, &err),
                         USC_E_DTYPE);
        assert_non_null(strstr(err.text, "uint8"));
        assert_memory_equal(data, zeros, N);
        assert_int_equal(usc_injector_apply(one, &here, USC_U8, data, 0, 8, &err),
                         USC_OK);
        usc_injector_free(one);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_flip_changes_the_bit_it_names_in_any_dtype),
        cmocka_unit_test(test_each_kind_does_what_it_says),
        cmocka_unit_test(
            test_a_drift_grows_and_stale_numbers_are_those_of_the_call_before),
        cmocka_unit_test(test_when_and_where),
        cmocka_unit_test(test_chance_is_kept_to_and_repeats),
        cmocka_unit_test(test_what_changed_is_told),
        cmocka_unit_test(test_a_bad_schedule_is_a_sentence_and_no_injector),
        cmocka_unit_test(test_a_fault_that_a_dtype_cannot_have_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
