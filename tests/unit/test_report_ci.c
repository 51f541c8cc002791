// SPDX-License-Identifier: Apache-2.0
// What a CI job takes from a report: the baseline, JUnit XML, the line that sums it up.
#include "report_sample.h"

#include <string.h>

static char *folder, *before;

static int make_folders(void **state)
{
    (void)state;
    folder = sample_folder();
    before = sample_folder();
    return 0;
}

static int remove_folders(void **state)
{
    (void)state;
    sample_remove(folder);
    sample_remove(before);
    free(folder);
    free(before);
    return 0;
}

/* A call of aten::mm in module "a", reduced to `bits`, or another verdict. */
static void put_call(usc_result *r, int64_t call, const char *verdict, double bits)
{
    usc_result_row row = report_row(call, "aten::mm", verdict);
    row.module = "a";
    row.bits = bits;
    row.sentence = "mm computed with few bits";
    report_put(r, &row);
}

/* Calls 1 and 2 reduced with 11 bits each, 3 passes, in another module one is wrong. */
static void make_before(void)
{
    usc_result *r = report_create(before);
    put_call(r, 1, "reduced", 11);
    put_call(r, 2, "reduced", 11);
    put_call(r, 3, "pass", 23);
    usc_result_row other = report_row(4, "aten::gelu", "wrong");
    report_put(r, &other);
    usc_report_close(report_finish(r, before, "done"));
}

static usc_report *with_baseline(usc_result *r, const char *path)
{
    usc_error err;
    usc_report *report = report_finish(r, folder, "done");
    if (usc_report_baseline(report, path, &err) != USC_OK) fail_msg("%s", err.text);
    return report;
}

static char *summary_of(usc_report *report)
{
    report_memory memory = {0};
    const usc_sink sink = {report_memory_write, &memory};
    usc_error err;
    if (usc_report_summary(report, NULL, &sink, &err) != USC_OK) fail_msg("%s", err.text);
    return memory.bytes;
}

static void assert_summary(usc_report *report, const char *expected)
{
    char *text = summary_of(report);
    assert_string_equal(text, expected);
    free(text);
}

static char *table_of(usc_report *report)
{
    report_memory memory = {0};
    const usc_sink sink = {report_memory_write, &memory};
    usc_error err;
    if (usc_report_table(report, NULL, &sink, &err) != USC_OK) fail_msg("%s", err.text);
    return memory.bytes;
}

static char *junit_of(usc_report *report)
{
    report_memory memory = {0};
    const usc_sink sink = {report_memory_write, &memory};
    usc_error err;
    if (usc_report_junit(report, NULL, &sink, &err) != USC_OK) fail_msg("%s", err.text);
    return memory.bytes;
}

static void what_the_baseline_has_is_not_flagged(void **state)
{
    (void)state;
    make_before();
    usc_result *r = report_create(folder);
    put_call(r, 11, "reduced", 10.2); /* less than one bit worse: noise */
    put_call(r, 12, "reduced", 12);
    put_call(r, 13, "pass", 23);
    usc_report *report = with_baseline(r, before);
    assert_int_equal(usc_report_exit_code(report, NULL), 0);
    assert_summary(report, "ulpscope: none of 3 calls flagged; 2 known");
    char *table = table_of(report);
    assert_contains(table, " (known)");
    assert_contains(table, "2 of the accused calls known, 0 new");
    assert_contains(table, "1 not checked this time: aten::gelu");
    assert_lacks(table, "no longer accused");
    free(table);
    usc_report_close(report);
}

static void a_worse_call_is_new(void **state)
{
    (void)state;
    make_before();
    usc_result *r = report_create(folder);
    put_call(r, 11, "reduced", 9.9); /* more than one bit below 11 */
    put_call(r, 12, "reduced", 11);
    usc_report *report = with_baseline(r, before);
    assert_int_equal(usc_report_exit_code(report, NULL), 1);
    assert_summary(report, "ulpscope: 1 of 2 calls flagged as new: aten::mm reduced "
                           "(9.9 bits); 1 known");
    usc_report_close(report);
}

