// SPDX-License-Identifier: Apache-2.0
// A case answered from callbacks, as a bench without torch does: what it asks, in which
// order, and what it says. The rule itself: test_judge.c; verdicts: tests/py.
#include "case_bench.h"

#include "alloc_probe.h"
#include "judge_fixture.h"

#include <ulpscope/case.h>

#include <stdio.h>

static void what_is_right_is_asked_nothing_more(void **state)
{
    (void)state;
    char text[256];
    bench b = make_bench(USC_F32);
    assert_int_equal(judged(&b, text, sizeof text).verdict, USC_VERDICT_PASS);
    assert_string_equal(b.asked, "reference dtype ");
    b.o.captured = "float32";
    assert_int_equal(judged(&b, text, sizeof text).verdict, USC_VERDICT_PASS);
    assert_string_equal(b.asked, "reference ");
    assert_string_equal(text, "scale is correctly rounded");
    free_bench(&b);
}

static void what_is_accused_is_asked_all_before(void **state)
{
    (void)state;
    char text[256];
    bench b = make_bench(USC_F32);
    b.o.captured = "float32";
    for (int i = 0; i < N; i++)
        fixture_set(&b.f, i, b.f.r[i] * (1 + (i % 2 ? 0x1p-9 : -0x1p-9)));
    const usc_finding f = judged(&b, text, sizeof text);
    assert_int_equal(f.verdict, USC_VERDICT_REDUCED);
    assert_true(f.bits > 7 && f.bits < 10);
    assert_int_equal(f.n_examples, USC_FINDING_EXAMPLES);
    assert_string_equal(b.asked,
                        "reference replay0 replay1 replay2 replay3 fan_in flushed loss "
                        "fan_in flushed noise fan_in flushed steps added writes ");
    assert_non_null(strstr(text, "scale computed with 9"));
    b.o.never_rounds = true; /* then no other rounding can excuse it */
    assert_true(usc_verdict_flagged(judged(&b, text, sizeof text).verdict));
    assert_null(strstr(b.asked, "loss"));
    assert_null(strstr(b.asked, "steps"));
    free_bench(&b);
}

static void an_answer_that_fails_is_unjudged_or_left_out(void **state)
{
    (void)state;
    char text[256];
    bench b = make_bench(USC_F32);
    for (int i = 0; i < N; i++)
        fixture_set(&b.f, i, b.f.r[i] * (1 + 0x1p-9));
    b.fails = "replay";
    assert_int_equal(judged(&b, text, sizeof text).verdict, USC_VERDICT_UNJUDGED);
    assert_string_equal(text, "scale is unjudged: no reference: no such kernel");
    b.fails = "loss";
    assert_true(usc_verdict_flagged(judged(&b, text, sizeof text).verdict));
    free_bench(&b);
}

/* float32 with another function at one element of ten; what is asked of it. */
static usc_finding judged_apart(bench *b, char *text, size_t size)
{
    for (int i = 0; i < N; i++) {
        if (i % 10 == 0) b->f.y[i] = (float)(b->f.r[i] * 1.01);
        fixture_set(&b->f, i, b->f.r[i] * (1 + 0x1p-9));
    }
    return judged(b, text, size);
}

static void a_yardstick_of_another_function_is_none(void **state)
{
    (void)state;
    char text[256];
    bench b = make_bench(USC_F32);
    b.o.captured = "float32";
    assert_int_equal(judged_apart(&b, text, sizeof text).verdict, USC_VERDICT_UNJUDGED);
    assert_non_null(strstr(text, "compute another function"));
    assert_string_equal(b.asked, "reference functions functions functions functions "
                                 "rounded overflows ");
    b.overflows = true; /* which an excuse knows */
    (void)judged_apart(&b, text, sizeof text);
    assert_null(strstr(text, "compute another function"));
    b.overflows = false;
    b.moves = 0.01; /* the slope explains it */
    assert_true(usc_verdict_flagged(judged_apart(&b, text, sizeof text).verdict));
    assert_non_null(strstr(b.asked, "reference functions replay0"));
    b.moves = 0;
    b.o.two_functions = true; /* whoever judges later knows */
    for (int i = 0; i < N; i++)
        b.f.y[i] = (float)b.f.r[i];
    assert_int_equal(judged(&b, text, sizeof text).verdict, USC_VERDICT_UNJUDGED);
    assert_string_equal(b.asked, "reference ");
    free_bench(&b);
}

