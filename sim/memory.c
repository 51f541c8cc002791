// SPDX-License-Identifier: Apache-2.0
// Device memory as its users see it: blocks that are inaccessible unless a kernel has
// opened them, with counters, limits and switches. Neighbours: blocks.h names them.
#include "blocks.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALIGNMENT ((size_t)64)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static device_state devices[USC_SIM_MOST_DEVICES];
static bool protecting = true;
static usc_sim_guard guard = USC_SIM_GUARD_STRICT;
static size_t memory_size;

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
    /* Handlers run last first, and this lock is to be taken before the queues'. */
    usc_sim_lock_once();
    /* A child made while another thread held the lock must still be able to take it. */
    pthread_atfork(take_lock, drop_lock, drop_lock);
    memory_size = (size_t)sysconf(_SC_PHYS_PAGES) * usc_sim_page_size();
    usc_sim_violation_watch();
}

void usc_sim_memory_lock(void)
{
    pthread_once(&once, set_up);
    take_lock();
}

void usc_sim_memory_unlock(void)
{
    drop_lock();
}

device_state *usc_sim_device(int device)
{
    return &devices[device];
}

bool usc_sim_protecting(void)
{
    return protecting && guard != USC_SIM_GUARD_OPEN;
}

usc_sim_guard usc_sim_guard_now(void)
{
    return guard;
}

static bool exists(int device)
{
    return device >= 0 && device < usc_sim_device_count();
}

/* ---- blocks --------------------------------------------------------------------- */

static block *find_live(const void *address)
{
    block *b = usc_sim_block_of(address);
    return b != NULL && (b->live || b->n_pins > 0) ? b : NULL;
}

static void hand_out(block *b, size_t size)
{
    usc_sim_stats *s = &devices[b->segment->device].stats;
    /* A whole block's last byte lies within the alignment of the guard page. */
    b->user = b->base;
    if (b->segment->whole) b->user += (b->size - size) & ~(ALIGNMENT - 1);
    b->asked = size;
    b->live = true;
    /* Kernels that were launched on it before are still to find it as they left it. */
    b->fresh = b->n_pins == 0 && !b->segment->theirs;
    b->zoned = b->segment->theirs; /* by who made it */
    b->allocated = usc_sim_get_label();
    b->opened = b->freed = "";
    b->opener = NULL;
    (void)usc_sim_block_sync(b, 0, 0);
    if (b->segment->shared_fd >= 0 && b->fresh) usc_sim_guard_fresh(b);
    s->n_allocs++;
    s->n_live++;
    s->allocated_size += (int64_t)b->size;
    s->requested_size += (int64_t)size;
    if (s->allocated_size > s->peak_size) s->peak_size = s->allocated_size;
    usc_sim_history_note(USC_SIM_ACTION_ALLOC,
                         (usc_sim_stream){b->segment->device, b->segment->stream},
                         b->user, size);
}

usc_status usc_sim_malloc_on(usc_sim_stream stream, size_t size, void **out,
                             usc_error *err)
{
    *out = NULL;
    if (!exists(stream.device))
        return usc_error_set(err, USC_E_ARG, -1, "sim: there is no device %d",
                             stream.device);
    if (!usc_sim_stream_exists(stream))
        return usc_error_set(err, USC_E_ARG, -1, "sim:%d has no stream %lld",
                             stream.device, (long long)stream.id);
    if (size > RANGE_SIZE / 2)
        return usc_error_set(err, USC_E_RANGE, -1,
                             "sim out of memory. Tried to allocate %zu bytes. sim:%d has "
                             "addresses for %zu at most.",
                             size, stream.device, RANGE_SIZE / 2);
    if (size == 0) return USC_OK;
    block *b;
    usc_sim_memory_lock();
    const usc_status st = usc_sim_pool_take(stream, size, &b, err);
    if (st == USC_OK) {
        hand_out(b, size);
        *out = b->user;
    }
    drop_lock();
    return st;
}

usc_status usc_sim_malloc(int device, size_t size, void **out, usc_error *err)
{
    return usc_sim_malloc_on(usc_sim_stream_current(device), size, out, err);
}

