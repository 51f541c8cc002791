// SPDX-License-Identifier: Apache-2.0
// Draws of ones and zeros of which an output may show a part: the masks of dropouts.
#include "draw/draws.h"

#include "base/compiler.h"
#include "base/float_env.h"
#include "case/findings.h"

#include <math.h>

#define RATE_SIGMAS 5.5
#define ALMOST_ALL 0.9995 /* blocks found: those left out do not bend the law */
#define MOSTLY 0.5        /* of a mask */

bool usc_draw_mask_tells(int64_t n_shown, int64_t n)
{
    return (double)n_shown >= MOSTLY * (double)n;
}

/* How often elements were kept, against honest outputs: parts of many drops are found
 * less often, so that the law does not tell. The z of two shares with one variance. Drops
 * in a row are the less likely for that. */
static void compare_rates(usc_draws *d, const usc_draw_mask *mask)
{
    int64_t n_kept = 0;
    for (int64_t i = 0; i < d->n_hits && d->hits != NULL; i++)
        n_kept += d->hits[i] != 0;
    const double n = (double)d->n_hits, k = (double)n_kept;
    const double total = (double)mask->honest_n, ones = (double)mask->honest_kept;
    const double p = (k + ones) / fmax(n + total, 1);
    const double z = (k / n - ones / total) / sqrt(p * (1 - p) * (1 / n + 1 / total));
    if (n > 0 && p > 0 && p < 1 && fabs(z) > RATE_SIGMAS)
        (void)usc_clause_set(
            &d->odd, "%s kept among %s where honest outputs keep %.2f%% (z = %.1f)",
            usc_count(n_kept).text, usc_count(d->n_hits).text, 100 * ones / total, z);
    else if (mask->chances == NULL && d->hits != NULL)
        (void)usc_runs_odd(d->hits, d->n_hits, false, 1 - mask->chance, &d->odd);
}

usc_status usc_draws_of_mask(usc_draws *d, const usc_draw_mask *mask, uint64_t stream,
                             usc_error *err)
{
    const usc_law_values values = {
        .tensor = stream == USC_DRAW_FIRST ? mask->kept : mask->kept_again,
        .shown = stream == USC_DRAW_FIRST ? mask->shown : mask->shown_again,
        .truth = true,
        .stream = stream,
    };
    const usc_parameter chance[USC_LAW_PARAMETERS] = {{mask->chance, mask->chances},
                                                      {0, NULL}};
    const usc_status st = usc_draws_of_law(d, &usc_law_bernoulli, chance, &values, err);
    if (st != USC_OK) return st;
    if (d->n_impossible > 0)
        (void)usc_clause_set(&d->outside, "elements dropped or kept against p");
    const usc_mask_search *s = &mask->honest;
    const bool bent = (double)s->n_found < ALMOST_ALL * (double)s->n_blocks;
    if (mask->honest_n > 0 && (bent || s->n_blocks == 0)) {
        compare_rates(d, mask);
        d->n_known = 0; /* by the law nothing is tested */
        d->hits = NULL;
    }
    return USC_OK;
}

static USC_NOINLINE usc_status judge_mask(const usc_draw_mask *mask, usc_arena *arena,
                                          usc_findings *f, usc_error *err)
{
    usc_draws d, again;
    int64_t n = 0, n_again = -1;
    usc_status st = usc_tensor_numel(mask->kept, &n, err);
    if (st == USC_OK && mask->kept_again != NULL)
        st = usc_tensor_numel(mask->kept_again, &n_again, err);
    if (st != USC_OK) return st;
    usc_draws_begin(&d, arena, n);
    usc_draws_begin(&again, arena, n);
    if (arena->failed) return usc_error_set(err, USC_E_NOMEM, -1, "a mask: no memory");
    usc_draws_shape(&d, mask->kept);
    usc_draws_shape(&again, mask->kept);
    st = usc_draws_of_mask(&d, mask, USC_DRAW_FIRST, err);
    const bool twice = st == USC_OK && n_again == n;
    if (twice) st = usc_draws_of_mask(&again, mask, USC_DRAW_AGAIN, err);
    if (st != USC_OK) return st;
    return usc_draws_finding(f, mask->path, mask->kept, &d, twice ? &again : NULL, err);
}

usc_status usc_draw_judge_mask(const usc_draw_mask *mask, usc_findings *f, usc_error *err)
{
    usc_arena arena = {.alloc = f->arena.alloc};
    const usc_float_env env = usc_float_env_enter();
    const usc_status st = judge_mask(mask, &arena, f, err);
    usc_float_env_leave(env);
    usc_arena_free(&arena);
    return st;
}
