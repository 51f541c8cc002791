// SPDX-License-Identifier: Apache-2.0
// A bench without torch: a case is answered from callbacks.
#ifndef USC_TESTS_CASE_BENCH_H
#define USC_TESTS_CASE_BENCH_H

#include "alloc_probe.h"
#include "judge_fixture.h"

#include <ulpscope/case.h>

#include <stdio.h>

enum { N = 3000, MOST_ASKED = 200, LED = 3 };

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
    double led;   /* a run puts the first elements by so much; 0: there is none */
    bool listed;  /* which a list says, as a pack has it */
    uint8_t marks[N];
    usc_tensor marked;
    const char *dtype; /* that the operator gives, or NULL */
    char asked[MOST_ASKED * 16];
} bench;

static inline bench make_bench(usc_dtype dtype)
{
    bench b = {.f = fixture_make(dtype, N)};
    b.wide = malloc(N * sizeof *b.wide);
    b.low = malloc(N * sizeof *b.low);
    b.read = malloc(N * sizeof *b.read);
    b.o = (usc_case_output){.path = "out[0]"};
    return b;
}

static inline void free_bench(bench *b)
{
    free(b->wide);
    free(b->low);
    free(b->read);
    fixture_free(&b->f);
}

static inline usc_tensor view(void *data, usc_dtype dtype, int64_t n)
{
    usc_tensor t;
    assert_int_equal(usc_tensor_make(&t, data, dtype, 1, &n, NULL), USC_OK);
    return t;
}

/* Replay k: all of the results a little off, by 2^-20 up and down in turn. */
static inline usc_given replay(bench *b, int k, const double *results)
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
static inline bool answers_all(bench *b, const usc_want *want, usc_given *out)
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

static inline usc_given reading(bench *b, int k)
{
    if (b->other == 0 || k > 0) return (usc_given){.form = USC_GIVEN_NONE};
    for (int i = 0; i < N; i++)
        b->read[i] = b->f.r[i] * b->other;
    b->moved[0] = view(b->read, USC_F64, N);
    return (usc_given){
        .form = USC_GIVEN_AS_ASKED, .a = &b->moved[0], .text = "read otherwise"};
}

static inline usc_given own_step(bench *b, int k)
{
    if (b->steps == 0) return (usc_given){.form = USC_GIVEN_NONE};
    for (int i = 0; i < N; i++)
        b->read[i] = b->f.r[i] * (k == 2 ? b->steps : 1);
    b->moved[0] = view(b->read, USC_F64, N);
    return (usc_given){.form = USC_GIVEN_AS_ASKED, .a = &b->moved[0]};
}

/* One run, that puts the first elements elsewhere; or a list of these alone. */
static inline usc_given led(bench *b, const usc_want *want)
{
    static int64_t places[LED];
    const bool list = want->kind == USC_WANT_RUN_STEPS;
    if (b->led == 0 || want->k > 0 || list != b->listed)
        return (usc_given){.form = USC_GIVEN_NONE};
    for (int i = 0; i < N; i++)
        b->read[i] = b->f.r[i] * (i < LED ? b->led : 1);
    for (int i = 0; i < LED; i++)
        places[i] = i;
    b->moved[0] = view(b->read, USC_F64, list ? LED : N);
    b->moved[1] = view(places, USC_I64, LED);
    return (usc_given){.form = USC_GIVEN_AS_ASKED,
                       .a = &b->moved[list],
                       .b = list ? &b->moved[0] : NULL};
}

/* Between -1 and 1, by chance. */
static inline double chance(int i, int k)
{
    const uint32_t x = ((uint32_t)i * 2654435761u) ^ ((uint32_t)(k + 3) * 2246822519u);
    return ((x ^ x >> 15) * 2654435761u >> 8) * 0x1p-23 - 1;
}

static inline usc_given chain(bench *b, int k)
{
    if (b->chain == 0) return (usc_given){.form = USC_GIVEN_NONE};
    for (int i = 0; i < N; i++)
        b->read[i] = b->f.r[i] * (1 + b->chain * chance(i, k));
    b->moved[0] = view(b->read, USC_F64, N);
    return (usc_given){.form = USC_GIVEN_AS_ASKED, .a = &b->moved[0]};
}

static inline usc_given excepting(bench *b, usc_want_kind kind)
{
    if (b->excepts != kind) return (usc_given){.form = USC_GIVEN_NONE};
    memcpy(b->read, b->f.r, N * sizeof *b->read);
    b->moved[0] = view(b->read, USC_F64, N);
    return (usc_given){.form = USC_GIVEN_AS_ASKED, .a = &b->moved[0], .c = &b->marked};
}

static inline usc_given answer(bench *b, const usc_want *want)
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
    if (want->kind == USC_WANT_RUN || want->kind == USC_WANT_RUN_STEPS)
        return led(b, want);
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

static inline usc_status judge_with(bench *b, const usc_alloc *alloc, usc_finding *out,
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

static inline usc_finding judged(bench *b, char *sentence, size_t size)
{
    usc_finding f;
    assert_int_equal(judge_with(b, NULL, &f, sentence, size), USC_OK);
    return f;
}

/* ---- narrower formats ---- */

/* A third of the results are none in float16, all of them are rounded to it: far too few
 * bits, and the very numbers of that format. */
static inline bench rounded_to_float16(void)
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

#endif
