// SPDX-License-Identifier: Apache-2.0
// Draws of which nobody wrote the law down: one answer of a device against many draws of
// the CPU. If the device draws as the CPU does, its answer is one of a crowd: every
// number that can be made of one answer lies where those of the others lie. The draws
// calibrate the tests themselves, so that outputs whose elements hang together
// (attention with dropout) are judged with as much power as they have. Formulas:
// docs/reference/metrics.md, 4.
#include "draw/draw_special.h"
#include "draw/draws.h"

#include "base/compiler.h"
#include "base/float_env.h"
#include "case/findings.h"
#include "kernels/walk_load.h"

#include <math.h>
#include <string.h>

#define FAR 7.0 /* standard deviations of the crowd: 2e-8 for a normal statistic */
#define TIES UINT64_C(0x7a11)
#define SPREAD_ONLY "drawn: spread only, its values cannot be told from chance"

enum { MOST_ELEMENTS = 1 << 16 };

/* Numbers of one row: what they are called, and how far off they may lie at the least,
 * as those of independent elements do. */
static const struct {
    const char *name;
    double bound;
} kinds[] = {
    {"the average", 5.33},
    {"the spread", 5.33},
    {"the distribution", 2.9},
    {"a block of elements", 6},
    {"the dependence between elements", 7.5},
    {"an index of an axis", 7},
    {"the distribution over the indices of an axis", 8},
    {"the size of the result", 0},
    {"the variance of the result", 0},
};

enum {
    AVERAGE,
    SPREAD,
    SHAPE,
    BLOCK,
    LAG,
    PLACE,
    TABLE,
    SIZE,
    VARIANCE,
    N_KINDS,
    N_BLOCKS = 32,
    PARTS = 16,          /* of a row's places, for TABLE */
    MOST_CLASSES = 4096, /* indices of an axis that are looked at */
    LEAST_OF_CLASS = 16, /* elements */
    MOST_MODULUS = 64,
};

/* The device's answer and the draws, one row each, row 0 the device's. */
typedef struct crowd {
    usc_arena *arena;
    const usc_draw_crowd *of;
    int n_rows;
    int64_t n;             /* elements of a row */
    double *rows;          /* n_rows of them, one behind the other */
    int64_t *element;      /* of the tensor, that each is */
    float (*table)[PARTS]; /* room for the parts of MOST_CLASSES classes */
} crowd;

static double *row_of(const crowd *c, int row)
{
    return c->rows + row * c->n;
}

/* The answer and the draws from two places on, as the device's dtype holds them: half of
 * the room each. */
static void read_rows(crowd *c, int64_t first, int64_t second)
{
    const usc_dtype dtype = c->of->device->dtype;
    const int64_t half = c->n / 2;
    for (int r = 0; r < c->n_rows; r++) {
        const usc_tensor *t = r == 0 ? c->of->device : &c->of->draws[r - 1];
        usc_draws_read(t, dtype, first, half, row_of(c, r));
        usc_draws_read(t, dtype, second, c->n - half, row_of(c, r) + half);
    }
    for (int64_t i = 0; i < c->n; i++)
        c->element[i] = i < half ? first + i : second + i - half;
}

/* Leaves out elements that some draw of the CPU has no number for; how many of the
 * others the device has none for. */
static int64_t keep_live(crowd *c)
{
    int64_t kept = 0, bad = 0;
    const int64_t n = c->n;
    for (int64_t i = 0; i < n; i++) {
        bool live = true;
        for (int r = 1; r < c->n_rows && live; r++)
            live = isfinite(c->rows[r * n + i]);
        if (!live) continue;
        c->element[kept] = c->element[i];
        bad += !isfinite(c->rows[i]);
        for (int r = 0; r < c->n_rows; r++)
            c->rows[r * n + kept] = c->rows[r * n + i];
        kept++;
    }
    for (int r = 1; r < c->n_rows; r++)
        memmove(c->rows + r * kept, c->rows + r * n, (size_t)kept * sizeof *c->rows);
    c->n = kept;
    return bad;
}

