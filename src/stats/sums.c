// SPDX-License-Identifier: Apache-2.0
// Magnitudes and the hash of one tensor: block by block, so that the bytes are still in
// the nearest cache when they are hashed. Formulas: docs/metrics.md, 1.6.
#include <ulpscope/sums.h>

#include "base/float_env.h"
#include "kernels/kernels.h"
#include "tensor/walk.h"

#include <string.h>

/* Halves are added lane by lane until one is left. */
static double fold(double lanes[USC_LANES])
{
    for (int n = USC_LANES / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            lanes[i] += lanes[i + n];
    return lanes[0];
}

/* Elements of a block, of which only the last may end within a word: then zeros follow.
 */
static void add_block(const usc_kernels *kernels, const usc_walk *walk, const void *src,
                      int64_t start, size_t n, usc_sums *out)
{
    usc_sums_lanes lanes = {.max = out->max_abs};
    kernels->sums[walk->dtype](src, n, &lanes);
    out->max_abs = lanes.max;
    out->sum_abs += fold(lanes.sum);
    out->sum_sq += fold(lanes.squares);
    out->n_nonfinite += lanes.n_nonfinite;
    out->n_zero += lanes.n_zero;
    const size_t bytes = n * walk->size, n_words = bytes / 8;
    const uint64_t first = (uint64_t)start * walk->size / 8;
    out->hash64 += kernels->mix(src, n_words, first);
    if (bytes % 8 == 0) return;
    unsigned char last[8] = {0};
    memcpy(last, (const unsigned char *)src + 8 * n_words, bytes % 8);
    out->hash64 += kernels->mix(last, 1, first + n_words);
}

static void add_gathered(const usc_kernels *kernels, const usc_walk *walk, int64_t start,
                         size_t n, usc_sums *out)
{
    double scratch[USC_BLOCK]; /* room for any dtype */
    usc_walk_gather(walk, start, n, scratch);
    add_block(kernels, walk, scratch, start, n, out);
}

static void add_all(const usc_walk *walk, usc_sums *out)
{
    const usc_kernels *kernels = usc_kernels_get();
    const bool dense = usc_walk_dense(walk);
    for (int64_t start = 0; start < walk->n; start += USC_BLOCK) {
        const int64_t rest = walk->n - start;
        const size_t n = rest < USC_BLOCK ? (size_t)rest : USC_BLOCK;
        if (dense)
            add_block(kernels, walk, walk->base + (size_t)start * walk->size, start, n,
                      out);
        else
            add_gathered(kernels, walk, start, n, out);
    }
}

usc_status usc_sums_compute(const usc_tensor *t, usc_sums *out, usc_error *err)
{
    usc_walk walk;
    *out = (usc_sums){0};
    if (t->dtype <= USC_DTYPE_NONE || t->dtype >= USC_N_DTYPES)
        return usc_error_set(err, USC_E_DTYPE, -1, "a dtype that is not in the table");
    const usc_status st = usc_walk_begin(t, false, &walk, err);
    if (st != USC_OK) return st;
    const usc_float_env env = usc_float_env_enter();
    add_all(&walk, out);
    usc_float_env_leave(env);
    out->numel = walk.n;
    return USC_OK;
}
