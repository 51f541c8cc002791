// SPDX-License-Identifier: Apache-2.0
// Reports of many findings: what is one finding, how they are found again, their order.
#include "report_sample.h"

#include "report/report_index.h"

static char *folder;

static int make_folder(void **state)
{
    *state = folder = sample_folder();
    return 0;
}

static size_t n_findings(const usc_report *report)
{
    return report->findings_index.n;
}

/* A reason's numbers differ from call to call; what it says does not. */
static void reasons_are_one_whatever_their_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *format;
        bool one;
    } cases[] = {
        {"aten::mm is unjudged: the reference took longer than %d s", true},
        {"aten::mm is unjudged: sizes [%d, 3] and [1, 2, 3] differ by 1.5e-0%d", true},
        {"aten::mm is unjudged: float%d is no dtype here", false}, /* a name */
        {"aten::mm: no kernel at 0x7f%d", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *here = sample_folder();
        usc_result *r = report_create(here);
        for (int call = 1; call <= 3; call++) {
            char sentence[120];
            snprintf(sentence, sizeof sentence, cases[i].format, call, call);
            usc_result_row row = report_row(call, "aten::mm", "unjudged");
            row.sentence = sentence;
            report_put(r, &row);
        }
        usc_report *report = report_finish(r, here, "done");
        if (n_findings(report) != (cases[i].one ? 1 : 3))
            fail_msg("%s: %zu findings", cases[i].format, n_findings(report));
        usc_report_close(report);
        sample_remove(here);
        free(here);
    }
}

/* A reason of its own goes before what the sentence says. */
static void a_reason_is_read_from_its_metric(void **state)
{
    (void)state;
    usc_result *r = report_create(folder);
    const usc_metric reason = {-1, "reason", 0, "too large"};
    usc_result_row row = report_row(1, "aten::mm", "unjudged");
    row.sentence = "something in words";
    row.metrics = &reason;
    row.n_metrics = 1;
    report_put(r, &row);
    usc_report *report = report_finish(r, folder, "done");
    assert_string_equal(usc_report_finding_reason(report->findings), "too large");
    usc_report_close(report);
}

static size_t longest_chain(const usc_index *index)
{
    size_t longest = 0;
    for (size_t i = 0; i < index->n_buckets; i++) {
        size_t n = 0;
        for (const usc_indexed *at = index->buckets[i]; at != NULL; at = at->in_bucket)
            n++;
        if (n > longest) longest = n;
    }
    return longest;
}

/* The work to find a finding, an operator, a case again does not grow with their number.
 */
static void finding_again_takes_no_walk(void **state)
{
    (void)state;
    enum { N = 3000 };
    usc_result *r = report_create(folder);
    for (int i = 1; i <= N; i++) {
        char op[32], cause[48], module[32];
        snprintf(op, sizeof op, "lib::op%d", i);
        snprintf(cause, sizeof cause, "a factor of %d or so", i);
        snprintf(module, sizeof module, "block%d.x", i);
        usc_result_row row = report_row(i, op, "wrong");
        row.cause = cause;
        row.module = module;
        report_put(r, &row);
    }
    usc_report *report = report_finish(r, folder, "done");
    char *xml = NULL;
    report_memory memory = {0};
    const usc_sink sink = {report_memory_write, &memory};
    usc_error err;
    if (usc_report_junit(report, NULL, &sink, &err) != USC_OK) fail_msg("%s", err.text);
    xml = memory.bytes;
    assert_int_equal(n_findings(report), N);
    assert_int_equal(report->n_ops, N);
    const usc_index *indices[] = {&report->findings_index, &report->ops_index,
                                  &report->cases_index, &report->rows_index};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(indices[i]->n, N);
        assert_true(longest_chain(indices[i]) <= 12);
    }
    free(xml);
    usc_report_close(report);
}

/* What torch's own CPU kernel does as well stands behind what only the device does. */
static void usual_findings_stand_behind_the_others(void **state)
{
    (void)state;
    const usc_metric usual = {-1, "usual", 1, NULL};
    usc_result *r = report_create(folder);
    static const char *const ops[] = {"a::worst", "a::usual", "a::least"};
    for (int i = 0; i < 3; i++) {
        usc_result_row row = report_row(1 + i, ops[i], "reduced");
        row.bits = 5 + i;
        row.metrics = i == 1 ? &usual : NULL;
        row.n_metrics = i == 1;
        report_put(r, &row);
    }
    usc_result_row row = report_row(9, "a::open", "undefined");
    report_put(r, &row);
    usc_report *report = report_finish(r, folder, "done");
    static const char *const order[] = {"a::worst", "a::least", "a::usual", "a::open"};
    const usc_report_finding *f = report->findings;
    for (int i = 0; i < 4; i++, f = f->next)
        assert_string_equal(f->op, order[i]);
    assert_null(f);
    report_memory memory = {0};
    const usc_sink sink = {report_memory_write, &memory};
    usc_error err;
    if (usc_report_table(report, NULL, &sink, &err) != USC_OK) fail_msg("%s", err.text);
    assert_contains(memory.bytes, "(usual: torch's own CPU kernel");
    free(memory.bytes);
    usc_report_close(report);
}

