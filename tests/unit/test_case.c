// SPDX-License-Identifier: Apache-2.0
// A case answered from callbacks, as a bench without torch does: what it asks, in which
// order, and what it says. The rule itself: test_judge.c; verdicts: tests/py.
#include "alloc_probe.h"
#include "judge_fixture.h"

#include <ulpscope/case.h>

#include <stdio.h>

enum { N = 3000, MOST_ASKED = 200 };

/* What answers: operands of an operator that scales, and what it was asked. */
typedef struct bench {
    fixture f;
    usc_case_output o;
    usc_tensor device, reference, yardstick, moved[2];
    double *wide;
    float *low;
    const char *fails; /* this want fails */
    bool rich;         /* wants that need no answer have one, too */
    bool overflows;    /* a step in float32 does */
    double moves;      /* what moved inputs make of a result, of its size */
    double other;      /* another reading gives so much of it; 0: there is none */
    double *read;      /* its results */
    usc_want_kind
        excepts;  /* UNREAD, UNWRITTEN, REFERENCE: what it leaves open is marked */
    double chain; /* runs of the callable are off by so much of a result; 0: none */
    double steps; /* the call's own steps give so much of its results; 0: none */
    uint8_t marks[N];
    usc_tensor marked;
    const char *dtype; /* that the operator gives, or NULL */
    char asked[MOST_ASKED * 16];
} bench;

static bench make_bench(usc_dtype dtype)
{
    bench b = {.f = fixture_make(dtype, N)};
    b.wide = malloc(N * sizeof *b.wide);
    b.low = malloc(N * sizeof *b.low);
    b.read = malloc(N * sizeof *b.read);
    b.o = (usc_case_output){.path = "out[0]"};
    return b;
}

static void free_bench(bench *b)
{
    free(b->wide);
    free(b->low);
    free(b->read);
    fixture_free(&b->f);
}

static usc_tensor view(void *data, usc_dtype dtype, int64_t n)
{
    usc_tensor t;
    assert_int_equal(usc_tensor_make(&t, data, dtype, 1, &n, NULL), USC_OK);
    return t;
}

/* Replay k: all of the results a little off, by 2^-20 up and down in turn. */
static usc_given replay(bench *b, int k, const double *results)
{
    for (int i = 0; i < N; i++) {
        b->wide[i] = results[i] * (1 + ((i + k) % 2 ? 0x1p-20 : -0x1p-20));
        b->low[i] = (float)b->wide[i];
    }
    b->moved[0] = view(b->wide, USC_F64, N);
    b->moved[1] = view(b->low, USC_F32, N);
    return (usc_given){.form = USC_GIVEN_AS_ASKED, .a = &b->moved[0], .b = &b->moved[1]};
}

/* Answers more than it must: the excuses are looked at as well. */
static bool answers_all(bench *b, const usc_want *want, usc_given *out)
{
    static const usc_want_kind low[] = {USC_WANT_FLUSHED, USC_WANT_LOSS, USC_WANT_NOISE,
                                        USC_WANT_ROUNDED};
    static const usc_want_kind wide[] = {USC_WANT_NEAR_STEP, USC_WANT_NEARER_STEP,
                                         USC_WANT_PROBE, USC_WANT_NEARER_PROBE};
    *out = (usc_given){.form = USC_GIVEN_AS_ASKED};
    for (int i = 0; i < 4; i++) {
        if (want->kind == low[i]) out->a = out->b = &b->yardstick;
        if (want->kind == wide[i]) *out = replay(b, want->k, b->f.r);
    }
    return out->a != NULL && want->k < 4;
}

static usc_given reading(bench *b, int k)
{
    if (b->other == 0 || k > 0) return (usc_given){.form = USC_GIVEN_NONE};
    for (int i = 0; i < N; i++)
        b->read[i] = b->f.r[i] * b->other;
    b->moved[0] = view(b->read, USC_F64, N);
    return (usc_given){
        .form = USC_GIVEN_AS_ASKED, .a = &b->moved[0], .text = "read otherwise"};
}

