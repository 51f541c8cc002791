// SPDX-License-Identifier: Apache-2.0
// Causes that a result alone shows: of every pattern a case that is named and a near miss
// that is not. docs/reference/causes.md.
#include "cause_bench.h"

/* ---- what spoils ---- */

static void fill(bench *b, int64_t first, int64_t n, double v)
{
    for (int64_t i = first; i < first + n; i++)
        b->d[i] = v;
}

/* Other values than the right ones, of their size. */
static void garble(bench *b, int64_t first, int64_t n)
{
    uint64_t state = 7;
    for (int64_t i = first; i < first + n; i++)
        b->d[i] = 40 + 10 * fixture_random(&state);
}

/* All elements take their value from `by` further in memory. */
static void roll(bench *b, int64_t by)
{
    for (int64_t i = 0; i < b->n; i++)
        b->d[(i + by + b->n) % b->n] = b->t[i];
}

/* Along an axis, element k takes that of from(k). */
static void along(bench *b, int axis, int64_t (*from)(int64_t k, int64_t n))
{
    int64_t inner = 1;
    for (int a = axis + 1; a < b->ndim; a++)
        inner *= b->sizes[a];
    const int64_t n = b->sizes[axis];
    for (int64_t i = 0; i < b->n; i++) {
        const int64_t k = i / inner % n, j = from(k, n);
        b->d[i] = j < 0 ? 0 : b->t[i + (j - k) * inner];
    }
}

/* One line each, as the rows below that they belong to. */
// clang-format off
static int64_t next(int64_t k, int64_t n) { return (k + 1) % n; }
static int64_t fifth(int64_t k, int64_t n) { return (k + n - 5) % n; }
static int64_t half(int64_t k, int64_t n) { return (k + n / 2) % n; }
static int64_t shift(int64_t k, int64_t n) { (void)n; return k - 1; }
static int64_t back(int64_t k, int64_t n) { return n - 1 - k; }
static int64_t pairs(int64_t k, int64_t n) { (void)n; return k ^ 1; }
static int64_t woven(int64_t k, int64_t n) { return k / 2 + k % 2 * (n / 2); }
static int64_t split(int64_t k, int64_t n) { return k % (n / 2) * 2 + k / (n / 2); }
static int64_t mixed(int64_t k, int64_t n) { return k * 7 % n; }
static int64_t edge(int64_t k, int64_t n) { (void)n; return k > 0 ? k - 1 : 0; }

