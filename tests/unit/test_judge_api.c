// SPDX-License-Identifier: Apache-2.0
// The judge around the verdict: equal bits, memory, examples, exact outputs.
// Perturbation: test_judge_perturbed.c.
#include "alloc_probe.h"
#include "judge_fixture.h"

#include "judge/judge_state.h"

#include <ulpscope/x/kernels.h>

#include <stdio.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

/* Spoils every seventh element a little, one much, and puts specials in. */
static fixture spoiled(usc_dtype dtype, int64_t n)
{
    fixture f = fixture_make(dtype, n);
    for (int64_t i = 0; i < n; i += 7)
        fixture_set(&f, i, f.r[i] * (1 + 0x1p-12));
    if (n > 300) {
        fixture_set(&f, 200, f.r[200] * 2);
        f.r[100] = (double)INFINITY;
        f.y[100] = INFINITY;
        f.r[101] = (double)(f.y[101] = 0);
        f.r[102] = (double)(f.y[102] = 0x1p-140f);
        fixture_set(&f, 100, (double)INFINITY);
        fixture_set(&f, 101, 0x1p-60);
        fixture_set(&f, 102, 0);
    }
    return f;
}

static void test_equal_bits_for_any_number_of_threads(void **state)
{
    (void)state;
    const usc_dtype dtypes[] = {USC_F32, USC_BF16, USC_F16, USC_F64};
    for (size_t t = 0; t < 4; t++) {
        fixture f = spoiled(dtypes[t], 200000);
        const usc_judgement one = fixture_judge(&f);
        for (f.n_threads = 2; f.n_threads < 6; f.n_threads++) {
            const usc_judgement many = fixture_judge(&f);
            assert_memory_equal(&one, &many, sizeof one);
        }
        fixture_free(&f);
    }
}

/* First replay and look in one, against one after the other: same judgement, same
 * examples, and the same end where more replays follow. */
static void first_as_replay_and_look(const fixture *f, int n_more)
{
    const usc_tensor d = fixture_view(f->d, f->dtype, f->n);
    const usc_tensor r = fixture_view(f->r, USC_F64, f->n);
    const usc_tensor y = fixture_view(f->y, USC_F32, f->n);
    const usc_judge_options options = {.n_threads = f->n_threads};
    double *rk = malloc((size_t)f->n * sizeof *rk);
    float *yk = malloc((size_t)f->n * sizeof *yk);
    for (int64_t i = 0; i < f->n; i++) {
        rk[i] =
            i % 997 == 0 ? (double)NAN : f->r[i] * (1 + (double)(i % 3 - 1) * 0x1p-20);
        yk[i] = i % 499 == 0 ? INFINITY : (float)rk[i];
    }
    const usc_tensor vr = fixture_view(rk, USC_F64, f->n);
    const usc_tensor vy = fixture_view(yk, USC_F32, f->n);
    usc_judge *judges[2];
    usc_judgement out[2], last[2];
    static usc_example worst[2][5];
    memset(worst, 0, sizeof worst);
    int n_worst[2];
    for (int k = 0; k < 2; k++) {
        assert_int_equal(usc_judge_open(&d, &r, &y, &options, &judges[k], NULL), USC_OK);
        if (k == 0) assert_int_equal(usc_judge_replay(judges[k], &vr, &vy, NULL), USC_OK);
        const usc_status st = k == 0
                                  ? usc_judge_look(judges[k], &out[k], NULL)
                                  : usc_judge_first(judges[k], &vr, &vy, &out[k], NULL);
        assert_int_equal(st, USC_OK);
        assert_int_equal(usc_judge_worst(judges[k], 5, worst[k], &n_worst[k], NULL),
                         USC_OK);
        assert_int_equal(fixture_replay(f, judges[k], n_more), USC_OK);
        assert_int_equal(fixture_appeal(f, judges[k], &last[k]), USC_OK);
        usc_judge_close(judges[k]);
    }
    assert_memory_equal(&out[0], &out[1], sizeof out[0]);
    assert_memory_equal(worst[0], worst[1], sizeof worst[0]);
    assert_memory_equal(&last[0], &last[1], sizeof last[0]);
    free(rk);
    free(yk);
}

