// SPDX-License-Identifier: Apache-2.0
// Segments: mappings in a device's address range, each followed by a guard page, and who
// may touch their pages. A segment is never unmapped: a stale pointer into it must fault.
#include "blocks.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define LEAF_PAGES ((size_t)1 << 15)

size_t usc_sim_page_size(void)
{
    static size_t size;
    if (size == 0) size = (size_t)sysconf(_SC_PAGESIZE);
    return size;
}

/* ---- page table ---------------------------------------------------------------- */

static segment **page_slot(device_state *d, size_t i_page, bool create)
{
    if (d->leaves == NULL) {
        if (!create) return NULL;
        d->leaves =
            calloc(RANGE_SIZE / usc_sim_page_size() / LEAF_PAGES, sizeof *d->leaves);
        if (d->leaves == NULL) return NULL;
    }
    segment ***leaf = &d->leaves[i_page / LEAF_PAGES];
    if (*leaf == NULL && create) *leaf = calloc(LEAF_PAGES, sizeof **leaf);
    return *leaf != NULL ? *leaf + i_page % LEAF_PAGES : NULL;
}

/* All slots exist before the first is written, so a failure leaves none behind. */
static bool enter_pages(device_state *d, size_t first_page, segment *s)
{
    const size_t n = s->size / usc_sim_page_size();
    for (size_t i = 0; i < n; i++)
        if (page_slot(d, first_page + i, true) == NULL) return false;
    for (size_t i = 0; i < n; i++)
        *page_slot(d, first_page + i, true) = s;
    return true;
}

segment *usc_sim_segment_of(const void *address)
{
    const int device = usc_sim_device_of(address);
    if (device < 0) return NULL;
    const size_t offset = (uintptr_t)address - RANGE_BASE - (size_t)device * RANGE_SIZE;
    segment **slot =
        page_slot(usc_sim_device(device), offset / usc_sim_page_size(), false);
    return slot != NULL ? *slot : NULL;
}

block *usc_sim_block_of(const void *address)
{
    const segment *s = usc_sim_segment_of(address);
    if (s == NULL) return NULL;
    if (s->small) {
        size_t i = (size_t)((const char *)address - s->base) / UNIT;
        while (s->units[i] == NULL) /* the first unit has a block */
            i--;
        return s->units[i];
    }
    block *b = s->first;
    while (b->next != NULL && (const char *)address >= b->next->base)
        b = b->next;
    return b;
}

/* ---- mappings ------------------------------------------------------------------- */

/* Reserves `size` bytes and a guard page at the device's next free addresses; somebody
 * else's mapping inside our range is stepped over. NULL where there is no room. */
static char *reserve(int device, size_t size, size_t *first_page)
{
    device_state *d = usc_sim_device(device);
    const size_t page = usc_sim_page_size();
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    while (d->used + size + page <= RANGE_SIZE) {
        char *want = (char *)(RANGE_BASE + (size_t)device * RANGE_SIZE + d->used);
        *first_page = d->used / page;
        d->used += size + page;
        char *got = mmap(want, size + page, PROT_NONE, flags, -1, 0);
        if (got == want) return got;
        if (got != MAP_FAILED)
            munmap(got, size + page);
        else if (errno != EEXIST)
            return NULL;
    }
    return NULL;
}

static void free_parts(segment *s)
{
    if (s == NULL) return;
    free(s->units);
    free(s->pages);
    free(s->first);
    free(s);
}

static segment *make_parts(size_t size, bool small)
{
    segment *s = calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    s->first = calloc(1, sizeof *s->first);
    if (small) {
        s->units = calloc(size / UNIT, sizeof(block *));
        s->pages = calloc(size / usc_sim_page_size(), sizeof *s->pages);
    }
    if (s->first != NULL && (!small || (s->units != NULL && s->pages != NULL))) return s;
    free_parts(s);
    return NULL;
}

