// SPDX-License-Identifier: Apache-2.0
// Random operators: honest streams of every law pass whatever the seed, planted faults
// are caught, and each formula against what is known of it. Whole operators on torch:
// tests/py/test_random_ops.py.

#include "draw_stream.h"

#include <ulpscope/x/draw.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef __SANITIZE_ADDRESS__ // which looks at bytes, the same for each seed
enum { N = 2048, N_SEEDS = 10 };
#else
enum { N = 2048, N_SEEDS = 200 };
#endif

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
        v[i] = floor(stream_even() * 0x1p24) * 0x1p-24;
}

static void fill_rand_half(drawn *d, double *v)
{
    (void)d;
    for (int i = 0; i < N; i++)
        v[i] = floor(stream_even() * 0x1p11) * 0x1p-11;
}

static void fill_uniform(drawn *d, double *v)
{
    if (d->n_arguments == 0) {
        number(d, "from", -2);
        number(d, "to", 7);
    }
    for (int i = 0; i < N; i++)
        v[i] = -2 + 9 * stream_even();
}

/* In bfloat16 the bounds are -1 and 1. */
static void fill_to_the_bounds(drawn *d, double *v)
{
    if (d->n_arguments == 0) {
        number(d, "from", -0.99999);
        number(d, "to", 0.99999);
    }
    for (int i = 0; i < N; i++)
        v[i] = -0.99999 + 2 * 0.99999 * stream_even();
}

static void fill_around_infinity(drawn *d, double *v)
{
    if (d->n_arguments == 0) {
        number(d, "mean", (double)INFINITY);
        number(d, "std", 1.1);
    }
    for (int i = 0; i < N; i++)
        v[i] = (double)INFINITY;
}

/* Some of the draws; the others are normal ones. */
static void fill_without_spread(drawn *d, double *v)
{
    static usc_tensor spreads;
    const int64_t n = N;
    for (int i = 0; i < N; i++)
        d->p[i] = i % 3 == 0 ? (double)INFINITY : 1;
    assert_int_equal(usc_tensor_make(&spreads, d->p, USC_F64, 1, &n, NULL), USC_OK);
    d->arguments[0] = (usc_draw_argument){"mean", 0, NULL};
    d->arguments[1] = (usc_draw_argument){"std", 0, &spreads};
    d->n_arguments = 2;
    for (int i = 0; i < N; i++)
        v[i] = stream_normal() * d->p[i];
}

static void fill_normal(drawn *d, double *v)
{
    if (d->n_arguments == 0) {
        number(d, "mean", 3);
        number(d, "std", 0.5);
    }
    for (int i = 0; i < N; i++)
        v[i] = 3 + 0.5 * stream_normal();
}

static void fill_exponential(drawn *d, double *v)
{
    if (d->n_arguments == 0) number(d, "lambd", 100);
    for (int i = 0; i < N; i++)
        v[i] = -log1p(-stream_even()) / 100;
}

static void fill_cauchy(drawn *d, double *v)
{
    if (d->n_arguments == 0) {
        number(d, "median", 1);
        number(d, "sigma", 2);
    }
    for (int i = 0; i < N; i++)
        v[i] = 1 + 2 * tan(3.14159265358979 * (stream_even() - 0.5));
}

static void fill_log_normal(drawn *d, double *v)
{
    if (d->n_arguments == 0) {
        number(d, "mean", 0);
        number(d, "std", 0.5);
    }
    for (int i = 0; i < N; i++)
        v[i] = exp(0.5 * stream_normal());
}

static void fill_geometric(drawn *d, double *v)
{
    if (d->n_arguments == 0) number(d, "p", 0.3);
    for (int i = 0; i < N; i++)
        v[i] = fmax(1, ceil(log1p(-stream_even()) / log1p(-0.3)));
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
        v[i] = d->p[i] > 0 ? stream_poisson(d->p[i]) : 0;
}

static void fill_randint(drawn *d, double *v)
{
    if (d->n_arguments == 0) {
        number(d, "low", -5);
        number(d, "high", 9);
    }
    for (int i = 0; i < N; i++)
        v[i] = -5 + floor(14 * stream_even());
}

static void fill_bernoulli(drawn *d, double *v)
{
    if (d->n_arguments == 0) number(d, "p", 0.2);
    for (int i = 0; i < N; i++)
        v[i] = stream_even() < 0.2;
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
        v[i] = stream_even() < d->p[i];
}

static void fill_permutation(drawn *d, double *v)
{
    (void)d;
    for (int i = 0; i < N; i++) {
        const int j = (int)(stream_even() * (i + 1));
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
        v[i] = stream_even() < p ? 0 : d->x[i] * scale;
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
        v[i] = d->x[i] * (d->x[i] < 0 ? 0.1 + 0.3 * stream_even() : 1);
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
    {"uniform_", fill_to_the_bounds, USC_BF16},
    {"normal_", fill_normal, USC_F32},
    {"normal", fill_around_infinity, USC_F32},
    {"normal", fill_without_spread, USC_F32},
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
            stream_seed(s + 1000 * k);
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

static void below_the_bounds(drawn *d)
{
    fill_to_the_bounds(d, d->values);
    d->values[77] = -1 - 0x1p-7;
}

static void finite_around_infinity(drawn *d)
{
    fill_around_infinity(d, d->values);
    d->values[77] = 3;
}

static void finite_without_spread(drawn *d)
{
    fill_without_spread(d, d->values);
    d->values[78] = 3;
}

static void narrow_beside_no_spread(drawn *d)
{
    fill_without_spread(d, d->values);
    for (int i = 0; i < N; i++)
        if (i % 3 != 0) d->values[i] *= 0.8;
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
        d->values[i] = d->p[i] > 0 && d->p[i] < 1 ? stream_even() < 0.5 : d->p[i];
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
    {"uniform_", "-1.00781 at element 77, which", below_the_bounds, USC_BF16,
     USC_VERDICT_WRONG},
    {"normal", "3 at element 77, which", finite_around_infinity, USC_F32,
     USC_VERDICT_WRONG},
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
    {"normal", "3 at element 78, which", finite_without_spread, USC_F32,
     USC_VERDICT_WRONG},
    {"normal", "spread too narrow", narrow_beside_no_spread, USC_F32, USC_VERDICT_WRONG},
};

static void planted_faults_are_caught(void **state)
{
    (void)state;
    static drawn d;
    for (size_t k = 0; k < sizeof faults / sizeof faults[0]; k++) {
        d = (drawn){.dtype = faults[k].dtype};
        stream_seed(k + 1);
        faults[k].plant(&d);
        const usc_verdict verdict = judged(&d, faults[k].op);
        if (verdict != faults[k].verdict || strstr(d.reason, faults[k].says) == NULL)
            fail_msg("fault %d of %s: %s, %s", (int)k, faults[k].op,
                     usc_verdict_text(verdict), d.reason);
    }
}

/* ---- form ---- */

static void strides_do_not_matter(void **state)
{
    (void)state;
    static float raw[2 * N];
    static double dense[N];
    stream_seed(9);
    for (int i = 0; i < 2 * N; i++)
        raw[i] = (float)(floor(stream_even() * 0x1p24) * 0x1p-24);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(honest_streams_pass_whatever_the_seed),
        cmocka_unit_test(planted_faults_are_caught),
        cmocka_unit_test(strides_do_not_matter),
        cmocka_unit_test(what_is_not_known_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
