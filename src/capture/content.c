// SPDX-License-Identifier: Apache-2.0
// Fingerprints of bytes and views; see content.h.
#include "capture/content.h"

#include <string.h>

#define WHOLE_BELOW 2048 /* sampled: storages up to this are hashed whole */
#define N_SAMPLES 16
#define SAMPLE_SIZE 64

static int64_t piece_of(const usc_content *c)
{
    return c->way == USC_CONTENT_PARTS ? USC_CONTENT_FETCHED : USC_CONTENT_PIECE;
}

static int64_t n_pieces(const usc_content *c, int64_t size)
{
    return (size + piece_of(c) - 1) / piece_of(c);
}

bool usc_content_size(usc_content *c, const usc_alloc *alloc, int64_t size,
                      usc_content_way way)
{
    c->way = way;
    const int64_t pieces = way == USC_CONTENT_SAMPLED ? 0 : n_pieces(c, size);
    const int64_t n = pieces > 1 ? pieces : 0;
    if (n != c->n_many) {
        usc_content_free(c, alloc);
        if (n > 0) {
            c->many = alloc->resize(alloc->ctx, NULL, 0, (size_t)n * sizeof *c->many);
            if (c->many == NULL) return false;
            memset(c->many, 0, (size_t)n * sizeof *c->many);
        }
        c->n_many = n;
    }
    c->size = size;
    return true;
}

void usc_content_drop(usc_content *c, int64_t from, int64_t to)
{
    c->one = 0;
    for (int64_t i = from / piece_of(c); c->many != NULL && i < n_pieces(c, to); i++)
        c->many[i] = 0;
}

static uint64_t hash_samples(const unsigned char *bytes, int64_t size)
{
    if (size <= WHOLE_BELOW) return usc_hash64_bytes(bytes, (size_t)size);
    unsigned char samples[N_SAMPLES * SAMPLE_SIZE];
    for (int64_t i = 0; i < N_SAMPLES; i++)
        memcpy(samples + i * SAMPLE_SIZE,
               bytes + (size - SAMPLE_SIZE) / (N_SAMPLES - 1) * i, SAMPLE_SIZE);
    return usc_hash64_bytes(samples, sizeof samples);
}

/* A half of it is what is remembered; the whole is what a trace calls bytes by, so that
 * those of one piece are hashed once for both. */
static usc_hash128 hash_piece(const usc_content *c, int64_t i, const unsigned char *bytes)
{
    const int64_t rest = c->size - i * piece_of(c);
    return usc_hash_bytes(bytes, (size_t)(rest < piece_of(c) ? rest : piece_of(c)));
}

/* Never 0. */
static uint64_t half_of(usc_hash128 hash)
{
    return hash.low != 0 ? hash.low : 1;
}

bool usc_content_take(usc_content *c, usc_bytes bytes, void *copy, usc_hash128 *all)
{
    unsigned char *to = copy;
    if (c->way == USC_CONTENT_SAMPLED) {
        c->one = hash_samples(bytes.at, c->size);
        return false;
    }
    uint64_t *hashes = c->many != NULL ? c->many : &c->one;
    for (int64_t from = bytes.from; from < bytes.to; from += piece_of(c)) {
        const int64_t i = from / piece_of(c), at = from - bytes.from;
        const int64_t rest = bytes.to - from;
        if (to != NULL)
            memcpy(to + at, bytes.at + at,
                   (size_t)(rest < piece_of(c) ? rest : piece_of(c)));
        *all = hash_piece(c, i, to != NULL ? to + at : bytes.at + at);
        hashes[i] = half_of(*all);
    }
    return bytes.from < bytes.to && bytes.to - bytes.from <= piece_of(c);
}