segment *usc_sim_segment_map(int device, size_t size, bool small)
{
    device_state *d = usc_sim_device(device);
    size_t first_page = 0;
    segment *s = make_parts(size, small);
    char *base = s != NULL ? reserve(device, size, &first_page) : NULL;
    if (base == NULL) goto failed;
    s->base = base;
    s->size = size;
    s->device = device;
    s->small = small;
    s->stream = s->shared_fd = -1;
    *s->first = (block){.segment = s, .base = base, .size = size};
    if (small) s->units[0] = s->first;
    if (!enter_pages(d, first_page, s)) goto failed;
    s->next = d->segments;
    d->segments = s;
    d->stats.n_maps++;
    return s;

failed:
    if (base != NULL) munmap(base, size + usc_sim_page_size());
    free_parts(s);
    return NULL;
}

/* ---- protection ------------------------------------------------------------------ */

static int wanted(int64_t n_readers, int64_t n_writers, bool open)
{
    if (n_writers > 0 || open) return PROT_READ | PROT_WRITE;
    if (n_readers == 0) return PROT_NONE;
    /* Pages are opened once for all that a kernel does, where they are not to be strict. */
    return usc_sim_guard_now() == USC_SIM_GUARD_STRICT ? PROT_READ
                                                       : PROT_READ | PROT_WRITE;
}

static bool protect(char *base, size_t size, int protection)
{
    return mprotect(base, size, protection) == 0;
}

static bool sync_whole(block *b)
{
    const bool open = b->live && !usc_sim_protecting();
    const int want = wanted(b->n_readers, b->n_writers, open);
    if (want == b->protection) return true;
    if (!protect(b->base, b->size, want)) return false;
    b->protection = want;
    return true;
}

/* Neighbouring pages that change alike change by one call. */
static bool sync_pages(segment *s, size_t from, size_t to)
{
    const size_t page = usc_sim_page_size();
    const bool open = s->resident && !usc_sim_protecting();
    bool fine = true;
    while (from < to) {
        page_use *p = &s->pages[from];
        const int want = wanted(p->n_readers, p->n_writers, open);
        size_t n = 0;
        while (from + n < to && p[n].protection != want &&
               wanted(p[n].n_readers, p[n].n_writers, open) == want)
            n++;
        const bool done = n == 0 || protect(s->base + from * page, n * page, want);
        for (size_t i = 0; done && i < n; i++)
            p[i].protection = want;
        fine = fine && done;
        from += n > 0 ? n : 1;
    }
    return fine;
}

static void pages_of(const block *b, size_t *from, size_t *to)
{
    const size_t page = usc_sim_page_size();
    const size_t first = (size_t)(b->base - b->segment->base);
    *from = first / page;
    *to = (first + b->size + page - 1) / page;
}

void usc_sim_block_count(block *b, int d_readers, int d_writers)
{
    size_t from, to;
    b->n_readers += d_readers;
    b->n_writers += d_writers;
    if (!b->segment->small) return;
    pages_of(b, &from, &to);
    for (size_t i = from; i < to; i++) {
        b->segment->pages[i].n_readers += d_readers;
        b->segment->pages[i].n_writers += d_writers;
    }
}

bool usc_sim_block_protect(block *b)
{
    size_t from, to;
    if (!b->segment->small) return sync_whole(b);
    pages_of(b, &from, &to);
    return sync_pages(b->segment, from, to);
}

bool usc_sim_block_sync(block *b, int d_readers, int d_writers)
{
    usc_sim_block_count(b, d_readers, d_writers);
    return usc_sim_block_protect(b);
}

void usc_sim_segment_sync(segment *s)
{
    if (s->small)
        (void)sync_pages(s, 0, s->size / usc_sim_page_size());
    else
        for (block *b = s->first; b != NULL; b = b->next)
            (void)sync_whole(b);
}

void usc_sim_segment_drop_memory(segment *s)
{
    s->resident = false;
    if (s->shared_fd >= 0) {
        usc_sim_share_drop(s);
        return;
    }
    usc_sim_segment_sync(s);
    madvise(s->base, s->size, MADV_DONTNEED);
}
