// SPDX-License-Identifier: Apache-2.0
// The rules of faults in ulpscope_sim/fault.h: text form, when they fire, what they do.
#include "sim_faults.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- text and time ------------------------------------------------------------------
 */

static void test_text_form(void **state)
{
    (void)state;
    const usc_sim_fault f =
        planted(" aten::mm, !demo::* :bit_flip:index=-2:bit=3:nth=4 ");
    assert_string_equal(f.pattern, "aten::mm, !demo::*");
    assert_int_equal(f.kind, USC_SIM_FAULT_BIT_FLIP);
    assert_true(f.params[0] <= -2 && f.params[0] >= -2 && f.params[1] >= 3);
    assert_int_equal(f.nth, 4);
    const usc_sim_fault defaults = planted("mm:inf");
    assert_true(defaults.params[1] >= 1 && defaults.p >= 1);
    assert_int_equal(defaults.every, 1);
}

static void test_several_are_planted_or_none(void **state)
{
    (void)state;
    usc_sim_fault f;
    assert_true(plant("mm:tf32; ;demo::rms_norm:bf16_intermediates;") > 0);
    assert_true(usc_sim_fault_get(1, &f));
    assert_string_equal(f.pattern, "demo::rms_norm");
    assert_false(usc_sim_fault_get(2, &f));

    int64_t id = 5;
    usc_error err;
    assert_int_equal(usc_sim_fault_plant("mm:nan;mm:no_such", &id, &err), USC_E_ARG);
    assert_int_equal(id, 0);
    assert_non_null(strstr(err.text, "no_such"));
    assert_false(usc_sim_fault_get(2, &f));
}

