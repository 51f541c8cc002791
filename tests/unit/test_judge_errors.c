// SPDX-License-Identifier: Apache-2.0
// Errors beside those of an emulation, and float32 beside float64: each has a case that
// is so and near misses that are not.
#include <ulpscope/judge.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 2000 };

typedef struct operands {
    double truth[N], emulated[N], moved[N];
    float device[N], yardstick[N];
    uint8_t marks[N];
    usc_tensor t[5]; /* in that order */
} operands;

/* A result with `bits` of it left by a narrower format; the device gives just that. */
static operands *make(int bits)
{
    operands *o = malloc(sizeof *o);
    assert_non_null(o);
    const int64_t n = N;
    for (int i = 0; i < N; i++) {
        o->truth[i] = 1 + (double)(i * 7919 % N) / N;
        o->yardstick[i] = (float)o->truth[i];
        o->emulated[i] = ldexp(nearbyint(ldexp(o->truth[i], bits)), -bits);
        o->device[i] = (float)o->emulated[i];
        o->moved[i] = o->truth[i];
    }
    const void *data[5] = {o->truth, o->emulated, o->moved, o->device, o->yardstick};
    for (int i = 0; i < 5; i++)
        assert_int_equal(
            usc_tensor_make(&o->t[i], data[i], i < 3 ? USC_F64 : USC_F32, 1, &n, NULL),
            USC_OK);
    return o;
}

static bool same(operands *o)
{
    bool out = true;
    assert_int_equal(usc_judge_same_errors(&o->t[3], &o->t[0], &o->t[4], &o->t[1],
                                           o->marks, &out, NULL),
                     USC_OK);
    return out;
}

static void the_errors_of_a_narrow_format_are_known(void **state)
{
    (void)state;
    operands *o = make(7);
    assert_true(same(o));
    for (int i = 0; i < N / 10; i++) /* one in ten has another error */
        o->device[i] = (float)(2 * o->truth[i] - o->emulated[i] + 0.01);
    assert_false(same(o));
    assert_int_equal(o->marks[0], 0);
    assert_int_equal(o->marks[N - 1], 1);
    free(o);
}

static void honest_float32_proves_nothing(void **state)
{
    (void)state;
    operands *o = make(7);
    for (int i = 0; i < N; i++)
        o->device[i] = o->yardstick[i];
    assert_false(same(o));
    memcpy(o->emulated, o->truth, sizeof o->truth); /* nothing has moved */
    assert_false(same(o));
    o->t[1].sizes[0] = N - 1;
    bool out = true;
    assert_int_equal(usc_judge_same_errors(&o->t[3], &o->t[0], &o->t[4], &o->t[1],
                                           o->marks, &out, NULL),
                     USC_E_SHAPE);
    assert_false(out);
    free(o);
}

/* To zero comes what any format, and any other mistake, loses; noise beside it tells. */
static void zeros_prove_no_format(void **state)
{
    (void)state;
    operands *o = make(7);
    for (int i = 0; i < N; i++)
        o->emulated[i] = o->device[i] = 0;
    assert_false(same(o));
    free(o);
    o = make(7);
    for (int i = 0; i < N / 2; i++)
        o->emulated[i] = o->device[i] = 0;
    assert_true(same(o));
    free(o);
}

static bool apart(operands *o)
{
    bool far = true;
    assert_int_equal(usc_judge_apart(&o->t[0], &o->t[4], o->marks, &far, NULL), USC_OK);
    return far;
}

static bool left(operands *o)
{
    bool far = true;
    assert_int_equal(
        usc_judge_explain(&o->t[0], &o->t[4], &o->t[2], &o->t[0], o->marks, &far, NULL),
        USC_OK);
    return far;
}

static void another_function_lies_apart_and_no_rounding_explains_it(void **state)
{
    (void)state;
    operands *o = make(7);
    assert_false(apart(o));
    for (int i = 0; i < N / 25; i++) /* a few bad tails */
        o->yardstick[i] *= 1.001f;
    assert_false(apart(o));
    for (int i = 0; i < N / 10; i++)
        o->yardstick[i] *= 1.001f;
    assert_true(apart(o));
    assert_true(left(o)); /* nothing moves */
    for (int i = 0; i < N / 2; i++)
        o->moved[i] = o->truth[i] * 1.0005;
    assert_false(left(o)); /* inputs that are rounded move as much */
    free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_errors_of_a_narrow_format_are_known),
        cmocka_unit_test(honest_float32_proves_nothing),
        cmocka_unit_test(zeros_prove_no_format),
        cmocka_unit_test(another_function_lies_apart_and_no_rounding_explains_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
