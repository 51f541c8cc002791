// SPDX-License-Identifier: Apache-2.0
// Random operators: honest streams of every law pass whatever the seed. Planted faults:
// test_draw_faults.c. Whole operators on torch:
// tests/py/test_random_ops.py.
#include "draw_laws.h"

#include "draw_stream.h"

#include <ulpscope/x/draw.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

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

static void fill_bernoulli(drawn *d, double *v)
{
    if (d->n_arguments == 0) number(d, "p", 0.2);
    for (int i = 0; i < N; i++)
        v[i] = stream_even() < 0.2;
}

static void fill_dropout(drawn *d, double *v)
{
    drop(d, v, 0.3, 1 / 0.7);
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
        cmocka_unit_test(strides_do_not_matter),
        cmocka_unit_test(what_is_not_known_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
