// SPDX-License-Identifier: Apache-2.0
// Outputs that must agree in every bit.
#include "kernels/walk_load.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

typedef struct exact_rooms {
    usc_walk_room a, b;
} exact_rooms;

static void compare_block(const usc_walk *a, const usc_walk *b, int64_t at, size_t count,
                          exact_rooms *rooms, usc_judgement *out)
{
    const unsigned char *x = usc_walk_raw(a, at, count, &rooms->a);
    const unsigned char *y = usc_walk_raw(b, at, count, &rooms->b);
    if (memcmp(x, y, count * a->size) == 0) return;
    for (size_t i = 0; i < count; i++) {
        if (memcmp(x + i * a->size, y + i * a->size, a->size) == 0) continue;
        if (out->n_mismatch++ == 0) out->i_worst = at + (int64_t)i;
    }
}

usc_status usc_judge_exact(const usc_tensor *device, const usc_tensor *reference,
                           usc_judgement *out, usc_error *err)
{
    assert(device && reference);
    assert(out);
    memset(out, 0, sizeof *out);
    if (device->dtype != reference->dtype)
        return usc_error_set(err, USC_E_DTYPE, -1, "device gave %s, reference %s",
                             usc_dtype_info_of(device->dtype)->name,
                             usc_dtype_info_of(reference->dtype)->name);
    if (usc_dtype_info_of(device->dtype)->kind == USC_KIND_NONE)
        return usc_error_set(err, USC_E_DTYPE, -1,
                             "elements of a dtype without a row cannot be compared: give "
                             "complex numbers as pairs of reals, other bytes as uint8");
    usc_status st = usc_walk_check_dims("reference", reference, device, err);
    int64_t n = 0;
    if (st == USC_OK) st = usc_tensor_numel(device, &n, err);
    if (st != USC_OK) return st;

    *out =
        (usc_judgement){.exact = true, .n = n, .n_finite = n, .i_worst = -1, .i_bad = -1};
    out->fan_in = 1;
    exact_rooms rooms;
    if (n > 0) {
        const usc_walk a = usc_walk_over(device), b = usc_walk_over(reference);
        for (int64_t at = 0; at < n; at += USC_JUDGE_BLOCK) {
            const int64_t left = n - at;
            const size_t count =
                (size_t)(left < USC_JUDGE_BLOCK ? left : USC_JUDGE_BLOCK);
            compare_block(&a, &b, at, count, &rooms, out);
        }
    }
    const bool same = out->n_mismatch == 0;
    out->verdict = same ? USC_VERDICT_PASS : USC_VERDICT_WRONG;
    out->bits = out->yardstick_bits = 24;
    if (!same) out->bits = 0;
    if (same)
        (void)snprintf(out->reason, sizeof out->reason, "equal in every bit");
    else
        (void)snprintf(out->reason, sizeof out->reason,
                       "%lld of %lld elements differ, the first at %lld",
                       (long long)out->n_mismatch, (long long)n, (long long)out->i_worst);
    return USC_OK;
}