/* The device's elements, moved upon the nearest draw where rounding explains the gap. */
static void move_near(const crowd *c, double *out)
{
    const double share = usc_draws_share(c->of->device->dtype);
    double squares = 0;
    for (int64_t i = c->n; i < c->n * c->n_rows; i++)
        squares += c->rows[i] * c->rows[i];
    const double size = sqrt(squares / fmax((double)(c->n * (c->n_rows - 1)), 1));
    for (int64_t i = 0; i < c->n; i++) {
        double most = 0, gap = (double)INFINITY, nearest = 0;
        for (int r = 1; r < c->n_rows; r++) {
            const double v = row_of(c, r)[i], away = fabs(v - c->rows[i]);
            most = fmax(most, fabs(v));
            if (away >= gap) continue;
            gap = away;
            nearest = v;
        }
        const double reach = share > 0 ? share * most + USC_DRAWS_LEAST * size : 0;
        out[i] = gap <= reach ? nearest : c->rows[i];
    }
}

/* How many elements of `row` equal none in the rows but `but`. */
static int64_t count_novel(const crowd *c, const double *row, int from, int but)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++) {
        bool novel = true;
        for (int r = from; r < c->n_rows && novel; r++)
            novel = r == but || row_of(c, r)[i] != row[i];
        n += novel;
    }
    return n;
}

/* Values that none of the draws has, where draws share their values: each row is as
 * likely to hold one. Chernoff's bound of the binomial tail. */
static bool novel_values(const crowd *c, const double *near, usc_clause *out)
{
    const int64_t mine = count_novel(c, near, 1, 0);
    int64_t most = 0, total = mine;
    for (int r = 1; r < c->n_rows; r++) {
        const int64_t other = count_novel(c, row_of(c, r), 0, r);
        total += other;
        most = other > most ? other : most;
    }
    if (mine <= 4 * most) return false;
    const double k = (double)mine, due = (double)total / c->n_rows;
    if (k * log(due / k) + (k - due) > log(USC_DRAW_CHANCE)) return false;
    return usc_clause_set(out, "%s elements have values that no draw of the CPU has",
                          usc_count(mine).text);
}

/* A row's places among the others, element by element, ties by chance: even on [0, 1)
 * for every row that comes from the same draws. */
static void rank_row(const crowd *c, int row, double *u)
{
    for (int64_t i = 0; i < c->n; i++) {
        const double v = row_of(c, row)[i];
        int less = 0, ties = 0;
        for (int r = 0; r < c->n_rows; r++) {
            const double other = row_of(c, r)[i];
            less += other < v;
            ties += other == v;
        }
        const double at = usc_even_number(TIES, (uint64_t)(row * c->n + i));
        u[i] = (less + at * ties) / c->n_rows;
    }
}

