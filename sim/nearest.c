// SPDX-License-Identifier: Apache-2.0
// How many letters two names differ by (Levenshtein), in one row.
#include "nearest.h"

#include <string.h>

#define MOST 64

static size_t distance(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t row[MOST + 1];
    if (n_a > MOST) n_a = MOST;
    if (n_b > MOST) n_b = MOST;
    for (size_t k = 0; k <= n_b; k++)
        row[k] = k;
    for (size_t i = 1; i <= n_a; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t k = 1; k <= n_b; k++) {
            const size_t above = row[k], changed = corner + (a[i - 1] != b[k - 1]);
            const size_t less = above < row[k - 1] ? above + 1 : row[k - 1] + 1;
            row[k] = changed < less ? changed : less;
            corner = above;
        }
    }
    return row[n_b];
}

const char *sim_nearest(const char *word, size_t n, sim_name name, const void *ctx)
{
    const char *best = NULL, *one;
    size_t least = 0;
    for (size_t i = 0; (one = name(ctx, i)) != NULL; i++) {
        const size_t d = distance(word, n, one, strlen(one));
        if (best != NULL && d >= least) continue;
        best = one;
        least = d;
    }
    return best;
}
