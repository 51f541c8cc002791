// SPDX-License-Identifier: Apache-2.0
// Strided reading for the judge: gathers a block only where elements do not lie side by
// side, so that contiguous operands are read in place.
#include "judge/judge_walk.h"

#include <string.h>

usc_walk usc_walk_over(const usc_tensor *t)
{
    usc_walk w = {
        .data = t->data, .dtype = t->dtype, .size = usc_dtype_info_of(t->dtype)->size};
    for (int axis = 0; axis < t->ndim; axis++) {
        if (t->sizes[axis] == 1) continue;
        const int last = w.ndim - 1;
        if (last >= 0 && w.strides[last] == t->strides[axis] * t->sizes[axis]) {
            w.sizes[last] *= t->sizes[axis];
            w.strides[last] = t->strides[axis];
        } else {
            w.sizes[w.ndim] = t->sizes[axis];
            w.strides[w.ndim++] = t->strides[axis];
        }
    }
    return w;
}

/* Copies `count` elements that lie `step` bytes apart. */
static void copy_apart(unsigned char *to, const unsigned char *from, size_t count,
                       int64_t step, size_t size)
{
    if (step == (int64_t)size) {
        memcpy(to, from, count * size);
        return;
    }
    for (size_t i = 0; i < count; i++, to += size) {
        const unsigned char *x = from + (int64_t)i * step;
        if (size == 4)
            memcpy(to, x, 4);
        else if (size == 2)
            memcpy(to, x, 2);
        else
            memcpy(to, x, size);
    }
}

const void *usc_walk_raw(const usc_walk *w, int64_t first, size_t count,
                         usc_walk_room *room)
{
    const int64_t size = (int64_t)w->size;
    if (w->ndim == 0 || (w->ndim == 1 && w->strides[0] == 1))
        return w->data + first * size;
    const int inner = w->ndim - 1;
    size_t done = 0;
    while (done < count) {
        int64_t rest = first + (int64_t)done;
        const int64_t column = rest % w->sizes[inner];
        int64_t offset = column * w->strides[inner];
        rest /= w->sizes[inner];
        for (int axis = inner - 1; axis >= 0; axis--) {
            offset += rest % w->sizes[axis] * w->strides[axis];
            rest /= w->sizes[axis];
        }
        const int64_t left = w->sizes[inner] - column;
        const size_t run = left < (int64_t)(count - done) ? (size_t)left : count - done;
        copy_apart(room->raw + done * w->size, w->data + offset * size, run,
                   w->strides[inner] * size, w->size);
        done += run;
    }
    return room->raw;
}

const double *usc_walk_load(const usc_walk *w, int64_t first, size_t count,
                            usc_walk_room *room, double *out)
{
    const void *raw = usc_walk_raw(w, first, count, room);
    if (w->dtype == USC_F64 && raw != room->raw && (uintptr_t)raw % sizeof(double) == 0)
        return raw;
    usc_dtype_widen(w->dtype, raw, out, count);
    return out;
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
