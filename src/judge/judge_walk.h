// SPDX-License-Identifier: Apache-2.0
// Reads a strided tensor in row-major order, a block at a time, widened to double.
#ifndef USC_JUDGE_WALK_H
#define USC_JUDGE_WALK_H

#include "judge/judge_kernels.h"

/* A view with its axes merged where they lie behind each other. */
typedef struct usc_walk {
    const unsigned char *data;
    usc_dtype dtype;
    size_t size; /* bytes of an element */
    int ndim;
    int64_t sizes[USC_MAX_DIMS], strides[USC_MAX_DIMS];
} usc_walk;

/* Room for one block of any dtype, as it lies in memory. */
typedef struct usc_walk_room {
    unsigned char raw[USC_JUDGE_BLOCK * 8];
} usc_walk_room;

/** Prepares walking `t`, which must hold at least one element and outlive the walk. */
usc_walk usc_walk_over(const usc_tensor *t);

/** The `count` <= USC_JUDGE_BLOCK elements from flat index `first` on, as they are. */
const void *usc_walk_raw(const usc_walk *w, int64_t first, size_t count,
                         usc_walk_room *room);

/** The same as doubles, in `out` or where they lie. */
const double *usc_walk_load(const usc_walk *w, int64_t first, size_t count,
                            usc_walk_room *room, double *out);

/** Equal dims of `t` and `like`; else USC_E_SHAPE naming `what` and the axis. */
usc_status usc_walk_check_dims(const char *what, const usc_tensor *t,
                               const usc_tensor *like, usc_error *err);

#endif
