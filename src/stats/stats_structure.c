// SPDX-License-Identifier: Apache-2.0
// Finds what a stand-in must keep beyond the distribution of single elements. Capturing
// pays for this: rows of random numbers are left after their first few elements.
#include "stats/stats_structure.h"

#include "base/hash.h"
#include "stats/stats_unique.h"

#include <math.h>
#include <string.h>

enum {
    CHUNK = 256,          /* elements widened at once */
    FIRST = 16,           /* the same at the start of a row: most are left there */
    MAX_ROWS = 16,        /* rows looked at */
    MAX_LOOKED = 65536,   /* elements looked at in all; also the longest row */
    MAX_SECOND = 1 << 14, /* integers of which the second extremes are found */
    N_PAIRS = 64,         /* places compared with their mirror image */
    N_SAMPLES = 16,       /* of a fingerprint */
    SAMPLE_BYTES = 64,
    WHOLE_BYTES = N_SAMPLES * SAMPLE_BYTES,
};

typedef struct look {
    const usc_walk *walk;
    const usc_stats *s;
    int64_t rows, columns; /* of a matrix */
    int64_t n_rows;        /* of all matrices */
    double lower_fill, upper_fill, tolerance;
    bool is_float;
} look;

/* What one row has shown so far. */
typedef struct row_sums {
    double previous, sum, squares;
    int64_t n_nonzero;
} row_sums;

static double element(const look *l, int64_t i)
{
    uint64_t raw;
    double x;
    usc_walk_gather(l->walk, i, 1, &raw);
    usc_dtype_widen(l->walk->dtype, &raw, &x, 1);
    return x;
}

/* Which of `open` still hold after element `x` in column `c` of row `r` of its matrix. */
static unsigned after_element(const look *l, unsigned open, row_sums *row, int64_t r,
                              int64_t c, double x)
{
    if (c > 0 && !(x >= row->previous)) open &= ~(unsigned)USC_ROWS_RISE;
    if (c > 0 && !(x <= row->previous)) open &= ~(unsigned)USC_ROWS_FALL;
    if (c > r && !(x == l->lower_fill)) open &= ~(unsigned)USC_LOWER;
    if (c < r && !(x == l->upper_fill)) open &= ~(unsigned)USC_UPPER;
    row->previous = x;
    row->sum += x;
    row->squares += x * x;
    row->n_nonzero += x != 0;
    return open;
}

static unsigned after_row(const look *l, unsigned open, const row_sums *row)
{
    if (!(fabs(row->sum - 1) < l->tolerance)) open &= ~(unsigned)USC_ROWS_SUM_ONE;
    if (!(fabs(row->squares - 1) < 2 * l->tolerance))
        open &= ~(unsigned)USC_ROWS_NORM_ONE;
    if (row->n_nonzero != 1) open &= ~(unsigned)USC_ROWS_ONE_HOT;
    return open;
}

static unsigned look_at_row(const look *l, unsigned open, int64_t i_row)
{
    double values[CHUNK];
    uint64_t raw[CHUNK];
    row_sums row = {0};
    const int64_t start = i_row * l->columns;
    size_t n = 0;
    for (int64_t from = 0; open != 0 && from < l->columns; from += (int64_t)n) {
        const int64_t rest = l->columns - from, most = from == 0 ? FIRST : CHUNK;
        n = (size_t)(rest < most ? rest : most);
        usc_walk_gather(l->walk, start + from, n, raw);
        usc_dtype_widen(l->walk->dtype, raw, values, n);
        for (size_t i = 0; open != 0 && i < n; i++)
            open = after_element(l, open, &row, i_row % l->rows, from + (int64_t)i,
                                 values[i]);
    }
    return open != 0 ? after_row(l, open, &row) : 0;
}

static bool row_is_unique(const look *l, int64_t i_row)
{
    uint64_t raw[CHUNK];
    if (l->columns > CHUNK) return false;
    usc_walk_gather(l->walk, i_row * l->columns, (size_t)l->columns, raw);
    const usc_walk row = {.base = (const unsigned char *)raw,
                          .n = l->columns,
                          .repeat = 1,
                          .dtype = l->walk->dtype,
                          .size = l->walk->size,
                          .ndim = 1,
                          .sizes = {l->columns},
                          .strides = {(int64_t)l->walk->size}};
    return usc_stats_unique(&row, row.dtype, l->s->int_min, l->s->int_max);
}

static bool is_near(double x, double y, double tolerance)
{
    return fabs(x - y) <= tolerance * fabs(y);
}

/* What the numbers of the whole tensor do not rule out. */
static unsigned candidates(const look *l)
{
    const usc_stats *s = l->s;
    const double n_rows = (double)l->n_rows, sum = s->mean * (double)l->walk->n;
    const bool finite = s->n_nan == 0 && s->n_pos_inf == 0 && s->n_neg_inf == 0;
    unsigned open = 0;
    if (l->columns >= 3) open |= USC_ROWS_RISE | USC_ROWS_FALL;
    if (l->columns >= 3 && l->rows >= 3) open |= USC_LOWER | USC_UPPER;
    if (l->columns < 2 || !finite) return open;
    if (s->min >= 0 && s->n_zero == s->n - s->n / l->columns &&
        is_near(sum, s->max * n_rows, 1e-6))
        open |= USC_ROWS_ONE_HOT;
    if (!l->is_float) return open;
    if (s->min >= 0 && is_near(sum, n_rows, l->tolerance)) open |= USC_ROWS_SUM_ONE;
    if (is_near(s->l2 * s->l2, (double)(s->n / l->columns), 2 * l->tolerance))
        open |= USC_ROWS_NORM_ONE;
    return open;
}

