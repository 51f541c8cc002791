// SPDX-License-Identifier: Apache-2.0
// Stand-ins against the statistics that they were drawn from: what is said to be exact
// is, whatever tensor the statistics are of. Statistics of no tensor:
// test_stand_in_bad.c.
#include "alloc_probe.h"
#include "generate_sample.h"

#include <ulpscope/trace.h>

static void assert_alike(const usc_stats *a, const usc_stats *b, bool is_float)
{
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->n_nan, b->n_nan);
    assert_int_equal(a->n_pos_inf, b->n_pos_inf);
    assert_int_equal(a->n_neg_inf, b->n_neg_inf);
    assert_int_equal(a->n_zero, b->n_zero);
    assert_int_equal(a->n_subnormal, b->n_subnormal);
    assert_int_equal(a->int_min, b->int_min);
    assert_int_equal(a->int_max, b->int_max);
    if (!is_float || a->n_nan + a->n_pos_inf + a->n_neg_inf < a->n) {
        if (!(a->min >= b->min && a->min <= b->min))
            fail_msg("from %a, not %a, to %a", a->min, b->min, b->max);
        assert_true(a->max >= b->max && a->max <= b->max);
    }
    if (a->n_histogram == b->n_histogram && a->n <= COUNTED)
        assert_memory_equal(a->histogram, b->histogram, sizeof a->histogram);
}

static void test_what_is_exact_is_exact(void **state)
{
    (void)state;
    static const usc_dtype dtypes[] = {USC_F64, USC_F32, USC_F16, USC_BF16, USC_F8_E5M2,
                                       USC_I64, USC_I32, USC_U8,  USC_BOOL, USC_I8};
    for (int k = 0; k < 1500; k++) {
        const usc_dtype dtype = dtypes[k % 10];
        const bool is_float = usc_dtype_info_of(dtype)->kind == USC_KIND_FLOAT;
        const int64_t rows = 1 + below(40), columns = 1 + below(40);
        fill(dtype, rows * columns, k / 10 % 8);
        const usc_tensor t = tensor_of(real, dtype, rows, columns);
        const usc_stats s = stats_of(&t);
        if (s.structure != 0 || s.unique) continue; /* see below */
        make(&t, &s, NULL, made);
        const usc_tensor m = tensor_of(made, dtype, rows, columns);
        const usc_stats u = stats_of(&m);
        assert_alike(&u, &s, is_float);
        const double spread = s.max - s.min, n = (double)(rows * columns);
        if (n > 50 && isfinite(s.mean))
            assert_true(fabs(u.mean - s.mean) <= 4 * spread / sqrt(n) + fabs(s.mean) / 8);
    }
}

static void test_sampled_histograms_keep_counts_and_range(void **state)
{
    (void)state;
    for (int mode = 0; mode < 5; mode++) {
        fill(USC_F32, MAX_N, mode);
        const usc_tensor t = tensor_of(real, USC_F32, 200, MAX_N / 200);
        const usc_stats s = stats_of(&t);
        assert_true(s.n_histogram < s.n);
        make(&t, &s, NULL, made);
        const usc_tensor m = tensor_of(made, USC_F32, 200, MAX_N / 200);
        const usc_stats u = stats_of(&m);
        assert_alike(&u, &s, true);
        assert_true(fabs(u.mean - s.mean) < 0.02 * (s.max - s.min));
    }
}

static void test_integers_keep_order_and_uniqueness(void **state)
{
    (void)state;
    int64_t *x = (int64_t *)(void *)real;
    for (int k = 0; k < 200; k++) {
        const int64_t n = 2 + below(500);
        for (int64_t i = 0; i < n; i++)
            x[i] = k % 2 ? (i > 0 ? x[i - 1] : -50) + below(k % 3 + 1) + (k % 5 > 0)
                         : (int64_t)usc_stream_place(test_stream, (uint64_t)i,
                                                     (uint64_t)(n + k)) -
                               20;
        const usc_tensor t = tensor_of(real, USC_I64, 1, n);
        const usc_stats s = stats_of(&t);
        make(&t, &s, NULL, made);
        const usc_tensor m = tensor_of(made, USC_I64, 1, n);
        const usc_stats u = stats_of(&m);
        assert_int_equal(u.int_min, s.int_min);
        assert_int_equal(u.int_max, s.int_max);
        assert_true(!s.sorted || u.sorted);
        assert_true(!s.unique || u.unique);
    }
}