static double distance(double *u, int64_t n)
{
    double gap = 0;
    usc_sort_doubles(u, (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        gap = fmax(gap, u[i] - (double)i / (double)n);
        gap = fmax(gap, (double)(i + 1) / (double)n - u[i]);
    }
    return gap;
}

static double worst_block(const double *u, int64_t n)
{
    double worst = 0;
    const int64_t size = (n + N_BLOCKS - 1) / N_BLOCKS;
    for (int64_t from = 0; from < n; from += size) {
        const int64_t end = from + size < n ? from + size : n;
        double sum = 0;
        for (int64_t i = from; i < end; i++)
            sum += u[i] - 0.5;
        const double count = (double)(end - from);
        worst = fmax(worst, fabs(sum / count) * sqrt(12 * count));
    }
    return worst;
}

/* How far the worst class of a table lies off, and all of them together, as deviations
 * that are normal about for even numbers. */
static void number_table(const crowd *c, int64_t n_classes, double out[N_KINDS])
{
    double squares = 0, free = 0;
    for (int64_t k = 0; k < n_classes; k++) {
        double n = 0, sum = 0, square = 0;
        for (int part = 0; part < PARTS; part++) {
            n += (double)c->table[k][part];
            sum += (double)c->table[k][part] * ((part + 0.5) / PARTS - 0.5);
        }
        if (n < LEAST_OF_CLASS) continue;
        out[PLACE] = fmax(out[PLACE], fabs(sum) * sqrt(12 / n));
        if (n < 4 * PARTS) continue;
        for (int part = 0; part < PARTS; part++) {
            const double off = (double)c->table[k][part] - n / PARTS;
            square += off * off * PARTS / n;
        }
        squares += square;
        free += PARTS - 1;
    }
    if (free > 0) out[TABLE] = fmax(out[TABLE], (squares - free) / sqrt(2 * free));
}

/* The classes of a row's places: the indices of each axis, and what they leave by powers
 * of two. */
static void number_places(const crowd *c, const double *u, double out[N_KINDS])
{
    const usc_tensor *t = c->of->device;
    int64_t stride = 1;
    for (int axis = t->ndim - 1; axis >= 0; stride *= t->sizes[axis--]) {
        const int64_t size = t->sizes[axis];
        for (int64_t modulus = size; modulus >= 2;
             modulus = modulus > MOST_MODULUS ? MOST_MODULUS : modulus / 2) {
            if (modulus > MOST_CLASSES || modulus * LEAST_OF_CLASS > c->n) continue;
            memset(c->table, 0, (size_t)modulus * sizeof *c->table);
            for (int64_t i = 0; i < c->n; i++) {
                const int part = (int)(u[i] * PARTS);
                c->table[c->element[i] / stride % size % modulus]
                        [part < PARTS ? part : PARTS - 1] += 1;
            }
            number_table(c, modulus, out);
        }
    }
}

/* How one row's places lie; sorts them. */
static void number_row(const crowd *c, double *u, double *room, double out[N_KINDS])
{
    const int64_t n = c->n;
    double sum = 0, squares = 0, worst = 0;
    const double count = (double)n;
    for (int64_t i = 0; i < n; i++) {
        sum += u[i] - 0.5;
        squares += (u[i] - 0.5) * (u[i] - 0.5);
    }
    out[AVERAGE] = sum / count * sqrt(12 * count);
    out[SPREAD] = (squares / count - 1 / 12.) * sqrt(180 * count);
    out[BLOCK] = worst_block(u, n);
    out[PLACE] = out[TABLE] = 0;
    number_places(c, u, out);
    const double mean = 0.5 + sum / count;
    for (int64_t i = 0; i < n; i++)
        u[i] -= mean;
    usc_lags(u, n, room, room);
    for (int64_t k = 1; k <= n / 2; k++)
        worst = fmax(worst, fabs(room[k] / room[0]));
    out[LAG] = worst * sqrt(count);
    for (int64_t i = 0; i < n; i++)
        u[i] += mean;
    out[SHAPE] = distance(u, n) * sqrt(count);
}

/* What the sums over all rows are taken in, so that no square overflows. */
static double unit_of(const crowd *c)
{
    double most = 0;
    for (int64_t i = 0; i < c->n * c->n_rows; i++)
        most = fmax(most, fabs(c->rows[i]));
    return most > 0 ? most : 1;
}

/* How large each row is along the mean of all, and how far from that of the others. The
 * device's is one of the others of each draw: rows that come from the same draws can
 * change places, also where one element makes the number (numbers against 39 others and
 * against 40 are apart by themselves). A sum of few squares has a long tail; its cube
 * root has none (Wilson and Hilferty). */
static void size_rows(const crowd *c, double numbers[][N_KINDS])
{
    const double n = c->n_rows - 1, unit = unit_of(c);
    for (int row = 0; row < c->n_rows; row++) {
        double along = 0, size = 0, apart = 0, varies = 0;
        for (int64_t i = 0; i < c->n; i++) {
            double sum = 0, squares = 0;
            const double v = row_of(c, row)[i] / unit;
            for (int r = 0; r < c->n_rows; r++) {
                const double other = r == row ? 0 : row_of(c, r)[i] / unit;
                sum += other;
                squares += other * other;
            }
            const double mean = sum / n, middle = (sum + v) / c->n_rows;
            along += v * middle;
            size += middle * middle;
            apart += (v - mean) * (v - mean);
            varies += fmax(squares / n - mean * mean, 0);
        }
        numbers[row][SIZE] = along / fmax(size, 1e-300);
        numbers[row][VARIANCE] = cbrt(apart / fmax(varies, 1e-300));
    }
}

/* Whether number `kind` of the device lies beyond those of the draws. */
static bool apart_from(const crowd *c, double numbers[][N_KINDS], int kind,
                       usc_clause *out)
{
    const double n = c->n_rows - 1;
    double middle = 0, squares = 0;
    for (int r = 1; r < c->n_rows; r++)
        middle += numbers[r][kind] / n;
    for (int r = 1; r < c->n_rows; r++)
        squares += (numbers[r][kind] - middle) * (numbers[r][kind] - middle);
    const double spread = sqrt(squares / (n - 1)), off = numbers[0][kind] - middle;
    const bool largest = kind >= BLOCK && kind <= TABLE; /* of many: above 0 by itself */
    const double size = largest ? numbers[0][kind] : fabs(off);
    /* draws in other orders have one size, but for the roundings of who made them */
    const double least =
        fmax(1e-12, kind >= SIZE ? usc_draws_share(c->of->device->dtype) : 0) *
        fabs(middle);
    if (!(fabs(off) > FAR * spread + least) || !(size > kinds[kind].bound + least) ||
        (largest && off < 0))
        return false;
    return usc_clause_set(
        out, "%s is not that of %d draws of the CPU (%+.1f standard deviations)",
        kinds[kind].name, c->n_rows - 1, off / spread);
}

static bool stands_out(crowd *c, usc_clause *out)
{
    double *u = usc_arena_take(c->arena, (size_t)c->n * sizeof *u);
    double *room = usc_arena_take(c->arena, usc_lags_room(c->n) * sizeof *room);
    double(*numbers)[N_KINDS] =
        usc_arena_take(c->arena, (size_t)c->n_rows * sizeof *numbers);
    if (c->arena->failed) return false;
    for (int r = 0; r < c->n_rows; r++) {
        rank_row(c, r, u);
        number_row(c, u, room, numbers[r]);
    }
    size_rows(c, numbers);
    for (int kind = 0; kind < N_KINDS; kind++)
        if (apart_from(c, numbers, kind, out)) return true;
    return false;
}

/* How many elements have no number though all draws of the CPU have one; leaves the first
 * and the last elements in the rows. */
static int64_t without_number(crowd *c, int64_t total)
{
    const int64_t room = c->n, half = room / 2, end = total - (room - half);
    int64_t bad = 0;
    for (int64_t at = half; at < end; at += room) {
        c->n = end - at < room ? end - at : room;
        read_rows(c, at, at + c->n / 2);
        bad += keep_live(c);
    }
    c->n = room;
    read_rows(c, 0, end);
    return bad + keep_live(c);
}

/* What is odd about the device's answer among the draws. */
static bool crowd_odd(crowd *c, int64_t total, usc_clause *out, bool *no_number)
{
    c->n = total < MOST_ELEMENTS ? total : MOST_ELEMENTS;
    c->rows =
        usc_arena_take(c->arena, (size_t)c->n * (size_t)c->n_rows * sizeof *c->rows);
    double *near = usc_arena_take(c->arena, (size_t)c->n * sizeof *near);
    c->element = usc_arena_take(c->arena, (size_t)c->n * sizeof *c->element);
    c->table = usc_arena_take(c->arena, MOST_CLASSES * sizeof *c->table);
    if (c->arena->failed) return false;
    const int64_t bad = without_number(c, total);
    *no_number = bad > 0;
    if (bad > 0)
        return usc_clause_set(
            out, "NaN or Inf in %s elements where no draw of the CPU has one",
            usc_count(bad).text);
    if (c->n == 0) return false;
    move_near(c, near);
    if (novel_values(c, near, out)) return true;
    if (c->n < USC_DRAW_ENOUGH) return false;
    memcpy(c->rows, near, (size_t)c->n * sizeof *near);
    return stands_out(c, out);
}

/* ---- the finding ---- */

static bool same_shape(const usc_tensor *a, const usc_tensor *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->sizes, b->sizes, (size_t)a->ndim * sizeof *a->sizes) == 0;
}

