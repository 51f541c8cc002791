// SPDX-License-Identifier: Apache-2.0
// The files of a report: every format holds whatever a name may be, and no half file is
// ever seen.
#include "report_sample.h"

#include <sqlite3.h>
#include <sys/stat.h>

static char *folder;
static usc_report *report;

static int make_report(void **state)
{
    (void)state;
    folder = sample_folder();
    report = report_sample(folder);
    return 0;
}

static int remove_report(void **state)
{
    (void)state;
    usc_report_close(report);
    sample_remove(folder);
    free(folder);
    return 0;
}

/* A value of a JSON text, by SQLite: an independent reader. The caller frees it. */
static char *json_at(const char *json, const char *path)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *s = NULL;
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "SELECT json_extract(?1, ?2)", -1, &s, NULL),
                     SQLITE_OK);
    sqlite3_bind_text(s, 1, json, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 2, path, -1, SQLITE_STATIC);
    if (sqlite3_step(s) != SQLITE_ROW) fail_msg("%s", sqlite3_errmsg(db));
    const unsigned char *text = sqlite3_column_text(s, 0);
    char *copy = strdup(text != NULL ? (const char *)text : "null");
    sqlite3_finalize(s);
    sqlite3_close(db);
    return copy;
}

static void assert_json(const char *json, const char *path, const char *expected)
{
    char *value = json_at(json, path);
    if (strcmp(value, expected) != 0) fail_msg("%s is %s", path, value);
    free(value);
}

static void json_holds_the_schema(void **state)
{
    (void)state;
    char *json = report_render(report, usc_report_json);
    assert_json(json, "$.schema", "ulpscope-result/1");
    assert_json(json, "$.run.device", "sim:0");
    assert_json(json, "$.run.environment.torch", "2.13.0");
    assert_json(json, "$.summary.n_calls", "18");
    assert_json(json, "$.summary.stands_for", "20");
    assert_json(json, "$.summary.verdicts.reduced", "12");
    assert_json(json, "$.findings[0].verdict", "wrong");
    assert_json(json, "$.findings[1].modules", "layers.{0-11}.attn");
    assert_json(json, "$.calls[0].op", "aten::_fused_adamw_");
    assert_json(json, "$.calls[0].bits", "4.2");
    assert_json(json, "$.calls[0].stack[0][1]", "7");
    free(json);
}

/* JSON has no NaN and no infinity. */
static void json_writes_odd_numbers_as_strings(void **state)
{
    (void)state;
    char *json = report_render(report, usc_report_json);
    assert_json(json, "$.calls[0].examples[0].device", "nan");
    assert_json(json, "$.calls[0].examples[0].score", "inf");
    assert_json(json, "$.calls[0].metrics[0].value", "inf");
    assert_json(json, "$.calls[0].metrics[2].value[1]", "3");
    free(json);
}

static void json_survives_names_and_broken_json(void **state)
{
    (void)state;
    char *json = report_render(report, usc_report_json);
    char *calls = json_at(json, "$.calls[13].module");
    assert_string_equal(calls, REPORT_EVIL);
    free(calls);
    assert_json(json, "$.calls[13].stack", "no JSON" REPORT_EVIL);
    free(json);
}

static void bits_that_mean_nothing_are_null(void **state)
{
    (void)state;
    char *json = report_render(report, usc_report_json);
    assert_json(json, "$.calls[16].verdict", "unsupported");
    assert_json(json, "$.calls[16].bits", "null");
    free(json);
}

static void csv_quotes_what_needs_it(void **state)
{
    (void)state;
    char *csv = report_render(report, usc_report_csv);
    assert_contains(csv, "call,step,phase,op,");
    assert_contains(csv, "\"a, \"\"b\"\"\nc\"");
    assert_contains(csv, "10,1,forward,aten::linear,aten::addmm,layers.0.attn,Attention,"
                         "reduced,10.8,23.5,0,,inputs rounded to TF32,");
    free(csv);
}

static void details_have_a_row_per_metric(void **state)
{
    (void)state;
    char *csv = report_render(report, usc_report_details);
    assert_string_equal(csv,
                        "call,op,verdict,output,metric,value,text\n"
                        "2,aten::_fused_adamw_,wrong,0,max,inf,\n"
                        "2,aten::_fused_adamw_,wrong,0,path,,out[0]\n"
                        "2,aten::_fused_adamw_,wrong,0,score_histogram,,\"[0, 3, 1]\"\n");
    free(csv);
}

static int count(const char *text, const char *needle)
{
    int n = 0;
    for (; (text = strstr(text, needle)) != NULL; text += strlen(needle))
        n++;
    return n;
}

