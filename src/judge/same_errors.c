// SPDX-License-Identifier: Apache-2.0
// Whether what a device lost is what a narrower format loses, element by element: noise
// that lies on few elements, or that cancels to much more than it was, is no other
// formula.
#include "kernels/walk_load.h"

#include "base/float_env.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define NEARER 8.0     /* times nearer to the emulation than that is to the truth */
#define EXPLAINED 0.95 /* share of the elements, of all that either has moved */
#define PROOF 24.0     /* bits that agree, of all elements, as by no other mistake */
#define MOST_BITS 0x1p24
#define LEAST 1e-300
#define ROUNDINGS 8.0 /* of float32's own loss, that any order of adding may lose */
#define HALF_ULP 1.02 /* of the device's dtype, and a little */

enum { DEVICE, TRUTH, YARDSTICK, EMULATED, N_GIVEN };

typedef struct operands {
    usc_walk walks[N_GIVEN];
    usc_dtype dtype;
    double ulp; /* half an ulp of 1 */
} operands;

/* Elements that either has moved, those of them that agree, and by how many bits. */
typedef struct agreement {
    int64_t n, n_same;
    double bits;
} agreement;

/* NaN where either is. */
static double larger(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}

static double smaller(double a, double b)
{
    return isnan(a) || a < b ? a : b;
}

static bool add_element(const operands *o, double d, double t, double y, double e,
                        double own, agreement *sum)
{
    const double slack = o->ulp * fabs(t) + ROUNDINGS * fabs(y - t);
    const double error = fabs(d - t), moved = fabs(own - t);
    const double left = smaller(fabs(d - own), fabs(d - e));
    const bool same = left <= larger(slack, fabs(e - t) / NEARER) || d == own;
    if (!(error > slack) && !(moved > slack)) return same;
    sum->n++;
    sum->n_same += same;
    const double base = larger(left, slack);
    const double agreed = larger(error, moved) / (base < LEAST ? LEAST : base);
    /* Any format, and any other mistake, comes to zero alike: it tells of none. */
    if (same && error > slack && agreed > 1 && d != 0)
        sum->bits += log2(fmin(agreed, MOST_BITS));
    return same;
}

static void add_block(const operands *o, int64_t at, size_t count, uint8_t *same,
                      agreement *sum)
{
    usc_walk_room rooms[N_GIVEN];
    double given[N_GIVEN][USC_JUDGE_BLOCK], own[USC_JUDGE_BLOCK];
    unsigned char low[USC_JUDGE_BLOCK * 8];
    const double *v[N_GIVEN];
    for (int i = 0; i < N_GIVEN; i++)
        v[i] = usc_walk_load(&o->walks[i], at, count, &rooms[i], given[i]);
    usc_dtype_narrow(o->dtype, v[EMULATED], low, count);
    usc_kernels_widen(o->dtype, low, own, count);
    for (size_t i = 0; i < count; i++)
        same[i] = add_element(o, v[DEVICE][i], v[TRUTH][i], v[YARDSTICK][i],
                              v[EMULATED][i], own[i], sum);
}

usc_status usc_judge_same_errors(const usc_tensor *device, const usc_tensor *truth,
                                 const usc_tensor *yardstick, const usc_tensor *emulated,
                                 uint8_t *same, bool *out, usc_error *err)
{
    const usc_tensor *const given[N_GIVEN] = {device, truth, yardstick, emulated};
    const char *const names[N_GIVEN] = {"device", "reference", "yardstick", "emulation"};
    assert(device && truth && yardstick && emulated && same && out);
    *out = false;
    operands o = {.dtype = device->dtype};
    usc_status st = USC_OK;
    for (int i = 0; i < N_GIVEN && st == USC_OK; i++) {
        st = usc_walk_check_dims(names[i], given[i], device, err);
        if (st == USC_OK && usc_dtype_info_of(given[i]->dtype)->kind != USC_KIND_FLOAT)
            st = usc_error_set(err, USC_E_DTYPE, -1, "%s: no float", names[i]);
        o.walks[i] = st == USC_OK ? usc_walk_over(given[i]) : (usc_walk){0};
    }
    int64_t n = 0;
    if (st == USC_OK) st = usc_tensor_numel(device, &n, err);
    if (st != USC_OK || n == 0) return st;
    o.ulp = HALF_ULP * ldexp(1, -usc_dtype_info_of(o.dtype)->sig_bits);
    agreement sum = {0};
    const usc_float_env env = usc_float_env_enter();
    for (int64_t at = 0; at < n; at += USC_JUDGE_BLOCK)
        add_block(&o, at, (size_t)(n - at < USC_JUDGE_BLOCK ? n - at : USC_JUDGE_BLOCK),
                  same + at, &sum);
    usc_float_env_leave(env);
    *out =
        sum.n > 0 && (double)sum.n_same >= EXPLAINED * (double)sum.n && sum.bits >= PROOF;
    return USC_OK;
}