static void test_a_first_replay_with_its_look_gives_the_same_bits(void **state)
{
    (void)state;
    const usc_dtype dtypes[] = {USC_F32, USC_BF16, USC_F16, USC_F64};
    const char *isas[] = {"scalar", NULL};
    uint64_t seed = 99;
    for (int round = 0; round < 40; round++) {
        assert_int_equal(usc_kernels_select(isas[round % 2], NULL), USC_OK);
        const int64_t n = round < 12 ? 300007 : 2000 + round;
        fixture f = fixture_faulty(dtypes[round / 2 % 4], n, 6 + round,
                                   round % 3 == 0 ? 5 << round % 8 : 1000000, &seed);
        f.n_threads = 1 + round % 3;
        if (round % 5 == 0) /* exact so far */
            for (int64_t i = 0; i < n; i++)
                f.r[i] = (double)f.y[i];
        first_as_replay_and_look(&f, round % 3);
        fixture_free(&f);
    }
    assert_int_equal(usc_kernels_select(NULL, NULL), USC_OK);
}

static usc_judgement judge_pairs(const fixture *f)
{
    const int64_t sizes[] = {f->n / 2, 2};
    usc_tensor d, r, y;
    assert_int_equal(usc_tensor_make(&d, f->d, f->dtype, 2, sizes, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&r, f->r, USC_F64, 2, sizes, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&y, f->y, USC_F32, 2, sizes, NULL), USC_OK);
    const usc_judge_options options = {.pairs = true};
    usc_judge *judge = NULL;
    usc_judgement out;
    assert_int_equal(usc_judge_open(&d, &r, &y, &options, &judge, NULL), USC_OK);
    for (int k = 0; k < 4; k++) {
        double *rk = malloc((size_t)f->n * sizeof *rk);
        for (int64_t i = 0; i < f->n; i++)
            rk[i] = f->r[i] * (1 + ((i + k) % 2 ? 1 : -1) * 0x1p-20);
        usc_tensor moved = r;
        moved.data = rk;
        assert_int_equal(usc_judge_replay(judge, &moved, &y, NULL), USC_OK);
        free(rk);
    }
    const usc_appeal appeal = {.fan_in = 2};
    assert_int_equal(usc_judge_appeal(judge, &appeal, &out, NULL), USC_OK);
    usc_judge_close(judge);
    return out;
}

/* A part that is nothing beside the other may carry four roundings of it, not five; and
 * what is right as a complex number is not wrong. */
static void test_pairs_know_the_modulus(void **state)
{
    (void)state;
    fixture f = fixture_make(USC_F32, 2000);
    for (int64_t i = 1; i < f.n; i += 2) {
        f.r[i] = (double)(f.y[i] = 0);
        fixture_set(&f, i, 3.9 * 0x1p-24 * f.r[i - 1]);
    }
    assert_int_equal(judge_pairs(&f).verdict, USC_VERDICT_PASS);
    fixture_set(&f, 77, 5 * 0x1p-24 * f.r[76]);
    usc_judgement v = judge_pairs(&f);
    assert_int_equal(v.verdict, USC_VERDICT_REDUCED);
    assert_int_equal(v.i_worst, 77);
    fixture_set(&f, 77, 0x1p-12 * f.r[76]);
    assert_int_equal(judge_pairs(&f).verdict, USC_VERDICT_WRONG);
    fixture_set(&f, 77, 0);
    for (int64_t i = 1; i < f.n; i += 2) { /* a part that the yardstick computes well */
        f.r[i] = 0x1p-20 * f.r[i - 1];
        f.y[i] = (float)f.r[i];
        fixture_set(&f, i, f.r[i] * 1.05);
    }
    assert_int_equal(judge_pairs(&f).verdict, USC_VERDICT_REDUCED);
    usc_judge *judge = NULL;
    const usc_tensor d = fixture_view(f.d, USC_F32, 2000);
    const usc_tensor r = fixture_view(f.r, USC_F64, 2000);
    const usc_judge_options options = {.pairs = true};
    assert_int_equal(usc_judge_open(&d, &r, &r, &options, &judge, NULL), USC_E_SHAPE);
    fixture_free(&f);
}

