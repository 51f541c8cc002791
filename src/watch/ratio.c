// SPDX-License-Identifier: Apache-2.0
// The size of an update against the size of its weight, over time: root mean squares in
// log2 (the "update to weight ratio" that practitioners watch, about 2^-10 in Adam). A
// learning rate moves the ratios of all tensors together, which track.c takes off; one
// tensor that leaves the others has a wrong optimizer state, or gradient.
#include "watch/track.h"

#include <math.h>
#include <stdlib.h>

static const usc_watch_row *find(const usc_watch_row *rows, size_t n,
                                 const usc_watch_row *like)
{
    size_t low = 0, high = n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const usc_watch_row *r = &rows[middle];
        if (r->tensor < like->tensor ||
            (r->tensor == like->tensor && r->rank < like->rank))
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && rows[low].tensor == like->tensor && rows[low].rank == like->rank
               ? &rows[low]
               : NULL;
}

void usc_watch_ratio(usc_watch_view *v)
{
    static const usc_track_spec spec = {
        USC_WATCH_UPDATE, "update-to-weight ratio", {6, 64}, 10, 0};
    const usc_watch_row *updates, *weights;
    const size_t n = usc_watch_rows_of(v, USC_WATCH_UPDATE, &updates);
    const size_t n_weights = usc_watch_rows_of(v, USC_WATCH_WEIGHT, &weights);
    if (n == 0 || n_weights == 0) return;
    usc_watch_row *rows = malloc(n * sizeof *rows);
    if (rows == NULL) {
        v->status = usc_no_memory("watch", v->err);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const usc_watch_row *weight = find(weights, n_weights, &updates[i]);
        rows[i] = updates[i];
        rows[i].numel = 0; /* one number alone */
        rows[i].n_nonfinite = 0;
        rows[i].value = weight != NULL && weight->sum_sq > 0 && updates[i].sum_sq > 0
                            ? sqrt(updates[i].sum_sq) / sqrt(weight->sum_sq)
                            : 0;
    }
    usc_watch_view ratios = *v;
    ratios.rows = rows;
    ratios.n = n;
    usc_track_site(&ratios, &spec);
    free(rows);
    v->status = ratios.status;
    v->n_found = ratios.n_found;
    v->n_told = ratios.n_told;
}
