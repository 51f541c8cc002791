// SPDX-License-Identifier: Apache-2.0
// Standards from C: names and parameters, operands and who stands in for them, strides,
// 64-bit integers, what is refused. The rules themselves: tests/py/test_standards.py.
#include <ulpscope/standard.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static usc_standard standard(const char *name)
{
    usc_standard s;
    assert_int_equal(usc_standard_parse(name, &s, NULL), USC_OK);
    return s;
}

static usc_tensor vector(usc_dtype dtype, void *data, int64_t n)
{
    usc_tensor t;
    assert_int_equal(usc_tensor_make(&t, data, dtype, 1, &n, NULL), USC_OK);
    return t;
}

static usc_opinion judged(const char *name, const usc_standard_operands *in)
{
    const usc_standard s = standard(name);
    usc_opinion out;
    usc_error err;
    assert_int_equal(usc_standard_judge(&s, in, &out, &err), USC_OK);
    return out;
}

static double metric(const usc_opinion *o, const char *name)
{
    for (int i = 0; i < o->n_metrics; i++)
        if (strcmp(o->metrics[i].name, name) == 0) return o->metrics[i].value;
    fail_msg("no metric %s", name);
    return (double)NAN;
}

static void every_name_parses_and_names_its_needs(void **state)
{
    (void)state;
    int n;
    const usc_standard_info *infos = usc_standard_list(&n);
    assert_string_equal(infos[0].name, "ulpscope");
    for (int i = 0; i < n; i++) {
        static const char *const examples[] = {"", ":1", ":1,2"};
        usc_standard s;
        usc_status st = USC_E_ARG;
        for (int k = 0; k < 3 && st != USC_OK; k++) {
            char text[64];
            (void)snprintf(text, sizeof text, "%s%s", infos[i].name, examples[k]);
            st = usc_standard_parse(text, &s, NULL);
        }
        assert_int_equal(st, USC_OK);
        assert_ptr_equal(s.info, &infos[i]);
        assert_true(infos[i].needs != 0 && infos[i].needs < 1u << USC_N_OPERANDS);
        assert_true(strlen(infos[i].summary) < 70);
    }
    const usc_standard s = standard("allclose:1e-3,2");
    assert_true(s.parameters[0] == 1e-3 && s.parameters[1] == 2);
    assert_string_equal(s.name, "allclose:1e-3,2");
    assert_string_equal(usc_operand_text(USC_OPERAND_NATIVE), "native");
    assert_string_equal(usc_operand_text(USC_N_OPERANDS), "unknown");
}

static void a_bad_name_leaves_zero_and_lists_the_known(void **state)
{
    (void)state;
    usc_standard s;
    usc_error err;
    assert_int_equal(usc_standard_parse("torch", &s, &err), USC_E_ARG);
    assert_null(s.info);
    assert_non_null(strstr(err.text, "torch-close, allclose:ATOL,RTOL, ulp:K"));
    assert_non_null(strstr(err.text, "kernelbench")); /* the last one still fits */
}

