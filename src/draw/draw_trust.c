// SPDX-License-Identifier: Apache-2.0
// Whether a search for masks can be trusted on a call, and what it is when a device's
// output has none: the same search over outputs of the CPU, whose masks are known, is the
// measure. Then masks of so few elements that all are tried. Neighbours: draw_solve.c
// (finds them), draw_mask.c (judges them).
#include "draw/draw_special.h"
#include "draw/draws.h"

#include "base/float_env.h"
#include "case/findings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define BEYOND 32         /* times what honest blocks leave open: no mask explains it */
#define MOST_OF_THEM 0.9  /* of honest blocks: the measure of what is left open */
#define ROUNDING 0x1p-24  /* of float32 */
#define FOUND 0.5         /* of honest masks that must be found, or none is looked for */
#define RIGHT 0.99        /* of those believed to be found that must be the true ones */
#define SLACK 0.01        /* of the share that is found: the most, */
#define LEAST_SLACK 0.001 /* and the least */
#define SHOWS 16.0        /* roundings that an element of a mask must make, to show, */
#define OVER_NOISE 3.0    /* and times what a call's own roundings make */

double usc_draw_mask_limit(double *left, int64_t n)
{
    if (n <= 0) return (double)NAN;
    usc_sort_doubles(left, (size_t)n);
    const double at = MOST_OF_THEM * (double)(n - 1);
    const int64_t below = (int64_t)at, above = below + 1 < n ? below + 1 : below;
    const double part = at - (double)below;
    return BEYOND * (left[below] + part * (left[above] - left[below])) + ROUNDING;
}

bool usc_draw_search_sound(const usc_mask_search *honest)
{
    const double found = (double)honest->n_found;
    return found >= FOUND * (double)honest->n_blocks &&
           (double)honest->n_right >= RIGHT * found;
}

static double share_of(const usc_mask_search *s)
{
    return (double)s->n_found / fmax((double)s->n_blocks, 1);
}

bool usc_draw_search_odd(const usc_mask_search *honest, const usc_mask_search *found)
{
    const double all = share_of(honest);
    const double share = all - fmin(SLACK, fmax(1 - all, LEAST_SLACK));
    return (double)found->n_found < (double)found->n_blocks * share &&
           usc_count_odd(found->n_found, found->n_blocks, share, 0);
}

usc_status usc_draw_judge_search(const usc_mask_search *honest,
                                 const usc_mask_search *found, const char *path,
                                 const usc_tensor *output, usc_findings *f,
                                 usc_error *err)
{
    char why[160];
    if (!usc_draw_search_odd(honest, found)) return USC_OK;
    (void)snprintf(why, sizeof why,
                   "no mask explains %s of %s parts, of honest outputs %.1f%% of them",
                   usc_count(found->n_blocks - found->n_found).text,
                   usc_count(found->n_blocks).text, 100 * (1 - share_of(honest)));
    return usc_draws_say(f, USC_VERDICT_WRONG, path, output, why, false, err);
}

/* ---- all that there are ---- */

typedef struct tries {
    const double *given, *got; /* (combinations, blocks, equations); without the first */
    double *unit;              /* of the block at work: how large each number may be */
    int64_t n, d;
    int k;
} tries;

static double number(double v)
{
    return isfinite(v) ? v : 0;
}

static const double *block_of(const tries *t, int64_t combination, int64_t block)
{
    return t->given + (combination * t->n + block) * t->d;
}

/* How large each number of a block may be, for that is what it was rounded by. */
static void take_units(const tries *t, int64_t block)
{
    for (int64_t e = 0; e < t->d; e++) {
        t->unit[e] = 0;
        for (int64_t c = 0; c < (int64_t)1 << t->k; c++)
            t->unit[e] = fmax(t->unit[e], fabs(number(block_of(t, c, block)[e])));
    }
}

