// SPDX-License-Identifier: Apache-2.0
// What findings come to: which decides, which reading, answer or piece stands, what is
// said of them, the row. Each rule has a case that must pass and one that must not.
#include "alloc_probe.h"

#include <ulpscope/finding.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static usc_findings *opened(void)
{
    usc_findings *f = NULL;
    assert_int_equal(usc_findings_open(NULL, &f, NULL), USC_OK);
    return f;
}

static void add(usc_findings *f, const char *path, usc_verdict verdict, double bits,
                int64_t n)
{
    const usc_finding one = {.path = path,
                             .verdict = verdict,
                             .reason = "why",
                             .bits = bits,
                             .yardstick_bits = 24,
                             .n = n,
                             .ndim = 1,
                             .sizes = {n}};
    assert_int_equal(usc_findings_add(f, &one, NULL), USC_OK);
}

/* An output in which float32 keeps no bits. */
static void add_ill(usc_findings *f, const char *path, int64_t n)
{
    const usc_finding one = {.path = path,
                             .verdict = USC_VERDICT_UNJUDGED,
                             .reason = "ill-conditioned",
                             .bits = 1,
                             .n = n,
                             .numbers = USC_NUMBERS_ALL,
                             .judgement = {.n_ill = n}};
    assert_int_equal(usc_findings_add(f, &one, NULL), USC_OK);
}

static const char *worst_path(const usc_findings *f)
{
    return usc_findings_worst(f)->path;
}

static void the_worst_verdict_decides_then_fewer_bits(void **state)
{
    (void)state;
    usc_findings *f = opened();
    assert_null(usc_findings_worst(f));
    add(f, "a", USC_VERDICT_PASS, 3, 1);
    add(f, "b", USC_VERDICT_PASS, (double)NAN, 1);
    assert_string_equal(worst_path(f), "a");
    add(f, "c", USC_VERDICT_REDUCED, 9, 1);
    add(f, "d", USC_VERDICT_REDUCED, 8, 1);
    add(f, "e", USC_VERDICT_UNJUDGED, 0, 1);
    assert_string_equal(worst_path(f), "d");
    usc_findings_close(f);
}

static void outputs_without_bits_stand_aside_up_to_half(void **state)
{
    (void)state;
    usc_findings *f = opened();
    add(f, "out[0]", USC_VERDICT_PASS, 20, 10);
    assert_string_equal(usc_findings_left_out(f), "");
    add_ill(f, "out[1]", 10);
    assert_string_equal(worst_path(f), "out[0]");
    assert_string_equal(usc_findings_left_out(f), "out[1]: ill-conditioned");
    add_ill(f, "out[2]", 1); /* more than half now */
    assert_string_equal(worst_path(f), "out[1]");
    assert_string_equal(usc_findings_left_out(f), ""); /* the verdict says it */
    add(f, "out[3]", USC_VERDICT_WRONG, 20, 10);
    assert_string_equal(usc_findings_left_out(f),
                        "out[1]: ill-conditioned; out[2]: ill-conditioned");
    usc_findings_close(f);
}

static void what_was_left_out_is_in_the_row(void **state)
{
    (void)state;
    usc_findings *f = opened();
    usc_result_row row = {0};
    const usc_said said = {.op = "aten::x", .verdict = USC_VERDICT_PASS};
    add(f, "out[0]", USC_VERDICT_PASS, 20, 10);
    add_ill(f, "out[1]", 10);
    assert_int_equal(usc_findings_row(f, &said, &row, NULL), USC_OK);
    assert_string_equal(row.verdict, "pass");
    assert_non_null(strstr(row.sentence, "; not judged: out[1]: ill-conditioned"));
    assert_int_equal(row.n_metrics, 1);
    assert_string_equal(row.metrics[0].name, "not_judged");
    assert_int_equal(row.metrics[0].output, -1);
    assert_string_equal(row.metrics[0].text, "out[1]: ill-conditioned");
    usc_findings_close(f);
}

