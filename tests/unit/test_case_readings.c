// SPDX-License-Identifier: Apache-2.0
// A case by another reading of the call, by what nobody promises, by own steps, in
// narrower formats.
#include "case_bench.h"

#include "alloc_probe.h"
#include "judge_fixture.h"

#include <ulpscope/case.h>

/* ---- other readings of the call ---- */

/* 1 % more of all results, which another reading gives, or another one. */
static void what_passes_by_another_reading_stands(void **state)
{
    (void)state;
    char text[256];
    bench b = make_bench(USC_F32);
    b.o.captured = "float32";
    b.o.readings = true;
    for (int i = 0; i < N; i++)
        fixture_set(&b.f, i, b.f.r[i] * 1.01);
    assert_true(usc_verdict_flagged(judged(&b, text, sizeof text).verdict));
    assert_non_null(strstr(b.asked, "writes unwritten reading "));
    b.other = 1.01;
    const usc_finding f = judged(&b, text, sizeof text);
    assert_int_equal(f.verdict, USC_VERDICT_PASS);
    assert_int_equal(f.n_notes, 1);
    b.other = 1.02; /* what is accused by both is told of the call's own */
    const usc_finding own = judged(&b, text, sizeof text);
    assert_true(usc_verdict_flagged(own.verdict));
    assert_true(own.n_notes == 0 && own.judgement.n_mismatch > 0);
    assert_true(own.examples[0].reference == b.f.r[own.examples[0].index]);
    b.other = 1; /* the very same is not judged again */
    assert_true(usc_verdict_flagged(judged(&b, text, sizeof text).verdict));
    assert_non_null(strstr(b.asked, "writes unwritten reading reading "));
    free_bench(&b);
}

/* One element is as another reading has it, all others as the call's own. */
static void readings_are_not_mixed(void **state)
{
    (void)state;
    char text[256];
    bench b = make_bench(USC_F32);
    b.o.readings = true;
    b.other = 1.01;
    for (int i = 0; i < N; i++)
        fixture_set(&b.f, i, b.f.r[i] * (i == 5 ? 1.01 : 1));
    assert_true(usc_verdict_flagged(judged(&b, text, sizeof text).verdict));
    free_bench(&b);
}

/* What is found where three elements hold `value`, the last of which is marked where
 * `all` are. */
static usc_finding judged_marked(bench *b, double value, bool all)
{
    char text[256];
    for (int i = 0; i < N; i++)
        fixture_set(&b->f, i, b->f.r[i]);
    for (int i = 10; i < 13; i++) {
        fixture_set(&b->f, i, value);
        b->marks[i] = i < 12 || all;
    }
    return judged(b, text, sizeof text);
}

static void what_nobody_writes_may_hold_anything(void **state)
{
    (void)state;
    bench b = make_bench(USC_F32);
    b.o.readings = true;
    b.excepts = USC_WANT_UNWRITTEN;
    for (int i = 0; i < 2; i++) {
        const usc_finding f = judged_marked(&b, i ? (double)NAN : 1e30, true);
        assert_int_equal(f.verdict, USC_VERDICT_PASS);
        assert_int_equal(f.excused[USC_EXCUSE_UNWRITTEN], 3);
    }
    const usc_finding f = judged_marked(&b, 1e30, false);
    assert_true(usc_verdict_flagged(f.verdict)); /* and told of without the others */
    assert_true(f.excused[USC_EXCUSE_UNWRITTEN] == 2 && f.examples[0].index == 12);
    free_bench(&b);
}

static void where_something_hidden_reaches_nan_is_as_good_and_nothing_else(void **state)
{
    (void)state;
    bench b = make_bench(USC_F32);
    b.o.readings = true;
    b.excepts = USC_WANT_UNREAD;
    const usc_finding f = judged_marked(&b, (double)NAN, true);
    assert_int_equal(f.verdict, USC_VERDICT_PASS);
    assert_int_equal(f.excused[USC_EXCUSE_MASKED], 3);
    assert_true(usc_verdict_flagged(judged_marked(&b, (double)NAN, false).verdict));
    assert_true(usc_verdict_flagged(judged_marked(&b, (double)INFINITY, true).verdict));
    assert_true(usc_verdict_flagged(judged_marked(&b, 1e30, true).verdict));
    free_bench(&b);
}

