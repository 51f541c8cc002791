// SPDX-License-Identifier: Apache-2.0
// Magnitudes and the hash of one tensor: block by block, so that the bytes are still in
// the nearest cache when they are hashed. Formulas: docs/reference/metrics.md, 1.6.
#include <ulpscope/x/sums.h>

#include "base/float_env.h"
#include "kernels/kernels.h"
#include "tensor/walk.h"

#include <string.h>

enum { PIECE = 4096 }; /* bytes: of 1 to 16 KiB the fastest on an EPYC */

/* Halves are added lane by lane until one is left. */
static double fold(double lanes[USC_LANES])
{
    for (int n = USC_LANES / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            lanes[i] += lanes[i + n];
    return lanes[0];
}

/* What is done with blocks. */
typedef struct pass {
    const usc_kernels *kernels;
    const usc_walk *walk;
    bool hashed;
} pass;

/* Words from byte `start` of the tensor on; its last one is filled up with zeros. */
static uint64_t hash_of(const usc_kernels *kernels, const void *src, size_t start,
                        size_t bytes)
{
    const size_t n_words = bytes / 8, first = start / 8;
    const uint64_t hash = kernels->mix(src, n_words, first);
    if (bytes % 8 == 0) return hash;
    unsigned char last[8] = {0};
    memcpy(last, (const unsigned char *)src + 8 * n_words, bytes % 8);
    return hash + kernels->mix(last, 1, first + n_words);
}

/* Piece by piece: what was added up is hashed while it is near, and little enough of it
 * that memory goes on being read ahead. */
static void add_block(const pass *p, const void *src, int64_t start, size_t n,
                      usc_sums *out)
{
    const size_t size = p->walk->size, piece = PIECE / size;
    usc_sums_lanes lanes = {.max = out->max_abs};
    for (size_t i = 0; i < n; i += piece) {
        const unsigned char *at = (const unsigned char *)src + i * size;
        const size_t now = n - i < piece ? n - i : piece;
        p->kernels->sums[p->walk->dtype](at, now, &lanes);
        if (p->hashed)
            out->hash64 +=
                hash_of(p->kernels, at, ((size_t)start + i) * size, now * size);
    }
    out->max_abs = lanes.max;
    out->sum_abs += fold(lanes.sum);
    out->sum_sq += fold(lanes.squares);
    out->n_nonfinite += lanes.n_nonfinite;
    out->n_zero += lanes.n_zero;
}

static void add_gathered(const pass *p, int64_t start, size_t n, usc_sums *out)
{
    double scratch[USC_BLOCK]; /* room for any dtype */
    usc_walk_gather(p->walk, start, n, scratch);
    add_block(p, scratch, start, n, out);
}

static void add_all(const pass *p, usc_sums *out)
{
    const usc_walk *walk = p->walk;
    const bool dense = usc_walk_dense(walk);
    for (int64_t start = 0; start < walk->n; start += USC_BLOCK) {
        const int64_t rest = walk->n - start;
        const size_t n = rest < USC_BLOCK ? (size_t)rest : USC_BLOCK;
        if (dense)
            add_block(p, walk->base + (size_t)start * walk->size, start, n, out);
        else
            add_gathered(p, start, n, out);
    }
}

static usc_status compute(const usc_tensor *t, bool hashed, usc_sums *out, usc_error *err)
{
    usc_walk walk;
    *out = (usc_sums){0};
    if (t->dtype <= USC_DTYPE_NONE || t->dtype >= USC_N_DTYPES)
        return usc_error_set(err, USC_E_DTYPE, -1, "a dtype that is not in the table");
    const usc_status st = usc_walk_begin(t, false, &walk, err);
    if (st != USC_OK) return st;
    const pass p = {usc_kernels_get(), &walk, hashed};
    const usc_float_env env = usc_float_env_enter();
    add_all(&p, out);
    usc_float_env_leave(env);
    out->numel = walk.n;
    return USC_OK;
}

usc_status usc_sums_compute(const usc_tensor *t, usc_sums *out, usc_error *err)
{
    return compute(t, true, out, err);
}

usc_status usc_sums_magnitudes(const usc_tensor *t, usc_sums *out, usc_error *err)
{
    return compute(t, false, out, err);
}