static bool same_numbers(const usc_tensor *a, const usc_tensor *b, int64_t n)
{
    usc_walk_room first, second;
    double x[USC_JUDGE_BLOCK], y[USC_JUDGE_BLOCK];
    if (!same_shape(a, b)) return false;
    const usc_walk wa = usc_walk_over(a), wb = usc_walk_over(b);
    for (int64_t at = 0; at < n; at += USC_JUDGE_BLOCK) {
        const size_t count =
            (size_t)(n - at < USC_JUDGE_BLOCK ? n - at : USC_JUDGE_BLOCK);
        const double *v = usc_walk_load(&wa, at, count, &first, x);
        const double *w = usc_walk_load(&wb, at, count, &second, y);
        for (size_t i = 0; i < count; i++)
            if (v[i] != w[i]) return false;
    }
    return true;
}

static usc_status say_spread(const usc_draw_crowd *of, int64_t n, usc_findings *f,
                             usc_error *err)
{
    usc_clause why;
    if (n < USC_DRAW_ENOUGH) {
        (void)usc_clause_set(&why, USC_DRAW_FEW, usc_count(n).text);
        return usc_draws_say(f, USC_VERDICT_UNJUDGED, of->path, of->device, why.text,
                             true, err);
    }
    (void)(n > MOST_ELEMENTS
               ? usc_clause_set(&why, SPREAD_ONLY " (of %s of %s elements)",
                                usc_count(MOST_ELEMENTS).text, usc_count(n).text)
               : usc_clause_set(&why, "%s", SPREAD_ONLY));
    const usc_status st =
        usc_draws_say(f, USC_VERDICT_PASS, of->path, of->device, why.text, false, err);
    if (st != USC_OK) return st;
    return usc_findings_excuse(f, usc_findings_count(f) - 1, USC_EXCUSE_SPREAD, n, err);
}