static void s_lost(bench *b) { b->has_before = true; memcpy(b->d, b->before, sizeof b->d); }
static void m_lost(bench *b) { s_lost(b); garble(b, 0, b->n - 2); }
static void s_zero(bench *b) { fill(b, 0, b->n, 0); }
static void m_zero(bench *b) { s_zero(b); b->d[3] = b->t[3]; }
static void s_nan(bench *b) { fill(b, 0, b->n, (double)NAN); }
static void s_three(bench *b) { fill(b, 0, b->n, 3); }
static void m_three(bench *b) { s_three(b); garble(b, 0, 7); }
static void s_one(bench *b) { fill(b, 0, b->n, 1); }
static void m_true(bench *b) { s_one(b); b->d[1] = 0; b->t[1] = 0; }
static void s_tail(bench *b) { fill(b, b->n - 7, 7, 0); }
static void m_tail(bench *b) { fill(b, b->n - 7, 7, 0); b->d[3] = 9; b->d[20] = 11; }
static void s_stale(bench *b) { b->has_before = true; memcpy(b->d + b->n - 5, b->before + b->n - 5, 5 * sizeof(double)); }
static void s_repeat(bench *b) { memcpy(b->d + b->n - 5, b->d + b->n - 10, 5 * sizeof(double)); }
static void s_last0(bench *b) { b->d[b->n - 1] = 0; }
static void s_garbage(bench *b) { garble(b, b->n - 6, 6); }
static void m_garbage(bench *b) { garble(b, b->n - 6, 3); }
static void s_last1(bench *b) { b->d[b->n - 1] = b->d[b->n - 2]; }
static void s_laststale(bench *b) { b->has_before = true; b->d[b->n - 1] = b->before[b->n - 1]; }
static void s_columns(bench *b) { for (int64_t i = 0; i < 64; i++) garble(b, 32 * i + 24, 8); for (int64_t i = 0; i < 64; i++) b->d[32 * i + 24] += (double)i; }
static void s_input(bench *b) { b->has_index = true; for (int64_t i = 0; i < b->n; i++) b->d[i] = (double)b->index[i]; }
static void m_input(bench *b) { s_input(b); b->d[7] = 5000; }
static void s_run(bench *b) { fill(b, 20, 8, 0); }
static void m_run(bench *b) { fill(b, 20, 8, 0); garble(b, 20, 1); }
static void s_rows(bench *b) { for (int64_t i = 0; i < 8; i++) fill(b, 16 * i + 13, 3, 0); }
static void m_rows(bench *b) { s_rows(b); garble(b, 16 * 5, 1); garble(b, 16 * 7 + 3, 1); }
static void s_every(bench *b) { for (int64_t i = 0; i < b->n; i += 4) b->d[i] = 0; }
static void m_every(bench *b) { for (int64_t i = 0; i < b->n; i += 4) b->d[i] = 0.001 * (double)i; }
static void s_copied(bench *b) { memcpy(b->d + 112, b->d + 96, 16 * sizeof(double)); }
static void m_copied(bench *b) { s_copied(b); b->d[115] += 1; }
static void s_tile(bench *b) { for (int64_t i = 5; i < 8; i++) fill(b, 16 * i + 12, 4, 0); }
static void s_inner(bench *b) { for (int64_t i = 2; i < 5; i++) fill(b, 16 * i + 2, 3, 8); }
static void m_inner(bench *b) { for (int64_t i = 2; i < 5; i++) garble(b, 16 * i + 2, 3); }
static void s_spread(bench *b) { static const int at[] = {1, 9, 22, 30, 47}; for (int i = 0; i < 5; i++) b->d[at[i]] = 0; }
static void m_spread(bench *b) { s_spread(b); b->d[11] = 4; }
static void s_padded(bench *b) { b->has_index = true; for (int64_t i = 0; i < 64; i++) if (b->index[i] == 2) fill(b, 32 * i, 32, 0); }
static void m_padded(bench *b) { s_padded(b); memcpy(b->d + 64, b->t + 64, 32 * sizeof(double)); }
static void swap(bench *b, int64_t i, int64_t j) { const double x = b->d[i]; b->d[i] = b->d[j]; b->d[j] = x; }
static void s_swap(bench *b) { b->t[3] = b->d[3] = 1; b->t[9] = b->d[9] = 2; swap(b, 3, 9); }
static void m_swap(bench *b) { s_swap(b); b->d[3] = 2.5; }
static void s_shuffle(bench *b) { static const int at[] = {3, 20, 45, 77}; for (int i = 0; i < 4; i++) { b->d[at[i]] = b->t[at[(i + 1) % 4]] * 1.001; } }
static void m_shuffle(bench *b) { s_shuffle(b); b->d[3] *= 1.3; }
static void s_order(bench *b) { along(b, 1, mixed); }
static void m_order(bench *b) { along(b, 1, mixed); for (int64_t i = 0; i < b->n; i += 7) b->d[i] += 1; }
static void s_permuted(bench *b) { for (int64_t i = 0; i < b->n; i++) b->d[i] = b->t[i * 37 % b->n]; }
static void s_other(bench *b) { b->has_other = true; memcpy(b->d, b->other, sizeof b->d); }
static void m_other(bench *b) { s_other(b); for (int64_t i = 0; i < b->n; i += 9) b->d[i] += 1; }
static void s_flushed(bench *b) { for (int64_t i = 0; i < b->n; i++) b->d[i] = b->t[i] *= 1e-37; b->t[5] = 5e-39; b->d[5] = 0; }
static void s_zero1(bench *b) { b->d[5] = 0; }
static void m_zero1(bench *b) { b->d[5] = b->t[5] * 1.37; }
static void s_nan1(bench *b) { b->d[5] = (double)NAN; }
static void s_nanlost(bench *b) { b->t[5] = (double)NAN; }
static void s_inf1(bench *b) { b->d[5] = (double)INFINITY; }
static void s_sign1(bench *b) { b->d[5] = -b->t[5]; }
static void s_bit(bench *b) { float x = (float)b->t[5]; uint32_t u; memcpy(&u, &x, 4); u ^= 1u << 21; memcpy(&x, &u, 4); b->d[5] = (double)x; }
static void s_wrap(bench *b) { for (int64_t i = 0; i < b->n; i++) b->d[i] = (double)(int8_t)(int64_t)b->t[i]; }
static void m_wrap(bench *b) { s_wrap(b); for (int64_t i = 0; i < b->n; i += 5) b->d[i] += 7; }
static void s_half(bench *b) { along(b, 1, half); }
static void s_fifth(bench *b) { along(b, 1, fifth); }
static void s_next(bench *b) { along(b, 1, next); }
static void m_next(bench *b) { along(b, 1, next); for (int64_t i = 0; i < b->n; i += 9) b->d[i] += 5; }
static void s_shift(bench *b) { along(b, 1, shift); }
static void s_back(bench *b) { along(b, 1, back); }
static void s_back0(bench *b) { along(b, 0, back); }
static void s_pairs(bench *b) { along(b, 1, pairs); }
static void s_woven(bench *b) { along(b, 1, woven); }
static void s_split(bench *b) { along(b, 1, split); }
static void s_turned(bench *b) { for (int64_t i = 0; i < b->n; i++) b->d[i] = b->t[i % 64 * 32 + i / 64]; }
static void s_abs(bench *b) { for (int64_t i = 0; i < b->n; i++) b->d[i] = fabs(b->t[i]); }
static void m_abs(bench *b) { s_abs(b); for (int64_t i = 0; i < b->n; i += 3) b->d[i] = b->t[i] - 1; }
static void s_not(bench *b) { for (int64_t i = 0; i < b->n; i++) b->d[i] = b->t[i] == 0; }
static void m_not(bench *b) { s_not(b); for (int64_t i = 0; i < b->n; i += 3) b->d[i] = b->t[i]; }
static void s_double(bench *b) { for (int64_t i = 0; i < b->n; i++) b->d[i] = b->t[i / 2 * 2]; }
static void s_double1(bench *b) { for (int64_t i = 0; i < b->n; i++) b->d[i] = b->t[i | 1]; }
static void s_flat(bench *b) { roll(b, 1); }
static void s_edge(bench *b) { along(b, 1, edge); for (int64_t i = 0; i < 64; i++) b->d[32 * i] = 7 + (double)i; }
static void s_slid2(bench *b) { for (int64_t i = 0; i < b->n; i++) b->d[i] = i % 32 > 0 && i >= 32 ? b->t[i - 33] : 5 + 0.1 * (double)i; }
static void s_clamp(bench *b) { for (int64_t i = 0; i < b->n; i++) b->d[i] = fmin(fmax(b->t[i], -1.25), 1.25); }
static void m_clamp(bench *b) { s_clamp(b); for (int64_t i = 0; i < b->n; i++) if (b->d[i] == 1.25) b->d[i] -= 1e-3 * (double)i; }
static void s_max(bench *b) { for (int64_t i = 0; i < b->n; i++) { b->t[i] *= i % 4 == 0 ? 1e6 : 1e3; b->d[i] = fmin(fmax(b->t[i], -65504), 65504); } }
static void odd_truth(bench *b) { for (int64_t i = 0; i < b->n; i += 9) b->t[i] = b->d[i] = i % 2 ? (double)NAN : (double)INFINITY; }
static void s_swallowed(bench *b) { odd_truth(b); for (int64_t i = 0; i < b->n; i++) if (isnan(b->t[i])) b->d[i] = 0.25; }
static void s_inflost(bench *b) { odd_truth(b); for (int64_t i = 0; i < b->n; i++) if (isinf(b->t[i])) b->d[i] = 65504; }
static void s_over(bench *b) { for (int64_t i = 0; i < b->n; i++) { b->t[i] *= 5e4; b->d[i] = fabs(b->t[i]) > 65504 ? (double)INFINITY : b->t[i]; } }
static void m_over(bench *b) { for (int64_t i = 0; i < b->n; i += 6) { b->t[i] = 600; b->d[i] = (double)INFINITY; } } /* a limit that nothing else comes near */
static void s_inside(bench *b) { for (int64_t i = 0; i < b->n; i += 6) { b->t[i] = 5000; b->d[i] = (double)NAN; } }
static void s_clamp_below(bench *b) { for (int64_t i = 0; i < b->n; i++) { b->t[i] /= b->t[i] > 0 ? 2 : 1; b->d[i] = fmax(b->t[i], -1.25); } }
static void s_nans(bench *b) { for (int64_t i = 1; i < b->n; i += i % 5 + 2) b->d[i] = (double)NAN; }
static void s_kind(bench *b) { odd_truth(b); for (int64_t i = 0; i < b->n; i += 9) b->d[i] = (double)NAN; b->t[0] = (double)INFINITY; }
static void s_factor(bench *b) { bench_scale(b, 1.03, 0); }
static void s_odd(bench *b) { bench_scale(b, 1.0837261, 0); }
static void m_factor(bench *b) { bench_scale(b, 1.03, 0); for (int64_t i = 0; i < b->n; i += 5) b->d[i] = b->t[i]; }
static void s_sign(bench *b) { bench_scale(b, -1, 0); }
static void m_sign(bench *b) { bench_scale(b, -1, 0); fill(b, 0, b->n / 3, 0.3); }
static void s_amount(bench *b) { bench_scale(b, 1, 0.01); }
static void m_amount(bench *b) { bench_scale(b, 1, 0.01); for (int64_t i = 0; i < b->n; i += 5) b->d[i] += 0.02; }
static void s_another(bench *b) { for (int64_t i = 0; i < b->n; i++) b->t[i] = 0.125; fill(b, 0, b->n, 0.9); }
static void m_another(bench *b) { s_another(b); garble(b, 0, 7); }
static void s_either(bench *b) { for (int64_t i = 0; i < b->n; i++) b->t[i] = 1; bench_scale(b, 1.5, 0); }
static void s_whole(bench *b) { bench_scale(b, 1, 3); }
static void m_whole(bench *b) { bench_scale(b, 1, 3); b->d[7] += 1; }
static void s_slope(bench *b) { for (int64_t i = 0; i < b->n; i++) b->d[i] = b->t[i] * (b->t[i] < 0 ? 1.5 : 1); }
static void m_slope(bench *b) { s_slope(b); for (int64_t i = 0; i < b->n; i += 4) b->d[i] = b->t[i] * 1.2; }
static void s_side(bench *b) { for (int64_t i = 0; i < b->n; i++) b->d[i] = fabs(b->t[i]) + 0 * (b->t[i] > 0); for (int64_t i = 0; i < b->n; i++) if (b->t[i] > 0) b->d[i] = -b->t[i]; else b->d[i] = b->t[i]; }

