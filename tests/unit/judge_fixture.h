// SPDX-License-Identifier: Apache-2.0
// Operands for tests of the judge: n elements of one dtype with honest replays, which a
// test then spoils.
#ifndef USC_TESTS_JUDGE_FIXTURE_H
#define USC_TESTS_JUDGE_FIXTURE_H

#include <ulpscope/judge.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct fixture {
    usc_dtype dtype;
    int64_t n;
    int n_threads;
    const usc_alloc *alloc;
    double s;       /* S relative to |R| that the replays show */
    void *d;        /* device, in dtype */
    double *r;      /* reference */
    float *y;       /* yardstick */
    float *flushed; /* NULL: none */
    double fan_in;  /* 0: 1 */
    bool movement;
} fixture;

/* A small generator of numbers in [0, 1): the same on every machine. */
static inline double fixture_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*state >> 11) * 0x1p-53;
}

static inline void fixture_set(fixture *f, int64_t i, double value)
{
    const size_t size = usc_dtype_info_of(f->dtype)->size;
    usc_dtype_narrow(f->dtype, &value, (char *)f->d + (size_t)i * size, 1);
}

/* R spread over +-[0.5, 2), Y = R in float32, D = Y in dtype: an honest device. */
static inline fixture fixture_make(usc_dtype dtype, int64_t n)
{
    fixture f = {.dtype = dtype, .n = n, .s = 1};
    const size_t room = (size_t)(n > 0 ? n : 1);
    f.d = calloc(room, usc_dtype_info_of(dtype)->size);
    f.r = calloc(room, sizeof *f.r);
    f.y = calloc(room, sizeof *f.y);
    uint64_t state = 12345;
    for (int64_t i = 0; i < n; i++) {
        const double x = 0.5 + 1.5 * fixture_random(&state);
        f.r[i] = fixture_random(&state) < 0.5 ? -x : x;
        f.y[i] = (float)f.r[i];
        fixture_set(&f, i, dtype == USC_F64 ? f.r[i] : (double)f.y[i]);
    }
    return f;
}

/* A device with some of every fault: noise of `bits`, flushed and lost numbers, zeros
 * that are none, values of the CPU, NaN and Inf, each at every `step`-th element or so.
 */
static inline fixture fixture_faulty(usc_dtype dtype, int64_t n, int bits, int step,
                                     uint64_t *seed)
{
    fixture f = fixture_make(dtype, n);
    f.flushed = malloc((size_t)n * sizeof *f.flushed);
    f.fan_in = bits % 2 ? 9 : 1;
    const double tiny = ldexp(1, usc_dtype_info_of(dtype)->emin);
    for (int64_t i = 0; i < n; i++) {
        const double noise = ldexp(fixture_random(seed) - 0.5, 1 - bits);
        const int kind =
            fixture_random(seed) * step < 1 ? (int)(fixture_random(seed) * 12) : 12;
        if (kind < 3) f.r[i] *= tiny * 0.25;
        if (kind == 3) f.r[i] = 0;
        if (kind == 4 && step > 30) f.r[i] = i % 2 ? (double)NAN : (double)INFINITY;
        f.y[i] = (float)f.r[i];
        f.flushed[i] = fabsf(f.y[i]) < 0x1p-126f ? 0 : f.y[i];
        if (kind == 5) f.y[i] *= 1.5f;
        if (kind == 6) f.flushed[i] = 0;
        double d = f.r[i] * (1 + noise);
        if (kind == 0 || kind == 6) d = 0;
        if (kind == 3 && i % 3 == 0) d = 0x1p-60 * noise;
        if (kind == 5) d = (double)f.y[i];
        if (kind == 7 && step > 60) d = (double)INFINITY;
        fixture_set(&f, i, d);
    }
    return f;
}

static inline void fixture_free(fixture *f)
{
    free(f->d);
    free(f->r);
    free(f->y);
    free(f->flushed);
}

static inline usc_tensor fixture_view(void *data, usc_dtype dtype, int64_t n)
{
    usc_tensor t;
    assert_int_equal(usc_tensor_make(&t, data, dtype, 1, &n, NULL), USC_OK);
    return t;
}

/* Adds `count` honest replays: R moves by s 2^-20, float32 rounds it. */
static inline usc_status fixture_replay(const fixture *f, usc_judge *judge, int count)
{
    const size_t room = (size_t)(f->n > 0 ? f->n : 1);
    double *rk = malloc(room * sizeof *rk);
    float *yk = malloc(room * sizeof *yk);
    usc_status st = USC_OK;
    for (int k = 0; k < count && st == USC_OK; k++) {
        for (int64_t i = 0; i < f->n; i++) {
            rk[i] = f->r[i] * (1 + ((i + k) % 2 ? 1 : -1) * f->s * 0x1p-20);
            yk[i] = (float)rk[i];
        }
        const usc_tensor r = fixture_view(rk, USC_F64, f->n);
        const usc_tensor y = fixture_view(yk, USC_F32, f->n);
        st = usc_judge_replay(judge, &r, &y, NULL);
    }
    free(rk);
    free(yk);
    return st;
}

/* Opens, replays four times; the caller closes. */
static inline usc_status fixture_open(const fixture *f, usc_judge **judge)
{
    const usc_tensor d = fixture_view(f->d, f->dtype, f->n);
    const usc_tensor r = fixture_view(f->r, USC_F64, f->n);
    const usc_tensor y = fixture_view(f->y, USC_F32, f->n);
    const usc_judge_options options = {.alloc = f->alloc, .n_threads = f->n_threads};
    usc_status st = usc_judge_open(&d, &r, &y, &options, judge, NULL);
    if (st == USC_OK) st = fixture_replay(f, *judge, 4);
    return st;
}

static inline usc_status fixture_appeal(const fixture *f, usc_judge *judge,
                                        usc_judgement *out)
{
    const int64_t n = f->flushed != NULL ? f->n : 0;
    const usc_tensor flushed = fixture_view(f->flushed, USC_F32, n);
    const usc_appeal appeal = {.fan_in = f->fan_in > 0 ? f->fan_in : 1,
                               .movement = f->movement,
                               .flushed = f->flushed != NULL ? &flushed : NULL};
    return usc_judge_appeal(judge, &appeal, out, NULL);
}

/* The whole procedure: look, and where needed the appeal. */
static inline usc_judgement fixture_judge(const fixture *f)
{
    usc_judge *judge = NULL;
    usc_judgement out;
    assert_int_equal(fixture_open(f, &judge), USC_OK);
    assert_int_equal(usc_judge_look(judge, &out, NULL), USC_OK);
    if (out.needs_appeal) {
        assert_int_equal(fixture_replay(f, judge, 4), USC_OK);
        assert_int_equal(fixture_appeal(f, judge, &out), USC_OK);
    }
    usc_judge_close(judge);
    return out;
}

#endif
