// SPDX-License-Identifier: Apache-2.0
// Every n-th request for memory fails, for all n: reports, checks and packs then say
// USC_E_NOMEM and leave nothing behind, or end with exactly what they give otherwise. A
// request that fails unnoticed would show as another result. Neighbours: the same for
// what takes a usc_alloc in test_case.c, test_judge_api.c, test_pack.c, test_trace.c and
// others; for capture in test_capture_harm.c.
#include "attempt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include "alloc_fails.h"
#include "base/folder.h"
#include "report_sample.h"

#include <stdio.h>
#include <unistd.h>

#include <ulpscope/trace.h>
#include <ulpscope/x/generate.h>
#include <ulpscope/x/loss.h>
#include <ulpscope/x/port.h>
#include <ulpscope/x/run.h>

extern char **environ;

static usc_status keep_bytes(void *ctx, const char *bytes, size_t n, usc_error *err)
{
    (void)err;
    keep(ctx, bytes, n);
    return USC_OK;
}

static usc_sink sink_of(attempt *a)
{
    return (usc_sink){keep_bytes, a};
}

static void try_all(attempt *a)
{
    try_requests(a, false);
    try_requests(a, true);
    if (a->n_wrong > 0) fail_msg("%d failures were not heard, or misheard", a->n_wrong);
}

/* ---- reports ---- */

static usc_status render(attempt *a, usc_report *r, usc_error *err)
{
    const usc_sink sink = sink_of(a);
    const usc_allow allow = {USC_VERDICT_REDUCED, "linear"};
    const usc_report_options options = {.n_allow = 1, .allow = &allow};
    usc_report_mark(r, &options);
    usc_status st = usc_report_table(r, &options, &sink, err);
    if (st == USC_OK) st = usc_report_csv(r, &sink, err);
    if (st == USC_OK) st = usc_report_details(r, &sink, err);
    if (st == USC_OK) st = usc_report_json(r, &sink, err);
    if (st == USC_OK) st = usc_report_html(r, &sink, err);
    if (st == USC_OK) st = usc_report_summary(r, &options, &sink, err);
    if (st == USC_OK) st = usc_report_annotations(r, &options, &sink, err);
    if (st == USC_OK) st = usc_report_junit(r, &options, &sink, err);
    return st;
}

static usc_status report_on(attempt *a, const char *baseline, usc_error *err)
{
    usc_report *r = NULL;
    char path[600];
    const usc_sink sink = sink_of(a);
    usc_status st = usc_report_open(a->folder, NULL, &r, err);
    if (st != USC_OK) assert_null(r);
    (void)snprintf(path, sizeof path, "%s/%s", a->folder, baseline);
    if (st == USC_OK) st = usc_report_baseline(r, path, err);
    if (st == USC_OK) st = usc_report_table(r, NULL, &sink, err);
    usc_report_close(r);
    return st;
}

static usc_status report_on_json(attempt *a, usc_error *err)
{
    return report_on(a, "result.json", err);
}

static usc_status report_on_database(attempt *a, usc_error *err)
{
    return report_on(a, "result.db", err);
}

static usc_status report_alone(attempt *a, usc_error *err)
{
    usc_report *r = NULL;
    usc_status st = usc_report_open(a->folder, NULL, &r, err);
    if (st != USC_OK) assert_null(r);
    if (st == USC_OK) st = render(a, r, err);
    usc_report_close(r);
    return st;
}

static usc_status report_files(attempt *a, usc_error *err)
{
    usc_report *r = NULL;
    usc_status st = usc_report_open(a->folder, NULL, &r, err);
    if (st == USC_OK) st = usc_report_write_files(r, err);
    usc_report_close(r);
    return st;
}

static void reports(void **state)
{
    (void)state;
    char *folder = sample_folder();
    usc_report *r = report_sample(folder);
    usc_error err;
    if (usc_report_write_files(r, &err) != USC_OK) fail_msg("%s", err.text);
    usc_report_close(r);
    attempt attempts[] = {
        {.name = "report", .act = report_alone},
        {.name = "report on a result.json", .act = report_on_json},
        {.name = "report on a result.db", .act = report_on_database},
        {.name = "files of a report", .act = report_files},
    };
    for (size_t i = 0; i < sizeof attempts / sizeof attempts[0]; i++) {
        attempts[i].folder = folder;
        try_all(&attempts[i]);
    }
    sample_remove(folder);
    free(folder);
}

/* ---- stand-ins ---- */

