// SPDX-License-Identifier: Apache-2.0
// What the places of a result tell: a shape that is short, values in another order,
// elements that are all of one content wherever they lie. Neighbours: cause_moved.c (the
// truth moved), cause_damage.c (runs and tails).
#include "cause/cause_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/walk.h"

#define EQUAL 0.98 /* share of the values that must be the right ones */

/* ---- shape ---- */

static int by_size(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool other_order(const usc_tensor *a, const usc_tensor *b)
{
    int64_t x[USC_MAX_DIMS], y[USC_MAX_DIMS];
    const size_t n = (size_t)a->ndim;
    if (a->ndim != b->ndim) return false;
    memcpy(x, a->sizes, n * sizeof *x);
    memcpy(y, b->sizes, n * sizeof *y);
    qsort(x, n, sizeof *x, by_size);
    qsort(y, n, sizeof *y, by_size);
    return memcmp(x, y, n * sizeof *x) == 0;
}

/* Whether the device's elements are those of the truth from `first` on along an axis. */
static bool holds_part(const usc_tensor *device, const usc_tensor *truth, int axis,
                       int64_t first)
{
    double d[256], t[256];
    unsigned char bytes[256 * 16];
    usc_tensor part = *truth;
    part.sizes[axis] = device->sizes[axis];
    part.data =
        (const unsigned char *)truth->data +
        first * truth->strides[axis] * (int64_t)usc_dtype_info_of(truth->dtype)->size;
    const usc_walk a = usc_walk_over(device), b = usc_walk_over(&part);
    for (int64_t i = 0; i < a.n; i += 256) {
        const size_t n = (size_t)(a.n - i < 256 ? a.n - i : 256);
        usc_walk_gather(&a, i, n, bytes);
        usc_dtype_widen(device->dtype, bytes, d, n);
        usc_walk_gather(&b, i, n, bytes);
        usc_dtype_widen(truth->dtype, bytes, t, n);
        for (size_t k = 0; k < n; k++) { /* a float32 that was rounded is the same */
            const bool near = device->dtype != USC_F64 &&
                              usc_dtype_info_of(device->dtype)->kind == USC_KIND_FLOAT &&
                              fabs(d[k] - t[k]) <= 0x1p-20 * fabs(t[k]);
            if (!same(d[k], t[k]) && !near) return false;
        }
    }
    return true;
}

static void sizes_text(const usc_tensor *t, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "[");
    for (int a = 0; a < t->ndim && n < size - 24; a++)
        n += (size_t)snprintf(out + n, size - n, "%s%lld", a > 0 ? ", " : "",
                              (long long)t->sizes[a]);
    (void)snprintf(out + n, size - n, "]");
}

void usc_cause_shape(const usc_tensor *device, const usc_tensor *truth,
                     usc_cause_found *out)
{
    int axis = -1, n = 0;
    char a[96], b[96], both[256];
    clue say = {.code = USC_CAUSE_OTHER_SIZES, .s = both};
    *out = (usc_cause_found){.left = (double)INFINITY};
    for (int i = 0; i < device->ndim && device->ndim == truth->ndim; i++)
        if (device->sizes[i] != truth->sizes[i]) axis = i, n++;
    if (device->ndim == truth->ndim && n == 0) return;
    sizes_text(device, a, sizeof a);
    sizes_text(truth, b, sizeof b);
    (void)snprintf(both, sizeof both, "%s instead of %s", a, b);
    if (other_order(device, truth)) {
        say.code = USC_CAUSE_TRANSPOSED_SIZES;
    } else if (device->ndim != truth->ndim) {
        say = (clue){.code = USC_CAUSE_DIMENSIONS, .n = device->ndim, .m = truth->ndim};
    } else if (n == 1) {
        const int64_t have = device->sizes[axis], want = truth->sizes[axis];
        say = (clue){.n = have > want ? have - want : want - have, .m = want, .a = axis};
        say.code = have > want                              ? USC_CAUSE_TOO_MANY
                   : holds_part(device, truth, axis, 0)     ? USC_CAUSE_LAST_MISSING
                   : holds_part(device, truth, axis, say.n) ? USC_CAUSE_FIRST_MISSING
                                                            : USC_CAUSE_TOO_FEW;
    }
    (void)usc_cause_say(out, &say);
}

/* ---- one value everywhere ---- */