static void what_the_cpu_refuses_is_undefined_and_no_pass(void **state)
{
    (void)state;
    bench b = make_bench(USC_F32);
    b.excepts = USC_WANT_REFERENCE;
    const usc_finding f = judged_marked(&b, 1e30, true);
    assert_int_equal(f.verdict, USC_VERDICT_UNDEFINED);
    assert_int_equal(f.excused[USC_EXCUSE_BAD_INDEX], 3);
    const usc_finding wrong = judged_marked(&b, 1e30, false);
    assert_true(usc_verdict_flagged(wrong.verdict));
    assert_int_equal(wrong.excused[USC_EXCUSE_BAD_INDEX], 2);
    memset(b.marks, 0, sizeof b.marks);
    for (int i = 10; i < 13; i++)
        fixture_set(&b.f, i, b.f.r[i]);
    char text[256];
    assert_int_equal(judged(&b, text, sizeof text).verdict, USC_VERDICT_PASS);
    free_bench(&b);
}

/* Between R and 1.1 R lies what the steps give; 1.2 R does not, nor may all of it lean to
 * one side of the middle. */
static void what_own_steps_give_passes_and_nothing_beyond(void **state)
{
    (void)state;
    static const double factors[] = {1.05, 1.09, 1.2, 0.9, 1.09};
    bench b = make_bench(USC_BF16);
    char text[256];
    b.o.readings = true;
    for (int k = 0; k < 5; k++) {
        b.steps = 1.1;
        for (int i = 0; i < N; i++) {
            const double other = k == 1 && i % 2 == 0 ? 1.02 : factors[k];
            fixture_set(&b.f, i, b.f.r[i] * (i < 200 ? other : 1));
        }
        const usc_finding f = judged(&b, text, sizeof text);
        assert_int_equal(usc_verdict_flagged(f.verdict), k > 1);
        assert_true(k > 1 || (f.excused[USC_EXCUSE_OWN_STEPS] > 190 && f.n_notes > 0));
        b.steps = 0;
        assert_true(usc_verdict_flagged(judged(&b, text, sizeof text).verdict));
    }
    free_bench(&b);
}

/* Elements that lie just where a run puts them pass; one step beside they do not, nor
 * where there is no run. A list of a pack admits what runs of a check do. */
static void what_a_run_puts_elsewhere_passes_and_nothing_beside(void **state)
{
    (void)state;
    static const struct {
        usc_dtype dtype;
        double step;
    } rows[] = {{USC_F32, 0x1p-18}, {USC_BF16, 0x1p-7}, {USC_F16, 0x1p-10}};
    static const double factors[] = {1.25, 1.5, 0.5};
    char text[256];
    for (int k = 0; k < 3; k++)
        for (int f = 0; f < 3; f++)
            for (int listed = 0; listed < 2; listed++)
                for (int beside = 0; beside < 3; beside++) {
                    bench b = make_bench(rows[k].dtype);
                    const double by =
                        beside == 0 ? 1 : 1 + (2 * beside - 3) * rows[k].step;
                    b.listed = listed;
                    for (int i = 0; i < LED; i++)
                        fixture_set(&b.f, i, b.f.r[i] * factors[f] * by);
                    assert_true(
                        usc_verdict_flagged(judged(&b, text, sizeof text).verdict));
                    b.led = factors[f];
                    const usc_finding said = judged(&b, text, sizeof text);
                    assert_int_equal(usc_verdict_flagged(said.verdict), beside > 0);
                    if (beside == 0) assert_int_equal(said.excused[USC_EXCUSE_STEP], LED);
                    free_bench(&b);
                }
}

/* Errors as runs have them pass. As many that are twice as large, that have one sign or
 * are the same share everywhere do not, nor one that no run is near. */
