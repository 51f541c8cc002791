// SPDX-License-Identifier: Apache-2.0
// Strides of a layout; see fuzz_lay.h.
#include "generate/fuzz_lay.h"

#include "base/checked.h"

/* Axes from the one that runs slowest to the one that runs fastest. */
typedef struct order {
    int axis[USC_MAX_DIMS];
} order;

/* As the example has them: larger strides run slower, equal ones as they come. */
static order example_order(const usc_fuzz_tensor *t)
{
    order o = {0};
    for (int i = 0; i < t->ndim; i++) {
        int at = i;
        while (at > 0 && t->strides[o.axis[at - 1]] < t->strides[i]) {
            o.axis[at] = o.axis[at - 1];
            at--;
        }
        o.axis[at] = i;
    }
    return o;
}

static order rows_first(const usc_fuzz_tensor *t)
{
    order o = {0};
    for (int i = 0; i < t->ndim; i++)
        o.axis[i] = i;
    return o;
}

/* Moves what stands at `from` to the end. */
static void to_the_end(order *o, int from, int n)
{
    const int moved = o->axis[from];
    for (int i = from; i + 1 < n; i++)
        o->axis[i] = o->axis[i + 1];
    o->axis[n - 1] = moved;
}

static order order_of(const usc_fuzz_tensor *t, layout kind)
{
    order o = kind >= ROW_MAJOR ? rows_first(t) : example_order(t);
    if (kind == TRANSPOSED && t->ndim > 1) to_the_end(&o, t->ndim - 2, t->ndim);
    if (kind == CHANNELS_LAST && t->ndim > 2) to_the_end(&o, 1, t->ndim);
    for (int i = 0; kind == REVERSED && i < t->ndim; i++)
        o.axis[i] = t->ndim - 1 - i;
    return o;
}

usc_status usc_fuzz_lay(usc_fuzz_tensor *t, layout kind, int64_t before, int64_t behind,
                        int flat, usc_error *err)
{
    const order o = order_of(t, kind);
    int64_t step = kind == EVERY_SECOND ? 2 : 1, last = 0, part;
    bool fits = true;
    for (int i = t->ndim; i-- > 0;) {
        const int axis = o.axis[i];
        const int64_t size = t->sizes[axis];
        t->strides[axis] = axis == flat ? 0 : step;
        if (axis == flat) continue;
        fits &= usc_mul_i64(size > 0 ? size - 1 : 0, step, &part);
        fits &= usc_add_i64(last, part, &last);
        fits &= usc_mul_i64(step, size > 0 ? size : 1, &step);
        if (kind == ROWS_APART && i == t->ndim - 1) fits &= usc_add_i64(step, 3, &step);
    }
    t->offset = before;
    fits &= usc_add_i64(last, before + behind + 1, &t->room);
    return fits ? USC_OK : usc_error_set(err, USC_E_RANGE, -1, "fuzz: sizes overflow");
}
