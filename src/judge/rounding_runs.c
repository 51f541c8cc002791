// SPDX-License-Identifier: Apache-2.0
// Steps of a run on the CPU moved by their roundings, and sums in other orders. Each of
// these is one pass where a chain of operators would make a tensor for each of its links.
#include <ulpscope/x/rounding_runs.h>

#include "base/compiler.h"
#include "base/float_env.h"
#include "kernels/walk_load.h"

#include <assert.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#define EPS 0x1p-23f /* of float32 */
#define SETTLED                                                                          \
    0x1p-31 /* of a result: so near to the exact one nothing is left to round */
#define STALLED                                                                          \
    0x1p-8 /* of what terms are together: so much no order of adding may lose */
enum { MOST_PARTS = 64 };

/* ---- sums ---- */

typedef struct sums {
    usc_walk walk;
    usc_walk_room room;
    int64_t n, part; /* terms of a row, of one accumulator */
    int n_parts;
    bool backwards, stalls;
} sums;

/* Adds a block of one row's terms in their order. */
static USC_NOINLINE float add_block(const float *x, size_t n, bool backwards,
                                    const float *centre, float sum)
{
    if (centre != NULL) {
        for (size_t i = 0; i < n; i++) {
            const float apart = x[backwards ? n - 1 - i : i] - *centre;
            sum += apart * apart;
        }
    } else if (backwards) {
        for (size_t i = n; i > 0; i--)
            sum += x[i - 1];
    } else {
        for (size_t i = 0; i < n; i++)
            sum += x[i];
    }
    return sum;
}

/* The terms `from` to `to` of a row, in one accumulator. The row lies at `here`, or where
 * it is long in blocks of the walk. */
static float add_terms(sums *s, const float *here, int64_t row, int64_t from, int64_t to,
                       const float *centre)
{
    float sum = 0;
    if (here != NULL)
        return add_block(here + from, (size_t)(to - from), s->backwards, centre, sum);
    for (int64_t done = from; done < to; done += USC_JUDGE_BLOCK) {
        const int64_t left = to - done;
        const size_t count = (size_t)(left < USC_JUDGE_BLOCK ? left : USC_JUDGE_BLOCK);
        const int64_t at = s->backwards ? from + to - done - (int64_t)count : done;
        const float *x = usc_walk_raw(&s->walk, row * s->n + at, count, &s->room);
        sum = add_block(x, count, s->backwards, centre, sum);
    }
    return sum;
}

static float add_row(sums *s, const float *here, int64_t row, const float *centre)
{
    if (s->n_parts == 1) return add_terms(s, here, row, 0, s->n, centre);
    float sum = 0;
    for (int64_t from = 0; from < s->n; from += s->part) {
        const int64_t to = from + s->part;
        sum += add_terms(s, here, row, from, to < s->n ? to : s->n, centre);
    }
    return sum;
}

/* A sum too large for its terms no longer grows: a result that this shows in is nobody's
 * order of adding, and the true one takes its place. One that overflows on the way stays:
 * other orders do, too. */
static float unless_stalled(sums *s, int64_t row, const float *centre, float sum)
{
    double exact = 0, sizes = 0;
    for (int64_t done = 0; done < s->n; done += USC_JUDGE_BLOCK) {
        const int64_t left = s->n - done;
        const size_t count = (size_t)(left < USC_JUDGE_BLOCK ? left : USC_JUDGE_BLOCK);
        const float *x = usc_walk_raw(&s->walk, row * s->n + done, count, &s->room);
        double part = 0, part_sizes = 0;
        for (size_t i = 0; i < count; i++) {
            const double apart = centre != NULL ? (double)x[i] - (double)*centre : 0;
            const double term = centre != NULL ? apart * apart : (double)x[i];
            part += term;
            part_sizes += fabs(term);
        }
        exact += part;
        sizes += part_sizes;
    }
    if (!isfinite(sum) || !isfinite(sizes) ||
        fabs((double)sum - exact) <= STALLED * sizes)
        return sum;
    return (float)exact;
}

