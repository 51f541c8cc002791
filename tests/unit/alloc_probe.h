// SPDX-License-Identifier: Apache-2.0
// An allocator for tests: counts live bytes and requests, makes the n-th request fail,
// and checks that the sizes given back are the sizes handed out.
//
//     alloc_probe probe;
//     thing *t = thing_create(alloc_probe_bind(&probe, 3));   the third request fails
//     thing_free(t);
//     assert_int_equal(probe.live_bytes, 0);
//     assert_int_equal(probe.n_wrong_sizes, 0);
#ifndef USC_TESTS_ALLOC_PROBE_H
#define USC_TESTS_ALLOC_PROBE_H

#include <ulpscope/alloc.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct alloc_probe {
    usc_alloc alloc;          /* pass its address; set by alloc_probe_bind() */
    int fail_at;              /* 1: the first request fails, and so on; 0: none does */
    bool fail_after;          /* whether all requests behind fail_at fail too */
    atomic_int n_requests;    /* allocations and growths asked for so far */
    atomic_int n_wrong_sizes; /* old_size that is not the size of the block */
    atomic_llong live_bytes;  /* handed out and not yet given back */
} alloc_probe;

/* Each block remembers its size in front of it. */
enum { ALLOC_PROBE_HEADER = 64 };

static inline void alloc_probe_store_size(unsigned char *block, size_t size)
{
    memcpy(block, &size, sizeof size);
}

static inline size_t alloc_probe_load_size(const unsigned char *block)
{
    size_t size;
    memcpy(&size, block, sizeof size);
    return size;
}

static inline bool alloc_probe_refuses(alloc_probe *probe)
{
    const int i_request = atomic_fetch_add(&probe->n_requests, 1) + 1;
    if (probe->fail_at == 0) return false;
    return probe->fail_after ? i_request >= probe->fail_at : i_request == probe->fail_at;
}

static inline void *alloc_probe_resize(void *ctx, void *ptr, size_t old_size,
                                       size_t new_size)
{
    alloc_probe *probe = ctx;
    unsigned char *block = ptr != NULL ? (unsigned char *)ptr - ALLOC_PROBE_HEADER : NULL;
    const size_t held = block != NULL ? alloc_probe_load_size(block) : 0;
    if (held != old_size) atomic_fetch_add(&probe->n_wrong_sizes, 1);
    if (new_size == 0) {
        atomic_fetch_sub(&probe->live_bytes, (long long)held);
        free(block);
        return NULL;
    }
    if (alloc_probe_refuses(probe)) return NULL;
    unsigned char *fresh = malloc(ALLOC_PROBE_HEADER + new_size);
    if (fresh == NULL) return NULL;
    memset(fresh + ALLOC_PROBE_HEADER, 0xA5, new_size); /* nothing may rely on zeros */
    alloc_probe_store_size(fresh, new_size);
    if (block != NULL)
        memcpy(fresh + ALLOC_PROBE_HEADER, ptr, held < new_size ? held : new_size);
    free(block);
    atomic_fetch_add(&probe->live_bytes, (long long)new_size - (long long)held);
    return fresh + ALLOC_PROBE_HEADER;
}

/** Starts counting from zero; request `fail_at` fails (0: none). */
static inline const usc_alloc *alloc_probe_bind(alloc_probe *probe, int fail_at)
{
    probe->alloc = (usc_alloc){.resize = alloc_probe_resize, .ctx = probe};
    probe->fail_at = fail_at;
    probe->fail_after = false;
    atomic_init(&probe->n_requests, 0);
    atomic_init(&probe->n_wrong_sizes, 0);
    atomic_init(&probe->live_bytes, 0);
    return &probe->alloc;
}

#endif
