// SPDX-License-Identifier: Apache-2.0
// The line of progress (cli/common/progress.h): no time before one is known.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/progress.h"

static void check(const cli_progress *begun, double now, int64_t done, int64_t total,
                  int64_t flagged, const char *expected)
{
    char text[200];
    cli_progress p = *begun;
    p.done = done;
    p.total = total;
    p.flagged = flagged;
    cli_progress_text(&p, now, text, sizeof text);
    assert_string_equal(text, expected);
}

static void test_no_time_is_told_before_one_is_known(void **state)
{
    (void)state;
    const cli_progress p = {
        .command = "check", .what = "checking", .first = 2, .start = 10};
    check(&p, 10, 3, 9, 0, "ulpscope check: 3 of 9 calls, 0 flagged");
    check(&p, 12, 4, 9, 1, "ulpscope check: 4 of 9 calls, 1 flagged, 0:10 left");
    check(&p, 4010, 4, 9002, 1234,
          "ulpscope check: 4 of 9,002 calls, 1,234 flagged, 9997:46:40 left");
}

static void test_what_is_left_counts_by_its_weight(void **state)
{
    (void)state;
    const cli_progress p = {.command = "check", .start = 10, .expected = 40};
    check(&p, 12, 3, 9, 0, "ulpscope check: 3 of 9 calls, 0 flagged, 0:40 left");
}

static void test_drawn_cases_tell_operators_and_a_rate(void **state)
{
    (void)state;
    cli_progress p = {
        .command = "fuzz", .what = "checking", .first = 0, .start = 10, .operators = 1};
    check(&p, 10, 1, 9, 0, "ulpscope fuzz: 1 of 9 cases of 1 operator, 0 flagged");
    p.operators = 1204;
    check(&p, 14, 101, 1001, 2,
          "ulpscope fuzz: 101 of 1,001 cases of 1,204 operators (25 a second), 2 "
          "flagged, 0:36 left");
}

static void test_a_self_test_tells_how_far_it_is(void **state)
{
    (void)state;
    const cli_progress p = {.command = "check", .what = "self-test", .first = 0};
    check(&p, 0, 1, 3, 0, "ulpscope check: self-test: 1 of 3 signatures");
    check(&p, 5, 2, 3, 0, "ulpscope check: self-test: 2 of 3 signatures, 0:05 left");
}

static void test_who_waits_is_told_for_how_long(void **state)
{
    (void)state;
    char text[240];
    cli_progress p = {.command = "export", .begun = 10, .shown = 10, .terminal = true};
    assert_false(cli_progress_waits(&p, 10.9, text, sizeof text));
    assert_true(cli_progress_waits(&p, 11.6, text, sizeof text)); /* by its thread */
    assert_string_equal(text, "ulpscope export: reading (2 s)");
    p.terminal = false;
    assert_false(cli_progress_waits(&p, 14.9, text, sizeof text));
    assert_true(cli_progress_waits(&p, 15, text, sizeof text));
    p.terminal = true;
    p.starts = true;
    assert_true(
        cli_progress_waits(&p, 11.6, text, sizeof text)); /* no worker spoke yet */
    assert_string_equal(text, "ulpscope export: workers start, which load torch");
    p.waited = true;
    p.shown = 11.6;
    assert_false(cli_progress_waits(&p, 12.4, text, sizeof text));
    assert_true(cli_progress_waits(&p, 13, text, sizeof text));
    assert_string_equal(text, "ulpscope export: workers start, which load torch (3 s)");
    p.what = "checking";
    p.done = 2, p.total = 9, p.start = 13, p.moved = p.shown = 14;
    assert_false(cli_progress_waits(&p, 14.9, text, sizeof text));
    assert_true(cli_progress_waits(&p, 18, text, sizeof text)); /* one call takes long */
    assert_non_null(strstr(text, "2 of 9 calls"));
    assert_non_null(strstr(text, "left (4 s)"));
    p.terminal = false; /* a log gets a line every five seconds, and not every one */
    assert_false(cli_progress_waits(&p, 18, text, sizeof text));
    assert_true(cli_progress_waits(&p, 19, text, sizeof text));
}

static void test_a_self_test_says_so_before_its_first_result(void **state)
{
    (void)state;
    char text[240];
    cli_progress p = {.command = "check", .terminal = true, .waited = true, .begun = 1};
    p.what = "self-test";
    p.total = 3, p.start = p.moved = p.shown = 20;
    assert_false(cli_progress_waits(&p, 20.9, text, sizeof text));
    assert_true(cli_progress_waits(&p, 24, text, sizeof text));
    assert_string_equal(text, "ulpscope check: self-test: 0 of 3 signatures (4 s)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_time_is_told_before_one_is_known),
        cmocka_unit_test(test_what_is_left_counts_by_its_weight),
        cmocka_unit_test(test_drawn_cases_tell_operators_and_a_rate),
        cmocka_unit_test(test_a_self_test_tells_how_far_it_is),
        cmocka_unit_test(test_a_self_test_says_so_before_its_first_result),
        cmocka_unit_test(test_who_waits_is_told_for_how_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
