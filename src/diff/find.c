// SPDX-License-Identifier: Apache-2.0
// Rows of the lists by their number. Neighbours: lists.c, which reads them.
#include "diff/lists.h"

#include <string.h>

static int64_t id_at(const usc_diff_table *t, int64_t i)
{
    int64_t id;
    memcpy(&id, (const char *)t->row + (size_t)i * t->size, sizeof id);
    return id;
}

static int64_t index_of(const usc_diff_table *t, int64_t id)
{
    int64_t low = 0, high = t->n;
    if (id > 0 && id <= t->n && id_at(t, id - 1) == id) return id - 1; /* no gaps */
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (id_at(t, middle) < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < t->n && id_at(t, low) == id ? low : -1;
}

void *usc_diff_table_find(const usc_diff_table *t, int64_t id)
{
    const int64_t i = index_of(t, id);
    return i >= 0 ? (char *)t->row + (size_t)i * t->size : NULL;
}

int64_t usc_diff_list_index(const usc_diff_list *l, int64_t sequence)
{
    return index_of(&l->calls, sequence);
}

uint64_t usc_diff_list_bytes(const usc_diff_list *l, const usc_diff_tensor *t)
{
    const usc_diff_version *v = usc_diff_table_find(&l->versions, t->version);
    const int64_t blob = v != NULL && v->blob != 0 ? v->blob : t->blob;
    const usc_diff_named *b = blob != 0 ? usc_diff_table_find(&l->blobs, blob) : NULL;
    return b != NULL ? b->hash : 0;
}