static USC_NOINLINE usc_status judge(const usc_draw_crowd *of, usc_arena *arena,
                                     usc_findings *f, usc_error *err)
{
    int64_t n = 0;
    usc_clause why;
    bool no_number = false;
    crowd c = {.arena = arena, .of = of, .n_rows = of->n_draws + 1};
    for (int i = 0; i < of->n_draws; i++)
        if (!same_shape(&of->draws[i], of->device))
            return usc_draws_say(f, USC_VERDICT_UNJUDGED, of->path, of->device,
                                 "draws random numbers, and its shape hangs on them",
                                 false, err);
    usc_status st = usc_tensor_numel(of->device, &n, err);
    if (st != USC_OK) return st;
    bool problem =
        crowd_odd(&c, n, &why, &no_number) || usc_draw_order_odd(of, n, arena, &why);
    if (arena->failed) return usc_error_set(err, USC_E_NOMEM, -1, "draws: no memory");
    if (!problem && of->again != NULL && n >= USC_DRAW_ENOUGH &&
        same_numbers(of->device, of->again, n))
        problem = usc_clause_set(&why, "two calls give the same numbers");
    if (!problem) return say_spread(of, n, f, err);
    return usc_draws_say(f, no_number ? USC_VERDICT_NONFINITE : USC_VERDICT_WRONG,
                         of->path, of->device, why.text, false, err);
}

usc_status usc_draw_judge_crowd(const usc_draw_crowd *of, usc_findings *f, usc_error *err)
{
    if (of->n_draws < 3)
        return usc_error_set(err, USC_E_ARG, -1, "%d draws are no crowd", of->n_draws);
    usc_arena arena = {.alloc = f->arena.alloc};
    const usc_float_env env = usc_float_env_enter();
    const usc_status st = judge(of, &arena, f, err);
    usc_float_env_leave(env);
    usc_arena_free(&arena);
    return st;
}