static void draws_lean_on_the_call_without_chance(void **state)
{
    (void)state;
    usc_calmed got;
    usc_findings *f = opened(), *calm = opened(), *wrong = opened();
    add(f, "out[0]", USC_VERDICT_PASS, (double)NAN, 100);
    assert_false(usc_findings_want_calm(f)); /* by its law, say */
    assert_int_equal(usc_findings_excuse(f, 0, USC_EXCUSE_SPREAD, 100, NULL), USC_OK);
    assert_true(usc_findings_want_calm(f));
    add(wrong, "out[0]", USC_VERDICT_WRONG, 0, 100);
    assert_int_equal(
        usc_findings_calmed(f, wrong, USC_VERDICT_WRONG, "dropout_p=0", &got, NULL),
        USC_OK);
    assert_true(got.accuses && !got.taken);
    assert_string_equal(got.note, "seen in the same call with dropout_p=0");
    assert_int_equal(
        usc_findings_calmed(f, calm, USC_VERDICT_UNJUDGED, "p=0", &got, NULL), USC_OK);
    assert_true(!got.accuses && !got.taken && got.note[0] == '\0'); /* nothing is found */
    add(calm, "out[0]", USC_VERDICT_PASS, 21, 100);
    assert_int_equal(usc_findings_calmed(f, calm, USC_VERDICT_PASS, "p=0", &got, NULL),
                     USC_OK);
    assert_true(got.taken && !got.accuses);
    assert_non_null(strstr(got.note, "bits are those of the same call with p=0"));
    assert_int_equal(usc_findings_count(f), 2);
    assert_true(usc_findings_worst(f)->bits == 21);
    assert_int_equal(usc_findings_at(f, 1)->excused[USC_EXCUSE_SPREAD], 0);
    add(f, "out[1]", USC_VERDICT_UNJUDGED, 24, 3); /* and not for too few draws */
    assert_int_equal(usc_findings_calmed(f, calm, USC_VERDICT_PASS, "p=0", &got, NULL),
                     USC_OK);
    assert_false(got.taken);
    usc_findings_close(wrong);
    usc_findings_close(calm);
    usc_findings_close(f);
}

static void draws_that_nobody_admits_acquit_nobody(void **state)
{
    (void)state;
    usc_findings *f = opened();
    add(f, "a", USC_VERDICT_PASS, (double)NAN, 8);
    add(f, "b", USC_VERDICT_PASS, 20, 8);
    assert_int_equal(usc_findings_unsaid(f, NULL), USC_OK);
    assert_int_equal(usc_findings_at(f, 0)->verdict, USC_VERDICT_UNJUDGED);
    assert_non_null(strstr(usc_findings_at(f, 0)->reason, "random numbers: why"));
    assert_int_equal(usc_findings_at(f, 1)->verdict, USC_VERDICT_PASS);
    usc_findings_close(f);
}

static void a_whole_has_the_verdict_of_its_worst_piece(void **state)
{
    (void)state;
    int decides = -1;
    usc_findings *pieces = opened(), *f = opened();
    for (int i = 0; i < 3; i++)
        add(pieces, "out[0]", i == 1 ? USC_VERDICT_WRONG : USC_VERDICT_PASS, 20 - i, 4);
    assert_int_equal(usc_findings_excuse(pieces, 0, USC_EXCUSE_STEP, 1, NULL), USC_OK);
    assert_int_equal(usc_findings_excuse(pieces, 2, USC_EXCUSE_STEP, 2, NULL), USC_OK);
    const usc_finding *parts[3];
    for (int i = 0; i < 3; i++)
        parts[i] = usc_findings_at(pieces, i);
    const usc_whole whole = {
        .parts = parts, .n_parts = 3, .n = 12, .ndim = 2, .sizes = {3, 4}};
    assert_int_equal(usc_findings_join(f, &whole, &decides, NULL), USC_OK);
    assert_int_equal(decides, 1);
    const usc_finding *one = usc_findings_at(f, 0);
    assert_int_equal(one->verdict, USC_VERDICT_WRONG);
    assert_int_equal(one->n, 12);
    assert_int_equal(one->excused[USC_EXCUSE_STEP], 3);
    const usc_whole none = {.parts = parts};
    assert_int_equal(usc_findings_join(f, &none, &decides, NULL), USC_E_ARG);
    usc_findings_close(pieces);
    usc_findings_close(f);
}

