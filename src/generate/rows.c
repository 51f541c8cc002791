// SPDX-License-Identifier: Apache-2.0
// The forms of rows; see rows.h.
#include "generate/rows.h"

#include <math.h>
#include <stdlib.h>

/* ---- order ---- */

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int by_signed(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int by_unsigned(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static bool rises(unsigned structure)
{
    return (structure & USC_ROWS_RISE) != 0;
}

static bool falls(unsigned structure)
{
    return (structure & USC_ROWS_FALL) != 0 && !rises(structure);
}

static void turn_floats(double *row, int64_t n)
{
    for (int64_t i = 0; i < n / 2; i++) {
        const double x = row[i];
        row[i] = row[n - 1 - i];
        row[n - 1 - i] = x;
    }
}

void usc_rows_order_integers(unsigned structure, bool is_unsigned, uint64_t *row,
                             int64_t n)
{
    if (!rises(structure) && !falls(structure)) return;
    qsort(row, (size_t)n, sizeof *row, is_unsigned ? by_unsigned : by_signed);
    for (int64_t i = 0; falls(structure) && i < n / 2; i++) {
        const uint64_t x = row[i];
        row[i] = row[n - 1 - i];
        row[n - 1 - i] = x;
    }
}

/* ---- sums ---- */

static void divide(double *row, int64_t n, double by)
{
    for (int64_t i = 0; by > 0 && i < n; i++)
        row[i] /= by;
}

static void normalise(unsigned structure, double *row, int64_t n)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += row[i];
        squares += row[i] * row[i];
    }
    if ((structure & USC_ROWS_SUM_ONE) != 0)
        divide(row, n, sum);
    else if ((structure & USC_ROWS_NORM_ONE) != 0)
        divide(row, n, sqrt(squares));
}

/* ---- one-hot ---- */

static void make_one_hot(usc_stream d, int64_t i_row, double value, double *row,
                         int64_t n)
{
    const double u = usc_stream_uniform(d, (uint64_t)i_row);
    const int64_t hot = (int64_t)(u * (double)n);
    for (int64_t i = 0; i < n; i++)
        row[i] = i == hot ? value : 0;
}

/* ---- matrices ---- */

/* A diagonal of d ... 1.5 d with noise of spectral norm 0.4 d around it: definite, and
 * its largest element the one that the real matrix had. */
static void make_definite(const usc_shape *s, double largest, usc_stream d, int64_t from,
                          double *row)
{
    const int64_t size = s->columns, matrix = from / (size * size);
    const int64_t r = from / size % size, first = matrix * size * size;
    const double base = (largest > 0 ? largest : 1) / 1.5;
    for (int64_t c = 0; c < size; c++) {
        const int64_t i = first + (c < r ? r * size + c : c * size + r);
        if (c == r)
            row[c] = base * (1 + 0.5 * usc_stream_uniform(d, (uint64_t)i));
        else
            row[c] = base * 0.2 / sqrt((double)size) * usc_stream_normal(d, (uint64_t)i);
    }
}

/* The row's largest number goes to the diagonal, what is beside it becomes no heavier
 * than that: a product of many rows neither grows nor vanishes. */
static void make_solvable(const usc_shape *s, int64_t from, double *row)
{
    const int64_t r = from / s->columns % s->rows;
    int64_t largest = 0;
    double beside = 0;
    if (r >= s->columns) return;
    for (int64_t c = 0; c < s->columns; c++)
        if (fabs(row[c]) > fabs(row[largest])) largest = c;
    const double diagonal = row[largest];
    row[largest] = row[r];
    row[r] = diagonal;
    for (int64_t c = 0; c < s->columns; c++)
        beside += c == r ? 0 : fabs(row[c]);
    int e = 0;
    if (beside > fabs(diagonal)) (void)frexp(beside / fabs(diagonal), &e);
    for (int64_t c = 0; e > 0 && c < s->columns; c++)
        if (c != r) row[c] = ldexp(row[c], -e);
}

void usc_rows_form_floats(const usc_shape *shape, usc_need need, const usc_stats *s,
                          usc_stream stream, int64_t from, int64_t n, double *row)
{
    const unsigned has = shape->structure;
    const double largest = fmax(fabs(s->min), fabs(s->max));
    const bool square = shape->rows == shape->columns;
    if (need == USC_NEED_DEFINITE && square) {
        make_definite(shape, largest, stream, from, row);
        return;
    }
    if (need == USC_NEED_TRIANGULAR && square) make_solvable(shape, from, row);
    if ((has & USC_ROWS_ONE_HOT) != 0) {
        make_one_hot(stream, from / n, s->max, row, n);
        return;
    }
    if (rises(has) || falls(has)) qsort(row, (size_t)n, sizeof *row, by_value);
    if (falls(has)) turn_floats(row, n);
    if ((has & (USC_ROWS_SUM_ONE | USC_ROWS_NORM_ONE)) != 0) normalise(has, row, n);
}
