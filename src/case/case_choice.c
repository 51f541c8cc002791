// SPDX-License-Identifier: Apache-2.0
// Whole numbers that differ from the right ones: which of them are indices that choose a
// value as good, in a place from which it may come, and none twice where each is to come
// once. Neighbours: case_state.h.
#include "case/case_state.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

/* Indices lie as [outer][n][inner], the values they point into as [outer][size][inner].
 */
typedef struct layout {
    int64_t outer, n, size, inner;
} layout;

/* The values, in a row; doubles of floats, bytes of all others. */
typedef struct values {
    const usc_choice *choice;
    const unsigned char *raw;
    const double *wide; /* NULL: of whole numbers */
    size_t size;
    double tiny; /* below it all are equal: a device may flush them */
} values;

static bool same_value(const values *v, int64_t a, int64_t b)
{
    const size_t size = v->size;
    if (v->wide == NULL)
        return memcmp(v->raw + (size_t)a * size, v->raw + (size_t)b * size, size) == 0;
    const double x = v->wide[a], y = v->wide[b];
    return x == y || (isnan(x) && isnan(y)) || (fabs(x) < v->tiny && fabs(y) < v->tiny) ||
           (v->choice->slack > 0 && fabs(x - y) <= v->choice->slack * fabs(y));
}

/* How often a value comes on its line. NaN never does. */
static int64_t count_of(const values *v, const layout *l, int64_t base, int64_t at)
{
    int64_t n = 0;
    for (int64_t k = 0; k < l->size; k++) {
        const int64_t i = base + k * l->inner;
        n += v->wide != NULL ? v->wide[i] == v->wide[at]
                             : memcmp(v->raw + (size_t)i * v->size,
                                      v->raw + (size_t)at * v->size, v->size) == 0;
    }
    return n;
}

static int64_t product(const int64_t *sizes, int from, int to)
{
    int64_t n = 1; /* of a tensor that exists: it fits */
    for (int i = from; i < to; i++)
        n *= sizes[i];
    return n;
}

/* How the indices lie along the values; false where they cannot be meant so. */
static bool layout_of(const usc_choice *c, const usc_tensor *got, layout *out)
{
    const usc_tensor *x = c->values;
    int64_t n_got = 0, n = 0;
    if (usc_tensor_numel(got, &n_got, NULL) != USC_OK ||
        usc_tensor_numel(x, &n, NULL) != USC_OK || x->ndim == 0)
        return false;
    if (c->dim < 0) {
        *out = (layout){1, n_got, n, 1};
        return true;
    }
    if (c->dim >= x->ndim || got->ndim > x->ndim) return false;
    *out = (layout){.outer = product(x->sizes, 0, c->dim),
                    .size = x->sizes[c->dim],
                    .inner = product(x->sizes, c->dim + 1, x->ndim),
                    .n = got->ndim < x->ndim ? 1 : got->sizes[c->dim]};
    return out->outer * out->n * out->inner == n_got;
}

/* `marks` tells for each index on which line it was last seen. */
static void forgive_along(const values *v, const layout *l, const int64_t *got,
                          const int64_t *want, int64_t *marks, uint8_t *open)
{
    const usc_choice *c = v->choice;
    for (int64_t line = 0; line < l->outer * l->inner; line++) {
        const int64_t o = line / l->inner, i = line % l->inner;
        const int64_t base = o * l->size * l->inner + i;
        for (int64_t k = 0; k < l->n; k++) {
            const int64_t at = (o * l->n + k) * l->inner + i;
            const int64_t g = got[at], right = want[at];
            if (g < 0 || g >= l->size || right < 0 || right >= l->size) continue;
            const bool again = c->once && marks[g] == line + 1;
            marks[g] = line + 1;
            if (open[at] == 0 || again || (c->cumulative && g > k)) continue;
            const int64_t a = base + g * l->inner, b = base + right * l->inner;
            open[at] =
                !(same_value(v, a, b) ||
                  (c->counts && count_of(v, l, base, a) == count_of(v, l, base, b)));
        }
    }
}