static void test_a_value_for_none_stays_alone(void **state)
{
    (void)state;
    int64_t *x = (int64_t *)(void *)real;
    for (int64_t i = 0; i < 300; i++)
        x[i] = i % 7 == 0 ? -100 : below(90);
    const usc_tensor t = tensor_of(real, USC_I64, 1, 300);
    const usc_stats s = stats_of(&t);
    make(&t, &s, NULL, made);
    int n_none = 0;
    const int64_t *y = (const int64_t *)(const void *)made;
    for (int i = 0; i < 300; i++) {
        assert_true(y[i] == -100 || (y[i] >= 0 && y[i] < 90));
        n_none += y[i] == -100;
    }
    assert_int_equal(n_none, 43);
}

/* ---- forms ---- */

static void test_forms_are_found_and_kept(void **state)
{
    (void)state;
    static const unsigned forms[] = {
        USC_ROWS_RISE,     USC_ROWS_FALL,    USC_ROWS_SUM_ONE,
        USC_ROWS_NORM_ONE, USC_LOWER,        USC_UPPER,
        USC_SYMMETRIC,     USC_ROWS_ONE_HOT, 0};
    static const usc_dtype dtypes[] = {USC_F32, USC_BF16, USC_F64};
    for (int k = 0; k < 27; k++) {
        const unsigned form = forms[k / 3];
        const usc_dtype dtype = dtypes[k % 3];
        fill_form(form);
        usc_dtype_narrow(dtype, wide, real, R * C);
        const usc_tensor t = tensor_of(real, dtype, R, C);
        const usc_stats s = stats_of(&t);
        assert_int_equal(s.structure & ~(unsigned)USC_ROWS_NORM_ONE,
                         form & ~(unsigned)USC_ROWS_NORM_ONE);
        assert_true((s.structure & form) == form);
        make(&t, &s, NULL, made);
        const usc_tensor m = tensor_of(made, dtype, R, C);
        const usc_stats u = stats_of(&m);
        assert_int_equal(u.structure, s.structure);
        if (form == USC_LOWER || form == USC_UPPER || form == USC_ROWS_ONE_HOT)
            assert_alike(&u, &s, true);
    }
}

static void test_a_causal_mask_is_kept_as_it_is(void **state)
{
    (void)state;
    for (int i = 0; i < R * C; i++)
        real[i] = i % C > i / C;
    const usc_tensor t = tensor_of(real, USC_BOOL, R, C);
    const usc_stats s = stats_of(&t);
    make(&t, &s, NULL, made);
    assert_memory_equal(made, real, R * C);
    real[5] = 0; /* planted: no triangle any more */
    assert_int_equal(stats_of(&t).structure & (USC_LOWER | USC_ROWS_RISE), 0);
}

static void test_rows_without_repetition(void **state)
{
    (void)state;
    int64_t *x = (int64_t *)(void *)real;
    for (int64_t i = 0; i < 20 * 16; i++) {
        const usc_stream d = {.seed = 5, .number = (uint64_t)(i / 16)};
        x[i] = (int64_t)usc_stream_place(d, (uint64_t)(i % 16), 16);
    }
    const usc_tensor t = tensor_of(real, USC_I64, 20, 16);
    const usc_stats s = stats_of(&t);
    assert_int_equal(s.structure, USC_ROWS_UNIQUE);
    make(&t, &s, NULL, made);
    const usc_tensor m = tensor_of(made, USC_I64, 20, 16);
    assert_int_equal(stats_of(&m).structure, USC_ROWS_UNIQUE);
    x[3] = x[2]; /* planted */
    x[19 * 16 + 3] = x[19 * 16 + 2];
    assert_int_equal(stats_of(&t).structure, 0);
}

