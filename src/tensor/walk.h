// SPDX-License-Identifier: Apache-2.0
// The one walk over the elements of a strided view, and blocks of it gathered.
#ifndef USC_TENSOR_WALK_H
#define USC_TENSOR_WALK_H

#include <ulpscope/tensor.h>

/* A view with its axes merged as far as they go. */
typedef struct usc_walk {
    const unsigned char *base; /* the first element of the walk */
    int64_t n;                 /* elements walked */
    int64_t repeat;            /* how often each counts (broadcast axes left out) */
    usc_dtype dtype;
    size_t size; /* bytes of an element */
    int ndim;
    int64_t sizes[USC_MAX_DIMS];
    int64_t strides[USC_MAX_DIMS]; /* in bytes */
} usc_walk;

/**
 * Prepares a walk over `t`: row-major where `row_major`, else in memory order (falling
 * strides, from the lowest address) with broadcast axes left out.
 *
 * Errors:  USC_E_SHAPE and USC_E_RANGE as usc_tensor_numel() and usc_tensor_extent().
 */
USC_NODISCARD usc_status usc_walk_begin(const usc_tensor *t, bool row_major,
                                        usc_walk *out, usc_error *err);

/** A row-major walk over a tensor that was checked before. */
usc_walk usc_walk_over(const usc_tensor *t);

/** Sizes of the last two axes in the order of the walk that usc_walk_begin would make;
 * 1 where there is none. The view was checked before. */
void usc_walk_matrix(const usc_tensor *t, bool row_major, int64_t *rows,
                     int64_t *columns);

/** Whether the elements of the walk lie one behind the other from `base`. */
bool usc_walk_dense(const usc_walk *walk);

/** Copies elements [start, start + n) of the walk to `dst`. */
void usc_walk_gather(const usc_walk *walk, int64_t start, size_t n, void *dst);

/** Equal dims of `t` and `like`; else USC_E_SHAPE naming `what` and the axis. */
USC_NODISCARD usc_status usc_walk_check_dims(const char *what, const usc_tensor *t,
                                             const usc_tensor *like, usc_error *err);

#endif
