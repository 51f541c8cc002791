// SPDX-License-Identifier: Apache-2.0
// Statistics that the writer thread computed, kept for later views of the same bytes.
#ifndef USC_CAPTURE_WRITER_H
#define USC_CAPTURE_WRITER_H

#include <ulpscope/alloc.h>

typedef struct usc_stats_cache usc_stats_cache;

/** Makes an empty cache; NULL: no memory. */
usc_stats_cache *usc_stats_cache_make(const usc_alloc *alloc);

/** Frees it; NULL is allowed. */
void usc_stats_cache_free(usc_stats_cache *cache, const usc_alloc *alloc);

#endif