/* ---- what operators ask ---- */

static void test_definite_matrices_have_a_root(void **state)
{
    (void)state;
    fill_form(USC_SYMMETRIC);
    usc_dtype_narrow(USC_F64, wide, real, R * C);
    const usc_tensor t = tensor_of(real, USC_F64, R, C);
    const usc_stats s = stats_of(&t);
    make(&t, &s, &(usc_stand_in_options){.need = USC_NEED_DEFINITE}, made);
    double *a = (double *)(void *)made;
    for (int j = 0; j < C; j++) { /* Cholesky, in place */
        for (int k = 0; k < j; k++)
            a[j * C + j] -= a[j * C + k] * a[j * C + k];
        assert_true(a[j * C + j] > 0);
        a[j * C + j] = sqrt(a[j * C + j]);
        for (int i = j + 1; i < R; i++) {
            assert_true(a[i * C + j] <= a[j * C + i] && a[i * C + j] >= a[j * C + i]);
            for (int k = 0; k < j; k++)
                a[i * C + j] -= a[i * C + k] * a[j * C + k];
            a[i * C + j] /= a[j * C + j];
            a[j * C + i] = a[i * C + j]; /* so that the next column compares alike */
        }
    }
}

static usc_stand_in_options need_of(const char *op, const char *args, const char *path,
                                    int64_t first, int64_t second)
{
    usc_stand_in_options need;
    const usc_call_arg arg[] = {
        {.path = "args[0]",
         .dtype_name = "float32",
         .ndim = 2,
         .sizes = (int64_t[]){first, second}},
        {.path = path, .dtype_name = "int64", .ndim = 1, .sizes = &(int64_t){5}}};
    const usc_call call = {.op = op, .args = args, .n_args = 2, .arg = arg};
    assert_int_equal(usc_stand_in_need(&call, &arg[1], &need, NULL), USC_OK);
    return need;
}

static void test_indices_stay_inside(void **state)
{
    (void)state;
    static const char *const gather =
        "{\"args\": [{\"tensor\": true}, -1, {\"tensor\": true}], \"kwargs\": {}}";
    static const char *const loss = "{\"args\": [{\"tensor\": true}, {\"tensor\": true}, "
                                    "null, 1, -100], \"kwargs\": {}}";
    assert_int_equal(need_of("aten::gather", gather, "args[2]", 8, 9).limit, 9);
    assert_int_equal(need_of("aten::embedding", gather, "args[1]", 8, 9).limit, 8);
    assert_int_equal(need_of("aten::index.Tensor", gather, "args[1][1]", 8, 9).limit, 9);
    assert_int_equal(need_of("aten::add.Tensor", gather, "args[1]", 8, 9).need, 0);
    const usc_stand_in_options o =
        need_of("aten::nll_loss_forward", loss, "args[1]", 8, 9);
    assert_true(o.limit == 9 && o.has_ignored && o.ignored == -100);

    const usc_tensor like = tensor_of(NULL, USC_I64, 1, 400);
    const usc_stats s = {
        .n = 400, .int_min = -100, .int_max = 70, .min = -100, .max = 70};
    make(&like, &s, &o, made);
    const int64_t *y = (const int64_t *)(const void *)made;
    for (int i = 0; i < 400; i++)
        assert_true(y[i] == -100 || (y[i] >= 0 && y[i] < 9));
}

/* ---- reproducibility ---- */

