// SPDX-License-Identifier: Apache-2.0
// Functions, running sums, sums by index and steps of optimizers of many float32: bit by bit
// what usc_sim_map() and its like define, at odd sizes and offsets, and with what is no number.
#include "sim_ways.h"

#define N 1000

static float x[N], y[N], out[N + 1];
static double wide[N], wanted[N];

static void widen(const float *from, size_t n, double *to)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (double)from[i];
}

static void hold_functions(const usc_sim_numerics *n, size_t k, uint64_t seed)
{
    static const float edges[] = {
        0x1p-149F, 0.35F,     -0.35F, 0x1.666668p-2F, 88.8F, -104,  -87.4F,
        9.01F,     -9.1F,     1,      1.4142F,        5.7F,  -5.6F, 1e-30F,
        INFINITY,  -INFINITY, NAN,    -0.F,           200,   -200,  0x1.fep127F,
        101,       -150,      40};
    const size_t sizes[] = {0, 1, 63, 64, 65, 200, N - 1};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const size_t count = sizes[s];
        draw(x, N, seed + s, s % 2 == 1);
        for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++)
            x[37 * i + 5] = edges[i];
        widen(x + 1, count, wide);
        for (int f = USC_SIM_EXP; f <= USC_SIM_GELU_TANH; f++) {
            out[count] = 7;
            assert_true(
                usc_sim_map_floats(n, USC_F32, (usc_sim_function)f, x + 1, count, out));
            usc_sim_map(n, USC_F32, (usc_sim_function)f, wide, count, wanted);
            for (size_t i = 0; i < count; i++)
                if (!is_same((double)out[i], wanted[i]))
                    fail_msg("function %d, %s=%s, fma %d, of %a: %a, not %a", f,
                             ways[k][0], ways[k][1], n->fma, wide[i], (double)out[i],
                             wanted[i]);
            assert_true(out[count] >= 7 && out[count] <= 7);
        }
    }
}

static void test_functions_are_the_same(void **state)
{
    (void)state;
    for (size_t k = 0; k < N_WAYS; k++) {
        usc_sim_numerics n = way(k);
        for (int fma = 0; fma < 2; fma++)
            for (uint64_t seed = 1; seed < 400; seed += 100) {
                n.fma = fma == 1;
                hold_functions(&n, k, seed);
            }
    }
    usc_sim_numerics n = way(0);
    for (n.degree = 1; n.degree <= 20; n.degree++)
        hold_functions(&n, 0, (uint64_t)n.degree);
}

static void test_dropout_is_the_same(void **state)
{
    (void)state;
    static bool mask[N];
    for (size_t k = 0; k < N_WAYS; k++) {
        const usc_sim_numerics n = way(k);
        draw(x, N, k + 5, k % 2 == 1);
        widen(x, N, wide);
        for (size_t i = 0; i < N; i++)
            mask[i] = i * i % 7 < 3;
        for (size_t count = N - 20; count <= N; count++) {
            const double scale = 1 / (0.3 + (double)(count % 5) / 10);
            assert_true(usc_sim_drop_floats(&n, USC_F32, x, mask, scale, count, out));
            usc_sim_drop(&n, USC_F32, wide, mask, scale, count, wanted);
            for (size_t i = 0; i < count; i++)
                same((double)out[i], wanted[i], "dropout", k, i);
        }
    }
}

static void test_running_sums_are_the_same(void **state)
{
    (void)state;
    static const size_t sizes[][3] = {{1, 1, 1}, {3, 40, 1}, {1, 40, 7}, {2, 9, 33},
                                      {5, 0, 3}, {0, 4, 4},  {2, 1, 64}, {1, 900, 1}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const size_t rows = sizes[s][0], count = sizes[s][1], width = sizes[s][2];
        const usc_sim_numerics n = way(0);
        draw(x, N, s + 3, s % 2 == 1);
        assert_true(usc_sim_running_sums(&n, USC_F32, x + 1, rows, count, width, out));
        for (size_t i = 0; i < rows * width; i++) {
            const size_t at = i / width * count * width + i % width;
            for (size_t t = 0; t < count; t++)
                wide[t] = (double)x[1 + at + t * width];
            usc_sim_running_sum(&n, USC_F32, wide, count, wanted);
            for (size_t t = 0; t < count; t++)
                same((double)out[at + t * width], wanted[t], "running sum", 0, t);
        }
    }
}

static void hold_added(const usc_sim_numerics *n, size_t k, const usc_sim_added *a)
{
    float held[N];
    memcpy(held, out, sizeof held);
    assert_true(usc_sim_add_rows(n, USC_F32, a, out));
    for (size_t i = 0; i < a->n_rows * a->width; i++) {
        size_t terms = 0;
        if (a->with_own) wide[terms++] = (double)held[i];
        for (size_t j = 0; j < a->n_index; j++)
            if (a->index[j] == (int64_t)(i / a->width))
                wide[terms++] = (double)a->more[j * a->width + i % a->width];
        const bool stays = terms == (a->with_own ? 1 : 0);
        same((double)out[i],
             stays ? (double)held[i] : usc_sim_sum(n, USC_F32, wide, NULL, terms),
             "added", k, i);
    }
}

