// SPDX-License-Identifier: Apache-2.0
// Which zeros and ones explain numbers that are sums of them: the masks behind the
// outputs of dropouts. With at least as many equations as half the unknowns the vertex of
// a box that a linear program finds is the mask itself; with fewer as long as few are
// dropped. Whether it is, tells the same search on outputs whose masks are known.
// Formulas: docs/reference/metrics.md, 4.
#include "draw/draws.h"

#include "base/compiler.h"
#include "base/float_env.h"

#include <math.h>
#include <string.h>

#define NEARLY 0.995  /* of the way to the boundary */
#define TINY 1e-15    /* the least distance to it */
#define DONE 1e-11    /* of the cost is open: no element moves any more */
#define OPEN_COST 8.0 /* of leaving an equation open, against dropping what it holds */
#define RIDGE 1e-14   /* of the mean diagonal: equations may repeat each other */
#define NEAR 0.25     /* of zero or one: some mask comes near */
#define SHOWS 64.0    /* roundings that an unknown must make, to show */

enum { MOST_STEPS = 30, MOST_TURNS = 8, LANES = 4 };

/* min cost.x over A x = sums, 0 <= x <= 1. A is a block's columns, each equation scaled
 * to length one, and one column of `room` up and one down for each equation. */
typedef struct program {
    int64_t d, k, m;             /* equations, unknowns, variables: k + 2 d */
    double *columns;             /* d rows of k */
    double *scaled, *room;       /* the same scaled; what leaving one open is worth */
    double *plain, *sums, *cost; /* sums as they came, and scaled */
    double *x, *w, *z, *v, *y;   /* w: what x lacks to 1; z, v: prices of both bounds */
    double *primal, *dual, *weight, *square;
    double *dx, *dy, *dz, *dv, *r1, *r2, *held, *pushed;
} program;

/* out[i] = sum over j of row i; transposed: out[j] = sum over i. */
static void times(const program *g, const double *x, double *out)
{
    for (int64_t e = 0; e < g->d; e++) {
        const double *row = g->scaled + e * g->k;
        double sum = g->room[e] * (x[g->k + e] - x[g->k + g->d + e]);
        for (int64_t j = 0; j < g->k; j++)
            sum += row[j] * x[j];
        out[e] = sum;
    }
}

static void times_turned(const program *g, const double *y, double *out)
{
    for (int64_t j = 0; j < g->k; j++)
        out[j] = 0;
    for (int64_t e = 0; e < g->d; e++) {
        const double *row = g->scaled + e * g->k;
        for (int64_t j = 0; j < g->k; j++)
            out[j] += row[j] * y[e];
        out[g->k + e] = g->room[e] * y[e];
        out[g->k + g->d + e] = -g->room[e] * y[e];
    }
}

/* A sum in LANES lanes, whose order is part of the result. */
static double dot(const double *a, const double *b, int64_t n)
{
    double lanes[LANES] = {0}, rest = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] += a[i + lane] * b[i + lane];
    for (; i < n; i++)
        rest += a[i] * b[i];
    return lanes[0] + lanes[1] + (lanes[2] + lanes[3]) + rest;
}

/* A W A^T with a ridge, and Cholesky's factor of it in its lower half. What is no more
 * than rounding on the diagonal stands for an equation that others imply. */
static void factor(program *g)
{
    const int64_t d = g->d, k = g->k;
    double trace = 0;
    for (int64_t e = 0; e < d; e++) {
        for (int64_t j = 0; j < k; j++)
            g->pushed[j] = g->scaled[e * k + j] * g->weight[j];
        for (int64_t c = 0; c <= e; c++)
            g->square[e * d + c] = dot(g->pushed, g->scaled + c * k, k);
        g->square[e * d + e] +=
            g->room[e] * g->room[e] * (g->weight[k + e] + g->weight[k + d + e]);
        trace += g->square[e * d + e];
    }
    const double ridge = RIDGE * trace / (double)d;
    for (int64_t e = 0; e < d; e++) {
        double *row = g->square + e * d;
        for (int64_t c = 0; c < e; c++) {
            const double *other = g->square + c * d;
            row[c] = (row[c] - dot(row, other, c)) / other[c];
        }
        const double left = row[e] + ridge - dot(row, row, e);
        row[e] = sqrt(fmax(left, ridge));
    }
}

