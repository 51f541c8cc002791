// SPDX-License-Identifier: Apache-2.0
// A test bench that judges a unit under test as a check of a whole model would: the case
// asks, the bench answers from what it can compute itself. The unit here is a dot-product
// array, y = W x; `rtl_bench narrow` lets it accumulate in bfloat16, as a design might
// that saved a register. Prints one sentence; ends with 1 where the unit is accused.
//
//     cc rtl_bench.c $(pkg-config --cflags --libs ulpscope) -lm -o rtl_bench
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ulpscope/ulpscope.h>

enum { ROWS = 256, K = 128, N_REPLAYS = 4 };

typedef struct bench {
    float w[ROWS * K], x[K], device[ROWS];
    /* The truth and float32's answer; of replay k on inputs moved by a rounding or two.
     */
    double r[ROWS], r_k[N_REPLAYS][ROWS];
    float y[ROWS], y_k[N_REPLAYS][ROWS];
    usc_tensor a, b; /* what is handed over */
} bench;

/* ---- the unit under test: in earnest this is a simulator, or a board ---- */

static float to_bfloat16(float v)
{
    const double wide = (double)v;
    double back;
    uint16_t low;
    usc_dtype_narrow(USC_BF16, &wide, &low, 1);
    usc_dtype_widen(USC_BF16, &low, &back, 1);
    return (float)back;
}

static void run_unit(const bench *b, bool narrow, float *out)
{
    for (int i = 0; i < ROWS; i++) {
        float sum = 0;
        for (int k = 0; k < K; k++) {
            sum += b->w[i * K + k] * b->x[k];
            if (narrow) sum = to_bfloat16(sum);
        }
        out[i] = sum;
    }
}

/* ---- what the bench knows ---- */

static void compute(const double *w, const double *x, double *r, float *y)
{
    for (int i = 0; i < ROWS; i++) {
        double sum = 0;
        float low = 0;
        for (int k = 0; k < K; k++) {
            sum += w[i * K + k] * x[k];
            low += (float)w[i * K + k] * (float)x[k];
        }
        r[i] = sum;
        y[i] = low;
    }
}

/* Inputs widened as they are (replay -1), or moved as replay k wants them. */
static usc_status inputs(const float *from, int64_t n, int argument, int replay,
                         double *out, usc_error *err)
{
    usc_tensor t;
    const usc_perturbation how = {.seed = 1, .replay = replay, .argument = argument};
    if (replay < 0) {
        usc_dtype_widen(USC_F32, from, out, (size_t)n);
        return USC_OK;
    }
    const usc_status st = usc_tensor_make(&t, from, USC_F32, 1, &n, err);
    return st == USC_OK ? usc_perturb(&t, &how, out, err) : st;
}

static usc_status answer_run(bench *b, int replay, double *r, float *y, usc_given *out,
                             usc_error *err)
{
    static double w[ROWS * K], x[K];
    const int64_t n = ROWS;
    usc_status st = inputs(b->w, ROWS * K, 0, replay, w, err);
    if (st == USC_OK) st = inputs(b->x, K, 1, replay, x, err);
    if (st != USC_OK) return st;
    compute(w, x, r, y);
    st = usc_tensor_make(&b->a, r, USC_F64, 1, &n, err);
    if (st == USC_OK) st = usc_tensor_make(&b->b, y, USC_F32, 1, &n, err);
    *out = (usc_given){.form = USC_GIVEN_AS_ASKED, .a = &b->a, .b = &b->b};
    return st;
}

/* Whatever this bench has not is "none": it decides nothing, it only answers. */
static usc_status answer(bench *b, const usc_want *want, usc_given *out, usc_error *err)
{
    *out = (usc_given){.form = USC_GIVEN_NONE};
    if (want->kind == USC_WANT_REFERENCE) return answer_run(b, -1, b->r, b->y, out, err);
    if (want->kind == USC_WANT_REPLAY && want->k < N_REPLAYS)
        return answer_run(b, want->k, b->r_k[want->k], b->y_k[want->k], out, err);
    if (want->kind == USC_WANT_FAN_IN)
        *out = (usc_given){.form = USC_GIVEN_AS_ASKED, .number = K, .size = 1};
    return USC_OK;
}

/* ---- the case ---- */

static usc_status judge(bench *b, usc_case *c, usc_error *err)
{
    const int64_t n = ROWS;
    usc_tensor device;
    usc_want want = {.kind = USC_WANT_REFERENCE};
    usc_status st = usc_tensor_make(&device, b->device, USC_F32, 1, &n, err);
    const usc_case_output output = {.path = "y", .device = &device};
    if (st == USC_OK) st = usc_case_begin(c, &output, err);
    while (st == USC_OK) {
        usc_given given;
        st = usc_case_next(c, &want, err);
        if (st != USC_OK || want.kind == USC_WANT_NOTHING) break;
        st = answer(b, &want, &given, err);
        if (st == USC_OK) st = usc_case_give(c, &given, err);
    }
    return st;
}

int main(int argc, char **argv)
{
    static bench b;
    char sentence[512];
    usc_case *c = NULL;
    usc_error err;
    for (int i = 0; i < ROWS * K; i++)
        b.w[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    for (int i = 0; i < K; i++)
        b.x[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    run_unit(&b, argc > 1 && strcmp(argv[1], "narrow") == 0, b.device);

    usc_status st = usc_case_open(&(usc_case_options){0}, &c, &err);
    if (st == USC_OK) st = judge(&b, c, &err);
    if (st != USC_OK) {
        fprintf(stderr, "%s\n", err.text);
        usc_case_close(c);
        return 2;
    }
    const usc_finding *worst = usc_findings_worst(usc_case_findings(c));
    const usc_verdict verdict = worst->verdict;
    const usc_said said = {.op = "dot", .verdict = verdict, .worst = worst};
    usc_said_sentence(&said, sentence, sizeof sentence);
    printf("%s: %s\n", usc_verdict_text(verdict), sentence);
    usc_case_close(c);
    return usc_verdict_flagged(verdict);
}