/* The same elements as rows of a wider, reversed and interleaved array. */
static void test_equal_bits_for_any_strides(void **state)
{
    (void)state;
    fixture f = spoiled(USC_F32, 30 * 70);
    f.fan_in = 3;
    const usc_judgement plain = fixture_judge(&f);
    float *wide = malloc(sizeof(float) * 2 * 30 * 70);
    for (int64_t i = 0; i < 30; i++) /* transposed, every second element */
        for (int64_t k = 0; k < 70; k++)
            wide[2 * (k * 30 + i)] = ((float *)f.d)[i * 70 + k];
    const int64_t sizes[] = {30, 70};
    usc_tensor d, r, y;
    assert_int_equal(usc_tensor_make(&d, wide, USC_F32, 2, sizes, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&r, f.r, USC_F64, 2, sizes, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&y, f.y, USC_F32, 2, sizes, NULL), USC_OK);
    d.strides[0] = 2;
    d.strides[1] = 60;
    usc_judge *judge = NULL;
    assert_int_equal(usc_judge_open(&d, &r, &y, NULL, &judge, NULL), USC_OK);
    for (int k = 0; k < 8; k++) {
        double rk[2100];
        float yk[2100];
        for (int i = 0; i < 2100; i++) {
            rk[i] = f.r[i] * (1 + ((i + k % 4) % 2 ? 1 : -1) * 0x1p-20);
            yk[i] = (float)rk[i];
        }
        usc_tensor vr = r, vy = y;
        vr.data = rk;
        vy.data = yk;
        assert_int_equal(usc_judge_replay(judge, &vr, &vy, NULL), USC_OK);
    }
    usc_judgement strided;
    assert_int_equal(fixture_appeal(&f, judge, &strided), USC_OK);
    assert_memory_equal(&plain, &strided, sizeof plain);
    usc_judge_close(judge);
    free(wide);
    fixture_free(&f);
}

static void test_every_failing_allocation_is_survived(void **state)
{
    (void)state;
    fixture f = spoiled(USC_BF16, 1000);
    alloc_probe probe;
    bool done = false;
    for (int fail_at = 1; !done && fail_at < 50; fail_at++) {
        f.alloc = alloc_probe_bind(&probe, fail_at);
        usc_judge *judge = NULL;
        usc_judgement v;
        usc_status st = fixture_open(&f, &judge);
        if (st == USC_OK) st = usc_judge_look(judge, &v, NULL);
        if (st == USC_OK) st = fixture_appeal(&f, judge, &v);
        usc_judge_close(judge);
        assert_true(st == USC_OK || st == USC_E_NOMEM);
        assert_int_equal(probe.live_bytes, 0);
        assert_int_equal(probe.n_wrong_sizes, 0);
        done = st == USC_OK;
    }
    assert_true(done);
    fixture_free(&f);
}

static void test_worst_elements_come_worst_first_and_bad_before_all(void **state)
{
    (void)state;
    fixture f = fixture_make(USC_F32, 1000);
    fixture_set(&f, 10, f.r[10] * 1.25);
    fixture_set(&f, 20, f.r[20] * 1.5);
    fixture_set(&f, 30, (double)NAN);
    fixture_set(&f, 40,
                f.r[40] * 1.5002); /* as far off as 20 is, but for its last bits */
    usc_judge *judge = NULL;
    usc_judgement v;
    usc_example worst[4];
    int n_found = -1;
    assert_int_equal(fixture_open(&f, &judge), USC_OK);
    assert_int_equal(usc_judge_worst(judge, 4, worst, &n_found, NULL), USC_E_ARG);
    assert_int_equal(n_found, 0);
    assert_int_equal(fixture_appeal(&f, judge, &v), USC_OK);
    assert_int_equal(v.verdict, USC_VERDICT_NONFINITE);
    assert_int_equal(usc_judge_worst(judge, 4, worst, &n_found, NULL), USC_OK);
    assert_int_equal(n_found, 4);
    assert_int_equal(worst[0].index, 30);
    assert_true(isinf(worst[0].score) && isnan(worst[0].device));
    assert_int_equal(worst[1].index, 20);
    assert_int_equal(worst[2].index, 40);
    assert_int_equal(worst[3].index, 10);
    assert_true(worst[3].reference == f.r[10]);
    assert_true(worst[2].score == v.max && worst[1].score < v.max);
    usc_judge_close(judge);
    fixture_free(&f);
}

