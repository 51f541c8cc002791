// SPDX-License-Identifier: Apache-2.0
// Device memory: blocks of pages that are inaccessible unless a kernel has opened them,
// each followed by a guard page. Blocks are never unmapped: a freed one waits, closed, in
// the free list of its size class, because fresh mappings are what costs.
#include <ulpscope_sim/sim.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* One address range per device, far from where loaders and sanitizers put things. */
#define RANGE_BASE ((uintptr_t)0x300000000000)
#define RANGE_SIZE ((size_t)1 << 40)
#define ALIGNMENT ((size_t)64)
#define CACHE_LIMIT                                                                      \
    ((size_t)512 << 20) /* resident bytes kept in freed blocks, a device */

/* Size classes: 8 per power of two of the page count. */
#define N_CLASSES 320

/* Page number to block, in two levels. */
#define LEAF_PAGES ((size_t)1 << 15)

typedef struct block {
    char *base;
    size_t size; /* whole pages, without the guard page */
    char *user;  /* what the caller holds, while live */
    struct block *next_free;
    int64_t n_readers, n_writers, n_pins;
    int protection;
    int device;
    bool live, resident;
} block;

typedef struct device_state {
    size_t used; /* bytes of the address range handed out */
    block *free_list[N_CLASSES];
    size_t cached_size; /* resident bytes in free lists */
    block ***leaves;    /* NULL until used, as each leaf is */
    usc_sim_stats stats;
} device_state;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static device_state devices[USC_SIM_N_DEVICES];
static size_t page_size;
static bool protecting = true;

static void take_lock(void)
{
    pthread_mutex_lock(&lock);
}

static void drop_lock(void)
{
    pthread_mutex_unlock(&lock);
}

static void set_up(void)
{
    page_size = (size_t)sysconf(_SC_PAGESIZE);
    /* A child made while another thread held the lock must still be able to take it. */
    pthread_atfork(take_lock, drop_lock, drop_lock);
}

static void enter(void)
{
    pthread_once(&once, set_up);
    take_lock();
}

/* Rounds a page count up to its class: three bits below the leading one. */
static size_t class_pages(size_t n_pages, size_t *i_class)
{
    unsigned shift = 0;
    while ((n_pages >> shift) > 15)
        shift++;
    size_t top = (n_pages + ((size_t)1 << shift) - 1) >> shift;
    if (top == 16) {
        top = 8;
        shift++;
    }
    *i_class = 8 * (size_t)shift + top;
    return top << shift;
}

/* ---- page table ---------------------------------------------------------------- */

static block **page_slot(device_state *d, size_t i_page, bool create)
{
    if (d->leaves == NULL) {
        if (!create) return NULL;
        d->leaves = calloc(RANGE_SIZE / page_size / LEAF_PAGES, sizeof *d->leaves);
        if (d->leaves == NULL) return NULL;
    }
    block ***leaf = &d->leaves[i_page / LEAF_PAGES];
    if (*leaf == NULL && create) *leaf = calloc(LEAF_PAGES, sizeof **leaf);
    return *leaf != NULL ? *leaf + i_page % LEAF_PAGES : NULL;
}

static block *find(const void *address)
{
    const int device = usc_sim_device_of(address);
    if (device < 0) return NULL;
    const size_t offset = (uintptr_t)address - RANGE_BASE - (size_t)device * RANGE_SIZE;
    block **slot = page_slot(&devices[device], offset / page_size, false);
    return slot != NULL ? *slot : NULL;
}

static block *find_live(const void *address)
{
    block *b = find(address);
    return b != NULL && (b->live || b->n_pins > 0) ? b : NULL;
}

/* All slots exist before the first is written, so a failure leaves none behind. */
static bool enter_pages(device_state *d, size_t first_page, block *b)
{
    const size_t n = b->size / page_size;
    for (size_t i = 0; i < n; i++)
        if (page_slot(d, first_page + i, true) == NULL) return false;
    for (size_t i = 0; i < n; i++)
        *page_slot(d, first_page + i, true) = b;
    return true;
}

