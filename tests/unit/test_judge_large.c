// SPDX-License-Identifier: Apache-2.0
// The judge over many elements: indices beyond 2^31, walks that count in 64 bits.
#include "alloc_probe.h"
#include "judge_fixture.h"

#include "judge/judge_state.h"

#include <ulpscope/x/kernels.h>

/* More than 2^31 elements over 4 MB: rows that repeat, and one of them spoiled. */
static void test_indices_beyond_two_to_the_31(void **state)
{
    (void)state;
    enum { ROW = 65536, N_ROWS = 33, REPEATED = 1025 };
    uint8_t *a = calloc(N_ROWS, ROW), *b = calloc(N_ROWS, ROW);
    const int64_t sizes[] = {N_ROWS, REPEATED, ROW};
    usc_tensor x, y;
    assert_int_equal(usc_tensor_make(&x, a, USC_U8, 3, sizes, NULL), USC_OK);
    x.strides[0] = ROW;
    x.strides[1] = 0;
    y = x;
    y.data = b;
    b[(N_ROWS - 1) * ROW + 12345] = 1; /* once in each of the last 1025 rows */
    usc_judgement v;
    assert_int_equal(usc_judge_exact(&x, &y, &v, NULL), USC_OK);
    const int64_t first = (int64_t)(N_ROWS - 1) * REPEATED * ROW + 12345;
    assert_true(first > (int64_t)1 << 31);
    assert_true(v.i_worst == first);
    assert_int_equal(v.n_mismatch, REPEATED);
    assert_true(v.n == (int64_t)N_ROWS * REPEATED * ROW);
    free(a);
    free(b);
}

/* A walk at any position gives what the sum over positions times strides says. */
static void test_walks_count_in_64_bits(void **state)
{
    (void)state;
    static double data[4096];
    for (int i = 0; i < 4096; i++)
        data[i] = i;
    const int64_t sizes[] = {1 << 20, 1 << 18, 3, 64};
    const int64_t strides[] = {0, 0, 1024, 16};
    usc_tensor t = {.data = data, .dtype = USC_F64, .ndim = 4};
    memcpy(t.sizes, sizes, sizeof sizes);
    memcpy(t.strides, strides, sizeof strides);
    const usc_walk w = usc_walk_over(&t);
    static usc_walk_room room;
    uint64_t seed = 4;
    for (int round = 0; round < 2000; round++) {
        const double share = fixture_random(&seed);
        const int64_t n = (int64_t)192 << 38;
        const int64_t at = (int64_t)(share * (double)(n - USC_JUDGE_BLOCK));
        static double out[USC_JUDGE_BLOCK];
        const double *got = usc_walk_load(&w, at, USC_JUDGE_BLOCK, &room, out);
        for (int64_t i = 0; i < USC_JUDGE_BLOCK; i++) {
            const int64_t k = at + i;
            const double want = (double)(k % 64 * 16 + k / 64 % 3 * 1024);
            assert_true(got[i] == want);
        }
    }
}

/* A judge over 2^33 elements opens, shares out its chunks and says no at once. */
static void test_a_judge_over_many_elements_opens(void **state)
{
    (void)state;
    float d = 1, y = 1;
    double r = 1.5;
    const int64_t sizes[] = {(int64_t)1 << 33}, few[] = {((int64_t)1 << 33) - 1};
    usc_tensor vd, vr, vy;
    assert_int_equal(usc_tensor_make(&vd, &d, USC_F32, 1, sizes, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&vr, &r, USC_F64, 1, sizes, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&vy, &y, USC_F32, 1, sizes, NULL), USC_OK);
    vd.strides[0] = vr.strides[0] = vy.strides[0] = 0;
    usc_judge *judge = NULL;
    usc_error err;
    assert_int_equal(usc_judge_open(&vd, &vr, &vy, NULL, &judge, &err), USC_OK);
    assert_true(usc_judge_n_chunks(judge) == (int64_t)1 << 18);
    vr.sizes[0] = few[0];
    assert_int_equal(usc_judge_replay(judge, &vr, &vy, &err), USC_E_SHAPE);
    assert_non_null(strstr(err.text, "8589934591"));
    usc_judge_close(judge);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_indices_beyond_two_to_the_31),
        cmocka_unit_test(test_walks_count_in_64_bits),
        cmocka_unit_test(test_a_judge_over_many_elements_opens),
#if defined(__SSE2__)
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
