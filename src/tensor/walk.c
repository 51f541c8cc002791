// SPDX-License-Identifier: Apache-2.0
// Walks over strided views; the contracts stand in walk.h.
#include "tensor/walk.h"

#include <string.h>

/* Appends an axis, merged into the one before where the two are one run. */
static void append_axis(usc_walk *walk, int64_t size, int64_t stride)
{
    const int last = walk->ndim - 1;
    if (last >= 0 && walk->strides[last] == stride * size) {
        walk->sizes[last] *= size;
        walk->strides[last] = stride;
        return;
    }
    walk->sizes[walk->ndim] = size;
    walk->strides[walk->ndim] = stride;
    walk->ndim++;
}

/* Axes of a view in the order of memory, without those of size 1 and the broadcast ones:
 * turned to run upwards from `base`, sorted by falling stride (equal strides keep their
 * order). The rest of `*walk` is set, its axes are for the caller to merge. */
static int axes_by_memory(const usc_tensor *t, usc_walk *walk, int64_t *sizes,
                          int64_t *strides)
{
    int n = 0;
    for (int i = 0; i < t->ndim; i++) {
        const int64_t size = t->sizes[i];
        int64_t stride = t->strides[i] * (int64_t)walk->size;
        if (size == 1) continue;
        if (stride == 0) {
            walk->repeat *= size;
            walk->n /= size;
            continue;
        }
        if (stride < 0) {
            walk->base += (size - 1) * stride;
            stride = -stride;
        }
        int at = n++;
        for (; at > 0 && strides[at - 1] < stride; at--) {
            sizes[at] = sizes[at - 1];
            strides[at] = strides[at - 1];
        }
        sizes[at] = size;
        strides[at] = stride;
    }
    return n;
}

static void order_by_memory(usc_walk *walk, const usc_tensor *t)
{
    int64_t sizes[USC_MAX_DIMS], strides[USC_MAX_DIMS];
    const int n = axes_by_memory(t, walk, sizes, strides);
    for (int i = 0; i < n; i++)
        append_axis(walk, sizes[i], strides[i]);
}

static usc_walk start(const usc_tensor *t, int64_t n)
{
    return (usc_walk){.base = t->data,
                      .n = n,
                      .repeat = 1,
                      .dtype = t->dtype,
                      .size = usc_dtype_info_of(t->dtype)->size};
}

static void order_by_index(usc_walk *walk, const usc_tensor *t)
{
    for (int i = 0; i < t->ndim; i++)
        if (t->sizes[i] != 1)
            append_axis(walk, t->sizes[i], t->strides[i] * (int64_t)walk->size);
}

usc_status usc_walk_begin(const usc_tensor *t, bool row_major, usc_walk *out,
                          usc_error *err)
{
    *out = (usc_walk){0};
    int64_t numel, bytes, below;
    usc_status st = usc_tensor_numel(t, &numel, err);
    if (st != USC_OK) return st;
    st = usc_tensor_extent(t, &bytes, &below, err); /* so that no offset overflows */
    if (st != USC_OK) return st;
    *out = start(t, numel);
    if (numel == 0) return USC_OK;
    if (row_major)
        order_by_index(out, t);
    else
        order_by_memory(out, t);
    return USC_OK;
}

void usc_walk_matrix(const usc_tensor *t, bool row_major, int64_t *rows, int64_t *columns)
{
    int64_t sizes[USC_MAX_DIMS], strides[USC_MAX_DIMS];
    int n = 0;
    usc_walk unused = start(t, 1);
    unused.n = 0; /* nothing is walked, only ordered */
    if (!row_major)
        n = axes_by_memory(t, &unused, sizes, strides);
    else
        for (int i = 0; i < t->ndim; i++)
            if (t->sizes[i] != 1) sizes[n++] = t->sizes[i];
    *columns = n > 0 ? sizes[n - 1] : 1;
    *rows = n > 1 ? sizes[n - 2] : 1;
}

usc_walk usc_walk_over(const usc_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n *= t->sizes[i];
    usc_walk walk = start(t, n);
    if (n > 0) order_by_index(&walk, t);
    return walk;
}

bool usc_walk_dense(const usc_walk *walk)
{
    return walk->ndim == 0 ||
           (walk->ndim == 1 && walk->strides[0] == (int64_t)walk->size);
}

/* One loop per size, so that each copy is one move. */
static void copy_strided(const unsigned char *src, int64_t stride, size_t item, size_t n,
                         unsigned char *dst)
{
    if (stride == (int64_t)item)
        memcpy(dst, src, n * item);
    else if (item == 1)
        for (size_t i = 0; i < n; i++)
            dst[i] = src[(int64_t)i * stride];
    else if (item == 2)
        for (size_t i = 0; i < n; i++)
            memcpy(dst + 2 * i, src + (int64_t)i * stride, 2);
    else if (item == 4)
        for (size_t i = 0; i < n; i++)
            memcpy(dst + 4 * i, src + (int64_t)i * stride, 4);
    else
        for (size_t i = 0; i < n; i++)
            memcpy(dst + item * i, src + (int64_t)i * stride, item);
}

void usc_walk_gather(const usc_walk *walk, int64_t start, size_t n, void *dst)
{
    unsigned char *out = dst;
    if (walk->ndim == 0) {
        if (n > 0) memcpy(out, walk->base, walk->size);
        return;
    }
    const int last = walk->ndim - 1;
    while (n > 0) {
        int64_t rest = start / walk->sizes[last];
        const int64_t column = start % walk->sizes[last];
        const unsigned char *src = walk->base + column * walk->strides[last];
        for (int i = last - 1; i >= 0; i--) {
            src += rest % walk->sizes[i] * walk->strides[i];
            rest /= walk->sizes[i];
        }
        const int64_t run = walk->sizes[last] - column;
        const size_t n_now = run < (int64_t)n ? (size_t)run : n;
        copy_strided(src, walk->strides[last], walk->size, n_now, out);
        out += n_now * walk->size;
        start += (int64_t)n_now;
        n -= n_now;
    }
}

usc_status usc_walk_check_dims(const char *what, const usc_tensor *t,
                               const usc_tensor *like, usc_error *err)
{
    if (t->ndim != like->ndim)
        return usc_error_set(
            err, USC_E_SHAPE, t->ndim < like->ndim ? t->ndim : like->ndim,
            "%s has %d axes, the device's output %d", what, t->ndim, like->ndim);
    for (int axis = 0; axis < t->ndim; axis++)
        if (t->sizes[axis] != like->sizes[axis])
            return usc_error_set(
                err, USC_E_SHAPE, axis, "%s, axis %d: %lld, the device's output has %lld",
                what, axis, (long long)t->sizes[axis], (long long)like->sizes[axis]);
    return USC_OK;
}
