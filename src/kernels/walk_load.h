// SPDX-License-Identifier: Apache-2.0
// The elements of a walk a block at a time, as they are or widened to double.
#ifndef USC_KERNELS_WALK_LOAD_H
#define USC_KERNELS_WALK_LOAD_H

#include "kernels/judge_kernels.h"
#include "kernels/kernels.h"
#include "tensor/walk.h"

/* Room for one block of any dtype, as it lies in memory. */
typedef struct usc_walk_room {
    unsigned char raw[USC_JUDGE_BLOCK * 8];
} usc_walk_room;

/** The `count` <= USC_JUDGE_BLOCK elements from flat index `first` on, as they are; of a
 * walk that holds at least one. */
const void *usc_walk_raw(const usc_walk *w, int64_t first, size_t count,
                         usc_walk_room *room);

/** The same as doubles, in `out` or where they lie. */
const double *usc_walk_load(const usc_walk *w, int64_t first, size_t count,
                            usc_walk_room *room, double *out);

#endif
