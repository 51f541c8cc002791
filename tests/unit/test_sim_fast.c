// SPDX-License-Identifier: Apache-2.0
// Sums, products, softmax and norms of rows of float32: bit by bit what usc_sim_sum() and its
// like define, in every order, at odd sizes, steps and offsets, and with what is no number.
#include "sim_ways.h"

#define MOST 12000

static float x[MOST], y[MOST], out[MOST];
static double a[MOST], b[MOST], wanted[MOST];

static void test_products_are_the_same(void **state)
{
    (void)state;
    static const size_t sizes[][3] = {{1, 1, 1},   {6, 32, 8},  {7, 33, 9},  {13, 5, 40},
                                      {3, 70, 17}, {20, 19, 0}, {5, 16, 129}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t k = 0; k < N_WAYS; k++) {
            const size_t m = sizes[s][0], n = sizes[s][1], depth = sizes[s][2];
            const usc_sim_numerics chosen = way(k);
            draw(x, MOST, s + 1, s % 2 == 1);
            draw(y, MOST, s + 100, s % 3 == 1);
            /* a: every second term of rows that overlap nothing; b: columns as rows */
            const usc_sim_rows left = {x + 3, (ptrdiff_t)(2 * depth + 1), 2},
                               right = {y + 1, 1, (ptrdiff_t)n};
            for (size_t i = 0; i < m; i++)
                for (size_t t = 0; t < depth; t++)
                    a[i * depth + t] = (double)x[3 + i * (2 * depth + 1) + 2 * t];
            for (size_t j = 0; j < n; j++)
                for (size_t t = 0; t < depth; t++)
                    b[j * depth + t] = (double)y[1 + t * n + j];
            const bool fast =
                usc_sim_product_rows(&chosen, USC_F32, &left, &right, m, n, depth, out);
            if (!fast && !chosen.fma) fail_msg("%s=%s", ways[k][0], ways[k][1]);
            usc_sim_products(&chosen, USC_BF16, a, b, m, n, depth, wanted);
            for (size_t i = 0; i < m * n; i++) {
                const double sum = usc_sim_sum(&chosen, USC_F32, a + i / n * depth,
                                               b + i % n * depth, depth);
                same(wanted[i], sum, "products in doubles", k, i);
                if (fast) same((double)out[i], sum, "products", k, i);
            }
        }
}

static void test_sums_and_softmax_are_the_same(void **state)
{
    (void)state;
    static const size_t sizes[][2] = {{1, 1},    {5, 7},  {16, 64},
                                      {17, 200}, {33, 9}, {3, 0}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t k = 0; k < N_WAYS; k++) {
            const size_t rows = sizes[s][0], n = sizes[s][1];
            const usc_sim_numerics chosen = way(k);
            draw(x, MOST, s + 7, s % 2 == 1);
            for (size_t i = 0; i < MOST; i++)
                a[i] = (double)x[i];
            const usc_sim_rows from = {x + 1, (ptrdiff_t)n, 1};
            assert_true(usc_sim_sum_rows(&chosen, USC_F32, &from, rows, n, out));
            for (size_t i = 0; i < rows; i++)
                same((double)out[i],
                     usc_sim_sum(&chosen, USC_F32, a + 1 + i * n, NULL, n), "sum", k, i);
            for (size_t i = 0; i < MOST; i++)
                a[i] = (double)(x[i] = x[i] / (float)(1 << s));
            assert_true(usc_sim_softmax_rows(&chosen, USC_F32, x + 1, rows, n, out));
            for (size_t i = 0; i < rows; i++)
                usc_sim_softmax(&chosen, USC_F32, a + 1 + i * n, n, wanted + i * n);
            for (size_t i = 0; i < rows * n; i++)
                same((double)out[i], wanted[i], "softmax", k, i);
            assert_true(usc_sim_log_softmax_rows(&chosen, USC_F32, x + 1, rows, n, out));
            for (size_t i = 0; i < rows; i++)
                usc_sim_log_softmax(&chosen, USC_F32, a + 1 + i * n, n, wanted + i * n);
            for (size_t i = 0; i < rows * n; i++)
                same((double)out[i], wanted[i], "its logarithm", k, i);
        }
}

/* Weights of a norm: what comes back for them, column by column. */
static void hold_weights(size_t k, const usc_sim_numerics *n, const usc_sim_norms *all,
                         const float *mean, const float *scale)
{
    float weight[MOST], bias[MOST];
    assert_true(usc_sim_norm_back_weights(n, USC_F32, all, y, mean, scale, weight, bias));
    for (size_t j = 0; j < all->n; j++) {
        for (size_t i = 0; i < all->n_rows; i++) {
            const float away = all->x[i * all->n + j] - mean[i], normed = away * scale[i];
            b[i] = (double)y[i * all->n + j];
            a[i] = (double)(y[i * all->n + j] * normed);
        }
        same((double)weight[j], usc_sim_sum(n, USC_F32, a, NULL, all->n_rows),
             "gradient of a weight", k, j);
        same((double)bias[j], usc_sim_sum(n, USC_F32, b, NULL, all->n_rows),
             "gradient of a bias", k, j);
    }
}

