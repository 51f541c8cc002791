// SPDX-License-Identifier: Apache-2.0
// The words of Philox and the numbers made of them (ulpscope_sim/random.h), and the rules
// about operators (ulpscope_sim/rules.h).
#include <ulpscope_sim/foretold.h>
#include <ulpscope_sim/random.h>
#include <ulpscope_sim/rules.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define N 10000

/* Random123's known answers, of counters below 2^64. */
static void test_words_are_philox4x32_10(void **state)
{
    (void)state;
    const uint32_t zero[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    uint32_t got[4];
    usc_sim_philox(0, 0, got);
    assert_memory_equal(got, zero, sizeof got);
    uint32_t other[4];
    usc_sim_philox(0, 1, other);
    assert_memory_not_equal(got, other, sizeof got);
    usc_sim_philox((uint64_t)1 << 32, 0, other);
    assert_memory_not_equal(got, other, sizeof got);
}

static void test_a_call_takes_its_words_and_rounds_up_to_four(void **state)
{
    (void)state;
    usc_sim_random r = {7, 8};
    double a[6], b[6];
    uint32_t words[4];
    usc_sim_random_uniform(&r, false, a, 6);
    assert_int_equal(r.offset, 16);
    usc_sim_philox(7, 8 / 4 + 1, words); /* the 5th number is of the second block */
    assert_true(a[4] == (words[0] >> 8) * 0x1p-24);
    r.offset = 8;
    usc_sim_random_uniform(&r, false, b, 6);
    assert_memory_equal(a, b, sizeof a);
    usc_sim_random_uniform(&r, true, a, 3);
    assert_int_equal(r.offset, 16 + 8);
    usc_sim_random_normal(&r, a, 3);
    assert_int_equal(r.offset, 24 + 8);
    uint64_t k[3];
    usc_sim_random_integers(&r, 10, k, 3);
    assert_int_equal(r.offset, 32 + 8);
    usc_sim_random_uniform(&r, false, a, 0);
    assert_int_equal(r.offset, 40);
}

static void test_numbers_have_their_distribution(void **state)
{
    (void)state;
    static double x[N];
    static uint64_t k[N];
    usc_sim_random r = {1, 0};
    double sum = 0, squares = 0, cubes = 0;
    usc_sim_random_uniform(&r, false, x, N);
    for (int i = 0; i < N; i++) {
        assert_true(x[i] >= 0 && x[i] < 1 && x[i] * 0x1p24 == floor(x[i] * 0x1p24));
        sum += x[i];
    }
    assert_true(fabs(sum / N - 0.5) < 0.015);
    sum = 0;
    usc_sim_random_normal(&r, x, N);
    for (int i = 0; i < N; i++) {
        sum += x[i];
        squares += x[i] * x[i];
        cubes += x[i] * x[i] * x[i];
    }
    assert_true(fabs(sum / N) < 0.05 && fabs(squares / N - 1) < 0.07 &&
                fabs(cubes / N) < 0.2);
    int n_low = 0;
    usc_sim_random_integers(&r, 10, k, N);
    for (int i = 0; i < N; i++) {
        assert_true(k[i] < 10);
        n_low += k[i] == 0;
    }
    assert_true(n_low > 850 && n_low < 1150);
    usc_sim_random_integers(&r, 0, k, 4);
    assert_true((k[0] | k[1] | k[2] | k[3]) >> 60 != 0);
}

static void test_what_may_lie_on_the_host(void **state)
{
    (void)state;
    assert_false(usc_sim_foretells("aten::native_layer_norm", true));
    assert_true(usc_sim_foretells("aten::native_layer_norm", false));
    assert_true(usc_sim_foretells("aten::native_layer_norm_backward", true));
    assert_false(usc_sim_foretells("aten::_linalg_svd", false));
    assert_true(usc_sim_shape_by_mask("aten::index.Tensor"));
    assert_false(usc_sim_shape_by_mask("aten::nonzero"));
    assert_true(usc_sim_takes_host("aten::add_.Tensor", "other", true));
    assert_true(usc_sim_takes_host("aten::add", "other", true));
    assert_false(usc_sim_takes_host("aten::add.Tensor", "other", false));
    assert_false(usc_sim_takes_host("aten::addmm", "self", true));
    assert_false(usc_sim_takes_host("aten::mm", "mat2", true));
    assert_true(usc_sim_takes_host("aten::index.Tensor", "indices", false));
    assert_false(usc_sim_takes_host("aten::index.Tensor", "self", false));
    assert_true(usc_sim_takes_host("aten::_index_put_impl_", "indices", false));
    assert_true(usc_sim_takes_host("aten::masked_fill_.Tensor", "value", true));
    assert_false(usc_sim_takes_host("aten::masked_fill_.Tensor", "mask", true));
    assert_true(usc_sim_takes_host("aten::_foreach_mul_.List", "other", true));
    assert_false(usc_sim_takes_host("aten::_foreach_mul_.List", "other", false));
    assert_true(usc_sim_takes_host("aten::__ilshift__.Tensor", "other", true));
    assert_false(usc_sim_takes_host("aten::", "", true));
    assert_false(usc_sim_takes_host("", "", true));
}

static void test_products_are_told_apart(void **state)
{
    (void)state;
    assert_int_equal(usc_sim_product_of("aten::addmm_"), USC_SIM_MATMUL);
    assert_int_equal(usc_sim_product_of("aten::convolution"), USC_SIM_CONV);
    assert_int_equal(usc_sim_product_of("aten::mul.Tensor"), USC_SIM_NO_PRODUCT);
    assert_int_equal(usc_sim_product_of("aten::mmm"), USC_SIM_NO_PRODUCT);
    assert_false(usc_sim_tf32(USC_SIM_MATMUL));
    usc_sim_set_tf32(USC_SIM_MATMUL, true);
    assert_true(usc_sim_tf32(USC_SIM_MATMUL) && !usc_sim_tf32(USC_SIM_CONV));
    usc_sim_set_tf32(USC_SIM_MATMUL, false);
    usc_sim_set_tf32(USC_SIM_NO_PRODUCT, true);
    assert_false(usc_sim_tf32(USC_SIM_NO_PRODUCT) || usc_sim_tf32(USC_SIM_N_PRODUCTS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_are_philox4x32_10),
        cmocka_unit_test(test_a_call_takes_its_words_and_rounds_up_to_four),
        cmocka_unit_test(test_numbers_have_their_distribution),
        cmocka_unit_test(test_what_may_lie_on_the_host),
        cmocka_unit_test(test_products_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
