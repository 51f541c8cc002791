// SPDX-License-Identifier: Apache-2.0
// Memory comes from an allocator that the caller passes at creation; sizes come back when
// memory is returned, so that tests count bytes and make the n-th request fail.
//
// Threads: an allocator may be asked from any thread that uses what was made with it; a
//          capture session has a thread of its own.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_ALLOC_H
#define ULPSCOPE_ALLOC_H

#include <ulpscope/api.h>

USC_BEGIN_DECLS

typedef struct usc_alloc {
    /* old_size 0 and ptr NULL: allocate; new_size 0: free, returns NULL; else resize.
     * NULL for new_size > 0 means no memory: ptr stays valid then. */
    void *(*resize)(void *ctx, void *ptr, size_t old_size, size_t new_size);
    void *ctx;
} usc_alloc;

/** The C library's allocator; what a NULL `alloc` argument means everywhere. */
USC_API extern const usc_alloc usc_libc_alloc;

USC_END_DECLS
#endif
