// SPDX-License-Identifier: Apache-2.0
// Random operators: honest streams of every law pass whatever the seed, planted faults
// are caught, and each formula against what is known of it. Whole operators on torch:
// tests/py/test_random_ops.py.

#include <ulpscope/draw.h>

#include "draw/draw_special.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 2048, N_SEEDS = 200, N_ROWS = 16, N_CATEGORIES = 50 };

/* ---- a generator of its own: xorshift64* (Vigna 2016) ---- */

static uint64_t state_of_stream;

static void seed(uint64_t s)
{
    state_of_stream = s * UINT64_C(0x9e3779b97f4a7c15) + 0x123456789;
}

static double even(void)
{
    uint64_t x = state_of_stream;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    state_of_stream = x;
    return (double)((x * UINT64_C(0x2545f4914f6cdd1d)) >> 11) * 0x1p-53;
}

static double normal(void)
{
    const double r = sqrt(-2 * log(1 - even()));
    return r * cos(6.283185307179586 * even());
}

static double poisson(double rate)
{
    double left = exp(-rate), p = even();
    int k = 0;
    for (double term = left; p > left && k < 1000; left += term)
        term *= rate / ++k;
    return k;
}

/* ---- one call ---- */

typedef struct drawn {
    double values[N], second[N], x[N], p[N];
    usc_dtype dtype;
    usc_draw_argument arguments[4];
    int n_arguments;
    bool twice;
    char reason[256]; /* of what decided */
} drawn;

static usc_tensor narrowed(usc_dtype dtype, const double *values, void *raw)
{
    const int64_t n = N;
    usc_tensor t;
    usc_dtype_narrow(dtype, values, raw, N);
    assert_int_equal(usc_tensor_make(&t, raw, dtype, 1, &n, NULL), USC_OK);
    return t;
}

static usc_verdict judged(drawn *d, const char *op)
{
    static double raw[2][N];
    const usc_tensor first = narrowed(d->dtype, d->values, raw[0]);
    const usc_tensor again = narrowed(d->dtype, d->second, raw[1]);
    const usc_draw_output output = {"out[0]", &first, d->twice ? &again : NULL};
    const usc_draw_call call = {.op = op,
                                .arguments = d->arguments,
                                .n_arguments = d->n_arguments,
                                .outputs = &output,
                                .n_outputs = 1};
    usc_findings *f;
    usc_error err = {0};
    assert_int_equal(usc_findings_open(NULL, &f, NULL), USC_OK);
    if (usc_draw_judge(&call, f, &err) != USC_OK) fail_msg("%s: %s", op, err.text);
    const usc_finding *worst = usc_findings_worst(f);
    const usc_verdict verdict = worst->verdict;
    (void)snprintf(d->reason, sizeof d->reason, "%s", worst->reason);
    usc_findings_close(f);
    return verdict;
}

static void number(drawn *d, const char *name, double value)
{
    d->arguments[d->n_arguments++] = (usc_draw_argument){name, value, NULL};
}

/* ---- honest streams ---- */

static void fill_rand(drawn *d, double *v)
{
    (void)d;
    for (int i = 0; i < N; i++)
        v[i] = floor(even() * 0x1p24) * 0x1p-24;
}

static void fill_rand_half(drawn *d, double *v)
{
    (void)d;
    for (int i = 0; i < N; i++)
        v[i] = floor(even() * 0x1p11) * 0x1p-11;
}

static void fill_uniform(drawn *d, double *v)
{
    if (d->n_arguments == 0) {
        number(d, "from", -2);
        number(d, "to", 7);
    }
    for (int i = 0; i < N; i++)
        v[i] = -2 + 9 * even();
}

static void fill_normal(drawn *d, double *v)
{
    if (d->n_arguments == 0) {
        number(d, "mean", 3);
        number(d, "std", 0.5);
    }
    for (int i = 0; i < N; i++)
        v[i] = 3 + 0.5 * normal();
}

static void fill_exponential(drawn *d, double *v)
{
    if (d->n_arguments == 0) number(d, "lambd", 100);
    for (int i = 0; i < N; i++)
        v[i] = -log1p(-even()) / 100;
}

static void fill_cauchy(drawn *d, double *v)
{
    if (d->n_arguments == 0) {
        number(d, "median", 1);
        number(d, "sigma", 2);
    }
    for (int i = 0; i < N; i++)
        v[i] = 1 + 2 * tan(3.14159265358979 * (even() - 0.5));
}

