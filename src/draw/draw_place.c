// SPDX-License-Identifier: Apache-2.0
// How the places of draws are laid out in classes, and what each draw counts in them.
// Neighbours: draw_place.h.
#include "draw/draw_place.h"

#include <math.h>

#define FINE 0x1p-16  /* slack below which numbers are as good as even */
#define COARSE 0x1p-4 /* length of a part from which its middle tells more */

enum {
    RESIDUES = 4096,
    STRETCH = 64,
    PER_CLASS = 32, /* elements that a class should have */
    BITS = 3,       /* of whole numbers that are looked at by place */
};

/* ---- layouts ---- */

static void add(usc_places *p, usc_layout l)
{
    if (l.n < 2 || p->n == USC_MOST_LAYOUTS) return;
    p->layouts[p->n++] = l;
}

static void add_axes(const usc_draws *d, usc_places *p)
{
    int64_t stride = 1;
    for (int axis = d->ndim - 1; axis >= 0; axis--) {
        const int64_t size = d->sizes[axis];
        const usc_layout l = {.kind = USC_BY_AXIS,
                              .axis = axis,
                              .cycle = stride * size,
                              .run = stride,
                              .n = size,
                              .residues = true};
        if (d->ndim > 1 && size < d->n) add(p, l);
        stride *= size;
    }
}

/* Of the number of the element. */
static void add_residues(const usc_draws *d, usc_places *p, int64_t modulus)
{
    if (d->n_known < modulus * PER_CLASS / 2) return;
    add(p, (usc_layout){.kind = USC_BY_RESIDUE,
                        .cycle = modulus,
                        .run = 1,
                        .n = modulus,
                        .residues = true,
                        .exact = true});
}

/* By primes, which divide none of these: two at a time where there are enough draws. */
static void add_primes(const usc_draws *d, usc_places *p)
{
    static const int64_t primes[][2] = {{11, 47}, {13, 43}, {17, 41}, {19, 37},
                                        {23, 31}, {29, 53}, {59, 61}};
    for (size_t i = 0; i < sizeof primes / sizeof primes[0]; i++) {
        const int before = p->n;
        add_residues(d, p, primes[i][0] * primes[i][1]);
        if (p->n > before) continue;
        add_residues(d, p, primes[i][0]);
        add_residues(d, p, primes[i][1]);
    }
}

/* Tiles of the last two axes, rows of all others one below the other, and the place of a
 * thread in such a tile. */
static void add_tiles(usc_draws *d, usc_places *p, int64_t edge, bool threads)
{
    const int64_t width = d->ndim > 1 ? d->sizes[d->ndim - 1] : 0;
    const int64_t rows = width > 0 ? d->n / width : 0;
    if (width <= edge || rows < edge || d->n / (edge * edge) < 2) return;
    if (threads && d->n / (edge * edge) < PER_CLASS) return;
    int32_t *columns = usc_arena_take(d->arena, (size_t)width * sizeof *columns);
    if (columns == NULL) return;
    for (int64_t i = 0; i < width; i++)
        columns[i] = (int32_t)(threads ? i % edge : i / edge);
    const int64_t across = threads ? edge : (width + edge - 1) / edge;
    const int64_t down = threads ? edge : (rows + edge - 1) / edge;
    add(p, (usc_layout){.kind = threads ? USC_BY_THREAD : USC_BY_TILE,
                        .edge = edge,
                        .cycle = threads ? edge * width : d->n,
                        .run = threads ? width : edge * width,
                        .n = down * across,
                        .width = width,
                        .n_columns = across,
                        .columns = columns});
}

bool usc_places_lay_out(usc_draws *d, usc_places *out)
{
    int64_t modulus = 2, most = 0;
    out->n = 0;
    while (modulus < RESIDUES && 2 * modulus * PER_CLASS <= d->n_known)
        modulus *= 2;
    add_axes(d, out);
    add_residues(d, out, modulus);
    add_residues(d, out, RESIDUES / 4 * 3); /* blocks of 96, 192, 384 ... threads */
    add_residues(d, out, 2520);             /* all of 2 to 10 divide it */
    add_primes(d, out);
    add(out, (usc_layout){.kind = USC_BY_STRETCH,
                          .cycle = d->n,
                          .run = STRETCH,
                          .n = (d->n + STRETCH - 1) / STRETCH});
    for (int64_t edge = 8; edge <= 128; edge *= 2) {
        add_tiles(d, out, edge, false);
        if (edge <= 32) add_tiles(d, out, edge, true);
    }
    for (int i = 0; i < out->n; i++)
        most = out->layouts[i].n > most ? out->layouts[i].n : most;
    out->sums = usc_arena_take(d->arena, (size_t)most * sizeof *out->sums);
    /* a fold has no more classes than its layout, the ends fewer than 64 */
    out->room = usc_arena_take(d->arena, (size_t)(most + 64) * sizeof *out->room);
    return !d->arena->failed;
}

