// SPDX-License-Identifier: Apache-2.0
// Sizes of strided views, every product checked; the contracts stand in
// ulpscope/tensor.h.
#include <ulpscope/tensor.h>

#include "base/checked.h"

#include <assert.h>
#include <inttypes.h>

static usc_status check_sizes(int ndim, const int64_t *sizes, usc_error *err)
{
    if (ndim < 0 || ndim > USC_MAX_DIMS)
        return usc_error_set(err, USC_E_SHAPE, -1, "%d axes: 0 to %d are allowed", ndim,
                             USC_MAX_DIMS);
    for (int i = 0; i < ndim; i++)
        if (sizes[i] < 0)
            return usc_error_set(err, USC_E_SHAPE, i, "axis %d: negative size %" PRId64,
                                 i, sizes[i]);
    return USC_OK;
}

static bool is_empty(int ndim, const int64_t *sizes)
{
    for (int i = 0; i < ndim; i++)
        if (sizes[i] == 0) return true;
    return false;
}

usc_status usc_tensor_make(usc_tensor *out, const void *data, usc_dtype dtype, int ndim,
                           const int64_t *sizes, usc_error *err)
{
    assert(out);
    assert(ndim <= 0 || sizes);
    *out = (usc_tensor){0};
    const usc_status st = check_sizes(ndim, sizes, err);
    if (st != USC_OK) return st;

    usc_tensor t = {.data = data, .dtype = dtype, .ndim = ndim};
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        t.sizes[i] = sizes[i];
        t.strides[i] = stride;
        /* an empty axis counts as one, so that strides of empty views are torch's */
        if (!usc_mul_i64(stride, sizes[i] > 0 ? sizes[i] : 1, &stride))
            return usc_error_set(err, USC_E_RANGE, i, "axis %d: too many elements", i);
    }
    int64_t bytes;
    if (!usc_mul_i64(stride, (int64_t)usc_dtype_info_of(dtype)->size, &bytes))
        return usc_error_set(err, USC_E_RANGE, -1, "%" PRId64 " elements: too many bytes",
                             stride);
    *out = t;
    return USC_OK;
}

usc_status usc_tensor_numel(const usc_tensor *t, int64_t *out, usc_error *err)
{
    assert(t);
    assert(out);
    *out = 0;
    const usc_status st = check_sizes(t->ndim, t->sizes, err);
    if (st != USC_OK || is_empty(t->ndim, t->sizes)) return st;

    int64_t numel = 1;
    for (int i = 0; i < t->ndim; i++)
        if (!usc_mul_i64(numel, t->sizes[i], &numel))
            return usc_error_set(err, USC_E_RANGE, i, "axis %d: too many elements", i);
    *out = numel;
    return USC_OK;
}

/* Adds the reach of one axis, in elements, to whichever side of `data` it lies on. */
static bool add_reach(int64_t size, int64_t stride, int64_t *above, int64_t *below)
{
    int64_t reach;
    if (!usc_mul_i64(size - 1, stride, &reach)) return false;
    if (reach >= 0) return usc_add_i64(*above, reach, above);
    return reach != INT64_MIN && usc_add_i64(*below, -reach, below);
}

usc_status usc_tensor_extent(const usc_tensor *t, int64_t *bytes, int64_t *below,
                             usc_error *err)
{
    assert(t);
    assert(bytes && below);
    *bytes = *below = 0;
    const usc_status st = check_sizes(t->ndim, t->sizes, err);
    if (st != USC_OK || is_empty(t->ndim, t->sizes)) return st;

    int64_t up = 1, down = 0;
    for (int i = 0; i < t->ndim; i++)
        if (!add_reach(t->sizes[i], t->strides[i], &up, &down))
            return usc_error_set(err, USC_E_RANGE, i,
                                 "axis %d: stride %" PRId64 " reaches too far", i,
                                 t->strides[i]);
    const int64_t size = (int64_t)usc_dtype_info_of(t->dtype)->size;
    int64_t all, low;
    if (!usc_add_i64(up, down, &all) || !usc_mul_i64(all, size, &all) ||
        !usc_mul_i64(down, size, &low))
        return usc_error_set(err, USC_E_RANGE, -1, "too many bytes");
    *bytes = all;
    *below = low;
    return USC_OK;
}

bool usc_tensor_contiguous(const usc_tensor *t)
{
    assert(t);
    if (is_empty(t->ndim, t->sizes)) return true;
    int64_t expected = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        if (t->sizes[i] == 1) continue;
        if (t->strides[i] != expected) return false;
        if (!usc_mul_i64(expected, t->sizes[i], &expected)) return false;
    }
    return true;
}