static void what_a_callable_rounds_between_its_operators_passes(void **state)
{
    (void)state;
    static const struct {
        double times, share, last;
        bool flagged;
    } rows[] = {{1, 0, 1, false},     {0.5, 0, 1, false},     {2.5, 0, 1, true},
                {0, 0x1p-5, 1, true}, {0.5, 0x1p-6, 1, true}, {1, 0, 1.25, true}};
    bench b = make_bench(USC_BF16);
    char text[256];
    b.o.readings = true;
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        b.chain = 0x1p-5;
        for (int i = 0; i < N; i++)
            fixture_set(
                &b.f, i,
                b.f.r[i] * (1 + rows[k].times * b.chain * chance(i, -2) + rows[k].share) *
                    (i == 77 ? rows[k].last : 1));
        const usc_finding f = judged(&b, text, sizeof text);
        assert_int_equal(usc_verdict_flagged(f.verdict), rows[k].flagged);
        assert_int_equal(f.excused[USC_EXCUSE_ROUNDED_BETWEEN] > 100, !rows[k].flagged);
        b.chain = 0;
        assert_true(usc_verdict_flagged(judged(&b, text, sizeof text).verdict));
    }
    free_bench(&b);
}

static void what_a_rounded_result_explains_is_reduced(void **state)
{
    (void)state;
    char text[256];
    bench b = rounded_to_float16();
    const usc_finding f = judged(&b, text, sizeof text);
    assert_int_equal(f.verdict, USC_VERDICT_REDUCED);
    assert_int_equal(f.n_notes, 1);
    assert_non_null(strstr(b.asked, "narrow ")); /* of the formats before it */
    b.o.narrow = false;
    assert_int_equal(judged(&b, text, sizeof text).verdict, USC_VERDICT_WRONG);
    assert_null(strstr(b.asked, "narrow"));
    free_bench(&b);
}

/* Another mistake besides, on few elements, and none but another on all of them. */
static void what_it_leaves_open_stays_wrong(void **state)
{
    (void)state;
    char text[256];
    bench b = rounded_to_float16();
    for (int i = 1; i < 8; i++)
        fixture_set(&b.f, i, 3 * b.f.r[i]);
    const usc_finding few = judged(&b, text, sizeof text);
    assert_int_equal(few.verdict, USC_VERDICT_WRONG);
    assert_int_equal(few.n_notes, 0);
    for (int i = 0; i < N; i++)
        fixture_set(&b.f, i, 1.3 * b.f.r[i]);
    assert_int_equal(judged(&b, text, sizeof text).verdict, USC_VERDICT_WRONG);
    free_bench(&b);
}

static void narrow_runs_have_names(void **state)
{
    (void)state;
    const char *format, *how;
    int n = 0, n_own = 0;
    for (; (how = usc_narrow_how(n, &format)) != NULL; n++)
        n_own += strcmp(how, "kernel") == 0;
    assert_int_equal(n, 15);
    assert_int_equal(n_own, 3);
    assert_null(usc_narrow_how(-1, &format));
    assert_string_equal(usc_narrow_how(2, &format), "inputs");
    assert_string_equal(format, "TF32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_passes_by_another_reading_stands),
        cmocka_unit_test(readings_are_not_mixed),
        cmocka_unit_test(what_nobody_writes_may_hold_anything),
        cmocka_unit_test(what_own_steps_give_passes_and_nothing_beyond),
        cmocka_unit_test(what_a_run_puts_elsewhere_passes_and_nothing_beside),
        cmocka_unit_test(what_a_callable_rounds_between_its_operators_passes),
        cmocka_unit_test(what_the_cpu_refuses_is_undefined_and_no_pass),
        cmocka_unit_test(where_something_hidden_reaches_nan_is_as_good_and_nothing_else),
        cmocka_unit_test(what_a_rounded_result_explains_is_reduced),
        cmocka_unit_test(what_it_leaves_open_stays_wrong),
        cmocka_unit_test(narrow_runs_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
