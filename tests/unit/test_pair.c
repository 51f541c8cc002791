// SPDX-License-Identifier: Apache-2.0
// A verdict from two buffers is the one that `ulpscope judge` gives for two files.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ulpscope/ulpscope.h>

#include "alloc_probe.h"
#include "trace_sample.h"

enum { ROWS = 37, COLUMNS = 41, N = ROWS * COLUMNS };

static char *folder;

static int make_folder(void **state)
{
    *state = folder = sample_folder();
    return 0;
}

/* What went wrong on the device. */
typedef enum fault { HONEST, ROUGH, ONE_WRONG, NOT_A_NUMBER, CANCELLED, N_FAULTS } fault;

typedef struct pair {
    double reference[N], scale[N];
    unsigned char device[N * sizeof(double)];
    usc_tensor d, r, s;
} pair;

static void fill(pair *p, usc_dtype dtype, fault f, uint64_t seed)
{
    const int64_t sizes[] = {ROWS, COLUMNS};
    double got[N];
    for (int i = 0; i < N; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        const double x = 1 + (double)(seed >> 40) / (1 << 24);
        p->reference[i] = f == CANCELLED ? x * 0x1p-12 : x;
        p->scale[i] = 4;
        got[i] = p->reference[i];
        if (f == ROUGH) got[i] *= 1 + ((seed >> 20 & 1) != 0 ? 0x1p-9 : -0x1p-9);
        if (f == CANCELLED) got[i] += ((seed >> 20 & 1) != 0 ? 0x1p-23 : -0x1p-23);
    }
    if (f == ONE_WRONG) got[N / 2] *= 1.5;
    if (f == NOT_A_NUMBER) got[7] = (double)NAN;
    usc_dtype_narrow(dtype, got, p->device, N);
    assert_int_equal(usc_tensor_make(&p->d, p->device, dtype, 2, sizes, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&p->r, p->reference, USC_F64, 2, sizes, NULL),
                     USC_OK);
    assert_int_equal(usc_tensor_make(&p->s, p->scale, USC_F64, 2, sizes, NULL), USC_OK);
}

static void write_one(const char *path, const usc_tensor *t)
{
    const usc_named_tensor one = {.name = "x", .tensor = *t};
    usc_error err;
    if (usc_safetensors_write(path, &one, 1, NULL, &err) != USC_OK)
        fail_msg("%s", err.text);
}

static usc_status compare_row(void *ctx, const usc_result_row *row, usc_error *err)
{
    (void)err;
    const usc_judgement *j = ctx;
    assert_string_equal(row->verdict, usc_verdict_text(j->verdict));
    if (!(isnan(row->bits) && isnan(j->bits))) assert_true(row->bits == j->bits);
    assert_int_equal(row->n_elements, j->n);
    assert_true(row->bound == j->bound);
    for (int i = 0; i < row->n_metrics; i++) {
        const usc_metric *m = &row->metrics[i];
        if (strcmp(m->name, "max") == 0) assert_true(m->value == j->max);
        if (strcmp(m->name, "mid") == 0) assert_true(m->value == j->mid);
        if (strcmp(m->name, "rel") == 0) assert_true(m->value == j->rel);
    }
    return USC_OK;
}

/* The same by files. */
static void expect_as_by_files(const pair *p, bool scaled, const usc_judgement *j)
{
    char device[512], reference[512], scale[512], out[512];
    usc_error err;
    usc_result *result;
    snprintf(device, sizeof device, "%s/d.safetensors", folder);
    snprintf(reference, sizeof reference, "%s/r.safetensors", folder);
    snprintf(scale, sizeof scale, "%s/s.safetensors", folder);
    snprintf(out, sizeof out, "%s/out", folder);
    write_one(device, &p->d);
    write_one(reference, &p->r);
    write_one(scale, &p->s);
    const usc_pack_options options = {
        .out = out, .scale = scaled ? scale : NULL, .force = true};
    if (usc_pair_judge(device, reference, &options, &err) != USC_OK)
        fail_msg("%s", err.text);
    assert_int_equal(usc_result_open(out, &result, &err), USC_OK);
    usc_judgement copy = *j;
    assert_int_equal(usc_result_walk(result, compare_row, &copy, &err), USC_OK);
    usc_result_close(result);
}

static void two_buffers_are_judged_as_two_files(void **state)
{
    (void)state;
    static const usc_dtype dtypes[] = {USC_F32, USC_BF16, USC_F16, USC_F64};
    static const usc_verdict said[2][N_FAULTS] = {
        {USC_VERDICT_PASS, USC_VERDICT_REDUCED, USC_VERDICT_WRONG, USC_VERDICT_NONFINITE,
         USC_VERDICT_REDUCED},
        {USC_VERDICT_PASS, USC_VERDICT_REDUCED, USC_VERDICT_WRONG, USC_VERDICT_NONFINITE,
         USC_VERDICT_PASS}};
    pair *p = malloc(sizeof *p);
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++)
        for (int f = 0; f < N_FAULTS; f++)
            for (int scaled = 0; scaled < 2; scaled++) {
                usc_judgement j;
                usc_error err;
                fill(p, dtypes[d], (fault)f, 7 + d);
                if (usc_judge_pair(&p->d, &p->r, scaled ? &p->s : NULL, NULL, &j, &err) !=
                    USC_OK)
                    fail_msg("%s", err.text);
                if (dtypes[d] == USC_F32 && j.verdict != said[scaled][f])
                    fail_msg("fault %d, scale %d: %s: %s", f, scaled,
                             usc_verdict_text(j.verdict), j.reason);
                expect_as_by_files(p, scaled, &j);
            }
    free(p);
}

