// SPDX-License-Identifier: Apache-2.0
// Pairs of draws a power of two apart, in the flat order and along every axis, and of the
// two halves: whether one tells anything of the other, be it not in proportion. Pairs of
// one distance share no element, so that they are independent. Formulas:
// docs/reference/metrics.md, 4.
#include "draw/draw_special.h"
#include "draw/draws.h"

#include "case/findings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    CELLS = 32, /* of each of the two, at the most */
    COARSE = 8,
    DUE = 24, /* pairs of a cell at the least */
    MOST_LAGS = 40 * (USC_MAX_DIMS + 2),
    NOT_KNOWN = 255,
};

typedef struct lags {
    int64_t at[MOST_LAGS];
    int n;
} lags;

static void add(lags *l, int64_t lag)
{
    for (int i = 0; i < l->n; i++)
        if (l->at[i] == lag) return;
    if (l->n < MOST_LAGS) l->at[l->n++] = lag;
}

static void add_powers(lags *l, int64_t stride, int64_t most)
{
    for (int64_t lag = stride; lag > 0 && lag <= most; lag *= 2)
        add(l, lag);
}

/* Distances within what is looked at. */
static void list_lags(const usc_draws *d, lags *l)
{
    int64_t stride = 1;
    l->n = 0;
    add_powers(l, 1, d->n_u / 2);
    add(l, d->n_u / 2);
    for (int axis = d->ndim - 1; axis >= 0 && d->n > 0; axis--) {
        const int64_t size = d->sizes[axis];
        const int64_t whole = stride * size < d->n_u ? stride * size : d->n_u;
        add_powers(l, stride, whole / 2);
        if (size % 2 == 0 && stride * size <= d->n_u) add(l, stride * size / 2);
        stride *= size;
    }
}

/* Pearson's test of a table whose margins are its own: how even each is alone, others
 * ask. */
static double chance_of(int64_t came[CELLS][CELLS], double n, int cells, int *row,
                        int *column)
{
    double rows[CELLS] = {0}, columns[CELLS] = {0}, sum = 0, most = -1;
    for (int i = 0; i < cells; i++)
        for (int j = 0; j < cells; j++) {
            rows[i] += (double)came[i][j];
            columns[j] += (double)came[i][j];
        }
    for (int i = 0; i < cells; i++)
        for (int j = 0; j < cells; j++) {
            const double due = rows[i] * columns[j] / n;
            const double off = (double)came[i][j] - due;
            if (due < DUE / 4) return 1; /* no test of this table */
            sum += off * off / due;
            if (off * off / due <= most) continue;
            most = off * off / due;
            *row = i;
            *column = j;
        }
    const double free = (cells - 1) * (cells - 1);
    return usc_gamma_above(free / 2, sum / 2);
}

static int64_t count_pairs(const unsigned char *cell, int64_t n, int64_t lag,
                           int64_t came[CELLS][CELLS])
{
    int64_t pairs = 0;
    for (int64_t from = 0; from + lag < n; from += 2 * lag) {
        const int64_t end = from + lag < n - lag ? from + lag : n - lag;
        for (int64_t i = from; i < end; i++) {
            if (cell[i] == NOT_KNOWN || cell[i + lag] == NOT_KNOWN) continue;
            came[cell[i]][cell[i + lag]]++;
            pairs++;
        }
    }
    return pairs;
}

static bool pairs_odd(const usc_draws *d, const unsigned char *cell, const lags *l,
                      int cells, const char *of, usc_clause *out)
{
    for (int k = 0; k < l->n; k++) {
        int64_t came[CELLS][CELLS] = {{0}};
        int row = 0, column = 0;
        const int64_t n = count_pairs(cell, d->n_u, l->at[k], came);
        if (n < DUE * cells * cells) continue;
        const double chance = chance_of(came, (double)n, cells, &row, &column);
        if (chance >= d->family / (4 * l->n)) continue;
        return usc_clause_set(out,
                              "%s depend on those %s place%s before: part %d of %d "
                              "follows part %d %s times among %s",
                              of, usc_count(l->at[k]).text, l->at[k] == 1 ? "" : "s",
                              column, cells, row, usc_count(came[row][column]).text,
                              usc_count(n).text);
    }
    return false;
}

static int cells_for(int64_t n, int most)
{
    int cells = most;
    while (cells > 2 && (int64_t)DUE * cells * cells > n / 2)
        cells /= 2;
    return cells;
}

static bool low_bits_odd(usc_draws *d, unsigned char *cell, const lags *l,
                         usc_clause *out)
{
    int bits = 0;
    while (bits < 3 && ldexp(4, bits + d->first_bit) <= d->range &&
           1 << (bits + 1) <= cells_for(d->n_seen, COARSE))
        bits++;
    if (bits == 0) return false;
    for (int64_t i = 0; i < d->n_u; i++)
        cell[i] = isnan(d->u[i])
                      ? NOT_KNOWN
                      : (unsigned char)(d->whole[i] >> d->first_bit & ((1U << bits) - 1));
    return pairs_odd(d, cell, l, 1 << bits, "low bits", out);
}

static bool numbers_odd(usc_draws *d, unsigned char *cell, const lags *l, int cells,
                        usc_clause *out)
{
    for (int64_t i = 0; i < d->n_u; i++)
        cell[i] = isnan(d->u[i]) ? NOT_KNOWN : (unsigned char)(d->u[i] * cells);
    return pairs_odd(d, cell, l, cells, "numbers", out);
}

bool usc_draws_paired(usc_draws *d, usc_clause *out)
{
    const int coarse = cells_for(d->n_seen, COARSE), fine = cells_for(d->n_seen, CELLS);
    unsigned char *cell = usc_arena_take(d->arena, (size_t)d->n_u);
    lags *l = usc_arena_take(d->arena, sizeof *l);
    /* of ones and zeros correlation tells all that there is */
    if (cell == NULL || l == NULL || d->hits != NULL || d->n_u < 2) return false;
    list_lags(d, l);
    if (!d->once && (numbers_odd(d, cell, l, coarse, out) ||
                     (fine > coarse && numbers_odd(d, cell, l, fine, out))))
        return true;
    return d->whole != NULL && low_bits_odd(d, cell, l, out);
}