static void add_rows(sums *s, int64_t n_rows, const float *centre, float *out)
{
    const int64_t at_once =
        s->n > 0 && s->n <= USC_JUDGE_BLOCK ? USC_JUDGE_BLOCK / s->n : 1;
    for (int64_t row = 0; row < n_rows; row += at_once) {
        const int64_t m = n_rows - row < at_once ? n_rows - row : at_once;
        const bool whole = s->n > 0 && s->n <= USC_JUDGE_BLOCK;
        const float *x =
            whole ? usc_walk_raw(&s->walk, row * s->n, (size_t)(m * s->n), &s->room)
                  : NULL;
        for (int64_t i = 0; i < m; i++) {
            const float *from = centre != NULL ? &centre[row + i] : NULL;
            out[row + i] = add_row(s, x != NULL ? x + i * s->n : NULL, row + i, from);
            if (s->n > USC_NEVER_STALLS && !s->stalls)
                out[row + i] = unless_stalled(s, row + i, from, out[row + i]);
        }
    }
}

usc_status usc_sum_in_order(const usc_tensor *terms, const usc_order *order,
                            const float *centre, float *out, usc_error *err)
{
    assert(terms && order);
    assert(out);
    const int outer = terms->ndim - order->n_inner;
    if (terms->dtype != USC_F32)
        return usc_error_set(err, USC_E_DTYPE, -1, "%s: float32 is added",
                             usc_dtype_info_of(terms->dtype)->name);
    if (outer < 0 || order->n_inner < 0 || order->n_parts < 0 ||
        order->n_parts > MOST_PARTS)
        return usc_error_set(err, USC_E_ARG, -1, "%d of %d dimensions in %d parts",
                             order->n_inner, terms->ndim, order->n_parts);
    sums s = {.walk = usc_walk_over(terms),
              .n = 1,
              .n_parts = order->n_parts > 1 ? order->n_parts : 1,
              .backwards = order->backwards,
              .stalls = order->stalls};
    int64_t n_rows = 1, n;
    const usc_status st = usc_tensor_numel(terms, &n, err);
    if (st != USC_OK) return st;
    for (int i = 0; i < terms->ndim; i++)
        *(i < outer ? &n_rows : &s.n) *= terms->sizes[i];
    s.part = (s.n + s.n_parts - 1) / s.n_parts;
    const usc_float_env env = usc_float_env_enter();
    add_rows(&s, n_rows, centre, out);
    usc_float_env_leave(env);
    return USC_OK;
}

/* ---- steps ---- */

static bool is_near(double exact, float out)
{
    const double held = (double)out;
    return exact == held || fabs(exact - held) <= fabs(held) * SETTLED;
}

static float within(float v, float low, float high)
{
    return v < low ? low : v > high ? high : v;
}

static float move(const usc_step *s, int64_t i)
{
    const float low = (float)s->low, high = (float)s->high, ulps = (float)s->ulps[i];
    const float v = (1 + ulps * EPS) * s->out[i];
    return v < low || v > high ? within((1 - ulps * EPS) * s->out[i], low, high) : v;
}

void usc_step_moved(const usc_step *s, float *moved, bool *stayed)
{
    assert(s && moved);
    assert(stayed);
    bool any = false;
    const usc_float_env env = usc_float_env_enter();
    for (int64_t i = 0; i < s->n; i++) {
        const float out = s->out[i], v = move(s, i);
        bool stays = is_near(s->exact[i], out);
        if (s->flat != NULL)
            stays = (stays && is_near(s->flat[i], out)) ||
                    (fabs(s->exact[i]) == 1 && (double)out == s->exact[i]);
        any |= stays && out != 0;
        moved[i] = stays ? out : v;
    }
    usc_float_env_leave(env);
    *stayed = any;
}

void usc_terms_moved(const float *x, const uint8_t *up, double ulp, int64_t n,
                     double *out)
{
    const double factors[2] = {(double)(float)(1 - (float)ulp),
                               (double)(float)(1 + (float)ulp)};
    const usc_float_env env = usc_float_env_enter();
    for (int64_t i = 0; i < n; i++)
        out[i] = (double)x[i] * factors[up[i] & 1];
    usc_float_env_leave(env);
}

/* ---- narrower formats ---- */

/* What a number of a format is made of. */
typedef struct rounding {
    uint64_t half, keep; /* added to a pattern, and left of it */
    int drop;            /* bits of it that are not kept */
    double least, most;  /* smallest normal number; from here on infinite */
    double quantum;      /* of what is below the normal ones */
} rounding;

