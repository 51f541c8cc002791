// SPDX-License-Identifier: Apache-2.0
// Stand-ins: bins say how many elements come from which range (bins.c), a permutation
// which element is which, a draw what it is. Rows that have a form get it afterwards.
#include "generate/bins.h"
#include "generate/rows.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/compiler.h"
#include "base/float_env.h"
#include "base/hash.h"
#include "tensor/walk.h"

enum { CHUNK = 512 };

/* ---- which stream ---- */

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

usc_stream usc_stand_in_stream(const usc_stats *stats, const char *trace, int64_t call,
                               const char *path)
{
    const uint64_t words[] = {stats->fingerprint,      (uint64_t)stats->n,
                              (uint64_t)stats->n_zero, bits_of(stats->mean),
                              bits_of(stats->l2),      bits_of(stats->min),
                              bits_of(stats->max),     stats->structure};
    if (stats->fingerprint != 0)
        return (usc_stream){.seed = usc_hash64_bytes(words, sizeof words)};
    return (usc_stream){.seed = usc_hash64_bytes(trace, strlen(trace)),
                        .number = usc_hash64_bytes(path, strlen(path)) + (uint64_t)call};
}

/* ---- one element ---- */

/* Too large for the stacks of some threads. */
typedef struct maker {
    const usc_stats *stats;
    const usc_stand_in_options *options;
    usc_stats whole; /* of integers: the same with min and max of the exact ones */
    usc_shape shape;
    usc_stream values, places;
    usc_bins bins;
} maker;

/* Where in its bin an element stands, 0 ... 1, leaning so that the mean is met. */
static double fraction(const maker *m, int64_t i, const usc_bin *bin, int64_t rank)
{
    const double t = m->bins.tilt, u = usc_stream_uniform(m->values, (uint64_t)i);
    if (m->stats->sorted) return ((double)(rank - bin->first) + u) / (double)bin->count;
    return t > 0 ? u + t * (1 - u) : u * (1 + t);
}

static bool is_smallest(const maker *m, const usc_bin *bin, int64_t rank)
{
    return m->bins.i_min >= 0 && bin == &m->bins.bin[m->bins.i_min] && rank == bin->first;
}

static bool is_largest(const maker *m, const usc_bin *bin, int64_t rank)
{
    return m->bins.i_max >= 0 && bin == &m->bins.bin[m->bins.i_max] &&
           rank == bin->first + bin->count - 1;
}

/* The elements on this side of the diagonals are counted through; -1 beyond. */
static int64_t drawn_index(const usc_shape *s, int64_t i)
{
    const unsigned sides = s->structure & (USC_LOWER | USC_UPPER);
    const int64_t size = s->rows * s->columns, matrix = i / size;
    const int64_t r = i % size / s->columns, c = i % s->columns;
    const int64_t on =
        r < s->columns ? r : s->columns; /* rows that end at the diagonal */
    if ((sides & USC_LOWER) != 0 && c > r) return -1;
    if ((sides & USC_UPPER) != 0 && c < r) return -1;
    int64_t before = i;
    if (sides == USC_LOWER)
        before = on * (on + 1) / 2 + (r - on) * s->columns + c;
    else if (sides == USC_UPPER)
        before = r < s->columns ? r * s->columns - r * (r - 1) / 2 + c - r
                                : s->columns * (s->columns + 1) / 2;
    else if (sides != 0)
        before = r;
    return sides == 0 ? i : matrix * (s->n_drawn / (s->n / size)) + before;
}

/* A symmetric matrix is drawn on one side and shown on both. */
static int64_t mirrored(const usc_shape *s, int64_t i)
{
    const int64_t size = s->rows * s->columns;
    const int64_t r = i % size / s->columns, c = i % s->columns;
    if ((s->structure & USC_SYMMETRIC) == 0 || c <= r) return i;
    return i - i % size + c * s->columns + r;
}

static const usc_bin *bin_of_element(const maker *m, int64_t i, int64_t *rank)
{
    const uint64_t n = (uint64_t)m->shape.n_drawn;
    *rank = m->stats->sorted ? i : (int64_t)usc_stream_place(m->places, (uint64_t)i, n);
    return usc_bins_find(&m->bins, *rank);
}

