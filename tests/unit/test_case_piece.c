// SPDX-License-Identifier: Apache-2.0
// A call as a whole: what only carries elements, large calls piece by piece, products of
// matrices on some of their rows.
#include "judge_fixture.h"

#include <ulpscope/case.h>

#include <stdio.h>

enum { N = 1200, PIECES = 4, WIDE = 3, MANY = N / PIECES };

static usc_tensor view(void *data, usc_dtype dtype, int64_t n)
{
    usc_tensor t;
    assert_int_equal(usc_tensor_make(&t, data, dtype, 1, &n, NULL), USC_OK);
    return t;
}

static void next_is(usc_case *c, usc_want_kind kind, int k)
{
    usc_want want;
    assert_int_equal(usc_case_next(c, &want, NULL), USC_OK);
    assert_int_equal(want.kind, kind);
    assert_int_equal(want.k, k);
}

static void give(usc_case *c, const usc_given *given)
{
    assert_int_equal(usc_case_give(c, given, NULL), USC_OK);
}

/* Judges `many` elements from `first` on as one output; answers no more than R. */
static void judge_part(usc_case *c, const char *path, fixture *f, int64_t first,
                       int64_t many, usc_case_part part)
{
    usc_tensor device = view((float *)f->d + first, USC_F32, many);
    usc_tensor reference = view(f->r + first, USC_F64, many);
    usc_tensor yardstick = view(f->y + first, USC_F32, many);
    const usc_case_output o = {
        .path = path, .device = &device, .captured = "float32", .part = part};
    usc_want want;
    assert_int_equal(usc_case_begin(c, &o, NULL), USC_OK);
    assert_int_equal(usc_case_next(c, &want, NULL), USC_OK);
    while (want.kind != USC_WANT_NOTHING) {
        const bool asked =
            want.kind == USC_WANT_REFERENCE || want.kind == USC_WANT_REPLAY;
        give(c, &(usc_given){.form = asked ? USC_GIVEN_AS_ASKED : USC_GIVEN_NONE,
                             .a = asked ? &reference : NULL,
                             .b = asked ? &yardstick : NULL});
        assert_int_equal(usc_case_next(c, &want, NULL), USC_OK);
    }
}

/* How many runs of float32 a case asks of `MANY` elements from `first` on, whose runs are
 * all off by 2^-12. */
static int asked_of(usc_case *c, fixture *f, int64_t first)
{
    float run[MANY];
    for (int i = 0; i < MANY; i++)
        run[i] = (float)(f->r[first + i] * (1 + (i % 2 ? 0x1p-12 : -0x1p-12)));
    usc_tensor device = view((float *)f->d + first, USC_F32, MANY);
    usc_tensor reference = view(f->r + first, USC_F64, MANY);
    usc_tensor yardstick = view(f->y + first, USC_F32, MANY);
    usc_tensor rough = view(run, USC_F32, MANY);
    const usc_case_output o = {.path = "out[0]",
                               .device = &device,
                               .captured = "float32",
                               .part = {1, N, first, MANY}};
    usc_want want;
    int n = 0;
    assert_int_equal(usc_case_begin(c, &o, NULL), USC_OK);
    assert_int_equal(usc_case_next(c, &want, NULL), USC_OK);
    while (want.kind != USC_WANT_NOTHING) {
        usc_given given = {0};
        if (want.kind == USC_WANT_REFERENCE || want.kind == USC_WANT_REPLAY)
            given =
                (usc_given){.form = USC_GIVEN_AS_ASKED, .a = &reference, .b = &yardstick};
        if (want.kind == USC_WANT_NOISE && want.k < 8) {
            given = (usc_given){.form = USC_GIVEN_AS_ASKED, .a = &rough};
            n++;
        }
        give(c, &given);
        assert_int_equal(usc_case_next(c, &want, NULL), USC_OK);
    }
    return n;
}

static const usc_given there = {.form = USC_GIVEN_AS_ASKED}, none = {0};

static usc_case *opened(void)
{
    usc_case *c;
    const usc_case_options options = {.large = 1000, .work = 5000, .fewest = 8};
    assert_int_equal(usc_case_open(&options, &c, NULL), USC_OK);
    return c;
}

static void a_small_call_has_no_pieces(void **state)
{
    (void)state;
    usc_case *c = opened();
    bool decides;
    const usc_case_form_of form = {"out[0]", 1, {999}};
    const usc_case_call call = {.op = "f", .outputs = &form, .n_outputs = 1};
    assert_int_equal(usc_case_begin_call(c, &call, NULL), USC_OK);
    next_is(c, USC_WANT_NOTHING, 0);
    assert_int_equal(usc_case_go_on(c, &decides, NULL), USC_E_ARG);
    usc_case_close(c);
}

