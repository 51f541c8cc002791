// SPDX-License-Identifier: Apache-2.0
// Sums, products and softmax in a chosen arithmetic (ulpscope_sim/numerics.h), against
// answers by hand; and the words that choose.
#include <ulpscope_sim/numerics.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static usc_sim_numerics chosen(const char *key, const char *value)
{
    usc_sim_numerics n;
    assert_int_equal(usc_sim_numerics_begin("mm", &n, NULL), USC_OK);
    if (key != NULL)
        assert_int_equal(usc_sim_numerics_choose(&n, key, value, NULL), USC_OK);
    return n;
}

static void test_orders_add_as_they_say(void **state)
{
    (void)state;
    /* In float32 2^24 + 1 is 2^24: who adds the ones first keeps them. */
    const double a[8] = {0x1p24, 1, 1, 1, 1, 1, 1, 1};
    const struct {
        const char *order;
        double sum;
    } cases[] = {
        {"serial", 0x1p24},        {"blocks:4", 0x1p24 + 4}, {"blocks:1", 0x1p24},
        {"split-k:2", 0x1p24 + 4}, {"split-k:8", 0x1p24},    {"pairwise", 0x1p24},
        {"lanes:2", 0x1p24 + 4},   {"lanes:4", 0x1p24 + 6},  {"blocks:1024", 0x1p24},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const usc_sim_numerics n = chosen("order", cases[i].order);
        const double got = usc_sim_sum(&n, USC_F32, a, NULL, 8);
        if (fabs(got - cases[i].sum) > 0) fail_msg("%s: %a", cases[i].order, got);
        assert_true(fabs(usc_sim_sum(&n, USC_F64, a, NULL, 8) - (0x1p24 + 7)) <= 0);
        assert_true(fabs(usc_sim_sum(&n, USC_F32, a, NULL, 0)) <= 0);
        assert_true(fabs(usc_sim_sum(&n, USC_F32, a + 1, NULL, 1) - 1) <= 0);
    }
}

static void test_each_term_is_added_once_in_any_order(void **state)
{
    (void)state;
    double a[97];
    for (int i = 0; i < 97; i++)
        a[i] = i + 1;
    const char *orders[] = {"serial",     "pairwise", "blocks:5", "split-k:7", "lanes:3",
                            "lanes:1024", "random",   "random:3", "random:17"};
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        usc_sim_numerics n = chosen("order", orders[i]);
        for (size_t count = 0; count <= 97; count++) {
            n.seed += 12345;
            const double sum = usc_sim_sum(&n, USC_F32, a, NULL, count);
            assert_true(fabs(sum - (double)(count * (count + 1)) / 2) <= 0);
        }
    }
}

static void test_sums_are_kept_in_their_dtype(void **state)
{
    (void)state;
    const double ones[4] = {1, 1, 1, 1}, a[4] = {2048, 1, 1, 1};
    usc_sim_numerics n = chosen("accumulate", "float16");
    assert_true(fabs(usc_sim_sum(&n, USC_F32, a, ones, 4) - 2048) <= 0);
    n = chosen("accumulate", "bfloat16");
    assert_true(fabs(usc_sim_sum(&n, USC_F32, a, ones, 4) - 2048) <= 0);
    n = chosen("accumulate", "float32");
    assert_true(fabs(usc_sim_sum(&n, USC_F32, a, ones, 4) - 2051) <= 0);
    n = chosen("accumulate", "float64");
    const double tiny[2] = {1, 0x1p-40};
    assert_true(fabs(usc_sim_sum(&n, USC_F32, tiny, NULL, 2) - (1 + 0x1p-40)) <= 0);
}

static void test_fma_rounds_once(void **state)
{
    (void)state;
    const double a[2] = {-1, 1 + 0x1p-12}, b[2] = {1, 1 + 0x1p-12};
    usc_sim_numerics n = chosen("fma", "1");
    assert_true(fabs(usc_sim_sum(&n, USC_F32, a, b, 2) - (0x1p-11 + 0x1p-24)) <= 0);
    n = chosen("fma", "0");
    assert_true(fabs(usc_sim_sum(&n, USC_F32, a, b, 2) - 0x1p-11) <= 0);
}

static void test_factors_are_rounded(void **state)
{
    (void)state;
    double x[3] = {1 + 0x1p-11, 1 + 0x1p-10, 70000};
    usc_sim_numerics n = chosen("factors", "tf32");
    usc_sim_round_factors(&n, x, 3);
    assert_true(fabs(x[0] - 1) <= 0 && fabs(x[1] - (1 + 0x1p-10)) <= 0 && x[2] < 80000);
    n = chosen("factors", "bfloat16");
    usc_sim_round_factors(&n, x, 2);
    assert_true(fabs(x[1] - 1) <= 0);
    n = chosen("factors", "float16");
    usc_sim_round_factors(&n, x + 2, 1);
    assert_true(isinf(x[2]));
}

