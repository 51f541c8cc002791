// SPDX-License-Identifier: Apache-2.0
// What the simulated devices are (ulpscope_sim/profile.h): rows, text, and what is refused.
#include <ulpscope_sim/memory.h>
#include <ulpscope_sim/profile.h>

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static int full(void **state)
{
    (void)state;
    assert_int_equal(usc_sim_profile_set("full", NULL), USC_OK);
    return 0;
}

static void test_every_row_can_be_set(void **state)
{
    (void)state;
    usc_sim_profile row, got;
    size_t i = 0;
    for (; usc_sim_profile_row(i, &row); i++) {
        assert_int_equal(usc_sim_profile_set(row.text, NULL), USC_OK);
        usc_sim_profile_get(&got);
        assert_string_equal(got.text, row.text);
        assert_string_equal(got.lacks, row.lacks);
        assert_int_equal(usc_sim_device_count(), row.n_devices);
    }
    assert_true(i >= 7);
}

static void test_dtypes_are_lacking(void **state)
{
    (void)state;
    assert_false(usc_sim_lacks("float64"));
    assert_int_equal(usc_sim_profile_set("no-fp64", NULL), USC_OK);
    assert_true(usc_sim_lacks("float64") && usc_sim_lacks("complex128"));
    assert_false(usc_sim_lacks("float32") || usc_sim_lacks("int64"));
    assert_int_equal(usc_sim_profile_set("no-fp64:lacks=float8*", NULL), USC_OK);
    assert_true(usc_sim_lacks("float8_e5m2") && !usc_sim_lacks("float64"));
    assert_int_equal(usc_sim_profile_set("no-fp64:lacks=", NULL), USC_OK);
    assert_false(usc_sim_lacks("float64"));
}

static void test_keys_change_a_row(void **state)
{
    (void)state;
    usc_sim_profile got;
    size_t n_free, total;
    assert_int_equal(usc_sim_profile_set("full:devices=4:memory=64M:warp=64", NULL),
                     USC_OK);
    usc_sim_profile_get(&got);
    assert_int_equal(got.warp_size, 64);
    assert_int_equal(got.shared_size, 49152);
    assert_int_equal(usc_sim_device_count(), 4);
    usc_sim_memory_info(3, &n_free, &total);
    assert_int_equal(total, 64 << 20);
    usc_sim_memory_info(4, &n_free, &total);
    assert_int_equal(total, 0);
}

static void test_what_says_nothing_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    const struct {
        const char *text, *said;
    } bad[] = {
        {"no-fp65",
         "there is no profile 'no-fp65', the nearest is 'no-fp64'; known: full, no-fp64"},
        {"", "there is no profile ''"},
        {"full:devices", "'devices' is not key=value"},
        {"full:devices=9", "devices '9' is not in 0 to 8"},
        {"full:devices=-1", "devices '-1' is not in 0 to 8"},
        {"full:devices=1.5", "devices '1.5'"},
        {"full:devices=", "devices ''"},
        {"full:devices=2K", "devices '2K'"},
        {"full:memory=2X", "memory '2X'"},
        {"full:memory=nan", "memory 'nan'"},
        {"full:colour=3", "there is no 'colour'"},
        {"full:", "'' is not key=value"},
    };
    usc_error err;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(usc_sim_profile_set(bad[i].text, &err), USC_E_ARG);
        if (strstr(err.text, bad[i].said) == NULL)
            fail_msg("%s: %s", bad[i].text, err.text);
    }
    char many[400];
    memset(many, 'x', sizeof many - 1);
    many[sizeof many - 1] = '\0';
    assert_int_equal(usc_sim_profile_set(many, &err), USC_E_ARG);
    usc_sim_profile got;
    usc_sim_profile_get(&got);
    assert_string_equal(got.text, "full");
}

static void test_memory_beyond_a_profile_is_refused(void **state)
{
    (void)state;
    void *p = NULL;
    assert_int_equal(usc_sim_profile_set("full:memory=1M", NULL), USC_OK);
    assert_int_equal(usc_sim_malloc(0, 2 << 20, &p, NULL), USC_E_NOMEM);
    assert_int_equal(usc_sim_malloc(0, 4096, &p, NULL), USC_OK);
    usc_sim_free(p);
}

/* The last one: the devices are in use from here on. */
static void test_the_number_of_devices_stays_once_one_is_used(void **state)
{
    (void)state;
    usc_error err;
    assert_int_equal(usc_sim_profile_set("small", &err), USC_E_ARG);
    assert_non_null(strstr(err.text, "2 devices are in use and cannot become 1"));
    assert_int_equal(usc_sim_profile_set("small:devices=2", NULL), USC_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_can_be_set),
        cmocka_unit_test_setup(test_dtypes_are_lacking, full),
        cmocka_unit_test_setup(test_keys_change_a_row, full),
        cmocka_unit_test_setup(test_what_says_nothing_is_refused_and_changes_nothing,
                               full),
        cmocka_unit_test_setup(test_memory_beyond_a_profile_is_refused, full),
        cmocka_unit_test_setup(test_the_number_of_devices_stays_once_one_is_used, full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