static void test_sums_by_index_are_the_same(void **state)
{
    (void)state;
    static const size_t sizes[][3] = {/* indices, width, rows */
                                      {40, 7, 5},  {1, 1, 1}, {60, 16, 60},
                                      {90, 11, 2}, {0, 3, 3}, {9, 9, 1}};
    int64_t index[90];
    for (size_t s = 0; s < 2 * sizeof sizes / sizeof sizes[0]; s++)
        for (size_t k = 0; k < N_WAYS; k++) {
            const size_t *z = sizes[s / 2];
            const usc_sim_numerics n = way(k);
            draw(x, N, s + 9, s % 3 == 1);
            draw(out, N, s + 10, false);
            for (size_t i = 0; i < z[0]; i++) /* one in some is of no row */
                index[i] = (int64_t)(i * i * 7 % (z[2] + 1)) - (int64_t)(i % 2);
            const usc_sim_added added = {index, z[0], x + 1, z[1], z[2], s % 2 == 0};
            hold_added(&n, k, &added);
        }
    for (size_t i = 0; i < 3; i++) /* a sum begins with 0: of -0 alone it is 0 */
        x[i] = out[i] = -0.F;
    index[0] = 0;
    const usc_sim_numerics n = way(0);
    const usc_sim_added added = {index, 1, x, 3, 1, true};
    hold_added(&n, 0, &added);
}

static usc_sim_step step_of(unsigned i)
{
    return (usc_sim_step){.lr = 0.01,
                          .weight_decay = i % 3 == 0 ? 0.1 : 0,
                          .n_steps = 1 + i % 4,
                          .beta1 = 0.9,
                          .beta2 = 0.999,
                          .epsilon = 1e-8,
                          .momentum = 0.9,
                          .dampening = i % 5 == 0 ? 0.1 : 0,
                          .decoupled = i % 2 == 0,
                          .maximize = i % 7 == 0,
                          .nesterov = i % 4 == 0,
                          .first = i % 6 == 0};
}

static void hold_step(usc_sim_numerics *n, size_t k, unsigned i, bool of_sgd)
{
    enum { PARAM, MEAN, SQUARE, LARGEST, N_STATES };
    static float state[N_STATES][N];
    static double before[N_STATES][N];
    const usc_sim_step s = step_of(i);
    const size_t count = i % 40 + (i % 3) * 200;
    const bool has_most = i % 2 == 1;
    draw(y, N, i + 50, i % 4 == 1);
    widen(y + 1, count, wide);
    for (int j = 0; j < N_STATES; j++) {
        draw(state[j], N, 10 * i + (unsigned)j, false);
        for (size_t m = 0; j >= SQUARE && m < N; m++)
            state[j][m] = fabsf(state[j][m]);
        widen(state[j], N, before[j]);
    }
    if (of_sgd) {
        float *momentum = has_most ? state[MEAN] : NULL;
        usc_sim_sgd(n, USC_F32, &s, wide, count, before[PARAM],
                    has_most ? before[MEAN] : NULL);
        assert_true(
            usc_sim_sgd_floats(n, USC_F32, &s, y + 1, count, state[PARAM], momentum) ||
            n->fma);
    } else {
        usc_sim_adam(n, USC_F32, &s, wide, count, before[PARAM], before[MEAN],
                     before[SQUARE], has_most ? before[LARGEST] : NULL);
        assert_true(usc_sim_adam_floats(n, USC_F32, &s, y + 1, count, state[PARAM],
                                        state[MEAN], state[SQUARE],
                                        has_most ? state[LARGEST] : NULL) ||
                    n->fma);
    }
    if (n->fma && strcmp(usc_kernels_isa(), "scalar") == 0) return;
    for (int j = 0; j < N_STATES; j++)
        for (size_t m = 0; m < N; m++)
            same((double)state[j][m], before[j][m], of_sgd ? "SGD" : "Adam", k, m);
}

static void test_steps_are_the_same(void **state)
{
    (void)state;
    for (size_t k = 0; k < N_WAYS; k++)
        for (unsigned i = 0; i < 60; i++) {
            usc_sim_numerics n = way(k);
            hold_step(&n, k, i, i % 3 == 0);
        }
}

static void test_what_has_no_fast_form_is_left(void **state)
{
    (void)state;
    usc_sim_numerics n = way(0);
    const usc_sim_step s = step_of(1);
    const usc_sim_added added = {NULL, 0, x, 1, 1, true};
    for (int i = 0; i < 2; i++) {
        const usc_dtype dtype = i == 0 ? USC_F64 : USC_F32;
        if (i == 1) n.accumulate = USC_BF16;
        assert_false(usc_sim_map_floats(&n, dtype, USC_SIM_EXP, x, 1, out));
        assert_false(usc_sim_drop_floats(&n, dtype, x, NULL, 1, 1, out));
        assert_false(usc_sim_running_sums(&n, dtype, x, 1, 1, 1, out));
        assert_false(usc_sim_log_softmax_rows(&n, dtype, x, 1, 1, out));
        assert_false(usc_sim_add_rows(&n, dtype, &added, out));
        assert_false(usc_sim_adam_floats(&n, dtype, &s, x, 1, out, out, out, NULL));
        assert_false(usc_sim_sgd_floats(&n, dtype, &s, x, 1, out, NULL));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_EACH(test_functions_are_the_same),
        IN_EACH(test_dropout_is_the_same),
        IN_EACH(test_running_sums_are_the_same),
        IN_EACH(test_sums_by_index_are_the_same),
        IN_EACH(test_steps_are_the_same),
        cmocka_unit_test(test_what_has_no_fast_form_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