/* The length of what two results of a block differ by, each number in its unit, but for
 * those that are never as large as `least`. */
static double length(const tries *t, const double *a, const double *b, double least)
{
    double sum = 0;
    for (int64_t e = 0; e < t->d; e++) {
        const double v = number(a[e]) - number(b[e]), unit = t->unit[e];
        sum += unit > least ? v / unit * (v / unit) : 0;
    }
    return sqrt(sum);
}

static int64_t nearest(const tries *t, int64_t block)
{
    double best = (double)INFINITY;
    int64_t at = 0;
    for (int64_t c = 0; c < (int64_t)1 << t->k; c++) {
        const double away = length(t, block_of(t, c, block), t->got + block * t->d, 0);
        if (!(away < best)) continue;
        best = away;
        at = c;
    }
    return at;
}

/* The elements in which two masks differ that explain a block alike: it does not tell
 * these, whichever was drawn. One bit each. */
static int64_t untold(const tries *t, int64_t block, double told, double least)
{
    const int64_t n = (int64_t)1 << t->k;
    int64_t bits = 0;
    for (int64_t c = 0; c < n; c++)
        for (int64_t other = c + 1; other < n; other++)
            if (((c ^ other) & ~bits) != 0 &&
                !(length(t, block_of(t, c, block), block_of(t, other, block), least) >
                  told))
                bits |= c ^ other;
    return bits;
}

static usc_status read_tries(const usc_mask_tries *m, tries *t, usc_error *err)
{
    const usc_tensor *given = m->given, *got = m->got, *noise = m->noise;
    if (given->ndim != 3 || got->ndim != 2 || given->dtype != USC_F64 ||
        got->dtype != USC_F64 || !usc_tensor_contiguous(given) ||
        !usc_tensor_contiguous(got) || given->sizes[1] != got->sizes[0] ||
        given->sizes[2] != got->sizes[1] ||
        (noise != NULL && (noise->ndim != 1 || noise->sizes[0] != got->sizes[0] ||
                           noise->dtype != USC_F64 || !usc_tensor_contiguous(noise))))
        return usc_error_set(err, USC_E_SHAPE, -1, "results of masks do not fit");
    *t = (tries){
        .given = given->data, .got = got->data, .n = got->sizes[0], .d = got->sizes[1]};
    while (t->k < USC_MASK_TRIED && (int64_t)1 << t->k < given->sizes[0])
        t->k++;
    return (int64_t)1 << t->k == given->sizes[0]
               ? USC_OK
               : usc_error_set(err, USC_E_RANGE, 0, "%lld combinations",
                               (long long)given->sizes[0]);
}

usc_status usc_draw_try_masks(const usc_mask_tries *m, usc_error *err)
{
    tries t = {0};
    const usc_status st = read_tries(m, &t, err);
    if (st != USC_OK) return st;
    const double *noise = m->noise != NULL ? m->noise->data : NULL;
    usc_arena arena = {.alloc = usc_libc_alloc};
    t.unit = usc_arena_take(&arena, (size_t)t.d * sizeof *t.unit);
    if (arena.failed) return usc_error_set(err, USC_E_NOMEM, -1, "masks: no memory");
    const usc_float_env env = usc_float_env_enter();
    for (int64_t b = 0; b < t.n; b++) {
        take_units(&t, b);
        const double own = noise != NULL ? noise[b] : 0;
        const double told = fmax(SHOWS * m->eps, OVER_NOISE * own);
        const int64_t best = nearest(&t, b), hidden = untold(&t, b, told, m->least);
        for (int j = 0; j < t.k; j++) {
            const int64_t bit = (int64_t)1 << (t.k - 1 - j);
            m->kept[b * t.k + j] = (best & bit) == 0; /* ones come first */
            m->shown[b * t.k + j] = (hidden & bit) == 0;
        }
    }
    usc_float_env_leave(env);
    usc_arena_free(&arena);
    return USC_OK;
}