static double drawn_float(const maker *m, int64_t i)
{
    int64_t rank;
    i = drawn_index(&m->shape, mirrored(&m->shape, i));
    if (i < 0) return m->stats->fill;
    const usc_bin *bin = bin_of_element(m, i, &rank);
    if (bin->kind == USC_BIN_SPECIAL) return bin->lo;
    if (is_largest(m, bin, rank)) return m->stats->max;
    if (is_smallest(m, bin, rank)) return m->stats->min;
    const double f = fraction(m, i, bin, rank), width = bin->hi - bin->lo;
    const double at = bin->negative ? bin->hi - f * width : bin->lo + f * width;
    const double x = trunc(at / bin->quantum) * bin->quantum;
    if (bin->kind == USC_BIN_ANY) return x < bin->lo ? bin->lo : x;
    const double magnitude = x < bin->lo ? bin->lo : x > bin->hi ? bin->hi : x;
    return bin->negative ? -magnitude : magnitude;
}

/* floor(f (span + 1)), at most span. */
static uint64_t part_of(uint64_t span, double f)
{
    const double x = f * ((double)span + 1);
    if (!(x < 0x1p64)) return span;
    return (uint64_t)x < span ? (uint64_t)x : span;
}

static uint64_t drawn_integer(const maker *m, int64_t i)
{
    int64_t rank;
    i = drawn_index(&m->shape, i);
    if (i < 0) return (uint64_t)(int64_t)m->stats->fill;
    const usc_bin *bin = bin_of_element(m, i, &rank);
    if (bin->kind == USC_BIN_SPECIAL) return 0;
    if (is_largest(m, bin, rank)) return (uint64_t)m->stats->int_max;
    if (is_smallest(m, bin, rank)) return (uint64_t)m->stats->int_min;
    const uint64_t part = part_of(bin->int_hi - bin->int_lo, fraction(m, i, bin, rank));
    return bin->negative ? 0 - (bin->int_hi - part) : bin->int_lo + part;
}

/* ---- integers that do not repeat ---- */

/* Ascending: number i with what it is ahead of the lowest place it could have. */
static uint64_t unique_sorted(const maker *m, int64_t i)
{
    const uint64_t span = (uint64_t)m->stats->int_max - (uint64_t)m->stats->int_min;
    const uint64_t slack = span - (uint64_t)(m->shape.n - 1);
    const double u = usc_stream_uniform(m->values, (uint64_t)i);
    uint64_t ahead = part_of(slack, ((double)i + u) / (double)m->shape.n);
    if (i == 0) ahead = 0;
    if (i == m->shape.n - 1) ahead = slack;
    return (uint64_t)m->stats->int_min + (uint64_t)i + ahead;
}

/* The place of the extremes: a permutation of the range is turned so that place 0 has
 * the smallest, and those that would have the largest and the second place change. */
static uint64_t unique_value(const maker *m, usc_stream d, int64_t i)
{
    const uint64_t low = (uint64_t)m->stats->int_min;
    const uint64_t span = (uint64_t)m->stats->int_max - low;
    if (span == UINT64_MAX || span + 1 > UINT64_C(1) << 62)
        return low + usc_stream_place(d, (uint64_t)i, UINT64_C(1) << 62);
    return low + usc_stream_place(d, (uint64_t)i, span + 1);
}

/* Changes two elements so that the smallest and the largest number are there. */
static void have_extremes(const maker *m, uint64_t *values, int64_t n)
{
    const uint64_t wanted[2] = {(uint64_t)m->stats->int_min, (uint64_t)m->stats->int_max};
    for (int k = 0; k < 2; k++) {
        int64_t i = 0;
        while (i < n && values[i] != wanted[k])
            i++;
        for (int64_t at = n - 1; i == n && at >= 0; at--)
            if (values[at] != wanted[1 - k]) values[at] = wanted[k], i = at;
    }
}

