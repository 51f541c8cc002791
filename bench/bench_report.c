// SPDX-License-Identifier: Apache-2.0
// A report of many calls: writes results of N_CALLS calls, every tenth of them accused
// and a finding of its own, and times what a report costs: opening (which sums all up),
// the table, the files, the JUnit file. Seconds of wall time, and the most memory that
// the process held. Usage: bench_report [N_CALLS] [FOLDER]
#include <ulpscope/report.h>
#include <ulpscope/result.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { ACCUSED = 10, OPERATORS = 200 };

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void need(usc_status st, const usc_error *err)
{
    if (st == USC_OK) return;
    fprintf(stderr, "bench_report: %s\n", err->text);
    exit(2);
}

static usc_status put_call(usc_result *r, int64_t i, usc_error *err)
{
    char op[40], module[64], cause[40], sentence[96];
    const bool accused = i % ACCUSED == 0;
    const usc_metric metrics[] = {
        {0, "max", 1.5, NULL}, {0, "mid", 0.25, NULL}, {0, "sizes", 0, "[64, 128]"}};
    const usc_result_example examples[] = {{0, 0, "[3, 17]", 1.5, 1.25, 1.25, 7e4},
                                           {0, 1, "[4, 18]", 2.5, 2.25, 2.25, 6e4}};
    (void)snprintf(op, sizeof op, "aten::operator_%d", (int)(i % OPERATORS));
    (void)snprintf(module, sizeof module, "layers.%d.block.%d", (int)(i % 48),
                   (int)(i % 7));
    (void)snprintf(cause, sizeof cause, "cause %lld", (long long)i);
    (void)snprintf(sentence, sizeof sentence, "%s computed with 9.%lld effective bits",
                   op, (long long)i);
    const usc_result_row row = {.call = i + 1,
                                .step = i / 10000,
                                .phase = i % 3 != 0 ? "forward" : "backward",
                                .op = op,
                                .culprit = "",
                                .module = module,
                                .module_class = "Block",
                                .verdict = accused ? "reduced" : "pass",
                                .bits = accused ? 9 + 1e-7 * (double)i : 23.5,
                                .yardstick_bits = 23.5,
                                .cause = accused ? cause : "",
                                .sentence = accused ? sentence : "correctly rounded",
                                .notes = "",
                                .output = "out[0]",
                                .args = "float32[64, 128], float32[128, 64]",
                                .stack = accused ? "[[\"train.py\", 7, \"step\"]]" : "",
                                .n_elements = 8192,
                                .stands_for = 1,
                                .t_device = 1000,
                                .t_reference = 2000,
                                .t_judge = 300,
                                .t_total = 4000,
                                .n_metrics = 3,
                                .metrics = metrics,
                                .n_examples = accused ? 2 : 0,
                                .examples = examples};
    return usc_result_put(r, &row, err);
}

static void make(const char *out, int64_t n)
{
    const usc_run run = {.trace = "t",
                         .trace_id = "t",
                         .device = "cpu",
                         .standard = "ulpscope",
                         .faults = "",
                         .options = "{}",
                         .environment = "{}"};
    usc_result *r;
    usc_error err;
    need(usc_result_create(out, &run, true, &r, &err), &err);
    for (int64_t i = 0; i < n; i++)
        need(put_call(r, i, &err), &err);
    need(usc_result_set(r, "state", "done", &err), &err);
    usc_result_close(r);
}

static usc_status drop(void *ctx, const char *bytes, size_t n, usc_error *err)
{
    (void)bytes, (void)err;
    *(int64_t *)ctx += (int64_t)n;
    return USC_OK;
}

/* The most memory of this process, in MB. */
static double most_memory(void)
{
    struct rusage used;
    (void)getrusage(RUSAGE_SELF, &used);
    return (double)used.ru_maxrss * 1e-3;
}

static void tell(const char *what, double *since)
{
    const double end = now();
    printf("%-8s %8.2f s %8.0f MB\n", what, end - *since, most_memory());
    (void)fflush(stdout);
    *since = end;
}

int main(int argc, char **argv)
{
    const int64_t n = argc > 1 ? atoll(argv[1]) : 100000;
    char own[] = "/tmp/ulpscope-bench-XXXXXX";
    const char *out = argc > 2 ? argv[2] : mkdtemp(own);
    static const char *const files[] = {"result.db",   "result.csv",  "details.csv",
                                        "result.json", "report.html", "junit.xml"};
    usc_report *report;
    usc_error err;
    char path[600];
    int64_t bytes = 0;
    const usc_sink sink = {drop, &bytes};
    if (out == NULL) return 2;
    printf("%lld calls, %lld findings\n", (long long)n, (long long)(n / ACCUSED));
    double since = now();
    (void)snprintf(path, sizeof path, "%s/result.db", out);
    if (access(path, F_OK) != 0) make(out, n);
    tell("(write)", &since);
    const double start = since;
    const clock_t started = clock();
    need(usc_report_open(out, NULL, &report, &err), &err);
    tell("open", &since);
    need(usc_report_table(report, NULL, &sink, &err), &err);
    tell("table", &since);
    need(usc_report_write_files(report, &err), &err);
    tell("files", &since);
    (void)snprintf(path, sizeof path, "%s/junit.xml", out);
    need(usc_report_write_junit(report, NULL, path, &err), &err);
    tell("junit", &since);
    usc_report_close(report);
    printf("%-8s %8.2f s, of the processor %.2f s\n", "in all", now() - start,
           (double)(clock() - started) / CLOCKS_PER_SEC);
    for (size_t i = 0; argc < 3 && i < sizeof files / sizeof files[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", out, files[i]);
        (void)unlink(path);
    }
    if (argc < 3) (void)rmdir(out);
    return 0;
}