/* ---- scores ---- */

static float *add_score(usc_draws *d, usc_scores *out, usc_score s)
{
    float *y = usc_arena_take(d->arena, (size_t)d->n_u * sizeof *y);
    if (y == NULL) return NULL;
    s.y = y;
    out->of[out->n++] = s;
    return y;
}

static bool known(const usc_draws *d, int64_t i)
{
    return !isnan(d->u[i]);
}

/* Ones of one probability: their middles lie half of [0, 1) above those of zeros. */
static void add_hits(usc_draws *d, usc_scores *out)
{
    const double p = d->chance, spread = p * (1 - p);
    float *y = add_score(d, out,
                         (usc_score){.kind = USC_SCORE_HITS,
                                     .variance = spread,
                                     .chance = p,
                                     .together = true,
                                     .kurtosis = (1 - 6 * spread) / spread,
                                     .enough = 8});
    for (int64_t i = 0; i < d->n_u && y != NULL; i++)
        y[i] = known(d, i)
                   ? ((double)d->mid[i] > (1 - p) / 2 + 0.25 ? 1.F : 0.F) - (float)p
                   : NAN;
}

/* The middles of long parts, which hang on the values alone; of others the even numbers
 * themselves. */
static void add_level(usc_draws *d, usc_scores *out)
{
    const bool middles = !d->varies && d->longest > COARSE;
    const bool even = !middles && d->slack < FINE;
    usc_score s = {.kind = USC_SCORE_LEVEL,
                   .variance = 1 / 12.,
                   .slack = d->slack,
                   .together = even && !d->once,
                   .kurtosis = -1.2};
    if (middles) {
        s.variance = d->freedom / fmax((double)d->n_seen, 1);
        s.least = s.most = 0.5;
    }
    float *y = add_score(d, out, s);
    for (int64_t i = 0; i < d->n_u && y != NULL; i++)
        y[i] = known(d, i) ? (middles ? d->mid[i] : (float)d->u[i]) - 0.5F : NAN;
}

static void add_spread(usc_draws *d, usc_scores *out)
{
    float *y = add_score(d, out,
                         (usc_score){.kind = USC_SCORE_SPREAD,
                                     .variance = 1 / 180.,
                                     .slack = d->slack,
                                     .least = 1 / 12.,
                                     .most = 1 / 6.});
    for (int64_t i = 0; i < d->n_u && y != NULL; i++) {
        const float c = (float)(d->u[i] - 0.5);
        y[i] = known(d, i) ? c * c - 1 / 12.F : NAN;
    }
}

static void add_bits(usc_draws *d, usc_scores *out)
{
    for (int bit = d->first_bit;
         bit < d->first_bit + BITS && ldexp(2, bit) <= d->range && d->whole != NULL;
         bit++) {
        const double p = usc_digit_chance(d->range, bit, 1, 1);
        float *y = add_score(
            d, out,
            (usc_score){
                .kind = USC_SCORE_BIT, .bit = bit, .variance = p * (1 - p), .chance = p});
        for (int64_t i = 0; i < d->n_u && y != NULL; i++)
            y[i] = known(d, i) ? (float)(d->whole[i] >> bit & 1) - (float)p : NAN;
    }
}

static void add_odd(usc_draws *d, usc_scores *out)
{
    if (d->parity == NULL || !(d->parity_spread > 0)) return;
    out->of[out->n++] = (usc_score){.y = d->parity,
                                    .kind = USC_SCORE_ODD,
                                    .variance = d->parity_spread / (double)d->n_seen,
                                    .least = 1,
                                    .most = 1};
}

const usc_scores *usc_scores_of(usc_draws *d)
{
    if (d->scores != NULL) return d->scores;
    usc_scores *out = usc_arena_take(d->arena, sizeof *out);
    if (out == NULL) return NULL;
    out->n = 0;
    if (d->hits != NULL && d->chance > 0 && d->chance < 1) {
        add_hits(d, out);
    } else {
        add_level(d, out);
        add_spread(d, out);
        add_bits(d, out);
        add_odd(d, out);
    }
    if (d->arena->failed) return NULL;
    d->scores = out;
    return out;
}
