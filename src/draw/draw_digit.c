// SPDX-License-Identifier: Apache-2.0
// Digits of what was drawn: every stretch of bits of whole numbers, their residues by
// small primes, and the bits of even numbers as far as rounding leaves them. A generator
// whose low bits are stuck is even to whoever looks at sizes alone. Formulas:
// docs/reference/metrics.md, 4.
#include "draw/draw_special.h"
#include "draw/draws.h"

#include "case/findings.h"
#include "kernels/walk_load.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ROUNDED 0x1p-20 /* slack from which digits of even numbers are not looked at */

enum {
    WIDTH = 6, /* bits that are looked at together */
    CELLS = 1 << WIDTH,
    DUE = 16,       /* elements of a cell at the least */
    EVEN_BITS = 22, /* of an even number: some generators have 23 */
    TESTS = 512,    /* at the most: bits from 64 places on, of 3 widths, and primes */
};

double usc_digit_chance(double range, int bit, int width, int64_t digit)
{
    const double one = ldexp(1, bit), round = ldexp(1, bit + width);
    const double rounds = floor(range / round), left = range - rounds * round;
    const double more = fmin(fmax(left - (double)digit * one, 0), one);
    return (rounds * one + more) / range;
}

/* ---- whole numbers, bit for bit ---- */

static uint64_t bits_of(const unsigned char *raw, usc_dtype dtype)
{
    const usc_dtype_info *info = usc_dtype_info_of(dtype);
    uint64_t v = 0;
    memcpy(&v, raw, info->size); /* little-endian */
    const int unused = 64 - 8 * (int)info->size;
    if (info->kind == USC_KIND_INT && unused > 0 && v >> (63 - unused) != 0)
        v |= ~UINT64_C(0) << (64 - unused);
    return v;
}

static uint64_t whole_of(double v)
{
    return v < 0 ? (uint64_t)(int64_t)v : (uint64_t)v;
}

/* The lowest bit that floats as large as those of the range have. */
static int first_bit_of(usc_dtype dtype, double low, double range)
{
    const usc_dtype_info *info = usc_dtype_info_of(dtype);
    const double most = fmax(fabs(low), fabs(low + range));
    if (info->kind != USC_KIND_FLOAT || most <= ldexp(1, info->sig_bits)) return 0;
    return ilogb(most) - info->sig_bits + 2;
}

usc_status usc_draws_take_whole(usc_draws *d, const usc_tensor *t, double low,
                                double range, usc_error *err)
{
    usc_walk walk;
    usc_walk_room room;
    double values[USC_JUDGE_BLOCK];
    const size_t size = usc_dtype_info_of(t->dtype)->size;
    const bool floats = usc_dtype_info_of(t->dtype)->kind == USC_KIND_FLOAT;
    const usc_status st = usc_walk_begin(t, true, &walk, err);
    if (st != USC_OK || !(range >= 2) || !(fabs(low) <= 0x1p63) || d->n == 0) return st;
    uint64_t *whole = usc_arena_take(d->arena, (size_t)d->n_u * sizeof *whole);
    if (whole == NULL) return usc_no_memory("draws", err);
    const uint64_t least = whole_of(low);
    for (int64_t at = 0; at < d->n; at += USC_JUDGE_BLOCK) {
        const size_t count =
            (size_t)(d->n - at < USC_JUDGE_BLOCK ? d->n - at : USC_JUDGE_BLOCK);
        const unsigned char *raw = usc_walk_raw(&walk, at, count, &room);
        if (floats) usc_dtype_widen(t->dtype, raw, values, count);
        for (size_t i = 0; i < count; i++) {
            const int64_t place = usc_draws_place(d, at + (int64_t)i);
            const bool known = place >= 0 && !isnan(d->u[place]);
            if (place >= 0) whole[place] = 0;
            if (known)
                whole[place] =
                    (floats ? whole_of(values[i]) : bits_of(raw + i * size, t->dtype)) -
                    least;
        }
    }
    d->whole = whole;
    d->range = range;
    d->first_bit = first_bit_of(t->dtype, low, range);
    return USC_OK;
}

/* ---- counts ---- */

typedef struct digits {
    const usc_draws *d;
    double came[CELLS], due[CELLS];
    double log_worst; /* chance */
    usc_clause *out;
} digits;

static void begin(digits *g)
{
    memset(g->came, 0, sizeof g->came);
}

/* Chi-square over the cells that are due often enough, the others as one; what is never
 * due and comes is another test's matter. */