static void fill_log_normal(drawn *d, double *v)
{
    if (d->n_arguments == 0) {
        number(d, "mean", 0);
        number(d, "std", 0.5);
    }
    for (int i = 0; i < N; i++)
        v[i] = exp(0.5 * normal());
}

static void fill_geometric(drawn *d, double *v)
{
    if (d->n_arguments == 0) number(d, "p", 0.3);
    for (int i = 0; i < N; i++)
        v[i] = fmax(1, ceil(log1p(-even()) / log1p(-0.3)));
}

static void fill_poisson(drawn *d, double *v)
{
    static usc_tensor rates;
    const int64_t n = N;
    for (int i = 0; i < N; i++)
        d->p[i] = 0.01 * (i % 1000);
    assert_int_equal(usc_tensor_make(&rates, d->p, USC_F64, 1, &n, NULL), USC_OK);
    d->arguments[0] = (usc_draw_argument){"self", 0, &rates};
    d->n_arguments = 1;
    for (int i = 0; i < N; i++)
        v[i] = d->p[i] > 0 ? poisson(d->p[i]) : 0;
}

static void fill_randint(drawn *d, double *v)
{
    if (d->n_arguments == 0) {
        number(d, "low", -5);
        number(d, "high", 9);
    }
    for (int i = 0; i < N; i++)
        v[i] = -5 + floor(14 * even());
}

static void fill_bernoulli(drawn *d, double *v)
{
    if (d->n_arguments == 0) number(d, "p", 0.2);
    for (int i = 0; i < N; i++)
        v[i] = even() < 0.2;
}

static void fill_by_chances(drawn *d, double *v)
{
    static usc_tensor chances;
    const int64_t n = N;
    for (int i = 0; i < N; i++)
        d->p[i] = (double)(i % 11) / 10;
    assert_int_equal(usc_tensor_make(&chances, d->p, USC_F64, 1, &n, NULL), USC_OK);
    d->arguments[0] = (usc_draw_argument){"self", 0, &chances};
    d->n_arguments = 1;
    for (int i = 0; i < N; i++)
        v[i] = even() < d->p[i];
}

static void fill_permutation(drawn *d, double *v)
{
    (void)d;
    for (int i = 0; i < N; i++) {
        const int j = (int)(even() * (i + 1));
        v[i] = v[j];
        v[j] = i;
    }
}

/* The input of dropouts and of rrelu. */
static void give_input(drawn *d, const char *p, double chance)
{
    static usc_tensor x;
    static double raw[N];
    for (int i = 0; i < N; i++)
        d->x[i] = i % 64 == 0 ? 0 : sin(i) * (1 + i % 7);
    x = narrowed(d->dtype, d->x, raw);
    usc_dtype_widen(d->dtype, raw, d->x, N);
    d->n_arguments = 0;
    number(d, p, chance);
    d->arguments[d->n_arguments++] = (usc_draw_argument){"input", 0, &x};
}

static void drop(drawn *d, double *v, double p, double scale)
{
    give_input(d, "p", 0.3);
    for (int i = 0; i < N; i++)
        v[i] = even() < p ? 0 : d->x[i] * scale;
}

static void fill_dropout(drawn *d, double *v)
{
    drop(d, v, 0.3, 1 / 0.7);
}

static void fill_rrelu(drawn *d, double *v)
{
    give_input(d, "lower", 0.1);
    number(d, "upper", 0.4);
    for (int i = 0; i < N; i++)
        v[i] = d->x[i] * (d->x[i] < 0 ? 0.1 + 0.3 * even() : 1);
}

typedef void fill(drawn *d, double *v);

static const struct honest {
    const char *op;
    fill *fill;
    usc_dtype dtype;
} honest[] = {
    {"rand", fill_rand, USC_F32},
    {"rand_like", fill_rand_half, USC_F16},
    {"uniform_", fill_uniform, USC_F64},
    {"uniform_", fill_uniform, USC_BF16},
    {"normal_", fill_normal, USC_F32},
    {"normal", fill_normal, USC_F8_E5M2},
    {"exponential_", fill_exponential, USC_F32},
    {"exponential_", fill_exponential, USC_F16},
    {"cauchy_", fill_cauchy, USC_F32},
    {"log_normal_", fill_log_normal, USC_BF16},
    {"geometric_", fill_geometric, USC_I64},
    {"poisson", fill_poisson, USC_F32},
    {"randint", fill_randint, USC_I8},
    {"bernoulli_", fill_bernoulli, USC_BOOL},
    {"bernoulli", fill_by_chances, USC_F32},
    {"randperm", fill_permutation, USC_I32},
    {"dropout", fill_dropout, USC_F32},
    {"dropout", fill_dropout, USC_BF16},
    {"rrelu", fill_rrelu, USC_F16},
};