static usc_status stand_in(attempt *a, usc_error *err)
{
    static const char *const text =
        "{\"n\":64,\"n_zero\":4,\"min\":1,\"max\":3,\"mean\":2,\"l2\":9,"
        "\"structure\":[\"symmetric\"],\"histogram\":{\"pos\":{\"0\":30,\"1\":30}}}";
    const usc_call_arg arg = {.path = "args[0]", .dtype_name = "float32"};
    const usc_call call = {.op = "aten::linalg_cholesky_ex",
                           .args = "{\"args\": [{\"tensor\": true}], \"kwargs\": {}}",
                           .n_args = 1,
                           .arg = &arg};
    const usc_tensor like = {
        .dtype = USC_F32, .ndim = 2, .sizes = {8, 8}, .strides = {8, 1}};
    char made[64 * sizeof(float)];
    usc_stats s;
    usc_stand_in_options options;
    usc_status st = usc_stats_from_json(text, &s, err);
    if (st == USC_OK) st = usc_stand_in_need(&call, &arg, &options, err);
    if (st != USC_OK) return st;
    const usc_stream stream = usc_stand_in_stream(&s, "trace", 1, "args[0]");
    st = usc_stand_in_make(&like, &s, &options, stream, made, sizeof made, err);
    if (st == USC_OK) keep(a, made, sizeof made);
    return st;
}

static void stand_ins(void **state)
{
    (void)state;
    attempt a = {.name = "stand-in", .act = stand_in};
    try_requests(&a, false);
    if (a.n_wrong > 0) fail_msg("%d failures were not heard, or misheard", a.n_wrong);
}

/* ---- checks and packs, whose workers are shell scripts ---- */

#define READY "echo '{\"ready\": {\"who\": \"sh\"}, \"environment\": {\"a\": 1}}' >&3; "
#define ROW                                                                              \
    "echo '{\"row\": {\"verdict\": \"wrong\", \"sentence\": \"off\", \"bits\": 3, "      \
    "\"metrics\": [[0, \"max\", 7, null]], \"examples\": [[0, 0, \"[1]\", 1, 2, 3, "     \
    "4]], \"fired\": [\"a fault\"], \"unknown\": true}}' >&3; "
#define ENTRY "echo '{\"row\": {\"entry\": {\"call\": 1, \"unjudged\": \"no\"}}}' >&3; "
#define SELF_TEST                                                                        \
    "echo '{\"row\": {\"self_test\": {\"bits\": {\"noise\": 9}, \"caught\": "            \
    "[\"one\", \"two\"], \"unseen\": [\"two\"]}}}' >&3; "
#define SEARCHES                                                                         \
    "echo '{\"row\": {\"verdict\": \"wrong\", \"sentence\": \"off\"}, "                  \
    "\"searching\": true}' >&3; "                                                        \
    "echo '{\"group\": \"g\", \"heard\": 0, \"most\": 1}' >&3; read known; "             \
    "case $known in *true*) echo '{\"found\": \"g\", \"text\": \"x\"}' >&3;; esac; "     \
    "echo '{\"cause\": {\"verdict\": \"wrong\", \"sentence\": \"off: x\"}}' >&3; "

typedef struct running {
    attempt attempt; /* first: this is one */
    const char *script;
    char *command[4], trace[600], out[600];
    usc_check_options options;
    usc_run_hooks hooks;
} running;

static char *const *command(void *ctx, usc_error *err)
{
    (void)err;
    return ((running *)ctx)->command;
}

static usc_status keep_row(void *ctx, const usc_result_row *row, usc_error *err)
{
    (void)err;
    char text[512];
    const int n =
        snprintf(text, sizeof text, "%lld %s %s %s %d %d\n", (long long)row->call,
                 row->op, row->verdict, row->sentence, row->n_metrics, row->n_examples);
    keep(ctx, text, (size_t)n);
    return USC_OK;
}

static void keep_results(running *r)
{
    static const char *const keys[] = {"state",   "n_selected", "inputs",
                                       "options", "self_test",  "environment"};
    usc_result *result = NULL;
    assert_int_equal(usc_result_open(r->out, &result, NULL), USC_OK);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *text = usc_result_get(result, keys[i]);
        keep(&r->attempt, text != NULL ? text : "-", text != NULL ? strlen(text) : 1);
        keep(&r->attempt, "\n", 1);
    }
    assert_int_equal(usc_result_walk(result, keep_row, &r->attempt, NULL), USC_OK);
    usc_result_close(result);
}

static usc_status check(attempt *a, usc_error *err)
{
    running *r = (running *)a;
    usc_run_end end = USC_RUN_INTERRUPTED;
    const usc_status st = usc_check_trace(&r->options, &r->hooks, &end, err);
    const int fail_at = alloc_fails.fail_at; /* looked at without failures */
    alloc_fails.fail_at = 0;
    if (st == USC_OK) keep_results(r);
    sample_remove(r->out);
    alloc_fails.fail_at = fail_at;
    return st;
}

