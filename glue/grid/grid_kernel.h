// SPDX-License-Identifier: Apache-2.0
// What kernels in C are written with (`kernel: c` of `ulpscope ops`): views of tensors, the
// memory of those that are written, and where an element lies. No header of torch.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ulpscope/status.h>
#include <ulpscope/tensor.h>

/** The memory of a tensor that the kernel is to write. */
static inline void *usc_kernel_data(const usc_tensor *t)
{
    return (void *)(uintptr_t)t->data;
}

/** The number of elements. */
static inline int64_t usc_kernel_numel(const usc_tensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++)
        n *= t->sizes[d];
    return n;
}

/** Where the i-th element in row-major order lies, in elements from the first. */
static inline int64_t usc_kernel_at(const usc_tensor *t, int64_t i)
{
    int64_t at = 0;
    for (int d = t->ndim - 1; d >= 0; d--) {
        at += i % t->sizes[d] * t->strides[d];
        i /= t->sizes[d];
    }
    return at;
}
