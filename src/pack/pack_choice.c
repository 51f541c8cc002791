// SPDX-License-Identifier: Apache-2.0
// Indices that differ from the right ones: whether the values that they choose are equal,
// so that only a tie was broken otherwise.
#include "pack/pack_finding.h"

#include <math.h>
#include <string.h>

/* Indices lie as [outer][n][inner], the values they point into as [outer][size][inner].
 */
typedef struct layout {
    int64_t outer, n, size, inner;
} layout;

static bool as_good(double a, double b, double slack)
{
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= slack * fabs(b);
}

static double value_at(const usc_tensor *t, int64_t i)
{
    double v;
    const size_t size = usc_dtype_info_of(t->dtype)->size;
    usc_dtype_widen(t->dtype, (const char *)t->data + (size_t)i * size, &v, 1);
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
static bool layout_of(const usc_pack_choice *c, const usc_tensor *x,
                      const usc_tensor *got, layout *out)
{
    int64_t n = 0, n_got = 0;
    if (usc_tensor_numel(x, &n, NULL) != USC_OK ||
        usc_tensor_numel(got, &n_got, NULL) != USC_OK)
        return false;
    if (c->dim < 0) {
        *out = (layout){1, n_got, n, 1};
        return true;
    }
    if (c->dim >= x->ndim) return false;
    *out = (layout){.outer = product(x->sizes, 0, c->dim),
                    .size = x->sizes[c->dim],
                    .inner = product(x->sizes, c->dim + 1, x->ndim),
                    .n = got->ndim < x->ndim ? 1 : got->sizes[c->dim]};
    return out->outer * out->n * out->inner == n_got;
}

/* No index twice along the dimension: `marks` tells for each what was last there. */
static bool chooses_well(const usc_pack_choice *c, const layout *l, const int64_t *got,
                         const int64_t *want, int64_t *marks)
{
    const usc_tensor *x = &c->values->tensor;
    for (int64_t line = 0; line < l->outer * l->inner; line++) {
        const int64_t o = line / l->inner, i = line % l->inner;
        for (int64_t k = 0; k < l->n; k++) {
            const int64_t at = (o * l->n + k) * l->inner + i;
            const int64_t g = got[at], right = want[at];
            if (g < 0 || g >= l->size || right < 0 || right >= l->size) return false;
            if (!c->repeating && marks[g] == line + 1) return false;
            marks[g] = line + 1;
            const int64_t base = o * l->size * l->inner + i;
            if (!as_good(value_at(x, base + g * l->inner),
                         value_at(x, base + right * l->inner), c->slack))
                return false;
        }
    }
    return true;
}

/* Pooling: an equal value within one window's reach of the right place. */
static bool pools_well(const usc_pack_choice *c, const usc_tensor *got,
                       const int64_t *indices, const int64_t *want)
{
    const usc_tensor *x = &c->values->tensor;
    if (x->ndim < 2 || got->ndim < 2) return false;
    const int64_t width = x->sizes[x->ndim - 1], size = width * x->sizes[x->ndim - 2];
    const int64_t n = got->sizes[got->ndim - 1] * got->sizes[got->ndim - 2];
    const int64_t planes = product(x->sizes, 0, x->ndim - 2);
    if (planes != product(got->sizes, 0, got->ndim - 2)) return false;
    for (int64_t at = 0; at < planes * n; at++) {
        const int64_t g = indices[at], right = want[at], base = at / n * size;
        if (g < 0 || g >= size || right < 0 || right >= size) return false;
        const int64_t rows = g / width - right / width,
                      columns = g % width - right % width;
        if (rows >= c->kernel[0] || -rows >= c->kernel[0] || columns >= c->kernel[1] ||
            -columns >= c->kernel[1] ||
            !as_good(value_at(x, base + g), value_at(x, base + right), c->slack))
            return false;
    }
    return true;
}

bool usc_pack_same_choice(const usc_pack_work *w, const usc_pack_choice *choice,
                          const usc_tensor *got, const usc_tensor *want)
{
    layout l;
    if (choice->values == NULL || got->dtype != USC_I64) return false;
    if (choice->kernel[0] > 0) return pools_well(choice, got, got->data, want->data);
    if (choice->values->tensor.ndim == 0 ||
        !layout_of(choice, &choice->values->tensor, got, &l))
        return false;
    const size_t room = (size_t)l.size * sizeof(int64_t);
    int64_t *marks = usc_arena_take(w->arena, room + 1);
    if (marks == NULL) return false;
    memset(marks, 0, room);
    return chooses_well(choice, &l, got->data, want->data, marks);
}
