// SPDX-License-Identifier: Apache-2.0
// The dtype table, conversions held against an obvious definition, and tensor views.
#include <ulpscope/tensor.h>
#include <ulpscope/x/kernels.h>

// cmocka wants these in front of it
#include <setjmp.h>
#include <stdarg.h>
// and then itself
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"

static uint64_t seed = 20261122;

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed * 0x2545f4914f6cdd1du;
}

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void test_table(void **state)
{
    (void)state;
    assert_int_equal(usc_dtype_by_name("torch.float32"), USC_F32);
    assert_int_equal(usc_dtype_by_name("bfloat16"), USC_BF16);
    assert_int_equal(usc_dtype_by_name("BOOL"), USC_BOOL);
    assert_int_equal(usc_dtype_by_name("complex64"), USC_DTYPE_NONE);
    assert_int_equal(usc_dtype_by_name(NULL), USC_DTYPE_NONE);
    for (int d = 1; d < USC_N_DTYPES; d++) {
        const usc_dtype_info *info = usc_dtype_info_of((usc_dtype)d);
        assert_int_equal(usc_dtype_by_name(info->name), d);
        assert_int_equal(usc_dtype_by_name(info->file_name), d);
    }
    assert_string_equal(usc_dtype_info_of((usc_dtype)77)->name, "unknown");
    assert_int_equal(usc_dtype_info_of(USC_DTYPE_NONE)->size, 1);
}

/* The value of a 16-bit pattern, by the formula of the format. */
static double slow_widen(const usc_dtype_info *info, uint32_t bits)
{
    const int fraction_bits = info->sig_bits - 1;
    const int field = (int)(bits >> fraction_bits & (0x7fffu >> fraction_bits));
    const double fraction = (double)(bits & ((1u << fraction_bits) - 1));
    const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
    if (field == info->emax - info->emin + 2)
        return fraction > 0.0 ? (double)NAN : sign * (double)INFINITY;
    if (field == 0) return sign * ldexp(fraction, info->emin - fraction_bits);
    return sign * ldexp(ldexp(1.0, fraction_bits) + fraction,
                        field - 1 + info->emin - fraction_bits);
}

