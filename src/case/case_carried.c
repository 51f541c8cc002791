// SPDX-License-Identifier: Apache-2.0
// Operators that carry elements elsewhere and compute nothing: views, copies, gathers.
// Their output is right where it has the very bytes that the CPU gives in the dtypes
// captured; no other precision, no replay is asked. Where a byte differs nothing is said:
// then the rule looks at it. Neighbours: case_state.h.
#include "case/case_state.h"

#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/walk_load.h"

static size_t block(int64_t n, int64_t i)
{
    return (size_t)(n - i < USC_JUDGE_BLOCK ? n - i : USC_JUDGE_BLOCK);
}

/* Whether two tensors of one form have their elements in the same places. */
static bool lie_alike(const usc_tensor *a, const usc_tensor *b)
{
    for (int d = 0; d < a->ndim; d++)
        if (a->sizes[d] > 1 && a->strides[d] != b->strides[d]) return false;
    return true;
}

/* Over the elements as they lie in memory, each once; in their order where not `alike`.
 */
static usc_walk walk_over(const usc_tensor *t, bool alike)
{
    usc_walk walk;
    if (alike && usc_walk_begin(t, false, &walk, NULL) == USC_OK) return walk;
    return usc_walk_over(t);
}

/* Whether two tensors of one form hold the same bits; copies neither. */
static bool same_bits(const usc_tensor *a, const usc_tensor *b)
{
    const bool alike = lie_alike(a, b);
    const usc_walk walks[2] = {walk_over(a, alike), walk_over(b, alike)};
    usc_walk_room room[2];
    for (int64_t i = 0; i < walks[0].n; i += USC_JUDGE_BLOCK) {
        const size_t m = block(walks[0].n, i);
        if (memcmp(usc_walk_raw(&walks[0], i, m, &room[0]),
                   usc_walk_raw(&walks[1], i, m, &room[1]), m * walks[0].size) != 0)
            return false;
    }
    return true;
}

/* Of `m` elements that lie in a row; those of an exponent of ones. Fast where it matters.
 */
static int64_t count_block(usc_dtype dtype, const void *raw, size_t m)
{
    const unsigned char *at = raw; /* of a file, at any address */
    int64_t n = 0;
    if (dtype == USC_F32) {
        for (size_t k = 0; k < m; k++) {
            uint32_t x;
            memcpy(&x, at + k * sizeof x, sizeof x);
            n += (x & 0x7f800000U) == 0x7f800000U;
        }
        return n;
    }
    if (dtype == USC_F16 || dtype == USC_BF16) {
        const unsigned ones = dtype == USC_F16 ? 0x7c00 : 0x7f80;
        for (size_t k = 0; k < m; k++) {
            uint16_t x;
            memcpy(&x, at + k * sizeof x, sizeof x);
            n += (x & ones) == ones;
        }
        return n;
    }
    double x[USC_JUDGE_BLOCK];
    usc_kernels_widen(dtype, raw, x, m);
    for (size_t k = 0; k < m; k++)
        n += !isfinite(x[k]);
    return n;
}

/* How many elements of a float tensor are NaN or Inf. */
static int64_t count_odd(const usc_tensor *t)
{
    const usc_walk walk = walk_over(t, true);
    usc_walk_room room;
    int64_t n_odd = 0;
    for (int64_t i = 0; i < walk.n; i += USC_JUDGE_BLOCK) {
        const size_t m = block(walk.n, i);
        n_odd += count_block(walk.dtype, usc_walk_raw(&walk, i, m, &room), m);
    }
    return n_odd * walk.repeat;
}

static bool has_its_bytes(const usc_case *c)
{
    const usc_tensor *native = c->given.a;
    if (!usc_case_given(c, USC_GIVEN_AS_ASKED) || native == NULL) return false;
    if (c->o.bytes != NULL)
        return c->o.dtype != NULL && strcmp(c->o.dtype, c->text) == 0 &&
               usc_case_fits(native, &c->bytes) && native->dtype == c->bytes.dtype &&
               same_bits(native, &c->bytes);
    return native->dtype == c->device.dtype && usc_case_fits(native, &c->device) &&
           same_bits(native, &c->device);
}

usc_status usc_case_carried(usc_case *c, usc_error *err)
{
    if (!has_its_bytes(c))
        return usc_case_ask_for(c, USC_WANT_REFERENCE, 0, USC_STAGE_FORM);
    const bool counts = c->o.bytes == NULL && usc_case_is_float(&c->device);
    usc_finding form = {.path = c->o.path, .n = c->n, .ndim = c->device.ndim};
    memcpy(form.sizes, c->device.sizes, sizeof form.sizes);
    c->stage = NULL;
    return usc_findings_same(c->found, &form,
                             counts ? (int)usc_dtype_info_of(c->device.dtype)->size : 0,
                             counts ? count_odd(&c->device) : 0, err);
}
