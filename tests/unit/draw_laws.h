// SPDX-License-Identifier: Apache-2.0
// One call of a random operator, judged, and an honest stream of every law.
#ifndef USC_TESTS_DRAW_LAWS_H
#define USC_TESTS_DRAW_LAWS_H

#include "draw_stream.h"

#include <ulpscope/x/draw.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#ifdef __SANITIZE_ADDRESS__ // which looks at bytes, the same for each seed
enum { N = 2048, N_SEEDS = 10 };
#else
enum { N = 2048, N_SEEDS = 200 };
#endif

/* ---- one call ---- */

typedef struct drawn {
    double values[N], second[N], x[N], p[N];
    usc_dtype dtype;
    usc_draw_argument arguments[4];
    int n_arguments;
    bool twice;
    char reason[256]; /* of what decided */
} drawn;

static inline usc_tensor narrowed(usc_dtype dtype, const double *values, void *raw)
{
    const int64_t n = N;
    usc_tensor t;
    usc_dtype_narrow(dtype, values, raw, N);
    assert_int_equal(usc_tensor_make(&t, raw, dtype, 1, &n, NULL), USC_OK);
    return t;
}

static inline usc_verdict judged(drawn *d, const char *op)
{
    static double raw[2][N];
    const usc_tensor first = narrowed(d->dtype, d->values, raw[0]);
    const usc_tensor again = narrowed(d->dtype, d->second, raw[1]);
    const usc_draw_output output = {"out[0]", &first, d->twice ? &again : NULL};
    const usc_draw_call call = {.op = op,
                                .arguments = d->arguments,
                                .n_arguments = d->n_arguments,
                                .outputs = &output,
                                .n_outputs = 1};
    usc_findings *f;
    usc_error err = {0};
    assert_int_equal(usc_findings_open(NULL, &f, NULL), USC_OK);
    if (usc_draw_judge(&call, f, &err) != USC_OK) fail_msg("%s: %s", op, err.text);
    const usc_finding *worst = usc_findings_worst(f);
    const usc_verdict verdict = worst->verdict;
    (void)snprintf(d->reason, sizeof d->reason, "%s", worst->reason);
    usc_findings_close(f);
    return verdict;
}

static inline void number(drawn *d, const char *name, double value)
{
    d->arguments[d->n_arguments++] = (usc_draw_argument){name, value, NULL};
}

/* ---- honest streams ---- */

static inline void fill_rand(drawn *d, double *v)
{
    (void)d;
    for (int i = 0; i < N; i++)
        v[i] = floor(stream_even() * 0x1p24) * 0x1p-24;
}

/* In bfloat16 the bounds are -1 and 1. */
static inline void fill_to_the_bounds(drawn *d, double *v)
{
    if (d->n_arguments == 0) {
        number(d, "from", -0.99999);
        number(d, "to", 0.99999);
    }
    for (int i = 0; i < N; i++)
        v[i] = -0.99999 + 2 * 0.99999 * stream_even();
}

static inline void fill_around_infinity(drawn *d, double *v)
{
    if (d->n_arguments == 0) {
        number(d, "mean", (double)INFINITY);
        number(d, "std", 1.1);
    }
    for (int i = 0; i < N; i++)
        v[i] = (double)INFINITY;
}

/* Some of the draws; the others are normal ones. */
static inline void fill_without_spread(drawn *d, double *v)
{
    static usc_tensor spreads;
    const int64_t n = N;
    for (int i = 0; i < N; i++)
        d->p[i] = i % 3 == 0 ? (double)INFINITY : 1;
    assert_int_equal(usc_tensor_make(&spreads, d->p, USC_F64, 1, &n, NULL), USC_OK);
    d->arguments[0] = (usc_draw_argument){"mean", 0, NULL};
    d->arguments[1] = (usc_draw_argument){"std", 0, &spreads};
    d->n_arguments = 2;
    for (int i = 0; i < N; i++)
        v[i] = stream_normal() * d->p[i];
}

static inline void fill_normal(drawn *d, double *v)
{
    if (d->n_arguments == 0) {
        number(d, "mean", 3);
        number(d, "std", 0.5);
    }
    for (int i = 0; i < N; i++)
        v[i] = 3 + 0.5 * stream_normal();
}

static inline void fill_randint(drawn *d, double *v)
{
    if (d->n_arguments == 0) {
        number(d, "low", -5);
        number(d, "high", 9);
    }
    for (int i = 0; i < N; i++)
        v[i] = -5 + floor(14 * stream_even());
}

static inline void fill_by_chances(drawn *d, double *v)
{
    static usc_tensor chances;
    const int64_t n = N;
    for (int i = 0; i < N; i++)
        d->p[i] = (double)(i % 11) / 10;
    assert_int_equal(usc_tensor_make(&chances, d->p, USC_F64, 1, &n, NULL), USC_OK);
    d->arguments[0] = (usc_draw_argument){"self", 0, &chances};
    d->n_arguments = 1;
    for (int i = 0; i < N; i++)
        v[i] = stream_even() < d->p[i];
}

static inline void fill_permutation(drawn *d, double *v)
{
    (void)d;
    for (int i = 0; i < N; i++) {
        const int j = (int)(stream_even() * (i + 1));
        v[i] = v[j];
        v[j] = i;
    }
}

/* The input of dropouts and of rrelu. */
static inline void give_input(drawn *d, const char *p, double chance)
{
    static usc_tensor x;
    static double raw[N];
    for (int i = 0; i < N; i++)
        d->x[i] = i % 64 == 0 ? 0 : sin(i) * (1 + i % 7);
    x = narrowed(d->dtype, d->x, raw);
    usc_dtype_widen(d->dtype, raw, d->x, N);
    d->n_arguments = 0;
    number(d, p, chance);
    d->arguments[d->n_arguments++] = (usc_draw_argument){"input", 0, &x};
}

static inline void drop(drawn *d, double *v, double p, double scale)
{
    give_input(d, "p", 0.3);
    for (int i = 0; i < N; i++)
        v[i] = stream_even() < p ? 0 : d->x[i] * scale;
}

static inline void fill_rrelu(drawn *d, double *v)
{
    give_input(d, "lower", 0.1);
    number(d, "upper", 0.4);
    for (int i = 0; i < N; i++)
        v[i] = d->x[i] * (d->x[i] < 0 ? 0.1 + 0.3 * stream_even() : 1);
}

#endif