static void strides_do_not_matter(void **state)
{
    (void)state;
    enum { N = 1200 };
    static float d[2 * N], n[N];
    static double r[N];
    for (int i = 0; i < N; i++) {
        r[i] = sin(i * 0.37) * exp2(i % 7);
        n[i] = (float)r[i];
        d[2 * i] = n[i] * (1 + (float)(i % 3) * 1e-6f);
    }
    usc_tensor device = vector(USC_F32, d, N), native = vector(USC_F32, n, N);
    usc_tensor reference = vector(USC_F64, r, N);
    device.strides[0] = 2;
    static float packed[N], backwards[2 * N];
    for (int i = 0; i < N; i++) {
        packed[i] = d[2 * i];
        backwards[2 * (N - 1 - i)] = d[2 * i];
    }
    usc_tensor plain = vector(USC_F32, packed, N), turned = vector(USC_F32, backwards, N);
    turned.data = &backwards[2 * (N - 1)];
    turned.strides[0] = -2;
    int count;
    const usc_standard_info *infos = usc_standard_list(&count);
    for (int i = 1; i < count; i++) {
        char text[64];
        const char *given = infos[i].parameters[0] != ':'      ? ""
                            : strchr(infos[i].parameters, ',') ? ":1e-6,1e-6"
                                                               : ":0.5";
        (void)snprintf(text, sizeof text, "%s%s", infos[i].name, given);
        usc_standard_operands in = {.device = &plain};
        in.of[USC_OPERAND_NATIVE] = in.of[USC_OPERAND_YARDSTICK] = &native;
        in.of[USC_OPERAND_REFERENCE] = &reference;
        in.of[USC_OPERAND_BENCHMARK] = &native;
        const usc_opinion a = judged(text, &in);
        in.device = &device;
        const usc_opinion b = judged(text, &in);
        in.device = &turned;
        const usc_opinion c = judged(text, &in);
        assert_memory_equal(&a, &b, sizeof a);
        assert_memory_equal(&a, &c, sizeof a);
        assert_true(a.n_metrics > 0 && a.reason[0] != '\0' && a.stand_in[0] == '\0');
    }
}

static void large_integers_are_told_apart(void **state)
{
    (void)state;
    int64_t d[] = {INT64_C(1) << 60, 5}, n[] = {(INT64_C(1) << 60) + 1, 5};
    const usc_tensor device = vector(USC_I64, d, 2), native = vector(USC_I64, n, 2);
    usc_standard_operands in = {.device = &device};
    in.of[USC_OPERAND_NATIVE] = &native;
    const usc_opinion close = judged("torch-close", &in),
                      ascend = judged("ascend-v1", &in);
    assert_int_equal(close.verdict, USC_VERDICT_WRONG);
    assert_true(metric(&close, "mismatched") == 1);
    assert_string_equal(ascend.status, "error");
    n[0] = d[0];
    assert_int_equal(judged("torch-close", &in).verdict, USC_VERDICT_PASS);
}

static void the_nearest_operand_stands_in(void **state)
{
    (void)state;
    uint16_t half[] = {0x3c00, 0x4000}; /* 1, 2 */
    double r[] = {1.0001, 2};
    const usc_tensor device = vector(USC_F16, half, 2), reference = vector(USC_F64, r, 2);
    usc_standard_operands in = {.device = &device};
    in.of[USC_OPERAND_REFERENCE] = &reference;
    const usc_opinion bits = judged("bitwise", &in);
    assert_int_equal(bits.verdict, USC_VERDICT_PASS); /* 1.0001 rounds to 1 */
    assert_string_equal(bits.stand_in, "reference rounded to float16 in place of native");
    const usc_opinion three = judged("neuron-3way", &in);
    assert_int_equal(three.verdict, USC_VERDICT_PASS);
    in.of[USC_OPERAND_NATIVE] = &device;
    assert_string_equal(judged("bitwise", &in).stand_in, "");
}

static void what_is_not_read_may_have_any_form(void **state)
{
    (void)state;
    float d[] = {1, 2, 3};
    const usc_tensor device = vector(USC_F32, d, 3), other = vector(USC_F32, d, 2);
    usc_standard_operands in = {.device = &device};
    in.of[USC_OPERAND_NATIVE] = &device;
    in.of[USC_OPERAND_BENCHMARK] = &other;
    assert_int_equal(judged("torch-close", &in).verdict, USC_VERDICT_PASS);
    in.of[USC_OPERAND_REFERENCE] = &device;
    const usc_opinion ratio = judged("ascend-benchmark", &in);
    assert_int_equal(ratio.verdict, USC_VERDICT_WRONG);
    assert_non_null(strstr(ratio.reason, "shape"));
}