static void an_output_is_no_worse_than_the_cpus_own(void **state)
{
    (void)state;
    usc_finding own = {.verdict = USC_VERDICT_REDUCED, .bits = 8};
    own.numbers = USC_NUMBERS_ALL;
    own.judgement.max = 100;
    usc_finding device = own;
    assert_true(usc_finding_no_worse(&device, &own));
    device.judgement.max = 401; /* one element far worse */
    assert_false(usc_finding_no_worse(&device, &own));
    device.judgement.max = 100;
    device.bits = 7.4; /* fewer bits */
    assert_false(usc_finding_no_worse(&device, &own));
    device.bits = 8;
    device.verdict = USC_VERDICT_WRONG; /* a worse verdict */
    assert_false(usc_finding_no_worse(&device, &own));
    device.verdict = own.verdict = USC_VERDICT_PASS; /* nothing is accused */
    assert_false(usc_finding_no_worse(&device, &own));
}

static void answers_that_differ_are_settled(void **state)
{
    (void)state;
    usc_settled out;
    const usc_finding bad = {.verdict = USC_VERDICT_WRONG, .reason = "off by much"};
    const usc_finding good = {.verdict = USC_VERDICT_PASS, .bits = 22, .reason = ""};
    const usc_finding less = {.verdict = USC_VERDICT_PASS, .bits = 20.5, .reason = ""};
    usc_said_of said[3] = {{USC_RUN_FIRST, USC_VERDICT_PASS, &good, ""},
                           {USC_RUN_AGAIN, USC_VERDICT_PASS, &less, ""}};
    usc_settle_answers(said, 2, &out);
    assert_int_equal(out.verdict, USC_VERDICT_PASS);
    assert_string_equal(out.note,
                        "differs from run to run, within rounding: 20.5 to 22.0 "
                        "effective bits in 2 answers");
    said[1] = (usc_said_of){USC_RUN_AGAIN, USC_VERDICT_WRONG, &bad, ""};
    usc_settle_answers(said, 2, &out);
    assert_int_equal(out.verdict, USC_VERDICT_INTERMITTENT);
    assert_int_equal(out.i, 1);
    assert_string_equal(out.reason, "another run of the same call is wrong, one run "
                                    "passes: off by much");
    said[0] = (usc_said_of){USC_RUN_REPLAY, USC_VERDICT_PASS, &good, ""};
    said[1].kind = USC_RUN_CAPTURED;
    usc_settle_answers(said, 2, &out);
    assert_string_equal(out.reason,
                        "the captured run is wrong, the replay passes: off by much");
    assert_non_null(strstr(out.note, "may have changed since the capture"));
    said[0] = (usc_said_of){USC_RUN_FIRST, USC_VERDICT_WRONG, &bad, ""};
    usc_settle_answers(said, 2, &out); /* none is acceptable */
    assert_int_equal(out.verdict, USC_VERDICT_WRONG);
    assert_string_equal(out.note, "differs from run to run");
}

static void only_what_is_marked_differs(void **state)
{
    (void)state;
    float got[6] = {1, 2, 3, 4, 5, 6};
    double want[6] = {1, 2, 0, 4, 0, 6};
    uint8_t marks[6] = {0, 0, 1, 0, 1, 0};
    const int64_t sizes[2] = {2, 3};
    usc_tensor t[3];
    assert_int_equal(usc_tensor_make(&t[0], got, USC_F32, 2, sizes, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&t[1], want, USC_F64, 2, sizes, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&t[2], marks, USC_U8, 2, sizes, NULL), USC_OK);
    usc_findings *f = opened();
    assert_int_equal(usc_findings_differ(f, "out[0]", &t[0], &t[1], &t[2], NULL), USC_OK);
    const usc_finding *one = usc_findings_at(f, 0);
    assert_int_equal(one->verdict, USC_VERDICT_WRONG);
    assert_string_equal(one->reason, "2 elements differ");
    assert_int_equal(one->n_examples, 2);
    assert_int_equal(one->examples[1].index, 4);
    assert_true(one->examples[1].device == 5 && one->examples[1].reference == 0);
    memset(marks, 0, sizeof marks);
    assert_int_equal(usc_findings_differ(f, "out[0]", &t[0], &t[1], &t[2], NULL), USC_OK);
    assert_int_equal(usc_findings_at(f, 1)->verdict, USC_VERDICT_PASS);
    t[2].sizes[0] = 1;
    assert_int_equal(usc_findings_differ(f, "out[0]", &t[0], &t[1], &t[2], NULL),
                     USC_E_SHAPE);
    usc_findings_close(f);
}

