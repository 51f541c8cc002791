// SPDX-License-Identifier: Apache-2.0
// A part that is worse than the rest: a row, a column, a head, sixteen elements side by
// side. Beside all of an output it weighs nothing, and the limits of single elements have
// room for every order of adding; but kernels compute one row as they compute another, so
// a part of which half the elements lose far more than runs of float32 do there is computed
// otherwise. Neighbours: case_lost.c, which has these runs.
#include "case/case_state.h"

enum { FEWEST = 8, SIDE_BY_SIDE = 16 };

/* Elements of one part: `n` of them in runs of `run`, one every `step`. */
typedef struct part {
    int64_t at, n, run, step;
} part;

static int64_t place_of(const part *p, int64_t k)
{
    return p->at + k / p->run * p->step + k % p->run;
}

/* Marks what a part has lost, if half of it is far off. */
static bool mark(const part *p, const uint8_t *lost, uint8_t *marks)
{
    int64_t n = 0, n_more = 0;
    for (int64_t k = 0; k < p->n; k++) {
        const uint8_t q = lost[place_of(p, k)];
        n += q != USC_LOST_UNKNOWN;
        n_more += q == USC_LOST_FAR_MORE;
    }
    if (n < FEWEST || 2 * n_more < n) return false;
    for (int64_t k = 0; k < p->n; k++)
        if (lost[place_of(p, k)] == USC_LOST_FAR_MORE) marks[place_of(p, k)] = 1;
    return true;
}

/* Lines along an axis, and all that has one index along it. */
static bool mark_along(const usc_case *c, int axis, const uint8_t *lost, uint8_t *marks)
{
    const int64_t size = c->device.sizes[axis];
    int64_t inner = 1;
    bool any = false;
    for (int k = axis + 1; k < c->device.ndim; k++)
        inner *= c->device.sizes[k];
    for (int64_t i = 0; i < c->n / size && size >= FEWEST; i++) {
        const part line = {i / inner * inner * size + i % inner, size, 1, inner};
        any |= mark(&line, lost, marks);
    }
    for (int64_t i = 0; i < size && c->device.ndim > 2; i++) {
        const part slice = {i * inner, c->n / size, inner, inner * size};
        any |= mark(&slice, lost, marks);
    }
    return any;
}

bool usc_case_part_loses(const usc_case *c, const uint8_t *lost, uint8_t *marks)
{
    bool any = false;
    for (int axis = 0; axis < c->device.ndim && c->n > 0; axis++)
        any |= mark_along(c, axis, lost, marks);
    const int64_t width = c->device.ndim > 0 ? c->device.sizes[c->device.ndim - 1] : 1;
    for (int64_t row = 0; row < c->n; row += width)
        for (int64_t k = 0; k < width; k += SIDE_BY_SIDE) {
            const int64_t left = width - k;
            const part few = {row + k, left < SIDE_BY_SIDE ? left : SIDE_BY_SIDE, 1, 1};
            any |= mark(&few, lost, marks);
        }
    return any;
}
