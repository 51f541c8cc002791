// SPDX-License-Identifier: Apache-2.0
// Softmax and norms of rows of float32, bit by bit what kernels.c and kernels_norm.c define;
// a few rows at a time, so that they stay in the nearest cache.
#include "fast.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool usc_sim_sum_rows(const usc_sim_numerics *n, usc_dtype dtype,
                      const usc_sim_rows *rows, size_t n_rows, size_t n_terms, float *out)
{
    return usc_sim_is_fast(n, dtype) &&
           usc_sim_fast_sums(usc_sim_fast_isa(), n, rows, n_rows, n_terms, out);
}

bool usc_sim_product_rows(const usc_sim_numerics *n, usc_dtype dtype,
                          const usc_sim_rows *a, const usc_sim_rows *b, size_t n_rows,
                          size_t n_columns, size_t n_terms, float *out)
{
    return usc_sim_is_fast(n, dtype) &&
           usc_sim_fast_products(usc_sim_fast_isa(), n, a, b, n_rows, n_columns, n_terms,
                                 out, (ptrdiff_t)n_columns);
}

/* Rows of `count` numbers that are added up together. */
static bool sums(const fast_isa *isa, const usc_sim_numerics *n, const float *x,
                 size_t n_rows, size_t count, float *out)
{
    const fast_rows rows = {x, (ptrdiff_t)count, 1};
    return usc_sim_fast_sums(isa, n, &rows, n_rows, count, out);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- softmax ------------------------------------------------------------------------- */

bool usc_sim_softmax_rows(const usc_sim_numerics *n, usc_dtype dtype, const float *x,
                          size_t n_rows, size_t count, float *out)
{
    const fast_isa *isa = usc_sim_fast_isa();
    if (n->online || !usc_sim_is_fast(n, dtype)) return false;
    for (size_t from = 0; from < n_rows; from += isa->lanes) {
        const size_t here = least(n_rows - from, isa->lanes);
        float sum[FAST_MOST_LANES], *to = out + from * count;
        for (size_t i = 0; i < here; i++) {
            const float *row = x + (from + i) * count;
            bool has_nan = false;
            const float most = isa->most(row, count, &has_nan);
            isa->exponentials(row, has_nan ? (double)NAN : (double)most, count,
                              to + i * count);
        }
        if (!sums(isa, n, to, here, count, sum)) return false;
        for (size_t i = 0; i < here; i++)
            isa->divided(to + i * count, sum[i], count);
    }
    return true;
}

bool usc_sim_log_softmax_rows(const usc_sim_numerics *n, usc_dtype dtype, const float *x,
                              size_t n_rows, size_t count, float *out)
{
    const fast_isa *isa = usc_sim_fast_isa();
    if (!usc_sim_is_fast(n, dtype)) return false;
    for (size_t from = 0; from < n_rows; from += isa->lanes) {
        const size_t here = least(n_rows - from, isa->lanes);
        float sum[FAST_MOST_LANES], most[FAST_MOST_LANES], *to = out + from * count;
        const float *rows = x + from * count;
        for (size_t i = 0; i < here; i++) {
            bool has_nan = false;
            most[i] = isa->most(rows + i * count, count, &has_nan);
            if (has_nan) most[i] = NAN;
            isa->exponentials(rows + i * count, (double)most[i], count, to + i * count);
        }
        if (!sums(isa, n, to, here, count, sum)) return false;
        for (size_t i = 0; i < here; i++) {
            isa->scaled(rows + i * count, most[i], 1, count, to + i * count);
            isa->shifted(to + i * count, -(float)log((double)sum[i]), count);
        }
    }
    return true;
}

/* ---- running sums --------------------------------------------------------------------- */

bool usc_sim_running_sums(const usc_sim_numerics *n, usc_dtype dtype, const float *x,
                          size_t n_rows, size_t count, size_t width, float *out)
{
    const fast_isa *isa = usc_sim_fast_isa();
    if (!usc_sim_is_fast(n, dtype)) return false;
    for (size_t row = 0; row < n_rows; row++, x += count * width, out += count * width) {
        if (width == 1) {
            float sum = 0;
            for (size_t k = 0; k < count; k++)
                out[k] = sum += x[k];
            continue;
        }
        if (count > 0) memcpy(out, x, width * sizeof *out);
        if (count > 0) isa->shifted(out, 0, width); /* a sum begins with 0, not with -0 */
        for (size_t k = 1; k < count; k++)
            isa->plus(out + (k - 1) * width, x + k * width, width, out + k * width);
    }
    return true;
}

/* ---- norms --------------------------------------------------------------------------- */

static const float *weights_of(const float *all, const usc_sim_norms *norms, size_t row)
{
    return all == NULL ? NULL : all + row % norms->period * (norms->n / norms->n_each);
}

/* Rounded to float32, as each step is. */
static float scale_of(const usc_sim_numerics *n, const usc_sim_norms *norms,
                      float variance)
{
    return (float)usc_sim_norm_scale(n, USC_F32, (double)variance, norms->epsilon);
}

/* Rows from..from + here: their means and variances; `room` has as many numbers. */
static bool moments(const fast_isa *isa, const usc_sim_numerics *n,
                    const usc_sim_norms *norms, size_t from, size_t here, float *mean,
                    float *variance, float *room)
{
    const size_t count = norms->n;
    const bool raw = n->variance == USC_SIM_MOMENTS && norms->by_mean;
    const double by = n->variance == USC_SIM_UNBIASED && norms->by_mean
                          ? (double)(count > 1 ? count - 1 : 1)
                          : (double)count;
    const float *x = norms->x + from * count;
    if (norms->by_mean && !sums(isa, n, x, here, count, mean)) return false;
    for (size_t i = 0; i < here; i++) {
        mean[i] = norms->by_mean ? (float)((double)mean[i] / (double)count) : 0;
        isa->squares(x + i * count, raw ? 0 : mean[i], count, room + i * count);
    }
    if (!sums(isa, n, room, here, count, variance)) return false;
    for (size_t i = 0; i < here; i++) {
        variance[i] = (float)((double)variance[i] / by);
        if (raw) variance[i] -= mean[i] * mean[i];
    }
    return true;
}

static void apply(const fast_isa *isa, const usc_sim_norms *norms, size_t row, float mean,
                  float scale, float *out)
{
    const float *w = weights_of(norms->weight, norms, row),
                *b = weights_of(norms->bias, norms, row);
    isa->scaled(norms->x + row * norms->n, mean, scale, norms->n, out);
    if (norms->n_each == 1) {
        isa->affine(out, w, b, norms->n);
        return;
    }
    for (size_t i = 0; i < norms->n; i += norms->n_each, out += norms->n_each) {
        const size_t at = i / norms->n_each;
        if (w != NULL) isa->scaled(out, 0, w[at], norms->n_each, out);
        if (b != NULL) isa->shifted(out, b[at], norms->n_each);
    }
}

bool usc_sim_norm_rows(const usc_sim_numerics *n, usc_dtype dtype,
                       const usc_sim_norms *norms, float *mean, float *variance,
                       float *scale, float *out)
{
    const fast_isa *isa = usc_sim_fast_isa();
    const bool two_passes = !norms->by_mean || (n->variance != USC_SIM_WELFORD &&
                                                n->variance != USC_SIM_CHUNKS);
    if (!two_passes || !usc_sim_is_fast(n, dtype)) return false;
    for (size_t from = 0; from < norms->n_rows; from += isa->lanes) {
        const size_t here = least(norms->n_rows - from, isa->lanes);
        float *to = out + from * norms->n;
        if (!moments(isa, n, norms, from, here, mean + from, variance + from, to))
            return false;
        for (size_t i = from; i < from + here; i++) {
            scale[i] = scale_of(n, norms, variance[i]);
            apply(isa, norms, i, mean[i], scale[i], out + i * norms->n);
        }
    }
    return true;
}

void usc_sim_norm_apply_rows(const usc_sim_norms *norms, const float *mean,
                             const float *scale, float *out)
{
    const fast_isa *isa = usc_sim_fast_isa();
    for (size_t i = 0; i < norms->n_rows; i++)
        apply(isa, norms, i, mean[i], scale[i], out + i * norms->n);
}

bool usc_sim_norm_back_weights(const usc_sim_numerics *n, usc_dtype dtype,
                               const usc_sim_norms *norms, const float *grad,
                               const float *mean, const float *scale, float *weight,
                               float *bias)
{
    const fast_isa *isa = usc_sim_fast_isa();
    const size_t count = norms->n, n_rows = norms->n_rows;
    if (norms->n_each != 1 || norms->period != 1 || !usc_sim_is_fast(n, dtype))
        return false;
    float *room = malloc(((n_rows + 1) * count + 1) * sizeof *room);
    bool fine = room != NULL;
    for (size_t i = 0; fine && i < n_rows; i++) {
        const fast_norm_row row = {
            norms->x + i * count, grad + i * count, NULL, count, mean[i], scale[i]};
        isa->norm_terms(&row, room + n_rows * count, room + i * count);
    }
    const fast_rows along = {room, 1, (ptrdiff_t)count},
                    plain = {grad, 1, (ptrdiff_t)count};
    fine = fine && usc_sim_fast_sums(isa, n, &along, count, n_rows, weight) &&
           usc_sim_fast_sums(isa, n, &plain, count, n_rows, bias);
    free(room);
    return fine;
}

bool usc_sim_norm_back_rows(const usc_sim_numerics *n, usc_dtype dtype,
                            const usc_sim_norms *norms, const float *grad,
                            const float *mean, const float *scale, float *out)
{
    const fast_isa *isa = usc_sim_fast_isa();
    const size_t count = norms->n;
    if (norms->n_each != 1 || count > (1 << 24) || !usc_sim_is_fast(n, dtype))
        return false;
    float *room = malloc((isa->lanes * count + 1) * sizeof *room);
    bool fine = room != NULL;
    for (size_t from = 0; fine && from < norms->n_rows; from += isa->lanes) {
        const size_t here = least(norms->n_rows - from, isa->lanes);
        float along[FAST_MOST_LANES], sum[FAST_MOST_LANES], *to = out + from * count;
        fast_norm_row rows[FAST_MOST_LANES];
        for (size_t i = 0; i < here; i++) {
            const size_t at = (from + i) * count;
            rows[i] = (fast_norm_row){norms->x + at,
                                      grad + at,
                                      weights_of(norms->weight, norms, from + i),
                                      count,
                                      norms->by_mean ? mean[from + i] : 0,
                                      scale[from + i]};
            isa->norm_terms(&rows[i], to + i * count, room + i * count);
        }
        fine =
            sums(isa, n, room, here, count, along) && sums(isa, n, to, here, count, sum);
        for (size_t i = 0; fine && i < here; i++)
            isa->norm_gradient(&rows[i], along[i], norms->by_mean ? sum[i] : 0,
                               to + i * count);
    }
    free(room);
    return fine;
}
