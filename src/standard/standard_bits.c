// SPDX-License-Identifier: Apache-2.0
// Standards that look at representations: units in the last place, and equal bits.
// docs/reference/metrics.md, 3.
#include "standard/standard_trial.h"

#include <math.h>
#include <string.h>

/* ---- ulp ---- */

/* Place of a value among those of its dtype, counted from zero, and its sign. All NaN are
 * one value, beyond infinity: the quiet one. */
typedef struct place {
    uint64_t from_zero;
    bool negative;
} place;

static place place_of(usc_dtype dtype, const unsigned char *raw)
{
    uint64_t bits = 0;
    double value;
    const int size = (int)usc_dtype_info_of(dtype)->size, sign = size * 8 - 1;
    for (int i = 0; i < size; i++)
        bits |= (uint64_t)raw[i] << 8 * i;
    usc_kernels_widen(dtype, raw, &value, 1);
    if (isnan(value) && size == 1) return (place){UINT64_C(1) << sign, false};
    if (isnan(value)) {
        const int fraction = usc_dtype_info_of(dtype)->sig_bits - 1;
        return (place){(UINT64_C(1) << sign) - (UINT64_C(1) << (fraction - 1)), false};
    }
    return (place){bits & ((UINT64_C(1) << sign) - 1), bits >> sign != 0};
}

static uint64_t distance(place a, place b)
{
    if (a.negative != b.negative) return a.from_zero + b.from_zero;
    return a.from_zero > b.from_zero ? a.from_zero - b.from_zero
                                     : b.from_zero - a.from_zero;
}

/* What the device holds and what is expected, both as bytes of the device's dtype. */
typedef struct bytes {
    _Alignas(8) unsigned char device[USC_JUDGE_BLOCK * 8];
    _Alignas(8) unsigned char expected[USC_JUDGE_BLOCK * 8];
} bytes;

static void load_bytes(const usc_trial *c, usc_trial_reader *d, usc_trial_reader *e,
                       int64_t at, bytes *out)
{
    const size_t count = usc_trial_count(c, at);
    memcpy(out->device, usc_walk_raw(&d->walk, at, count, &d->room),
           count * d->walk.size);
    if (e->walk.dtype == c->dtype)
        memcpy(out->expected, usc_walk_raw(&e->walk, at, count, &e->room),
               count * e->walk.size);
    else
        usc_dtype_narrow(c->dtype, usc_trial_load(e, at, count), out->expected, count);
}

void usc_rule_ulp(usc_trial *c)
{
    usc_trial_reader d, e;
    bytes work;
    if (!c->is_float) {
        usc_trial_integers(c);
        return;
    }
    if (!usc_trial_open(c, USC_ROLE_DEVICE, &d) || !usc_trial_open(c, USC_ROLE_TRUE, &e))
        return;
    const double limit = c->standard->parameters[0];
    uint64_t max = 0;
    int64_t n_beyond = 0;
    for (int64_t at = 0; at < c->n; at += USC_JUDGE_BLOCK) {
        const size_t count = usc_trial_count(c, at), size = d.walk.size;
        load_bytes(c, &d, &e, at, &work);
        for (size_t i = 0; i < count; i++) {
            const unsigned char *a = work.device + i * size,
                                *b = work.expected + i * size;
            if (memcmp(a, b, size) == 0) continue;
            const uint64_t away = distance(place_of(c->dtype, a), place_of(c->dtype, b));
            n_beyond += (double)away > limit;
            if (away > max) max = away;
        }
    }
    usc_trial_metric(c, "max_ulp", (double)max);
    usc_trial_metric(c, "beyond", (double)n_beyond);
    usc_trial_decide(c, n_beyond == 0, NULL,
                     "%lld of %lld elements beyond %g ulp, the worst %.0f",
                     (long long)n_beyond, (long long)c->n, limit, (double)max);
}

/* ---- bitwise ---- */

void usc_rule_bitwise(usc_trial *c)
{
    usc_trial_reader d, e;
    bytes work;
    if (!usc_trial_open(c, USC_ROLE_DEVICE, &d) ||
        !usc_trial_open(c, USC_ROLE_EXPECTED, &e))
        return;
    if (!c->is_float && e.walk.dtype != c->dtype) {
        usc_trial_decide(c, false, NULL, "dtype %s where %s is expected",
                         usc_dtype_info_of(c->dtype)->name,
                         usc_dtype_info_of(e.walk.dtype)->name);
        return;
    }
    int64_t n_differ = 0;
    for (int64_t at = 0; at < c->n; at += USC_JUDGE_BLOCK) {
        const size_t count = usc_trial_count(c, at), size = d.walk.size;
        load_bytes(c, &d, &e, at, &work);
        for (size_t i = 0; i < count; i++)
            n_differ +=
                memcmp(work.device + i * size, work.expected + i * size, size) != 0;
    }
    usc_trial_metric(c, "mismatched", (double)n_differ);
    usc_trial_decide(c, n_differ == 0, NULL, "%lld of %lld elements with other bits",
                     (long long)n_differ, (long long)c->n);
}