static void one_that_cannot_be_cut_is_judged_whole(void **state)
{
    (void)state;
    usc_case *c = opened();
    fixture f = fixture_make(USC_F32, N);
    const usc_case_form_of form = {"out[0]", 1, {N}};
    const usc_case_call call = {.op = "f", .outputs = &form, .n_outputs = 1};
    assert_int_equal(usc_case_begin_call(c, &call, NULL), USC_OK);
    next_is(c, USC_WANT_PIECE, 0);
    give(c, &none);
    next_is(c, USC_WANT_NOTHING, 0);
    judge_part(c, "out[0]", &f, 0, N, (usc_case_part){0});
    const usc_finding *one = usc_findings_at(usc_case_findings(c), 0);
    assert_int_equal(one->verdict, USC_VERDICT_PASS);
    fixture_free(&f);
    usc_case_close(c);
}

/* Rows of an output of [2, N / 2 / WIDE, WIDE], some along its second axis at a time: the
 * piece that is wrong decides, and its examples lie where they do in the whole. */
static void the_worst_of_the_pieces_decides(void **state)
{
    (void)state;
    usc_case *c = opened();
    fixture f = fixture_make(USC_F32, N);
    const int64_t length = N / 2 / WIDE, many = length / PIECES;
    const usc_case_form_of forms[] = {{"out[0]", 3, {2, length, WIDE}},
                                      {"out[1]", 1, {7}}};
    const usc_case_call call = {.op = "f", .outputs = forms, .n_outputs = 2};
    fixture_set(&f, 2 * MANY + many * WIDE + 4, 99); /* outer 1, row 1, column 1 */
    assert_int_equal(usc_case_begin_call(c, &call, NULL), USC_OK);
    for (int k = 0; k < PIECES; k++) {
        next_is(c, USC_WANT_PIECE, k);
        give(c, &there);
        next_is(c, USC_WANT_NOTHING, 0);
        judge_part(c, "out[0]", &f, k * MANY, MANY,
                   (usc_case_part){WIDE, length, k * many, many});
        if (k == 1) judge_part(c, "out[1]", &f, 0, 7, (usc_case_part){0});
        bool decides;
        assert_int_equal(usc_case_go_on(c, &decides, NULL), USC_OK);
        if (k != 1) assert_int_equal(decides, k == 0 || k == 2);
    }
    next_is(c, USC_WANT_PIECE, PIECES);
    give(c, &none);
    next_is(c, USC_WANT_NOTHING, 0);
    const usc_findings *found = usc_case_findings(c);
    assert_int_equal(usc_findings_count(found), 2);
    const usc_finding *first = usc_findings_at(found, 0),
                      *other = usc_findings_at(found, 1);
    assert_string_equal(first->path, "out[0]");
    assert_true(usc_verdict_flagged(first->verdict));
    assert_int_equal(first->n, N);
    assert_int_equal(first->sizes[1], length);
    assert_int_equal(first->judgement.n_mismatch >= 1, 1);
    assert_int_equal(first->examples[0].index, (length + 2 * many + 1) * WIDE + 1);
    assert_string_equal(other->path, "out[1]");
    assert_int_equal(other->verdict, USC_VERDICT_PASS);
    assert_int_equal(other->n, 7);
    fixture_free(&f);
    usc_case_close(c);
}

/* Runs of float32 widen what an element may be, so that one that is accused of the first
 * piece looks nearer behind them than the same one of another piece at first sight. */
static void a_piece_no_worse_than_an_accused_one_asks_no_more(void **state)
{
    (void)state;
    usc_case *c = opened();
    fixture f = fixture_make(USC_F32, N);
    const usc_case_form_of form = {"out[0]", 1, {N}};
    const usc_case_call call = {.op = "f", .outputs = &form, .n_outputs = 1};
    for (int k = 0; k < PIECES; k++)
        for (int i = 1; i < 4; i++) /* the last is far worse */
            fixture_set(&f, k * MANY + 7 * i,
                        f.r[k * MANY + 7 * i] * (k == PIECES - 1 ? 50 : 1.25));
    assert_int_equal(usc_case_begin_call(c, &call, NULL), USC_OK);
    for (int k = 0; k < PIECES; k++) {
        next_is(c, USC_WANT_PIECE, k);
        give(c, &there);
        next_is(c, USC_WANT_NOTHING, 0);
        const int asked = asked_of(c, &f, (int64_t)k * MANY);
        assert_int_equal(asked > 0, k == 0 || k == PIECES - 1);
        bool decides;
        assert_int_equal(usc_case_go_on(c, &decides, NULL), USC_OK);
    }
    next_is(c, USC_WANT_PIECE, PIECES);
    give(c, &none);
    next_is(c, USC_WANT_NOTHING, 0);
    const usc_finding *one = usc_findings_at(usc_case_findings(c), 0);
    assert_true(usc_verdict_flagged(one->verdict));
    fixture_free(&f);
    usc_case_close(c);
}