static void s_some(bench *b) { bench_by_row(b, 1.25, 1.25, true, true); }
static void s_somesign(bench *b) { bench_by_row(b, -1, -1, true, true); }
static void s_partial(bench *b) { bench_by_row(b, 0.8, 0.95, true, false); }
static void m_partial(bench *b) { s_partial(b); for (int64_t i = 0; i < b->n; i += 7) b->d[i] = b->t[i] * 2; }
static void s_missing(bench *b) { bench_by_row(b, 0.1, 0.2, false, false); }
static void s_statistic(bench *b) { bench_by_row(b, 1 - 0x1p-8, 1 + 0x1p-8, true, false); }
static void s_factors(bench *b) { bench_by_row(b, 0.8, 1.2, true, false); }
static void s_amounts(bench *b) { bench_by_row(b, -0.2, 0.2, false, false); }

/* On the grid of a narrower format, far beyond its own rounding. */
static void on_grid(bench *b, int bits)
{
    bench_noise(b, 0x1p-6, 6.5, 0);
    for (int64_t i = 0; i < b->n; i++)
        b->d[i] = ldexp(nearbyint(ldexp(b->d[i], bits - 1)), 1 - bits);
}

static void s_inform(bench *b) { bench_noise(b, 0x1p-7, 7, USC_CAUSE_BF16); }
static void m_inform(bench *b) { bench_noise(b, 0x1p-7, 7, 0); }
static void s_accumulated(bench *b) { on_grid(b, 7); b->adds = true; }
static void m_accumulated(bench *b) { on_grid(b, 7); }
static void s_cut(bench *b) { b->bits = 8; for (int64_t i = 0; i < b->n; i++) b->d[i] = ldexp(trunc(ldexp(b->t[i], 7 - ilogb(b->t[i]))), ilogb(b->t[i]) - 7); }
static void m_grid(bench *b) { bench_noise(b, 0x1p-6, 6.5, 0); }
static void s_coarse(bench *b) { on_grid(b, 5); }
static void s_odd_grid(bench *b) { on_grid(b, 8); b->bits = 8; }
static void m_few_on_grid(bench *b) { bench_noise(b, 0x1p-6, 6.5, 0); for (int64_t i = 0; i < b->n; i++) if (i > 5) b->t[i] = b->d[i] = 0; else b->d[i] = ldexp(nearbyint(ldexp(b->d[i], 7)), -7); }
static void with_bias(bench *b) { b->has_bias = true; }
static void put_bias(bench *b, int64_t row) { for (int64_t i = 0; i < 32; i++) b->d[32 * row + i] = b->before[i]; }
static void s_bias(bench *b) { with_bias(b); put_bias(b, 4); put_bias(b, 20); }
static void m_bias(bench *b) { s_bias(b); b->d[32 * 20 + 3] += 0.5; }
static void s_only_bias(bench *b) { with_bias(b); for (int64_t row = 0; row < 64; row++) put_bias(b, row); }
static void m_only_bias(bench *b) { s_only_bias(b); garble(b, 9, 40); }
static void s_rows_of(bench *b) { static const int64_t to[] = {4, 20, 33}, from[] = {5, 21, 7}; for (int k = 0; k < 3; k++) memcpy(b->d + 32 * to[k], b->t + 32 * from[k], 32 * sizeof(double)); }
static void m_rows_of(bench *b) { s_rows_of(b); b->d[32 * 4 + 6] += 1; b->d[32 * 20 + 6] += 1; }
static void s_ninth(bench *b) { memcpy(b->d + 32 * 9, b->t + 32 * 8, 32 * sizeof(double)); }
static void s_row_before(bench *b) { memcpy(b->d + 32 * 4, b->t + 32 * 3, 32 * sizeof(double)); memcpy(b->d + 32 * 20, b->t + 32 * 19, 32 * sizeof(double)); }
static void s_conj(bench *b) { b->parts = true; for (int64_t i = 1; i < b->n; i += 2) b->d[i] = -b->t[i]; }
static void m_conj(bench *b) { s_conj(b); for (int64_t i = 1; i < b->n; i += 8) b->d[i] = b->t[i] + 1; }
static void s_below(bench *b) { for (int64_t i = 0; i < b->n; i++) b->d[i] = fmax(b->t[i], 0); }
static void m_below(bench *b) { s_below(b); for (int64_t i = 0; i < b->n; i++) if (b->t[i] < -1.5) b->d[i] = -0.5; }
static void s_above(bench *b) { for (int64_t i = 0; i < b->n; i++) b->d[i] = fmin(b->t[i], 1); }
static int64_t none(int64_t k, int64_t n) { (void)k; (void)n; return 0; }
static void s_first(bench *b) { along(b, 0, none); }
static void p_from(bench *b) { garble(b, 32 * 57, 32 * 7); }
static void p_beside(bench *b) { uint64_t dice = 3; for (int64_t i = 0; i < b->n; i++) b->d[i] *= 1 + 0x1p-8 * fixture_random(&dice); p_from(b); }
static void s_zero_beside(bench *b) { p_beside(b); fill(b, 32 * 57, 32 * 7, 0); }
static void s_many_zero(bench *b) { for (int64_t i = 0; i < 40; i++) b->d[51 * i] = 0; }
static void s_many_seven(bench *b) { for (int64_t i = 0; i < 40; i++) b->d[i * 51 % b->n] = 7; }
static void m_many_seven(bench *b) { s_many_seven(b); for (int64_t i = 0; i < b->n; i++) if (b->d[i] == 7) b->t[i] = 5; }
static void m_many_zero(bench *b) { s_many_zero(b); b->d[7] += 5; b->d[77] += 5; }
static double halfway(double x, int to) { return ldexp(floor(ldexp(fabs(x), 7)) + 0.5 * to, -7) * (x < 0 ? -1 : 1); }
static void ties(bench *b, int every) { for (int64_t i = 0; i < b->n; i++) { b->t[i] = halfway(b->t[i] / fabs(b->t[i]) * (1 + 0.99 * fabs(b->t[i]) / 2), 1); b->d[i] = b->t[i]; if (i % every == 0) b->d[i] = halfway(b->t[i], 2); } }
static void s_small(bench *b) { for (int64_t i = 0; i < 64; i++) b->t[i] = b->d[i] = i >= 20 && i < 28 ? 1e-8 * (double)(i + 1) : b->t[i]; fill(b, 20, 8, 0); }
static void s_ties_away(bench *b) { ties(b, 1); }
static void s_ties_some(bench *b) { ties(b, 4); }
static void m_ties_nan(bench *b) { fill(b, 8, 8, (double)NAN); }
static void m_ties_beyond(bench *b) { for (int64_t i = 8; i < 16; i++) { b->t[i] = -3.4e38 * 1.5; b->d[i] = (double)INFINITY; } }
static void m_ties(bench *b) { ties(b, 1); b->d[9] = halfway(b->t[9], 4); }
static void s_not_computed(bench *b) { for (int64_t row = 0; row < 64; row++) if (row % 8 < 5) fill(b, 32 * row, 32, 0); }
static void m_not_computed(bench *b) { bench_by_row(b, 0.25, 0.25, true, true); }
static void p_all_off(bench *b) { garble(b, 0, b->n); fill(b, 32 * 57, 32 * 7, 0); }
static void s_noise(bench *b) { bench_noise(b, 0x1p-9, 9, 0); }
static void s_approximate(bench *b) { bench_noise(b, 0x1p-14, 14, 0); }
static void m_noise(bench *b) { bench_noise(b, 0x1p-9, 9, 0); for (int64_t i = 0; i < b->n; i++) b->d[i] = b->t[i] * (1 + fabs(b->d[i] / b->t[i] - 1)); }
// clang-format on

