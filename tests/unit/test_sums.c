// SPDX-License-Identifier: Apache-2.0
// Sums of a watch against the slow obvious definition, over dtypes, sizes and strides;
// equal bits on every instruction set; what a hash must notice.
#include <ulpscope/x/kernels.h>
#include <ulpscope/x/sums.h>

// cmocka wants these in front of it
#include <setjmp.h>
#include <stdarg.h>
// and then itself
#include <cmocka.h>

#include <math.h>
#include <string.h>

enum { MAX_N = 20000 };
static unsigned char memory[8 * (MAX_N + 64)];
static uint64_t seed = 15;

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed * 0x2545f4914f6cdd1du;
}

/* Bytes as they come (NaN and Inf among them), a tenth of them zeros. */
static void fill(void)
{
    for (size_t i = 0; i < sizeof memory; i += 8) {
        const uint64_t r = next_random() % 10 == 0 ? 0 : next_random();
        memcpy(memory + i, &r, 8);
    }
}

/* Doubles from 1 to 2, all of which a sum depends on; one is not finite. */
static void fill_evenly(void)
{
    for (size_t i = 0; i < sizeof memory; i += 8) {
        const uint64_t r = next_random() >> 12 | (uint64_t)0x3ff << 52;
        memcpy(memory + i, &r, 8);
    }
    memset(memory + 8 * 70, 0xff, 8);
}

static usc_sums compute(const usc_tensor *t)
{
    usc_sums out;
    usc_error err;
    assert_int_equal(usc_sums_compute(t, &out, &err), USC_OK);
    return out;
}

static usc_sums of(usc_dtype dtype, const void *data, int64_t n)
{
    usc_tensor t;
    usc_error err;
    assert_int_equal(usc_tensor_make(&t, data, dtype, 1, &n, &err), USC_OK);
    return compute(&t);
}

/* docs/reference/metrics.md as it stands. */
static uint64_t slow_hash(const unsigned char *bytes, size_t size)
{
    uint64_t sum = 0;
    for (size_t i = 0; 8 * i < size; i++) {
        uint64_t w = 0;
        for (size_t k = 0; k < 8 && 8 * i + k < size; k++)
            w |= (uint64_t)bytes[8 * i + k] << 8 * k;
        const uint64_t x = w ^ (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
        sum += (x % ((uint64_t)1 << 32)) * (x >> 32) + x;
    }
    return sum;
}

static void check(usc_dtype dtype, size_t offset, int64_t n)
{
    const size_t size = usc_dtype_info_of(dtype)->size;
    const unsigned char *data = memory + offset * size;
    const usc_sums s = of(dtype, data, n);
    usc_sums bare = s, magnitudes;
    usc_tensor t;
    assert_int_equal(usc_tensor_make(&t, data, dtype, 1, &n, NULL), USC_OK);
    assert_int_equal(usc_sums_magnitudes(&t, &magnitudes, NULL), USC_OK);
    bare.hash64 = 0;
    assert_memory_equal(&magnitudes, &bare, sizeof bare);
    double most = 0;
    long double sum = 0, squares = 0;
    int64_t n_zero = 0, n_odd = 0;
    for (int64_t i = 0; i < n; i++) {
        double x;
        usc_dtype_widen(dtype, data + (size_t)i * size, &x, 1);
        n_odd += !isfinite(x);
        n_zero += x == 0;
        if (!isfinite(x)) continue;
        most = fmax(most, fabs(x));
        sum += (long double)fabs(x);
        squares += (long double)x * (long double)x;
    }
    assert_true(s.max_abs == most);
    assert_int_equal(s.numel, n);
    assert_int_equal(s.n_zero, n_zero);
    assert_int_equal(s.n_nonfinite, n_odd);
    assert_true(s.hash64 == slow_hash(data, (size_t)n * size));
    if (isfinite(s.sum_abs))
        assert_true(fabsl((long double)s.sum_abs - sum) <= 1e-12L * sum);
    if (isfinite(s.sum_sq))
        assert_true(fabsl((long double)s.sum_sq - squares) <= 1e-12L * squares);
}

static const int64_t sizes[] = {0, 1, 3, 15, 16, 17, 63, 64, 65, 4095, 4096, 4097, 9001};
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };
static const char *const isas[] = {"scalar", "avx2", "avx512"};