static void a_piece_that_fails_is_no_pass(void **state)
{
    (void)state;
    usc_case *c = opened();
    fixture f = fixture_make(USC_F32, N);
    const usc_case_form_of form = {"out[0]", 1, {N}};
    const usc_case_call call = {.op = "f", .outputs = &form, .n_outputs = 1};
    bool decides;
    assert_int_equal(usc_case_begin_call(c, &call, NULL), USC_OK);
    next_is(c, USC_WANT_PIECE, 0);
    give(c, &there);
    next_is(c, USC_WANT_NOTHING, 0);
    judge_part(c, "out[0]", &f, 0, MANY, (usc_case_part){1, N, 0, MANY});
    assert_int_equal(usc_case_go_on(c, &decides, NULL), USC_OK);
    next_is(c, USC_WANT_PIECE, 1);
    give(c, &(usc_given){.form = USC_GIVEN_FAILED, .text = "no memory"});
    next_is(c, USC_WANT_NOTHING, 0);
    const usc_findings *found = usc_case_findings(c);
    assert_int_equal(usc_findings_count(found), 1);
    assert_int_equal(usc_findings_at(found, 0)->verdict, USC_VERDICT_UNJUDGED);
    fixture_free(&f);
    usc_case_close(c);
}

static bool is_among(const int64_t *rows, int64_t n, int64_t row)
{
    for (int64_t i = 0; i < n; i++)
        if (rows[i] == row) return true;
    return false;
}

static void a_large_product_is_judged_on_rows(void **state)
{
    (void)state;
    usc_case *c = opened();
    double off[N] = {0};
    off[777] = 1e-3;
    off[500] = (double)NAN;
    const usc_case_form_of form = {"out[0]", 2, {N, 1}};
    const usc_case_call call = {
        .op = "mm", .outputs = &form, .n_outputs = 1, .n_rows = N, .n_products = 5};
    usc_tensor sums = view(off, USC_F64, N);
    assert_int_equal(usc_case_begin_call(c, &call, NULL), USC_OK);
    next_is(c, USC_WANT_CHECKSUM, 0);
    give(c, &(usc_given){.form = USC_GIVEN_AS_ASKED, .a = &sums});
    next_is(c, USC_WANT_PIECE, 0);
    int64_t n;
    const int64_t *rows = usc_case_rows(c, &n);
    assert_true(n > 20 && n < 60);
    const int64_t due[] = {0, 2, 777, 500, 512, 511, 1151, 1152, N - 1};
    for (size_t i = 0; i < sizeof due / sizeof due[0]; i++)
        assert_true(is_among(rows, n, due[i]));
    for (int64_t i = 1; i < n; i++)
        assert_true(rows[i - 1] < rows[i]);
    usc_case_close(c);
}

/* ---- what only carries elements ---- */

static usc_verdict carried(float *device, float *native, bool *asked_more)
{
    usc_case *c = opened();
    usc_tensor d = view(device, USC_F32, N), own = view(native, USC_F32, N);
    const usc_case_output o = {.path = "out[0]", .device = &d, .carries = true};
    usc_want want;
    assert_int_equal(usc_case_begin(c, &o, NULL), USC_OK);
    next_is(c, USC_WANT_NATIVE, 0);
    give(c, &(usc_given){.form = USC_GIVEN_AS_ASKED, .a = &own});
    assert_int_equal(usc_case_next(c, &want, NULL), USC_OK);
    *asked_more = want.kind == USC_WANT_REFERENCE;
    const usc_finding *f = usc_findings_at(usc_case_findings(c), 0);
    const usc_verdict v = f != NULL ? f->verdict : USC_N_VERDICTS;
    assert_true(f == NULL || f->n_notes == (isnan(device[7]) ? 1 : 0));
    usc_case_close(c);
    return v;
}

static void the_very_bytes_of_what_is_carried_are_right(void **state)
{
    (void)state;
    static float device[N], native[N];
    bool more;
    for (int i = 0; i < N; i++)
        device[i] = native[i] = (float)i / 7;
    assert_int_equal(carried(device, native, &more), USC_VERDICT_PASS);
    assert_false(more);
    device[7] = native[7] = (float)NAN;
    assert_int_equal(carried(device, native, &more), USC_VERDICT_PASS);
    assert_false(more);
    device[N - 1] = nextafterf(device[N - 1], 0);
    (void)carried(device, native, &more);
    assert_true(more); /* then the rule looks at it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_call_has_no_pieces),
        cmocka_unit_test(one_that_cannot_be_cut_is_judged_whole),
        cmocka_unit_test(the_worst_of_the_pieces_decides),
        cmocka_unit_test(a_piece_no_worse_than_an_accused_one_asks_no_more),
        cmocka_unit_test(a_piece_that_fails_is_no_pass),
        cmocka_unit_test(a_large_product_is_judged_on_rows),
        cmocka_unit_test(the_very_bytes_of_what_is_carried_are_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