static void test_softmax_both_ways(void **state)
{
    (void)state;
    const double x[4] = {1, 3, -2, 3};
    double plain[4], online[4], total = 0;
    usc_sim_numerics n = chosen(NULL, NULL);
    usc_sim_softmax(&n, USC_F32, x, 4, plain);
    n = chosen("online", "1");
    usc_sim_softmax(&n, USC_F32, x, 4, online);
    for (int i = 0; i < 4; i++) {
        total += plain[i];
        assert_true(fabs(plain[i] - online[i]) < 1e-7);
    }
    assert_true(fabs(total - 1) < 1e-6 && fabs(plain[1] - plain[3]) <= 0);
    const double none[2] = {-(double)INFINITY, -(double)INFINITY};
    const double nan[2] = {0, (double)NAN};
    for (int k = 0; k < 2; k++) {
        n = chosen("online", k == 0 ? "0" : "1");
        usc_sim_softmax(&n, USC_F32, none, 2, plain);
        assert_true(isnan(plain[0]) && isnan(plain[1]));
        usc_sim_softmax(&n, USC_F32, nan, 2, plain);
        assert_true(isnan(plain[0]) && isnan(plain[1]));
    }
}

static void test_words_that_choose_nothing_are_refused(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"accumulate", "int8"}, {"accumulate", ""},   {"order", "split-k"},
        {"order", "split-k:0"}, {"order", "lanes:x"}, {"order", "blocks:2000"},
        {"order", "serially"},  {"order", "random:"}, {"factors", "fp8"},
        {"fma", "yes"},         {"degree", "21"},     {"tile", "-1"},
        {"like", "tensor"},     {"colour", "red"},
    };
    usc_error err;
    usc_sim_numerics n = chosen("order", "lanes:4");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const usc_sim_numerics before = n;
        if (usc_sim_numerics_choose(&n, bad[i][0], bad[i][1], &err) != USC_E_ARG)
            fail_msg("%s=%s is taken", bad[i][0], bad[i][1]);
        assert_non_null(strstr(err.text, "there are"));
        assert_memory_equal(&n, &before, sizeof n);
    }
}

static void test_the_last_one_counts_until_it_is_taken_back(void **state)
{
    (void)state;
    usc_sim_numerics a = chosen("order", "lanes:4"), b = chosen("fma", "1"), got;
    assert_false(usc_sim_numerics_chosen() || usc_sim_numerics_of("aten::mm.out", &got));
    assert_int_equal(usc_sim_numerics_add(&a, NULL), USC_OK);
    assert_int_equal(usc_sim_numerics_add(&b, NULL), USC_OK);
    assert_true(usc_sim_numerics_of("aten::mm.out", &got) && got.fma);
    assert_false(usc_sim_numerics_of("aten::bmm", &got));
    assert_true(usc_sim_numerics_remove(b.id) && !usc_sim_numerics_remove(b.id));
    assert_true(usc_sim_numerics_of("aten::mm", &got) && got.order == USC_SIM_LANES);
    assert_true(usc_sim_numerics_remove(a.id));
    assert_false(usc_sim_numerics_chosen());
}

static void test_named_sets_can_be_chosen(void **state)
{
    (void)state;
    const char *name, *chooses, *source;
    size_t i = 0;
    for (; usc_sim_numerics_row(i, &name, &chooses, &source); i++) {
        const usc_sim_numerics n = chosen("like", name + strlen("like:"));
        assert_true(n.accumulate == USC_F32 || n.accumulate == USC_F16);
        assert_true(strlen(source) > 10 && strchr(chooses, '=') != NULL);
    }
    assert_int_equal(i, 11);
}

/* ---- norms and attention: against the formula in double, a table of arithmetics ---------- */

#define N 70

static const struct {
    const char *key, *value;
    bool honest;
} ways[] = {
    {"order", "serial", true},       {"variance", "welford", true},
    {"variance", "chunks", true},    {"variance", "moments", true},
    {"variance", "unbiased", false}, {"epsilon", "outside", false},
    {"scale", "bfloat16", false},    {"accumulate", "bfloat16", false},
};