static void honest_streams_pass_whatever_the_seed(void **state)
{
    (void)state;
    static drawn d;
    for (size_t k = 0; k < sizeof honest / sizeof honest[0]; k++)
        for (uint64_t s = 1; s <= N_SEEDS; s++) {
            d = (drawn){.dtype = honest[k].dtype, .twice = true};
            seed(s + 1000 * k);
            honest[k].fill(&d, d.values);
            honest[k].fill(&d, d.second);
            if (judged(&d, honest[k].op) != USC_VERDICT_PASS)
                fail_msg("%s, seed %d: %s", honest[k].op, (int)s, d.reason);
        }
}

/* ---- planted faults ---- */

static void wrong_rate(drawn *d)
{
    drop(d, d->values, 0.2, 1 / 0.7);
}

static void unscaled_keep(drawn *d)
{
    drop(d, d->values, 0.3, 1);
}

static void one_mask_for_all_rows(drawn *d)
{
    give_input(d, "p", 0.3);
    for (int i = 0; i < N; i++)
        d->values[i] = 11 * i % 32 < 10 ? 0 : d->x[i] / 0.7;
}

static void period(drawn *d)
{
    fill_rand(d, d->values);
    for (int i = 1000; i < N; i++)
        d->values[i] = d->values[i - 1000];
}

static void block_again(drawn *d)
{
    fill_normal(d, d->values);
    memcpy(d->values + N / 2, d->values, N / 4 * sizeof(double));
}

static void tile_reused(drawn *d)
{ /* 8 x 8 tiles of 32 columns, the second of each row of tiles that of the first */
    fill_rand(d, d->values);
    for (int i = 0; i < N; i++)
        if (i % 32 / 8 == 1) d->values[i] = d->values[i - 8];
}

static void rows_alike(drawn *d)
{ /* each row leans on the one before */
    fill_normal(d, d->values);
    for (int i = 32; i < N; i++)
        d->values[i] =
            3 + 0.5 * (d->values[i - 32] - 3) + sqrt(0.75) * (d->values[i] - 3);
}

static void too_wide(drawn *d)
{
    fill_normal(d, d->values);
    for (int i = 0; i < N; i++)
        d->values[i] = 3 + 1.2 * (d->values[i] - 3);
}

static void value_missing(drawn *d)
{
    fill_randint(d, d->values);
    for (int i = 0; i < N; i++)
        if (d->values[i] == 2) d->values[i] = 3;
}

static void high_drawn(drawn *d)
{
    fill_randint(d, d->values);
    d->values[77] = 9;
}

static void tail_lost(drawn *d)
{
    fill_rand(d, d->values);
    for (int i = N - 4; i < N; i++)
        d->values[i] = 0;
}

static void not_a_number(drawn *d)
{
    fill_normal(d, d->values);
    d->values[5] = (double)NAN;
}

static void no_permutation(drawn *d)
{
    fill_permutation(d, d->values);
    d->values[3] = d->values[4];
}

static void two_sorted_runs(drawn *d)
{
    int k = 0;
    for (int i = 0; i < N; i += 2)
        d->values[k++] = i;
    for (int i = 1; i < N; i += 2)
        d->values[k++] = i;
}

static void chances_ignored(drawn *d)
{
    fill_by_chances(d, d->values);
    for (int i = 0; i < N; i++)
        d->values[i] = d->p[i] > 0 && d->p[i] < 1 ? even() < 0.5 : d->p[i];
}

static void constant_seed(drawn *d)
{
    fill_rand(d, d->values);
    memcpy(d->second, d->values, sizeof d->second);
    d->twice = true;
}

static void fixed_slope(drawn *d)
{
    fill_rrelu(d, d->values);
    for (int i = 0; i < N; i++)
        if (d->x[i] < 0) d->values[i] = 0.25 * d->x[i];
}