/* ---- blocks --------------------------------------------------------------------- */

/* Reserves `size` bytes and a guard page at the device's next free addresses; somebody
 * else's mapping inside our range is stepped over. NULL where there is no room. */
static char *reserve(int device, size_t size, size_t *first_page)
{
    device_state *d = &devices[device];
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    while (d->used + size + page_size <= RANGE_SIZE) {
        char *want = (char *)(RANGE_BASE + (size_t)device * RANGE_SIZE + d->used);
        *first_page = d->used / page_size;
        d->used += size + page_size;
        char *got = mmap(want, size + page_size, PROT_NONE, flags, -1, 0);
        if (got == want) return got;
        if (got != MAP_FAILED)
            munmap(got, size + page_size);
        else if (errno != EEXIST)
            return NULL;
    }
    return NULL;
}

static block *map_block(int device, size_t size)
{
    device_state *d = &devices[device];
    size_t first_page = 0;
    block *b = calloc(1, sizeof *b);
    char *base = b != NULL ? reserve(device, size, &first_page) : NULL;
    if (base == NULL) goto failed;
    *b = (block){.base = base, .size = size, .device = device, .protection = PROT_NONE};
    if (!enter_pages(d, first_page, b)) goto failed;
    d->stats.n_maps++;
    d->stats.reserved_size += (int64_t)size;
    return b;

failed:
    if (base != NULL) munmap(base, size + page_size);
    free(b);
    return NULL;
}

static bool sync_protection(block *b)
{
    int want = PROT_NONE;
    if (b->n_writers > 0 || (b->live && !protecting))
        want = PROT_READ | PROT_WRITE;
    else if (b->n_readers > 0)
        want = PROT_READ;
    if (want == b->protection) return true;
    if (mprotect(b->base, b->size, want) != 0) return false;
    b->protection = want;
    return true;
}

static block *take_block(int device, size_t size)
{
    device_state *d = &devices[device];
    size_t i_class;
    const size_t n_pages = class_pages((size + page_size - 1) / page_size, &i_class);
    block *b = d->free_list[i_class];
    if (b == NULL) return map_block(device, n_pages * page_size);
    d->free_list[i_class] = b->next_free;
    if (b->resident) d->cached_size -= b->size;
    return b;
}

static void hand_out(block *b, size_t size)
{
    usc_sim_stats *s = &devices[b->device].stats;
    /* The last byte lies within the alignment of the guard page. */
    b->user = b->base + ((b->size - size) & ~(ALIGNMENT - 1));
    b->live = b->resident = true;
    b->next_free = NULL;
    (void)sync_protection(b);
    s->n_allocs++;
    s->allocated_size += (int64_t)b->size;
    if (s->allocated_size > s->peak_size) s->peak_size = s->allocated_size;
}

usc_status usc_sim_malloc(int device, size_t size, void **out, usc_error *err)
{
    *out = NULL;
    if (device < 0 || device >= USC_SIM_N_DEVICES)
        return usc_error_set(err, USC_E_ARG, -1, "sim: there is no device %d", device);
    if (size > RANGE_SIZE / 2)
        return usc_error_set(err, USC_E_RANGE, -1, "sim:%d: %zu bytes asked, %zu at most",
                             device, size, RANGE_SIZE / 2);
    if (size == 0) return USC_OK;

    enter();
    block *b = take_block(device, size);
    if (b != NULL) {
        hand_out(b, size);
        *out = b->user;
    }
    drop_lock();
    if (*out == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "sim:%d: no memory for %zu bytes",
                             device, size);
    return USC_OK;
}

static void release_pages(block *b)
{
    if (b->resident) madvise(b->base, b->size, MADV_DONTNEED);
    b->resident = false;
}

