// SPDX-License-Identifier: Apache-2.0
// The generator against published words, and stand-ins against the statistics that they
// were drawn from: what is said to be exact is, whatever tensor the statistics are of.
#include <ulpscope/generate.h>
#include <ulpscope/trace.h>

// cmocka wants these in front of it
#include <setjmp.h>
#include <stdarg.h>
// and then itself
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_N = 40000, COUNTED = 8192 };
static double wide[MAX_N];
static unsigned char real[8 * MAX_N], made[8 * MAX_N], again[8 * MAX_N];
static const usc_stream test_stream = {.seed = 20261123, .number = 7};
static uint64_t n_drawn;

static double uniform(void)
{
    return usc_stream_uniform(test_stream, n_drawn++);
}

static int64_t below(int64_t n)
{
    return (int64_t)(uniform() * (double)n);
}

/* ---- the generator ---- */

/* The three vectors that come with the authors' Random123, philox4x32, 10 rounds. */
static void test_words_are_the_published_ones(void **state)
{
    (void)state;
    static const struct {
        usc_stream d;
        uint64_t i;
        uint32_t words[4];
    } known[] = {
        {{0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{UINT64_MAX, UINT64_MAX},
         UINT64_MAX,
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{UINT64_C(0x299f31d0a4093822), UINT64_C(0x0370734413198a2e)},
         UINT64_C(0x85a308d3243f6a88),
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
        uint32_t words[4];
        usc_stream_words(known[k].d, known[k].i, words);
        assert_memory_equal(words, known[k].words, sizeof words);
    }
}

static void test_normal_has_its_moments_and_its_bits(void **state)
{
    (void)state;
    enum { N = 200000 };
    double sum[5] = {0};
    for (uint64_t i = 0; i < N; i++) {
        const double x = usc_stream_normal(test_stream, i);
        for (int k = 1; k < 5; k++)
            sum[k] += pow(x, k);
    }
    assert_true(fabs(sum[1] / N) < 0.01 && fabs(sum[2] / N - 1) < 0.01);
    assert_true(fabs(sum[3] / N) < 0.03 && fabs(sum[4] / N - 3) < 0.1);
    /* Box and Muller by libm, which may differ in its last bits */
    for (uint64_t i = 0; i < 1000; i++) {
        uint32_t w[4];
        usc_stream_words(test_stream, i, w);
        const double a = (double)(((uint64_t)w[0] << 32 | w[1]) >> 11) * 0x1p-53;
        const double b = (double)(((uint64_t)w[2] << 32 | w[3]) >> 11) * 0x1p-53;
        const double x = sqrt(-2 * log(1 - a)) * cos(2 * 3.14159265358979323846 * b);
        assert_true(fabs(usc_stream_normal(test_stream, i) - x) < 1e-13);
    }
}

static void test_places_are_permutations(void **state)
{
    (void)state;
    static unsigned char seen[5000];
    for (uint64_t n = 1; n <= 5000; n = n * 3 / 2 + 1) {
        memset(seen, 0, sizeof seen);
        uint64_t n_fixed = 0;
        for (uint64_t i = 0; i < n; i++) {
            const uint64_t at = usc_stream_place(test_stream, i, n);
            assert_true(at < n && !seen[at]);
            seen[at] = 1;
            n_fixed += at == i;
        }
        assert_true(n < 100 || n_fixed < 10);
    }
    assert_true(usc_stream_place(test_stream, 5, UINT64_C(1) << 63) < UINT64_C(1) << 63);
}

/* ---- statistics of tensors of all kinds ---- */

static usc_tensor tensor_of(const void *data, usc_dtype dtype, int64_t rows,
                            int64_t columns)
{
    usc_tensor t;
    const int64_t sizes[2] = {rows, columns};
    assert_int_equal(usc_tensor_make(&t, data, dtype, 2, sizes, NULL), USC_OK);
    return t;
}

static usc_stats stats_of(const usc_tensor *t)
{
    usc_stats s;
    assert_int_equal(usc_stats_compute(t, NULL, &s, NULL), USC_OK);
    return s;
}

static void make(const usc_tensor *like, const usc_stats *s,
                 const usc_stand_in_options *options, void *out)
{
    usc_error err = {0};
    size_t size;
    assert_int_equal(usc_stand_in_size(like, &size, NULL), USC_OK);
    const usc_stream stream = usc_stand_in_stream(s, "trace", 3, "args[0]");
    if (usc_stand_in_make(like, s, options, stream, out, size, &err) != USC_OK)
        fail_msg("%s", err.text);
}

/* Fills `wide` with one of several kinds of numbers, narrowed into `real`. */
static void fill(usc_dtype dtype, int64_t n, int mode)
{
    const int spread = 1 + (int)below(12);
    for (int64_t i = 0; i < n; i++) {
        double x =
            ldexp(usc_stream_normal(test_stream, n_drawn++), (int)below(spread) - 4);
        if (mode == 1 && uniform() < 0.3) x = 0;
        if (mode == 2) x = fabs(x);
        if (mode == 3 && uniform() < 0.1)
            x = uniform() < 0.5   ? (double)NAN
                : uniform() < 0.5 ? (double)INFINITY
                                  : -(double)INFINITY;
        if (mode == 4) x = ldexp(x, usc_dtype_info_of(dtype)->emin + (int)below(4) - 2);
        if (mode == 5) x = 0.25 * (double)below(5);
        if (mode == 6) x = -3.5;
        if (mode == 7) x = (double)below(1000) - 300;
        wide[i] = x;
    }
    usc_dtype_narrow(dtype, wide, real, (size_t)n);
}

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

enum { R = 24, C = 24 };

static void fill_form(unsigned form)
{
    for (int r = 0; r < R; r++) {
        double sum = 0, squares = 0;
        for (int c = 0; c < C; c++) {
            double x = usc_stream_normal(test_stream, n_drawn++);
            if (form == USC_ROWS_SUM_ONE) x = fabs(x);
            if (form == USC_ROWS_RISE) x = c + 0.5 * uniform();
            if (form == USC_ROWS_FALL) x = -c + 0.5 * uniform();
            if (form == USC_LOWER && c > r) x = -(double)INFINITY;
            if (form == USC_UPPER && c < r) x = 0;
            if (form == USC_ROWS_ONE_HOT) x = c == (r * 5 + 1) % C ? 2 : 0;
            if (form == USC_SYMMETRIC && c < r) x = wide[c * C + r];
            sum += x;
            squares += x * x;
            wide[r * C + c] = x;
        }
        for (int c = 0; c < C; c++) {
            if (form == USC_ROWS_SUM_ONE) wide[r * C + c] /= sum;
            if (form == USC_ROWS_NORM_ONE) wide[r * C + c] /= sqrt(squares);
        }
    }
}

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
        {.path = "args[0]", .dtype_name = "float32", .ndim = 2, .sizes = {first, second}},
        {.path = path, .dtype_name = "int64", .ndim = 1, .sizes = {5}}};
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

/* ---- hard cases ---- */

static void test_hard_values_are_what_their_names_say(void **state)
{
    (void)state;
    enum { N = 64 * 40 };
    fill(USC_F32, N, 0);
    const usc_tensor like = tensor_of(real, USC_F32, 64, 40);
    usc_stats of[USC_N_STRESS];
    for (int k = 0; k < USC_N_STRESS; k++) {
        const usc_stress kind = usc_stress_by_text(usc_stress_text((usc_stress)k));
        assert_int_equal(kind, k);
        usc_error err = {0};
        const usc_status st =
            usc_stress_make(kind, &like, test_stream, made, 4 * N, &err);
        assert_int_equal(st, kind == USC_STRESS_INDEX ? USC_E_DTYPE : USC_OK);
        if (st != USC_OK) continue;
        assert_int_equal(usc_stress_make(kind, &like, test_stream, again, 4 * N, NULL),
                         0);
        assert_memory_equal(made, again, 4 * N);
        const usc_tensor m = tensor_of(made, USC_F32, 64, 40);
        of[k] = stats_of(&m);
        assert_true((of[k].n_nan > 0) == (kind == USC_STRESS_NAN));
        assert_true((of[k].n_pos_inf + of[k].n_neg_inf > 0) == (kind == USC_STRESS_INF));
    }
    assert_true(of[USC_STRESS_ZEROS].n_zero > N / 3);
    assert_int_equal(of[USC_STRESS_ALL_ZEROS].n_zero, N);
    assert_true(of[USC_STRESS_SUBNORMALS].n_subnormal > N / 3);
    assert_true(of[USC_STRESS_NEAR_OVERFLOW].max > 1e34);
    assert_true(of[USC_STRESS_OUTLIERS].max > 100 && of[USC_STRESS_WIDE].max > 1e4);
    assert_true(of[USC_STRESS_COMMON_OFFSET].min > 90);
    assert_true(fabs(of[USC_STRESS_CANCELLATION].mean) < 0.01);
    assert_true(of[USC_STRESS_TIES].min >= -1 && of[USC_STRESS_TIES].max <= 1);
    assert_true((of[USC_STRESS_ONE_HOT].structure & USC_ROWS_ONE_HOT) != 0);
    assert_true((of[USC_STRESS_SORTED].structure & USC_ROWS_RISE) != 0);
}

static void test_hard_values_keep_to_the_domain(void **state)
{
    (void)state;
    fill(USC_F32, 400, 2);
    const usc_tensor like = tensor_of(real, USC_F32, 20, 20);
    for (int k = 0; k < USC_N_STRESS; k++) {
        if (k == USC_STRESS_INDEX) continue;
        assert_int_equal(
            usc_stress_make((usc_stress)k, &like, test_stream, made, 1600, NULL), 0);
        const usc_tensor m = tensor_of(made, USC_F32, 20, 20);
        assert_true(!(stats_of(&m).min < 0));
    }
    int64_t *x = (int64_t *)(void *)real;
    for (int i = 0; i < 400; i++)
        x[i] = i % 13;
    const usc_tensor labels = tensor_of(real, USC_I64, 20, 20);
    assert_int_equal(
        usc_stress_make(USC_STRESS_INDEX, &labels, test_stream, made, 3200, NULL), 0);
    const usc_tensor m = tensor_of(made, USC_I64, 20, 20);
    assert_true(stats_of(&m).int_min >= 0 && stats_of(&m).int_max == 12);
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

/* ---- statistics from anywhere ---- */

static void assert_refused(usc_dtype dtype, usc_stats s, const char *why)
{
    usc_error err = {0};
    const usc_tensor like = tensor_of(NULL, dtype, 10, 10);
    const size_t size = 100 * usc_dtype_info_of(dtype)->size;
    const usc_status st =
        usc_stand_in_make(&like, &s, NULL, test_stream, made, size, &err);
    assert_int_equal(st, USC_E_CORRUPT);
    if (strstr(err.text, why) == NULL) fail_msg("%s", err.text);
}

static void test_statistics_that_cannot_be_are_refused(void **state)
{
    (void)state;
    const usc_stats good = {.n = 100, .min = -1, .max = 1};
    usc_stats s = good;
    s.n = 90;
    assert_refused(USC_F32, s, "n 90 against");
    s = good;
    s.n_nan = 60;
    s.n_zero = 50;
    assert_refused(USC_F32, s, "n_zero 50");
    s = good;
    s.n_pos_inf = -1;
    assert_refused(USC_F32, s, "n_pos_inf -1");
    s = good;
    s.min = 2;
    assert_refused(USC_F32, s, "from 2 to 1");
    s = good;
    s.max = (double)NAN;
    assert_refused(USC_F32, s, "nan");
    s = good;
    s.n_pos_inf = 1;
    assert_refused(USC_F8_E4M3, s, "Inf");
    assert_refused(USC_I32, s, "Inf");
    s = good;
    s.histogram[0][4 - USC_BINADE_MIN] = 5;
    s.n_histogram = 5;
    assert_refused(USC_F32, s, "binade 4");
    s = good;
    s.n_histogram = 101;
    assert_refused(USC_F32, s, "n_histogram");
    s = good;
    s.int_min = 5;
    s.int_max = 4;
    assert_refused(USC_I64, s, "int_min 5");
}

/* Any number in any field: an error or a tensor, never a crash (run under ASan too). */
static void test_random_statistics_never_crash(void **state)
{
    (void)state;
    static const usc_dtype dtypes[] = {USC_F32, USC_F16, USC_I64,        USC_BOOL,
                                       USC_U8,  USC_F64, USC_F8_E4M3FNUZ};
    int n_made = 0;
    for (int k = 0; k < 4000; k++) {
        const usc_dtype dtype = dtypes[k % 7];
        fill(dtype, 100, k / 7 % 8);
        const usc_tensor t = tensor_of(real, dtype, 10, 10);
        usc_stats s = stats_of(&t);
        int64_t *const fields[] = {&s.n_zero,        &s.n_nan,        &s.int_min,
                                   &s.int_max,       &s.n_histogram,  &s.n_subnormal,
                                   &s.int_above_min, &s.int_below_max};
        double *const numbers[] = {&s.min, &s.max, &s.mean, &s.l2, &s.fill};
        *fields[below(8)] = uniform() < 0.5 ? below(120) : INT64_MIN + below(3);
        *numbers[below(5)] = uniform() < 0.5 ? (double)NAN : 1e300 * (uniform() - 0.5);
        s.histogram[below(2)][below(USC_N_BINADES)] += (int32_t)below(3);
        s.structure = (unsigned)below(512);
        const usc_stand_in_options o = {.need = (usc_need)below(4), .limit = below(3)};
        const size_t size = 100 * usc_dtype_info_of(dtype)->size;
        n_made += usc_stand_in_make(&t, &s, &o, test_stream, made, size, NULL) == USC_OK;
    }
    assert_true(n_made > 500 && n_made < 3500);
}

static void test_statistics_come_back_from_their_text(void **state)
{
    (void)state;
    static char text[20000];
    for (int k = 0; k < 200; k++) {
        const usc_dtype dtype = k % 2 ? USC_F32 : USC_I64;
        fill(dtype, 400, k % 8);
        if (k % 10 == 1) {
            fill_form(USC_LOWER);
            usc_dtype_narrow(dtype, wide, real, 400);
        }
        const usc_tensor t = tensor_of(real, dtype, 20, 20);
        const usc_stats s = stats_of(&t);
        usc_stats back;
        (void)usc_stats_to_json(&s, text, sizeof text);
        assert_int_equal(usc_stats_from_json(text, &back, NULL), USC_OK);
        assert_memory_equal(back.histogram, s.histogram, sizeof s.histogram);
        assert_int_equal(back.structure, s.structure);
        assert_true(back.fingerprint == s.fingerprint);
        assert_int_equal(back.n_histogram, s.n_histogram);
        assert_int_equal(back.int_above_min, s.int_above_min);
        make(&t, &s, NULL, made);
        make(&t, &back, NULL, again);
        assert_memory_equal(made, again, 400 * usc_dtype_info_of(dtype)->size);
    }
}

static void test_bad_texts_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "[]",
                                      "{\"n\": \"four\"}",
                                      "{\"histogram\": {\"pos\": {\"x\": 1}}}",
                                      "{\"histogram\": {\"pos\": {\"900\": 1}}}",
                                      "{\"histogram\": {\"pos\": {\"0\": -1}}}",
                                      "{\"fingerprint\": \"xyz\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        usc_stats s;
        usc_error err = {0};
        assert_int_equal(usc_stats_from_json(bad[i], &s, &err), USC_E_CORRUPT);
        assert_non_null(strstr(err.text, "statistics"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_are_the_published_ones),
        cmocka_unit_test(test_normal_has_its_moments_and_its_bits),
        cmocka_unit_test(test_places_are_permutations),
        cmocka_unit_test(test_what_is_exact_is_exact),
        cmocka_unit_test(test_sampled_histograms_keep_counts_and_range),
        cmocka_unit_test(test_integers_keep_order_and_uniqueness),
        cmocka_unit_test(test_a_value_for_none_stays_alone),
        cmocka_unit_test(test_forms_are_found_and_kept),
        cmocka_unit_test(test_a_causal_mask_is_kept_as_it_is),
        cmocka_unit_test(test_rows_without_repetition),
        cmocka_unit_test(test_definite_matrices_have_a_root),
        cmocka_unit_test(test_indices_stay_inside),
        cmocka_unit_test(test_hard_values_are_what_their_names_say),
        cmocka_unit_test(test_hard_values_keep_to_the_domain),
        cmocka_unit_test(test_equal_tensors_stay_equal_and_others_differ),
        cmocka_unit_test(test_the_bits_of_a_stand_in),
        cmocka_unit_test(test_statistics_that_cannot_be_are_refused),
        cmocka_unit_test(test_random_statistics_never_crash),
        cmocka_unit_test(test_statistics_come_back_from_their_text),
        cmocka_unit_test(test_bad_texts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