static void test_norms_are_the_same(void **state)
{
    (void)state;
    static const size_t sizes[][4] = {/* rows, numbers, of one weight, period */
                                      {1, 1, 1, 1},   {5, 70, 1, 1},  {17, 64, 1, 1},
                                      {20, 12, 3, 4}, {9, 35, 35, 3}, {33, 100, 10, 2}};
    float w[MOST], mean[64], variance[64], scale[64];
    static float again[MOST];
    for (size_t s = 0; s < 2 * sizeof sizes / sizeof sizes[0]; s++)
        for (size_t k = 0; k < N_WAYS; k++) {
            const size_t *z = sizes[s / 2], rows = z[0], n = z[1];
            const usc_sim_numerics chosen = way(k);
            draw(x, MOST, s + 70, s % 5 == 1);
            draw(w, MOST, s + 71, false);
            draw(y, MOST, s + 72, false);
            const usc_sim_norms all = {x + 1,
                                       s % 4 < 2 ? w : NULL,
                                       s % 3 < 2 ? w + 5 : NULL,
                                       rows,
                                       n,
                                       z[2],
                                       z[3],
                                       1e-5,
                                       s % 2 == 0};
            assert_true(
                usc_sim_norm_rows(&chosen, USC_F32, &all, mean, variance, scale, out));
            for (size_t i = 0; i < MOST; i++) {
                a[i] = (double)x[i];
                b[i] = (double)w[i];
            }
            for (size_t i = 0; i < rows; i++) {
                const size_t at = i % z[3] * (n / z[2]);
                const usc_sim_norm one = {a + 1 + i * n,
                                          all.weight != NULL ? b + at : NULL,
                                          all.bias != NULL ? b + 5 + at : NULL,
                                          n,
                                          z[2],
                                          1e-5,
                                          all.by_mean};
                double m, v, f;
                usc_sim_norm_row(&chosen, USC_F32, &one, &m, &v, &f, wanted);
                same((double)mean[i], m, "mean", k, i);
                same((double)variance[i], v, "variance", k, i);
                same((double)scale[i], f, "scale", k, i);
                for (size_t j = 0; j < n; j++)
                    same((double)out[i * n + j], wanted[j], "norm", k, i * n + j);
            }
            usc_sim_norm_apply_rows(&all, mean, scale, again);
            assert_memory_equal(again, out, rows * n * sizeof *out);
            float back[MOST];
            const bool fits =
                usc_sim_norm_back_rows(&chosen, USC_F32, &all, y, mean, scale, back);
            assert_int_equal(fits, z[2] == 1);
            for (size_t i = 0; fits && i < rows; i++) {
                double grad[MOST];
                for (size_t j = 0; j < n; j++)
                    grad[j] = (double)y[i * n + j];
                const usc_sim_norm one = {
                    a + 1 + i * n, all.weight != NULL ? b : NULL, NULL, n, 1, 0,
                    all.by_mean};
                usc_sim_norm_back(&chosen, USC_F32, &one, grad, (double)mean[i],
                                  (double)scale[i], wanted);
                for (size_t j = 0; j < n; j++)
                    same((double)back[i * n + j], wanted[j], "its gradient", k,
                         i * n + j);
            }
            if (fits && z[3] == 1) hold_weights(k, &chosen, &all, mean, scale);
        }
}

static void test_what_has_no_fast_form_is_left(void **state)
{
    (void)state;
    const usc_sim_rows rows = {x, 1, 1};
    static const char *const slow[][2] = {
        {"accumulate", "float64"}, {"accumulate", "bfloat16"}, {"accumulate", "float16"}};
    usc_sim_numerics n;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(usc_sim_numerics_begin("*", &n, NULL), USC_OK);
        assert_int_equal(usc_sim_numerics_choose(&n, slow[i][0], slow[i][1], NULL),
                         USC_OK);
        assert_false(usc_sim_sum_rows(&n, USC_F32, &rows, 1, 1, out));
        assert_false(usc_sim_product_rows(&n, USC_F32, &rows, &rows, 1, 1, 1, out));
        assert_false(usc_sim_softmax_rows(&n, USC_F32, x, 1, 1, out));
    }
    n = way(0);
    assert_false(usc_sim_sum_rows(&n, USC_F64, &rows, 1, 1, out));
    n.online = true;
    assert_false(usc_sim_softmax_rows(&n, USC_F32, x, 1, 1, out));
    n.lacks_term = true;
    assert_false(usc_sim_sum_rows(&n, USC_F32, &rows, 1, 1, out));
    /* What is no float32 is added as float64 has it. */
    n = way(0);
    for (size_t i = 0; i < 16; i++)
        a[i] = 1 + 0x1p-40 * (double)i;
    usc_sim_products(&n, USC_F32, a, a, 4, 4, 4, wanted);
    for (size_t i = 0; i < 16; i++)
        same(wanted[i], usc_sim_sum(&n, USC_F32, a + i / 4 * 4, a + i % 4 * 4, 4),
             "wide factors", 0, i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_EACH(test_products_are_the_same),
        IN_EACH(test_sums_and_softmax_are_the_same),
        IN_EACH(test_norms_are_the_same),
        cmocka_unit_test(test_what_has_no_fast_form_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