static void test_positions_show_a_lost_tail(void **state)
{
    (void)state;
    fixture f = fixture_make(USC_F32, 6400);
    for (int64_t i = 6300; i < 6400; i++)
        fixture_set(&f, i, 0);
    usc_judge *judge = NULL;
    usc_judgement v;
    static float out[USC_MAX_DIMS][64];
    assert_int_equal(fixture_open(&f, &judge), USC_OK);
    assert_int_equal(usc_judge_look(judge, &v, NULL), USC_OK);
    assert_int_equal(usc_judge_positions(judge, out, NULL), USC_OK);
    for (int s = 0; s < 64; s++)
        assert_true((double)out[0][s] == (s == 63 ? 1.0 : 0.0));
    assert_true((double)out[1][0] == 0);
    usc_judge_close(judge);
    fixture_free(&f);
}

/* Nobody knows how many bytes an element has: a prefix of them must not pass for all. */
static void test_exact_outputs_have_a_known_size(void **state)
{
    (void)state;
    float a[8] = {0}, b[8] = {0};
    b[6] = 1;
    usc_tensor x = fixture_view(a, USC_F32, 4), y = fixture_view(b, USC_F32, 4);
    x.dtype = y.dtype = USC_DTYPE_NONE; /* four numbers of complex64, say */
    usc_judgement v;
    usc_error err;
    assert_int_equal(usc_judge_exact(&x, &y, &v, &err), USC_E_DTYPE);
    assert_non_null(strstr(err.text, "pairs of reals"));
    x = fixture_view(a, USC_F32, 8);
    y = fixture_view(b, USC_F32, 8);
    assert_int_equal(usc_judge_exact(&x, &y, &v, &err), USC_OK);
    assert_int_equal(v.verdict, USC_VERDICT_WRONG);
}

#if defined(__SSE2__)
/* What the judge says of subnormals of float64, while the host program sets `modes`. */
static usc_judgement judged_under(unsigned modes, bool replay)
{
    double d[3] = {0x1p-1070, 0x1.8p-1070, 1}, r[3] = {0x1.4p-1070, 0x1p-1072, 1};
    double r1[3] = {0x1.4p-1070, 0x1p-1071, 1};
    float y[3] = {0, 0, 1};
    const usc_tensor device = fixture_view(d, USC_F64, 3),
                     reference = fixture_view(r, USC_F64, 3),
                     moved = fixture_view(r1, USC_F64, 3),
                     yardstick = fixture_view(y, USC_F32, 3);
    usc_judge *judge = NULL;
    usc_judgement j;
    usc_error err;
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | modes);
    usc_status st = usc_judge_open(&device, &reference, &yardstick, NULL, &judge, &err);
    if (st == USC_OK && replay)
        st = usc_judge_first(judge, &moved, &yardstick, &j, &err);
    else if (st == USC_OK)
        st = usc_judge_look(judge, &j, &err);
    const usc_appeal a = {.fan_in = 9};
    if (st == USC_OK && replay) st = usc_judge_appeal(judge, &a, &j, &err);
    _mm_setcsr(before);
    usc_judge_close(judge);
    assert_int_equal(st, USC_OK);
    return j;
}

static void test_equal_bits_whatever_modes_the_host_sets(void **state)
{
    (void)state;
    static const unsigned modes[] = {0x8000, 0x0040, 0x8040, 0x2000, 0x4000, 0x6000};
    for (int replay = 0; replay < 2; replay++) {
        const usc_judgement plain = judged_under(0, replay);
        for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
            const usc_judgement j = judged_under(modes[i], replay);
            assert_memory_equal(&plain, &j, sizeof j);
        }
    }
}
#endif