static void test_every_16_bit_pattern(void **state)
{
    (void)state;
    static uint16_t all[65536], back[65536];
    static double wide[65536];
    for (int i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    const usc_dtype dtypes[] = {USC_F16, USC_BF16};
    const char *const levels[] = {"scalar", "auto"};
    for (int k = 0; k < 4; k++) {
        const usc_dtype_info *info = usc_dtype_info_of(dtypes[k / 2]);
        assert_int_equal(usc_kernels_select(levels[k % 2], NULL), USC_OK);
        usc_dtype_widen(dtypes[k / 2], all, wide, 65536);
        usc_dtype_narrow(dtypes[k / 2], wide, back, 65536);
        for (int i = 0; i < 65536; i++) {
            const double want = slow_widen(info, all[i]);
            if (isnan(want)) {
                assert_true(isnan(wide[i]));
                assert_true(isnan(slow_widen(info, back[i])));
                continue;
            }
            assert_true(bits_of(wide[i]) == bits_of(want));
            assert_int_equal(back[i], i);
        }
    }
}

/* The value of a float of one byte, from the tables of its definition. */
static double slow_byte(usc_dtype dtype, int code)
{
    const usc_dtype_info *info = usc_dtype_info_of(dtype);
    const int fraction_bits = info->sig_bits - 1, magnitude = code & 0x7f;
    const int field = magnitude >> fraction_bits, highest = 0x7f >> fraction_bits;
    const double sign = code > 0x7f ? -1.0 : 1.0;
    const double fraction = magnitude & ((1 << fraction_bits) - 1);
    if (info->top == USC_TOP_NAN && magnitude == 0x7f) return (double)NAN;
    if (info->top == USC_TOP_INF && field == highest)
        return fraction > 0 ? (double)NAN : sign * (double)INFINITY;
    if (info->top == USC_TOP_NUMBER && code == 0x80) return (double)NAN;
    if (field == 0) return sign * ldexp(fraction, info->emin - fraction_bits);
    return sign * ldexp(ldexp(1.0, fraction_bits) + fraction,
                        field - 1 + info->emin - fraction_bits);
}

static const usc_dtype bytes_of[] = {USC_F8_E5M2, USC_F8_E4M3, USC_F8_E5M2FNUZ,
                                     USC_F8_E4M3FNUZ};

static void test_every_float_of_one_byte(void **state)
{
    (void)state;
    for (usc_dtype dtype = USC_F64; dtype < USC_N_DTYPES; dtype++) {
        const usc_dtype_info *info = usc_dtype_info_of(dtype);
        double largest = 0;
        if (info->kind != USC_KIND_FLOAT || info->size != 1) continue;
        for (int code = 0; code < 256; code++) {
            const uint8_t byte = (uint8_t)code;
            const double want = slow_byte(dtype, code);
            uint8_t back;
            double value;
            usc_dtype_widen(dtype, &byte, &value, 1);
            usc_dtype_narrow(dtype, &value, &back, 1);
            if (isnan(want)) {
                assert_true(isnan(value) && isnan(slow_byte(dtype, back)));
                continue;
            }
            assert_true(bits_of(value) == bits_of(want));
            assert_int_equal(back, code);
            if (isfinite(value)) largest = fmax(largest, value);
        }
        assert_true(bits_of(largest) == bits_of(info->largest));
    }
}

/* Ties at the edge go to the even number, which is the largest of float8_e4m3fn only. */
static void test_float8_overflows_to_inf_or_nan(void **state)
{
    (void)state;
    const struct {
        double x;
        uint8_t code[4];
    } rows[] = {
        {464.0, {0x5f, 0x7e, 0x63, 0x80}},
        {464.0001, {0x5f, 0x7f, 0x63, 0x80}},
        {-464.0001, {0xdf, 0xff, 0xe3, 0x80}},
        {61439.0, {0x7b, 0x7f, 0x7f, 0x80}},
        {61440.0, {0x7c, 0x7f, 0x80, 0x80}},
        {248.0, {0x5c, 0x78, 0x60, 0x80}},
        {247.9, {0x5c, 0x77, 0x60, 0x7f}},
        {-0.0, {0x80, 0x80, 0x00, 0x00}},
        {-1e-9, {0x80, 0x80, 0x00, 0x00}},
        {-(double)INFINITY, {0xfc, 0xff, 0x80, 0x80}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int k = 0; k < 4; k++) {
            uint8_t code;
            usc_dtype_narrow(bytes_of[k], &rows[i].x, &code, 1);
            assert_int_equal(code, rows[i].code[k]);
        }
}

/* Rounding by the book: scale to units in the last place, rint, scale back. */
static double slow_round(const usc_dtype_info *info, double x)
{
    if (isinf(x) && info->top != USC_TOP_INF) return (double)NAN;
    if (!isfinite(x)) return x;
    if (fpclassify(x) == FP_ZERO) return info->top == USC_TOP_NUMBER ? 0.0 : x;
    int exponent;
    (void)frexp(x, &exponent);
    exponent--;
    if (exponent < info->emin) exponent = info->emin;
    const int unit = exponent - (info->sig_bits - 1);
    /* in two steps, since 2^-unit alone may overflow; both are exact or round to 0 */
    const double rounded = ldexp(rint(ldexp(x, -unit)), unit);
    if (info->top == USC_TOP_NUMBER && !(fabs(rounded) > 0)) return 0.0;
    if (fabs(rounded) <= info->largest) return rounded;
    return info->top == USC_TOP_INF ? copysign((double)INFINITY, x) : (double)NAN;
}

static void check_narrow(usc_dtype dtype, double x)
{
    const usc_dtype_info *info = usc_dtype_info_of(dtype);
    uint64_t narrow = 0;
    double back;
    usc_dtype_narrow(dtype, &x, &narrow, 1);
    usc_dtype_widen(dtype, &narrow, &back, 1);
    if (isnan(slow_round(info, x)))
        assert_true(isnan(back));
    else
        assert_true(bits_of(back) == bits_of(slow_round(info, x)));
}

/* Halfway points of the format and their neighbours in double. */
static double adversarial(const usc_dtype_info *info)
{
    const uint64_t r = next_random();
    const int span = info->emax - info->emin + info->sig_bits + 4;
    const int exponent =
        info->emin - info->sig_bits - 2 + (int)((r >> 8) % (uint64_t)span);
    const uint64_t kept = (r >> 20 & ((1u << info->sig_bits) - 1)) * 2 + 1;
    const double half = ldexp((double)kept, exponent - info->sig_bits);
    const double sign = (r & 1) != 0 ? -1.0 : 1.0;
    if ((r & 6) == 2) return sign * nextafter(half, 0.0);
    if ((r & 6) == 4) return sign * nextafter(half, (double)INFINITY);
    return sign * half;
}

static void test_narrow_rounds_once(void **state)
{
    (void)state;
    printf("seed %llu\n", (unsigned long long)seed);
    const double fixed[] = {0.0, -0.0, (double)INFINITY, -(double)INFINITY, (double)NAN,
                            0x1p-1074, 0x1p-1022, 1e308, 65519.999, 65520.0, 65504.0,
                            0x1.ffffffp127, 0x1.fffffefp127,
                            /* float32 on the way would make these ties */
                            1.0 + 0x1p-8 + 0x1p-40, 1.0 + 0x1p-11 + 0x1p-40};
    for (usc_dtype dtype = USC_F64; dtype < USC_N_DTYPES; dtype++) {
        if (usc_dtype_info_of(dtype)->kind != USC_KIND_FLOAT) continue;
        for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
            check_narrow(dtype, fixed[i]);
        for (int i = 0; i < 100000; i++) {
            check_narrow(dtype, from_bits(next_random()));
            if (dtype != USC_F64)
                check_narrow(dtype, adversarial(usc_dtype_info_of(dtype)));
        }
    }
}

static void test_double_rounding_would_be_caught(void **state)
{
    (void)state;
    const double x = 1.0 + 0x1p-8 + 0x1p-40;
    const double by_float = (double)(float)x; /* the planted bug: float32 in between */
    uint16_t once, twice;
    usc_dtype_narrow(USC_BF16, &x, &once, 1);
    usc_dtype_narrow(USC_BF16, &by_float, &twice, 1);
    assert_int_equal(once, 0x3f81);
    assert_int_equal(twice, 0x3f80);
}

static void test_float32_is_the_compilers(void **state)
{
    (void)state;
    for (int i = 0; i < 200000; i++) {
        const double x = i % 2 == 0 ? adversarial(usc_dtype_info_of(USC_F32))
                                    : from_bits(next_random());
        const float want = (float)x;
        float got;
        double back;
        usc_dtype_narrow(USC_F32, &x, &got, 1);
        if (isnan(x)) continue;
        assert_memory_equal(&got, &want, sizeof got);
        usc_dtype_widen(USC_F32, &got, &back, 1);
        assert_true(bits_of(back) == bits_of((double)want));
    }
}

static void test_widen_has_equal_bits_on_every_isa(void **state)
{
    (void)state;
    static uint32_t src[4200];
    static double a[4100], b[4100];
    for (int i = 0; i < 4200; i++)
        src[i] = (uint32_t)(next_random() >> 20);
    const size_t lengths[] = {0, 1, 7, 8, 9, 4095, 4096, 4097};
    for (int d = 1; d < USC_N_DTYPES; d++)
        for (int i = 0; i < 8; i++)
            for (size_t offset = 0; offset < 8; offset++) {
                const size_t size = usc_dtype_info_of((usc_dtype)d)->size;
                const size_t n = size == 8 ? lengths[i] / 2 : lengths[i];
                const char *at = (const char *)src + offset * size;
                assert_int_equal(usc_kernels_select("scalar", NULL), USC_OK);
                usc_kernels_widen((usc_dtype)d, at, a, n);
                assert_int_equal(usc_kernels_select(NULL, NULL), USC_OK);
                usc_kernels_widen((usc_dtype)d, at, b, n);
                assert_memory_equal(a, b, n * sizeof a[0]);
            }
}

static int64_t narrowed_int(usc_dtype dtype, double x)
{
    int64_t value = 0;
    usc_dtype_narrow(dtype, &x, &value, 1);
    return value;
}

static void test_integers_round_and_clamp(void **state)
{
    (void)state;
    assert_int_equal(narrowed_int(USC_U8, 2.5), 2);
    assert_int_equal(narrowed_int(USC_U8, 3.5), 4);
    assert_int_equal(narrowed_int(USC_U8, -7.0), 0);
    assert_int_equal(narrowed_int(USC_U8, 255.6), 255);
    assert_int_equal((int8_t)narrowed_int(USC_I8, -1e9), INT8_MIN);
    assert_int_equal((int8_t)narrowed_int(USC_I8, 127.5), INT8_MAX);
    assert_int_equal((int8_t)narrowed_int(USC_I8, (double)NAN), 0);
    assert_true(narrowed_int(USC_I64, 0x1p63) == INT64_MAX);
    assert_true(narrowed_int(USC_I64, -(double)INFINITY) == INT64_MIN);
    assert_true(narrowed_int(USC_I64, -0x1p62) == -((int64_t)1 << 62));
    assert_true((uint64_t)narrowed_int(USC_U64, 0x1p64) == UINT64_MAX);
    assert_int_equal(narrowed_int(USC_BOOL, 0x1p-1074), 1);
    assert_int_equal(narrowed_int(USC_BOOL, -0.0), 0);
    assert_int_equal(narrowed_int(USC_BOOL, (double)NAN), 1);
}

static void test_kernels_select(void **state)
{
    (void)state;
    usc_error err;
    assert_int_equal(usc_kernels_select("scalar", &err), USC_OK);
    assert_string_equal(usc_kernels_isa(), "scalar");
    assert_int_equal(usc_kernels_select("sse9", &err), USC_E_ARG);
    assert_non_null(strstr(err.text, "sse9"));
    assert_string_equal(usc_kernels_isa(), "scalar");
    assert_int_equal(usc_kernels_select("", &err), USC_OK);
}

static void test_tensor_make(void **state)
{
    (void)state;
    usc_tensor t;
    usc_error err;
    const int64_t sizes[] = {2, 0, 3}, huge[] = {1 << 20, (int64_t)1 << 40, 8},
                  bad[] = {2, -1};
    assert_int_equal(usc_tensor_make(&t, NULL, USC_F32, 3, sizes, &err), USC_OK);
    assert_int_equal(t.strides[0], 3);
    assert_true(usc_tensor_contiguous(&t));
    assert_int_equal(usc_tensor_make(&t, NULL, USC_F32, 3, huge, &err), USC_E_RANGE);
    assert_int_equal(usc_tensor_make(&t, NULL, USC_F64, 2, huge, &err), USC_E_RANGE);
    assert_int_equal(usc_tensor_make(&t, NULL, USC_U8, 2, huge, &err), USC_OK);
    assert_int_equal(usc_tensor_make(&t, NULL, USC_F32, 2, bad, &err), USC_E_SHAPE);
    assert_int_equal(err.where, 1);
    assert_int_equal(usc_tensor_make(&t, NULL, USC_F32, USC_MAX_DIMS + 1, bad, &err),
                     USC_E_SHAPE);
}

static void check_extent(const usc_tensor *t, int64_t want_bytes, int64_t want_below)
{
    int64_t bytes, below;
    assert_int_equal(usc_tensor_extent(t, &bytes, &below, NULL), USC_OK);
    assert_int_equal(bytes, want_bytes);
    assert_int_equal(below, want_below);
}

static void test_tensor_sizes(void **state)
{
    (void)state;
    int64_t n, below;
    usc_tensor t = {.dtype = USC_F32};
    assert_int_equal(usc_tensor_numel(&t, &n, NULL), USC_OK);
    assert_int_equal(n, 1);
    check_extent(&t, 4, 0);
    t = (usc_tensor){.dtype = USC_F32, .ndim = 2, .sizes = {3, 4}, .strides = {-10, 2}};
    check_extent(&t, (20 + 6 + 1) * 4, 80);
    assert_false(usc_tensor_contiguous(&t));
    t.sizes[1] = 0;
    check_extent(&t, 0, 0);
    t = (usc_tensor){.dtype = USC_F32, .ndim = 2, .sizes = {3, 1}, .strides = {1, 99}};
    assert_true(usc_tensor_contiguous(&t));
    t.sizes[0] = t.sizes[1] = (int64_t)1 << 32;
    assert_int_equal(usc_tensor_numel(&t, &n, NULL), USC_E_RANGE);
    assert_int_equal(n, 0);
    t.strides[0] = INT64_MIN;
    assert_int_equal(usc_tensor_extent(&t, &n, &below, NULL), USC_E_RANGE);
    t.sizes[0] = 2;
    assert_int_equal(usc_tensor_extent(&t, &n, &below, NULL), USC_E_RANGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_every_16_bit_pattern),
        cmocka_unit_test(test_every_float_of_one_byte),
        cmocka_unit_test(test_float8_overflows_to_inf_or_nan),
        cmocka_unit_test(test_narrow_rounds_once),
        cmocka_unit_test(test_double_rounding_would_be_caught),
        cmocka_unit_test(test_float32_is_the_compilers),
        cmocka_unit_test(test_widen_has_equal_bits_on_every_isa),
        cmocka_unit_test(test_integers_round_and_clamp),
        cmocka_unit_test(test_kernels_select),
        cmocka_unit_test(test_tensor_make),
        cmocka_unit_test(test_tensor_sizes),
    };
    return cmocka_run_group_tests_name("dtype", tests, NULL, NULL);
}
