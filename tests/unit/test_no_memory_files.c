// SPDX-License-Identifier: Apache-2.0
// As test_no_memory.c, of loss curves and ports: every n-th request for memory fails, for
// all n.
#include "attempt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include "alloc_fails.h"
#include "base/folder.h"
#include "report_sample.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ulpscope/trace.h>
#include <ulpscope/x/generate.h>
#include <ulpscope/x/loss.h>
#include <ulpscope/x/port.h>
#include <ulpscope/x/run.h>

/* ---- loss curves ---- */

enum { N_STEPS = 40 };

/* Three runs of a program, in the forms that a curve comes in; `b` parts from the rest.
 */
typedef struct losses {
    attempt attempt;
    char a[4096], b[4096], log[4096];
} losses;

static void write_losses(losses *l)
{
    char *a = l->a + sprintf(l->a, "step,loss\n"), *b = l->b, *log = l->log;
    for (int i = 0; i < N_STEPS; i++) {
        const double value = 2.0 - i * 0.03125 + (i % 3) * 0.001953125;
        a += sprintf(a, "%d,%.9f\n", i, value);
        b += sprintf(b, "{\"step\": %d, \"loss\": %.9f}\n", i, value + i * 0.0625);
        log += sprintf(log, "step %d loss=%.9f\n", i, value + (i % 2) * 0.0009765625);
    }
}

static usc_status say_losses(attempt *a, usc_curve *const *curve, usc_error *err)
{
    char *text = NULL;
    size_t size = 0;
    const usc_curve *const repeats[] = {curve[2]}, *const b = curve[1];
    const usc_loss_options options = {.repeats = repeats, .n_repeats = 1};
    usc_loss_result *result = NULL;
    FILE *to = open_memstream(&text, &size);
    assert_non_null(to);
    usc_status st = usc_loss_compare(curve[0], curve[1], &options, &result, err);
    if (st != USC_OK) assert_null(result);
    if (st == USC_OK) st = usc_loss_table(curve[0], curve[1], result, 60, to, err);
    if (st == USC_OK) st = usc_loss_json(curve[0], curve[1], result, to, err);
    if (st == USC_OK)
        st = usc_loss_html(curve[0], &b, &(const usc_loss_result *){result}, 1, to, err);
    assert_int_equal(fclose(to), 0);
    keep(a, text, size);
    free(text);
    usc_loss_free(result);
    return st;
}

static usc_status compare_losses(attempt *a, usc_error *err)
{
    losses *l = (losses *)a;
    const usc_curve_options regex = {.regex = "step (?P<step>\\d+) loss=(?P<loss>\\S+)"};
    const struct {
        const char *name, *text;
        const usc_curve_options *options;
    } files[] = {
        {"a.csv", l->a, NULL}, {"b.jsonl", l->b, NULL}, {"a.log", l->log, &regex}};
    usc_curve *curve[3] = {NULL};
    usc_status st = USC_OK;
    for (int i = 0; st == USC_OK && i < 3; i++) {
        st = usc_curve_parse(files[i].name, files[i].text, strlen(files[i].text),
                             files[i].options, &curve[i], err);
        if (st != USC_OK) assert_null(curve[i]);
    }
    if (st == USC_OK) st = say_losses(a, curve, err);
    for (int i = 0; i < 3; i++)
        usc_curve_free(curve[i]);
    return st;
}

/* No database is in it. */
static void losses_side_by_side(void **state)
{
    (void)state;
    static losses l = {.attempt = {.name = "loss", .act = compare_losses}};
    write_losses(&l);
    try_requests(&l.attempt, false);
    assert_int_equal(l.attempt.n_wrong, 0);
}

/* ---- ports ---- */

static usc_status port_sources(attempt *a, usc_error *err)
{
    char source[1024], out[1100];
    usc_port_result *r = NULL;
    (void)snprintf(source, sizeof source, "%s/source", a->folder);
    (void)snprintf(out, sizeof out, "%s_out", source);
    const usc_port_options o = {.out = out, .diff = true};
    usc_status st = usc_port_tree(source, &o, &r, err);
    assert_true((st == USC_OK) == (access(out, F_OK) == 0)); /* whole, or not at all */
    for (size_t i = 0; st == USC_OK && i < r->n_files; i++) {
        keep(a, r->file[i].diff, strlen(r->file[i].diff));
        for (size_t k = 0; k < r->file[i].n_left; k++)
            keep(a, r->file[i].left[k].excerpt, strlen(r->file[i].left[k].excerpt));
    }
    usc_port_free(r);
    usc_folder_remove(out);
    return st;
}

static void ports(void **state)
{
    static const char *const files[][2] = {
        {"a.cu", "#include <cuda_runtime.h>\n#include \"b.cuh\"\nasm(\"x\");\n"
                 "int lane = i % 32; at::cuda::f(); x.cuda(); cudaFrob(p);\n"},
        {"b.cuh", "TORCH_LIBRARY_IMPL(a, CUDA, m) {}\n"},
        {"t.py", "import torch as th\nfrom torch.cuda import amp\n"
                 "x = th.cuda.device_count(), f'cuda:{x}', y.cuda(), state['cuda']\n"},
        {"CMakeLists.txt", "project(a LANGUAGES CUDA)\nadd(a.cu)\n"}};
    char folder[] = "/tmp/ulpscope-no-memory-XXXXXX", path[1100];
    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/source", folder);
    assert_int_equal(mkdir(path, 0777), 0);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/source/%s", folder, files[i][0]);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        assert_true(fputs(files[i][1], f) >= 0 && fclose(f) == 0);
    }
    attempt a = {.name = "port", .act = port_sources, .folder = folder};
    try_requests(&a, false);
    usc_folder_remove(folder);
    assert_int_equal(a.n_wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ports),
        cmocka_unit_test(losses_side_by_side),
    };
    alloc_fails_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
