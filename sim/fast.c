// SPDX-License-Identifier: Apache-2.0
// Orders of sums over many sums at a time; see fast.h. A tile is what one call of the
// instruction set's kernels computes: sums side by side, all in one order.
#include "fast.h"

#include <ulpscope/x/kernels.h>

#include <stdlib.h>
#include <string.h>

#define PAIRWISE_LEAST 8
#define MOST_PARTS 1024
#define MOST_TILE (FAST_ROWS * 2 * FAST_MOST_LANES)

const fast_isa *usc_sim_fast_isa(void)
{
    static const fast_isa *const found[] = {&usc_sim_fast_avx512, &usc_sim_fast_avx2};
    const char *here = usc_kernels_isa();
    for (size_t i = 0; i < sizeof found / sizeof found[0]; i++)
        if (found[i]->name != NULL && strcmp(found[i]->name, here) == 0) return found[i];
    return &usc_sim_fast_base;
}

bool usc_sim_is_fast(const usc_sim_numerics *n, usc_dtype dtype)
{
    if (n->lacks_term || n->has_twice || dtype == USC_F64) return false;
    return n->accumulate == USC_F32 || n->accumulate == USC_DTYPE_NONE;
}

bool usc_sim_keeps_float32(const usc_sim_numerics *n, usc_dtype dtype)
{
    return usc_sim_is_fast(n, dtype);
}

/* ---- orders -------------------------------------------------------------------------- */

typedef struct plan {
    const fast_isa *isa;
    usc_sim_order order;
    bool fma;
    size_t n_terms, parts; /* of blocks: terms in each; of lanes: how many */
    uint32_t *walk;        /* which term comes k-th; NULL: the k-th */
    float *lanes;          /* a tile for each lane */
    size_t tile;           /* numbers in a tile */
    const float *a, *b;    /* packed; b NULL: terms are added as they are */
} plan;

static void run(const plan *p, size_t from, size_t to, float *sums)
{
    if (p->b != NULL)
        p->isa->products(p->a, p->b, from, to, p->fma, sums);
    else
        p->isa->sums(p->a, from, to, sums);
}

static void pairwise(const plan *p, size_t from, size_t to, float *sums)
{
    if (to - from <= PAIRWISE_LEAST) {
        run(p, from, to, sums);
        return;
    }
    float more[MOST_TILE];
    const size_t middle = from + (to - from) / 2;
    pairwise(p, from, middle, sums);
    pairwise(p, middle, to, more);
    p->isa->add(sums, more, p->tile);
}

static void blocks(const plan *p, float *sums)
{
    float more[MOST_TILE];
    memset(sums, 0, p->tile * sizeof *sums);
    for (size_t i = 0; i < p->n_terms; i += p->parts) {
        run(p, i, i + p->parts < p->n_terms ? i + p->parts : p->n_terms, more);
        p->isa->add(sums, more, p->tile);
    }
}

/* Terms lie lane after lane. */
static void lanes(const plan *p, float *sums)
{
    size_t n = p->parts, from = 0;
    for (size_t k = 0; k < n; k++) {
        const size_t count = p->n_terms / n + (k < p->n_terms % n ? 1 : 0);
        run(p, from, from + count, p->lanes + k * p->tile);
        from += count;
    }
    for (size_t half = (n + 1) / 2; n > 1; n = half, half = (n + 1) / 2)
        for (size_t k = half; k < n; k++)
            p->isa->add(p->lanes + (k - half) * p->tile, p->lanes + k * p->tile, p->tile);
    memcpy(sums, p->lanes, p->tile * sizeof *sums);
}

static void tile_of(const plan *p, float *sums)
{
    switch (p->order) {
    case USC_SIM_PAIRWISE:
        pairwise(p, 0, p->n_terms, sums);
        return;
    case USC_SIM_BLOCKS:
    case USC_SIM_SPLIT_K:
        blocks(p, sums);
        return;
    case USC_SIM_LANES:
        lanes(p, sums);
        return;
    case USC_SIM_RANDOM:
    case USC_SIM_SERIAL:
    default:
        run(p, 0, p->n_terms, sums);
    }
}

static bool walk(plan *p, uint64_t seed)
{
    const size_t n = p->n_terms;
    if (p->order != USC_SIM_LANES && p->order != USC_SIM_RANDOM) return true;
    p->walk = malloc((n + 1) * sizeof *p->walk);
    if (p->walk == NULL) return false;
    if (p->order == USC_SIM_RANDOM) {
        size_t at, step;
        usc_sim_walk(seed, n, &at, &step);
        for (size_t i = 0; i < n; i++, at = (at + step) % n)
            p->walk[i] = (uint32_t)at;
        return true;
    }
    size_t k = 0;
    for (size_t lane = 0; lane < p->parts; lane++)
        for (size_t i = lane; i < n; i += p->parts)
            p->walk[k++] = (uint32_t)i;
    p->lanes = malloc(p->parts * p->tile * sizeof *p->lanes);
    return p->lanes != NULL;
}

static bool begin(plan *p, const fast_isa *isa, const usc_sim_numerics *n, size_t n_terms,
                  size_t tile)
{
    if (n->group > 0) n_terms -= n_terms % (size_t)n->group;
    const size_t parts = n->n_parts < 1            ? 1
                         : n->n_parts > MOST_PARTS ? MOST_PARTS
                                                   : (size_t)n->n_parts;
    *p = (plan){.isa = isa, .order = n->order, .fma = n->fma, .n_terms = n_terms};
    p->tile = tile;
    p->parts = n->order != USC_SIM_SPLIT_K ? parts
               : n_terms > 0               ? (n_terms + parts - 1) / parts
                                           : 1;
    return n_terms <= UINT32_MAX && walk(p, n->seed);
}