static void solve(const program *g, double *b)
{
    const int64_t d = g->d;
    for (int64_t e = 0; e < d; e++)
        b[e] = (b[e] - dot(g->square + e * d, b, e)) / g->square[e * d + e];
    for (int64_t e = d; e-- > 0;) {
        b[e] /= g->square[e * d + e];
        for (int64_t c = 0; c < e; c++)
            b[c] -= g->square[e * d + c] * b[e];
    }
}

/* The linear system of one iterate. */
static void linearize(program *g)
{
    times(g, g->x, g->primal);
    for (int64_t e = 0; e < g->d; e++)
        g->primal[e] = g->sums[e] - g->primal[e];
    times_turned(g, g->y, g->dual);
    for (int64_t i = 0; i < g->m; i++) {
        g->dual[i] = g->cost[i] - g->dual[i] - g->z[i] + g->v[i];
        g->weight[i] = 1 / (g->z[i] / g->x[i] + g->v[i] / g->w[i]);
    }
    factor(g);
}

/* Newton's step towards x z = r1 + x z, w v = r2 + w v. */
static void step(program *g)
{
    for (int64_t i = 0; i < g->m; i++) {
        g->held[i] = g->dual[i] - g->r1[i] / g->x[i] + g->r2[i] / g->w[i];
        g->pushed[i] = g->weight[i] * g->held[i];
    }
    times(g, g->pushed, g->dy);
    for (int64_t e = 0; e < g->d; e++)
        g->dy[e] += g->primal[e];
    solve(g, g->dy);
    times_turned(g, g->dy, g->dx);
    for (int64_t i = 0; i < g->m; i++) {
        g->dx[i] = g->weight[i] * (g->dx[i] - g->held[i]);
        g->dz[i] = (g->r1[i] - g->z[i] * g->dx[i]) / g->x[i];
        g->dv[i] = (g->r2[i] + g->v[i] * g->dx[i]) / g->w[i];
    }
}

/* How far along a step all of a, and of b, stay positive; at most 1. */
static double reach(const double *a, const double *da, const double *b, const double *db,
                    double b_sign, int64_t n)
{
    double far = 1;
    for (int64_t i = 0; i < n; i++) {
        if (da[i] < 0) far = fmin(far, -a[i] / da[i]);
        if (b_sign * db[i] < 0) far = fmin(far, -b[i] / (b_sign * db[i]));
    }
    return far;
}

static double products(const program *g, double primal, double dual)
{
    double sum = 0;
    for (int64_t i = 0; i < g->m; i++)
        sum += (g->x[i] + primal * g->dx[i]) * (g->z[i] + dual * g->dz[i]) +
               (g->w[i] - primal * g->dx[i]) * (g->v[i] + dual * g->dv[i]);
    return sum;
}

static void move(program *g)
{
    const double primal = NEARLY * reach(g->x, g->dx, g->w, g->dx, -1, g->m);
    const double dual = NEARLY * reach(g->z, g->dz, g->v, g->dv, 1, g->m);
    for (int64_t i = 0; i < g->m; i++) {
        g->x[i] = fmin(fmax(g->x[i] + primal * g->dx[i], TINY), 1);
        g->w[i] = fmin(fmax(g->w[i] - primal * g->dx[i], TINY), 1);
        g->z[i] = fmax(g->z[i] + dual * g->dz[i], TINY);
        g->v[i] = fmax(g->v[i] + dual * g->dv[i], TINY);
    }
    for (int64_t e = 0; e < g->d; e++)
        g->y[e] += dual * g->dy[e];
}

/* A primal-dual interior point method with Mehrotra's predictor and corrector (S.
 * Mehrotra, SIAM J. Optimization 2, 1992), of variables with upper bounds. */