/* --allow VERDICT:usual excuses nothing else of that verdict. */
static void usual_findings_can_be_allowed(void **state)
{
    (void)state;
    const usc_metric usual = {-1, "usual", 1, NULL};
    static const struct {
        const char *allow;
        bool usual, device;
    } cases[] = {
        {"reduced:usual", true, false},       {"reduced:usual:a::u*", true, false},
        {"reduced:usual:b::*", false, false}, {"wrong:usual", false, false},
        {"reduced:usually", false, false},    {"reduced", true, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        usc_result *r = report_create(folder);
        usc_result_row row = report_row(1, "a::usual", "reduced");
        row.metrics = &usual;
        row.n_metrics = 1;
        report_put(r, &row);
        row = report_row(2, "a::device", "reduced");
        report_put(r, &row);
        usc_report *report = report_finish(r, folder, "done");
        usc_allow allow;
        usc_error err;
        if (usc_allow_parse(cases[i].allow, &allow, &err) != USC_OK)
            fail_msg("%s", err.text);
        const usc_report_options options = {.allow = &allow, .n_allow = 1};
        for (const usc_report_finding *f = report->findings; f != NULL; f = f->next)
            assert_int_equal(usc_report_finding_allowed(f, &options),
                             f->usual ? cases[i].usual : cases[i].device);
        usc_report_close(report);
    }
}

/* Much of an output that went free is told whatever the verdict, little of it is not. */
static void what_was_excused_is_told_where_it_is_much(void **state)
{
    (void)state;
    static const struct {
        double n;
        const char *sizes;
        bool told;
    } cases[] = {{2, "[10, 10]", false}, {4, "[10, 10]", true}, {2, "[20]", true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const usc_metric metrics[] = {{1, "excuse", 0, "corner"},
                                      {1, "excused", cases[i].n, NULL},
                                      {1, "sizes", 0, cases[i].sizes}};
        char *here = sample_folder();
        usc_result *r = report_create(here);
        usc_result_row row = report_row(7, "aten::relu", "pass");
        row.n_elements = 1000;
        row.metrics = metrics;
        row.n_metrics = 3;
        report_put(r, &row);
        usc_report *report = report_finish(r, here, "done");
        report_memory memory = {0};
        const usc_sink sink = {report_memory_write, &memory};
        usc_error err;
        const usc_report_options wide = {.width = 200};
        if (usc_report_table(report, &wide, &sink, &err) != USC_OK)
            fail_msg("%s", err.text);
        const bool told = strstr(memory.bytes, "1 call has more than 3 % of") != NULL;
        if (told != cases[i].told) fail_msg("case %zu: %s", i, memory.bytes);
        if (told) assert_contains(memory.bytes, "(corner), the first is call 7");
        free(memory.bytes);
        usc_report_close(report);
        sample_remove(here);
        free(here);
    }
}

static void passes_of_few_bits_are_told(void **state)
{
    (void)state;
    const struct {
        const char *verdict;
        double bits;
        bool bound;
    } cases[] = {{"pass", 22.1, false},        {"pass", 17.5, false},
                 {"pass", 15.2, false},        {"pass", 12.0, true},
                 {"pass", (double)NAN, false}, {"reduced", 9.0, false}};
    char *here = sample_folder();
    usc_result *r = report_create(here);
    for (int i = 0; i < 6; i++) {
        usc_result_row row = report_row(i + 1, "aten::mm", cases[i].verdict);
        row.bits = cases[i].bits;
        row.bound = cases[i].bound;
        report_put(r, &row);
    }
    usc_report *report = report_finish(r, here, "done");
    report_memory memory = {0};
    const usc_sink sink = {report_memory_write, &memory};
    usc_error err;
    const usc_report_options wide = {.width = 200};
    if (usc_report_table(report, &wide, &sink, &err) != USC_OK) fail_msg("%s", err.text);
    assert_contains(memory.bytes,
                    "passes with < 18 of 24 bits: 2, the lowest: call 3 aten::mm 15.2");
    free(memory.bytes);
    usc_report_close(report);
    sample_remove(here);
    free(here);
}

#define MANY_TEST(name)                                                                  \
    cmocka_unit_test_setup_teardown(name, make_folder, sample_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reasons_are_one_whatever_their_numbers),
        MANY_TEST(a_reason_is_read_from_its_metric),
        MANY_TEST(finding_again_takes_no_walk),
        MANY_TEST(usual_findings_stand_behind_the_others),
        MANY_TEST(usual_findings_can_be_allowed),
        cmocka_unit_test(what_was_excused_is_told_where_it_is_much),
        cmocka_unit_test(passes_of_few_bits_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