static void end(plan *p)
{
    free(p->walk);
    free(p->lanes);
}

static fast_rows from_row(const fast_rows *rows, size_t i)
{
    return (fast_rows){rows->at + (ptrdiff_t)i * rows->row, rows->row, rows->term};
}

/* ---- sums of rows --------------------------------------------------------------------- */

bool usc_sim_fast_sums(const fast_isa *isa, const usc_sim_numerics *n,
                       const fast_rows *rows, size_t n_rows, size_t n_terms, float *out)
{
    plan p;
    const size_t width = isa->lanes;
    float *room = NULL, sums[FAST_MOST_LANES];
    bool fine = begin(&p, isa, n, n_terms, width);
    if (fine) room = malloc((p.n_terms * width + 1) * sizeof *room);
    fine = fine && room != NULL;
    p.a = room;
    for (size_t i = 0; fine && i < n_rows; i += width) {
        const size_t here = n_rows - i < width ? n_rows - i : width;
        const fast_rows from = from_row(rows, i);
        isa->pack(&from, here, width, p.walk, p.n_terms, room);
        tile_of(&p, sums);
        memcpy(out + i, sums, here * sizeof *out);
    }
    free(room);
    end(&p);
    return fine;
}

/* ---- products ------------------------------------------------------------------------ */

static void put_tile(const float *sums, size_t width, size_t n_rows, size_t n_columns,
                     float *out, ptrdiff_t out_row)
{
    for (size_t i = 0; i < n_rows; i++)
        memcpy(out + (ptrdiff_t)i * out_row, sums + i * width, n_columns * sizeof *out);
}

bool usc_sim_fast_products(const fast_isa *isa, const usc_sim_numerics *n,
                           const fast_rows *a, const fast_rows *b, size_t n_rows,
                           size_t n_columns, size_t n_terms, float *out,
                           ptrdiff_t out_row)
{
    plan p;
    const size_t width = 2 * isa->lanes, tiles = (n_rows + FAST_ROWS - 1) / FAST_ROWS;
    float *left = NULL, *right = NULL, sums[MOST_TILE];
    if (n->fma && !isa->fused) return false;
    bool fine = begin(&p, isa, n, n_terms, FAST_ROWS * width);
    const size_t strip = p.n_terms * FAST_ROWS;
    if (fine) {
        left = malloc((tiles * strip + 1) * sizeof *left);
        right = malloc((p.n_terms * width + 1) * sizeof *right);
    }
    fine = fine && left != NULL && right != NULL;
    for (size_t i = 0; fine && i < tiles; i++) {
        const size_t at = i * FAST_ROWS;
        const fast_rows from = from_row(a, at);
        isa->pack(&from, n_rows - at < FAST_ROWS ? n_rows - at : FAST_ROWS, FAST_ROWS,
                  p.walk, p.n_terms, left + i * strip);
    }
    p.b = right;
    for (size_t j = 0; fine && j < n_columns; j += width) {
        const size_t columns = n_columns - j < width ? n_columns - j : width;
        const fast_rows from = from_row(b, j);
        isa->pack(&from, columns, width, p.walk, p.n_terms, right);
        for (size_t i = 0; i < tiles; i++) {
            const size_t at = i * FAST_ROWS;
            p.a = left + i * strip;
            tile_of(&p, sums);
            put_tile(sums, width, n_rows - at < FAST_ROWS ? n_rows - at : FAST_ROWS,
                     columns, out + (ptrdiff_t)at * out_row + j, out_row);
        }
    }
    free(left);
    free(right);
    end(&p);
    return fine;
}

/* False where one of them is no float32 (a NaN is one). */
static bool narrowed(const double *x, size_t n, float *to)
{
    bool all = true;
    for (size_t i = 0; i < n; i++) {
        to[i] = (float)x[i];
        all = all && !((double)to[i] > x[i] || (double)to[i] < x[i]);
    }
    return all;
}

bool usc_sim_fast_wide_products(const usc_sim_numerics *n, usc_dtype dtype,
                                const double *a, const double *b, size_t n_rows,
                                size_t n_columns, size_t n_terms, double *out)
{
    if (!usc_sim_is_fast(n, dtype) || n_rows * n_columns < FAST_ROWS) return false;
    const size_t n_a = n_rows * n_terms, n_b = n_columns * n_terms,
                 n_out = n_rows * n_columns;
    float *room = malloc((n_a + n_b + n_out + 1) * sizeof *room);
    bool fine = room != NULL && narrowed(a, n_a, room) && narrowed(b, n_b, room + n_a);
    if (fine) {
        const fast_rows left = {room, (ptrdiff_t)n_terms, 1},
                        right = {room + n_a, (ptrdiff_t)n_terms, 1};
        float *sums = room + n_a + n_b;
        fine = usc_sim_fast_products(usc_sim_fast_isa(), n, &left, &right, n_rows,
                                     n_columns, n_terms, sums, (ptrdiff_t)n_columns);
        for (size_t i = 0; fine && i < n_out; i++)
            out[i] = (double)sums[i];
    }
    free(room);
    return fine;
}