static void test_norms_of_a_row(void **state)
{
    (void)state;
    double x[N], w[N], grad[N], out[N], back[N], mean, variance, scale;
    for (size_t i = 0; i < N; i++) {
        x[i] = (double)(float)sin((double)i) + 0.25;
        w[i] = (double)(float)cos((double)i);
        grad[i] = (double)(float)sin(3.0 * (double)i);
    }
    for (int by_mean = 0; by_mean < 2; by_mean++) {
        double m = 0, v = 0;
        for (size_t i = 0; by_mean && i < N; i++)
            m += x[i] / N;
        for (size_t i = 0; i < N; i++)
            v += (x[i] - m) * (x[i] - m) / N;
        const usc_sim_norm norm = {x, w, NULL, N, 1, 1e-3, by_mean};
        for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
            if (!by_mean && strcmp(ways[k].key, "variance") == 0) continue;
            const usc_sim_numerics n = chosen(ways[k].key, ways[k].value);
            usc_sim_norm_row(&n, USC_F32, &norm, &mean, &variance, &scale, out);
            double worst = 0;
            for (size_t i = 0; i < N; i++)
                worst = fmax(worst, fabs(out[i] - (x[i] - m) / sqrt(v + 1e-3) * w[i]));
            if ((worst < 1e-5) != ways[k].honest)
                fail_msg("%s=%s: %g", ways[k].key, ways[k].value, worst);
        }
        const usc_sim_numerics wide = chosen("accumulate", "float64");
        usc_sim_norm_row(&wide, USC_F64, &norm, &mean, &variance, &scale, out);
        usc_sim_norm_back(&wide, USC_F64, &norm, grad, mean, scale, back);
        for (size_t i = 0; i < N; i += 13) { /* against a difference of two values */
            double up = 0, down = 0, was = x[i], step = 1e-6;
            for (int side = 0; side < 2; side++) {
                x[i] = side ? was - step : was + step;
                usc_sim_norm_row(&wide, USC_F64, &norm, &mean, &variance, &scale, out);
                for (size_t j = 0; j < N; j++)
                    *(side ? &down : &up) += grad[j] * out[j];
            }
            x[i] = was;
            assert_true(fabs((up - down) / (2 * step) - back[i]) < 1e-6);
        }
    }
}

static double loss_of(const usc_sim_numerics *n, const usc_sim_attention *a,
                      const double *grad, double *out, double *sums)
{
    double loss = 0;
    assert_true(usc_sim_attend(n, USC_F64, a, out, sums));
    for (size_t i = 0; i < a->n_queries * a->n_out; i++)
        loss += grad[i] * out[i];
    return loss;
}

static void test_attention_and_its_gradients(void **state)
{
    (void)state;
    double q[15], k[21], v[14], grad[10], out[10], tiled[10], sums[5];
    double dq[15], dk[21], dv[14];
    for (size_t i = 0; i < 21; i++) {
        if (i < 15) q[i] = sin((double)i);
        k[i] = cos((double)i * 0.7);
        if (i < 14) v[i] = sin((double)i * 1.3);
        if (i < 10) grad[i] = cos((double)i * 2.1);
    }
    const usc_sim_attention a = {q, k, v, NULL, 5, 7, 3, 2, 0.6, true};
    const usc_sim_numerics n = chosen("accumulate", "float64");
    usc_sim_numerics in_tiles = n;
    in_tiles.tile = 2;
    assert_true(usc_sim_attend(&in_tiles, USC_F64, &a, tiled, sums));
    (void)loss_of(&n, &a, grad, out, sums);
    for (size_t i = 0; i < 10; i++)
        assert_true(fabs(out[i] - tiled[i]) < 1e-13);
    assert_true(fabs(out[0] - v[0]) < 1e-13); /* the first query sees one key */
    assert_true(usc_sim_attend_back(&n, USC_F64, &a, out, sums, grad, dq, dk, dv));
    const struct {
        double *values;
        const double *gradient;
        size_t n;
    } parts[] = {{q, dq, 15}, {k, dk, 21}, {v, dv, 14}};
    for (size_t p = 0; p < 3; p++)
        for (size_t i = 0; i < parts[p].n; i++) {
            const double was = parts[p].values[i], step = 1e-6;
            parts[p].values[i] = was + step;
            const double up = loss_of(&n, &a, grad, tiled, sums);
            parts[p].values[i] = was - step;
            const double down = loss_of(&n, &a, grad, tiled, sums);
            parts[p].values[i] = was;
            assert_true(fabs((up - down) / (2 * step) - parts[p].gradient[i]) < 1e-6);
        }
    usc_sim_numerics leaking = n;
    leaking.causal_rows = 4;
    assert_true(usc_sim_attend(&leaking, USC_F64, &a, tiled, sums));
    assert_true(fabs(tiled[0] - out[0]) > 1e-3 && fabs(tiled[6] - out[6]) < 1e-13);
}