static const struct fault {
    const char *op, *says;
    void (*plant)(drawn *d);
    usc_dtype dtype;
    usc_verdict verdict;
} faults[] = {
    {"dropout", "ones or kept among", wrong_rate, USC_F32, USC_VERDICT_WRONG},
    {"dropout", "off", unscaled_keep, USC_F32, USC_VERDICT_WRONG},
    {"dropout", "places before (", one_mask_for_all_rows, USC_F32, USC_VERDICT_WRONG},
    {"rand", "1,000 places before", period, USC_F32, USC_VERDICT_WRONG},
    {"normal", "1,024 places before", block_again, USC_F32, USC_VERDICT_WRONG},
    {"rand", "8 places before", tile_reused, USC_F32, USC_VERDICT_WRONG},
    {"normal", "32 places before", rows_alike, USC_F32, USC_VERDICT_WRONG},
    {"normal", "spread too wide", too_wide, USC_F32, USC_VERDICT_WRONG},
    {"randint", "distributed otherwise", value_missing, USC_I32, USC_VERDICT_WRONG},
    {"randint", "9 at element 77, which it never draws", high_drawn, USC_I32,
     USC_VERDICT_WRONG},
    {"rand", "the last 4 elements are 0", tail_lost, USC_F32, USC_VERDICT_WRONG},
    {"normal", "nan at element 5, which", not_a_number, USC_F32, USC_VERDICT_NONFINITE},
    {"randperm", "no permutation of 0 to 2,047", no_permutation, USC_I64,
     USC_VERDICT_WRONG},
    {"randperm", "1 of 2,047 steps fall", two_sorted_runs, USC_I64, USC_VERDICT_WRONG},
    {"bernoulli", "do not follow their probabilities", chances_ignored, USC_F32,
     USC_VERDICT_WRONG},
    {"rand", "two calls give related", constant_seed, USC_F32, USC_VERDICT_WRONG},
    {"rrelu", "spread too narrow", fixed_slope, USC_F32, USC_VERDICT_WRONG},
};

static void planted_faults_are_caught(void **state)
{
    (void)state;
    static drawn d;
    for (size_t k = 0; k < sizeof faults / sizeof faults[0]; k++) {
        d = (drawn){.dtype = faults[k].dtype};
        seed(k + 1);
        faults[k].plant(&d);
        const usc_verdict verdict = judged(&d, faults[k].op);
        if (verdict != faults[k].verdict || strstr(d.reason, faults[k].says) == NULL)
            fail_msg("fault %d of %s: %s, %s", (int)k, faults[k].op,
                     usc_verdict_text(verdict), d.reason);
    }
}

/* ---- categories ---- */

static const char *sampled(bool back, double (*choose)(int row, int column))
{
    static char reason[256];
    static double weights[N_ROWS][N_CATEGORIES];
    static int64_t chosen[N_ROWS][20];
    const int64_t of_weights[] = {N_ROWS, N_CATEGORIES}, of_chosen[] = {N_ROWS, 20};
    usc_tensor w, c;
    usc_findings *f;
    for (int i = 0; i < N_ROWS; i++) {
        for (int j = 0; j < N_CATEGORIES; j++)
            weights[i][j] = j == 0 ? 0 : j;
        for (int j = 0; j < 20; j++)
            chosen[i][j] = (int64_t)choose(i, j);
    }
    assert_int_equal(usc_tensor_make(&w, weights, USC_F64, 2, of_weights, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&c, chosen, USC_I64, 2, of_chosen, NULL), USC_OK);
    const usc_draw_argument with[] = {{"self", 0, &w}, {"replacement", back, NULL}};
    const usc_draw_output output = {"out[0]", &c, NULL};
    const usc_draw_call call = {.op = "multinomial",
                                .arguments = with,
                                .n_arguments = 2,
                                .outputs = &output,
                                .n_outputs = 1};
    assert_int_equal(usc_findings_open(NULL, &f, NULL), USC_OK);
    assert_int_equal(usc_draw_judge(&call, f, NULL), USC_OK);
    const usc_finding *worst = usc_findings_worst(f);
    (void)snprintf(reason, sizeof reason, "%s",
                   worst->verdict == USC_VERDICT_PASS ? "" : worst->reason);
    usc_findings_close(f);
    return reason;
}

static bool taken[N_CATEGORIES];

static double by_weight(int row, int column)
{
    (void)row;
    (void)column;
    double left = even() * (N_CATEGORIES * (N_CATEGORIES - 1) / 2);
    int j = 1;
    while (j < N_CATEGORIES - 1 && left >= j)
        left -= j++;
    return j;
}

static double by_weight_once(int row, int column)
{
    if (column == 0) memset(taken, 0, sizeof taken);
    int j;
    do
        j = (int)by_weight(row, column);
    while (taken[j]);
    taken[j] = true;
    return j;
}