/* Whether a factor says it better: one that a formula has or lacks. */
static bool round_factor(double factor)
{
    static const double usual[] = {0.1, 0.25, 1.0 / 3, 0.5, 1, 1.5, 2, 3, 4, 10};
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++)
        if (fabs(fabs(factor) / usual[i] - 1) < 0x1p-7) return true;
    return false;
}

bool usc_cause_uniform(usc_cause *c, usc_cause_found *out)
{
    const marks *m = usc_cause_far(c);
    const double d = value_at(&c->d, 0), t = rounded(c, value_at(&c->t, 0));
    bool varies = false;
    int64_t far = 0;
    if (m == NULL || c->d.n < 4 || (c->floats && m->n < c->d.n / 4)) return false;
    for (int64_t i = 0; i < c->d.n; i++) {
        if (!same(value_at(&c->d, i), d)) return false;
        far += !(fabs(d - value_at(&c->t, i)) <= 0x1p-6 * fabs(d));
        varies |= !same(rounded(c, value_at(&c->t, i)), t);
    }
    if (2 * far < c->d.n) return false; /* some are hardly off */
    if (!varies)                        /* any factor and any amount would do as well */
        return c->floats && isfinite(d) && d != 0 && t != 0 && !round_factor(d / t) &&
               usc_cause_say(out, &(clue){.code = USC_CAUSE_ANOTHER, .v = d, .u = t});
    if (c->d.kind == USC_KIND_BOOL)
        return usc_cause_say(out, &(clue){.code = d != 0 ? USC_CAUSE_ALWAYS_TRUE
                                                         : USC_CAUSE_ALWAYS_FALSE});
    return d != 0 && !isnan(d) && /* said better elsewhere */
           usc_cause_say(out, &(clue){.code = USC_CAUSE_CONSTANT, .v = d});
}

/* ---- right values in another order ---- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    if (isnan(x) || isnan(y)) return isnan(x) - isnan(y);
    return (x > y) - (x < y);
}

typedef struct tally {
    int64_t equal, n, steps, distinct;
    int64_t off, moved; /* in their places; of these the right ones elsewhere */
} tally;

static int64_t count_equal(const double *ours, const double *right, int64_t n)
{
    int64_t equal = 0;
    for (int64_t i = 0; i < n; i++)
        equal += same(ours[i], right[i]);
    return equal;
}

/* What is off in its place goes to the front of both; how many these are. */
static int64_t put_first(double *ours, double *right, int64_t n)
{
    int64_t off = 0;
    for (int64_t i = 0; i < n; i++) {
        const double a = ours[i], b = right[i];
        if (same(a, b)) continue;
        ours[i] = ours[off];
        right[i] = right[off];
        ours[off] = a;
        right[off++] = b;
    }
    return off;
}

static void compare_sorted(double *ours, double *right, int64_t n, tally *sum)
{
    const int64_t off = put_first(ours, right, n);
    qsort(ours, (size_t)off, sizeof *ours, by_value);
    qsort(right, (size_t)off, sizeof *right, by_value);
    sum->off += off;
    sum->moved += count_equal(ours, right, off);
    qsort(ours, (size_t)n, sizeof *ours, by_value);
    qsort(right, (size_t)n, sizeof *right, by_value);
    sum->equal += count_equal(ours, right, n);
    for (int64_t i = 1; i < n; i++)
        sum->distinct += right[i] != right[i - 1];
    sum->n += n;
    sum->steps += n - 1;
}

/* A few that are off among many that are right are no other order: they must be one. */
static bool told(const tally *sum)
{
    return 2 * sum->moved > sum->off && (double)sum->equal >= EQUAL * (double)sum->n &&
           2 * sum->distinct > sum->steps;
}

/* Lines along an axis that something is off in, as many as may be put in order. */
static tally lines_along(usc_cause *c, const marks *m, int axis)
{
    const int64_t n = c->d.sizes[axis], inner = usc_cause_inner(c, axis);
    const int64_t step = usc_cause_step(c->d.n, MOST_SORTED);
    tally sum = {0};
    double *ours = usc_cause_room(c, 2 * n, sizeof *ours);
    if (ours == NULL) return sum;
    double *right = ours + n;
    for (int64_t line = 0; line < c->d.n / n; line += step) {
        const int64_t base = line / inner * inner * n + line % inner;
        bool off = false;
        for (int64_t i = 0; i < n; i++) {
            ours[i] = value_at(&c->d, base + i * inner);
            right[i] = rounded(c, value_at(&c->t, base + i * inner));
            off |= m->at[base + i * inner] != 0;
        }
        if (off) compare_sorted(ours, right, n, &sum);
    }
    return sum;
}