void usc_sim_free(void *address)
{
    if (address == NULL) return;
    enter();
    block *b = find_live(address);
    if (b != NULL && b->live && b->user == address) {
        device_state *d = &devices[b->device];
        size_t i_class;
        (void)class_pages(b->size / page_size, &i_class);
        b->live = false;
        if (b->n_pins == 0) b->n_readers = b->n_writers = 0;
        (void)sync_protection(b);
        if (d->cached_size + b->size > CACHE_LIMIT)
            release_pages(b);
        else
            d->cached_size += b->size;
        b->next_free = d->free_list[i_class];
        d->free_list[i_class] = b;
        d->stats.allocated_size -= (int64_t)b->size;
    }
    drop_lock();
}

void usc_sim_empty_cache(void)
{
    enter();
    for (int i = 0; i < USC_SIM_N_DEVICES; i++) {
        for (int c = 0; c < N_CLASSES; c++)
            for (block *b = devices[i].free_list[c]; b != NULL; b = b->next_free)
                release_pages(b);
        devices[i].cached_size = 0;
    }
    drop_lock();
}

/* ---- opening -------------------------------------------------------------------- */

usc_status usc_sim_open(const void *address, usc_sim_access access, usc_error *err)
{
    if (address == NULL) return USC_OK;
    bool opened = false;
    enter();
    block *b = find_live(address);
    if (b != NULL) {
        int64_t *count = access == USC_SIM_WRITE ? &b->n_writers : &b->n_readers;
        ++*count;
        opened = sync_protection(b);
        if (!opened) --*count;
        devices[b->device].stats.n_opens++;
    }
    drop_lock();
    if (b == NULL)
        return usc_error_set(err, USC_E_ARG, -1, "sim: %p is not live device memory",
                             address);
    if (!opened)
        return usc_error_set(err, USC_E_IO, -1, "sim: mprotect: %s", strerror(errno));
    return USC_OK;
}

void usc_sim_close(const void *address, usc_sim_access access)
{
    if (address == NULL) return;
    enter();
    block *b = find_live(address);
    if (b != NULL) {
        int64_t *count = access == USC_SIM_WRITE ? &b->n_writers : &b->n_readers;
        if (*count > 0) --*count;
        (void)sync_protection(b);
    }
    drop_lock();
}

void usc_sim_pin(const void *address)
{
    enter();
    block *b = find_live(address);
    if (b != NULL) b->n_pins++;
    drop_lock();
}

void usc_sim_unpin(const void *address)
{
    enter();
    block *b = find_live(address);
    if (b != NULL && b->n_pins > 0) b->n_pins--;
    drop_lock();
}

int usc_sim_device_of(const void *address)
{
    const uintptr_t a = (uintptr_t)address;
    if (a < RANGE_BASE || a - RANGE_BASE >= USC_SIM_N_DEVICES * RANGE_SIZE) return -1;
    return (int)((a - RANGE_BASE) / RANGE_SIZE);
}

static void sync_device(device_state *d)
{
    if (d->leaves == NULL) return;
    for (size_t page = 0; page < d->used / page_size;) {
        block **slot = page_slot(d, page, false);
        block *b = slot != NULL ? *slot : NULL;
        if (b != NULL) (void)sync_protection(b);
        page += b != NULL ? b->size / page_size : 1;
    }
}

void usc_sim_set_protection(bool on)
{
    enter();
    protecting = on;
    for (int i = 0; i < USC_SIM_N_DEVICES; i++)
        sync_device(&devices[i]);
    drop_lock();
}

usc_sim_stats usc_sim_memory_stats(int device)
{
    usc_sim_stats s = {0};
    if (device < 0 || device >= USC_SIM_N_DEVICES) return s;
    enter();
    s = devices[device].stats;
    drop_lock();
    return s;
}

void usc_sim_wait(int device)
{
    if (device < 0 || device >= USC_SIM_N_DEVICES) return;
    enter();
    devices[device].stats.n_waits++;
    drop_lock();
}

void usc_sim_reset_peak(int device)
{
    if (device < 0 || device >= USC_SIM_N_DEVICES) return;
    enter();
    devices[device].stats.peak_size = devices[device].stats.allocated_size;
    drop_lock();
}