typedef struct row {
    const char *text;
    usc_dtype dtype;
    int shape;
    void (*spoil)(bench *b); /* is named so */
    void (*miss)(bench *b);  /* is not */
} row;

// clang-format off
static const row rows[] = {
    {"the in-place result was lost: not written, previous contents are stale", USC_F32, 0,
     s_lost, m_lost},
    {"the result is all zeros", USC_F32, 1, s_zero, m_zero},
    {"the result is all NaN: spurious NaN", USC_F32, 1, s_nan, s_nan1},
    {"the result is always True (a constant, whatever the input)", USC_BOOL, 0, s_one, m_true},
    {"the result is always False (a constant, whatever the input)", USC_BOOL, 0, s_zero, m_zero},
    {"the result is the constant 3 everywhere", USC_F32, 1, s_three, m_three},
    {"the result is 0.9 everywhere, where 0.125 is right", USC_F32, 1, s_another, m_another},
    {"the last 7 of 64 elements are zero: the tail was not written", USC_F32, 0, s_tail, m_tail},
    {"the last 7 of 64 elements are zero: the tail was not written", USC_I32, 0, s_tail, m_tail},
    {"the last 5 of 64 elements are stale: they were not written", USC_BF16, 0, s_stale, m_lost},
    {"the last 5 of 64 elements repeat those before: stale tail", USC_F32, 0, s_repeat, m_garbage},
    {"the last element is zero", USC_F16, 0, s_last0, s_zero1},
    {"the last element repeats the one before: it is stale, not written", USC_F32, 0, s_last1, s_last0},
    {"the last element was not written: it is stale", USC_F32, 0, s_laststale, m_zero1},
    {"the result is index unchanged: it was lost, not written, or the rest of the formula is missing", USC_I64, 0, s_input, m_input},
    {"the elements 20 to 27 of 64 in memory are zero: a tile that was not written", USC_F32, 0, s_run, m_run},
    {"the last 3 of 16 along axis 1 are zero: the tail was not written", USC_F32, 1, s_rows, m_inner},
    {"elements 0 of every 4 of 64 are zero", USC_F32, 0, s_every, m_every},
    {"the last 1 of 8 along axis 0 repeats a neighbour", USC_F32, 1, s_copied, m_copied},
    {"the last tile (rows 5 to 7, columns 12 to 15) is zero: the tail was not written", USC_F32, 1, s_tile, m_rows},
    {"the tile (rows 2 to 4, columns 2 to 4) is constant 8", USC_F32, 1, s_inner, m_inner},
    {"elements 1, 9, 22, 30 and 47 of 64 are zero", USC_F32, 0, s_spread, m_spread},
    {"the rows whose index is 2 are zero: taken for padding (dropped contribution)", USC_F32, 3, s_padded, m_padded},
    {"elements 3 and 9 change places (exchanged)", USC_F32, 0, s_swap, m_swap},
    {"4 elements are exchanged among each other (wrong order or index)", USC_F32, 1, s_shuffle, m_shuffle},
    {"elements are exchanged among each other along axis 1: the right values in another order (unsorted, or a wrong index)",
     USC_F32, 3, s_order, m_order},
    {"the right values in another order: axes are exchanged or strides are wrong (permuted)", USC_F32, 3, s_permuted, m_order},
    {"wrong output: it holds the right values of out[1] (exchanged, or computed as that)", USC_F32, 1, s_other, m_other},
    {"subnormals flushed to zero", USC_F32, 0, s_flushed, s_zero1},
    {"one element is zero", USC_F32, 0, s_zero1, m_zero1},
    {"one element is NaN: spurious NaN", USC_F32, 0, s_nan1, m_zero1},
    {"one NaN is swallowed", USC_F32, 0, s_nanlost, s_nan1},
    {"one element is Inf: spurious Inf", USC_F32, 0, s_inf1, s_nan1},
    {"the sign of one element is flipped (bit flip)", USC_F32, 0, s_sign1, m_zero1},
    {"bit 21 of one element flipped", USC_F32, 0, s_bit, m_zero1},
    {"overflow: the result wraps around as in int8", USC_I32, 1, s_wrap, m_wrap},
    {"the halves along axis 1 are exchanged (shifted by 16, wrong index)", USC_F32, 3, s_half, m_order},
    {"shifted by 5 along axis 1 (moved, wrong index)", USC_F32, 3, s_fifth, m_order},
    {"shifted by 1 along axis 1 (wrong index: the neighbour's value)", USC_F32, 3, s_next, m_next},
    {"shifted by 1 along axis 1, zeros come in", USC_BF16, 3, s_shift, m_next},
    {"elements are exchanged: reversed along axis 1 (wrong stride or direction)", USC_F32, 3, s_back, m_order},
    {"elements are exchanged: reversed, or shifted by one, along axis 0 (wrong stride or direction)", USC_F32, 4, s_back0, m_next},
    {"elements are exchanged in pairs along axis 1", USC_F32, 3, s_pairs, m_order},
    {"wrong stride: halves along axis 1 interleaved", USC_F32, 3, s_woven, m_order},
    {"wrong stride: pairs along axis 1 split into halves", USC_F32, 3, s_split, m_order},
    {"wrong stride: the result is transposed (axes 0 and 1)", USC_F32, 3, s_turned, m_order},
    {"the sign is lost: absolute values", USC_F32, 1, s_abs, m_abs},
    {"the result is inverted", USC_BOOL, 1, s_not, m_not},
    {"every other element repeats the one before it (stale, or wrong stride)", USC_F32, 1, s_double, m_order},
    {"every other element repeats the one after it (stale, or wrong stride)", USC_F32, 1, s_double1, m_order},
    {"shifted by one element in memory (wrong index)", USC_F32, 1, s_flat, m_next},
    {"shifted by 1 along axis 1 (moved against the border or padding, wrong index)", USC_F32, 3, s_edge, m_next},
    {"shifted by 1 along axis 0 and by 1 along axis 1 (moved against the border or padding, wrong index)",
     USC_F32, 3, s_slid2, m_next},
    {"saturated at 1.25", USC_F32, 1, s_clamp, m_clamp},
    {"saturated at 65504, the maximum of float16", USC_F32, 1, s_max, m_clamp},
    {"results below -1.25 are -1.25", USC_F32, 1, s_clamp_below, s_clamp},
    {"NaN swallowed: 7 elements hold 0.25 instead", USC_F32, 1, s_swallowed, s_inflost},
    {"saturated at 65504: Inf swallowed in 8 elements", USC_F32, 1, s_inflost, s_swallowed},
    {"spurious Inf: overflow beyond 65504, the maximum of float16", USC_F32, 0, s_over, m_over},
    {"looks like: spurious NaN: overflow of intermediates beyond 65504, the maximum of float16", USC_F32, 1, s_inside, s_nans},
    {"spurious NaN in 17 of 64 elements", USC_F32, 0, s_nans, s_inside},
    {"spurious NaN: 8 elements are NaN in place of another non-finite value", USC_F32, 1, s_kind, s_swallowed},
    {"the result is multiplied by 1.03", USC_BF16, 3, s_factor, m_factor},
    {"looks like: the result is multiplied by 1.08373", USC_F32, 3, s_odd, m_factor},
    {"the sign is flipped: the result is multiplied by -1", USC_F32, 1, s_sign, m_sign},
    {"0.01 is added to the result (a constant offset)", USC_F32, 3, s_amount, m_amount},
    {"the result is multiplied by 1.5, or 0.5 is added to the result (a constant offset): these data cannot tell",
     USC_F32, 1, s_either, s_amount},
    {"3 is added to the result (a constant offset; index shifted)", USC_I64, 1, s_whole, m_whole},
    {"negative results are multiplied by 1.5 (a slope or scale factor)", USC_F32, 3, s_slope, m_slope},
    {"the sign is flipped: positive results are multiplied by -1 (a slope or scale factor)", USC_F32, 3, s_side, m_slope},
    {"multiplied by 1.25 in 32 slices along axis 1 (a factor of some results)", USC_F32, 3, s_some, m_partial},
    {"the sign is flipped in 32 slices along axis 1 (a factor of some results)", USC_F32, 3, s_somesign, m_partial},
    {"looks like: each slice along axis 1 is too small by a factor of its own", USC_F32, 3, s_partial, m_partial},
    {"looks like: each slice along axis 1 is too large by an amount of its own", USC_F32, 3, s_missing, m_partial},
    {"looks like: intermediates rounded to bfloat16: the statistic of each slice along axis 1", USC_F32, 3, s_statistic, m_partial},
    {"looks like: each slice along axis 1 is off by a factor of its own", USC_F32, 3, s_factors, m_partial},
    {"looks like: each slice along axis 1 is off by an amount of its own", USC_F32, 3, s_amounts, m_partial},
    {"looks like: intermediates rounded to bfloat16", USC_F32, 3, s_inform, m_inform},
    {"intermediates or accumulator rounded to bfloat16: the result has 8 significant bits", USC_F32, 3, s_accumulated, m_few_on_grid},
    {"intermediates or accumulator rounded to bfloat16: the result has 8 significant bits", USC_F32, 3, m_accumulated, m_grid},
    {"the result has 8 significant bits: rounded or truncated to bfloat16", USC_F32, 3, s_cut, m_grid},
    {"looks like noise, of both signs and without a pattern", USC_F32, 3, s_noise, m_noise},
    {"looks like noise, of both signs and without a pattern", USC_F32, 3, s_approximate, m_noise},
    {"looks like: the result has 5 significant bits", USC_F32, 3, s_coarse, m_grid},
    {"looks like: the result has 9 significant bits", USC_F32, 3, s_odd_grid, m_few_on_grid},
    {"the result holds nothing but bias, in every slice", USC_F32, 3, s_only_bias, m_only_bias},
    {"slices 4 and 20 of 64 along axis 0 hold nothing but bias", USC_F32, 3, s_bias, m_bias},
    {"slices 4 and 20 of 64 along axis 0 hold nothing but bias", USC_BF16, 3, s_bias, m_bias},
    {"slices 4, 20 and 33 of 64 along axis 0 hold the right values of 5, 21 and 7 (wrong index)", USC_F32, 3, s_rows_of, m_rows_of},
    {"slice 9 of 64 along axis 0 repeats a neighbour", USC_BF16, 3, s_ninth, m_rows_of},
    {"slices 4 and 20 of 64 along axis 0 repeat a neighbour", USC_F16, 3, s_row_before, m_rows_of},
    {"results below 0 are 0", USC_F32, 0, s_below, m_below},
    {"results above 1 are 1", USC_BF16, 3, s_above, m_below},
    {"the first slice along axis 0 stands in the place of all (wrong index or stride)", USC_F32, 3, s_first, m_next},
    {"the sign of the imaginary part is flipped (conjugated)", USC_F32, 3, s_conj, m_conj},
    {"the last 7 of 64 along axis 0 are zero", USC_F32, 3, s_zero_beside, p_beside},
    {"looks like: the last 7 of 64 along axis 0 are zero", USC_F32, 3, p_all_off, p_beside},
    {"wrong variant: ties are rounded away from zero instead of to even (in 1,065 elements)", USC_BF16, 3, s_ties_away, m_ties},
    {"wrong variant: ties are rounded away from zero instead of to even (in 1,065 elements)", USC_BF16, 3, s_ties_away, m_ties_nan},
    {"wrong variant: ties are rounded away from zero instead of to even (in 1,065 elements)", USC_BF16, 3, s_ties_away, m_ties_beyond},
    {"wrong variant: ties are rounded otherwise than to even (in 281 elements)", USC_BF16, 3, s_ties_some, m_ties},
    {"the elements 20 to 27 of 64 in memory are zero", USC_F32, 0, s_small, m_run},
    {"40 of 64 slices along axis 1 are zero: not computed", USC_F32, 3, s_not_computed, m_not_computed},
    {"40 of 2,048 elements are zero", USC_F32, 3, s_many_zero, m_many_zero},
    {"40 of 2,048 elements are constant 7", USC_F32, 3, s_many_seven, m_many_seven},
};
// clang-format on

