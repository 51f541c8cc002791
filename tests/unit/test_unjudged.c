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
    const usc_unjudged none = {"aten::mm", "no reference: x", 0, NULL};
    expect(NULL, 0, "");
    expect(&none, 1, "");
}

static void most_calls_come_first_and_alike_ones_together(void **state)
{
    (void)state;
    const usc_unjudged items[] = {
        {"aten::inverse", "ill-conditioned: float32 keeps 2 bits", 2, NULL},
        {"ext::rms_norm", "no float64 reference: it raises", 4, NULL},
        {"", "there was no room or time", 3, NULL},
        {"ext::rms_norm", "no float64 reference: it raises", 6, NULL},
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
    const usc_unjudged items[] = {{"a", "", 9, NULL}, {"b", "", 8, NULL},
                                  {"c", "", 7, NULL}, {"d", "", 1, NULL},
                                  {"e", "", 1, NULL}, {"f", "", 1, NULL}};
    expect(items, 6,
           "not judged: a 9 calls; b 8 calls; c 7 calls; d 1 call; and 2 more calls");
}

/* "reference" in a reason is no advice to register one. */
static void what_is_lacking_decides_what_helps(void **state)
{
    (void)state;
    static const char why[] = "a float16 reference is too coarse";
    static const struct {
        const char *lacks, *helps;
    } rows[] = {
        {"finer", "write the reference in float64"},
        {"reference", "give one"},
        {"output", "save it as pack.json names it"},
        {"other", "name what the device gave, and what it is held to"},
        {"scale", "give the size of the terms with --scale FILE, or hold it to another "
                  "rule: --standard torch-close"},
        {"", "write ulpscope.reference.register(\"a\")"},
        {NULL, "write ulpscope.reference.register(\"a\")"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char helps[160];
        const usc_unjudged one = {"a", why, 1, rows[i].lacks};
        usc_unjudged_remedy(&one, helps, sizeof helps);
        assert_string_equal(helps, rows[i].helps);
    }
}

static void a_reason_is_one_line(void **state)
{
    (void)state;
    const usc_unjudged one = {"a", "raises\nTraceback. And more", 1, NULL};
    expect(&one, 1, "not judged: a 1 call (raises)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_said_of_nothing),
        cmocka_unit_test(most_calls_come_first_and_alike_ones_together),
        cmocka_unit_test(what_is_behind_the_first_few_is_a_number),
        cmocka_unit_test(what_is_lacking_decides_what_helps),
        cmocka_unit_test(a_reason_is_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
