// SPDX-License-Identifier: Apache-2.0
#include "nearest.h"

#include <stdio.h>

#include <ulpscope/x/pattern.h>

const char *sim_nearest(const char *word, size_t n, sim_name name, const void *ctx)
{
    char given[64]; /* of longer ones no more counts */
    const char *best = NULL, *one;
    double most = -1;
    (void)snprintf(given, sizeof given, "%.*s", n < sizeof given ? (int)n : 63, word);
    for (size_t i = 0; (one = name(ctx, i)) != NULL; i++) {
        const double like = usc_likeness(given, one);
        if (like <= most) continue;
        best = one;
        most = like;
    }
    return best;
}