static void another_dtype_is_wrong(void **state)
{
    (void)state;
    char text[256];
    bench b = make_bench(USC_F32);
    b.o.captured = b.dtype = "float16";
    assert_int_equal(judged(&b, text, sizeof text).verdict, USC_VERDICT_WRONG);
    assert_string_equal(text, "scale is wrong: dtype float32 where the operator gives "
                              "float16");
    free_bench(&b);
}

enum { ROWS = 3, WIDTH = 4 };

/* The case of an index output; *verdict and the text of its finding where it is OK. */
static usc_status judge_index(int64_t *got, const usc_alloc *alloc, usc_verdict *verdict,
                              char *text, size_t size)
{
    float values[ROWS * WIDTH] = {1, 5, 5, 2, 7, 7, 7, 0, 3, 1, 2, 0};
    int64_t right[ROWS] = {1, 0, 0};
    const int64_t sizes[2] = {ROWS, WIDTH};
    usc_tensor values_view;
    assert_int_equal(usc_tensor_make(&values_view, values, USC_F32, 2, sizes, NULL),
                     USC_OK);
    const usc_choice choice = {.values = &values_view, .dim = 1, .once = true};
    const usc_tensor device = view(got, USC_I64, ROWS);
    const usc_tensor reference = view(right, USC_I64, ROWS);
    const usc_case_output o = {.path = "out[1]", .device = &device};
    const usc_case_options options = {.alloc = alloc};
    usc_case *c = NULL;
    usc_want asked;
    usc_status st = usc_case_open(&options, &c, NULL);
    if (st == USC_OK) st = usc_case_begin(c, &o, NULL);
    while (st == USC_OK && (st = usc_case_next(c, &asked, NULL)) == USC_OK &&
           asked.kind != USC_WANT_NOTHING) {
        usc_given given = {.form = USC_GIVEN_AS_ASKED, .a = &reference};
        if (asked.kind == USC_WANT_CHOICE)
            given = (usc_given){.form = USC_GIVEN_AS_ASKED, .choice = &choice};
        else if (asked.kind != USC_WANT_REFERENCE && asked.kind != USC_WANT_NATIVE)
            given = (usc_given){.form = USC_GIVEN_NONE};
        st = usc_case_give(c, &given, NULL);
    }
    const usc_finding *f = st == USC_OK ? usc_findings_at(usc_case_findings(c), 0) : NULL;
    if (f != NULL) {
        *verdict = f->verdict;
        (void)snprintf(text, size, "%s", f->n_notes > 0 ? f->notes[0] : f->reason);
    }
    usc_case_close(c);
    return st;
}

/* Indices: an equal value chosen elsewhere is right, another value is not. */
static void a_tie_may_be_broken_otherwise(void **state)
{
    (void)state;
    char text[64];
    usc_verdict verdict;
    int64_t got[ROWS] = {2, 2, 0};
    assert_int_equal(judge_index(got, NULL, &verdict, text, sizeof text), USC_OK);
    assert_int_equal(verdict, USC_VERDICT_PASS);
    assert_string_equal(text, "ties broken otherwise");
    got[2] = 1;
    assert_int_equal(judge_index(got, NULL, &verdict, text, sizeof text), USC_OK);
    assert_int_equal(verdict, USC_VERDICT_WRONG);
    assert_string_equal(text, "1 elements differ");
}

static void answers_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    usc_case *c = NULL;
    usc_want want;
    usc_error err;
    fixture f = fixture_make(USC_F32, N);
    const usc_tensor device = view(f.d, USC_F32, N);
    const usc_case_output o = {.path = "out[0]", .device = &device};
    const usc_given none = {.form = USC_GIVEN_NONE};
    assert_int_equal(usc_case_open(NULL, &c, &err), USC_OK);
    assert_int_equal(usc_case_give(c, &none, &err), USC_E_ARG);
    assert_int_equal(usc_case_begin(c, &o, &err), USC_OK);
    assert_int_equal(usc_case_next(c, &want, &err), USC_OK);
    assert_int_equal(want.kind, USC_WANT_REFERENCE);
    assert_int_equal(usc_case_next(c, &want, &err), USC_OK); /* asks again */
    assert_int_equal(want.kind, USC_WANT_REFERENCE);
    assert_int_equal(usc_case_give(c, &none, &err), USC_OK);
    assert_int_equal(usc_case_next(c, &want, &err), USC_OK);
    assert_int_equal(want.kind, USC_WANT_NOTHING);
    assert_int_equal(usc_findings_at(usc_case_findings(c), 0)->verdict,
                     USC_VERDICT_UNJUDGED);
    assert_int_equal(usc_case_give(c, &none, &err), USC_E_ARG);
    usc_case_close(c);
    usc_case_close(NULL);
    fixture_free(&f);
}