static usc_given own_step(bench *b, int k)
{
    if (b->steps == 0) return (usc_given){.form = USC_GIVEN_NONE};
    for (int i = 0; i < N; i++)
        b->read[i] = b->f.r[i] * (k == 2 ? b->steps : 1);
    b->moved[0] = view(b->read, USC_F64, N);
    return (usc_given){.form = USC_GIVEN_AS_ASKED, .a = &b->moved[0]};
}

/* Between -1 and 1, by chance. */
static double chance(int i, int k)
{
    const uint32_t x = ((uint32_t)i * 2654435761u) ^ ((uint32_t)(k + 3) * 2246822519u);
    return ((x ^ x >> 15) * 2654435761u >> 8) * 0x1p-23 - 1;
}

static usc_given chain(bench *b, int k)
{
    if (b->chain == 0) return (usc_given){.form = USC_GIVEN_NONE};
    for (int i = 0; i < N; i++)
        b->read[i] = b->f.r[i] * (1 + b->chain * chance(i, k));
    b->moved[0] = view(b->read, USC_F64, N);
    return (usc_given){.form = USC_GIVEN_AS_ASKED, .a = &b->moved[0]};
}

static usc_given excepting(bench *b, usc_want_kind kind)
{
    if (b->excepts != kind) return (usc_given){.form = USC_GIVEN_NONE};
    memcpy(b->read, b->f.r, N * sizeof *b->read);
    b->moved[0] = view(b->read, USC_F64, N);
    return (usc_given){.form = USC_GIVEN_AS_ASKED, .a = &b->moved[0], .c = &b->marked};
}

static usc_given answer(bench *b, const usc_want *want)
{
    const char *name = usc_want_text(want->kind);
    char text[32];
    (void)snprintf(text, sizeof text, want->kind == USC_WANT_REPLAY ? "%s%d " : "%s ",
                   name, want->k);
    strncat(b->asked, text, sizeof b->asked - strlen(b->asked) - 1);
    if (b->fails != NULL && strcmp(b->fails, name) == 0)
        return (usc_given){.form = USC_GIVEN_FAILED, .text = "no such kernel"};
    b->reference = view(b->f.r, USC_F64, N);
    b->yardstick = view(b->f.y, USC_F32, N);
    b->marked = view(b->marks, USC_U8, N);
    if (want->kind == USC_WANT_REFERENCE)
        return (usc_given){.form = USC_GIVEN_AS_ASKED,
                           .a = &b->reference,
                           .b = &b->yardstick,
                           .c = b->excepts == want->kind ? &b->marked : NULL,
                           .number = USC_EXCUSE_BAD_INDEX};
    usc_given more;
    if (b->rich && answers_all(b, want, &more)) return more;
    if (want->kind == USC_WANT_READING) return reading(b, want->k);
    if (want->kind == USC_WANT_OWN_STEP) return own_step(b, want->k);
    if (want->kind == USC_WANT_CHAIN) return chain(b, want->k);
    if (want->kind == USC_WANT_UNREAD || want->kind == USC_WANT_UNWRITTEN)
        return excepting(b, want->kind);
    if (want->kind == USC_WANT_REPLAY)
        return replay(b, want->k, want->reading > 0 ? b->read : b->f.r);
    if (want->kind == USC_WANT_DTYPE && b->dtype != NULL)
        return (usc_given){.form = USC_GIVEN_AS_ASKED, .text = b->dtype};
    if (want->kind == USC_WANT_FUNCTIONS && b->moves > 0) {
        const usc_given given = replay(b, want->k, b->f.r);
        for (int i = 0; i < N; i++)
            b->wide[i] = b->f.r[i] * (1 + b->moves);
        return given;
    }
    if (want->kind == USC_WANT_OVERFLOWS)
        return (usc_given){.form = USC_GIVEN_AS_ASKED, .number = b->overflows};
    if (want->kind == USC_WANT_FAN_IN)
        return (usc_given){.form = USC_GIVEN_AS_ASKED, .number = 1};
    return (usc_given){.form = USC_GIVEN_NONE};
}

