// SPDX-License-Identifier: Apache-2.0
// How often honest draws are accused: never at the bounds that stand, and each family of
// tests no more often than it says where its bounds are drawn in. Over laws, shapes and
// generators. Faults: test_draw.c, test_draw_place.c.
#include "draw_generators.h"

#include <ulpscope/x/draw.h>

#include "draw/draws.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    MOST = 1 << 15,
    N_CATEGORIES = 16,
    N_EASY = 2072, /* draws at bounds drawn in */
    N_CALLS = 10360,
};

#define EASY 0.01 /* false alarms of a family there */

/* ---- laws ---- */

typedef struct drawn {
    generator g;
    int64_t n;
    usc_tensor t, weights;
    usc_draw_argument with[3];
    int n_with;
    double values[MOST];
    unsigned char raw[8 * MOST];
    double own[MOST];
} drawn;

static drawn now;

static void number(const char *name, double value)
{
    now.with[now.n_with++] = (usc_draw_argument){name, value, NULL};
}

static void even(double p, double q)
{
    (void)p;
    (void)q;
    for (int64_t i = 0; i < now.n; i++)
        now.values[i] = draw_even(&now.g);
}

static void even_of_bits(double bits, double q)
{
    (void)q;
    for (int64_t i = 0; i < now.n; i++)
        now.values[i] = floor(ldexp(draw_even(&now.g), (int)bits)) * ldexp(1, -(int)bits);
}

static void even_between(double from, double to)
{
    number("from", from);
    number("to", to);
    for (int64_t i = 0; i < now.n; i++)
        now.values[i] = from + (to - from) * draw_even(&now.g);
}

static void normal(double mean, double std)
{
    number("mean", mean);
    number("std", std);
    for (int64_t i = 0; i < now.n; i++)
        now.values[i] = mean + std * draw_normal(&now.g);
}

static void exponential(double rate, double q)
{
    (void)q;
    number("lambd", rate);
    for (int64_t i = 0; i < now.n; i++)
        now.values[i] = -log1p(-draw_even(&now.g)) / rate;
}

static void cauchy(double p, double q)
{
    (void)p;
    (void)q;
    for (int64_t i = 0; i < now.n; i++)
        now.values[i] = tan(3.14159265358979 * (draw_even(&now.g) - 0.5));
}

static void ones(double p, double q)
{
    (void)q;
    number("p", p);
    for (int64_t i = 0; i < now.n; i++)
        now.values[i] = draw_even(&now.g) < p;
}

static void ones_of_own(double p, double q)
{
    static usc_tensor own;
    for (int64_t i = 0; i < now.n; i++) {
        now.own[i] = p + (q - p) * (double)(i % 37) / 36;
        now.values[i] = draw_even(&now.g) < now.own[i];
    }
    assert_int_equal(
        usc_tensor_make(&own, now.own, USC_F64, now.t.ndim, now.t.sizes, NULL), USC_OK);
    now.with[now.n_with++] = (usc_draw_argument){"self", 0, &own};
}

static void geometric(double p, double q)
{
    (void)q;
    number("p", p);
    for (int64_t i = 0; i < now.n; i++)
        now.values[i] = fmax(1, ceil(log1p(-draw_even(&now.g)) / log1p(-p)));
}

static void poisson(double rate, double q)
{
    (void)q;
    number("self", rate);
    for (int64_t i = 0; i < now.n; i++) {
        double left = exp(-rate), u = draw_even(&now.g), k = 0;
        for (double term = left; u > left && k < 1000; left += term)
            term *= rate / ++k;
        now.values[i] = k;
    }
}

static void whole(double low, double high)
{
    number("low", low);
    number("high", high);
    for (int64_t i = 0; i < now.n; i++)
        now.values[i] = low + (double)(draw_long(&now.g) % (uint64_t)(high - low));
}

/* Whole numbers that no double holds: written as they are. */
static void long_whole(double low, double high)
{
    number("low", low);
    number("high", high);
    for (int64_t i = 0; i < now.n; i++) {
        const uint64_t v = draw_long(&now.g) % (uint64_t)(high - low);
        memcpy(now.raw + 8 * i, &v, 8);
    }
}

static void permutation(double p, double q)
{
    (void)p;
    (void)q;
    for (int64_t i = 0; i < now.n; i++) {
        const int64_t j = (int64_t)(draw_long(&now.g) % (uint64_t)(i + 1));
        now.values[i] = now.values[j];
        now.values[j] = (double)i;
    }
}

