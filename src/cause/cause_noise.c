// SPDX-License-Identifier: Apache-2.0
// Formats that the result itself speaks for: the grid that it lies on, and noise of a
// format's size. Neighbours: cause_evidence.c.
#include "cause/cause_state.h"

#include <stdlib.h>
#include <string.h>

#include "tensor/walk.h"

enum {
    LEAST_ON_GRID = 8, /* elements that tell a grid */
    CHANCE_BITS = 40   /* zeros at the ends of all that do not come by chance */
};

/* The significands that were seen, one over the other. */
typedef struct significands {
    uint64_t bits;
    int64_t n;
} significands;

static void see(significands *g, double x)
{
    uint64_t bits = 0;
    if (!isfinite(x) || x == 0) return;
    memcpy(&bits, &x, sizeof bits);
    g->bits |= (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
    g->n++;
}

/* Bits of the longest. */
static int length(const significands *g, int64_t least)
{
    int n = 53;
    if (g->n < least || g->n == 0) return 0;
    for (uint64_t m = g->bits; (m & 1) == 0; m >>= 1)
        n--;
    return n;
}

usc_status usc_cause_grid(const usc_tensor *t, int64_t least, int *out, usc_error *err)
{
    double wide[256];
    unsigned char bytes[256 * sizeof(double)];
    significands g = {0};
    usc_walk walk;
    *out = 0;
    if (usc_dtype_info_of(t->dtype)->kind != USC_KIND_FLOAT)
        return usc_error_set(err, USC_E_DTYPE, -1, "no float");
    const usc_status st = usc_walk_begin(t, true, &walk, err);
    for (int64_t i = 0; i < walk.n && st == USC_OK; i += 256) {
        const size_t n = (size_t)(walk.n - i < 256 ? walk.n - i : 256);
        usc_walk_gather(&walk, i, n, bytes);
        usc_dtype_widen(t->dtype, bytes, wide, n);
        for (size_t k = 0; k < n; k++)
            see(&g, wide[k]);
    }
    *out = length(&g, least);
    return st;
}

/* Bits that tell one of the right values from the others, where these are few and come
 * again and again; 53 where they do not. */
static int bits_of_choice(const usc_cause *c)
{
    enum { MOST = 64, LOOKS = 4096, OFTEN = 4 };
    double seen[MOST];
    int n = 0;
    const int64_t step = usc_cause_step(c->d.n, LOOKS);
    int64_t looks = 0;
    for (int64_t i = 0; i < c->d.n; i += step, looks++) {
        const double v = rounded(c, value_at(&c->t, i));
        int j = 0;
        while (j < n && !same(seen[j], v))
            j++;
        if (j == MOST) return 53;
        if (j == n) seen[n++] = v;
    }
    return looks < OFTEN * (int64_t)n ? 53 : 1 + ilogb((double)n);
}

int usc_cause_told_bits(usc_cause *c)
{
    significands g = {0};
    for (int64_t i = 0; i < c->d.n && c->told_bits == 0; i++)
        see(&g, rounded(c, value_at(&c->t, i)));
    if (c->told_bits == 0) {
        const int own = length(&g, 1);
        const int choice = bits_of_choice(c), least = own < choice ? own : choice;
        c->told_bits = least < 1 ? 1 : least < c->bits ? least : c->bits;
    }
    return c->told_bits;
}

/* Bits that the device's elements use, and those that the truth in float32 does; none
 * where so few elements lie on a grid by chance. */
static void grids(const usc_cause *c, int64_t least, int *device, int *truth)
{
    significands d = {0}, t = {0};
    for (int64_t i = 0; i < c->d.n; i++) {
        see(&d, value_at(&c->d, i));
        see(&t, (double)(float)value_at(&c->t, i));
    }
    *device = length(&d, least);
    *truth = length(&t, least);
    if (d.n < LEAST_ON_GRID || d.n * (*truth - *device) < CHANCE_BITS) *device = 0;
}

/* Median and 99th percentile of errors against their elements' size; whether these look
 * like noise, of both signs and without a few that stand out. */
static bool is_noise(usc_cause *c, double *middle)
{
    const evidence *e = &c->e;
    double *share = usc_cause_room(c, e->n, sizeof *share);
    double sum = 0, signs = 0;
    int64_t n = 0, finite = 0;
    if (share == NULL) return false;
    for (int64_t i = 0; i < e->n; i++) {
        if (!isfinite(e->truth[i])) continue;
        sum += e->truth[i] * e->truth[i];
        finite++;
    }
    const double typical = finite > 0 ? sqrt(sum / (double)finite) : 0;
    for (int64_t i = 0; i < e->n; i++) {
        const double error = e->device[i] - e->truth[i], t = e->truth[i];
        if (!e->off[i] || !isfinite(error) || !isfinite(t)) continue;
        signs += (error * t > 0) - (error * t < 0);
        share[n++] = fabs(error) / fmax(fabs(t), typical / 4);
    }
    if (n < 32 || fabs(signs) > 0.5 * (double)n) return false;
    *middle = usc_cause_nth(share, n, (n + 1) / 2 - 1);
    return *middle > 0 &&
           usc_cause_nth(share, n, (99 * n + 99) / 100 - 1) <= 40 * *middle;
}

/* Whether each result is one of the two next to the right value, so that its own last
 * rounding may have gone another way. */
static bool is_next(const usc_cause *c)
{
    for (int64_t i = 0; i < c->d.n; i++) {
        const double d = value_at(&c->d, i), t = value_at(&c->t, i);
        const double unit = ldexp(1, (int)fmax(ilogb(t), c->emin) + 1 - c->bits);
        if (!same(d, rounded(c, t)) && !(fabs(d - t) < unit)) return false;
    }
    return true;
}

/* The formats of 11 bits that the call has room for. */
static const char *of_eleven(const usc_cause *c)
{
    return (c->formats_barred & USC_CAUSE_TF32) != 0  ? "float16"
           : (c->formats_barred & USC_CAUSE_F16) != 0 ? "TF32"
                                                      : "TF32 or float16";
}

bool usc_cause_format(usc_cause *c, usc_cause_found *out)
{
    static const struct {
        const char *name;
        double low, top;
    } sizes[] = {{"bfloat16", 0x1p-11, 0x1p-4}, {"float16 or TF32", 0x1p-14, 0x1p-11}};
    double middle = 0;
    const bool may = c->verdict == USC_VERDICT_REDUCED ||
                     (c->verdict == USC_VERDICT_WRONG && c->effective > 3);
    if (!c->floats || !may || !is_noise(c, &middle)) return false;
    int grid = 0, own = 0;
    if (!c->e.low) grids(c, 4, &grid, &own);
    const int size = middle >= sizes[0].low && middle < sizes[0].top   ? 0
                     : middle >= sizes[1].low && middle < sizes[1].top ? 1
                                                                       : -1;
    if (size < 0) return false;
    const bool on_grid = grid > 0 && grid <= 11, held = c->adds && on_grid;
    const bool brain = on_grid ? grid <= 8 : size == 0;
    const char *name = brain ? "bfloat16" : on_grid ? of_eleven(c) : sizes[size].name;
    const unsigned means = brain ? USC_CAUSE_BF16 : USC_CAUSE_F16 | USC_CAUSE_TF32;
    if ((!held && (c->formats & means) == 0) || (c->formats_barred & means) == means)
        return false;
    return usc_cause_say(out,
                         &(clue){.code = held ? USC_CAUSE_GRID : USC_CAUSE_ROUNDED_INSIDE,
                                 .s = name,
                                 .n = grid,
                                 .seen = !on_grid || (c->e.low && is_next(c))});
}

/* Whether nearly all elements are the truth, within one unit of a grid. A search has
 * tried before whether rounding the truth gives them. */
static bool only_cut(const usc_cause *c, int bits)
{
    int64_t near = 0;
    for (int64_t i = 0; i < c->d.n; i++) {
        const double d = value_at(&c->d, i), t = value_at(&c->t, i);
        near += same(d, t) ||
                (t != 0 && isfinite(t) && fabs(d - t) <= ldexp(1, ilogb(t) + 1 - bits));
    }
    return (double)near >= 0.99 * (double)c->d.n;
}

typedef struct error_at {
    double t, error;
} error_at;

static int by_truth(const void *a, const void *b)
{
    const double x = ((const error_at *)a)->t, y = ((const error_at *)b)->t;
    return (x > y) - (x < y);
}

/* Whether the sign of an error hangs on the right value, as a wrong constant or formula
 * has it: then neighbours in size err alike. */
static bool follows_value(usc_cause *c)
{
    const evidence *e = &c->e;
    error_at *all = usc_cause_room(c, e->n, sizeof *all);
    int64_t n = 0, turns = 0;
    if (all == NULL) return true;
    for (int64_t k = 0; k < e->n; k++)
        if (e->off[k] && isfinite(e->device[k]) && isfinite(e->truth[k]))
            all[n++] = (error_at){e->truth[k], e->device[k] - e->truth[k]};
    qsort(all, (size_t)n, sizeof *all, by_truth);
    for (int64_t i = 1; i < n; i++)
        turns += (all[i].error > 0) != (all[i - 1].error > 0);
    return n < 8 || (double)turns < 0.3 * (double)n;
}

bool usc_cause_likely(usc_cause *c, usc_cause_found *out)
{
    usc_cause_errors errors;
    if (!c->floats || !(c->effective >= 4)) return false;
    int grid = 0, own = 0;
    if (c->d.dtype == USC_F32) grids(c, 1, &grid, &own);
    if (grid > 0 && grid <= 11 && own > grid + 3)
        return usc_cause_say(out, &(clue){.code = grid != 8 && grid != 11 ? USC_CAUSE_BITS
                                                  : c->alone && only_cut(c, grid)
                                                      ? USC_CAUSE_CUT
                                                      : USC_CAUSE_GRID,
                                          .s = grid == 8 ? "bfloat16" : of_eleven(c),
                                          .n = grid});
    if (c->verdict != USC_VERDICT_REDUCED ||
        usc_cause_errors_of(c, &errors, NULL) != USC_OK || errors.one_sided)
        return false;
    return c->effective >= 5.5 && c->effective < 20 && !follows_value(c) &&
           usc_cause_say(out, &(clue){.code = USC_CAUSE_NOISE});
}

bool usc_cause_tells(usc_cause *c, const uint8_t *mask)
{
    enum { ENOUGH = 22 };
    double seen[ENOUGH];
    int64_t off = 0;
    int k = 0;
    const int bits = usc_cause_told_bits(c), values = (ENOUGH + bits - 1) / bits;
    for (int64_t i = 0; i < c->d.n && k < values; i++) {
        if (mask != NULL && !mask[i]) continue;
        const double v = value_at(&c->d, i);
        if (!same(v, rounded(c, value_at(&c->t, i)))) off++;
        int j = 0;
        while (j < k && !same(seen[j], v))
            j++;
        if (j == k) seen[k++] = v;
    }
    /* of a few values, each wrong element that agrees tells one bit */
    return k >= values || (k > 1 && off >= ENOUGH);
}