/* Every end tag of a script is one of the page's own, whatever the model calls things. */
static void html_is_escaped_and_self_contained(void **state)
{
    (void)state;
    char *html = report_render(report, usc_report_html);
    assert_lacks(html, "</script><b>");
    assert_contains(html, "\\u003c/script>\\u003cb>");
    assert_int_equal(count(html, "<script"), count(html, "</script>"));
    assert_int_equal(count(html, "id=\"data-"), 18);
    assert_lacks(html, "{{");
    assert_lacks(html, "src=");
    assert_lacks(html, "@import");
    assert_lacks(html, "url(");
    free(html);
}

static char *markdown_of(const usc_run *run, const usc_result_row *row,
                         const usc_script_run *tried)
{
    report_memory m = {0};
    const usc_sink sink = {report_memory_write, &m};
    usc_error err;
    if (usc_report_markdown(run, row, tried, &sink, &err) != USC_OK)
        fail_msg("%s", err.text);
    return m.bytes;
}

static void a_bug_report_says_what_where_numbers_and_environment(void **state)
{
    (void)state;
    const usc_run run = {.trace = "t",
                         .device = "npu:0",
                         .faults = "",
                         .environment = "{\"torch\": \"2.13.0\", \"cores\": 2}"};
    const usc_metric path = {1, "path", 0, "out[1]"};
    const usc_script_run failed = {.code = 1, .alone = true};
    const usc_result_example worst = {1, 0, "[0, 3]", (double)NAN, 0.5, 0.25, 9};
    usc_result_row row = report_row(7, "aten::_softmax", "reduced");
    row.bits = 8.04;
    row.sentence = "_softmax computed with 8.0 effective bits";
    row.metrics = &path;
    row.n_metrics = 1;
    row.examples = &worst;
    row.n_examples = 1;
    char *text = markdown_of(&run, &row, &failed);
    assert_string_equal(
        text,
        "## `aten::_softmax` on `npu:0`: reduced\n\n"
        "\\_softmax computed with 8.0 effective bits\n\n"
        "- Effective bits: 8.0, of which float32 on the CPU gives 23.5\n"
        "- Arguments: `float32[2, 3]`\n- Decided by: `out[0]`\n"
        "- Where: call 7 of `t`, step 1, forward, in `layers.0.attn` (Attention)\n\n"
        "Worst elements:\n\n| Element | Device | Correct (float64) | Float32 on the CPU "
        "|\n|---|---:|---:|---:|\n| out\\[1\\]\\[0, 3\\] | nan | 0.5 | 0.25 |\n\n"
        "To see it again: `python repro.py`; in a process of its own it fails (exit code "
        "1), "
        "also by its own comparison (--plain)\n\n"
        "Environment:\n\n- device: `npu:0`\n- torch: 2.13.0\n- cores: 2\n");
    free(text);
}

/* A name that would end the code, open a tag or begin a line is text; what is no JSON is
 * left out. */
static void a_bug_report_survives_names_and_broken_json(void **state)
{
    (void)state;
    const usc_run run = {.device = "a`b", .environment = "{broken"};
    usc_result_row row = report_row(1, "evil`\n# x", "unjudged");
    row.sentence = "<b> *x* [y](z)\n# w";
    row.bits = (double)NAN;
    char *text = markdown_of(&run, &row, NULL);
    assert_contains(text, "## `evil' # x` on `a'b`: unjudged\n");
    assert_contains(text, "\\<b\\> \\*x\\* \\[y\\](z) # w\n");
    assert_lacks(text, "Effective bits");
    assert_contains(text, "Environment:\n\n- device: `a'b`\n");
    free(text);
}

static char *about_of(const usc_result_row *row, const usc_script_run *tried)
{
    const usc_run run = {.trace = "a\"\"\"b", .device = "npu:0"};
    report_memory m = {0};
    const usc_sink sink = {report_memory_write, &m};
    usc_error err;
    if (usc_report_about(&run, row, tried, &sink, &err) != USC_OK)
        fail_msg("%s", err.text);
    return m.bytes;
}

