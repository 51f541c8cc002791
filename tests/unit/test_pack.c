// SPDX-License-Identifier: Apache-2.0
// Judging files: what holds whatever the files are. Verdicts: tests/py/test_pack.py.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ulpscope/pack.h>
#include <ulpscope/result.h>

#include "alloc_probe.h"
#include "trace_sample.h"

enum { N = 3000 };

static char *folder;
static char device[512], reference[512], out[512];

/* One tensor "x" of N values: 1 + i / N, times `factor`. */
static void write_tensor(const char *path, bool wide, double factor)
{
    char header[256];
    const size_t size = wide ? sizeof(double) : sizeof(float);
    const int n =
        snprintf(header, sizeof header,
                 "{\"x\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[0,%zu]}}",
                 wide ? "F64" : "F32", N, N * size);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 0; i < 8; i++)
        fputc((int)((uint64_t)n >> (8 * i) & 0xff), f);
    fwrite(header, 1, (size_t)n, f);
    for (int i = 0; i < N; i++) {
        const double x = (1 + (double)i / N) * factor;
        const float low = (float)x;
        fwrite(wide ? (const void *)&x : (const void *)&low, size, 1, f);
    }
    assert_int_equal(fclose(f), 0);
}

static int make_files(void **state)
{
    (void)state;
    folder = sample_folder();
    snprintf(device, sizeof device, "%s/d.safetensors", folder);
    snprintf(reference, sizeof reference, "%s/r.safetensors", folder);
    snprintf(out, sizeof out, "%s/out", folder);
    write_tensor(device, false, 1);
    write_tensor(reference, true, 1);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    sample_remove(folder);
    free(folder);
    return 0;
}

static usc_status take_row(void *ctx, const usc_result_row *row, usc_error *err)
{
    (void)err;
    usc_result_row *kept = ctx;
    snprintf((char *)(uintptr_t)kept->verdict, 32, "%s", row->verdict);
    kept->bits = row->bits;
    kept->call++;
    return USC_OK;
}

static void expect(const char *verdict)
{
    char text[32] = "";
    usc_result_row row = {.verdict = text};
    usc_result *r = NULL;
    usc_error err;
    if (usc_result_open(out, &r, &err) != USC_OK) fail_msg("%s", err.text);
    assert_int_equal(usc_result_walk(r, take_row, &row, &err), USC_OK);
    assert_int_equal(row.call, 1);
    assert_string_equal(text, verdict);
    assert_string_equal(usc_result_get(r, "state"), "done");
    usc_result_close(r);
}

static void verdicts_do_not_hang_on_threads(void **state)
{
    (void)state;
    usc_error err;
    for (int n = 0; n <= 4; n += 2) {
        const usc_pack_options options = {.out = out, .n_threads = n};
        write_tensor(device, false, 1);
        assert_int_equal(usc_pair_judge(device, reference, &options, &err), USC_OK);
        expect("pass");
        write_tensor(device, false, 1.0001);
        assert_int_equal(usc_pair_judge(device, reference, &options, &err), USC_OK);
        expect("reduced");
    }
}

static void results_of_another_run_are_left_alone(void **state)
{
    (void)state;
    usc_error err;
    usc_pack_options options = {.out = out};
    assert_int_equal(usc_pair_judge(device, reference, &options, &err), USC_OK);
    assert_int_equal(usc_pair_judge(device, device, &options, &err), USC_E_EXISTS);
    expect("pass");
    options.force = true;
    assert_int_equal(usc_pair_judge(reference, reference, &options, &err), USC_OK);
}

static void no_memory_is_said_and_nothing_leaks(void **state)
{
    (void)state;
    for (int fail_at = 1;; fail_at++) {
        alloc_probe probe;
        usc_error err;
        const usc_pack_options options = {.out = out,
                                          .alloc = alloc_probe_bind(&probe, fail_at)};
        const usc_status st = usc_pair_judge(device, reference, &options, &err);
        assert_int_equal(probe.live_bytes, 0);
        assert_int_equal(probe.n_wrong_sizes, 0);
        if (st == USC_OK) break;
        assert_int_equal(st, USC_E_NOMEM);
        assert_true(fail_at < 200);
    }
    expect("pass");
}

static void a_pack_that_is_none_is_refused(void **state)
{
    (void)state;
    usc_error err;
    const usc_pack_options options = {.out = out, .standard = "nosuch"};
    assert_int_equal(usc_pack_judge(folder, device, NULL, &err), USC_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "pack.json"));
    assert_int_equal(usc_pack_judge(folder, device, &options, &err), USC_E_ARG);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_files, remove_files)
    const struct CMUnitTest tests[] = {
        TEST(verdicts_do_not_hang_on_threads),
        TEST(results_of_another_run_are_left_alone),
        TEST(no_memory_is_said_and_nothing_leaks),
        TEST(a_pack_that_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
