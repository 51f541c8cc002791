// SPDX-License-Identifier: Apache-2.0
// A walk read in blocks: gathers only where elements do not lie side by side, so that
// contiguous operands are read in place.
#include "kernels/walk_load.h"

const void *usc_walk_raw(const usc_walk *w, int64_t first, size_t count,
                         usc_walk_room *room)
{
    if (usc_walk_dense(w)) return w->base + first * (int64_t)w->size;
    usc_walk_gather(w, first, count, room->raw);
    return room->raw;
}

const double *usc_walk_load(const usc_walk *w, int64_t first, size_t count,
                            usc_walk_room *room, double *out)
{
    const void *raw = usc_walk_raw(w, first, count, room);
    if (w->dtype == USC_F64 && raw != room->raw && (uintptr_t)raw % sizeof(double) == 0)
        return raw;
    usc_kernels_widen(w->dtype, raw, out, count);
    return out;
}