static void views_and_float32_references_give_the_same_bits(void **state)
{
    (void)state;
    static float low[N];
    static double turned[N];
    pair *p = malloc(sizeof *p);
    usc_judgement plain, other;
    fill(p, USC_F32, ROUGH, 3);
    usc_dtype_narrow(USC_F32, p->reference, low, N);
    usc_dtype_widen(USC_F32, low, p->reference, N); /* what float32 holds too */
    assert_int_equal(usc_judge_pair(&p->d, &p->r, NULL, NULL, &plain, NULL), USC_OK);
    usc_tensor view = p->r;
    view.data = low;
    view.dtype = USC_F32;
    assert_int_equal(usc_judge_pair(&p->d, &view, NULL, NULL, &other, NULL), USC_OK);
    assert_memory_equal(&plain, &other, sizeof plain);
    for (int i = 0; i < N; i++)
        turned[i % COLUMNS * ROWS + i / COLUMNS] = p->reference[i];
    view = p->r;
    view.data = turned;
    view.strides[0] = 1;
    view.strides[1] = ROWS;
    assert_int_equal(usc_judge_pair(&p->d, &view, NULL, NULL, &other, NULL), USC_OK);
    assert_memory_equal(&plain, &other, sizeof plain);
    free(p);
}

static void integers_must_be_equal_and_misfits_are_named(void **state)
{
    (void)state;
    const int64_t sizes[] = {3};
    const int32_t a[] = {1, 2, 3}, b[] = {1, 5, 3};
    const float low[] = {1, 2, 3};
    const double wide[] = {1, 2, 3};
    usc_tensor ta, tb, tl, tw;
    usc_judgement j;
    usc_error err;
    assert_int_equal(usc_tensor_make(&ta, a, USC_I32, 1, sizes, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&tb, b, USC_I32, 1, sizes, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&tl, low, USC_F32, 1, sizes, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&tw, wide, USC_F64, 1, sizes, NULL), USC_OK);
    assert_int_equal(usc_judge_pair(&ta, &ta, NULL, NULL, &j, &err), USC_OK);
    assert_int_equal(j.verdict, USC_VERDICT_PASS);
    assert_int_equal(usc_judge_pair(&ta, &tb, NULL, NULL, &j, &err), USC_OK);
    assert_int_equal(j.verdict, USC_VERDICT_WRONG);
    assert_int_equal(j.i_worst, 1);
    assert_int_equal(usc_judge_pair(&tw, &tl, NULL, NULL, &j, &err), USC_E_DTYPE);
    assert_non_null(strstr(err.text, "too coarse"));
    assert_int_equal(usc_judge_pair(&tl, &ta, NULL, NULL, &j, &err), USC_E_DTYPE);
    tw.sizes[0] = 2;
    assert_int_equal(usc_judge_pair(&tl, &tw, NULL, NULL, &j, &err), USC_E_SHAPE);
    assert_int_equal(usc_judge_pair(&tl, &tl, &tw, NULL, &j, &err), USC_E_SHAPE);
    assert_int_equal(j.n, 0);
    tl.sizes[0] = tw.sizes[0] = 0;
    assert_int_equal(usc_judge_pair(&tl, &tw, NULL, NULL, &j, &err), USC_OK);
    assert_int_equal(j.verdict, USC_VERDICT_PASS);
}

static void no_memory_is_said_and_nothing_leaks(void **state)
{
    (void)state;
    pair *p = malloc(sizeof *p);
    fill(p, USC_F32, ROUGH, 5);
    for (int fail_at = 1;; fail_at++) {
        alloc_probe probe;
        usc_judgement j;
        const usc_judge_options options = {.alloc = alloc_probe_bind(&probe, fail_at)};
        const usc_status st = usc_judge_pair(&p->d, &p->r, &p->s, &options, &j, NULL);
        assert_int_equal(probe.live_bytes, 0);
        assert_int_equal(probe.n_wrong_sizes, 0);
        if (st == USC_OK) break;
        assert_int_equal(st, USC_E_NOMEM);
        assert_int_equal(j.n, 0);
        assert_true(fail_at < 50);
    }
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_buffers_are_judged_as_two_files),
        cmocka_unit_test(views_and_float32_references_give_the_same_bits),
        cmocka_unit_test(integers_must_be_equal_and_misfits_are_named),
        cmocka_unit_test(no_memory_is_said_and_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, make_folder, sample_teardown);
}
