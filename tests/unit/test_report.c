// SPDX-License-Identifier: Apache-2.0
// The report: what is summed up, the terminal table, and what decides the exit code.
#include "report_sample.h"

#include "alloc_probe.h"
#include "report/report_out.h"

static char *folder;

static int make_folder(void **state)
{
    *state = folder = sample_folder();
    return 0;
}

static char *table(usc_report *report, const usc_report_options *options)
{
    report_memory memory = {0};
    const usc_sink sink = {report_memory_write, &memory};
    usc_error err;
    if (usc_report_table(report, options, &sink, &err) != USC_OK)
        fail_msg("%s", err.text);
    return memory.bytes;
}

static void equal_findings_are_one_line_with_the_worst_numbers(void **state)
{
    (void)state;
    usc_report *report = report_sample(folder);
    char *text = table(report, NULL);
    assert_contains(text,
                    "reduced          10.8 / 23.5     12  aten::linear › aten::addmm\n");
    assert_contains(text, "in layers.{0-11}.attn\n");
    assert_contains(text, "linear computed with 10.8 effective bits\n");
    assert_lacks(text, "another");
    assert_true(strstr(text, "_fused_adamw_") < strstr(text, "aten::addmm"));
    assert_contains(text, "in (optimizer)\n");
    free(text);
    usc_report_close(report);
}

static void put_modules(usc_result *r, const char *op, const char *const *modules)
{
    static int64_t call;
    for (; *modules != NULL; modules++) {
        usc_result_row row = report_row(++call, op, "wrong");
        row.module = *modules;
        report_put(r, &row);
    }
}

static void a_few_modules_are_named_and_many_are_counted(void **state)
{
    (void)state;
    usc_result *r = report_create(folder);
    put_modules(r, "a::a", (const char *[]){"4", "0", NULL});
    put_modules(r, "a::b", (const char *[]){"a.10.b", "a.9.b", "a.2.b", NULL});
    put_modules(r, "a::c", (const char *[]){"a.0.b.1", "a.2.b.3", NULL});
    put_modules(r, "a::d", (const char *[]){"0", "2", "4", "6", "8", NULL});
    usc_report *report = report_finish(r, folder, "done");
    char *text = table(report, NULL);
    assert_contains(text, "in {0,4}\n");
    assert_contains(text, "in a.{2,9,10}.b\n");
    assert_contains(text, "in a.*.b.* (2)\n");
    assert_contains(text, "in * (5)\n");
    free(text);
    usc_report_close(report);
}

static void an_allowed_finding_is_marked(void **state)
{
    (void)state;
    usc_report *report = report_sample(folder);
    usc_allow allow;
    if (usc_allow_parse("reduced", &allow, NULL) != USC_OK) fail();
    const usc_report_options options = {.n_allow = 1, .allow = &allow};
    char *text = table(report, &options);
    assert_contains(text, "10.8 effective bits (allowed)\n");
    free(text);
    usc_report_close(report);
}

static void summary_counts_everything(void **state)
{
    (void)state;
    usc_report *report = report_sample(folder);
    char *text = table(report, NULL);
    assert_contains(text,
                    "18 calls of 6 operators, standing for 20 calls, of demo on sim:0");
    assert_contains(text, "13 calls are accused above; no other is.");
    assert_contains(text, "1 × aten::dropout: random operator");
    assert_contains(text, "1 × aten::dropout: no reference within 60 s");
    assert_contains(text, "1 × aten::lgamma: the device has no lgamma");
    assert_contains(text, "aten::linear 12 (12 accused)");
    assert_contains(text, "device 5 %, reference 10 %, perturbed replays 15 %");
    assert_contains(text, "/report.html");
    free(text);
    usc_report_close(report);
}