static void misuse_is_refused_and_leaves_zero(void **state)
{
    (void)state;
    static const usc_opinion zero;
    float d[] = {1};
    usc_tensor device = vector(USC_F32, d, 1);
    usc_standard_operands in = {.device = &device};
    usc_opinion out;
    usc_error err;
    usc_standard s = standard("torch-close");
    assert_int_equal(usc_standard_judge(&s, &in, &out, &err), USC_E_ARG);
    assert_memory_equal(&out, &zero, sizeof out);
    in.of[USC_OPERAND_NATIVE] = &device;
    s = standard("ulpscope");
    assert_int_equal(usc_standard_judge(&s, &in, &out, &err), USC_E_UNSUPPORTED);
    usc_tensor bytes = device;
    bytes.dtype = USC_DTYPE_NONE;
    in.of[USC_OPERAND_NATIVE] = &bytes;
    s = standard("torch-close");
    assert_int_equal(usc_standard_judge(&s, &in, &out, &err), USC_E_DTYPE);
    device.sizes[0] = -1;
    in.of[USC_OPERAND_NATIVE] = &device;
    assert_int_equal(usc_standard_judge(&s, &in, &out, &err), USC_E_SHAPE);
    assert_memory_equal(&out, &zero, sizeof out);
}

static void levels_of_operators_differ(void **state)
{
    (void)state;
    enum { N = 64 };
    float d[N], b[N];
    double r[N];
    for (int i = 0; i < N; i++) {
        r[i] = 1 + i;
        b[i] = (float)(r[i] * (1 + 1e-3));
        d[i] = (float)(r[i] * (1 + 1.7e-3)); /* 1.7 times the second device's error */
    }
    const usc_tensor device = vector(USC_F32, d, N), second = vector(USC_F32, b, N);
    const usc_tensor reference = vector(USC_F64, r, N);
    usc_standard_operands in = {.device = &device, .op = "aten::relu"};
    in.of[USC_OPERAND_REFERENCE] = &reference;
    in.of[USC_OPERAND_BENCHMARK] = &second;
    assert_int_equal(judged("ascend-benchmark", &in).verdict, USC_VERDICT_PASS);
    in.op = "aten::mm";
    assert_int_equal(judged("ascend-benchmark", &in).verdict, USC_VERDICT_WRONG);
    in.op = "aten::sum.dim_IntList";
    assert_int_equal(judged("ascend-benchmark", &in).verdict, USC_VERDICT_WRONG);
    in.op = "torch.nn.functional.embedding";
    assert_int_equal(judged("ascend-benchmark", &in).verdict, USC_VERDICT_WRONG);
    in.op = "aten::mm_like";
    assert_int_equal(judged("ascend-benchmark", &in).verdict, USC_VERDICT_PASS);
}

static void calls_without_outputs_to_hold_have_their_words(void **state)
{
    (void)state;
    usc_opinion o;
    usc_opinion_without(USC_NO_OPINION_RANDOM, &o);
    assert_int_equal(o.verdict, USC_VERDICT_UNJUDGED);
    assert_string_equal(o.reason, "draws random numbers");
    usc_opinion_without(USC_NO_OPINION_NO_OUTPUT, &o);
    assert_int_equal(o.verdict, USC_VERDICT_PASS);
    assert_string_equal(usc_no_opinion_text(USC_NO_OPINION_NO_TRUTH), "no_truth");
    assert_string_equal(usc_no_opinion_text(USC_N_NO_OPINIONS), "unknown");
    const usc_standard ours = standard("ascend-v1"), other = standard("bitwise");
    usc_opinion_miscounted(&ours, 1, 2, &o);
    assert_string_equal(o.status, "error");
    usc_opinion_miscounted(&other, 1, 2, &o);
    assert_string_equal(o.status, "fail");
    assert_string_equal(o.reason, "1 outputs where the operator has 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_parses_and_names_its_needs),
        cmocka_unit_test(a_bad_name_leaves_zero_and_lists_the_known),
        cmocka_unit_test(strides_do_not_matter),
        cmocka_unit_test(large_integers_are_told_apart),
        cmocka_unit_test(the_nearest_operand_stands_in),
        cmocka_unit_test(what_is_not_read_may_have_any_form),
        cmocka_unit_test(misuse_is_refused_and_leaves_zero),
        cmocka_unit_test(levels_of_operators_differ),
        cmocka_unit_test(calls_without_outputs_to_hold_have_their_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
