// SPDX-License-Identifier: Apache-2.0
// What the rule needs besides scores: quantiles of a histogram, the typical size of the
// reference, and the yardstick's own spectrum.
#include "judge/judge_element.h"

#include "base/float_env.h"

#include <math.h>
#include <string.h>

/* Lower edge of a bin; 2^-9 stands for bin 0, which has none. */
static double bin_edge(int bin)
{
    return exp2((bin - 1) / 4.0 - 8);
}

double usc_judge_quantile(const int64_t bins[USC_N_SCORE_BINS], int64_t m, double max,
                          double q)
{
    if (m == 0) return 0;
    int64_t rank = (int64_t)ceil(q * (double)m), before = 0;
    if (rank < 1) rank = 1;
    int bin = 0;
    while (bin < USC_N_SCORE_BINS - 1 && before + bins[bin] < rank)
        before += bins[bin++];
    const double low = fmin(bin_edge(bin), max);
    const double high = before + bins[bin] == m ? max : bin_edge(bin + 1);
    const double inside = (double)(rank - before) / (double)bins[bin];
    return inside >= 1 ? high : low * pow(high / low, inside);
}

enum { SIZE_BINS = 2048 * 4 }; /* quarters of all binades of double */

double usc_judge_median_size(usc_judge *j)
{
    usc_judge_scratch *s = &j->scratch[0];
    int32_t counts[SIZE_BINS] = {0};
    int64_t live = 0;
    /* every k-th block where there are more elements than a median needs */
    const int64_t n_blocks = (j->n + USC_JUDGE_BLOCK - 1) / USC_JUDGE_BLOCK;
    const int64_t stride = n_blocks / 4096 + 1;
    for (int64_t i = 0; i < n_blocks; i += stride) {
        const int64_t at = i * USC_JUDGE_BLOCK;
        const size_t count =
            (size_t)(j->n - at < USC_JUDGE_BLOCK ? j->n - at : USC_JUDGE_BLOCK);
        const double *r = usc_walk_load(&j->r, at, count, &s->room, s->r);
        for (size_t k = 0; k < count; k++) {
            if (!isfinite(r[k]) || r[k] == 0) continue;
            uint64_t bits;
            memcpy(&bits, &r[k], sizeof bits);
            counts[bits << 1 >> 51]++;
            live++;
        }
    }
    if (live == 0) return 0;
    int64_t before = 0;
    int bin = 0;
    while (before + counts[bin] < (live + 1) / 2)
        before += counts[bin++];
    const uint64_t bits = (uint64_t)bin << 50;
    double median;
    memcpy(&median, &bits, sizeof median);
    return median;
}

static void yardstick_block(const usc_pass *pass, int64_t at, usc_score_sums *sums)
{
    usc_judge *j = pass->j;
    const usc_score_params *p = &pass->params;
    usc_judge_scratch *s = &j->scratch[0];
    const size_t count =
        (size_t)(j->n - at < USC_JUDGE_BLOCK ? j->n - at : USC_JUDGE_BLOCK);
    const double *r = usc_walk_load(&j->r, at, count, &s->room, s->r);
    const usc_scales x = usc_judge_scales(j, s, pass->view->exact, at, count, r, r);
    usc_block b = {.p = pass, .s = s, .at = at, .count = count};
    usc_block_load_yardstick(&b);
    if (j->wide)
        usc_judge_score_wide(p, b.y, r, x.s, x.n, count, s->score, sums);
    else
        j->kernels->score(p, b.y, r, x.s, x.n, count, s->score, sums);
    j->kernels->bin(s->score, count, s->bins);
    for (size_t i = 0; i < count; i++)
        if (s->bins[i] != USC_BIN_MATCH) s->tally.scores[s->bins[i]]++;
}

void usc_judge_yardstick(usc_judge *j, const usc_view *view, int64_t *n_mismatch,
                         double *max, int64_t scores[USC_N_SCORE_BINS])
{
    const usc_pass pass = {.j = j, .view = view, .params = usc_judge_params(j, view)};
    const int64_t n_blocks = (j->n + USC_JUDGE_BLOCK - 1) / USC_JUDGE_BLOCK;
    const int64_t n_looked = n_blocks < 64 ? n_blocks : 64;
    usc_score_sums sums = {0};
    const usc_float_env env = usc_float_env_enter();
    memset(j->scratch[0].tally.scores, 0, sizeof j->scratch[0].tally.scores);
    for (int64_t i = 0; i < n_looked; i++)
        yardstick_block(&pass, i * n_blocks / n_looked * USC_JUDGE_BLOCK, &sums);
    usc_float_env_leave(env);
    *n_mismatch = 0;
    for (int i = 0; i < USC_N_SCORE_BINS; i++) {
        scores[i] = j->scratch[0].tally.scores[i];
        *n_mismatch += scores[i];
    }
    *max = sums.max;
}
