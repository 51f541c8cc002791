// SPDX-License-Identifier: Apache-2.0
// An output that tests of causes spoil, and what they ask of it.
#ifndef USC_TESTS_CAUSE_BENCH_H
#define USC_TESTS_CAUSE_BENCH_H

#include "judge_fixture.h"

#include <ulpscope/cause.h>

enum { MOST = 8 * 1024 }; /* elements */

/* One output, and what spoils it. */
typedef struct bench {
    usc_dtype dtype;
    int ndim;
    int64_t sizes[4], n;
    double t[MOST], d[MOST]; /* the truth; the device's numbers, then rounded */
    double before[MOST], other[MOST];
    int64_t index[MOST]; /* an argument, of the first axis */
    bool has_before, has_other, has_index;
    bool has_bias; /* the first numbers of `before`, as many as the last axis has */
    bool heads, parts;
    usc_verdict verdict;
    double bits;
    bool adds;
    unsigned formats;
} bench;

static const struct {
    int ndim;
    int64_t sizes[4];
} bench_shapes[] = {{1, {64}},     {2, {8, 16}}, {3, {4, 6, 10}},
                    {2, {64, 32}}, {2, {2, 40}}, {4, {2, 8, 12, 5}}};

static inline void bench_begin(bench *b, usc_dtype dtype, int shape)
{
    uint64_t state = 99;
    *b = (bench){.dtype = dtype, .ndim = bench_shapes[shape].ndim, .n = 1};
    b->verdict = USC_VERDICT_WRONG;
    for (int a = 0; a < b->ndim; a++)
        b->n *= b->sizes[a] = bench_shapes[shape].sizes[a];
    const bool whole = usc_dtype_info_of(dtype)->kind != USC_KIND_FLOAT;
    for (int64_t i = 0; i < b->n; i++) {
        const double x = 0.5 + 1.5 * fixture_random(&state);
        b->t[i] = fixture_random(&state) < 0.5 ? -x : x;
        if (whole) b->t[i] = dtype == USC_BOOL ? b->t[i] > 0 : floor(1000 * b->t[i]);
        b->before[i] = 10 + fixture_random(&state);
        b->other[i] = fixture_random(&state);
        b->index[i] = i % 3;
    }
    memcpy(b->d, b->t, sizeof b->d);
}

static inline usc_tensor bench_view(const bench *b, const void *data, usc_dtype dtype)
{
    usc_tensor t;
    assert_int_equal(usc_tensor_make(&t, data, dtype, b->ndim, b->sizes, NULL), USC_OK);
    return t;
}

/* Numbers in the device's dtype. */
static inline void *bench_numbers(const bench *b, const double *x)
{
    void *out = calloc((size_t)b->n, usc_dtype_info_of(b->dtype)->size);
    usc_dtype_narrow(b->dtype, x, out, (size_t)b->n);
    return out;
}

typedef struct opened {
    void *d, *t, *before;
    float *y;
    usc_cause *c;
} opened;

static inline usc_status bench_open(const bench *b, const usc_alloc *alloc, opened *o)
{
    const bool floats = usc_dtype_info_of(b->dtype)->kind == USC_KIND_FLOAT;
    *o = (opened){.d = bench_numbers(b, b->d), .before = bench_numbers(b, b->before)};
    o->y = calloc((size_t)b->n, sizeof *o->y);
    for (int64_t i = 0; i < b->n; i++)
        o->y[i] = (float)b->t[i];
    o->t = bench_numbers(b, b->t);
    const usc_tensor d = bench_view(b, o->d, b->dtype),
                     before = bench_view(b, o->before, b->dtype);
    const usc_tensor t =
        floats ? bench_view(b, b->t, USC_F64) : bench_view(b, o->t, b->dtype);
    const usc_tensor y = floats ? bench_view(b, o->y, USC_F32) : t;
    usc_cause_named other = {"out[1]", bench_view(b, b->other, USC_F64)};
    usc_cause_named inputs[2] = {{0}};
    int n_inputs = 0;
    if (b->has_index) inputs[n_inputs++].name = "index";
    if (b->has_index)
        assert_int_equal(
            usc_tensor_make(&inputs[0].tensor, b->index, USC_I64, 1, b->sizes, NULL),
            USC_OK);
    if (b->has_bias) {
        inputs[n_inputs].name = "bias";
        assert_int_equal(usc_tensor_make(&inputs[n_inputs++].tensor, o->before, b->dtype,
                                         1, &b->sizes[b->ndim - 1], NULL),
                         USC_OK);
    }
    const usc_cause_operands operands = {.device = &d,
                                         .truth = &t,
                                         .yardstick = &y,
                                         .before = b->has_before ? &before : NULL,
                                         .inputs = inputs,
                                         .n_inputs = n_inputs,
                                         .heads = b->heads,
                                         .parts = b->parts,
                                         .others = &other,
                                         .n_others = b->has_other,
                                         .verdict = b->verdict,
                                         .bits = b->bits,
                                         .adds = b->adds,
                                         .formats = b->formats,
                                         .alloc = alloc};
    return usc_cause_open(&operands, &o->c, NULL);
}

static inline void bench_close(opened *o)
{
    usc_cause_close(o->c);
    free(o->d);
    free(o->t);
    free(o->before);
    free(o->y);
}

static inline usc_cause_found bench_ask(const bench *b, usc_cause_look look)
{
    opened o;
    usc_cause_found found;
    assert_int_equal(bench_open(b, NULL, &o), USC_OK);
    assert_int_equal(usc_cause_ask(o.c, look, &found, NULL), USC_OK);
    bench_close(&o);
    return found;
}

static inline void bench_scale(bench *b, double factor, double amount)
{
    for (int64_t i = 0; i < b->n; i++)
        b->d[i] = b->t[i] * factor + amount;
}

/* Each row times, or plus, a number of its own; with `some` every other row. */
static inline void bench_by_row(bench *b, double low, double high, bool factor, bool some)
{
    uint64_t state = 31;
    const int64_t n = b->sizes[b->ndim - 1];
    for (int64_t row = 0; row < b->n / n; row++) {
        const double x = low + (high - low) * fixture_random(&state);
        for (int64_t i = row * n; i < row * n + n && !(some && row % 2); i++)
            b->d[i] = factor ? b->t[i] * x : b->t[i] + x;
    }
}

/* Noise of both signs and at most that size, in a finding of so many bits. */
static inline void bench_noise(bench *b, double size, double bits, unsigned formats)
{
    uint64_t state = 5;
    for (int64_t i = 0; i < b->n; i++)
        b->d[i] = b->t[i] * (1 + size * (2 * fixture_random(&state) - 1));
    b->verdict = USC_VERDICT_REDUCED;
    b->bits = bits;
    b->formats = formats;
}

#endif