void usc_sim_free(void *address)
{
    if (address == NULL) return;
    usc_sim_memory_lock();
    block *b = find_live(address);
    if (b != NULL && b->live && b->user == address) {
        usc_sim_stats *s = &devices[b->segment->device].stats;
        b->live = false;
        b->freed = usc_sim_get_label();
        usc_sim_keep_drop(b);
        if (b->n_pins == 0)
            (void)usc_sim_block_sync(b, (int)-b->n_readers, (int)-b->n_writers);
        s->n_live--;
        s->allocated_size -= (int64_t)b->size;
        s->requested_size -= (int64_t)b->asked;
        usc_sim_pool_give(b);
    }
    drop_lock();
}

void usc_sim_empty_cache(void)
{
    usc_sim_memory_lock();
    for (int i = 0; i < USC_SIM_MOST_DEVICES; i++)
        usc_sim_pool_collect(&devices[i]);
    drop_lock();
}

usc_status usc_sim_record_stream(const void *address, usc_sim_stream stream,
                                 usc_error *err)
{
    if (!usc_sim_stream_exists(stream))
        return usc_error_set(err, USC_E_ARG, -1, "sim:%d has no stream %lld",
                             stream.device, (long long)stream.id);
    if (usc_sim_fault_early("sim::record_stream", stream.id)) return USC_OK;
    use *u = malloc(sizeof *u);
    if (u == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "sim: no memory to note a stream");
    *u = (use){.stream = stream};
    usc_sim_memory_lock();
    block *b = find_live(address);
    bool there = b == NULL ||
                 (b->segment->device == stream.device && b->segment->stream == stream.id);
    for (use *have = b != NULL ? b->uses : NULL; have != NULL && !there;
         have = have->next)
        there = have->stream.device == stream.device && have->stream.id == stream.id;
    if (!there) {
        u->next = b->uses;
        b->uses = u;
    }
    drop_lock();
    if (there) free(u);
    return b != NULL ? USC_OK
                     : usc_error_set(err, USC_E_ARG, -1,
                                     "sim: %p is not live device memory", address);
}

/* ---- opening -------------------------------------------------------------------- */

static void count(block *b, usc_sim_access access, int by)
{
    if (access == USC_SIM_WRITE)
        usc_sim_block_count(b, 0, by);
    else
        usc_sim_block_count(b, by, 0);
}

/* Once all are counted, so that pages that they share change once. */
static bool open_counted(const usc_sim_opening *all, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        block *b = find_live(all[i].address);
        if (b == NULL) continue; /* NULL */
        if (!usc_sim_block_protect(b)) return false;
        if (b->fresh) usc_sim_guard_fresh(b); /* open already, if to be written */
        b->opened = usc_sim_get_label();
        b->opener = usc_sim_launch_now();
        devices[b->segment->device].stats.n_opens++;
    }
    return true;
}

/* How many of them are live, from the first on, and counted. */
static size_t count_all(const usc_sim_opening *all, size_t n)
{
    size_t i = 0;
    for (; i < n; i++) {
        if (all[i].address == NULL) continue;
        block *b = find_live(all[i].address);
        if (b == NULL) break;
        count(b, all[i].access, 1);
    }
    return i;
}

static void uncount(const usc_sim_opening *all, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        block *b = find_live(all[i].address);
        if (b == NULL) continue;
        const bool writes = all[i].access == USC_SIM_WRITE;
        if (writes ? b->n_writers > 0 : b->n_readers > 0) {
            usc_sim_keep(b);
            count(b, all[i].access, -1);
        }
        if (b->opener == usc_sim_launch_now()) b->opener = NULL;
    }
    for (size_t i = 0; i < n; i++) {
        block *b = find_live(all[i].address);
        if (b != NULL) (void)usc_sim_block_protect(b);
    }
}

usc_status usc_sim_open_all(const usc_sim_opening *all, size_t n, usc_error *err)
{
    usc_sim_memory_lock();
    const size_t n_counted = count_all(all, n);
    const bool opened = n_counted == n && open_counted(all, n);
    const int why = errno;
    if (!opened) uncount(all, n_counted);
    drop_lock();
    if (n_counted < n)
        return usc_error_set(err, USC_E_ARG, -1, "sim: %p is not live device memory",
                             all[n_counted].address);
    if (!opened)
        return usc_error_set(err, USC_E_IO, -1, "sim: mprotect: %s", strerror(why));
    return USC_OK;
}

void usc_sim_close_all(const usc_sim_opening *all, size_t n)
{
    usc_sim_memory_lock();
    for (size_t i = 0; i < n; i++) {
        block *b = all[i].access == USC_SIM_WRITE ? find_live(all[i].address) : NULL;
        if (b != NULL && b->n_writers == 1) usc_sim_guard_check(b);
    }
    uncount(all, n);
    drop_lock();
}