static void the_form_of_what_was_given_is_said(void **state)
{
    (void)state;
    usc_findings *f = opened();
    const int64_t sizes[] = {2, 3};
    static const float x[6];
    static const uint16_t low[6];
    usc_tensor got, want, other;
    bool wrong = true;
    assert_int_equal(usc_tensor_make(&got, x, USC_F32, 2, sizes, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&want, x, USC_F32, 1, sizes, NULL), USC_OK);
    assert_int_equal(usc_tensor_make(&other, low, USC_F16, 2, sizes, NULL), USC_OK);
    assert_int_equal(usc_findings_misformed(f, "out[0]", &got, &got, true, &wrong, NULL),
                     USC_OK);
    assert_false(wrong);
    assert_int_equal(
        usc_findings_misformed(f, "out[0]", &got, &other, false, &wrong, NULL), USC_OK);
    assert_true(!wrong && usc_findings_worst(f) == NULL);
    assert_int_equal(
        usc_findings_misformed(f, "out[0]", &got, &other, true, &wrong, NULL), USC_OK);
    assert_true(wrong);
    assert_string_equal(usc_findings_worst(f)->reason,
                        "dtype float32 where the operator gives float16");
    usc_findings_close(f);
    f = opened();
    assert_int_equal(usc_findings_misformed(f, "out[0]", &got, &want, true, &wrong, NULL),
                     USC_OK);
    assert_string_equal(usc_findings_worst(f)->reason, "shape [2, 3] where [2] is right");
    usc_findings_close(f);
    f = opened();
    assert_int_equal(usc_findings_miscounted(f, 1, 2, NULL), USC_OK);
    assert_int_equal(usc_findings_worst(f)->verdict, USC_VERDICT_WRONG);
    assert_string_equal(usc_findings_worst(f)->reason,
                        "1 outputs where the operator has 2");
    usc_findings_close(f);
}

static void what_has_the_cpus_bytes_passes(void **state)
{
    (void)state;
    usc_findings *f = opened();
    usc_finding form = {.path = "out[0]", .n = 4, .ndim = 1, .sizes = {4}};
    assert_int_equal(usc_findings_same(f, &form, 4, 1, NULL), USC_OK);
    assert_int_equal(usc_findings_same(f, &form, 0, 0, NULL), USC_OK);
    assert_int_equal(usc_findings_same(f, &form, 8, 4, NULL), USC_OK);
    form.n = form.sizes[0] = 0;
    assert_int_equal(usc_findings_same(f, &form, 4, 0, NULL), USC_OK);
    const usc_finding *one = usc_findings_at(f, 0);
    assert_true(one->bits == 24 && one->bound);
    assert_string_equal(one->notes[0], "truth is NaN or Inf at 1 of 4 elements");
    assert_false(usc_findings_at(f, 1)->bound);
    assert_true(usc_findings_at(f, 2)->bits == 53);
    assert_string_equal(usc_findings_at(f, 2)->notes[0], "nothing finite to judge");
    assert_true(isnan(usc_findings_at(f, 3)->bits));
    usc_findings_close(f);
}

static const usc_metric *metric(const usc_result_row *row, const char *name)
{
    for (int i = 0; i < row->n_metrics; i++)
        if (strcmp(row->metrics[i].name, name) == 0) return &row->metrics[i];
    return NULL;
}

