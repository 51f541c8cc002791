// SPDX-License-Identifier: Apache-2.0
// Slices that are each off by a factor, or an amount, of their own, as a wrong statistic
// leaves them. Neighbours: cause_size.c (one factor for all).
#include "cause/cause_state.h"

#include <string.h>

#define COVERED 0.98 /* share of the elements that the slices' numbers must suit */

/* One output as rows that share a number. */
typedef struct view {
    usc_cause *c;
    unsigned axes;        /* that share it */
    groups rows;          /* at the first element */
    double *weight, *sum; /* by row */
} view;

/* One element: its ratio or difference, and how far rounding may take that. */
typedef struct sight {
    double value, room;
    bool seen, right;
} sight;

static sight look(const usc_cause *c, int64_t i, bool factor)
{
    const double d = value_at(&c->d, i), t = value_at(&c->t, i);
    const double noise = fabs(value_at(&c->y, i) - t);
    const double room =
        exp2(0.1 - c->bits) * fmax(fabs(d), fabs(t)) + (isfinite(noise) ? 6 * noise : 0);
    sight s = {.seen = isfinite(d) && isfinite(t) && (!factor || t != 0),
               .right = fabs(d - t) <= room};
    s.value = factor ? d / t : d - t;
    s.room = factor ? room / fabs(t) : room;
    return s;
}

/* Weighs the elements of each row; whether enough of them can be seen, and are off. */
static bool weigh_rows(view *v, bool factor)
{
    int64_t seen = 0, right = 0;
    memset(v->weight, 0, (size_t)v->rows.n * sizeof *v->weight);
    memset(v->sum, 0, (size_t)v->rows.n * sizeof *v->sum);
    groups g = v->rows;
    for (int64_t i = 0; i < v->c->d.n; i++, usc_cause_advance(&g)) {
        const sight s = look(v->c, i, factor);
        if (!s.seen) continue;
        seen++;
        right += s.right;
        const double weight = 1 / fmax(s.room * s.room, 1e-300);
        v->weight[g.row] += weight;
        v->sum[g.row] += weight * s.value;
    }
    return (double)seen >= 0.7 * (double)v->c->d.n && (double)right <= 0.7 * (double)seen;
}

/* The rows' own numbers less `neutral`, those that surely differ from it, into `out`;
 * how many, 0 where rows have none. */
static int64_t common(view *v, bool factor, double *out)
{
    int64_t seen = 0, bad = 0, n = 0;
    const double neutral = factor ? 1 : 0;
    if (!weigh_rows(v, factor)) return 0;
    groups g = v->rows;
    for (int64_t i = 0; i < v->c->d.n; i++, usc_cause_advance(&g)) {
        const sight s = look(v->c, i, factor);
        if (!s.seen) continue;
        seen++;
        if (fabs(s.value - v->sum[g.row] / v->weight[g.row]) <= s.room) continue;
        if ((double)++bad > (1 - COVERED) * (double)v->c->d.n) return 0;
    }
    if ((double)bad > (1 - COVERED) * (double)seen) return 0;
    for (int64_t row = 0; row < v->rows.n; row++) {
        const double off = v->sum[row] / v->weight[row] - neutral;
        if (fabs(off) > 4 / sqrt(v->weight[row])) out[n++] = off;
    }
    return (double)n >= 0.4 * (double)v->rows.n ? n : 0;
}

/* ---- where the numbers of the slices come from ---- */

static bool say_shared(const view *v, double *off, int64_t n, double size,
                       usc_cause_found *out)
{
    const double middle = usc_cause_middle(off, n), factor = 1 + middle;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(off[i] - middle) <= 0x1p-7 * size)) return false;
    if (factor == 0) /* where nothing stands nothing was multiplied */
        return usc_cause_say(out, &(clue){.code = USC_CAUSE_NOT_COMPUTED,
                                          .n = n,
                                          .m = v->rows.n,
                                          .axes = v->axes,
                                          .place = PLACE_AXES});
    return usc_cause_say(out, &(clue){.code = fabs(factor + 1) < 0x1p-6
                                                  ? USC_CAUSE_SOME_SIGN
                                                  : USC_CAUSE_SOME_FACTOR,
                                      .v = factor,
                                      .n = n,
                                      .axes = v->axes,
                                      .place = PLACE_AXES});
}

static bool say_own(const view *v, double *off, int64_t n, bool factor,
                    usc_cause_found *out)
{
    double size = 0;
    int64_t above = 0;
    clue say = {.place = PLACE_AXES, .axes = v->axes, .seen = v->c->alone};
    for (int64_t i = 0; i < n; i++) {
        size = fmax(size, fabs(off[i]));
        above += off[i] > 0;
    }
    if (factor && n >= 2 && say_shared(v, off, n, size, out)) return true;
    const bool one_way = n >= 6 && (above == 0 || above == n);
    say.code = factor ? USC_CAUSE_SLICE_FACTORS : USC_CAUSE_SLICE_AMOUNTS;
    if (one_way) {
        say.code = factor ? USC_CAUSE_PARTIAL_FACTOR : USC_CAUSE_PARTIAL_AMOUNT;
        say.s = above > 0 ? "large" : "small";
    } else if (n >= 24 && factor && size > 0x1p-10 && size <= 0x1p-8 * 1.05 &&
               (v->c->formats_barred & USC_CAUSE_BF16) == 0) {
        say.code = USC_CAUSE_STATISTIC_ROUNDED;
        say.s = "bfloat16";
    } else if (n >= 24 && factor && size > 0x1p-13 && size <= 0x1p-11 * 1.05 &&
               v->c->formats_barred == 0) {
        say.code = USC_CAUSE_STATISTIC_ROUNDED;
        say.s = "TF32 or float16";
    }
    return usc_cause_say(out, &say);
}

bool usc_cause_by_slices(usc_cause *c, usc_cause_found *out)
{
    const int rank = c->d.ndim;
    if (!c->floats || rank < 2 || c->d.n < 32) return false;
    const unsigned all = rank < 32 ? (1u << rank) - 1 : ~0u;
    const unsigned sets[] = {1u << (rank - 1), all & ~1u, all & ~2u, 1u, all & ~3u};
    double *room = usc_cause_room(c, 3 * (c->d.n / 4), sizeof *room);
    for (int k = 0; k < 5 && room != NULL; k++) {
        bool before = sets[k] == 0;
        for (int j = 0; j < k; j++)
            before |= sets[j] == sets[k];
        view v = {.c = c, .axes = sets[k], .rows = usc_cause_groups(c, sets[k])};
        const int64_t n_rows = v.rows.n;
        if (before || n_rows < 2 || c->d.n / n_rows < 4) continue;
        v.weight = room;
        v.sum = room + n_rows;
        double *off = v.sum + n_rows;
        for (int way = 0; way < 2; way++) {
            const int64_t n = common(&v, way == 0, off);
            if (n > 0) return say_own(&v, off, n, way == 0, out);
        }
    }
    return false;
}