static usc_status judge_with(bench *b, const usc_alloc *alloc, usc_finding *out,
                             char *sentence, size_t size)
{
    usc_case *c = NULL;
    usc_want want;
    usc_error err;
    const usc_case_options options = {.alloc = alloc};
    b->device = view(b->f.d, b->f.dtype, N);
    b->o.device = &b->device;
    b->asked[0] = '\0';
    usc_status st = usc_case_open(&options, &c, &err);
    if (st == USC_OK) st = usc_case_begin(c, &b->o, &err);
    if (st == USC_OK) st = usc_case_next(c, &want, &err);
    while (st == USC_OK && want.kind != USC_WANT_NOTHING) {
        const usc_given given = answer(b, &want);
        st = usc_case_give(c, &given, &err);
        if (st == USC_OK) st = usc_case_next(c, &want, &err);
    }
    if (st == USC_OK) {
        const usc_finding *f = usc_findings_worst(usc_case_findings(c));
        const usc_said said = {.op = "scale", .verdict = f->verdict, .worst = f};
        usc_said_sentence(&said, sentence, size);
        *out = *f; /* its texts are gone with the case */
    }
    usc_case_close(c);
    return st;
}

static usc_finding judged(bench *b, char *sentence, size_t size)
{
    usc_finding f;
    assert_int_equal(judge_with(b, NULL, &f, sentence, size), USC_OK);
    return f;
}

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

/* Between R and 1.1 R lies what the steps give, and an ulp beyond; 1.2 R does not. */
static void what_own_steps_give_passes_and_nothing_beyond(void **state)
{
    (void)state;
    static const double factors[] = {1.05, 1.1, 1.2, 0.9};
    bench b = make_bench(USC_BF16);
    char text[256];
    b.o.readings = true;
    for (int k = 0; k < 4; k++) {
        b.steps = 1.1;
        for (int i = 0; i < N; i++)
            fixture_set(&b.f, i, b.f.r[i] * (i < 200 ? factors[k] : 1));
        const usc_finding f = judged(&b, text, sizeof text);
        assert_int_equal(usc_verdict_flagged(f.verdict), k > 1);
        assert_true(k > 1 || (f.excused[USC_EXCUSE_OWN_STEPS] > 190 && f.n_notes > 0));
        b.steps = 0;
        assert_true(usc_verdict_flagged(judged(&b, text, sizeof text).verdict));
    }
    free_bench(&b);
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

/* ---- narrower formats ---- */

/* A third of the results are none in float16, all of them are rounded to it: far too few
 * bits, and the very numbers of that format. */
static bench rounded_to_float16(void)
{
    bench b = make_bench(USC_F32);
    b.o.captured = "float32";
    b.o.narrow = true;
    for (int i = 0; i < N; i++) {
        unsigned char place[8];
        double v = b.f.r[i] *= i % 3 == 0 ? 0x1p-30 : 1;
        b.f.y[i] = (float)v;
        usc_dtype_narrow(USC_F16, &v, place, 1);
        usc_dtype_widen(USC_F16, place, &v, 1);
        fixture_set(&b.f, i, v);
    }
    return b;
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
        cmocka_unit_test(what_passes_by_another_reading_stands),
        cmocka_unit_test(readings_are_not_mixed),
        cmocka_unit_test(what_nobody_writes_may_hold_anything),
        cmocka_unit_test(what_own_steps_give_passes_and_nothing_beyond),
        cmocka_unit_test(what_a_callable_rounds_between_its_operators_passes),
        cmocka_unit_test(what_the_cpu_refuses_is_undefined_and_no_pass),
        cmocka_unit_test(where_something_hidden_reaches_nan_is_as_good_and_nothing_else),
        cmocka_unit_test(what_a_rounded_result_explains_is_reduced),
        cmocka_unit_test(what_it_leaves_open_stays_wrong),
        cmocka_unit_test(narrow_runs_have_names),
        cmocka_unit_test(a_tie_may_be_broken_otherwise),
        cmocka_unit_test(answers_that_do_not_fit_are_refused),
        cmocka_unit_test(no_memory_is_said_and_nothing_leaks),
        cmocka_unit_test(an_index_without_memory_is_no_verdict),
        cmocka_unit_test(every_want_and_excuse_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