static double any_category(int row, int column)
{
    (void)row;
    (void)column;
    return 1 + floor(even() * (N_CATEGORIES - 1));
}

static double the_heaviest(int row, int column)
{
    (void)row;
    return N_CATEGORIES - 1 - column;
}

static double first_category(int row, int column)
{
    (void)row;
    (void)column;
    return 0;
}

static double beyond_all(int row, int column)
{
    (void)row;
    (void)column;
    return N_CATEGORIES;
}

static void categories_come_by_their_weights(void **state)
{
    (void)state;
    for (uint64_t s = 1; s <= N_SEEDS; s++) {
        seed(s);
        assert_string_equal(sampled(true, by_weight), "");
        assert_string_equal(sampled(false, by_weight_once), "");
    }
    assert_string_not_equal(sampled(true, any_category), "");
    assert_string_not_equal(sampled(false, the_heaviest), "");
    assert_string_equal(sampled(true, first_category), "a category of weight zero");
    assert_string_equal(sampled(true, beyond_all), "an index outside of the weights");
    assert_string_equal(sampled(false, by_weight),
                        "a category twice without replacement");
}

/* ---- masks of which a part shows ---- */

static void masks_are_judged_as_far_as_they_show(void **state)
{
    (void)state;
    static uint8_t kept[N], shown[N];
    const int64_t n = N;
    usc_tensor k, s;
    assert_int_equal(usc_tensor_make(&k, kept, USC_U8, 1, &n, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&s, shown, USC_BOOL, 1, &n, NULL), USC_OK);
    usc_draw_mask mask = {.path = "out[0]", .kept = &k, .shown = &s, .chance = 0.9};
    seed(3);
    for (int i = 0; i < N; i++) {
        shown[i] = i % 3 != 0;
        kept[i] = shown[i] != 0 && even() < 0.9; /* all dropped where nothing shows */
    }
    usc_findings *f;
    assert_int_equal(usc_findings_open(NULL, &f, NULL), USC_OK);
    assert_int_equal(usc_draw_judge_mask(&mask, f, NULL), USC_OK);
    mask.shown = NULL;
    assert_int_equal(usc_draw_judge_mask(&mask, f, NULL), USC_OK);
    mask.shown = &s;
    mask.honest_kept = 9500;
    mask.honest_n = 10000;
    assert_int_equal(usc_draw_judge_mask(&mask, f, NULL), USC_OK);
    assert_string_equal(usc_findings_at(f, 0)->reason,
                        "drawn by its law, as far as 1,365 draws tell");
    assert_int_equal(usc_findings_at(f, 0)->verdict, USC_VERDICT_PASS);
    assert_int_equal(usc_findings_at(f, 1)->verdict, USC_VERDICT_WRONG);
    assert_non_null(strstr(usc_findings_at(f, 2)->reason, "honest outputs keep 95.00%"));
    usc_findings_close(f);
}

/* ---- form ---- */

static void strides_do_not_matter(void **state)
{
    (void)state;
    static float raw[2 * N];
    static double dense[N];
    seed(9);
    for (int i = 0; i < 2 * N; i++)
        raw[i] = (float)(floor(even() * 0x1p24) * 0x1p-24);
    for (int i = 0; i < N; i++)
        dense[i] = (double)raw[2 * (N - 1 - i)];
    usc_tensor back = {.data = raw + 2 * (N - 1),
                       .dtype = USC_F32,
                       .ndim = 1,
                       .sizes = {N},
                       .strides = {-2}};
    static float plain[N];
    const usc_tensor same = narrowed(USC_F32, dense, plain);
    plain[N - 1] = raw[0] = 1; /* told alike */
    usc_findings *f;
    assert_int_equal(usc_findings_open(NULL, &f, NULL), USC_OK);
    for (int i = 0; i < 2; i++) {
        const usc_draw_output output = {"out[0]", i == 0 ? &same : &back, NULL};
        const usc_draw_call call = {.op = "rand", .outputs = &output, .n_outputs = 1};
        assert_int_equal(usc_draw_judge(&call, f, NULL), USC_OK);
    }
    assert_string_equal(usc_findings_at(f, 0)->reason,
                        "1 at element 2,047, which it never draws");
    assert_string_equal(usc_findings_at(f, 1)->reason, usc_findings_at(f, 0)->reason);
    usc_findings_close(f);
}