/* A range that is not complete would name modules that are not accused. */
static void modules_are_ranges_only_where_all_are_there(void **state)
{
    (void)state;
    usc_result *r = report_create(folder);
    static const char *const modules[] = {"a.0.x", "a.1.x", "a.3.x", "b.7", "head"};
    for (int i = 0; i < 5; i++) {
        usc_result_row row = report_row(1 + i, "aten::mm", "wrong");
        row.module = modules[i];
        report_put(r, &row);
    }
    usc_report *report = report_finish(r, folder, "done");
    char *text = table(report, NULL);
    assert_contains(text, "in a.{0,1,3}.x, b.7, head\n");
    free(text);
    usc_report_close(report);
}

static void names_cannot_steer_the_terminal(void **state)
{
    (void)state;
    usc_report *report = report_sample(folder);
    char *text = table(report, NULL);
    assert_null(strchr(text, '\033'));
    assert_contains(text, "evil::</script><b>\"&?[31m");
    free(text);
    text = table(report, &(usc_report_options){.color = true});
    assert_contains(text, "\033[1;31m");
    assert_contains(text, "&?[31m");
    free(text);
    usc_report_close(report);
}

/* Names are never cut; only they may pass the edge, and the last two lines, for a CI job.
 */
static void lines_keep_to_the_width(void **state)
{
    (void)state;
    usc_report *report = report_sample(folder);
    for (int width = 70; width <= 160; width += 20) {
        char *text =
            table(report, &(usc_report_options){.width = width, .no_files = true});
        for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
            if (usc_utf8_width(line, strlen(line)) > width &&
                strncmp(line, "ulpscope: ", 10) != 0 &&
                strncmp(line, "not judged: ", 12) != 0)
                fail_msg("width %d: %s", width, line);
        free(text);
    }
    usc_report_close(report);
}

static void an_interrupted_check_is_said_to_be_one(void **state)
{
    (void)state;
    usc_result *r = report_create(folder);
    const usc_result_row row = report_row(1, "aten::mm", "pass");
    report_put(r, &row);
    usc_error err;
    assert_int_equal(usc_result_set(r, "n_selected", "9", &err), USC_OK);
    usc_report *report = report_finish(r, folder, "running");
    char *text = table(report, NULL);
    assert_contains(text, "interrupted: 1 of 9 selected calls");
    assert_int_equal(usc_report_exit_code(report, NULL), 2);
    free(text);
    usc_report_close(report);
}

/* ---- exit codes ---- */

static int code_of(const char *verdict, const char *allow, bool strict)
{
    char *here = sample_folder();
    usc_result *r = report_create(here);
    usc_result_row row = report_row(1, "aten::linear", verdict);
    row.culprit = "aten::addmm";
    report_put(r, &row);
    if (strcmp(verdict, "pass") != 0) {
        const usc_result_row good = report_row(2, "aten::gelu", "pass");
        report_put(r, &good);
    }
    usc_report *report = report_finish(r, here, "done");
    usc_allow excuse;
    usc_error err;
    usc_report_options options = {.strict = strict};
    if (allow != NULL) {
        if (usc_allow_parse(allow, &excuse, &err) != USC_OK) fail_msg("%s", err.text);
        options.n_allow = 1;
        options.allow = &excuse;
    }
    const int code = usc_report_exit_code(report, &options);
    usc_report_close(report);
    sample_remove(here);
    free(here);
    return code;
}

static void flagged_verdicts_give_1(void **state)
{
    (void)state;
    for (int v = 0; v < USC_N_VERDICTS; v++) {
        const char *text = usc_verdict_text((usc_verdict)v);
        const int code =
            usc_verdict_missing((usc_verdict)v) ? 2 : usc_verdict_flagged((usc_verdict)v);
        assert_int_equal(code_of(text, NULL, false), code);
    }
    assert_int_equal(code_of("internal", NULL, true), 2);
    assert_int_equal(code_of("unjudged", NULL, true), 1);
    assert_int_equal(code_of("unsupported", NULL, true), 1);
    assert_int_equal(code_of("undefined", NULL, true), 1);
}