static uint64_t pattern_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* To nearest, ties to even: a carry in the pattern runs into the exponent, as it must. */
static double rounded_normal(const rounding *r, double x)
{
    uint64_t bits = pattern_of(x);
    bits = (bits + (r->half + (bits >> r->drop & 1))) & r->keep;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double rounded_below(const rounding *r, double x)
{
    const double whole = 0x1.8p52; /* no digit behind the point is left beside it */
    return copysign((x / r->quantum + whole - whole) * r->quantum, x);
}

void usc_round_to(const usc_number_format *format, double *x, int64_t n)
{
    assert(format && x);
    assert(1 < format->bits && format->bits < 53);
    const int drop = 53 - format->bits;
    const rounding r = {.half = (UINT64_C(1) << (drop - 1)) - 1,
                        .keep = ~((UINT64_C(1) << drop) - 1),
                        .drop = drop,
                        .least = ldexp(1, format->emin),
                        .most = ldexp(1, format->emax + 1),
                        .quantum = ldexp(1, format->emin - (format->bits - 1))};
    const usc_float_env env = usc_float_env_enter();
    for (int64_t i = 0; i < n; i++) {
        const double size = fabs(x[i]);
        const double y =
            size < r.least ? rounded_below(&r, x[i]) : rounded_normal(&r, x[i]);
        const double held = fabs(y) >= r.most ? copysign((double)INFINITY, x[i]) : y;
        x[i] = size <= DBL_MAX ? held : x[i];
    }
    usc_float_env_leave(env);
}

/* The exponent of the lowest bit that is set in a normal double. */
static int lowest_of(double x)
{
    const uint64_t bits = pattern_of(x), hidden = UINT64_C(1) << 52;
    const int exponent = (int)(bits >> 52 & 0x7ff) - 1075;
    return exponent + USC_CTZ64((bits & (hidden - 1)) | hidden);
}

usc_status usc_unit_of(const usc_tensor *t, double *out, usc_error *err)
{
    assert(t);
    assert(out);
    *out = 0;
    const usc_dtype_info *info = usc_dtype_info_of(t->dtype);
    if (info->kind != USC_KIND_FLOAT)
        return usc_error_set(err, USC_E_DTYPE, -1, "%s: a float is meant", info->name);
    int64_t n = 0;
    const usc_status st = usc_tensor_numel(t, &n, err);
    if (st != USC_OK) return st;
    const usc_walk walk = usc_walk_over(t);
    usc_walk_room room;
    double values[USC_JUDGE_BLOCK];
    bool holds = true;
    int lowest = INT_MAX;
    for (int64_t at = 0; at < n && holds; at += USC_JUDGE_BLOCK) {
        const size_t m = (size_t)(n - at < USC_JUDGE_BLOCK ? n - at : USC_JUDGE_BLOCK);
        const double *v = usc_walk_load(&walk, at, m, &room, values);
        for (size_t i = 0; i < m; i++) {
            const double size = fabs(v[i]);
            const int bit = size > 0 ? lowest_of(size) : INT_MAX;
            holds &= size == 0 || (size >= 0x1p-97 && size <= DBL_MAX);
            lowest = bit < lowest ? bit : lowest;
        }
    }
    *out = !holds ? 0 : lowest == INT_MAX ? 1 : ldexp(1, lowest);
    return USC_OK;
}

/* ---- the range of float32 ---- */

static bool any_beyond(const double *x, size_t n, bool maybe)
{
    bool found = false;
    for (size_t i = 0; i < n; i++) {
        const double size = fabs(x[i]);
        const bool small = (size < (double)FLT_MIN) & (maybe | (size > 0));
        const bool large = (size > (double)FLT_MAX) & (maybe | (size <= DBL_MAX));
        found |= small | large;
    }
    return found;
}

usc_status usc_beyond_float32(const usc_tensor *t, bool maybe, bool *out, usc_error *err)
{
    assert(t);
    assert(out);
    *out = false;
    if (t->dtype != USC_F32 && t->dtype != USC_F64)
        return usc_error_set(err, USC_E_DTYPE, -1, "%s: float32 or float64 is meant",
                             usc_dtype_info_of(t->dtype)->name);
    int64_t n = 0;
    const usc_status st = usc_tensor_numel(t, &n, err);
    if (st != USC_OK || n == 0) return st;
    const usc_walk walk = usc_walk_over(t);
    usc_walk_room room;
    double values[USC_JUDGE_BLOCK];
    const usc_float_env env = usc_float_env_enter();
    for (int64_t at = 0; at < n && !*out; at += USC_JUDGE_BLOCK) {
        const size_t m = (size_t)(n - at < USC_JUDGE_BLOCK ? n - at : USC_JUDGE_BLOCK);
        const double *v = usc_walk_load(&walk, at, m, &room, values);
        *out = any_beyond(v, m, maybe);
    }
    usc_float_env_leave(env);
    return USC_OK;
}
