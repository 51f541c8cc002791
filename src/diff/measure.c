// SPDX-License-Identifier: Apache-2.0
// One pass over two tensors; formulas in docs/reference/diff.md. Neighbours: diff.c (what
// a distance means), kernels (widening).
#include "diff/measure.h"

#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "tensor/walk.h"

enum { LANES = 8, BLOCK = 1024, MOST_BYTES = 8 };

/* Text of statistics: usc_stats_to_json needs no more. */
enum { STATISTICS = 2 * USC_N_BINADES * 20 + 1024 };

double usc_diff_rounding(const char *name)
{
    if (name != NULL && strcmp(name, "complex128") == 0) return 0x1p-53;
    const usc_dtype_info *info = usc_dtype_info_of(usc_dtype_by_name(name));
    return info->kind == USC_KIND_FLOAT ? ldexp(1.0, -info->sig_bits) : 0x1p-24;
}

/* Sums in fixed lanes: the same bits whatever the machine. */
typedef struct sums {
    double squares[LANES], apart[LANES], most[LANES], most_apart[LANES];
    int64_t n_differ, n_special;
} sums;

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Elements of which one is no finite number: they are equal, or they are counted. */
static void add_special(const double *a, const double *b, int64_t n, sums *s)
{
    for (int64_t i = 0; i < n; i++) {
        const double both[] = {a[i], b[i]};
        if (isfinite(a[i]) && isfinite(b[i])) {
            const double d = fabs(a[i] - b[i]), x = fabs(a[i]);
            s->squares[i % LANES] += x * x;
            s->apart[i % LANES] += d * d;
            s->most[i % LANES] = larger(x, s->most[i % LANES]);
            s->most_apart[i % LANES] = larger(d, s->most_apart[i % LANES]);
            s->n_differ += a[i] < b[i] || a[i] > b[i];
        } else if (!(isnan(both[0]) && isnan(both[1])) &&
                   memcmp(&both[0], &both[1], sizeof both[0]) != 0) {
            s->n_special++;
            s->n_differ++;
        }
    }
}

static void add_block(const double *a, const double *b, int64_t n, sums *s)
{
    double odd[LANES] = {0}, differ[LANES] = {0};
    const sums before = *s;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            const double x = fabs(a[i + k]), d = fabs(a[i + k] - b[i + k]);
            s->squares[k] += x * x;
            s->apart[k] += d * d;
            s->most[k] = x > s->most[k] ? x : s->most[k];
            s->most_apart[k] = d > s->most_apart[k] ? d : s->most_apart[k];
            differ[k] += d > 0 ? 1.0 : 0.0;
            odd[k] += d - d; /* NaN where one is NaN or Inf */
        }
    double sum = 0;
    for (int k = 0; k < LANES; k++)
        sum += odd[k];
    if (isnan(sum)) { /* again, with care */
        *s = before;
        add_special(a, b, n, s);
        return;
    }
    for (int k = 0; k < LANES; k++)
        s->n_differ += (int64_t)differ[k];
    add_special(a + i, b + i, n - i, s);
}

static void settle(const sums *s, int64_t n, double rounding, double scale,
                   usc_diff_size *out)
{
    double squares = 0, apart = 0, most = 0, most_apart = 0;
    for (int k = 0; k < LANES; k++) {
        squares += s->squares[k];
        apart += s->apart[k];
        most = larger(most, s->most[k]);
        most_apart = larger(most_apart, s->most_apart[k]);
    }
    const double floor = scale * scale * (double)n;
    out->n = n;
    out->n_differ = s->n_differ;
    out->n_special = s->n_special;
    if (apart > 0) out->rms = sqrt(apart / larger(squares, floor)) / rounding;
    if (most_apart > 0) out->worst = most_apart / larger(most, scale) / rounding;
}

/* Elements [at, at + n) of a walk: where they lie, or gathered. */
static const void *elements(const usc_walk *w, bool dense, int64_t at, size_t n,
                            void *room)
{
    if (dense) return w->base + (size_t)at * w->size;
    usc_walk_gather(w, at, n, room);
    return room;
}

