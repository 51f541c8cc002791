// SPDX-License-Identifier: Apache-2.0
// Rows of float32 that are added up by index, bit by bit what usc_sim_sum() of each number's
// terms gives, in the order that they come in.
#include "fast.h"

#include <stdlib.h>
#include <string.h>

typedef struct rows {
    const fast_isa *isa;
    const usc_sim_numerics *n;
    const usc_sim_added *a;
} rows;

static bool is_one(const usc_sim_added *a, size_t i)
{
    return a->index[i] >= 0 && (size_t)a->index[i] < a->n_rows;
}

/* Each where it comes. */
static bool one_by_one(const rows *r, float *out)
{
    const usc_sim_added *a = r->a;
    bool *begun = calloc(a->n_rows + 1, sizeof *begun);
    if (begun == NULL) return false;
    for (size_t i = 0; i < a->n_index; i++) {
        if (!is_one(a, i)) continue;
        const size_t row = (size_t)a->index[i];
        float *to = out + row * a->width;
        if (!begun[row] && !a->with_own) memset(to, 0, a->width * sizeof *to);
        if (!begun[row] && a->with_own) r->isa->shifted(to, 0, a->width); /* no -0 */
        begun[row] = true;
        r->isa->plus(to, a->more + i * a->width, a->width, to);
    }
    free(begun);
    return true;
}

/* ends[row + 1]: where in `order` those end that are added to a row. */
static void sort(const usc_sim_added *a, size_t *ends, size_t *order)
{
    for (size_t i = 0; i < a->n_index; i++)
        if (is_one(a, i)) ends[a->index[i] + 2]++;
    for (size_t row = 0; row < a->n_rows; row++)
        ends[row + 2] += ends[row + 1];
    for (size_t i = 0; i < a->n_index; i++)
        if (is_one(a, i)) order[ends[a->index[i] + 1]++] = i;
}

/* All of a row side by side, then in the chosen order. */
static bool row_by_row(const rows *r, float *out)
{
    const usc_sim_added *a = r->a;
    const size_t size = a->width * sizeof *out;
    size_t *ends = calloc(a->n_rows + 2, sizeof *ends),
           *order = malloc((a->n_index + 1) * sizeof *order);
    float *terms = malloc((a->n_index + 1) * size + 1);
    bool fine = ends != NULL && order != NULL && terms != NULL;
    if (fine) sort(a, ends, order);
    for (size_t row = 0; fine && row < a->n_rows; row++) {
        float *to = out + row * a->width;
        size_t n = 0;
        if (ends[row] == ends[row + 1]) continue;
        if (a->with_own) memcpy(terms + a->width * n++, to, size);
        for (size_t k = ends[row]; k < ends[row + 1]; k++)
            memcpy(terms + a->width * n++, a->more + order[k] * a->width, size);
        const fast_rows columns = {terms, 1, (ptrdiff_t)a->width};
        fine = usc_sim_fast_sums(r->isa, r->n, &columns, a->width, n, to);
    }
    free(ends);
    free(order);
    free(terms);
    return fine;
}

bool usc_sim_add_rows(const usc_sim_numerics *n, usc_dtype dtype, const usc_sim_added *a,
                      float *out)
{
    const rows r = {usc_sim_fast_isa(), n, a};
    if (!usc_sim_is_fast(n, dtype)) return false;
    if (n->order == USC_SIM_SERIAL && n->group == 0) return one_by_one(&r, out);
    return row_by_row(&r, out);
}