static void least_cost(program *g)
{
    double all = 0;
    for (int64_t i = 0; i < g->m; i++) {
        g->x[i] = g->w[i] = 0.5;
        g->z[i] = g->v[i] = 1;
        all += fabs(g->cost[i]);
    }
    memset(g->y, 0, (size_t)g->d * sizeof *g->y);
    for (int n = 0; n < MOST_STEPS; n++) {
        double mu = 0;
        linearize(g);
        for (int64_t i = 0; i < g->m; i++) {
            g->r1[i] = -g->x[i] * g->z[i];
            g->r2[i] = -g->w[i] * g->v[i];
            mu -= g->r1[i] + g->r2[i];
        }
        if (mu <= DONE * all) return;
        step(g);
        const double primal = reach(g->x, g->dx, g->w, g->dx, -1, g->m);
        const double dual = reach(g->z, g->dz, g->v, g->dv, 1, g->m);
        const double after = products(g, primal, dual) / mu;
        const double aim = after * after * after * mu / (2 * (double)g->m);
        for (int64_t i = 0; i < g->m; i++) {
            g->r1[i] += aim - g->dx[i] * g->dz[i];
            g->r2[i] += aim + g->dx[i] * g->dv[i];
        }
        step(g);
        move(g);
    }
}

/* As much as may be of the unknowns 1, and as little as may be left open. */
static void set_up(program *g)
{
    double most = 0;
    for (int64_t e = 0; e < g->d; e++)
        most = fmax(most, fabs(g->sums[e]));
    const double room = fmax(0.5 * most, 1e-300);
    for (int64_t j = 0; j < g->k; j++) {
        double squares = 0;
        for (int64_t e = 0; e < g->d; e++)
            squares += g->columns[e * g->k + j] * g->columns[e * g->k + j];
        g->cost[j] = -sqrt(squares);
    }
    for (int64_t i = g->k; i < g->m; i++)
        g->cost[i] = OPEN_COST * room;
    for (int64_t e = 0; e < g->d; e++) {
        const double *row = g->columns + e * g->k;
        const double scale = fmax(sqrt(dot(row, row, g->k) + 2 * room * room), 1e-300);
        for (int64_t j = 0; j < g->k; j++)
            g->scaled[e * g->k + j] = row[j] / scale;
        g->room[e] = room / scale;
        g->sums[e] /= scale;
    }
}

/* ---- from the vertex to the mask ---- */

/* Turns over single elements as long as that brings the sums nearer; `left` is what the
 * mask leaves open. */
static void settle(const program *g, double *mask, double *left)
{
    for (int turn = 0; turn < MOST_TURNS; turn++) {
        double best = 0;
        int64_t at = -1;
        for (int64_t j = 0; j < g->k; j++) {
            double along = 0, square = 0;
            for (int64_t e = 0; e < g->d; e++) {
                const double c = g->columns[e * g->k + j];
                along += c * left[e];
                square += c * c;
            }
            const double gain = 2 * (1 - 2 * mask[j]) * along - square;
            if (gain <= best) continue;
            best = gain;
            at = j;
        }
        if (at < 0) return;
        for (int64_t e = 0; e < g->d; e++)
            left[e] -= g->columns[e * g->k + at] * (1 - 2 * mask[at]);
        mask[at] = 1 - mask[at];
    }
}

/* Counts each number of a block in units of how large it may be, for that is what it was
 * rounded by: one of 1e36 says nothing about a small one beside it. */
static void scale_block(program *g, const double *base)
{
    for (int64_t e = 0; e < g->d; e++) {
        double *row = g->columns + e * g->k, size = fabs(base[e]);
        for (int64_t j = 0; j < g->k; j++)
            size += fabs(row[j]);
        for (int64_t j = 0; j < g->k && size > 0; j++)
            row[j] /= size;
        g->plain[e] = size > 0 ? g->plain[e] / size : 0;
    }
}

static double largest(const double *x, int64_t n, int64_t stride)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(x[i * stride]));
    return most;
}

/* What unknowns leave open of a block, by equation and the largest of that. */
static double left_open(const program *g, const double *x, double *left)
{
    for (int64_t e = 0; e < g->d; e++)
        left[e] = g->plain[e] - dot(g->columns + e * g->k, x, g->k);
    return largest(left, g->d, 1);
}

/* What a mask leaves open once single elements are turned, as far as that brings it
 * nearer; where that is more than rounding does, all zeros are tried as well, which many
 * unknowns between zero and one explain alike. */
static double settled(const program *g, double *mask, double eps, double *left)
{
    (void)left_open(g, mask, left);
    settle(g, mask, left);
    const double open = largest(left, g->d, 1), none = largest(g->plain, g->d, 1);
    if (!(open > SHOWS * eps) || !(none < open)) return open;
    memset(mask, 0, (size_t)g->k * sizeof *mask);
    return none;
}