/* A row of the sample, spread over all rows. Those of the middle come first: rows on both
 * sides of which there are elements beyond the diagonal rule out most. */
static int64_t sampled_row(const look *l, int64_t k, int64_t n)
{
    return n > 1 ? (k + n / 2) % n * (l->n_rows - 1) / (n - 1) : l->n_rows / 2;
}

static bool is_symmetric(const look *l)
{
    const int64_t size = l->columns, n_matrices = l->n_rows / l->rows;
    if (!l->is_float || l->rows != size || size < 2) return false;
    for (int64_t k = 0; k < N_PAIRS; k++) {
        const int64_t i = (k * 7 + 1) % size, j = (k * 13) % size;
        const int64_t first = k * 31 % n_matrices * size * size;
        if (!(element(l, first + i * size + j) == element(l, first + j * size + i)))
            return false;
    }
    return true;
}

static unsigned structure_of(look *l)
{
    const int64_t most = MAX_LOOKED / l->columns;
    int64_t n = l->n_rows < MAX_ROWS ? l->n_rows : MAX_ROWS;
    if (n > most) n = most;
    const bool may_repeat = !l->is_float && !l->s->unique && l->n_rows > 1 &&
                            l->columns > 1 && l->walk->dtype != USC_BOOL;
    bool unique = may_repeat && n > 0;
    unsigned open = n > 0 ? candidates(l) : 0;
    l->lower_fill = element(l, l->columns - 1);
    l->upper_fill = element(l, (l->rows - 1) * l->columns);
    for (int64_t k = 0; k < n && (open != 0 || unique); k++) {
        if (open != 0) open = look_at_row(l, open, sampled_row(l, k, n));
        unique = unique && row_is_unique(l, sampled_row(l, k, n));
    }
    /* one value beyond the diagonal, another before it: the counts give the other side */
    const unsigned sides = USC_LOWER | USC_UPPER;
    if ((open & sides) == sides && !(l->lower_fill == l->upper_fill))
        open &= ~(unsigned)USC_UPPER;
    if (unique) open |= USC_ROWS_UNIQUE;
    if (is_symmetric(l)) open |= USC_SYMMETRIC;
    return open;
}

/* The smallest value above int_min and the largest below int_max: what is left of the
 * range when a value that stands for "none" is taken off. */
static void second_extremes(const usc_walk *walk, usc_stats *s)
{
    s->int_above_min = s->int_min;
    s->int_below_max = s->int_max;
    const bool may_be_apart = s->int_min < -1 || s->max > 0x1p24;
    if (walk->n > MAX_SECOND || !may_be_apart || fabs(s->min) > 0x1p53 ||
        fabs(s->max) > 0x1p53)
        return;
    double values[CHUNK], above = s->max, below = s->min;
    uint64_t raw[CHUNK];
    for (int64_t from = 0; from < walk->n; from += CHUNK) {
        const int64_t rest = walk->n - from;
        const size_t n = rest < CHUNK ? (size_t)rest : CHUNK;
        usc_walk_gather(walk, from, n, raw);
        usc_dtype_widen(walk->dtype, raw, values, n);
        for (size_t i = 0; i < n; i++) {
            above = values[i] > s->min && values[i] < above ? values[i] : above;
            below = values[i] < s->max && values[i] > below ? values[i] : below;
        }
    }
    s->int_above_min = (int64_t)above;
    s->int_below_max = (int64_t)below;
}

static uint64_t fingerprint_of(const usc_walk *walk)
{
    unsigned char bytes[WHOLE_BYTES];
    const int64_t sample = SAMPLE_BYTES / (int64_t)walk->size;
    size_t n = 0;
    if (walk->n <= N_SAMPLES * sample) {
        usc_walk_gather(walk, 0, (size_t)walk->n, bytes);
        n = (size_t)walk->n * walk->size;
    } else {
        for (int64_t k = 0; k < N_SAMPLES; k++, n += SAMPLE_BYTES)
            usc_walk_gather(walk, (walk->n - sample) / (N_SAMPLES - 1) * k,
                            (size_t)sample, bytes + n);
    }
    return usc_hash64_bytes(bytes, n) | 1; /* never 0 */
}

void usc_stats_structure(const usc_tensor *t, const usc_walk *walk, usc_stats *s)
{
    look l = {.walk = walk, .s = s};
    const usc_dtype_info *info = usc_dtype_info_of(walk->dtype);
    if (walk->n == 0) return;
    l.is_float = info->kind == USC_KIND_FLOAT;
    l.tolerance = info->sig_bits > 11 ? 1e-3 : 0.03;
    s->fingerprint = fingerprint_of(walk);
    if (!l.is_float) second_extremes(walk, s);
    if (s->n_nan + s->n_pos_inf + s->n_neg_inf == 0 && !(s->min < s->max)) return;
    usc_walk_matrix(t, !l.is_float, &l.rows, &l.columns);
    l.n_rows = walk->n / l.columns;
    s->structure = structure_of(&l);
    if ((s->structure & (USC_LOWER | USC_UPPER)) != 0)
        s->fill = (s->structure & USC_LOWER) != 0 ? l.lower_fill : l.upper_fill;
}