/* Every n-th request fails, and every one behind the n-th: USC_E_NOMEM, nothing leaks. */
static void refuse_memory(bench *b)
{
    char text[256];
    usc_finding f;
    for (int mode = 0; mode < 4; mode++) {
        b->rich = mode >= 2;
        const usc_verdict right = judged(b, text, sizeof text).verdict;
        for (int fail_at = 1;; fail_at++) {
            alloc_probe probe;
            const usc_alloc *alloc = alloc_probe_bind(&probe, fail_at);
            probe.fail_after = mode % 2 != 0;
            const usc_status st = judge_with(b, alloc, &f, text, sizeof text);
            assert_int_equal(probe.live_bytes, 0);
            assert_int_equal(probe.n_wrong_sizes, 0);
            if (st == USC_OK) break;
            assert_int_equal(st, USC_E_NOMEM);
            assert_true(fail_at < 500);
        }
        assert_int_equal(f.verdict, right);
    }
}

static void no_memory_is_said_and_nothing_leaks(void **state)
{
    (void)state;
    bench b = make_bench(USC_F32), narrow = rounded_to_float16();
    b.o.gradient = b.o.linear = true;
    for (int i = 0; i < N; i++)
        fixture_set(&b.f, i, b.f.r[i] * (1 + (i % 2 ? 0x1p-9 : -0x1p-9)));
    refuse_memory(&b);
    refuse_memory(&narrow);
    free_bench(&narrow);
    free_bench(&b);
}

static void an_index_without_memory_is_no_verdict(void **state)
{
    (void)state;
    int64_t got[ROWS] = {2, 2, 1};
    for (int fail_at = 1;; fail_at++) {
        alloc_probe probe;
        char text[64] = "";
        usc_verdict verdict = USC_VERDICT_PASS;
        const usc_status st = judge_index(got, alloc_probe_bind(&probe, fail_at),
                                          &verdict, text, sizeof text);
        assert_int_equal(probe.live_bytes, 0);
        assert_int_equal(probe.n_wrong_sizes, 0);
        if (st != USC_OK) {
            assert_int_equal(st, USC_E_NOMEM);
            assert_true(fail_at < 100);
            continue;
        }
        assert_int_equal(verdict, USC_VERDICT_WRONG);
        assert_string_equal(text, "1 elements differ");
        break;
    }
}

static void every_want_and_excuse_has_a_name(void **state)
{
    (void)state;
    for (int i = 0; i < USC_N_WANTS; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(usc_want_text((usc_want_kind)i),
                                    usc_want_text((usc_want_kind)k));
    assert_string_equal(usc_want_text(USC_N_WANTS), "unknown");
    for (int i = 0; i < USC_N_EXCUSES; i++) {
        const usc_excuse_info *info = usc_excuse_info_of((usc_excuse)i);
        assert_true(info->most > 0 && info->most <= 1 && info->words[0] != '\0');
    }
    assert_null(usc_excuse_info_of(USC_N_EXCUSES));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_right_is_asked_nothing_more),
        cmocka_unit_test(what_is_accused_is_asked_all_before),
        cmocka_unit_test(an_answer_that_fails_is_unjudged_or_left_out),
        cmocka_unit_test(a_yardstick_of_another_function_is_none),
        cmocka_unit_test(another_dtype_is_wrong),
        cmocka_unit_test(a_tie_may_be_broken_otherwise),
        cmocka_unit_test(answers_that_do_not_fit_are_refused),
        cmocka_unit_test(no_memory_is_said_and_nothing_leaks),
        cmocka_unit_test(an_index_without_memory_is_no_verdict),
        cmocka_unit_test(every_want_and_excuse_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
