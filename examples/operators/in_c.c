// SPDX-License-Identifier: Apache-2.0
// Kernels of in_c.yaml. Views may have any strides; a status other than USC_OK becomes an
// exception with the text of `err`.
#include <math.h>

#include "sim_ops_c.h"

static usc_status floats_alone(const usc_tensor *t, usc_error *err)
{
    if (t->dtype == USC_F32) return USC_OK;
    return usc_error_set(err, USC_E_DTYPE, -1, "float32 is needed, not %s",
                         usc_dtype_info_of(t->dtype)->name);
}

static float get(const usc_tensor *t, int64_t i)
{
    return ((const float *)t->data)[usc_kernel_at(t, i)];
}

static void put(const usc_tensor *t, int64_t i, float value)
{
    ((float *)usc_kernel_data(t))[usc_kernel_at(t, i)] = value;
}

usc_status Silu(const usc_tensor *self, const usc_tensor *out, usc_error *err)
{
    const usc_status st = floats_alone(self, err);
    const int64_t n = usc_kernel_numel(out);
    for (int64_t i = 0; st == USC_OK && i < n; i++)
        put(out, i, get(self, i) / (1 + expf(-get(self, i))));
    return st;
}

usc_status Flip(const usc_tensor *self, const int64_t *dims, size_t n_dims,
                const usc_tensor *result, usc_error *err)
{
    usc_tensor from = *self;
    const usc_status st = floats_alone(self, err);
    int64_t first = 0;
    for (size_t k = 0; st == USC_OK && k < n_dims; k++) {
        const int64_t d = dims[k] < 0 ? dims[k] + self->ndim : dims[k];
        if (d < 0 || d >= self->ndim)
            return usc_error_set(err, USC_E_SHAPE, d, "there is no axis %lld",
                                 (long long)dims[k]);
        first += (from.sizes[d] - 1) * from.strides[d];
        from.strides[d] = -from.strides[d];
    }
    from.data = (const float *)self->data + first;
    const int64_t n = usc_kernel_numel(result);
    for (int64_t i = 0; st == USC_OK && i < n; i++)
        put(result, i, get(&from, i));
    return st;
}

/* A view as if it had the sizes of another: what is missing is repeated. */
static usc_tensor spread(const usc_tensor *t, const usc_tensor *to)
{
    usc_tensor made = *to;
    made.data = t->data;
    for (int d = 0; d < to->ndim; d++) {
        const int own = d - (to->ndim - t->ndim);
        made.strides[d] = own >= 0 && t->sizes[own] > 1 ? t->strides[own] : 0;
    }
    return made;
}

usc_status AxpyOut(const usc_tensor *x, const usc_tensor *y, double a, const double *top,
                   const usc_tensor *out, usc_error *err)
{
    if (isnan(a)) return usc_error_set(err, USC_E_ARG, -1, "a is no number");
    usc_status st = floats_alone(x, err);
    if (st == USC_OK) st = floats_alone(y, err);
    const usc_tensor all_x = spread(x, out), all_y = spread(y, out);
    const int64_t n = usc_kernel_numel(out);
    for (int64_t i = 0; st == USC_OK && i < n; i++) {
        const float value = (float)a * get(&all_x, i) + get(&all_y, i);
        put(out, i, top != NULL && value > (float)*top ? (float)*top : value);
    }
    return st;
}

usc_status Axpy(const usc_tensor *x, const usc_tensor *y, double a, const double *top,
                const usc_tensor *result, usc_error *err)
{
    return AxpyOut(x, y, a, top, result, err);
}

usc_status AxpyInPlace(const usc_tensor *x, const usc_tensor *y, double a, usc_error *err)
{
    return AxpyOut(x, y, a, NULL, x, err);
}

usc_status Ends(const usc_tensor *all, size_t n_all, const usc_tensor *first,
                const usc_tensor *last, usc_error *err)
{
    for (size_t i = 0; i < n_all; i++) {
        const int64_t n = usc_kernel_numel(&all[i]);
        if (n == 0) return USC_E_SHAPE;
        const usc_status st = floats_alone(&all[i], err);
        if (st != USC_OK) return st;
        put(first, (int64_t)i, get(&all[i], 0));
        put(last, (int64_t)i, get(&all[i], n - 1));
    }
    return USC_OK;
}