static void an_excuse_holds_for_its_verdict_and_operators(void **state)
{
    (void)state;
    assert_int_equal(code_of("reduced", "reduced", false), 0);
    assert_int_equal(code_of("wrong", "reduced", false), 1);
    assert_int_equal(code_of("reduced", "reduced:linear", false), 0);
    assert_int_equal(code_of("reduced", "reduced:aten::addmm,mm", false), 0);
    assert_int_equal(code_of("reduced", "reduced:gelu", false), 1);
    /* linear is no addmm, but its culprit is: no excuse */
    assert_int_equal(code_of("reduced", "reduced:!addmm", false), 1);
    assert_int_equal(code_of("unjudged", "unjudged", true), 0);
}

static void bad_excuses_are_refused(void **state)
{
    (void)state;
    usc_allow allow;
    usc_error err;
    assert_int_equal(usc_allow_parse("redused", &allow, &err), USC_E_ARG);
    assert_contains(err.text, "'redused' is no verdict");
    assert_int_equal(usc_allow_parse("pass", &allow, &err), USC_E_ARG);
    assert_int_equal(usc_allow_parse("internal", &allow, &err), USC_E_ARG);
    assert_int_equal(usc_allow_parse("", &allow, &err), USC_E_ARG);
    assert_int_equal(usc_allow_parse("wrong:a,,b", &allow, &err), USC_E_ARG);
    assert_null(allow.pattern);
}

/* Nothing judged must never look like success. */
static void nothing_judged_gives_2(void **state)
{
    (void)state;
    usc_result *r = report_create(folder);
    usc_report *report = report_finish(r, folder, "done");
    assert_int_equal(usc_report_exit_code(report, NULL), 2);
    char *text = table(report, NULL);
    assert_contains(text, "Nothing was checked.");
    free(text);
    usc_report_close(report);

    char *other = sample_folder();
    r = report_create(other);
    usc_result_row row = report_row(1, "aten::mm", "unsupported");
    report_put(r, &row);
    row = report_row(2, "aten::mm", "unjudged");
    report_put(r, &row);
    report = report_finish(r, other, "done");
    assert_int_equal(usc_report_exit_code(report, NULL), 2);
    assert_int_equal(usc_report_exit_code(report, &(usc_report_options){.strict = true}),
                     1);
    usc_report_close(report);
    sample_remove(other);
    free(other);
}

/* Two calls of ext::norm that nobody judged, one of aten::lgamma that the device lacks,
 * one that promises nothing, and passes; `bad` is one more call's verdict. */
static usc_report *with_unseen(char *here, const char *trace_id, const char *bad)
{
    static const struct {
        const char *op, *verdict, *sentence;
    } rows[] = {{"ext::norm", "unjudged", "ext::norm is unjudged: it has no formula"},
                {"ext::norm", "unjudged", "ext::norm is unjudged: it has no formula"},
                {"aten::lgamma", "unsupported", "aten::lgamma is unsupported: no kernel"},
                {"aten::to", "undefined", ""},
                {"aten::mm", "pass", ""},
                {"ext::norm", "pass", ""}};
    usc_error err;
    usc_result *r = report_create(here);
    for (int i = 0; i < 6; i++) {
        usc_result_row row = report_row(1 + i, rows[i].op, rows[i].verdict);
        row.sentence = rows[i].sentence;
        report_put(r, &row);
    }
    const usc_result_row more = report_row(7, "aten::add", bad);
    report_put(r, &more);
    if (trace_id != NULL)
        assert_int_equal(usc_result_set(r, "trace_id", trace_id, &err), USC_OK);
    return report_finish(r, here, "done");
}

/* What nobody looked at is not 0, unless somebody says so; and the last line tells what
 * to type. */