static void find_block(program *g, const usc_mask_sums *of, const double *base,
                       const double *got, int64_t block)
{
    double *left = g->primal, *mask = g->held;
    bool sure = true;
    for (int64_t e = 0; e < g->d; e++)
        g->plain[e] = (isfinite(got[e]) ? got[e] : 0) - base[e];
    scale_block(g, base);
    memcpy(g->sums, g->plain, (size_t)g->d * sizeof *g->sums);
    set_up(g);
    least_cost(g);
    for (int64_t j = 0; j < g->k; j++) {
        const bool shown = largest(g->columns + j, g->d, g->k) > SHOWS * of->eps;
        mask[j] = rint(g->x[j]);
        sure = sure && (!shown || fabs(g->x[j] - mask[j]) < NEAR);
        of->shown[block * g->k + j] = shown;
    }
    double open = left_open(g, g->x, left);
    of->left[block] = settled(g, mask, of->eps, left);
    for (int64_t j = 0; j < g->k; j++)
        of->kept[block * g->k + j] = mask[j] != 0;
    of->sure[block] = sure;
    open = fmin(open, of->left[block]);
    if (open > SHOWS * of->eps) { /* that may be what its ones were worth */
        memset(g->cost, 0, (size_t)g->k * sizeof *g->cost);
        least_cost(g);
        open = fmin(open, left_open(g, g->x, left));
    }
    of->open[block] = open;
}

static bool take_room(program *g, usc_arena *arena)
{
    const size_t d = (size_t)g->d, k = (size_t)g->k, m = (size_t)g->m;
    double **const of_d[] = {&g->room, &g->plain, &g->sums, &g->y, &g->primal, &g->dy};
    double **const of_m[] = {&g->cost, &g->x,      &g->w,    &g->z,     &g->v,
                             &g->dual, &g->dx,     &g->dz,   &g->dv,    &g->r1,
                             &g->r2,   &g->weight, &g->held, &g->pushed};
    for (size_t i = 0; i < sizeof of_d / sizeof of_d[0]; i++)
        *of_d[i] = usc_arena_take(arena, d * sizeof(double));
    for (size_t i = 0; i < sizeof of_m / sizeof of_m[0]; i++)
        *of_m[i] = usc_arena_take(arena, m * sizeof(double));
    g->scaled = usc_arena_take(arena, d * k * sizeof(double));
    g->square = usc_arena_take(arena, d * d * sizeof(double));
    return !arena->failed;
}

static USC_NOINLINE usc_status find_masks(const usc_mask_sums *of, usc_arena *arena,
                                          usc_error *err)
{
    const usc_tensor *c = of->columns;
    const int64_t n = c->sizes[0], d = c->sizes[1], k = c->sizes[2];
    program g = {.d = d, .k = k, .m = k + 2 * d};
    double *columns = usc_draws_doubles(arena, c, n * d * k);
    const double *base = usc_draws_doubles(arena, of->base, n * d);
    const double *got = usc_draws_doubles(arena, of->got, n * d);
    if (!take_room(&g, arena))
        return usc_error_set(err, USC_E_NOMEM, -1, "masks: no memory");
    for (int64_t block = 0; block < n && d > 0; block++) {
        g.columns = columns + block * d * k;
        find_block(&g, of, base + block * d, got + block * d, block);
    }
    return USC_OK;
}

usc_status usc_draw_find_masks(const usc_mask_sums *of, usc_error *err)
{
    const usc_tensor *c = of->columns;
    const usc_tensor *const rows[] = {of->base, of->got};
    int64_t n;
    usc_status st = usc_tensor_numel(c, &n, err); /* so that no size overflows */
    for (int i = 0; i < 2 && st == USC_OK; i++)
        if (c->ndim != 3 || rows[i]->ndim != 2 || rows[i]->sizes[0] != c->sizes[0] ||
            rows[i]->sizes[1] != c->sizes[1])
            st = usc_error_set(err, USC_E_SHAPE, -1,
                               "columns are (blocks, equations, unknowns), numbers "
                               "(blocks, equations)");
    if (st != USC_OK) return st;
    usc_arena arena = {.alloc = usc_libc_alloc};
    const usc_float_env env = usc_float_env_enter();
    st = find_masks(of, &arena, err);
    usc_float_env_leave(env);
    usc_arena_free(&arena);
    return st;
}