static void a_script_says_what_it_is_and_whether_it_was_seen_to_fail(void **state)
{
    (void)state;
    usc_result_row row = report_row(7, "aten::mm", "wrong");
    row.sentence = "one\ntwo \\\"\"\"";
    char *text = about_of(&row, NULL);
    assert_string_equal(text, "aten::mm on npu:0, call 7 of a'''b, step 1, forward, in "
                              "layers.0.attn (Attention)");
    free(text);
    static const struct {
        usc_script_run tried;
        const char *line;
    } cases[] = {
        {{.code = 1, .said = "off 2"},
         "\none two /'''; in a process of its own it fails (exit code 1): off 2"},
        {{.code = 0}, "\none two /'''; NOT REPRODUCED: "},
        {{.code = 1}, "it fails (exit code 1), but its own comparison"},
        {{.code = 2, .said = "no\nnpu\""}, "NOT TRIED: no npu'"},
        {{.code = -11}, "ends that process (signal 11)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        text = about_of(&row, &cases[i].tried);
        assert_contains(text, cases[i].line);
        assert_int_equal(count(text, "\n"), 1);
        free(text);
    }
}

static char *script_of(const usc_script_part *parts, size_t n, const usc_tensor *t,
                       size_t n_tensors, usc_status expected)
{
    usc_named_tensor tensors[4];
    for (size_t i = 0; i < n_tensors; i++)
        tensors[i] = (usc_named_tensor){"args[0]", *t};
    report_memory m = {0};
    const usc_sink sink = {report_memory_write, &m};
    usc_error err;
    assert_int_equal(usc_report_script(parts, n, tensors, n_tensors, &sink, &err),
                     expected);
    if (expected != USC_OK) assert_contains(err.text, "imports");
    return m.bytes;
}

/* Values that read back as they were, where they are few; else a file. Never over 40
 * lines. */
static void a_script_holds_few_numbers_and_reads_many(void **state)
{
    (void)state;
    static const usc_script_part parts[] = {
        {"about", "two\nlines"}, {"where", "device"}, {"dtype", "cast(x.dtype)"},
        {"arguments", "[], {}"}, {"operator", "op"},  {"device", "'cpu'"},
        {"imports", "[]"}};
    const size_t n = sizeof parts / sizeof parts[0];
    float few[] = {0.1F, -0.0F, NAN, 16777216.0F};
    static float many[65];
    const int64_t sizes[] = {2, 2}, long_ = 65;
    usc_tensor t;
    usc_error err;
    assert_int_equal(usc_tensor_make(&t, few, USC_F32, 2, sizes, &err), USC_OK);
    char *text = script_of(parts, n, &t, 3, USC_OK);
    assert_contains(text, "torch.tensor([0.1, -0.0, float(\"nan\"), 16777216], "
                          "dtype=torch.float32).reshape(2, 2)");
    assert_in_range(count(text, "\n"), 20, 40);
    free(text);
    text = script_of(parts, n, &t, 4, USC_OK); /* too many lines */
    assert_contains(text, "{\"F32\": torch.float32}[dtype]");
    free(text);
    assert_int_equal(usc_tensor_make(&t, many, USC_F32, 1, &long_, &err), USC_OK);
    text = script_of(parts, n, &t, 1, USC_OK);
    assert_contains(text, "inputs.safetensors");
    assert_in_range(count(text, "\n"), 20, 40);
    free(text);
    free(script_of(parts, n - 1, &t, 1, USC_E_ARG));
}

/* One for each finding: a page of 5,000 calls of the same kind does not repeat it. */
static void html_holds_a_bug_report_per_finding(void **state)
{
    (void)state;
    char *html = report_render(report, usc_report_html);
    char *json = report_render(report, usc_report_json);
    assert_contains(html, "\"markdown\": \"## `aten::linear` on `sim:0`: reduced");
    assert_int_equal(count(html, "\"markdown\": \"## "), count(json, "\"worst_call\":"));
    free(json);
    free(html);
}

static void files_are_written_whole(void **state)
{
    (void)state;
    static const char *const names[] = {"result.csv", "details.csv", "result.json",
                                        "report.html"};
    usc_error err;
    if (usc_report_write_files(report, &err) != USC_OK) fail_msg("%s", err.text);
    for (int i = 0; i < 4; i++) {
        char path[600];
        struct stat info;
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(stat(path, &info), 0);
        assert_true(info.st_size > 100);
    }
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        if (e->d_name[0] == '.' && strlen(e->d_name) > 2)
            fail_msg("left behind: %s", e->d_name);
    closedir(dir);
}

static void a_file_that_cannot_be_written_is_named(void **state)
{
    (void)state;
    char path[600];
    snprintf(path, sizeof path, "%s/result.csv", folder);
    assert_int_equal(mkdir(path, 0700), 0); /* rename onto a folder fails, for root too */
    usc_error err;
    assert_int_equal(usc_report_write_files(report, &err), USC_E_IO);
    assert_contains(err.text, path);
}

/* `n` calls of 48 layers; one in 50 is reduced. */
static void make_many(const char *many, int n)
{
    usc_result *r = report_create(many);
    for (int i = 1; i <= n; i++) {
        char module[32];
        snprintf(module, sizeof module, "layers.%d.mlp", i % 48);
        usc_result_row row =
            report_row(i, i % 3 ? "aten::mm" : "aten::gelu", i % 50 ? "pass" : "reduced");
        row.module = module;
        report_put(r, &row);
    }
    usc_report_close(report_finish(r, many, "done"));
}

static void five_thousand_calls_are_fine(void **state)
{
    (void)state;
    char *many = sample_folder();
    make_many(many, 5000);
    usc_report *big = NULL;
    usc_error err;
    assert_int_equal(usc_report_open(many, NULL, &big, &err), USC_OK);
    char *json = report_render(big, usc_report_json);
    assert_json(json, "$.summary.verdicts.reduced", "100");
    assert_json(json, "$.calls[4999].verdict", "pass");
    free(json);
    char *html = report_render(big, usc_report_html);
    assert_int_equal(count(html, "id=\"data-"), 5000);
    free(html);
    usc_report_close(big);
    sample_remove(many);
    free(many);
}

/* Call 3 has one more tensor, with statistics. */
static usc_status put_with_stats(usc_trace_writer *w, usc_error *err)
{
    float data[] = {-1.5F, 0.0F, 2.0F, NAN};
    const int64_t n = 4, one = 1;
    usc_tensor view;
    usc_stats stats;
    usc_status st = usc_tensor_make(&view, data, USC_F32, 1, &n, err);
    if (st == USC_OK) st = usc_stats_compute(&view, NULL, &stats, err);
    if (st != USC_OK) return st;
    const usc_storage_row storage = {900, "cpu", 16};
    const usc_version_row version = {900, 900, 2, 0, 1};
    const usc_tensor_row tensor = {.id = 900,
                                   .version = 900,
                                   .dtype_name = "float32",
                                   .ndim = 1,
                                   .sizes = &n,
                                   .strides = &one,
                                   .stats = &stats};
    const usc_arg_row arg = {3, USC_ROLE_MUTATED, "kwargs.out", 900};
    st = usc_trace_put_storage(w, &storage, err);
    if (st == USC_OK) st = usc_trace_put_version(w, &version, err);
    if (st == USC_OK) st = usc_trace_put_tensor(w, &tensor, err);
    if (st == USC_OK) st = usc_trace_put_arg(w, &arg, err);
    return st;
}

static int make_trace(const char *where)
{
    usc_error err;
    usc_trace_writer *w = NULL;
    usc_status st = usc_trace_create(where, NULL, &w, &err);
    if (st == USC_OK) st = sample_begin(w, &err);
    for (int64_t i = 1; i <= 12 && st == USC_OK; i++)
        st = sample_call(w, i, &err);
    if (st == USC_OK) st = put_with_stats(w, &err);
    if (w != NULL && usc_trace_finish(w, st == USC_OK, &err) != USC_OK) st = err.status;
    if (st != USC_OK) fprintf(stderr, "%s\n", err.text);
    return st != USC_OK;
}

/* `test_report_files sample|many|trace FOLDER` makes what tests/py looks at. */
static int make(const char *what, const char *where)
{
    if (strcmp(what, "trace") == 0) return make_trace(where);
    if (strcmp(what, "many") == 0)
        make_many(where, 5000);
    else
        usc_report_close(report_sample(where));
    return 0;
}

#define FILES_TEST(name) cmocka_unit_test_setup_teardown(name, make_report, remove_report)

int main(int argc, char **argv)
{
    if (argc == 3) return make(argv[1], argv[2]);
    const struct CMUnitTest tests[] = {
        FILES_TEST(json_holds_the_schema),
        FILES_TEST(json_writes_odd_numbers_as_strings),
        FILES_TEST(json_survives_names_and_broken_json),
        FILES_TEST(bits_that_mean_nothing_are_null),
        FILES_TEST(csv_quotes_what_needs_it),
        FILES_TEST(details_have_a_row_per_metric),
        FILES_TEST(html_is_escaped_and_self_contained),
        cmocka_unit_test(a_bug_report_says_what_where_numbers_and_environment),
        cmocka_unit_test(a_bug_report_survives_names_and_broken_json),
        cmocka_unit_test(a_script_says_what_it_is_and_whether_it_was_seen_to_fail),
        cmocka_unit_test(a_script_holds_few_numbers_and_reads_many),
        FILES_TEST(html_holds_a_bug_report_per_finding),
        FILES_TEST(files_are_written_whole),
        FILES_TEST(a_file_that_cannot_be_written_is_named),
        cmocka_unit_test(five_thousand_calls_are_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