static double chance_of(digits *g, int n, int *worst)
{
    double sum = 0, most = -1, rare_came = 0, rare_due = 0;
    int cells = 0;
    for (int k = 0; k <= n; k++) {
        const bool rest = k == n;
        const double came = rest ? rare_came : g->came[k];
        const double due = rest ? rare_due : g->due[k];
        if (due < DUE) {
            rare_came += came;
            rare_due += due;
            continue;
        }
        const double square = (came - due) * (came - due) / due;
        sum += square;
        cells++;
        if (rest || square <= most) continue;
        most = square;
        *worst = k;
    }
    return cells < 2 ? 1 : usc_gamma_above((double)(cells - 1) / 2, sum / 2);
}

static bool counts_odd(digits *g, int n, int *worst)
{
    return chance_of(g, n, worst) < g->d->family / TESTS;
}

static double n_of(const usc_draws *d)
{
    return (double)d->n_seen;
}

/* Bits [bit, bit + width) of all. */
static bool whole_bits_odd(digits *g, int bit, int width, usc_clause *out)
{
    const usc_draws *d = g->d;
    int worst = 0;
    begin(g);
    for (int64_t i = 0; i < d->n_u; i++)
        if (!isnan(d->u[i])) g->came[d->whole[i] >> bit & ((1U << width) - 1)] += 1;
    for (int k = 0; k < 1 << width; k++)
        g->due[k] = n_of(d) * usc_digit_chance(d->range, bit, width, k);
    if (!counts_odd(g, 1 << width, &worst)) return false;
    char which[32];
    (void)snprintf(which, sizeof which, width == 1 ? "bit %d" : "bits %d to %d", bit,
                   bit + width - 1);
    return usc_clause_set(
        out, "%s of what lies above the least %s %d in %s where %s are due", which,
        width == 1 ? "is" : "are", worst, usc_count((int64_t)g->came[worst]).text,
        usc_count((int64_t)rint(g->due[worst])).text);
}

static bool residues_odd(digits *g, int prime, usc_clause *out)
{
    const usc_draws *d = g->d;
    int worst = 0;
    const double rounds = floor(d->range / prime), left = d->range - rounds * prime;
    begin(g);
    for (int64_t i = 0; i < d->n_u; i++)
        if (!isnan(d->u[i])) g->came[d->whole[i] % (uint64_t)prime] += 1;
    for (int k = 0; k < prime; k++)
        g->due[k] = n_of(d) * (rounds + (k < left ? 1 : 0)) / d->range;
    if (!counts_odd(g, prime, &worst)) return false;
    return usc_clause_set(
        out, "%s of what lies above the least leave %d of %d where %s are due",
        usc_count((int64_t)g->came[worst]).text, worst, prime,
        usc_count((int64_t)rint(g->due[worst])).text);
}

static bool whole_odd(digits *g, usc_clause *out)
{
    static const int primes[] = {3,  5,  7,  11, 13, 17, 19, 23, 29,
                                 31, 37, 41, 43, 47, 53, 59, 61};
    static const int widths[] = {1, 3, WIDTH};
    const usc_draws *d = g->d;
    for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++)
        for (int bit = d->first_bit; bit < 64 && ldexp(1, bit) < d->range; bit++)
            if ((double)(DUE << widths[w]) <= n_of(d) && bit + widths[w] <= 64 &&
                whole_bits_odd(g, bit, widths[w], out))
                return true;
    const bool exact = d->first_bit == 0 && d->range <= 0x1p53;
    for (size_t k = 0; k < sizeof primes / sizeof primes[0] && exact; k++)
        if (primes[k] <= d->range && primes[k] * DUE <= n_of(d) &&
            residues_odd(g, primes[k], out))
            return true;
    return false;
}

/* ---- even numbers ---- */

/* Bits of u down to 2^-last. */
static bool even_bits_odd(digits *g, int last, usc_clause *out)
{
    const usc_draws *d = g->d;
    int worst = 0;
    begin(g);
    for (int64_t i = 0; i < d->n_u; i++)
        if (!isnan(d->u[i])) g->came[(int64_t)ldexp(d->u[i], last) & (CELLS - 1)] += 1;
    for (int k = 0; k < CELLS; k++)
        g->due[k] = n_of(d) / CELLS;
    if (!counts_odd(g, CELLS, &worst)) return false;
    return usc_clause_set(
        out, "bits %d to %d of the numbers made even are %d in %s where %s are due",
        last - WIDTH + 1, last, worst, usc_count((int64_t)g->came[worst]).text,
        usc_count((int64_t)rint(g->due[worst])).text);
}

bool usc_draws_digits_odd(usc_draws *d, usc_clause *out)
{
    digits g = {.d = d};
    if (d->hits != NULL || n_of(d) < USC_DRAW_ENOUGH) return false;
    if (d->whole != NULL && !d->once && whole_odd(&g, out)) return true;
    if (d->slack >= ROUNDED || d->once || n_of(d) < DUE * CELLS) return false;
    for (int last = WIDTH; last <= EVEN_BITS && ldexp(2 * d->slack, last) <= 1; last++)
        if (even_bits_odd(&g, last, out)) return true;
    return false;
}
