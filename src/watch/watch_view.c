// SPDX-License-Identifier: Apache-2.0
// What a detector sees of a step: names, rows, and the bytes that are its own. Neighbours:
// watch_core.c, which keeps them; one file for each detector.
#include "watch/watch_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

const char *usc_watch_name(const usc_watch_view *v, int64_t tensor)
{
    return tensor >= 0 ? v->w->tensors[tensor].name : "";
}

size_t usc_watch_rows_of(const usc_watch_view *v, usc_watch_site site,
                         const usc_watch_row **rows)
{
    size_t low = 0, high = v->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (v->rows[middle].site < site)
            low = middle + 1;
        else
            high = middle;
    }
    *rows = v->rows + low;
    for (high = low; high < v->n && v->rows[high].site == site;)
        high++;
    return high - low;
}

size_t usc_watch_same_tensor(const usc_watch_row *rows, size_t n)
{
    size_t same = 1;
    while (same < n && rows[same].tensor == rows[0].tensor)
        same++;
    return same;
}

/* ---- the detectors' bytes ---- */

static void *no_memory(usc_watch_view *v)
{
    v->status = usc_no_memory("watch", v->err);
    return NULL;
}

void **usc_watch_block(usc_watch *w, usc_watch_detector d, int table, int64_t tensor,
                       int32_t rank)
{
    usc_watch_table *t = &w->tables[d][table];
    const int64_t world = table == USC_WATCH_OF_RANK ? 1 : w->config.world;
    const int64_t row = table == USC_WATCH_OF_RANK ? rank : tensor + 1;
    if (row >= t->n) {
        int64_t n = t->n > 0 ? t->n : 16, blocks, bytes;
        while (n <= row)
            n *= 2;
        if (!usc_mul_i64(n, world, &blocks) ||
            !usc_mul_i64(blocks, (int64_t)sizeof(void *), &bytes))
            return NULL;
        void **larger = realloc(t->block, (size_t)bytes);
        if (larger == NULL) return NULL;
        for (int64_t i = t->n * world; i < blocks; i++)
            larger[i] = NULL;
        w->n_bytes += (n - t->n) * world * (int64_t)sizeof(void *);
        t->block = larger;
        t->n = n;
    }
    return &t->block[row * world + (table == USC_WATCH_OF_RANK ? 0 : rank)];
}

void *usc_watch_bytes_at(usc_watch *w, usc_watch_detector d, int table, int64_t tensor,
                         int32_t rank)
{
    const usc_watch_rule *rule = &w->rules[d];
    void **block = usc_watch_block(w, d, table, tensor, rank);
    if (block == NULL) return NULL;
    const size_t size =
        table == USC_WATCH_OF_RANK ? rule->rank_size(&w->config) : rule->series_size;
    if (*block == NULL) {
        *block = usc_arena_take(&w->blocks, size);
        if (*block == NULL) return NULL;
        memset(*block, 0, size);
        w->n_bytes += (int64_t)size;
    }
    return *block;
}

void *usc_watch_series(usc_watch_view *v, usc_watch_site site, int64_t tensor,
                       int32_t rank)
{
    void *at = usc_watch_bytes_at(v->w, v->detector, (int)site, tensor, rank);
    return at != NULL ? at : no_memory(v);
}

void *usc_watch_rank(usc_watch_view *v, int32_t rank)
{
    void *at = usc_watch_bytes_at(v->w, v->detector, USC_WATCH_OF_RANK, -1, rank);
    return at != NULL ? at : no_memory(v);
}

double *usc_watch_scratch(usc_watch_view *v, size_t n)
{
    usc_watch *w = v->w;
    if (n > w->scratch_size) {
        double *larger =
            n > SIZE_MAX / 16 ? NULL : realloc(w->scratch, 2 * n * sizeof *larger);
        if (larger == NULL) return no_memory(v);
        w->scratch = larger;
        w->scratch_size = 2 * n;
    }
    return w->scratch;
}