static uint64_t within(const usc_stand_in_options *o, uint64_t value)
{
    const int64_t v = (int64_t)value;
    if (o->need != USC_NEED_INDEX) return value;
    if (o->has_ignored && (v == o->ignored || v < 0)) return (uint64_t)o->ignored;
    if (o->limit <= 0 || (v < o->limit && v >= -o->limit)) return value;
    return (uint64_t)(v < 0 ? -(-(v + 1) % o->limit) - 1 : v % o->limit);
}

static bool all_unique(const maker *m)
{
    const uint64_t span = (uint64_t)m->stats->int_max - (uint64_t)m->stats->int_min;
    return m->stats->unique && span >= (uint64_t)(m->shape.n - 1);
}

static void make_integers(const maker *m, int64_t from, int64_t n, uint64_t *values)
{
    const bool rows_unique = (m->shape.structure & USC_ROWS_UNIQUE) != 0;
    const uint64_t span = (uint64_t)m->stats->int_max - (uint64_t)m->stats->int_min;
    usc_stream d = m->places;
    for (int64_t k = 0; k < n; k++) {
        const int64_t i = from + k;
        if (all_unique(m))
            values[k] = m->stats->sorted ? unique_sorted(m, i) : unique_value(m, d, i);
        else if (rows_unique && span >= (uint64_t)(m->shape.columns - 1)) {
            d.number = m->places.number + (uint64_t)(i / m->shape.columns) * 2;
            values[k] = unique_value(m, d, i % m->shape.columns);
        } else
            values[k] = drawn_integer(m, i);
    }
}

/* ---- writing them ---- */

static void write_integers(usc_dtype dtype, const uint64_t *values, size_t n,
                           unsigned char *out)
{
    const size_t size = usc_dtype_info_of(dtype)->size;
    for (size_t i = 0; i < n; i++) {
        const uint8_t b = (uint8_t)values[i];
        const uint16_t h = (uint16_t)values[i];
        const uint32_t w = (uint32_t)values[i];
        const void *from = size == 1   ? (const void *)&b
                           : size == 2 ? (const void *)&h
                           : size == 4 ? (const void *)&w
                                       : (const void *)&values[i];
        memcpy(out + i * size, from, size);
    }
}

static void finish_integers(const maker *m, uint64_t *values, int64_t n)
{
    const bool is_unsigned = usc_dtype_info_of(m->shape.dtype)->kind == USC_KIND_UINT;
    usc_rows_order_integers(m->shape.structure, is_unsigned, values, n);
    for (int64_t i = 0; i < n; i++)
        values[i] = within(m->options, values[i]);
}

/* Elements in runs of one row, which is then given its form. */
static void make_runs(const maker *m, int64_t run, void *scratch, unsigned char *out)
{
    const size_t size = usc_dtype_info_of(m->shape.dtype)->size;
    double *floats = scratch;
    uint64_t *integers = scratch;
    for (int64_t from = 0; from < m->shape.n; from += run) {
        const int64_t rest = m->shape.n - from, n = rest < run ? rest : run;
        unsigned char *to = out + (size_t)from * size;
        if (m->shape.is_float) {
            for (int64_t k = 0; k < n; k++)
                floats[k] = drawn_float(m, from + k);
            usc_rows_form_floats(&m->shape, m->options->need, m->stats, m->values, from,
                                 n, floats);
            usc_dtype_narrow(m->shape.dtype, floats, to, (size_t)n);
        } else {
            make_integers(m, from, n, integers);
            if (n == m->shape.n && all_unique(m) && !m->stats->sorted)
                have_extremes(m, integers, n);
            finish_integers(m, integers, n);
            write_integers(m->shape.dtype, integers, (size_t)n, to);
        }
    }
}

/* ---- all of it ---- */

static usc_status read_shape(const usc_tensor *like, usc_shape *out, usc_error *err)
{
    const usc_kind kind = usc_dtype_info_of(like->dtype)->kind;
    usc_walk walk;
    *out = (usc_shape){.dtype = like->dtype, .is_float = kind == USC_KIND_FLOAT};
    if (kind == USC_KIND_NONE)
        return usc_error_set(err, USC_E_DTYPE, -1, "no stand-in of dtype %s",
                             usc_dtype_info_of(like->dtype)->name);
    const usc_status st = usc_walk_begin(like, !out->is_float, &walk, err);
    if (st != USC_OK) return st;
    out->n = walk.n;
    usc_walk_matrix(like, !out->is_float, &out->rows, &out->columns);
    return USC_OK;
}