static void what_was_not_judged_decides_unless_it_is_allowed(void **state)
{
    (void)state;
    static const char drawn[] = "cases of seed 7, drawn from x";
    static const struct {
        const char *trace_id, *bad, *allow[2];
        double least;
        int code;
        const char *said, *unsaid;
    } rows[] = {
        {NULL,
         "pass",
         {0},
         0,
         2,
         "3 of 7 calls, hence exit code 2; to accept them: --allow unjudged:ext::norm "
         "--allow unsupported:aten::lgamma\n",
         "accepted"},
        {NULL,
         "pass",
         {"unjudged"},
         0,
         2,
         "1 of 7 calls, hence exit code 2; to accept it: --allow "
         "unsupported:aten::lgamma",
         "unjudged:ext"},
        {NULL,
         "pass",
         {"unjudged:ext::*", "unsupported"},
         0,
         0,
         "not judged, accepted by --allow: ext::norm 2 calls (it has no formula",
         "hence"},
        {NULL,
         "pass",
         {"unjudged:norm", "unsupported:!lgamma"},
         0,
         2,
         "to accept it: ",
         ""},
        {NULL, "pass", {0}, 0.5, 0, "not judged: ext::norm 2 calls", "hence"},
        {NULL, "pass", {0}, 0.6, 2, "only 57 % judged, less than the 60 %", "accepted"},
        {NULL, "pass", {0}, -1, 0, "not judged: ext::norm 2 calls", "hence"},
        {NULL,
         "wrong",
         {"unjudged", "unsupported"},
         0,
         1,
         "accepted by --allow",
         "hence"},
        {NULL, "crashed", {"unjudged", "unsupported"}, 0, 1, "", "hence"},
        {NULL, "internal", {"unjudged", "unsupported"}, 0, 2, "", "to accept"},
        {NULL, "wrong", {0}, 0, 1, "not judged: ext::norm 2 calls", "hence"},
        /* a fuzz draws its cases: of ext::norm another says what it does */
        {drawn,
         "pass",
         {0},
         0,
         2,
         "1 of 7 calls, hence exit code 2; to accept it: --allow "
         "unsupported:aten::lgamma",
         "unjudged:ext"},
        {drawn, "pass", {"unsupported"}, 0, 0, "not judged: ext::norm 2 calls", "hence"},
        {drawn, "pass", {"unsupported"}, 1, 2, "--allow unjudged:ext::norm", "lgamma\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        usc_allow allow[2];
        usc_error err;
        usc_report_options o = {.allow = allow, .min_judged = rows[i].least};
        char *here = sample_folder();
        usc_report *report = with_unseen(here, rows[i].trace_id, rows[i].bad);
        while (o.n_allow < 2 && rows[i].allow[o.n_allow] != NULL) {
            assert_int_equal(
                usc_allow_parse(rows[i].allow[o.n_allow], &allow[o.n_allow], &err),
                USC_OK);
            o.n_allow++;
        }
        char *text = table(report, &o);
        if (usc_report_exit_code(report, &o) != rows[i].code)
            fail_msg("row %zu: %d\n%s", i, usc_report_exit_code(report, &o), text);
        assert_contains(text, rows[i].said);
        if (rows[i].unsaid[0] != '\0') assert_lacks(text, rows[i].unsaid);
        free(text);
        usc_report_close(report);
        sample_remove(here);
        free(here);
    }
}

static void a_cause_left_open_joins_the_one_it_begins_with(void **state)
{
    (void)state;
    static const char *causes[] = {"inputs rounded to TF32 or float16",
                                   "inputs rounded to TF32", "inputs rounded to TF"};
    const usc_metric spent = {-1, "t_causes", 2.0, NULL};
    usc_result *r = report_create(folder);
    for (int i = 0; i < 3; i++) {
        usc_result_row row = report_row(1 + i, "aten::mm", "reduced");
        row.cause = causes[i];
        row.metrics = &spent;
        row.n_metrics = 1;
        report_put(r, &row);
    }
    usc_report *report = report_finish(r, folder, "done");
    char *text = table(report, NULL);
    assert_contains(text, "23.5 / 23.5      2  aten::mm\n");
    assert_contains(text, "23.5 / 23.5      1  aten::mm\n");
    assert_contains(text, "causes 10 %");
    free(text);
    usc_report_close(report);
}

/* ---- trouble ---- */

static void what_is_no_result_is_refused_by_name(void **state)
{
    (void)state;
    usc_report *report = (usc_report *)1;
    usc_error err;
    assert_int_equal(usc_report_open("/nowhere/out", NULL, &report, &err),
                     USC_E_NOT_FOUND);
    assert_contains(err.text, "/nowhere/out");
    assert_null(report);

    char path[600];
    snprintf(path, sizeof path, "%s/result.db", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("this is no database, only long enough to be taken for one", file);
    fclose(file);
    assert_int_equal(usc_report_open(folder, NULL, &report, &err), USC_E_CORRUPT);
    assert_contains(err.text, "result.db");
    assert_null(report);
}

static void no_allocation_may_leak(void **state)
{
    (void)state;
    usc_report_close(report_sample(folder));
    for (int n = 1; n < 50; n++) {
        alloc_probe probe;
        usc_error err;
        usc_report *report = NULL;
        usc_status st =
            usc_report_open(folder, alloc_probe_bind(&probe, n), &report, &err);
        report_memory memory = {0};
        const usc_sink sink = {report_memory_write, &memory};
        if (st == USC_OK) st = usc_report_table(report, NULL, &sink, &err);
        usc_report_close(report);
        free(memory.bytes);
        assert_int_equal(probe.live_bytes, 0);
        assert_int_equal(probe.n_wrong_sizes, 0);
        if (st == USC_OK) return;
        assert_int_equal(st, USC_E_NOMEM);
    }
    fail_msg("more than 50 allocations");
}

static usc_status full(void *ctx, const char *bytes, size_t n, usc_error *err)
{
    (void)ctx, (void)bytes, (void)n;
    return usc_error_set(err, USC_E_IO, -1, "full");
}

static void an_error_of_the_sink_comes_back(void **state)
{
    (void)state;
    usc_report *report = report_sample(folder);
    const usc_sink sink = {full, NULL};
    usc_error err;
    assert_int_equal(usc_report_table(report, NULL, &sink, &err), USC_E_IO);
    assert_int_equal(usc_report_csv(report, &sink, &err), USC_E_IO);
    assert_int_equal(usc_report_json(report, &sink, &err), USC_E_IO);
    assert_int_equal(usc_report_html(report, &sink, &err), USC_E_IO);
    assert_string_equal(err.text, "full");
    usc_report_close(report);
}

#define REPORT_TEST(name)                                                                \
    cmocka_unit_test_setup_teardown(name, make_folder, sample_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        REPORT_TEST(equal_findings_are_one_line_with_the_worst_numbers),
        REPORT_TEST(a_few_modules_are_named_and_many_are_counted),
        REPORT_TEST(an_allowed_finding_is_marked),
        REPORT_TEST(summary_counts_everything),
        REPORT_TEST(modules_are_ranges_only_where_all_are_there),
        REPORT_TEST(names_cannot_steer_the_terminal),
        REPORT_TEST(lines_keep_to_the_width),
        REPORT_TEST(an_interrupted_check_is_said_to_be_one),
        cmocka_unit_test(flagged_verdicts_give_1),
        cmocka_unit_test(an_excuse_holds_for_its_verdict_and_operators),
        cmocka_unit_test(bad_excuses_are_refused),
        cmocka_unit_test(what_was_not_judged_decides_unless_it_is_allowed),
        REPORT_TEST(nothing_judged_gives_2),
        REPORT_TEST(a_cause_left_open_joins_the_one_it_begins_with),
        REPORT_TEST(what_is_no_result_is_refused_by_name),
        REPORT_TEST(no_allocation_may_leak),
        REPORT_TEST(an_error_of_the_sink_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