static void what_is_not_known_is_refused(void **state)
{
    (void)state;
    static float one;
    usc_tensor t;
    usc_findings *f;
    usc_error err;
    assert_int_equal(usc_tensor_make(&t, &one, USC_F32, 0, NULL, NULL), USC_OK);
    assert_int_equal(usc_findings_open(NULL, &f, NULL), USC_OK);
    const usc_draw_output output = {"out[0]", &t, NULL};
    usc_draw_call call = {.op = "relu", .outputs = &output, .n_outputs = 1};
    assert_int_equal(usc_draw_judge(&call, f, &err), USC_E_ARG);
    call.op = "geometric_";
    assert_int_equal(usc_draw_judge(&call, f, &err), USC_E_ARG);
    assert_string_equal(err.text, "geometric_ without its argument p");
    call.op = "dropout";
    assert_int_equal(usc_draw_judge(&call, f, &err), USC_E_ARG);
    assert_int_equal(usc_findings_count(f), 0);
    assert_true(usc_draw_known("bernoulli_") && usc_draw_known("_fused_dropout"));
    assert_false(usc_draw_known("relu") || usc_draw_known("") || usc_draw_known("_"));
    usc_findings_close(f);
}

/* ---- formulas ---- */

static void near(double got, double want, double within)
{
    if (!(fabs(got - want) <= within * fabs(want)))
        fail_msg("%.17g for %.17g", got, want);
}

static void functions_have_their_known_values(void **state)
{
    (void)state;
    near(usc_normal_below(1.959963984540054), 0.975, 1e-14);
    near(usc_normal_bound(0.05), 1.959963984540054, 1e-14);
    for (double x = 0.01; x < 60; x *= 1.7) {
        near(usc_gamma_above(1, x), exp(-x), 1e-12);
        near(usc_gamma_above(0.5, x), erfc(sqrt(x)), 1e-12);
        near(usc_gamma_above(3, x), exp(-x) * (1 + x + x * x / 2), 1e-12);
    }
    /* on either side of where the formula changes: one more is a Poisson term more */
    for (double z = -6; z <= 6; z += 0.5) {
        const double x = 1e4 + 100 * z;
        const double term = exp(1e4 * log(x) - x - usc_log_gamma(1e4 + 1));
        assert_true(fabs(usc_gamma_above(1e4 + 1, x) - usc_gamma_above(1e4, x) - term) <
                    1e-8);
    }
}

static void correlations_are_those_of_the_plain_sum(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 70; n += n < 9 ? 1 : 7) {
        double x[70], room[512];
        assert_true(usc_lags_room(n) <= 512);
        seed((uint64_t)n);
        for (int i = 0; i < n; i++)
            x[i] = even() - 0.5;
        usc_lags(x, n, room, room);
        double first = 0;
        for (int i = 0; i < n; i++)
            first += x[i] * x[i];
        for (int64_t k = 0; k <= n / 2; k++) {
            double sum = 0;
            for (int64_t i = 0; i + k < n; i++)
                sum += x[i] * x[i + k];
            assert_true(fabs(room[k] / room[0] - sum / first) < 1e-13);
        }
    }
}

static void rare_hits_have_their_exact_tail(void **state)
{
    (void)state;
    assert_false(usc_draw_count_odd(24, 1000, 0.01));
    assert_true(usc_draw_count_odd(40, 1000, 0.01) && usc_draw_count_odd(0, 4000, 0.01));
    assert_false(usc_draw_count_odd(0, 0, 0.5) || usc_draw_count_odd(3, 3, 1));
    assert_true(usc_draw_count_odd(2, 3, 1) && usc_draw_count_odd(1, 3, 0));
    /* 0.9^n falls below 1e-7 between 152 and 154 */
    assert_false(usc_draw_count_odd(0, 150, 0.1));
    assert_true(usc_draw_count_odd(0, 155, 0.1));
    assert_true(usc_draw_count_odd(500000 + 3000, 1000000, 0.5));
    assert_false(usc_draw_count_odd(500000 + 2000, 1000000, 0.5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(honest_streams_pass_whatever_the_seed),
        cmocka_unit_test(planted_faults_are_caught),
        cmocka_unit_test(categories_come_by_their_weights),
        cmocka_unit_test(masks_are_judged_as_far_as_they_show),
        cmocka_unit_test(strides_do_not_matter),
        cmocka_unit_test(what_is_not_known_is_refused),
        cmocka_unit_test(functions_have_their_known_values),
        cmocka_unit_test(correlations_are_those_of_the_plain_sum),
        cmocka_unit_test(rare_hits_have_their_exact_tail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
