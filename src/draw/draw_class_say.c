// SPDX-License-Identifier: Apache-2.0
// Words on a class of places that is off: where it is, and how. Neighbours: draw_place.h.
#include "draw/draw_place.h"

#include "case/findings.h"

#include <math.h>

/* "7" or "4 to 7". */
static void set_range(usc_clause *out, int64_t from, int64_t size, int64_t n)
{
    const int64_t last = from + size < n ? from + size - 1 : n - 1;
    if (last <= from)
        (void)usc_clause_set(out, "%s", usc_count(from).text);
    else
        (void)usc_clause_set(out, "%s to %s", usc_count(from).text, usc_count(last).text);
}

static void set_tile(const usc_draws *d, const usc_odd_class *odd, usc_clause *out)
{
    const usc_layout *l = odd->layout;
    const int64_t row = odd->from / l->n_columns, column = odd->from % l->n_columns;
    usc_clause rows, columns;
    set_range(&rows, row * l->edge, l->edge, d->n / l->width);
    set_range(&columns, column * l->edge, l->edge, l->width);
    if (odd->size > 1)
        (void)usc_clause_set(out, "%s tiles of %lld x %lld from row %s, column %s on",
                             usc_count(odd->size).text, (long long)l->edge,
                             (long long)l->edge, usc_count(row * l->edge).text,
                             usc_count(column * l->edge).text);
    else
        (void)usc_clause_set(out, "rows %.60s, columns %.60s", rows.text, columns.text);
}

static void set_place(const usc_draws *d, const usc_odd_class *odd, usc_clause *out)
{
    const usc_layout *l = odd->layout;
    const bool one = odd->size == 1;
    const int64_t modulus = odd->modulus > 0 ? odd->modulus : l->n;
    usc_clause range;
    set_range(&range, odd->from, odd->size, modulus);
    if (l->kind == USC_BY_TILE) {
        set_tile(d, odd, out);
    } else if (l->kind == USC_BY_THREAD) {
        (void)usc_clause_set(out, "row %s, column %s of every %lld x %lld tile%s",
                             usc_count(odd->from / l->edge).text,
                             usc_count(odd->from % l->edge).text, (long long)l->edge,
                             (long long)l->edge, one ? "" : ", and some behind");
    } else if (l->kind == USC_BY_STRETCH) {
        set_range(&range, odd->from * l->run, odd->size * l->run, d->n);
        (void)usc_clause_set(out, "elements %.90s", range.text);
    } else if (l->kind == USC_BY_RESIDUE) {
        (void)usc_clause_set(out, "element%s %.90s of every %s", one ? "" : "s",
                             range.text, usc_count(modulus).text);
    } else {
        (void)usc_clause_set(out, "axis %d, ind%s %.90s%s%s", l->axis,
                             one ? "ex" : "ices", range.text,
                             odd->modulus > 0 ? " of every " : "",
                             odd->modulus > 0 ? usc_count(modulus).text : "");
    }
}

/* How far off, in standard deviations or as a count. */
static void set_amount(const usc_odd_class *odd, usc_clause *out)
{
    const usc_score *s = odd->score;
    const double n = (double)odd->sum.n, sum = odd->sum.sum;
    const double z = sum / sqrt(n * s->variance);
    if (s->kind == USC_SCORE_BIT && s->bit > 0)
        (void)usc_clause_set(out, "bit %d is set %s times among %s where %s are due",
                             s->bit, usc_count((int64_t)rint(sum + n * s->chance)).text,
                             usc_count(odd->sum.n).text,
                             usc_count((int64_t)rint(n * s->chance)).text);
    else if (s->chance > 0)
        (void)usc_clause_set(out, "%s of %s %s where %s are due",
                             usc_count((int64_t)rint(sum + n * s->chance)).text,
                             usc_count(odd->sum.n).text,
                             s->kind == USC_SCORE_HITS
                                 ? "ones or kept"
                                 : "above the least by an odd number",
                             usc_count((int64_t)rint(n * s->chance)).text);
    else if (s->kind == USC_SCORE_SPREAD)
        (void)usc_clause_set(out, "spread too %s (z = %.1f)", z > 0 ? "wide" : "narrow",
                             z);
    else if (s->kind == USC_SCORE_ODD)
        (void)usc_clause_set(out, "odd categories come too %s (z = %.1f)",
                             z > 0 ? "often" : "rarely", z);
    else
        (void)usc_clause_set(out, "too %s on average (z = %.1f)",
                             z > 0 ? "large" : "small", z);
}

static bool say_all(const usc_odd_class *odd, usc_clause *out)
{
    const usc_layout *l = odd->layout;
    const char *how = odd->too_even ? "too evenly" : "too unevenly";
    if (l->kind == USC_BY_AXIS)
        return usc_clause_set(out, "spread %s over the indices of axis %d", how, l->axis);
    if (l->kind == USC_BY_STRETCH)
        return usc_clause_set(out, "spread %s over stretches of %s elements", how,
                              usc_count(odd->size * l->run).text);
    if (l->kind == USC_BY_RESIDUE)
        return usc_clause_set(out, "spread %s over every %s elements", how,
                              usc_count(l->n).text);
    return usc_clause_set(out, "spread %s over tiles of %lld x %lld", how,
                          (long long)l->edge, (long long)l->edge);
}

bool usc_odd_class_say(const usc_draws *d, const usc_odd_class *odd, usc_clause *out)
{
    usc_clause place, amount;
    if (odd->all) return say_all(odd, out);
    if (odd->trend != 0)
        return usc_clause_set(out, "%s with the index of axis %d (z = %.1f)",
                              odd->trend > 0 ? "rise" : "fall", odd->layout->axis,
                              odd->trend);
    set_place(d, odd, &place);
    set_amount(odd, &amount);
    return usc_clause_set(out, "%.130s: %.100s", place.text, amount.text);
}