usc_status usc_sim_open(const void *address, usc_sim_access access, usc_error *err)
{
    const usc_sim_opening one = {address, access};
    return usc_sim_open_all(&one, 1, err);
}

void usc_sim_close(const void *address, usc_sim_access access)
{
    const usc_sim_opening one = {address, access};
    usc_sim_close_all(&one, 1);
}

void usc_sim_pin(const void *address)
{
    usc_sim_memory_lock();
    block *b = find_live(address);
    if (b != NULL) b->n_pins++;
    drop_lock();
}

void usc_sim_unpin(const void *address)
{
    usc_sim_memory_lock();
    block *b = find_live(address);
    if (b != NULL && b->n_pins > 0 && --b->n_pins == 0) usc_sim_pool_unpinned(b);
    drop_lock();
}

size_t usc_sim_size_of(const void *address)
{
    usc_sim_memory_lock();
    const block *b = find_live(address);
    const size_t size = b != NULL && b->live ? b->asked : 0;
    drop_lock();
    return size;
}

int usc_sim_device_of(const void *address)
{
    const uintptr_t a = (uintptr_t)address;
    if (a < RANGE_BASE || a - RANGE_BASE >= USC_SIM_MOST_DEVICES * RANGE_SIZE) return -1;
    return (int)((a - RANGE_BASE) / RANGE_SIZE);
}

/* ---- switches --------------------------------------------------------------------- */

static void sync_all(void)
{
    for (int i = 0; i < USC_SIM_MOST_DEVICES; i++)
        for (segment *s = devices[i].segments; s != NULL; s = s->next)
            usc_sim_segment_sync(s);
}

void usc_sim_set_protection(bool on)
{
    usc_sim_memory_lock();
    protecting = on;
    sync_all();
    drop_lock();
}

void usc_sim_set_guard(usc_sim_guard wanted)
{
    usc_sim_memory_lock();
    usc_sim_keep_drop_all();
    guard = wanted;
    sync_all();
    drop_lock();
}

usc_sim_guard usc_sim_get_guard(void)
{
    usc_sim_memory_lock();
    const usc_sim_guard now = guard;
    drop_lock();
    return now;
}

/* ---- how much --------------------------------------------------------------------- */

void usc_sim_set_memory_size(size_t size)
{
    usc_sim_memory_lock();
    memory_size = size > 0 ? size : (size_t)sysconf(_SC_PHYS_PAGES) * usc_sim_page_size();
    drop_lock();
}

void usc_sim_room(int device, size_t *n_free, size_t *total)
{
    const device_state *d = &devices[device];
    const double fraction = d->limited ? d->fraction : 1;
    const size_t limit = (size_t)((double)memory_size * fraction);
    const size_t reserved = (size_t)d->stats.reserved_size;
    *total = memory_size;
    *n_free = limit > reserved ? limit - reserved : 0;
}

void usc_sim_memory_info(int device, size_t *n_free, size_t *total)
{
    *n_free = *total = 0;
    if (!exists(device)) return;
    usc_sim_memory_lock();
    usc_sim_room(device, n_free, total);
    drop_lock();
}

usc_status usc_sim_set_memory_fraction(int device, double fraction, usc_error *err)
{
    if (!exists(device))
        return usc_error_set(err, USC_E_ARG, -1, "sim: there is no device %d", device);
    if (!(fraction >= 0 && fraction <= 1))
        return usc_error_set(err, USC_E_RANGE, -1,
                             "sim: a fraction of memory of %g; it is in 0 to 1",
                             fraction);
    usc_sim_memory_lock();
    devices[device].limited = true;
    devices[device].fraction = fraction;
    drop_lock();
    return USC_OK;
}

usc_sim_stats usc_sim_memory_stats(int device)
{
    usc_sim_stats s = {0};
    if (!exists(device)) return s;
    usc_sim_memory_lock();
    s = devices[device].stats;
    drop_lock();
    return s;
}

void usc_sim_wait(int device)
{
    if (!exists(device)) return;
    usc_sim_memory_lock();
    devices[device].stats.n_waits++;
    drop_lock();
}

void usc_sim_reset_peak(int device)
{
    if (!exists(device)) return;
    usc_sim_memory_lock();
    usc_sim_stats *s = &devices[device].stats;
    s->peak_size = s->allocated_size;
    s->peak_reserved = s->reserved_size;
    drop_lock();
}
