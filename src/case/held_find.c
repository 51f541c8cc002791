// SPDX-License-Identifier: Apache-2.0
// Outputs of a decomposition, found and counted. Neighbours: held.c, which brings them into
// one order and gauge.
#include "case/held.h"

#include <stdio.h>
#include <string.h>

/* ---- outputs ---- */

usc_held *usc_held_find(usc_held *outputs, int n, int i)
{
    char path[24];
    (void)snprintf(path, sizeof path, "out[%d]", i);
    for (int k = 0; k < n; k++)
        if (strcmp(outputs[k].path, path) == 0) return &outputs[k];
    return NULL;
}

bool usc_held_alike(const usc_tensor *a, const usc_tensor *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->sizes, b->sizes, (size_t)a->ndim * sizeof a->sizes[0]) == 0;
}

int64_t usc_held_count(const usc_tensor *t)
{
    int64_t n = 0;
    return usc_tensor_numel(t, &n, NULL) == USC_OK ? n : 0;
}