static void each_pattern_is_named_and_its_near_miss_is_not(void **state)
{
    static bench b;
    bool named[USC_N_CAUSES] = {false};
    int wrong = 0;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bench_begin(&b, rows[i].dtype, rows[i].shape);
        rows[i].spoil(&b);
        const usc_cause_found found = bench_ask(&b, USC_CAUSE_ANYTHING);
        bench_begin(&b, rows[i].dtype, rows[i].shape);
        rows[i].miss(&b);
        const usc_cause_found other = bench_ask(&b, USC_CAUSE_ANYTHING);
        named[found.code] = true;
        if (strcmp(found.text, rows[i].text) == 0 && found.code != other.code) continue;
        print_error("row %d: %s\n  found: %s\n  miss:  %s\n", (int)i, rows[i].text,
                    found.text, other.text);
        wrong++;
    }
    for (int code = USC_CAUSE_LOST; code < USC_N_CAUSES; code++) {
        const bool of_shape = code >= USC_CAUSE_TRANSPOSED_SIZES &&
                              code <= USC_CAUSE_FIRST_MISSING; /* those have a test */
        if (named[code] || of_shape || code >= USC_CAUSE_WHERE) continue;
        print_error("no row is named %d, %s\n", code,
                    usc_cause_code_text((usc_cause_code)code));
        wrong++;
    }
    assert_int_equal(wrong, 0);
}