static void test_exact_outputs_differ_by_any_bit(void **state)
{
    (void)state;
    int32_t a[600] = {0}, b[600] = {0};
    const usc_tensor x = fixture_view(a, USC_I32, 600), y = fixture_view(b, USC_I32, 600);
    usc_judgement v;
    assert_int_equal(usc_judge_exact(&x, &y, &v, NULL), USC_OK);
    assert_int_equal(v.verdict, USC_VERDICT_PASS);
    assert_int_equal(v.i_worst, -1);
    a[555] = 1;
    a[580] = 1;
    assert_int_equal(usc_judge_exact(&x, &y, &v, NULL), USC_OK);
    assert_int_equal(v.verdict, USC_VERDICT_WRONG);
    assert_int_equal(v.n_mismatch, 2);
    assert_int_equal(v.i_worst, 555);
    const usc_tensor other = fixture_view(b, USC_I16, 600);
    assert_int_equal(usc_judge_exact(&x, &other, &v, NULL), USC_E_DTYPE);
    const usc_tensor less = fixture_view(b, USC_I32, 599);
    assert_int_equal(usc_judge_exact(&x, &less, &v, NULL), USC_E_SHAPE);
    assert_int_equal(v.n, 0);
}

static void test_wrong_operands_are_refused(void **state)
{
    (void)state;
    float f32[4] = {0};
    double f64[4] = {0};
    const usc_tensor d = fixture_view(f32, USC_F32, 4), r = fixture_view(f64, USC_F64, 4);
    const usc_tensor few = fixture_view(f64, USC_F64, 3);
    const usc_tensor ints = fixture_view(f32, USC_I32, 4);
    usc_judge *judge = NULL;
    usc_error err;
    assert_int_equal(usc_judge_open(&ints, &r, &d, NULL, &judge, &err), USC_E_DTYPE);
    assert_int_equal(usc_judge_open(&d, &d, &d, NULL, &judge, &err), USC_E_DTYPE);
    assert_int_equal(usc_judge_open(&d, &few, &d, NULL, &judge, &err), USC_E_SHAPE);
    assert_int_equal(err.where, 0);
    assert_null(judge);
    assert_int_equal(usc_judge_open(&d, &r, &d, NULL, &judge, &err), USC_OK);
    usc_judgement v;
    assert_int_equal(usc_judge_look(judge, &v, &err), USC_OK);
    assert_int_equal(usc_judge_replay(judge, &few, &d, &err), USC_E_SHAPE);
    assert_int_equal(usc_judge_first(judge, &few, &d, &v, &err), USC_E_SHAPE);
    assert_int_equal(usc_judge_replay(judge, &r, &d, &err), USC_OK);
    assert_int_equal(usc_judge_first(judge, &r, &d, &v, &err), USC_E_ARG);
    const usc_appeal none = {.fan_in = 0};
    assert_int_equal(usc_judge_appeal(judge, &none, &v, &err), USC_E_ARG);
    usc_judge_close(judge);
    usc_judge_close(NULL);
}

static void test_verdicts_have_texts(void **state)
{
    (void)state;
    for (int v = 0; v < USC_N_VERDICTS; v++)
        assert_int_equal(usc_verdict_by_text(usc_verdict_text((usc_verdict)v)), v);
    assert_int_equal(usc_verdict_by_text("nonsense"), USC_N_VERDICTS);
    assert_string_equal(usc_verdict_text(USC_N_VERDICTS), "unknown");
    assert_true(usc_verdict_flagged(USC_VERDICT_REDUCED));
    assert_false(usc_verdict_flagged(USC_VERDICT_UNJUDGED));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_bits_for_any_number_of_threads),
        cmocka_unit_test(test_a_first_replay_with_its_look_gives_the_same_bits),
        cmocka_unit_test(test_pairs_know_the_modulus),
        cmocka_unit_test(test_equal_bits_for_any_strides),
        cmocka_unit_test(test_every_failing_allocation_is_survived),
        cmocka_unit_test(test_worst_elements_come_worst_first_and_bad_before_all),
        cmocka_unit_test(test_positions_show_a_lost_tail),
        cmocka_unit_test(test_exact_outputs_have_a_known_size),
#if defined(__SSE2__)
        cmocka_unit_test(test_equal_bits_whatever_modes_the_host_sets),
#endif
        cmocka_unit_test(test_exact_outputs_differ_by_any_bit),
        cmocka_unit_test(test_wrong_operands_are_refused),
        cmocka_unit_test(test_verdicts_have_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
