// SPDX-License-Identifier: Apache-2.0
// What runs of an operator are weighed by, and causes of shapes, of large outputs and
// where memory is scarce. The patterns: test_cause.c.
#include "alloc_probe.h"
#include "cause_bench.h"

/* ---- shapes ---- */

static const char *of_shape(int ndim, const int64_t *sizes, int want_ndim,
                            const int64_t *want, int64_t first)
{
    static usc_cause_found found;
    double d[200], t[200];
    usc_tensor device, truth;
    for (int i = 0; i < 200; i++)
        t[i] = i * i;
    for (int i = 0; i < 200; i++)
        d[i] = i < 200 - first ? t[i + first] : 0;
    assert_int_equal(usc_tensor_make(&device, d, USC_F64, ndim, sizes, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&truth, t, USC_F64, want_ndim, want, NULL), USC_OK);
    usc_cause_shape(&device, &truth, &found);
    return found.text;
}

#define SIZES(...) ((const int64_t[]){__VA_ARGS__})

static void shapes_tell_what_is_missing(void **state)
{
    (void)state;
    assert_string_equal(of_shape(2, SIZES(4, 6), 2, SIZES(6, 4), 0),
                        "wrong stride: the result is transposed (its sizes are in "
                        "another order)");
    assert_string_equal(of_shape(1, SIZES(24), 2, SIZES(6, 4), 0),
                        "wrong shape: 1 dimensions instead of 2");
    assert_string_equal(of_shape(2, SIZES(3, 5), 2, SIZES(6, 4), 0),
                        "wrong shape: sizes [3, 5] instead of [6, 4]");
    assert_string_equal(of_shape(1, SIZES(27), 1, SIZES(25), 0),
                        "wrong size: 2 elements too many along axis 0");
    assert_string_equal(of_shape(1, SIZES(22), 1, SIZES(25), 0),
                        "truncated: the last 3 of 25 elements along axis 0 are missing "
                        "(dropped contribution)");
    assert_string_equal(of_shape(1, SIZES(22), 1, SIZES(25), 3),
                        "truncated: the first 3 of 25 elements along axis 0 are missing "
                        "(dropped contribution)");
    assert_string_equal(of_shape(1, SIZES(22), 1, SIZES(25), 1),
                        "wrong size: 3 of 25 elements along axis 0 are missing");
    assert_string_equal(of_shape(2, SIZES(4, 6), 2, SIZES(4, 6), 0), "");
}

/* ---- what is off everywhere, or alike ---- */

// clang-format off
static void p_factor(bench *b) { bench_scale(b, 1.005, 0); }
static void p_infinite(bench *b) { for (int64_t i = 0; i < b->n; i++) b->d[i] = i % 5 == 0 ? (double)INFINITY : i % 501 == 1 ? (double)NAN : b->d[i]; }
static void p_scattered(bench *b) { for (int64_t i = 0; i < b->n; i++) b->d[i] *= 1 + (i % 13 == 5 ? 0x1p-8 : 0x1p-10); }
static void m_first(bench *b) { for (int64_t i = 0; i < b->n; i++) b->t[i] = b->d[i] = b->t[i / 32 * 32]; for (int64_t i = 0; i < 64; i++) b->t[32 * i + 1 + i % 31] = 9; }
// clang-format on

static void what_is_off_everywhere_has_no_place(void **state)
{
    static const struct {
        usc_dtype dtype;
        int shape;
        void (*spoil)(bench *b);
    } where[] = {
        {USC_BF16, 3, p_factor}, {USC_F32, 3, p_infinite}, {USC_F32, 0, p_scattered}};
    static bench b;
    (void)state;
    for (size_t i = 0; i < sizeof where / sizeof where[0]; i++) {
        bench_begin(&b, where[i].dtype, where[i].shape);
        where[i].spoil(&b);
        assert_string_equal(bench_ask(&b, USC_CAUSE_PLACE).text, "");
    }
}

/* Slices that are alike but for what is off: another one in their place is no news. */
static void one_slice_for_all_is_told_of_most(void **state)
{
    static bench b;
    (void)state;
    bench_begin(&b, USC_F32, 3);
    m_first(&b);
    assert_null(strstr(bench_ask(&b, USC_CAUSE_PLAIN).text, "the first slice"));
}