/* Which places are off is told whatever they hold, and of most of all nothing. */

// clang-format off
static void p_rows(bench *b) { garble(b, 32 * 4, 32); garble(b, 32 * 20, 32); }
static void p_to(bench *b) { garble(b, 32 * 4, 32 * 4); }
static void p_every(bench *b) { for (int64_t i = 7; i < b->n; i += 8) garble(b, i, 1); }
static void p_pairs(bench *b) { for (int64_t i = 6; i < b->n; i += 8) garble(b, i, 2); }
static void p_points(bench *b) { garble(b, 100, 1); garble(b, 777, 1); }
static void p_many(bench *b) { for (int64_t i = 0; i < 100; i++) garble(b, i * 163 % b->n, 1); }
static void p_steps(bench *b) { for (int64_t k = 0; k < 32; k += 4) garble(b, 32 * k, 32); }
static void p_unevenly(bench *b) { for (int64_t i = 32 * 40; i < b->n; i++) b->d[i] *= i % 3 == 0 ? 1 + 0x1p-14 : 3; }
static void p_stray(bench *b) { garble(b, 32 * 63, 32); b->d[20 * 32 + 5] *= 1 + 0x1p-13; }
static void p_most(bench *b) { garble(b, 0, b->n - 3); }
static void p_fine(bench *b) { for (int64_t i = 0; i < 32; i++) b->d[32 * 9 + i] *= 1 + 0x1p-15; }
static void p_heads(bench *b) { b->heads = true; garble(b, 4 * 60, 2 * 60); }
// clang-format on