static void test_equal_tensors_stay_equal_and_others_differ(void **state)
{
    (void)state;
    fill(USC_F32, 600, 0);
    const usc_tensor t = tensor_of(real, USC_F32, 20, 30);
    usc_tensor turned = tensor_of(real, USC_F32, 30, 20);
    turned.strides[0] = 1;
    turned.strides[1] = 30;
    const usc_stats s = stats_of(&t), same = stats_of(&turned);
    const usc_stream a = usc_stand_in_stream(&s, "trace", 1, "args[0]");
    const usc_stream b = usc_stand_in_stream(&same, "other", 9, "args[1]");
    assert_memory_equal(&a, &b, sizeof a);
    make(&t, &s, NULL, made);
    make(&turned, &same, NULL, again);
    assert_memory_equal(made, again, 600 * 4);

    float *x = (float *)(void *)real;
    const float first = x[0];
    x[0] = x[1];
    x[1] = first;
    const usc_stats other = stats_of(&t);
    const usc_stream c = usc_stand_in_stream(&other, "trace", 1, "args[0]");
    assert_true(c.seed != a.seed);
    usc_stats old = s;
    old.fingerprint = 0; /* an older trace: by its place */
    const usc_stream d = usc_stand_in_stream(&old, "trace", 1, "args[0]");
    const usc_stream e = usc_stand_in_stream(&old, "trace", 2, "args[0]");
    assert_true(d.number != e.number && d.seed == e.seed);
}

/* The bits are a promise: they are the same in every release and on every machine. */
static void test_the_bits_of_a_stand_in(void **state)
{
    (void)state;
    usc_stats s = {.n = 1000, .n_zero = 10, .min = -8, .max = 5, .mean = 0.25, .l2 = 40};
    s.histogram[0][2 - USC_BINADE_MIN] = 300;
    s.histogram[0][-1 - USC_BINADE_MIN] = 390;
    s.histogram[1][2 - USC_BINADE_MIN] = 299;
    s.histogram[1][3 - USC_BINADE_MIN] = 1;
    s.n_histogram = 990;
    const usc_tensor like = tensor_of(NULL, USC_F32, 10, 100);
    make(&like, &s, NULL, made);
    char hash[33];
    usc_trace_hash(made, 4000, hash);
    assert_string_equal(hash, "1f6699be7ff7cda45814f7c938ef8c42");
}

/* ---- memory ---- */

static void test_all_memory_is_given_back(void **state)
{
    (void)state;
    alloc_probe probe;
    fill(USC_F32, 600, 0);
    const usc_tensor t = tensor_of(real, USC_F32, 20, 30);
    const usc_stats s = stats_of(&t);
    int n_refused = 0;
    usc_status st = USC_E_NOMEM;
    for (int fail_at = 1; st != USC_OK; fail_at++) {
        usc_error err = {0};
        const usc_stand_in_options o = {.alloc = alloc_probe_bind(&probe, fail_at)};
        st = usc_stand_in_make(&t, &s, &o, test_stream, made, 600 * 4, &err);
        assert_int_equal(probe.live_bytes, 0);
        assert_int_equal(probe.n_wrong_sizes, 0);
        if (st == USC_OK) break;
        assert_int_equal(st, USC_E_NOMEM);
        assert_non_null(strstr(err.text, "no memory"));
        n_refused++;
    }
    assert_int_equal(n_refused, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_exact_is_exact),
        cmocka_unit_test(test_sampled_histograms_keep_counts_and_range),
        cmocka_unit_test(test_integers_keep_order_and_uniqueness),
        cmocka_unit_test(test_a_value_for_none_stays_alone),
        cmocka_unit_test(test_forms_are_found_and_kept),
        cmocka_unit_test(test_a_causal_mask_is_kept_as_it_is),
        cmocka_unit_test(test_rows_without_repetition),
        cmocka_unit_test(test_definite_matrices_have_a_root),
        cmocka_unit_test(test_indices_stay_inside),
        cmocka_unit_test(test_equal_tensors_stay_equal_and_others_differ),
        cmocka_unit_test(test_the_bits_of_a_stand_in),
        cmocka_unit_test(test_all_memory_is_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