static void a_graver_verdict_is_new_and_a_milder_one_is_not(void **state)
{
    (void)state;
    make_before();
    usc_result *r = report_create(folder);
    put_call(r, 11, "wrong", 11);
    usc_result_row other = report_row(4, "aten::gelu", "reduced");
    report_put(r, &other);
    usc_report *report = with_baseline(r, before);
    assert_summary(report, "ulpscope: 1 of 2 calls flagged as new: aten::mm wrong "
                           "(11.0 bits); 1 known");
    usc_report_close(report);
}

static void one_more_of_the_same_is_new(void **state)
{
    (void)state;
    make_before();
    usc_result *r = report_create(folder);
    for (int i = 0; i < 3; i++)
        put_call(r, 11 + i, "reduced", 11);
    usc_report *report = with_baseline(r, before);
    assert_int_equal(usc_report_exit_code(report, NULL), 1);
    char *table = table_of(report);
    assert_contains(table, " (2 of 3 known)");
    free(table);
    usc_report_close(report);
}

static void other_shapes_modules_and_operators_are_new(void **state)
{
    (void)state;
    make_before();
    usc_result *r = report_create(folder);
    usc_result_row row = report_row(1, "aten::mm", "reduced");
    row.module = "b";
    report_put(r, &row);
    row.call = 2;
    row.module = "a";
    row.args = "float32[3, 3]";
    report_put(r, &row);
    row.call = 3;
    row.args = "float32[2, 3]";
    row.op = "aten::bmm";
    report_put(r, &row);
    row.call = 4;
    row.op = "aten::mm";
    row.phase = "backward";
    report_put(r, &row);
    usc_report *report = with_baseline(r, before);
    char *text = summary_of(report);
    assert_contains(text, "4 of 4 calls flagged as new");
    free(text);
    usc_report_close(report);
}

static void what_was_put_right_is_said(void **state)
{
    (void)state;
    make_before();
    usc_result *r = report_create(folder);
    put_call(r, 1, "pass", 23);
    usc_report *report = with_baseline(r, before);
    char *table = table_of(report);
    assert_contains(table, "2 no longer accused: aten::mm");
    free(table);
    usc_report_close(report);
}

static void a_json_file_is_the_same_baseline(void **state)
{
    (void)state;
    char path[512];
    usc_error err;
    usc_report *earlier = NULL;
    make_before();
    assert_int_equal(usc_report_open(before, NULL, &earlier, &err), USC_OK);
    assert_int_equal(usc_report_write_files(earlier, &err), USC_OK);
    usc_report_close(earlier);
    usc_result *r = report_create(folder);
    put_call(r, 11, "reduced", 10.2);
    put_call(r, 12, "reduced", 9);
    put_call(r, 13, "unjudged", 0);
    snprintf(path, sizeof path, "%s/result.json", before);
    usc_report *report = with_baseline(r, path);
    char *text = summary_of(report);
    assert_contains(text,
                    "1 of 3 calls flagged as new: aten::mm reduced (9.0 bits); 1 known");
    free(text);
    usc_report_close(report);
}

/* One call that nobody judged, one of which an output was not, `n` times each. */
static void put_unseen(usc_result *r, int n)
{
    static const usc_metric beside[] = {{-1, "not_judged", 0, "out[1]: no reference"}};
    for (int i = 0; i < n; i++) {
        put_call(r, 10 + i, "unjudged", 0);
        usc_result_row row = report_row(20 + i, "aten::var_mean", "pass");
        row.metrics = beside;
        row.n_metrics = 1;
        report_put(r, &row);
    }
}