/* Rows of draws with their own weights, put back. */
static void categories(double slope, double q)
{
    (void)q;
    const int64_t columns = now.t.sizes[now.t.ndim - 1], rows = now.n / columns;
    const int64_t sizes[] = {rows, N_CATEGORIES};
    for (int64_t r = 0; r < rows && (r + 1) * N_CATEGORIES <= MOST; r++)
        for (int k = 0; k < N_CATEGORIES; k++)
            now.own[r * N_CATEGORIES + k] = 1 + slope * k;
    assert_int_equal(usc_tensor_make(&now.weights, now.own, USC_F64, 2, sizes, NULL),
                     USC_OK);
    now.with[now.n_with++] = (usc_draw_argument){"self", 0, &now.weights};
    number("replacement", 1);
    const double all = N_CATEGORIES + slope * N_CATEGORIES * (N_CATEGORIES - 1) / 2;
    for (int64_t i = 0; i < now.n; i++) {
        double left = draw_even(&now.g) * all;
        int k = 0;
        for (; k < N_CATEGORIES - 1 && left >= 1 + slope * k; k++)
            left -= 1 + slope * k;
        now.values[i] = k;
    }
}

static const struct law {
    const char *op;
    const usc_law *law; /* NULL: none for each element alone */
    void (*fill)(double p, double q);
    double p, q;
    usc_dtype dtype;
} laws[] = {
    {"rand", &usc_law_even, even, 0, 0, USC_F32},
    {"rand", &usc_law_even, even_of_bits, 8, 0, USC_BF16},
    {"rand", &usc_law_even, even_of_bits, 11, 0, USC_F16},
    {"rand", &usc_law_even, even_of_bits, 23, 0, USC_F32},
    {"rand", &usc_law_even, even, 0, 0, USC_F64},
    {"uniform_", &usc_law_even_closed, even_between, -2, 7, USC_F32},
    {"uniform_", &usc_law_even_closed, even_between, -1, 1, USC_BF16},
    {"randn", &usc_law_normal, normal, 0, 1, USC_F32},
    {"normal_", &usc_law_normal, normal, 3, 0.5, USC_F16},
    {"normal_", &usc_law_normal, normal, 1, 10, USC_BF16},
    {"exponential_", &usc_law_exponential, exponential, 2, 0, USC_F32},
    {"exponential_", &usc_law_exponential, exponential, 1, 0, USC_BF16},
    {"cauchy_", &usc_law_cauchy, cauchy, 0, 1, USC_F32},
    {"bernoulli_", &usc_law_bernoulli, ones, 0.5, 0, USC_F32},
    {"bernoulli_", &usc_law_bernoulli, ones, 0.9, 0, USC_BOOL},
    {"bernoulli_", &usc_law_bernoulli, ones, 0.3, 0, USC_F32},
    {"bernoulli_", &usc_law_bernoulli, ones, 0.01, 0, USC_F32},
    {"bernoulli_", &usc_law_bernoulli, ones, 0.999, 0, USC_U8},
    {"bernoulli", &usc_law_bernoulli, ones_of_own, 0.05, 0.95, USC_F32},
    {"bernoulli", &usc_law_bernoulli, ones_of_own, 0.4, 0.6, USC_F32},
    {"geometric_", &usc_law_geometric, geometric, 0.3, 0, USC_F32},
    {"geometric_", &usc_law_geometric, geometric, 0.97, 0, USC_I64},
    {"poisson", &usc_law_poisson, poisson, 4, 0, USC_F32},
    {"poisson", &usc_law_poisson, poisson, 0.05, 0, USC_F32},
    {"randint", &usc_law_whole, whole, 0, 2, USC_I64},
    {"randint", &usc_law_whole, whole, -5, 9, USC_I8},
    {"randint", &usc_law_whole, whole, 0, 100000, USC_I32},
    {"randint", &usc_law_whole, whole, -7, 0x1p30, USC_I64},
    {"randint", &usc_law_whole, whole, 0, 0x1.8p25, USC_F32},
    {"randint", &usc_law_whole, whole, 0, 257, USC_BF16},
    {"randint", &usc_law_whole, whole, -256, 257, USC_BF16},
    {"randint", &usc_law_whole, long_whole, 0, 3e9, USC_I64},
    {"randint", &usc_law_whole, long_whole, 0, 0x1p62, USC_I64},
    {"random_", &usc_law_whole, long_whole, 0, 0x1p63, USC_I64},
    {"randperm", NULL, permutation, 0, 0, USC_I64},
    {"multinomial", NULL, categories, 0, 0, USC_I64},
    {"multinomial", NULL, categories, 0.4, 0, USC_I64},
};

static const struct shape {
    int ndim;
    int64_t sizes[8];
} shapes[] = {
    {1, {33}},        {1, {100}},      {1, {1000}},
    {2, {32, 32}},    {2, {99, 7}},    {4, {2, 4, 16, 16}},
    {2, {1, 2048}},   {2, {2048, 1}},  {4, {3, 5, 7, 11}},
    {2, {64, 128}},   {2, {37, 100}},  {8, {2, 2, 2, 2, 2, 2, 2, 2}},
    {3, {16, 64, 8}}, {2, {160, 200}},
};

