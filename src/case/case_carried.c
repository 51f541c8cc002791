// SPDX-License-Identifier: Apache-2.0
// Operators that carry elements elsewhere and compute nothing: views, copies, gathers.
// Their output is right where it has the very bytes that the CPU gives in the dtypes
// captured; no other precision, no replay is asked. Where a byte differs nothing is said:
// then the rule looks at it. Neighbours: case_state.h.
#include "case/case_state.h"

#include <string.h>

#include "kernels/kernels.h"
#include "kernels/walk_load.h"

static size_t block(int64_t n, int64_t i)
{
    return (size_t)(n - i < USC_JUDGE_BLOCK ? n - i : USC_JUDGE_BLOCK);
}

/* Whether two tensors of one form hold the same bits; copies neither. */
static bool same_bits(const usc_tensor *a, const usc_tensor *b, int64_t n)
{
    const usc_walk walks[2] = {usc_walk_over(a), usc_walk_over(b)};
    usc_walk_room room[2];
    for (int64_t i = 0; i < n; i += USC_JUDGE_BLOCK) {
        const size_t m = block(n, i);
        if (memcmp(usc_walk_raw(&walks[0], i, m, &room[0]),
                   usc_walk_raw(&walks[1], i, m, &room[1]), m * walks[0].size) != 0)
            return false;
    }
    return true;
}

/* How many elements of a float tensor are NaN or Inf. */
static int64_t count_odd(const usc_tensor *t, int64_t n)
{
    const usc_walk walk = usc_walk_over(t);
    usc_walk_room room;
    double values[USC_JUDGE_BLOCK];
    int64_t n_odd = 0;
    for (int64_t i = 0; i < n; i += USC_JUDGE_BLOCK) {
        const size_t m = block(n, i);
        const double *x = usc_walk_load(&walk, i, m, &room, values);
        for (size_t k = 0; k < m; k++)
            n_odd += !(x[k] - x[k] == 0); /* of NaN and Inf it is NaN */
    }
    return n_odd;
}

static bool has_its_bytes(const usc_case *c)
{
    const usc_tensor *native = c->given.a;
    if (!usc_case_given(c, USC_GIVEN_AS_ASKED) || native == NULL) return false;
    if (c->o.bytes != NULL)
        return c->o.dtype != NULL && strcmp(c->o.dtype, c->text) == 0 &&
               usc_case_fits(native, &c->bytes) && native->dtype == c->bytes.dtype &&
               same_bits(native, &c->bytes, c->n);
    return native->dtype == c->device.dtype && usc_case_fits(native, &c->device) &&
           same_bits(native, &c->device, c->n);
}

usc_status usc_case_carried(usc_case *c, usc_error *err)
{
    if (!has_its_bytes(c)) return usc_case_ask(c, USC_WANT_REFERENCE, 0, usc_case_form);
    const bool counts = c->o.bytes == NULL && usc_case_is_float(&c->device);
    usc_finding form = {.path = c->o.path, .n = c->n, .ndim = c->device.ndim};
    memcpy(form.sizes, c->device.sizes, sizeof form.sizes);
    c->stage = NULL;
    return usc_findings_same(c->found, &form,
                             counts ? (int)usc_dtype_info_of(c->device.dtype)->size : 0,
                             counts ? count_odd(&c->device, c->n) : 0, err);
}