/* Held to what float32 leaves of it, or to what is drawn at all: no more can be told. */
static void what_nobody_can_tell_decides_nothing(void **state)
{
    (void)state;
    static const char *const why[] = {
        "out[0]: ill-conditioned: float32 leaves fewer than 4 bits at 3 of 4 elements",
        "out[0]: draws random numbers: 3 elements are too few to tell",
        "out[0]: no reference",
        "out[0]: ill-conditioned: float32 leaves fewer than 4 bits at 3 of 4 elements; "
        "its "
        "runs lose nearly all there; out[1]: no reference",
        "out[0]: no reference; out[1]: ill-conditioned: float32 leaves fewer than 4 bits "
        "at 3 of 4 elements",
        "out[0]: no reference: linalg.eigh: the input matrix is ill-conditioned or has "
        "too "
        "many repeated eigenvalues",
    };
    for (int i = 0; i < 6; i++) {
        usc_result *r = report_create(before);
        const usc_metric beside = {-1, "not_judged", 0, why[i]};
        usc_result_row row = report_row(20, "aten::var_mean", "pass");
        row.metrics = &beside;
        row.n_metrics = 1;
        report_put(r, &row);
        usc_report *report = report_finish(r, before, "done");
        char *text = table_of(report);
        assert_int_equal(usc_report_exit_code(report, NULL), i < 2 ? 0 : 2);
        assert_contains(text, why[i] + strlen("out[0]: "));
        free(text);
        usc_report_close(report);
    }
}

/* From a database, and from a JSON file. */
static void what_was_not_judged_before_need_not_be_now(void **state)
{
    (void)state;
    static const char *const files[] = {"", "/result.json"};
    usc_error err;
    usc_result *r = report_create(before);
    put_unseen(r, 1);
    usc_report *earlier = report_finish(r, before, "done");
    assert_int_equal(usc_report_write_files(earlier, &err), USC_OK);
    assert_int_equal(usc_report_exit_code(earlier, NULL), 2);
    usc_report_close(earlier);
    for (int i = 0; i < 4; i++) {
        const int n = i < 2 ? 1 : 2;
        char path[512];
        char *here = sample_folder();
        snprintf(path, sizeof path, "%s%s", before, files[i % 2]);
        r = report_create(here);
        put_unseen(r, n);
        usc_report *report = report_finish(r, here, "done");
        assert_int_equal(usc_report_baseline(report, path, &err), USC_OK);
        char *text = table_of(report);
        assert_contains(text, "not judged, as in the baseline: aten::mm 1 call");
        assert_int_equal(usc_report_exit_code(report, NULL), n == 1 ? 0 : 2);
        if (n == 2)
            assert_contains(text, "; 2 of 4 calls, hence exit code 2; to accept "
                                  "them: --allow unjudged:aten::mm,aten::var_mean");
        free(text);
        usc_report_close(report);
        sample_remove(here);
        free(here);
    }
}

static void refuse(usc_report *report, const char *path, usc_status status,
                   const char *words)
{
    usc_error err = {0};
    assert_int_equal(usc_report_baseline(report, path, &err), status);
    assert_contains(err.text, words);
}

static void a_bad_baseline_is_named(void **state)
{
    (void)state;
    char path[512];
    usc_report *report = report_sample(folder);
    refuse(report, "/nonexistent.json", USC_E_NOT_FOUND, "/nonexistent.json");
    refuse(report, "/dev/null", USC_E_CORRUPT, "neither");
    snprintf(path, sizeof path, "%s/x.json", before);
    FILE *file = fopen(path, "w");
    fputs("{\"schema\": \"another/1\", \"run\": {\"standard\": \"ulpscope\"}}", file);
    fclose(file);
    refuse(report, path, USC_E_CORRUPT, "neither");
    file = fopen(path, "w");
    fputs("{\"schema\": \"ulpscope-result/1\", \"run\": {\"standard\": \"bitwise\"}}",
          file);
    fclose(file);
    refuse(report, path, USC_E_ARG, "same standard");
    file = fopen(path, "w");
    fputs("{\"schema\": \"ulpscope-result/1\", \"run\": {\"standard\": \"ulpscope\"},"
          " \"calls\": [{\"op\": \"aten::mm\", \"verdict\": 3}]}",
          file);
    fclose(file);
    refuse(report, path, USC_E_CORRUPT, "calls[0].verdict is no text");
    remove(path);
    usc_report_close(report);
}