static void places_are_told_whatever_they_hold(void **state)
{
    static const struct {
        const char *text;
        int shape;
        void (*spoil)(bench *b);
    } where[] = {
        {"off only in rows 4 and 20", 3, p_rows},
        {"off only in rows from 57 on", 3, p_from},
        {"off only in rows 4 to 7", 3, p_to},
        {"off only in column 7 of every 8", 3, p_every},
        {"off only in columns 6 and 7 of every 8", 3, p_pairs},
        {"off only in elements [3, 4] and [24, 9]", 3, p_points},
        {"off only in 100 of 2,048 elements", 3, p_many},
        {"off only in row 9", 3, p_fine},
        {"off only in rows 2 to 4, columns 2 to 4", 1, m_inner},
        {"off only in elements from 58 on", 0, s_garbage},
        {"off only in columns from 24 on", 3, s_columns},
        {"off only in batch 0, heads 4 and 5", 5, p_heads},
        {"far off only in rows from 57 on", 3, p_beside},
        {"off only in rows 0 to 28 in steps of 4", 3, p_steps},
        {"off only in rows from 40 on", 3, p_unevenly},
        {"far off only in row 63", 3, p_stray},
        {"", 3, p_most},
    };
    static bench b;
    (void)state;
    for (size_t i = 0; i < sizeof where / sizeof where[0]; i++) {
        bench_begin(&b, USC_F32, where[i].shape);
        where[i].spoil(&b);
        assert_string_equal(bench_ask(&b, USC_CAUSE_PLACE).text, where[i].text);
    }
}

