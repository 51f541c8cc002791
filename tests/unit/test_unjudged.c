// SPDX-License-Identifier: Apache-2.0
// The line on what was not judged: most calls first, alike ones together, what helps.
#include <ulpscope/x/unjudged.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "report/report_out.h"

static void expect(const usc_unjudged *items, size_t n, const char *line)
{
    usc_text text = {0};
    const usc_sink sink = usc_text_sink(&text);
    usc_error err;
    assert_int_equal(usc_unjudged_put(items, n, &sink, &err), USC_OK);
    assert_string_equal(text.bytes, line);
}

static void nothing_is_said_of_nothing(void **state)
{
    (void)state;
    const usc_unjudged none = {"aten::mm", "no reference: x", 0};
    expect(NULL, 0, "");
    expect(&none, 1, "");
}

static void most_calls_come_first_and_alike_ones_together(void **state)
{
    (void)state;
    const usc_unjudged items[] = {
        {"aten::inverse", "ill-conditioned: float32 keeps 2 bits", 2},
        {"ext::rms_norm", "no float64 reference: it raises", 4},
        {"", "there was no room or time", 3},
        {"ext::rms_norm", "no float64 reference: it raises", 6},
    };
    expect(
        items, 4,
        "not judged: ext::rms_norm 10 calls (no float64 reference: it raises; write "
        "ulpscope.reference.register(\"ext::rms_norm\")); 3 calls (there was no room or "
        "time; check fewer steps or operators, or give it more time); aten::inverse 2 "
        "calls (ill-conditioned: float32 keeps 2 bits; judge it on tamer inputs)");
}

static void what_is_behind_the_first_few_is_a_number(void **state)
{
    (void)state;
    const usc_unjudged items[] = {{"a", "", 9}, {"b", "", 8}, {"c", "", 7},
                                  {"d", "", 1}, {"e", "", 1}, {"f", "", 1}};
    expect(items, 6,
           "not judged: a 9 calls; b 8 calls; c 7 calls; d 1 call; and 2 more calls");
}

static void a_reason_is_one_line(void **state)
{
    (void)state;
    const usc_unjudged one = {"a", "raises\nTraceback. And more", 1};
    expect(&one, 1, "not judged: a 1 call (raises)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_said_of_nothing),
        cmocka_unit_test(most_calls_come_first_and_alike_ones_together),
        cmocka_unit_test(what_is_behind_the_first_few_is_a_number),
        cmocka_unit_test(a_reason_is_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