usc_status usc_diff_elements(const usc_tensor *a, const usc_tensor *b, double rounding,
                             double scale, usc_diff_size *out, usc_error *err)
{
    usc_walk wa, wb;
    sums s = {0};
    const bool alike =
        a->ndim == b->ndim &&
        memcmp(a->strides, b->strides, (size_t)a->ndim * sizeof *a->strides) == 0;
    *out = (usc_diff_size){0};
    usc_status st = usc_walk_begin(a, !alike, &wa, err);
    if (st == USC_OK) st = usc_walk_begin(b, !alike, &wb, err);
    if (st != USC_OK) return st;
    const bool dense_a = usc_walk_dense(&wa), dense_b = usc_walk_dense(&wb);
    for (int64_t at = 0; at < wa.n; at += BLOCK) {
        double wide[2][BLOCK], room[2][BLOCK * MOST_BYTES / sizeof(double)];
        const size_t n = (size_t)(wa.n - at < BLOCK ? wa.n - at : BLOCK);
        usc_kernels_widen(wa.dtype, elements(&wa, dense_a, at, n, room[0]), wide[0], n);
        usc_kernels_widen(wb.dtype, elements(&wb, dense_b, at, n, room[1]), wide[1], n);
        add_block(wide[0], wide[1], (int64_t)n, &s);
    }
    settle(&s, wa.n, rounding, scale, out);
    out->basis = USC_DIFF_BY_DATA;
    return USC_OK;
}

/* ---- by statistics ---- */

static double apart(double a, double b)
{
    return isnan(a) || isnan(b) ? 0 : fabs(a - b);
}

usc_status usc_diff_statistics(const char *a, const char *b, double rounding,
                               double scale, usc_diff_size *out, usc_error *err)
{
    usc_stats s[2];
    *out = (usc_diff_size){0};
    usc_status st = usc_stats_from_json(a, &s[0], err);
    if (st == USC_OK) st = usc_stats_from_json(b, &s[1], err);
    if (st != USC_OK) return st;
    const double n = s[0].n > 0 ? (double)s[0].n : 1;
    const double least = scale * sqrt(n);
    const double l2 = isnan(s[0].l2) ? least : larger(s[0].l2, least);
    const double most = larger(larger(fabs(s[0].min), fabs(s[0].max)), scale);
    const double end = larger(apart(s[0].min, s[1].min), apart(s[0].max, s[1].max));
    const double norm =
        larger(apart(s[0].l2, s[1].l2), apart(s[0].mean, s[1].mean) * sqrt(n));
    out->basis = USC_DIFF_BY_STATISTICS;
    out->n = s[0].n;
    out->n_differ = -1;
    const int64_t special[] = {s[0].n_nan - s[1].n_nan, s[0].n_pos_inf - s[1].n_pos_inf,
                               s[0].n_neg_inf - s[1].n_neg_inf};
    for (int i = 0; i < 3; i++)
        out->n_special += special[i] < 0 ? -special[i] : special[i];
    if (norm > 0 && l2 > 0) out->rms = norm / l2 / rounding;
    if (end > 0 && most > 0) out->worst = end / most / rounding;
    /* one element of many moves the norm little: a norm that moved tells more */
    out->worst = larger(out->worst, 8 * out->rms);
    if (!(out->worst > 0)) out->worst = out->rms = 1; /* other numbers, the same sums */
    return USC_OK;
}

/* ---- arguments of calls ---- */

static bool is_plain(const char *form)
{
    return form == NULL || *form == '\0' || strncmp(form, "conj", 4) == 0 ||
           strncmp(form, "neg", 3) == 0;
}

/* A view of what a blob holds of an argument; complex numbers are pairs. False: not of
 * numbers, or beyond the blob. */
