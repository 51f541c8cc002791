// SPDX-License-Identifier: Apache-2.0
// The C library's allocator behind the interface of ulpscope/alloc.h.
#include <ulpscope/alloc.h>

#include <stdlib.h>

static void *libc_resize(void *ctx, void *ptr, size_t old_size, size_t new_size)
{
    (void)ctx;
    (void)old_size;
    if (new_size > 0) return realloc(ptr, new_size);
    free(ptr);
    return NULL;
}

const usc_alloc usc_libc_alloc = {.resize = libc_resize, .ctx = NULL};
