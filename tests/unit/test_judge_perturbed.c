// SPDX-License-Identifier: Apache-2.0
// Perturbation of a judge's inputs: by one delta with fair signs, specials kept, a share
// for fan-in.
#include "alloc_probe.h"
#include "judge_fixture.h"

#include "judge/judge_state.h"

#include <ulpscope/x/kernels.h>

/* Signs: balanced, equal for all arguments but for Hadamard's row, new for each replay.
 */
static void test_perturbation_moves_by_one_delta_with_fair_signs(void **state)
{
    (void)state;
    enum { N = 10000 };
    float *x = malloc(sizeof(float) * N);
    double *a = malloc(sizeof(double) * N), *b = malloc(sizeof(double) * N);
    for (int i = 0; i < N; i++)
        x[i] = 1.5f;
    const usc_tensor v = fixture_view(x, USC_F32, N);
    int balance[4] = {0};
    for (int k = 0; k < 4; k++) {
        usc_perturbation how = {.seed = 5, .replay = k, .argument = 0};
        assert_int_equal(usc_perturb(&v, &how, a, NULL), USC_OK);
        how.argument = 1;
        assert_int_equal(usc_perturb(&v, &how, b, NULL), USC_OK);
        int sum = 0;
        for (int i = 0; i < N; i++) {
            assert_true(fabs(a[i] - 1.5) == 1.5 * 0x1p-20);
            sum += a[i] > 1.5 ? 1 : -1;
            balance[k] += (a[i] > 1.5) == (b[i] > 1.5) ? 1 : -1;
        }
        assert_true(abs(sum) < 500); /* 5 sigma */
    }
    assert_int_equal(balance[0], N);
    assert_int_equal(balance[1], -N);
    free(x);
    free(a);
    free(b);
}

static void test_perturbation_keeps_what_overflows_and_specials(void **state)
{
    (void)state;
    float x[5] = {3.4028235e38f, INFINITY, -0.0f, 0x1p-149f, NAN};
    double out[5];
    const usc_tensor v = fixture_view(x, USC_F32, 5);
    for (int k = 0; k < 8; k++) {
        const usc_perturbation how = {.seed = 1, .replay = k};
        assert_int_equal(usc_perturb(&v, &how, out, NULL), USC_OK);
        assert_true(out[0] <= (double)x[0] && isinf(out[1]) && isnan(out[4]));
        assert_true(out[2] == 0 && signbit(out[2]) && out[3] == 0x1p-149);
    }
}

static void test_a_share_of_the_elements_moves_for_fan_in(void **state)
{
    (void)state;
    enum { N = 20000 };
    float *x = malloc(sizeof(float) * N);
    double *out = malloc(sizeof(double) * N);
    for (int i = 0; i < N; i++)
        x[i] = 1;
    const usc_tensor v = fixture_view(x, USC_F32, N);
    const usc_perturbation how = {.seed = 3, .share = 0.0625, .delta = 0x1p-12};
    assert_int_equal(usc_perturb(&v, &how, out, NULL), USC_OK);
    int n_moved = 0;
    for (int i = 0; i < N; i++) {
        assert_true(out[i] == 1 || out[i] == 1 + 0x1p-12);
        n_moved += out[i] != 1;
    }
    assert_true(abs(n_moved - N / 16) < 5 * 35);
    free(x);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#if defined(__SSE2__)
#endif
        cmocka_unit_test(test_perturbation_moves_by_one_delta_with_fair_signs),
        cmocka_unit_test(test_perturbation_keeps_what_overflows_and_specials),
        cmocka_unit_test(test_a_share_of_the_elements_moves_for_fan_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
