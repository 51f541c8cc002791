// SPDX-License-Identifier: Apache-2.0
// What the rule needs besides scores: quantiles of a histogram, the typical size of the
// reference, and the yardstick's own spectrum.
#include "judge/judge_element.h"

#include "base/float_env.h"

#include <math.h>
#include <string.h>

#define COMMON 16.0    /* S within this of the root mean square of R: R is one whole */
#define CERTAIN 0x1p12 /* a scale within this of it leaves that 12 bits */

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

/* Sizes that are finite and not zero, counted by quarters of binades. */
typedef struct sizes {
    int64_t live;
    int32_t counts[SIZE_BINS];
} sizes;

static void count_size(sizes *of, double x)
{
    if (!isfinite(x) || x == 0) return;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    of->counts[bits << 1 >> 51]++;
    of->live++;
}

/* The median to a quarter of a binade below; 0 where nothing was counted. */
static double median_of(const sizes *of)
{
    if (of->live == 0) return 0;
    int64_t before = 0;
    int bin = 0;
    while (before + of->counts[bin] < (of->live + 1) / 2)
        before += of->counts[bin++];
    const uint64_t bits = (uint64_t)bin << 50;
    double median;
    memcpy(&median, &bits, sizeof median);
    return median;
}

/* How many blocks lie between two that are looked at: a median needs no more. */
static int64_t stride_of(const usc_judge *j)
{
    return (j->n + USC_JUDGE_BLOCK - 1) / USC_JUDGE_BLOCK / 4096 + 1;
}

static size_t block_size(const usc_judge *j, int64_t at)
{
    return (size_t)(j->n - at < USC_JUDGE_BLOCK ? j->n - at : USC_JUDGE_BLOCK);
}

double usc_judge_median_size(usc_judge *j)
{
    usc_judge_scratch *s = &j->scratch[0];
    sizes found = {0};
    for (int64_t at = 0; at < j->n; at += stride_of(j) * USC_JUDGE_BLOCK) {
        const size_t count = block_size(j, at);
        const double *r = usc_walk_load(&j->r, at, count, &s->room, s->r);
        for (size_t i = 0; i < count; i++)
            count_size(&found, r[i]);
    }
    return median_of(&found);
}

/* Adds the S and the scale of a block's elements, and the squares of R. */
static double count_scales(usc_judge *j, const usc_score_params *p, int64_t at, sizes *s,
                           sizes *scale)
{
    usc_judge_scratch *room = &j->scratch[0];
    const size_t count = block_size(j, at);
    const double *r = usc_walk_load(&j->r, at, count, &room->room, room->r);
    const usc_scales x = usc_judge_scales(j, room, false, at, count, r);
    double squares = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(r[i])) continue;
        const double si = p->s_factor * usc_judge_stored(j, x.s, (int64_t)i);
        const double ni = p->n_factor * usc_judge_stored(j, x.n, (int64_t)i);
        squares += r[i] * r[i];
        count_size(s, si);
        count_size(scale, fmax(fabs(r[i]), fmax(si, ni)));
    }
    return squares;
}

double usc_judge_common_size(usc_judge *j, const usc_view *view)
{
    if (view->exact || j->n_replays == 0) return 0;
    const usc_score_params p = usc_judge_params(j, view);
    sizes s = {0}, scale = {0};
    double squares = 0;
    for (int64_t at = 0; at < j->n; at += stride_of(j) * USC_JUDGE_BLOCK)
        squares += count_scales(j, &p, at, &s, &scale);
    const double rms = sqrt(squares / (double)(scale.live > 0 ? scale.live : 1));
    const double slope = median_of(&s);
    const bool whole = slope * COMMON >= rms && slope <= rms * COMMON;
    return whole && median_of(&scale) <= rms * CERTAIN ? rms : 0;
}

static void yardstick_block(const usc_pass *pass, int64_t at, usc_score_sums *sums)
{
    usc_judge *j = pass->j;
    const usc_score_params *p = &pass->params;
    usc_judge_scratch *s = &j->scratch[0];
    const size_t count = block_size(j, at);
    const double *r = usc_walk_load(&j->r, at, count, &s->room, s->r);
    const usc_scales x = usc_judge_scales(j, s, pass->view->exact, at, count, r);
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