static void test_terms_that_a_broken_sum_lacks(void **state)
{
    (void)state;
    const double x[5] = {1, 2, 4, 8, 16};
    static const struct {
        const char *text;
        double sum;
    } rows[] = {{"x:term_missing:index=2", 27},
                {"x:term_twice:index=2", 35},
                {"x:rest_missing:of=2", 15},
                {"x:rest_missing:of=5", 31},
                {"x:term_twice:index=9", 31}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        usc_sim_numerics n = chosen("order", "serial");
        usc_sim_fault f;
        usc_sim_fault_clear();
        assert_int_equal(usc_sim_fault_plant(rows[i].text, NULL, NULL), USC_OK);
        assert_true(usc_sim_fault_get(0, &f) && usc_sim_numerics_break(&n, &f));
        const double sum = usc_sim_sum(&n, USC_F32, x, NULL, 5);
        assert_true(sum >= rows[i].sum && sum <= rows[i].sum);
    }
    usc_sim_fault_clear();
}

/* ---- functions of one number, running sums ----------------------------------------------- */

static double exactly(usc_sim_function f, double x)
{
    const double cube = x + 0.044715 * x * x * x;
    switch (f) {
    case USC_SIM_EXP:
        return exp(x);
    case USC_SIM_TANH:
        return tanh(x);
    case USC_SIM_SIGMOID:
        return 1 / (1 + exp(-x));
    case USC_SIM_SILU:
        return x / (1 + exp(-x));
    case USC_SIM_GELU:
        return x / 2 * (1 + erf(x * M_SQRT1_2));
    case USC_SIM_GELU_TANH:
    default:
        return x / 2 * (1 + tanh(M_2_SQRTPI * M_SQRT1_2 * cube));
    }
}

static void test_functions_of_one_number(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value;
        usc_dtype dtype;
        double near; /* of the result, or of 1 where it is smaller */
    } rows[] = {
        {"degree", "0", USC_F32, 2e-7},
        {"degree", "9", USC_F32, 6e-7},
        {"degree", "0", USC_F64, 1e-15},
        {"degree", "16", USC_F64, 5e-11},
        {"accumulate", "float64", USC_F32, 1e-15},
    };
    double x[401], out[401];
    for (int i = 0; i <= 400; i++)
        x[i] = (double)(float)(i - 200) / 32;
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++)
        for (int f = USC_SIM_EXP; f <= USC_SIM_GELU_TANH; f++) {
            const usc_sim_numerics n = chosen(rows[k].key, rows[k].value);
            usc_sim_map(&n, rows[k].dtype, (usc_sim_function)f, x, 401, out);
            for (int i = 0; i <= 400; i++) {
                const double wanted = exactly((usc_sim_function)f, x[i]);
                if (fabs(out[i] - wanted) > rows[k].near * fmax(1, fabs(wanted)))
                    fail_msg("function %d of %g, %s=%s: %a, not %a", f, x[i], rows[k].key,
                             rows[k].value, out[i], wanted);
            }
        }
    /* A polynomial of three terms is off, and what is no number stays none. */
    const usc_sim_numerics rough = chosen("degree", "2");
    const double odd[] = {0.3, (double)NAN, (double)INFINITY, -(double)INFINITY};
    usc_sim_map(&rough, USC_F32, USC_SIM_EXP, odd, 4, out);
    assert_true(fabs(out[0] - exp(0.3)) > 1e-3 && isnan(out[1]) && isinf(out[2]));
    assert_true(fabs(out[3]) <= 0);
    usc_sim_map(&rough, USC_F32, USC_SIM_TANH, odd, 4, out);
    assert_true(isnan(out[1]) && fabs(out[2] - 1) <= 0 && fabs(out[3] + 1) <= 0);
}

