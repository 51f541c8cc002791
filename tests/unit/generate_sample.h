// SPDX-License-Identifier: Apache-2.0
// Tensors of all kinds and forms, their statistics and stand-ins: what the tests of
// generate.h begin with.
#ifndef USC_TESTS_GENERATE_SAMPLE_H
#define USC_TESTS_GENERATE_SAMPLE_H

#include <ulpscope/x/generate.h>

// cmocka wants these in front of it
#include <setjmp.h>
#include <stdarg.h>
// and then itself
#include <cmocka.h>

#include <math.h>
#include <string.h>

enum { MAX_N = 40000, COUNTED = 8192 };
static double wide[MAX_N];
static unsigned char real[8 * MAX_N], made[8 * MAX_N], again[8 * MAX_N];
static const usc_stream test_stream = {.seed = 20261123, .number = 7};
static uint64_t n_drawn;

static inline double uniform(void)
{
    return usc_stream_uniform(test_stream, n_drawn++);
}

static inline int64_t below(int64_t n)
{
    return (int64_t)(uniform() * (double)n);
}

static inline usc_tensor tensor_of(const void *data, usc_dtype dtype, int64_t rows,
                                   int64_t columns)
{
    usc_tensor t;
    const int64_t sizes[2] = {rows, columns};
    assert_int_equal(usc_tensor_make(&t, data, dtype, 2, sizes, NULL), USC_OK);
    return t;
}

static inline usc_stats stats_of(const usc_tensor *t)
{
    usc_stats s;
    assert_int_equal(usc_stats_compute(t, NULL, &s, NULL), USC_OK);
    return s;
}

static inline void make(const usc_tensor *like, const usc_stats *s,
                        const usc_stand_in_options *options, void *out)
{
    usc_error err = {0};
    size_t size;
    assert_int_equal(usc_stand_in_size(like, &size, NULL), USC_OK);
    const usc_stream stream = usc_stand_in_stream(s, "trace", 3, "args[0]");
    if (usc_stand_in_make(like, s, options, stream, out, size, &err) != USC_OK)
        fail_msg("%s", err.text);
}

/* Fills `wide` with one of several kinds of numbers, narrowed into `real`. */
static inline void fill(usc_dtype dtype, int64_t n, int mode)
{
    const int spread = 1 + (int)below(12);
    for (int64_t i = 0; i < n; i++) {
        double x =
            ldexp(usc_stream_normal(test_stream, n_drawn++), (int)below(spread) - 4);
        if (mode == 1 && uniform() < 0.3) x = 0;
        if (mode == 2) x = fabs(x);
        if (mode == 3 && uniform() < 0.1)
            x = uniform() < 0.5   ? (double)NAN
                : uniform() < 0.5 ? (double)INFINITY
                                  : -(double)INFINITY;
        if (mode == 4) x = ldexp(x, usc_dtype_info_of(dtype)->emin + (int)below(4) - 2);
        if (mode == 5) x = 0.25 * (double)below(5);
        if (mode == 6) x = -3.5;
        if (mode == 7) x = (double)below(1000) - 300;
        wide[i] = x;
    }
    usc_dtype_narrow(dtype, wide, real, (size_t)n);
}

enum { R = 24, C = 24 };

static inline void fill_form(unsigned form)
{
    for (int r = 0; r < R; r++) {
        double sum = 0, squares = 0;
        for (int c = 0; c < C; c++) {
            double x = usc_stream_normal(test_stream, n_drawn++);
            if (form == USC_ROWS_SUM_ONE) x = fabs(x);
            if (form == USC_ROWS_RISE) x = c + 0.5 * uniform();
            if (form == USC_ROWS_FALL) x = -c + 0.5 * uniform();
            if (form == USC_LOWER && c > r) x = -(double)INFINITY;
            if (form == USC_UPPER && c < r) x = 0;
            if (form == USC_ROWS_ONE_HOT) x = c == (r * 5 + 1) % C ? 2 : 0;
            if (form == USC_SYMMETRIC && c < r) x = wide[c * C + r];
            sum += x;
            squares += x * x;
            wide[r * C + c] = x;
        }
        for (int c = 0; c < C; c++) {
            if (form == USC_ROWS_SUM_ONE) wide[r * C + c] /= sum;
            if (form == USC_ROWS_NORM_ONE) wide[r * C + c] /= sqrt(squares);
        }
    }
}

#endif