/* Whether index `at` along pooled dimension d lies in the window of output `out`. */
static bool in_window(const usc_choice *c, int d, int64_t at, int64_t out, int64_t size,
                      int64_t n_out)
{
    if (c->kernel[d] < 0) return true;
    if (c->kernel[d] == 0) {
        const int64_t stop = ((out + 1) * size + n_out - 1) / n_out;
        return at >= out * size / n_out && at < stop;
    }
    const int64_t dilation = c->dilation[d] > 0 ? c->dilation[d] : 1;
    const int64_t away = at - (out * c->stride[d] - c->padding[d]);
    return away >= 0 && away < c->kernel[d] * dilation && away % dilation == 0;
}

static bool in_windows(const usc_choice *c, const usc_tensor *got, int64_t index,
                       int64_t out)
{
    const usc_tensor *x = c->values;
    for (int d = c->n_window - 1; d >= 0; d--) {
        const int64_t size = x->sizes[x->ndim - c->n_window + d];
        const int64_t n_out = got->sizes[got->ndim - c->n_window + d];
        if (!in_window(c, d, index % size, out % n_out, size, n_out)) return false;
        index /= size;
        out /= n_out;
    }
    return true;
}

/* Pooling: an equal value within the window that an element looks at. */
static void forgive_pooled(const values *v, const usc_tensor *got, const int64_t *indices,
                           const int64_t *want, uint8_t *open)
{
    const usc_choice *c = v->choice;
    const usc_tensor *x = c->values;
    const int n = c->n_window;
    if (x->ndim < n || got->ndim < n) return;
    const int64_t size = product(x->sizes, x->ndim - n, x->ndim);
    const int64_t n_out = product(got->sizes, got->ndim - n, got->ndim);
    const int64_t planes = product(x->sizes, 0, x->ndim - n);
    if (planes != product(got->sizes, 0, got->ndim - n)) return;
    for (int64_t at = 0; at < planes * n_out; at++) {
        const int64_t g = indices[at], right = want[at], base = at / n_out * size;
        if (open[at] == 0 || g < 0 || g >= size || right < 0 || right >= size) continue;
        open[at] =
            !in_windows(c, got, g, at % n_out) || !same_value(v, base + g, base + right);
    }
}

static void forgive(usc_case *c, const values *v, const usc_tensor *got,
                    const int64_t *indices, const int64_t *want, uint8_t *open)
{
    layout l;
    if (v->choice->n_window > 0) {
        forgive_pooled(v, got, indices, want, open);
        return;
    }
    if (!layout_of(v->choice, got, &l)) return;
    int64_t *marks = usc_case_room(c, l.size, sizeof *marks);
    if (marks != NULL) forgive_along(v, &l, indices, want, marks, open);
}

/* Where they differ: numbers of floats, bytes of all others. */
static void mark_differing(usc_case *c, const usc_tensor *like, const unsigned char *got,
                           const unsigned char *want, uint8_t *open)
{
    const size_t size = usc_dtype_info_of(like->dtype)->size;
    const bool is_float = usc_case_is_float(like);
    for (int64_t i = 0; i < c->n; i++, got += size, want += size) {
        double a = 0, b = 0;
        open[i] = memcmp(got, want, size) != 0;
        if (!is_float) continue;
        usc_kernels_widen(like->dtype, got, &a, 1);
        usc_kernels_widen(like->dtype, want, &b, 1);
        open[i] = a != b;
    }
}

void usc_case_mark_open(usc_case *c, const usc_choice *choice, const void *got,
                        const void *want, uint8_t *open)
{
    mark_differing(c, &c->device, got, want, open);
    if (choice->values == NULL || c->device.dtype != USC_I64) return;
    const usc_dtype_info *info = usc_dtype_info_of(choice->values->dtype);
    values v = {
        .choice = choice, .size = info->size, .raw = usc_case_plain(c, choice->values)};
    if (usc_case_is_float(choice->values)) v.wide = usc_case_wide(c, choice->values);
    if (info->kind == USC_KIND_FLOAT && info->emin == -126) v.tiny = 0x1p-126;
    if (v.raw == NULL || c->work.failed) return; /* the driver tells */
    forgive(c, &v, &c->device, got, want, open);
}
