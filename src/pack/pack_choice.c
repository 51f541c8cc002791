// SPDX-License-Identifier: Apache-2.0
// Integers that differ from the right ones: which of them are indices that choose an
// equal value, so that only a tie was broken otherwise. The rule:
// python/ulpscope/_ties.py.
#include "kernels/kernels.h"
#include "pack/pack_finding.h"

#include <math.h>
#include <string.h>

/* Indices lie as [outer][n][inner], the values they point into as [outer][size][inner].
 */
typedef struct layout {
    int64_t outer, n, size, inner;
} layout;

static bool equal(double a, double b, double slack)
{
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= slack * fabs(b);
}

static double value_at(const usc_tensor *t, int64_t i)
{
    double v;
    const size_t size = usc_dtype_info_of(t->dtype)->size;
    usc_kernels_widen(t->dtype, (const char *)t->data + (size_t)i * size, &v, 1);
    return v;
}

static int64_t product(const int64_t *sizes, int from, int to)
{
    int64_t n = 1; /* of a tensor that exists: it fits */
    for (int i = from; i < to; i++)
        n *= sizes[i];
    return n;
}

/* How the indices lie along the values; false where they cannot be meant so. */
static bool layout_of(const usc_pack_choice *c, const usc_tensor *got, layout *out)
{
    const usc_tensor *x = &c->values->tensor;
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
static void forgive_along(const usc_pack_choice *c, const layout *l, const int64_t *got,
                          const int64_t *want, int64_t *marks, uint8_t *open)
{
    const usc_tensor *x = &c->values->tensor;
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
            open[at] = !equal(value_at(x, base + g * l->inner),
                              value_at(x, base + right * l->inner), c->slack);
        }
    }
}

/* Whether index `at` along pooled dimension d lies in the window of output `out`. */
static bool in_window(const usc_pack_choice *c, int d, int64_t at, int64_t out,
                      int64_t size, int64_t n_out)
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

static bool in_windows(const usc_pack_choice *c, const usc_tensor *got, int64_t index,
                       int64_t out)
{
    const usc_tensor *x = &c->values->tensor;
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
static void forgive_pooled(const usc_pack_choice *c, const usc_tensor *got,
                           const int64_t *indices, const int64_t *want, uint8_t *open)
{
    const usc_tensor *x = &c->values->tensor;
    const int n = c->n_window;
    if (x->ndim < n || got->ndim < n) return;
    const int64_t size = product(x->sizes, x->ndim - n, x->ndim);
    const int64_t n_out = product(got->sizes, got->ndim - n, got->ndim);
    const int64_t planes = product(x->sizes, 0, x->ndim - n);
    if (planes != product(got->sizes, 0, got->ndim - n)) return;
    for (int64_t at = 0; at < planes * n_out; at++) {
        const int64_t g = indices[at], right = want[at], base = at / n_out * size;
        if (open[at] == 0 || g < 0 || g >= size || right < 0 || right >= size) continue;
        open[at] = !in_windows(c, got, g, at % n_out) ||
                   !equal(value_at(x, base + g), value_at(x, base + right), c->slack);
    }
}

void usc_pack_mark_open(const usc_pack_work *w, const usc_pack_choice *choice,
                        const usc_tensor *got, const usc_tensor *want, uint8_t *open)
{
    int64_t n = 0;
    layout l;
    if (usc_tensor_numel(got, &n, NULL) != USC_OK) return;
    const size_t size = usc_dtype_info_of(got->dtype)->size;
    for (int64_t i = 0; i < n; i++) {
        const size_t at = (size_t)i * size;
        open[i] = memcmp((const char *)got->data + at, (const char *)want->data + at,
                         size) != 0;
    }
    if (choice->values == NULL || got->dtype != USC_I64) return;
    if (choice->n_window > 0) {
        forgive_pooled(choice, got, got->data, want->data, open);
        return;
    }
    if (!layout_of(choice, got, &l)) return;
    const size_t room = (size_t)l.size * sizeof(int64_t);
    int64_t *marks = usc_arena_take(w->arena, room + 1);
    if (marks == NULL) return; /* the caller looks at the arena */
    memset(marks, 0, room);
    forgive_along(choice, &l, got->data, want->data, marks, open);
}