static usc_status view_of(usc_trace *t, const usc_call_arg *arg, usc_tensor *out,
                          bool *ok, usc_error *err)
{
    const void *data;
    int64_t size, bytes = 0, below = 0;
    const bool pair64 = strcmp(arg->dtype_name, "complex64") == 0;
    const bool pairs = pair64 || strcmp(arg->dtype_name, "complex128") == 0;
    *ok = false;
    *out = (usc_tensor){.ndim = arg->ndim};
    out->dtype = pair64 ? USC_F32 : pairs ? USC_F64 : usc_dtype_by_name(arg->dtype_name);
    if (out->dtype == USC_DTYPE_NONE || (pairs && arg->ndim == USC_MAX_DIMS))
        return USC_OK;
    const usc_status st = usc_trace_blob(t, arg->blob, &data, &size, err);
    if (st != USC_OK) return st;
    for (int i = 0; i < arg->ndim; i++) {
        out->sizes[i] = arg->sizes[i];
        out->strides[i] = pairs ? 2 * arg->strides[i] : arg->strides[i];
    }
    if (pairs) {
        out->sizes[out->ndim] = 2;
        out->strides[out->ndim++] = 1;
    }
    const int64_t one = (int64_t)usc_dtype_info_of(out->dtype)->size * (pairs ? 2 : 1);
    if (arg->offset > INT64_MAX / 32 ||
        usc_tensor_extent(out, &bytes, &below, NULL) != USC_OK)
        return USC_OK;
    const int64_t begin = arg->offset * one - arg->first;
    *ok = begin >= below && begin - below <= size && bytes <= size - (begin - below);
    out->data = (const unsigned char *)data + (*ok ? begin : 0);
    return USC_OK;
}

static bool same_sizes(const usc_call_arg *a, const usc_call_arg *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->sizes, b->sizes, (size_t)a->ndim * sizeof *a->sizes) == 0;
}

/* Statistics of an argument: those that were kept, else those of its data, as they would
 * have been. NULL in *out: neither. Complex numbers are kept otherwise. */
static usc_status statistics_of(usc_trace *t, const usc_call_arg *arg,
                                char room[STATISTICS], const char **out, usc_error *err)
{
    usc_tensor view;
    usc_stats stats;
    bool ok = false;
    *out = arg->stats;
    if (*out != NULL || arg->blob == 0) return USC_OK;
    usc_status st = view_of(t, arg, &view, &ok, err);
    if (st != USC_OK || !ok || view.ndim != arg->ndim) return st;
    st = usc_stats_compute(&view, NULL, &stats, err);
    if (st != USC_OK) return st;
    (void)usc_stats_to_json(&stats, room, STATISTICS);
    *out = room;
    return USC_OK;
}

/* Where one trace has statistics alone. */
static usc_status measure_statistics(usc_trace *ta, const usc_call_arg *a, usc_trace *tb,
                                     const usc_call_arg *b, double rounding, double scale,
                                     usc_diff_size *out, usc_error *err)
{
    char room[2][STATISTICS];
    const char *text[2];
    usc_status st = statistics_of(ta, a, room[0], &text[0], err);
    if (st == USC_OK) st = statistics_of(tb, b, room[1], &text[1], err);
    if (st != USC_OK || text[0] == NULL || text[1] == NULL) return st;
    if (strcmp(text[0], text[1]) != 0)
        return usc_diff_statistics(text[0], text[1], rounding, scale, out, err);
    out->basis = USC_DIFF_BY_STATISTICS;
    return USC_OK;
}

usc_status usc_diff_measure(usc_trace *ta, const usc_call_arg *a, usc_trace *tb,
                            const usc_call_arg *b, bool by_statistics, double scale,
                            usc_diff_size *out, usc_error *err)
{
    usc_tensor va, vb;
    bool ok = false;
    usc_status st = USC_OK;
    const double rounding =
        larger(usc_diff_rounding(a->dtype_name), usc_diff_rounding(b->dtype_name));
    *out = (usc_diff_size){0};
    if (!same_sizes(a, b)) {
        const bool data = a->blob != 0 && b->blob != 0 && !by_statistics;
        out->basis = data ? USC_DIFF_BY_DATA : USC_DIFF_BY_STATISTICS;
        out->reshaped = true;
        return USC_OK;
    }
    if (!is_plain(a->form) || !is_plain(b->form)) return USC_OK;
    if (a->blob != 0 && b->blob != 0 && !by_statistics) {
        st = view_of(ta, a, &va, &ok, err);
        if (st == USC_OK && ok) st = view_of(tb, b, &vb, &ok, err);
        if (st == USC_OK && ok && va.ndim == vb.ndim)
            return usc_diff_elements(&va, &vb, rounding, scale, out, err);
    }
    if (st != USC_OK) return st;
    return measure_statistics(ta, a, tb, b, rounding, scale, out, err);
}
