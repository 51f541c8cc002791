// SPDX-License-Identifier: Apache-2.0
// Judges a kernel of one's own, in memory: a float32 matrix product that is honest, and
// one whose inputs went through bfloat16, as on hardware that is asked for float32 and
// takes less. Prints a line for each; ends with 1, as the second one is accused.
//
//     cc judge_two_buffers.c $(pkg-config --cflags --libs ulpscope) -o judge_two_buffers
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <ulpscope/ulpscope.h>

enum { M = 48, K = 256, N = 32 };

/* What is judged: out = a b, in float32. */
static void matmul(const float *a, const float *b, float *out)
{
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float sum = 0;
            for (int k = 0; k < K; k++)
                sum += a[i * K + k] * b[k * N + j];
            out[i * N + j] = sum;
        }
}

/* The truth in float64, and |a| |b|: where large terms cancel, an error counts relative
 * to what was added up, not to the little that is left. */
static void truth(const float *a, const float *b, double *reference, double *scale)
{
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0, size = 0;
            for (int k = 0; k < K; k++) {
                const double term = (double)a[i * K + k] * (double)b[k * N + j];
                sum += term;
                size += fabs(term);
            }
            reference[i * N + j] = sum;
            scale[i * N + j] = size;
        }
}

static void fill(float *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)rand() / (float)RAND_MAX - 0.5f;
}

/* Rounds to bfloat16 and back. */
static void through_bfloat16(const float *x, float *out, int n)
{
    for (int i = 0; i < n; i++) {
        const double wide = (double)x[i];
        uint16_t low;
        double back;
        usc_dtype_narrow(USC_BF16, &wide, &low, 1);
        usc_dtype_widen(USC_BF16, &low, &back, 1);
        out[i] = (float)back;
    }
}

static bool judge(const char *what, const float *device, const double *reference,
                  const double *scale)
{
    const int64_t sizes[] = {M, N};
    usc_tensor d, r, s;
    usc_judgement j;
    usc_error err;
    usc_status st = usc_tensor_make(&d, device, USC_F32, 2, sizes, &err);
    if (st == USC_OK) st = usc_tensor_make(&r, reference, USC_F64, 2, sizes, &err);
    if (st == USC_OK) st = usc_tensor_make(&s, scale, USC_F64, 2, sizes, &err);
    if (st == USC_OK) st = usc_judge_pair(&d, &r, &s, NULL, &j, &err);
    if (st != USC_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(2);
    }
    printf("%s: %s, %s%.1f effective bits%s%s\n", what, usc_verdict_text(j.verdict),
           j.bound ? ">= " : "", j.bits, j.reason[0] != '\0' ? ": " : "", j.reason);
    return usc_verdict_flagged(j.verdict);
}

int main(void)
{
    static float a[M * K], b[K * N], low_a[M * K], low_b[K * N], out[M * N];
    static double reference[M * N], scale[M * N];
    bool flagged = false;
    fill(a, M * K);
    fill(b, K * N);
    truth(a, b, reference, scale);

    matmul(a, b, out);
    flagged |= judge("float32", out, reference, scale);

    through_bfloat16(a, low_a, M * K);
    through_bfloat16(b, low_b, K * N);
    matmul(low_a, low_b, out);
    flagged |= judge("inputs in bfloat16", out, reference, scale);
    return flagged;
}