bool usc_cause_reordered(usc_cause *c, usc_cause_found *out)
{
    const marks *m = usc_cause_far(c);
    const int64_t n = c->d.n;
    if (m == NULL || m->n < 3 || c->d.kind == USC_KIND_BOOL) return false;
    for (int axis = c->d.ndim - 1; axis >= 0; axis--) {
        if (c->d.sizes[axis] < 3 || c->d.sizes[axis] > MOST_SORTED) continue;
        const tally sum = lines_along(c, m, axis);
        if (sum.n > 0 && told(&sum))
            return usc_cause_say(out, &(clue){.code = USC_CAUSE_REORDERED, .a = axis});
    }
    if (!c->floats || c->d.ndim < 2 || n <= 8 || n > MOST_SORTED) return false;
    double *ours = usc_cause_room(c, 2 * n, sizeof *ours);
    if (ours == NULL) return false;
    for (int64_t i = 0; i < n; i++) {
        ours[i] = value_at(&c->d, i);
        ours[n + i] = rounded(c, value_at(&c->t, i));
    }
    tally sum = {0};
    compare_sorted(ours, ours + n, n, &sum);
    return told(&sum) && usc_cause_say(out, &(clue){.code = USC_CAUSE_PERMUTED});
}

/* ---- contents wherever they lie ---- */

/* Whether one finite number is right wherever something is off. */
static bool is_one_truth(const usc_cause *c, const marks *m)
{
    double first = (double)NAN;
    for (int64_t i = 0; i < c->d.n; i++) {
        const double t = rounded(c, value_at(&c->t, i));
        if (!m->at[i]) continue;
        if (isnan(first)) first = t;
        if (t != first) return false;
    }
    return true;
}

bool usc_cause_spread(usc_cause *c, usc_cause_found *out)
{
    const marks *m = usc_cause_far(c);
    clue say = {.code = USC_CAUSE_SPREAD, .m = c->d.n, .last = -1};
    if (m == NULL || m->n < 4 || (double)m->n > 0.95 * (double)c->d.n) return false;
    say.n = m->n;
    say.content = usc_cause_holds(c, m->at, &say.value);
    if (say.content == HOLDS_OTHER) return false;
    if (say.content == HOLDS_ONE && is_one_truth(c, m))
        return false;                       /* one wrong value of one right one */
    bool small = say.content == HOLDS_ZERO; /* flushed rather than lost */
    for (int64_t i = 0; i < c->d.n && small; i++)
        small = !m->at[i] || fabs(value_at(&c->t, i)) < 0x1p-14;
    return !small && usc_cause_say(out, &say);
}

/* Whether exactly the rows with one value of an index are zero. */
static bool padded_by(usc_cause *c, const marks *m, const operand *index, double *value)
{
    const int64_t inner = c->d.n / index->n;
    int64_t rows = 0;
    bool known = false;
    for (int turn = 0; turn < 2; turn++)
        for (int64_t row = 0; row < index->n; row++) {
            int64_t off = 0;
            for (int64_t i = row * inner; i < (row + 1) * inner; i++)
                off += m->at[i];
            const double v = value_at(index, row);
            const bool hit = 2 * off > inner;
            if (turn == 0 && hit && known && v != *value) return false;
            if (turn == 0 && hit) *value = v, known = true, rows++;
            if (turn == 1 && hit != (v == *value)) return false;
            if (turn == 1 && !known) return false;
        }
    return rows > 1; /* one row alone has a value of its own in most tensors */
}

bool usc_cause_padded(usc_cause *c, usc_cause_found *out)
{
    const marks *m = usc_cause_far(c);
    double value = 0;
    if (m == NULL || m->n < 4) return false;
    for (int64_t i = 0; i < c->d.n; i++)
        if (m->at[i] && value_at(&c->d, i) != 0) return false;
    for (int k = 0; k < c->n_inputs; k++) {
        const operand *o = &c->inputs[k];
        if ((o->kind != USC_KIND_INT && o->kind != USC_KIND_UINT) || o->ndim == 0 ||
            o->n == 0 || o->ndim > c->d.ndim ||
            memcmp(o->sizes, c->d.sizes, (size_t)o->ndim * sizeof o->sizes[0]) != 0)
            continue;
        if (padded_by(c, m, o, &value))
            return usc_cause_say(
                out,
                &(clue){.code = USC_CAUSE_PADDED, .s = o->name, .first = (int64_t)value});
    }
    return false;
}