static void junit_has_a_case_per_signature(void **state)
{
    (void)state;
    usc_result *r = report_create(folder);
    put_call(r, 1, "reduced", 11);
    put_call(r, 2, "pass", 23);
    usc_result_row row = report_row(3, "aten::dropout", "unjudged");
    row.sentence = "aten::dropout is unjudged: draws random numbers";
    report_put(r, &row);
    row = report_row(4, "aten::gelu", "pass");
    report_put(r, &row);
    usc_report *report = report_finish(r, folder, "done");
    char *xml = junit_of(report);
    assert_contains(xml, "tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\"");
    assert_contains(xml,
                    "<testcase classname=\"a\" name=\"aten::mm(float32[2, 3]) forward\"");
    assert_contains(
        xml, "<failure type=\"reduced\" message=\"mm computed with few bits\">"
             "call 1: reduced: mm computed with few bits, at train.py:7\n</failure>");
    assert_contains(xml, "<skipped message=\"aten::dropout is unjudged: draws");
    free(xml);
    usc_report_close(report);
}

static void junit_fails_only_on_what_is_new(void **state)
{
    (void)state;
    make_before();
    usc_result *r = report_create(folder);
    put_call(r, 1, "reduced", 11);
    usc_report *report = with_baseline(r, before);
    char *xml = junit_of(report);
    assert_contains(xml, "tests=\"1\" failures=\"0\"");
    assert_lacks(xml, "aten::gelu"); /* what is in the baseline alone was not tested */
    free(xml);
    usc_report_close(report);
}

static void annotations_cannot_be_broken_out_of(void **state)
{
    (void)state;
    usc_result *r = report_create(folder);
    usc_result_row row = report_row(1, "a::b,c\n::warning::x", "wrong");
    row.sentence = "100 %\n::set-output name=x::y";
    report_put(r, &row);
    usc_report *report = report_finish(r, folder, "done");
    report_memory memory = {0};
    const usc_sink sink = {report_memory_write, &memory};
    usc_error err;
    assert_int_equal(usc_report_annotations(report, NULL, &sink, &err), USC_OK);
    assert_string_equal(
        memory.bytes,
        "::error file=train.py,line=7,title=a%3A%3Ab%2Cc%0A%3A%3Awarning%3A%3Ax wrong::"
        "100 %25%0A::set-output name=x::y (1 call)\n");
    free(memory.bytes);
    char *line = summary_of(report);
    assert_lacks(line, "\n");
    free(line);
    usc_report_close(report);
}

static void the_summary_names_the_worst_of_each_kind(void **state)
{
    (void)state;
    usc_report *report = report_sample(folder);
    assert_summary(report, "ulpscope: 13 of 18 calls flagged: aten::_fused_adamw_ wrong "
                           "(4.2 bits), aten::linear reduced (10.8 bits); 3 not judged "
                           "(1 unsupported, 2 unjudged); 1 undefined");
    usc_report_close(report);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folders, remove_folders)
    const struct CMUnitTest tests[] = {
        TEST(what_the_baseline_has_is_not_flagged),
        TEST(a_worse_call_is_new),
        TEST(a_graver_verdict_is_new_and_a_milder_one_is_not),
        TEST(one_more_of_the_same_is_new),
        TEST(other_shapes_modules_and_operators_are_new),
        TEST(what_was_put_right_is_said),
        TEST(a_json_file_is_the_same_baseline),
        TEST(what_nobody_can_tell_decides_nothing),
        TEST(what_was_not_judged_before_need_not_be_now),
        TEST(a_bad_baseline_is_named),
        TEST(junit_has_a_case_per_signature),
        TEST(junit_fails_only_on_what_is_new),
        TEST(annotations_cannot_be_broken_out_of),
        TEST(the_summary_names_the_worst_of_each_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