/* What runs of the operator have not explained otherwise is a name. */
static void statistics_of_slices_are_names_behind_a_search(void **state)
{
    static bench b;
    (void)state;
    bench_begin(&b, USC_F32, 3);
    s_statistic(&b);
    assert_string_equal(
        bench_ask(&b, USC_CAUSE_PLACES).text,
        "looks like: intermediates rounded to bfloat16: the statistic of each slice "
        "along axis 1");
    s_factors(&b);
    assert_memory_equal(bench_ask(&b, USC_CAUSE_PLACES).text, "looks like: ", 12);
}

static void what_is_right_has_no_cause(void **state)
{
    static const usc_dtype dtypes[] = {USC_F32, USC_F64,  USC_BF16,    USC_F16,
                                       USC_I64, USC_BOOL, USC_F8_E4M3, USC_U8};
    static bench b;
    (void)state;
    for (int shape = 0; shape < 5; shape++)
        for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
            bench_begin(&b, dtypes[i], shape);
            if (dtypes[i] == USC_U8)
                for (int64_t k = 0; k < b.n; k++)
                    b.t[k] = b.d[k] = fabs(b.t[k]) / 10;
            assert_string_equal(bench_ask(&b, USC_CAUSE_ANYTHING).text, "");
        }
}

static void what_nobody_knows_is_not_named(void **state)
{
    static bench b;
    (void)state;
    for (uint64_t seed = 1; seed < 40; seed++) {
        uint64_t dice = seed;
        bench_begin(&b, seed % 2 ? USC_F32 : USC_BF16, (int)(seed % 5));
        for (int64_t i = 0; i < b.n; i++)
            b.d[i] = 4 * fixture_random(&dice) - 2;
        const usc_cause_found found = bench_ask(&b, USC_CAUSE_ANYTHING);
        if (found.code != USC_CAUSE_NONE) print_error("%s\n", found.text);
        assert_int_equal(found.code, USC_CAUSE_NONE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_pattern_is_named_and_its_near_miss_is_not),
        cmocka_unit_test(places_are_told_whatever_they_hold),
        cmocka_unit_test(statistics_of_slices_are_names_behind_a_search),
        cmocka_unit_test(what_is_right_has_no_cause),
        cmocka_unit_test(what_nobody_knows_is_not_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