static void a_row_says_what_its_findings_say(void **state)
{
    (void)state;
    usc_findings *f = opened();
    add(f, "out[0]", USC_VERDICT_WRONG, 2, 6);
    add(f, "out[1]", USC_VERDICT_PASS, 22, 2);
    assert_int_equal(usc_findings_note(f, 1, "noted", NULL), USC_OK);
    assert_int_equal(usc_findings_excuse(f, 0, USC_EXCUSE_STEP, 1, NULL), USC_OK);
    const usc_metric given = {-1, "t_causes", 5, NULL};
    usc_result_row row = {.notes = "own", .metrics = &given, .n_metrics = 1};
    const usc_said said = {.op = "aten::x", .verdict = USC_VERDICT_WRONG};
    assert_int_equal(usc_findings_row(f, &said, &row, NULL), USC_OK);
    assert_string_equal(row.sentence, "aten::x is wrong: why");
    assert_string_equal(row.notes,
                        "1 of 6 elements are excused: a rounding or comparison inside "
                        "may fall either way; noted; own");
    assert_int_equal(row.n_elements, 8);
    assert_string_equal(metric(&row, "sizes")->text, "[6]");
    assert_string_equal(metric(&row, "excuse")->text, "step");
    assert_true(metric(&row, "t_causes")->value == 5);
    assert_null(metric(&row, "reason"));
    usc_result_row bare = {0};
    const usc_said why = {
        .op = "aten::x", .verdict = USC_VERDICT_UNSUPPORTED, .reason = "no kernel"};
    assert_int_equal(usc_findings_row(f, &why, &bare, NULL), USC_OK);
    assert_string_equal(metric(&bare, "reason")->text, "no kernel");
    assert_null(metric(&bare, "sizes")); /* nobody is accused */
    usc_findings_close(f);
}

static usc_status make_row(const usc_alloc *alloc)
{
    usc_findings *f = NULL;
    usc_result_row row = {0};
    const usc_said said = {.op = "aten::x", .verdict = USC_VERDICT_PASS};
    usc_status st = usc_findings_open(alloc, &f, NULL);
    if (st == USC_OK) st = usc_findings_say(f, USC_VERDICT_PASS, "out[0]", "why", NULL);
    for (int i = 0; i < 20 && st == USC_OK; i++) /* beyond the first chunk of memory */
        st = usc_findings_say(f, USC_VERDICT_PASS, "out[1]", "why", NULL);
    if (st == USC_OK) st = usc_findings_row(f, &said, &row, NULL);
    usc_findings_close(f);
    return st;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (int fail_at = 1;; fail_at++) {
        alloc_probe probe;
        const usc_status st = make_row(alloc_probe_bind(&probe, fail_at));
        assert_int_equal(probe.live_bytes, 0);
        assert_int_equal(probe.n_wrong_sizes, 0);
        if (st == USC_OK) break;
        assert_int_equal(st, USC_E_NOMEM);
        assert_true(fail_at < 100);
    }
}

static void excuses_are_found_by_their_codes(void **state)
{
    (void)state;
    for (int i = 0; i < USC_N_EXCUSES; i++)
        assert_int_equal(usc_excuse_by_code(usc_excuse_info_of((usc_excuse)i)->code), i);
    assert_int_equal(usc_excuse_by_code("none"), USC_N_EXCUSES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_worst_verdict_decides_then_fewer_bits),
        cmocka_unit_test(outputs_without_bits_stand_aside_up_to_half),
        cmocka_unit_test(what_was_left_out_is_in_the_row),
        cmocka_unit_test(draws_lean_on_the_call_without_chance),
        cmocka_unit_test(draws_that_nobody_admits_acquit_nobody),
        cmocka_unit_test(a_whole_has_the_verdict_of_its_worst_piece),
        cmocka_unit_test(an_output_is_no_worse_than_the_cpus_own),
        cmocka_unit_test(answers_that_differ_are_settled),
        cmocka_unit_test(only_what_is_marked_differs),
        cmocka_unit_test(the_form_of_what_was_given_is_said),
        cmocka_unit_test(what_has_the_cpus_bytes_passes),
        cmocka_unit_test(a_row_says_what_its_findings_say),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(excuses_are_found_by_their_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
