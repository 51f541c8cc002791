// SPDX-License-Identifier: Apache-2.0
// The storage of a drawn tensor: its values, and around them what a kernel must not read.
#include <ulpscope/x/fuzz.h>

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "base/float_env.h"
#include "generate/values.h"

/* NaN, the largest integer, true: whoever reads it shows that in the result. */
static void put_canary(usc_dtype dtype, unsigned char *out)
{
    const usc_dtype_info *info = usc_dtype_info_of(dtype);
    if (info->kind == USC_KIND_FLOAT) {
        const double nan = (double)NAN;
        usc_dtype_narrow(dtype, &nan, out, 1);
        return;
    }
    memset(out, info->kind == USC_KIND_BOOL ? 1 : 0xff, info->size);
    const uint16_t probe = 1;
    unsigned char little;
    memcpy(&little, &probe, 1);
    if (info->kind == USC_KIND_INT) out[little ? info->size - 1 : 0] = 0x7f;
}

/* Goes on to the next element in row-major order; `at` is its place in the storage. */
static void step(const usc_fuzz_tensor *t, int64_t *index, int64_t *at)
{
    for (int axis = t->ndim; axis-- > 0;) {
        *at += t->strides[axis];
        if (++index[axis] < t->sizes[axis]) return;
        *at -= t->strides[axis] * t->sizes[axis];
        index[axis] = 0;
    }
}

/* Whether its elements are the storage, in row-major order. */
static bool is_whole(const usc_fuzz_tensor *t, int64_t n)
{
    int64_t due = 1;
    for (int axis = t->ndim; axis-- > 0; due *= t->sizes[axis])
        if (t->sizes[axis] != 1 && t->strides[axis] != due) return false;
    return t->room == n && t->offset == 0;
}

static USC_NOINLINE void fill(const usc_values *v, const usc_fuzz_tensor *t,
                              usc_stress kind, unsigned char *out)
{
    unsigned char chunk[USC_VALUES_CHUNK * 8], canary[8];
    int64_t index[USC_MAX_DIMS] = {0}, at = t->offset;
    const size_t size = v->info->size;
    const bool whole = is_whole(t, v->n);
    put_canary(t->dtype, canary);
    for (int64_t i = 0; i < t->room && !whole; i++)
        memcpy(out + (size_t)i * size, canary, size);
    for (int64_t from = 0; from < v->n; from += USC_VALUES_CHUNK) {
        const int64_t rest = v->n - from;
        const int64_t n = rest < USC_VALUES_CHUNK ? rest : USC_VALUES_CHUNK;
        usc_values_take(v, kind, from, n, whole ? out + (size_t)from * size : chunk);
        for (int64_t k = 0; k < n && !whole; k++) {
            memcpy(out + (size_t)at * size, chunk + (size_t)k * size, size);
            step(t, index, &at);
        }
    }
}

usc_status usc_fuzz_fill(const usc_fuzz_case *which, int i_tensor,
                         const usc_fuzz_tensor *t, usc_stress kind,
                         const usc_stress_domain *domain, void *out, size_t size,
                         usc_error *err)
{
    usc_values v;
    assert(which && t && domain && (unsigned)kind < USC_N_STRESS);
    const usc_dtype_info *info = usc_dtype_info_of(t->dtype);
    if (!usc_stress_suits(kind, t->dtype))
        return usc_error_set(err, USC_E_DTYPE, -1, "no values of kind %s for %s",
                             usc_stress_text(kind), info->name);
    if (t->room < 0 || size != (size_t)t->room * info->size)
        return usc_error_set(err, USC_E_ARG, -1, "fuzz: room for %zu bytes, not %zu",
                             size, (size_t)t->room * info->size);
    usc_values_begin(&v, t->dtype, t->ndim, t->sizes);
    v.domain = *domain;
    v.d.seed = which->seed;
    const uint64_t draw = which->number & ((UINT64_C(1) << USC_FUZZ_STEP_BIT) - 1);
    v.d.number = (draw << 8 | (uint64_t)(i_tensor & 0xff)) ^ UINT64_C(0xf0) << 48;
    const usc_float_env env = usc_float_env_enter();
    fill(&v, t, kind, out);
    usc_float_env_leave(env);
    return USC_OK;
}