/* ---- runs held against the device ---- */

static double weigh(usc_cause *c, usc_cause_weight weight, const bench *b,
                    const double *run)
{
    double out = -2;
    const usc_tensor t = bench_view(b, run, USC_F64);
    assert_int_equal(usc_cause_weigh(c, weight, &t, NULL, &out, NULL), USC_OK);
    return out;
}

static double against(usc_cause *c, const bench *b, const double *run,
                      const double *other)
{
    double out = -2;
    const usc_tensor t = bench_view(b, run, USC_F64), o = bench_view(b, other, USC_F64);
    assert_int_equal(usc_cause_weigh(c, USC_CAUSE_NEARER, &t, &o, &out, NULL), USC_OK);
    return out;
}

static void a_run_with_the_same_mistake_explains_it(void **state)
{
    static bench b;
    static double almost[MOST], half_way[MOST];
    opened o;
    (void)state;
    bench_begin(&b, USC_F32, 3);
    for (int64_t i = 0; i < b.n; i++) {
        b.d[i] = b.t[i] * b.t[i] + 1;
        almost[i] = b.d[i] * (1 + 1e-4);
        half_way[i] = (b.d[i] + b.t[i]) / 2;
    }
    assert_int_equal(bench_open(&b, NULL, &o), USC_OK);
    assert_true(weigh(o.c, USC_CAUSE_LEFT, &b, b.d) == 0);
    assert_true(weigh(o.c, USC_CAUSE_LEFT, &b, almost) < 1e-2);
    assert_true(isinf(weigh(o.c, USC_CAUSE_LEFT, &b, half_way)));
    assert_true(isinf(weigh(o.c, USC_CAUSE_LEFT, &b, b.t)));
    assert_true(weigh(o.c, USC_CAUSE_NEAR, &b, almost) == 1);
    assert_true(weigh(o.c, USC_CAUSE_NEAR, &b, half_way) == 0);
    assert_true(weigh(o.c, USC_CAUSE_REPRODUCES, &b, b.d) == 1);
    assert_true(weigh(o.c, USC_CAUSE_REPRODUCES, &b, almost) == 0);
    assert_true(weigh(o.c, USC_CAUSE_SAME_BITS, &b, b.d) == 1);
    assert_true(weigh(o.c, USC_CAUSE_SAME_BITS, &b, almost) == 0);
    assert_true(weigh(o.c, USC_CAUSE_CONTRADICTS, &b, almost) == 1);
    assert_true(weigh(o.c, USC_CAUSE_CONTRADICTS, &b, b.d) == 0);
    assert_true(weigh(o.c, USC_CAUSE_UNMOVED, &b, b.t) == 1);
    assert_true(weigh(o.c, USC_CAUSE_UNMOVED, &b, b.d) == 0);
    assert_true(weigh(o.c, USC_CAUSE_FOLLOWS, &b, b.d) > 0.999);
    assert_true(weigh(o.c, USC_CAUSE_FOLLOWS, &b, b.t) == 0);
    assert_true(against(o.c, &b, b.d, half_way) == 1);
    assert_true(against(o.c, &b, half_way, b.d) == -1);
    assert_true(against(o.c, &b, b.d, b.d) == 0);      /* nothing to tell them by */
    assert_true(against(o.c, &b, b.t, half_way) == 0); /* nearer, but not clearly */
    for (int64_t i = 0; i < b.n; i += 2)               /* each has half of the elements */
        half_way[i] = b.d[i], almost[i] = b.t[i];
    assert_true(against(o.c, &b, half_way, almost) != -1);
    for (int64_t i = 0; i < b.n; i++)
        almost[i] = i % 2 ? b.d[i] : b.t[i];
    assert_true(against(o.c, &b, half_way, almost) == 0);
    assert_true(weigh(o.c, USC_CAUSE_NEARER, &b, b.d) == 0);
    bench_close(&o);
}