bool usc_content_same(const usc_content *c, usc_bytes bytes, int64_t from, int64_t to)
{
    if (c->size == 0) return true;
    if (c->way == USC_CONTENT_SAMPLED) return hash_samples(bytes.at, c->size) == c->one;
    const uint64_t *hashes = c->many != NULL ? c->many : &c->one;
    if (from < bytes.from) from = bytes.from;
    if (to > bytes.to) to = bytes.to;
    for (int64_t i = from / piece_of(c); i < n_pieces(c, to); i++)
        if ((hashes[i] != 0 || c->way != USC_CONTENT_PARTS) &&
            half_of(hash_piece(c, i, bytes.at + (i * piece_of(c) - bytes.from))) !=
                hashes[i])
            return false;
    return true;
}

void usc_content_free(usc_content *c, const usc_alloc *alloc)
{
    if (c->many != NULL)
        alloc->resize(alloc->ctx, c->many, (size_t)c->n_many * sizeof *c->many, 0);
    c->many = NULL;
    c->n_many = 0;
}

/* ---- views ---- */

usc_reach usc_view_reach(const usc_capture_tensor *t)
{
    usc_reach r = {.from = 0, .to = t->storage_size};
    int64_t bytes = 0, below = 0;
    const int64_t item = (int64_t)usc_dtype_info_of(t->view.dtype)->size;
    if (t->view.dtype == USC_DTYPE_NONE || t->offset < 0 ||
        t->offset > t->storage_size / item ||
        usc_tensor_extent(&t->view, &bytes, &below, NULL) != USC_OK)
        return r;
    r.first = t->offset * item;
    if (r.first < below || bytes - below > t->storage_size - r.first) return r;
    r.from = r.first - below;
    r.to = r.from + bytes;
    r.known = true;
    return r;
}

/* Sizes and strides, then up to 4 further words; returns the number of words. */
static size_t geometry_words(const usc_capture_tensor *t, int64_t *words)
{
    const size_t ndim = (size_t)t->view.ndim;
    memcpy(words, t->view.sizes, ndim * sizeof *words);
    memcpy(words + ndim, t->view.strides, ndim * sizeof *words);
    words[2 * ndim] = t->offset;
    words[2 * ndim + 1] = t->view.dtype;
    return 2 * ndim + 2;
}

uint64_t usc_view_key(const usc_capture_tensor *t)
{
    int64_t words[2 * USC_MAX_DIMS + 5];
    size_t n = geometry_words(t, words);
    words[n++] = t->requires_grad;
    words[n++] =
        t->form == NULL ? 0 : (int64_t)usc_hash64_bytes(t->form, strlen(t->form));
    /* Names matter only where the table has no number for them. */
    words[n++] = t->view.dtype != USC_DTYPE_NONE || t->dtype_name == NULL
                     ? 0
                     : (int64_t)usc_hash64_bytes(t->dtype_name, strlen(t->dtype_name));
    return usc_hash64_bytes(words, n * sizeof *words);
}

/* Whether the elements fill their bytes without gap or overlap, in some order of axes. */
static bool is_dense(const usc_tensor *t, int64_t extent, int64_t item)
{
    int64_t expect = 1, n = 1;
    bool used[USC_MAX_DIMS] = {false};
    for (int i = 0; i < t->ndim; i++)
        n *= t->sizes[i];
    if (n * item != extent) return false;
    for (int found = 0; found < t->ndim; found++) {
        int i = 0;
        while (i < t->ndim && (used[i] || (t->sizes[i] != 1 && t->strides[i] != expect)))
            i++;
        if (i == t->ndim) return false;
        used[i] = true;
        expect *= t->sizes[i];
    }
    return true;
}

uint64_t usc_view_stats_key(const usc_capture_tensor *t, const usc_reach *reach)
{
    int64_t words[2 * USC_MAX_DIMS + 4];
    const usc_dtype_info *info = usc_dtype_info_of(t->view.dtype);
    size_t n = 0;
    if (info->kind == USC_KIND_FLOAT &&
        is_dense(&t->view, reach->to - reach->from, (int64_t)info->size)) {
        words[n++] = t->view.dtype;
        words[n++] = reach->from;
        words[n++] = reach->to;
    } else {
        n = geometry_words(t, words);
    }
    return usc_hash64_bytes(words, n * sizeof *words) | 1;
}