usc_status usc_stand_in_size(const usc_tensor *like, size_t *out, usc_error *err)
{
    usc_shape shape;
    assert(like && out);
    *out = 0;
    const usc_status st = read_shape(like, &shape, err);
    if (st == USC_OK) *out = (size_t)shape.n * usc_dtype_info_of(like->dtype)->size;
    return st;
}

/* Whole rows where they have a form; all where no integer may come twice. */
static int64_t run_of(const maker *m)
{
    const unsigned rows = USC_ROWS_RISE | USC_ROWS_FALL | USC_ROWS_SUM_ONE |
                          USC_ROWS_NORM_ONE | USC_ROWS_ONE_HOT;
    if (!m->shape.is_float && all_unique(m) && !m->stats->sorted) return m->shape.n;
    if ((m->shape.structure & rows) != 0 || m->options->need >= USC_NEED_DEFINITE)
        return m->shape.columns;
    return CHUNK;
}

/* Kept apart so that nothing moves out from between the changes of the float modes. */
static USC_NOINLINE usc_status make(maker *m, const usc_alloc *alloc, void *out,
                                    usc_error *err)
{
    const usc_status st = usc_bins_make(m->stats, &m->shape, &m->bins, err);
    if (st != USC_OK) return st;
    const int64_t run = run_of(m);
    const size_t room = (size_t)run * sizeof(double);
    void *scratch = alloc->resize(alloc->ctx, NULL, 0, room);
    if (scratch == NULL) return usc_no_memory("stand-in", err);
    make_runs(m, run, scratch, out);
    (void)alloc->resize(alloc->ctx, scratch, room, 0);
    return USC_OK;
}

/* Integers beyond 2^53 are rounded in `min` and `max`, and other tools' statistics may
 * have the exact ones alone. */
static void take_range(maker *m)
{
    const bool is_unsigned = usc_dtype_info_of(m->shape.dtype)->kind == USC_KIND_UINT;
    const int64_t low = m->stats->int_min, high = m->stats->int_max;
    m->whole = *m->stats;
    m->whole.min = is_unsigned ? (double)(uint64_t)low : (double)low;
    m->whole.max = is_unsigned ? (double)(uint64_t)high : (double)high;
    m->stats = &m->whole;
}

usc_status usc_stand_in_make(const usc_tensor *like, const usc_stats *stats,
                             const usc_stand_in_options *options, usc_stream stream,
                             void *out, size_t size, usc_error *err)
{
    static const usc_stand_in_options none = {0};
    assert(like && stats);
    if (options == NULL) options = &none;
    const usc_alloc *alloc = options->alloc != NULL ? options->alloc : &usc_libc_alloc;
    usc_shape shape;
    usc_status st = read_shape(like, &shape, err);
    if (st != USC_OK) return st;
    const size_t needed = (size_t)shape.n * usc_dtype_info_of(like->dtype)->size;
    if (size != needed)
        return usc_error_set(err, USC_E_ARG, -1, "stand-in: room for %zu bytes, not %zu",
                             size, needed);
    if (shape.n == 0) return USC_OK;
    shape.structure = stats->structure;
    maker *m = alloc->resize(alloc->ctx, NULL, 0, sizeof *m);
    if (m == NULL) return usc_no_memory("stand-in", err);
    *m = (maker){.stats = stats, .options = options, .shape = shape};
    m->values = m->places = stream;
    m->places.number ^= UINT64_C(1) << 63;
    if (!shape.is_float) take_range(m);
    const usc_float_env env = usc_float_env_enter();
    st = make(m, alloc, out, err);
    usc_float_env_leave(env);
    (void)alloc->resize(alloc->ctx, m, sizeof *m, 0);
    return st;
}