static void few_numbers_need_more_agreement(void **state)
{
    static bench b;
    static double run[MOST];
    opened o;
    (void)state;
    bench_begin(&b, USC_F32, 0);
    b.d[5] *= 1 + 0x1p-15; /* one element: two hundred roundings off, eight bits */
    memcpy(run, b.d, sizeof run);
    assert_int_equal(bench_open(&b, NULL, &o), USC_OK);
    assert_true(isinf(weigh(o.c, USC_CAUSE_LEFT, &b, run)));
    bench_close(&o);
    b.d[5] *= 2;
    run[5] = b.d[5];
    assert_int_equal(bench_open(&b, NULL, &o), USC_OK);
    assert_true(weigh(o.c, USC_CAUSE_LEFT, &b, run) == 0);
    bench_close(&o);
}

static void errors_of_slices_count_as_one(void **state)
{
    static bench b;
    opened o;
    usc_cause_errors errors;
    (void)state;
    bench_begin(&b, USC_F32, 3);
    bench_by_row(&b, 0.8, 1.2, true, false);
    assert_int_equal(bench_open(&b, NULL, &o), USC_OK);
    assert_int_equal(usc_cause_errors_of(o.c, &errors, NULL), USC_OK);
    assert_int_equal(errors.independent, 2 * 64);
    bench_close(&o);
    bench_begin(&b, USC_F32, 3);
    bench_noise(&b, 0x1p-9, 9, 0);
    assert_int_equal(bench_open(&b, NULL, &o), USC_OK);
    assert_int_equal(usc_cause_errors_of(o.c, &errors, NULL), USC_OK);
    assert_true(errors.independent > 2000 && errors.mixed && !errors.one_sided);
    bench_close(&o);
}

/* ---- large and scarce ---- */

static void large_outputs_are_sampled(void **state)
{
    enum { N = 1 << 19, ODD = 300001 };
    float *d = calloc(N, sizeof *d);
    double *t = calloc(N, sizeof *t);
    const int64_t n = N, *places;
    const uint8_t *off;
    usc_tensor device, truth;
    usc_cause *c = NULL;
    usc_cause_found found;
    bool seen = false;
    uint64_t dice = 3;
    (void)state;
    for (int i = 0; i < N; i++) {
        t[i] = fixture_random(&dice);
        d[i] = (float)t[i];
    }
    d[ODD] += 0.5f;
    assert_int_equal(usc_tensor_make(&device, d, USC_F32, 1, &n, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&truth, t, USC_F64, 1, &n, NULL), USC_OK);
    const usc_cause_operands operands = {
        .device = &device, .truth = &truth, .yardstick = &truth};
    assert_int_equal(usc_cause_open(&operands, &c, NULL), USC_OK);
    const int64_t n_seen = usc_cause_sample(c, &places, &off);
    assert_true(n_seen > 1 << 16 && n_seen <= 1 << 17);
    for (int64_t k = 0; k < n_seen; k++)
        seen |= places[k] == ODD && off[k];
    assert_true(seen);
    usc_cause_close(c);
    memset(d + N - 5000, 0, 5000 * sizeof *d);
    d[ODD] -= 0.5f;
    assert_int_equal(usc_cause_open(&operands, &c, NULL), USC_OK);
    assert_int_equal(usc_cause_ask(c, USC_CAUSE_ANYTHING, &found, NULL), USC_OK);
    assert_string_equal(found.text, "the last 5,000 of 524,288 elements are zero: the "
                                    "tail was not written");
    usc_cause_close(c);
    free(d);
    free(t);
}

static void strides_are_followed(void **state)
{
    static bench b;
    opened o;
    usc_cause *c = NULL;
    usc_cause_found found;
    (void)state;
    bench_begin(&b, USC_F32, 1);
    for (int64_t i = 0; i < b.n; i++)
        if (i % 16 > 12) b.d[i] = 0;
    assert_int_equal(bench_open(&b, NULL, &o), USC_OK);
    usc_tensor d = bench_view(&b, o.d, USC_F32), t = bench_view(&b, b.t, USC_F64);
    d.sizes[0] = t.sizes[0] = 16; /* both the other way round */
    d.sizes[1] = t.sizes[1] = 8;
    d.strides[0] = t.strides[0] = 1;
    d.strides[1] = t.strides[1] = 16;
    const usc_cause_operands operands = {.device = &d, .truth = &t, .yardstick = &t};
    assert_int_equal(usc_cause_open(&operands, &c, NULL), USC_OK);
    assert_int_equal(usc_cause_ask(c, USC_CAUSE_PLAIN, &found, NULL), USC_OK);
    assert_string_equal(
        found.text, "the last 3 of 16 along axis 0 are zero: the tail was not written");
    usc_cause_close(c);
    bench_close(&o);
}