enum {
    N_LAWS = sizeof laws / sizeof laws[0],
    N_SHAPES = sizeof shapes / sizeof shapes[0]
};

/* Draws number i: another law each time, then another shape, then another generator. */
static const struct law *draw(int i)
{
    const struct law *law = &laws[i % N_LAWS];
    const struct shape *shape = &shapes[i / N_LAWS % N_SHAPES];
    generator_seed(&now.g, i / (N_LAWS * N_SHAPES) % N_GENERATORS, (uint64_t)i + 1);
    now.n_with = 0;
    assert_int_equal(
        usc_tensor_make(&now.t, now.raw, law->dtype, shape->ndim, shape->sizes, NULL),
        USC_OK);
    assert_int_equal(usc_tensor_numel(&now.t, &now.n, NULL), USC_OK);
    law->fill(law->p, law->q);
    if (law->fill != long_whole)
        usc_dtype_narrow(law->dtype, now.values, now.raw, (size_t)now.n);
    return law;
}

static void judge(const struct law *law, int i)
{
    const usc_draw_output output = {"out[0]", &now.t, NULL};
    const usc_draw_call call = {.op = law->op,
                                .arguments = now.with,
                                .n_arguments = now.n_with,
                                .outputs = &output,
                                .n_outputs = 1};
    usc_findings *f;
    usc_error err = {0};
    assert_int_equal(usc_findings_open(NULL, &f, NULL), USC_OK);
    if (usc_draw_judge(&call, f, &err) != USC_OK) fail_msg("%s: %s", law->op, err.text);
    const usc_finding *worst = usc_findings_worst(f);
    if (worst->verdict != USC_VERDICT_PASS)
        fail_msg("draw %d, %s(%g, %g) of %d elements: %s", i, law->op, law->p, law->q,
                 (int)now.n, worst->reason);
    usc_findings_close(f);
}

static void ten_thousand_honest_calls_pass(void **state)
{
    (void)state;
    for (int i = 0; i < N_CALLS; i++)
        judge(draw(N_EASY + i), i);
}

/* ---- bounds drawn in ---- */

static const struct family {
    const char *name;
    bool (*odd)(usc_draws *d, usc_clause *out);
} families[] = {
    {"places", usc_draws_placed},
    {"digits", usc_draws_digits_odd},
    {"tails", usc_draws_bent},
    {"pairs", usc_draws_paired},
    {"again", NULL},
};

enum { N_FAMILIES = sizeof families / sizeof families[0] };

static void gather(const struct law *law, usc_draws *d, usc_arena *arena)
{
    usc_parameter p[USC_LAW_PARAMETERS] = {{0, NULL}, {1, NULL}};
    for (int i = 0; i < now.n_with && i < USC_LAW_PARAMETERS; i++)
        p[i] = (usc_parameter){now.with[i].number, now.with[i].tensor};
    if (law->law == &usc_law_whole && now.n_with == 0) p[1].number = 0x1p63;
    const usc_law_values values = {.tensor = &now.t, .stream = USC_DRAW_FIRST};
    usc_draws_begin(d, arena, now.n);
    usc_draws_shape(d, &now.t);
    d->family = EASY;
    usc_status st;
    if (law->law != NULL)
        st = usc_draws_of_law(d, law->law, p, &values, NULL);
    else if (law->fill == permutation)
        st = usc_draws_of_permutation(d, &now.t, USC_DRAW_FIRST, NULL);
    else
        st = usc_draws_of_categories(d, &now.t, &now.weights, true, USC_DRAW_FIRST, NULL);
    assert_int_equal(st, USC_OK);
}

/* Three standard deviations above what each family says of itself. */
static void a_family_keeps_to_its_share(void **state)
{
    (void)state;
    int n_odd[N_FAMILIES] = {0};
    for (int i = 0; i < N_EASY; i++) {
        usc_draws d;
        usc_clause why;
        usc_arena arena = {.alloc = usc_libc_alloc};
        const struct law *law = draw(i);
        gather(law, &d, &arena);
        for (int k = 0; k < N_FAMILIES; k++) {
            const bool odd = families[k].odd != NULL ? families[k].odd(&d, &why)
                                                     : usc_draws_again(&d, NULL, &why);
            n_odd[k] += odd;
            if (odd && getenv("SHOW"))
                print_message("%s: %s(%g, %g) of %d: %s\n", families[k].name, law->op,
                              law->p, law->q, (int)now.n, why.text);
        }
        usc_arena_free(&arena);
    }
    for (int k = 0; k < N_FAMILIES; k++) {
        print_message("%s: %d of %d\n", families[k].name, n_odd[k], N_EASY);
        assert_true(n_odd[k] <= N_EASY * EASY + 3 * sqrt(N_EASY * EASY));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_family_keeps_to_its_share),
        cmocka_unit_test(ten_thousand_honest_calls_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