static void test_running_sums_and_logarithms(void **state)
{
    (void)state;
    const double x[4] = {0x1p24, 1, 1, -0x1p24};
    double out[4];
    usc_sim_numerics n = chosen(NULL, NULL);
    usc_sim_running_sum(&n, USC_F32, x, 4, out);
    assert_true(fabs(out[2] - 0x1p24) <= 0 && fabs(out[3]) <= 0);
    n = chosen("accumulate", "float64");
    usc_sim_running_sum(&n, USC_F32, x, 4, out);
    assert_true(fabs(out[2] - (0x1p24 + 2)) <= 0 && fabs(out[3] - 2) <= 0);
    const double y[3] = {1, 2, 4};
    usc_sim_log_softmax(&n, USC_F32, y, 3, out);
    for (int i = 0; i < 3; i++)
        assert_true(fabs(out[i] - (y[i] - log(exp(1) + exp(2) + exp(4)))) < 1e-7);
    double sums[2] = {1, 2};
    const double self[2] = {10, (double)NAN};
    usc_sim_add_self(&n, USC_F32, 2, 3, self, 1, sums);
    assert_true(fabs(sums[0] - 32) <= 0);
    usc_sim_add_self(&n, USC_F32, 1, 0, self, 2, sums); /* of no account: not read */
    assert_true(fabs(sums[1] - 2) <= 0);
}

static void test_steps_of_optimizers(void **state)
{
    (void)state;
    const double grad[2] = {0.5, -2};
    double param[2] = {1, -1}, mean[2] = {0}, square[2] = {0}, most[2] = {0.25, 100};
    usc_sim_numerics n = chosen("accumulate", "float64");
    const usc_sim_step adamw = {.lr = 0.1,
                                .weight_decay = 0.5,
                                .n_steps = 1,
                                .beta1 = 0.9,
                                .beta2 = 0.99,
                                .epsilon = 1e-8,
                                .decoupled = true};
    /* The first step goes by lr against the gradient's sign, whatever its size. */
    usc_sim_adam(&n, USC_F32, &adamw, grad, 2, param, mean, square, NULL);
    assert_true(fabs(param[0] - (0.95 - 0.1)) < 1e-8);
    assert_true(fabs(param[1] - (-0.95 + 0.1)) < 1e-8);
    assert_true(fabs(mean[1] + 0.2) < 1e-15 && fabs(square[0] - 0.0025) < 1e-15);
    usc_sim_step adam = adamw;
    adam.decoupled = false;
    adam.maximize = true;
    double upward[2] = {1, -1}, m[2] = {0}, v[2] = {0};
    usc_sim_adam(&n, USC_F32, &adam, grad, 2, upward, m, v, most);
    assert_true(fabs(m[1] - 0.1 * (2 - 0.5)) < 1e-15); /* decay grows the gradient */
    assert_true(fabs(most[0] - 0.25) <= 0 && upward[1] < -1.001 && upward[1] > -1.002);
    usc_sim_step sgd = {.lr = 0.1, .momentum = 0.5, .nesterov = true, .first = true};
    double weight[2] = {1, 1}, momentum[2] = {(double)NAN, (double)NAN};
    usc_sim_sgd(&n, USC_F32, &sgd, grad, 2, weight, momentum);
    assert_true(fabs(weight[0] - (1 - 0.1 * 0.75)) < 1e-15 && momentum[1] <= -2);
    sgd.first = sgd.nesterov = false;
    sgd.dampening = 0.5;
    usc_sim_sgd(&n, USC_F32, &sgd, grad, 2, weight, momentum);
    assert_true(fabs(momentum[0] - 0.5) < 1e-15);
    usc_sim_sgd(&n, USC_F32, &sgd, grad, 2, weight, NULL);
    assert_true(fabs(weight[0] - (1 - 0.075 - 0.05 - 0.05)) < 1e-15);
    n = chosen("accumulate", "bfloat16");
    weight[0] = 1;
    sgd.lr = 0x1p-10;
    usc_sim_sgd(&n, USC_F32, &sgd, grad, 1, weight, NULL);
    assert_true(fabs(weight[0] - 1) <= 0); /* lost in its rounding */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norms_of_a_row),
        cmocka_unit_test(test_attention_and_its_gradients),
        cmocka_unit_test(test_terms_that_a_broken_sum_lacks),
        cmocka_unit_test(test_functions_of_one_number),
        cmocka_unit_test(test_running_sums_and_logarithms),
        cmocka_unit_test(test_steps_of_optimizers),
        cmocka_unit_test(test_orders_add_as_they_say),
        cmocka_unit_test(test_each_term_is_added_once_in_any_order),
        cmocka_unit_test(test_sums_are_kept_in_their_dtype),
        cmocka_unit_test(test_fma_rounds_once),
        cmocka_unit_test(test_factors_are_rounded),
        cmocka_unit_test(test_softmax_both_ways),
        cmocka_unit_test(test_words_that_choose_nothing_are_refused),
        cmocka_unit_test(test_the_last_one_counts_until_it_is_taken_back),
        cmocka_unit_test(test_named_sets_can_be_chosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