static void operands_that_do_not_fit_are_refused(void **state)
{
    static bench b;
    opened o;
    usc_cause *c = NULL;
    (void)state;
    bench_begin(&b, USC_F32, 1);
    assert_int_equal(bench_open(&b, NULL, &o), USC_OK);
    usc_tensor d = bench_view(&b, o.d, USC_F32), t = bench_view(&b, b.t, USC_F64);
    const usc_tensor whole = t;
    const usc_cause_operands operands = {.device = &d, .truth = &t, .yardstick = &whole};
    t.sizes[1] = 15;
    assert_int_equal(usc_cause_open(&operands, &c, NULL), USC_E_SHAPE);
    assert_null(c);
    t = whole;
    d.dtype = USC_I32;
    assert_int_equal(usc_cause_open(&operands, &c, NULL), USC_E_DTYPE);
    d.dtype = USC_F32;
    d.sizes[0] = t.sizes[0] = 0;
    usc_tensor none = t;
    const usc_cause_operands empty = {.device = &d, .truth = &t, .yardstick = &none};
    assert_int_equal(usc_cause_open(&empty, &c, NULL), USC_E_SHAPE);
    bench_close(&o);
}

static usc_status ask_everything(const bench *b, const usc_alloc *alloc)
{
    opened o;
    usc_cause_found found;
    usc_cause_errors errors;
    usc_status st = bench_open(b, alloc, &o);
    for (int look = USC_CAUSE_PLAIN; look <= USC_CAUSE_ANYTHING && st == USC_OK; look++) {
        st = usc_cause_ask(o.c, (usc_cause_look)look, &found, NULL);
        assert_true(st == USC_OK || found.code == USC_CAUSE_NONE);
    }
    const usc_tensor run = bench_view(b, b->d, USC_F64);
    double weight;
    bool of_size;
    if (st == USC_OK) st = usc_cause_errors_of(o.c, &errors, NULL);
    for (int w = USC_CAUSE_LEFT; w <= USC_CAUSE_FOLLOWS && st == USC_OK; w++)
        st = usc_cause_weigh(o.c, (usc_cause_weight)w, &run, &run, &weight, NULL);
    if (st == USC_OK) st = usc_cause_of_size(o.c, &run, 1, &of_size, NULL);
    bench_close(&o);
    return st;
}

static void every_request_for_memory_may_fail(void **state)
{
    static bench b;
    (void)state;
    bench_begin(&b, USC_F32, 3);
    bench_by_row(&b, 0.8, 1.2, true, false);
    for (int n = 1;; n++) {
        alloc_probe probe;
        const usc_status st = ask_everything(&b, alloc_probe_bind(&probe, n));
        assert_int_equal(probe.live_bytes, 0);
        assert_int_equal(probe.n_wrong_sizes, 0);
        if (probe.n_requests < n) {
            assert_int_equal(st, USC_OK);
            assert_true(n > 10);
            return;
        }
        assert_int_equal(st, USC_E_NOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_off_everywhere_has_no_place),
        cmocka_unit_test(one_slice_for_all_is_told_of_most),
        cmocka_unit_test(shapes_tell_what_is_missing),
        cmocka_unit_test(a_run_with_the_same_mistake_explains_it),
        cmocka_unit_test(few_numbers_need_more_agreement),
        cmocka_unit_test(errors_of_slices_count_as_one),
        cmocka_unit_test(large_outputs_are_sampled),
        cmocka_unit_test(strides_are_followed),
        cmocka_unit_test(operands_that_do_not_fit_are_refused),
        cmocka_unit_test(every_request_for_memory_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