static void test_they_meet_the_definition(void **state)
{
    (void)state;
    usc_error err;
    fill();
    for (int k = 0; k < 3; k++) {
        if (usc_kernels_select(isas[k], &err) != USC_OK) continue;
        for (int d = 1; d < USC_N_DTYPES; d++)
            for (int i = 0; i < N_SIZES; i++)
                check((usc_dtype)d, (size_t)(i % 8), sizes[i]);
    }
}

static void test_every_instruction_set_gives_the_same_bits(void **state)
{
    (void)state;
    usc_error err;
    for (int k = 1; k < 5; k++)
        for (int d = 1; d < USC_N_DTYPES; d++)
            for (int i = 0; i < N_SIZES; i++) {
                if (d == 1 && i == 0) (k < 3 ? fill : fill_evenly)();
                assert_int_equal(usc_kernels_select("scalar", &err), USC_OK);
                const usc_sums a = of((usc_dtype)d, memory, sizes[i]);
                if (usc_kernels_select(isas[1 + k % 2], &err) != USC_OK) continue;
                const usc_sums b = of((usc_dtype)d, memory, sizes[i]);
                assert_memory_equal(&a, &b, sizeof a);
            }
}

static void test_views_are_taken_in_the_order_of_memory(void **state)
{
    (void)state;
    const int64_t shape[] = {70, 90};
    usc_tensor t;
    usc_error err;
    fill();
    assert_int_equal(usc_tensor_make(&t, memory, USC_F32, 2, shape, &err), USC_OK);
    const usc_sums straight = compute(&t);
    usc_tensor turned = t;
    turned.sizes[0] = 90, turned.sizes[1] = 70;
    turned.strides[0] = 1, turned.strides[1] = 90;
    const usc_sums other = compute(&turned);
    assert_memory_equal(&straight, &other, sizeof other);
    t.strides[1] = 2; /* gaps: gathered */
    t.strides[0] = 180;
    const usc_sums sparse = compute(&t);
    static float gathered[70 * 90];
    for (int i = 0; i < 70 * 90; i++)
        memcpy(&gathered[i], memory + 8 * i, 4);
    const usc_sums same = of(USC_F32, gathered, 70L * 90);
    assert_memory_equal(&sparse, &same, sizeof same);
}

static void test_a_hash_notices_each_bit_and_each_swap(void **state)
{
    (void)state;
    enum { WORDS = 40 };
    fill();
    memset(memory, 0, 64); /* and in zeros and ones, too */
    memset(memory + 64, 0xff, 64);
    const uint64_t was = of(USC_U8, memory, 8L * WORDS).hash64;
    for (size_t bit = 0; bit < 64UL * WORDS; bit++) {
        memory[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_true(of(USC_U8, memory, 8L * WORDS).hash64 != was);
        memory[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    for (size_t i = 16; i < WORDS; i++) {
        uint64_t a, b;
        memcpy(&a, memory + 8 * 15, 8);
        memcpy(&b, memory + 8 * i, 8);
        memcpy(memory + 8 * 15, &b, 8);
        memcpy(memory + 8 * i, &a, 8);
        assert_true(a == b || of(USC_U8, memory, 8L * WORDS).hash64 != was);
        memcpy(memory + 8 * 15, &a, 8);
        memcpy(memory + 8 * i, &b, 8);
    }
    assert_true(of(USC_U8, memory, 8L * WORDS).hash64 == was);
}

static void test_what_is_no_tensor_is_refused(void **state)
{
    (void)state;
    usc_sums out = {.numel = 1};
    usc_error err = {0};
    const usc_tensor none = {.dtype = USC_DTYPE_NONE};
    const usc_tensor bad = {.dtype = USC_F32, .ndim = 1, .sizes = {-1}};
    assert_int_equal(usc_sums_compute(&none, &out, &err), USC_E_DTYPE);
    assert_int_equal(out.numel, 0);
    assert_int_equal(usc_sums_compute(&bad, &out, &err), USC_E_SHAPE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_they_meet_the_definition),
        cmocka_unit_test(test_every_instruction_set_gives_the_same_bits),
        cmocka_unit_test(test_views_are_taken_in_the_order_of_memory),
        cmocka_unit_test(test_a_hash_notices_each_bit_and_each_swap),
        cmocka_unit_test(test_what_is_no_tensor_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