/* A run that was cut short goes on, or begins anew where another worker computes. */
static usc_status resume(attempt *a, usc_error *err)
{
    running *r = (running *)a;
    static char one[] =
        READY "read line; " ROW "read line; echo '{\"fatal\": \"enough\"}' >&3; cat";
    static char other[] = "echo '{\"ready\": {\"who\": \"bash\"}}' >&3; cat";
    char *const script = r->command[2];
    usc_run_end end;
    usc_error why;
    const int fail_at = alloc_fails.fail_at;
    alloc_fails.fail_at = 0;
    r->command[2] = one;
    assert_int_equal(usc_check_trace(&r->options, &r->hooks, &end, &why), USC_E_ARG);
    r->command[2] = other;
    alloc_fails.fail_at = fail_at;
    const usc_status st = usc_check_trace(&r->options, &r->hooks, &end, &why);
    r->command[2] = script;
    if (st == USC_E_EXISTS) return check(a, err); /* as it must be */
    sample_remove(r->out);
    if (err != NULL) *err = why;
    return st;
}

static void keep_file(running *r, const char *name)
{
    char path[700], bytes[4096];
    (void)snprintf(path, sizeof path, "%s/%s", r->out, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    keep(&r->attempt, bytes, fread(bytes, 1, sizeof bytes, file));
    (void)fclose(file);
}

static usc_status pack(attempt *a, usc_error *err)
{
    running *r = (running *)a;
    usc_run_end end;
    const usc_pack_run_options options = {.trace = r->trace, .out = r->out, .cores = 1};
    const usc_status st = usc_pack_trace(&options, &r->hooks, &end, err);
    if (st == USC_OK) keep_file(r, "pack.json");
    sample_remove(r->out);
    return st;
}

static void run(running r)
{
    static char sh[] = "/bin/sh", flag[] = "-c";
    char *folder = sample_folder(), *script = strdup(r.script);
    (void)snprintf(r.trace, sizeof r.trace, "%s/trace", folder);
    (void)snprintf(r.out, sizeof r.out, "%s/out", folder);
    assert_int_equal(sample_write(r.trace, NULL, 3, NULL), USC_OK);
    r.command[0] = sh;
    r.command[1] = flag;
    r.command[2] = script;
    r.options.trace = r.trace;
    r.options.out = r.out;
    r.options.device = "cpu";
    r.options.call = -1;
    r.options.cores = 1;
    r.hooks = (usc_run_hooks){.ctx = &r, .command = command, .environment = environ};
    try_all(&r.attempt);
    sample_remove(folder);
    free(script);
    free(folder);
}

static void checks(void **state)
{
    (void)state;
    run((running){.attempt = {.name = "check", .act = check},
                  .script = READY "while read line; do " ROW "done"});
}

static void checks_with_a_budget_a_filter_and_distinct(void **state)
{
    (void)state;
    run((running){.attempt = {.name = "check with options", .act = check},
                  .script = READY "while read line; do " ROW "done",
                  .options = {.budget = 1000,
                              .ops = "aten::*",
                              .module = "*",
                              .step = "0",
                              .distinct = true,
                              .compare_standards = true}});
}

static void checks_that_test_themselves(void **state)
{
    (void)state;
    run((running){.attempt = {.name = "self-test", .act = check},
                  .script = READY "while read line; do case $line in "
                                  "*self_test*) " SELF_TEST ";; *) " ROW ";; esac; done",
                  .options = {.self_test = true}});
}

static void checks_that_search_for_causes(void **state)
{
    (void)state;
    run((running){.attempt = {.name = "check with causes", .act = check},
                  .script = READY "while read line; do " SEARCHES "done",
                  .options = {.causes = 2}});
}

static void checks_whose_worker_dies(void **state)
{
    (void)state;
    run((running){.attempt = {.name = "check of what kills", .act = check},
                  .script = READY "while read line; do case $line in "
                                  "*'\"call\": 1,'*) kill -SEGV $$;; esac; " ROW "done"});
}

static void checks_that_go_on(void **state)
{
    (void)state;
    run((running){.attempt = {.name = "check that goes on", .act = resume},
                  .script = READY "while read line; do " ROW "done"});
}

static void packs(void **state)
{
    (void)state;
    run((running){.attempt = {.name = "pack", .act = pack},
                  .script = READY "while read line; do " ENTRY "done"});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports),
        cmocka_unit_test(stand_ins),
        cmocka_unit_test(checks),
        cmocka_unit_test(checks_with_a_budget_a_filter_and_distinct),
        cmocka_unit_test(checks_that_test_themselves),
        cmocka_unit_test(checks_that_search_for_causes),
        cmocka_unit_test(checks_whose_worker_dies),
        cmocka_unit_test(checks_that_go_on),
        cmocka_unit_test(packs),
    };
    alloc_fails_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