static void test_bad_text_is_refused(void **state)
{
    (void)state;
    const char *bad[] = {"mm",
                         "mm:",
                         ":nan",
                         "mm:nan:index",
                         "mm:nan:index=",
                         "mm:nan:k=1",
                         "mm:nan:index=x",
                         "mm:nan:every=0",
                         "mm:nan:nth=0",
                         "mm:nan:nth=1.5",
                         "mm:nan:p=2",
                         "mm:nan:seed=-1",
                         "m m:nan",
                         "mm:nan:index=nan"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        usc_error err;
        if (usc_sim_fault_plant(bad[i], NULL, &err) != USC_E_ARG) fail_msg("%s", bad[i]);
        assert_true(strlen(err.text) > 10);
    }
    char longer[600];
    memset(longer, 'a', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(usc_sim_fault_plant(longer, NULL, NULL), USC_E_ARG);
}

static void test_only_matching_operators_are_hit(void **state)
{
    (void)state;
    plant("aten::mm:nan");
    assert_int_equal(n_hits("aten::mm"), 1);
    assert_int_equal(n_hits("aten::mm.out"), 1);
    assert_int_equal(n_hits("aten::bmm"), 0);
    usc_sim_fault f;
    assert_true(usc_sim_fault_get(0, &f));
    assert_int_equal(f.n_calls, 2);
}

static void test_nth_and_every(void **state)
{
    (void)state;
    plant("mm:nan:nth=3");
    plant("bmm:nan:every=2");
    for (int i = 1; i <= 6; i++) {
        assert_int_equal(n_hits("aten::mm"), i == 3);
        assert_int_equal(n_hits("aten::bmm"), i % 2 == 0);
    }
}

static void test_probability_repeats_with_its_seed(void **state)
{
    (void)state;
    uint64_t fired[3] = {0};
    const char *texts[] = {"mm:nan:p=0.5:seed=7", "mm:nan:p=0.5:seed=7",
                           "mm:nan:p=0.5:seed=8"};
    for (int run = 0; run < 3; run++) {
        usc_sim_fault_clear();
        plant(texts[run]);
        for (int i = 0; i < 64; i++)
            fired[run] = fired[run] << 1 | n_hits("aten::mm");
    }
    assert_true(fired[0] == fired[1] && fired[0] != fired[2]);
    int n = 0;
    for (uint64_t f = fired[0]; f != 0; f >>= 1)
        n += (int)(f & 1);
    assert_in_range(n, 16, 48);
}

static void test_remove_and_note(void **state)
{
    (void)state;
    const int64_t first = plant("mm:nan");
    const int64_t second = plant("mm:inf");
    usc_sim_fault_note(second, true);
    usc_sim_fault_note(second, false);
    assert_true(usc_sim_fault_remove(first));
    assert_false(usc_sim_fault_remove(first));
    usc_sim_fault_note(first, true);
    usc_sim_fault f;
    assert_true(usc_sim_fault_get(0, &f));
    assert_int_equal(f.id, second);
    assert_int_equal(f.n_fired, 2);
    assert_int_equal(f.n_changed, 1);
    usc_sim_fault_clear();
    assert_int_equal(n_hits("aten::mm"), 0);
}

static void test_every_kind_has_a_row(void **state)
{
    (void)state;
    for (int k = 0; k < USC_SIM_N_FAULT_KINDS; k++) {
        const usc_sim_fault_info *info = usc_sim_fault_info_of((usc_sim_fault_kind)k);
        char text[64];
        const bool asks = k == USC_SIM_FAULT_IGNORED;
        assert_true(strlen(info->doc) > 10);
        (void)snprintf(text, sizeof text, "mm:%s%s", info->name,
                       asks ? ":argument=bias" : "");
        const usc_sim_fault f = planted(text);
        assert_int_equal(f.kind, k);
    }
    assert_null(usc_sim_fault_info_of(USC_SIM_N_FAULT_KINDS));
}

/* ---- effects
 * ----------------------------------------------------------------------------- */

static int apply(const usc_sim_fault *f, usc_dtype dtype, void *data, size_t n)
{
    const usc_sim_elements e = {dtype, data, NULL, n, 0};
    return usc_sim_fault_apply(f, &e);
}

static int apply_f32(const char *text, float *data, const float *before, size_t n)
{
    const usc_sim_fault f = planted(text);
    const usc_sim_elements e = {USC_F32, data, before, n, 0};
    return usc_sim_fault_apply(&f, &e);
}

static void check_one(const char *text, float from, float expected)
{
    float x = from;
    const int changed = apply_f32(text, &x, NULL, 1);
    if (memcmp(&x, &expected, 4) != 0)
        fail_msg("%s of %a: %a, not %a", text, (double)from, (double)x, (double)expected);
    assert_int_equal(changed, memcmp(&from, &expected, 4) != 0);
}

static void test_rounding_kinds(void **state)
{
    (void)state;
    check_one("x:bf16_output", 0x1.01p0f, 0x1.0p0f); /* a tie, to even */
    check_one("x:bf16_output", 0x1.03p0f, 0x1.04p0f);
    check_one("x:bf16_output", 0x1.010002p0f, 0x1.02p0f);
    check_one("x:bf16_output", -0x1.fffp127f, -INFINITY);
    check_one("x:bf16_output", 0x1.0p-149f, 0.0f);
    check_one("x:bf16_inputs", -0x1.03p0f, -0x1.04p0f);
    check_one("x:bf16_intermediates", 0x1.03p0f, 0x1.04p0f);
    check_one("x:tf32", 0x1.002p0f, 0x1.0p0f);
    check_one("x:tf32", 0x1.006p0f, 0x1.008p0f);
    check_one("x:fp16_output", 65520.0f, INFINITY);
    check_one("x:fp16_inputs", 0x1.8p-25f, 0x1.0p-24f);
    check_one("x:truncate:bits=8", 0x1.fffffep0f, 0x1.fffep0f);
    check_one("x:truncate:bits=8", -0x1.fffffep0f, -0x1.fffep0f);
    check_one("x:truncate:bits=99", 0x1.fp0f, 0x1.0p0f);
    check_one("x:flush_subnormals", -0x1.0p-127f, -0.0f);
    check_one("x:flush_subnormals", 0x1.0p-126f, 0x1.0p-126f);
    check_one("x:scale:factor=2", 3.0f, 6.0f);
    check_one("x:offset:value=-0.5", 3.0f, 2.5f);
    check_one("x:round_away:bits=8", 0x1.000002p0f, 0x1.0002p0f);
    check_one("x:round_away:bits=8", -0x1.000002p0f, -0x1.0002p0f);
    check_one("x:round_stochastic:bits=8", 0x1.0002p0f, 0x1.0002p0f);
    check_one("x:tf32_intermediates", 0x1.006p0f, 0x1.008p0f);
    check_one("x:fp16_intermediates", 65520.0f, INFINITY);
    check_one("x:saturate:most=448", -INFINITY, -448.0f);
    check_one("x:saturate:most=448", 448.0f, 448.0f);
    check_one("x:nan_swallowed:value=2", NAN, 2.0f);
    check_one("x:drift:rate=1", 3.0f, 3.0f); /* call 0: none was made */
    check_one("x:constant:value=7", -1.0f, 7.0f);
    check_one("x:carry:bit=23", 1.0f, 2.0f);
    check_one("x:stuck_bit:bit=31", 1.0f, -1.0f);
    check_one("x:stuck_bit:bit=31:to=0", -1.0f, 1.0f);
    check_one("x:bf16_output", INFINITY, INFINITY);
    check_one("x:bf16_output", -0.0f, -0.0f);
}

static void test_nan_keeps_its_payload(void **state)
{
    (void)state;
    const uint32_t bits = 0x7fc12345;
    float x;
    memcpy(&x, &bits, 4);
    assert_int_equal(apply_f32("x:bf16_output", &x, NULL, 1), 0);
    assert_memory_equal(&x, &bits, 4);
}

static void test_kinds_at_a_place(void **state)
{
    (void)state;
    float x[5] = {1, 2, 3, 4, 5};
    assert_int_equal(apply_f32("x:nan:index=-1", x, NULL, 5), 1);
    assert_true(isnan(x[4]) && x[3] >= 4);
    assert_int_equal(apply_f32("x:inf:index=6:sign=-1", x, NULL, 5), 1);
    assert_true(isinf(x[1]) && x[1] < 0);
    assert_int_equal(apply_f32("x:zero_one:index=2", x, NULL, 5), 1);
    assert_int_equal(apply_f32("x:zero_one:index=2", x, NULL, 5), 0);
    assert_int_equal(apply_f32("x:bit_flip:index=0:bit=31", x, NULL, 5), 1);
    assert_true(x[0] <= -1 && x[0] >= -1);
    assert_int_equal(apply_f32("x:swap_two:a=0:b=3", x, NULL, 5), 1);
    const float expected[4] = {4, -INFINITY, 0, -1};
    assert_memory_equal(x, expected, sizeof expected);
}

static void test_tails(void **state)
{
    (void)state;
    const float before[4] = {9, 8, 7, 6};
    float x[4] = {1, 2, 3, 4};
    assert_int_equal(apply_f32("x:stale_tail:n=2", x, before, 4), 1);
    const float stale[4] = {1, 2, 7, 6};
    assert_memory_equal(x, stale, sizeof stale);
    assert_int_equal(apply_f32("x:stale_tail:n=2", x, NULL, 4), -1);
    assert_int_equal(apply_f32("x:drop_tail:n=3", x, NULL, 4), 1);
    const float dropped[4] = {1, 0, 0, 0};
    assert_memory_equal(x, dropped, sizeof dropped);
    assert_int_equal(apply_f32("x:drop_tail:n=99", x, NULL, 4), 1);
    assert_int_equal(apply_f32("x:drop_tail:n=0", x, NULL, 4), -1);
}

/* Each kind of many elements: what a row of 0, 1, 2, ... becomes. */
static void test_kinds_of_many(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n, n_columns;
        float expected[8];
    } rows[] = {
        {"x:shifted_tail:n=3", 5, 0, {0, 1, 4, 2, 3}},
        {"x:recycled_tail:n=2", 5, 0, {0, 1, 2, 0, 1}},
        {"x:partial_tile:tile=2", 6, 3, {0, 1, 0, 3, 4, 0}},
        {"x:partial_tile:tile=3", 6, 3, {0, 1, 2, 3, 4, 5}},
        {"x:partial_tile:tile=32", 3, 3, {0, 0, 0}},
        {"x:row_tail:from=1", 6, 3, {0, 0, 0, 3, 0, 0}},
        {"x:stuck_lane:lane=1:lanes=3", 8, 0, {0, 1, 2, 3, 1, 5, 6, 1}},
        {"x:two_runs", 4, 0, {0, 2, 1, 3}},
        {"x:two_runs", 5, 0, {0, 2, 4, 1, 3}},
        {"x:scale:factor=10:index=-1", 4, 0, {0, 1, 2, 30}},
        {"x:scale:factor=10:lane=1:lanes=2", 4, 0, {0, 10, 2, 30}},
        {"x:scale:factor=10:tile=1:tile_size=2", 5, 0, {0, 1, 20, 30, 4}},
        {"x:constant:value=9:tile=9", 3, 0, {0, 1, 2}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        float x[8], before[8];
        for (int k = 0; k < 8; k++)
            x[k] = before[k] = (float)k;
        const usc_sim_fault f = planted(rows[i].text);
        const usc_sim_elements e = {USC_F32, x, NULL, rows[i].n, rows[i].n_columns};
        const int changed = usc_sim_fault_apply(&f, &e);
        if (memcmp(x, rows[i].expected, rows[i].n * sizeof x[0]) != 0)
            fail_msg("%s: %g %g %g %g %g", rows[i].text, (double)x[0], (double)x[1],
                     (double)x[2], (double)x[3], (double)x[4]);
        if ((memcmp(x, before, sizeof x) != 0) != (changed > 0))
            fail_msg("%s: says %d", rows[i].text, changed);
    }
}

static void test_integers_and_booleans_that_are_read(void **state)
{
    (void)state;
    int64_t at[4] = {0, 3, 1, 2};
    const int64_t off[4] = {1, 3, 2, 3};
    uint8_t mask[4] = {1, 0, 0, 1};
    const uint8_t turned[4] = {1, 1, 0, 0};
    usc_sim_fault f = planted("x:index_shifted");
    assert_int_equal(apply(&f, USC_I64, at, 4), 1);
    assert_memory_equal(at, off, sizeof at);
    assert_int_equal(apply(&f, USC_BOOL, mask, 4), -1);
    f = planted("x:mask_shifted");
    assert_int_equal(apply(&f, USC_BOOL, mask, 4), 1);
    assert_memory_equal(mask, turned, sizeof mask);
}

static void test_bits_that_flip_together(void **state)
{
    (void)state;
    float x[2] = {1, 1};
    uint32_t a, b;
    const float one = 1;
    apply_f32("x:bit_flips:index=1:n=3:seed=4", x, NULL, 2);
    memcpy(&a, &x[1], 4);
    memcpy(&b, &one, 4);
    int n = 0;
    for (uint32_t d = a ^ b; d != 0; d >>= 1)
        n += (int)(d & 1);
    assert_int_equal(n, 3);
    assert_memory_equal(&x[0], &one, 4);
}

static void test_other_dtypes(void **state)
{
    (void)state;
    uint16_t half[2] = {0x3c01, 0x4000};
    usc_sim_fault f = planted("x:bf16_output");
    assert_int_equal(apply(&f, USC_F16, half, 2), 1);
    assert_int_equal(half[0], 0x3c00);
    double d[300];
    for (int i = 0; i < 300; i++)
        d[i] = 1.0 + 0x1p-40;
    assert_int_equal(apply(&f, USC_F64, d, 300), 1);
    for (int i = 0; i < 300; i++)
        assert_true(d[i] <= 1.0);

    int64_t integers[3] = {1, 2, 3};
    assert_int_equal(apply(&f, USC_I64, integers, 3), -1);
    f = planted("x:tf32");
    assert_int_equal(apply(&f, USC_F64, d, 300), -1);
    f = planted("x:swap_two");
    assert_int_equal(apply(&f, USC_I64, integers, 3), 1);
    assert_int_equal(integers[0], 2);
    assert_int_equal(apply(&f, USC_DTYPE_NONE, integers, 3), -1);
    assert_int_equal(apply(&f, USC_I64, integers, 0), -1);
    f = planted("x:crash");
    assert_int_equal(apply(&f, USC_F64, d, 300), -1);
}

static void test_crash_is_a_segmentation_fault(void **state)
{
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        usc_sim_crash();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

#define TEST(name) cmocka_unit_test_teardown(name, clear)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_text_form),
        TEST(test_several_are_planted_or_none),
        TEST(test_bad_text_is_refused),
        TEST(test_only_matching_operators_are_hit),
        TEST(test_nth_and_every),
        TEST(test_probability_repeats_with_its_seed),
        TEST(test_remove_and_note),
        TEST(test_every_kind_has_a_row),
        TEST(test_rounding_kinds),
        TEST(test_nan_keeps_its_payload),
        TEST(test_kinds_at_a_place),
        TEST(test_tails),
        TEST(test_kinds_of_many),
        TEST(test_integers_and_booleans_that_are_read),
        TEST(test_bits_that_flip_together),
        TEST(test_other_dtypes),
        TEST(test_crash_is_a_segmentation_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
