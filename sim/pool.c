// SPDX-License-Identifier: Apache-2.0
// Which block a request gets. A strict guard: a mapping of its size class, whole. Others:
// a piece of a larger mapping, which is split, and joined again with free neighbours.
// Either way what was freed on a stream comes back on that stream alone, until what is
// cached is given back to the device.
#include "blocks.h"

#include <stdlib.h>

#define MIB ((size_t)1 << 20)
#define SMALL_SIZE MIB
#define SMALL_SEGMENT (2 * MIB)
#define LARGE_SEGMENT (20 * MIB) /* the most, for blocks that are smaller */
#define LEAST_LARGE_SEGMENT (8 * MIB)
#define CACHE_LEAST (8 * MIB) /* of freed whole blocks is kept on a device in each case */

/* Rounds a count up to its class: three bits below the leading one. */
static size_t class_ceiling(size_t n, size_t *i_class)
{
    unsigned shift = 0;
    while ((n >> shift) > 15)
        shift++;
    size_t top = (n + ((size_t)1 << shift) - 1) >> shift;
    if (top == 16) {
        top = 8;
        shift++;
    }
    *i_class = 8 * (size_t)shift + top;
    return top << shift;
}

/* The largest class that is not above a count. */
static size_t class_floor(size_t n)
{
    unsigned shift = 0;
    while ((n >> shift) > 15)
        shift++;
    return 8 * (size_t)shift + (n >> shift);
}

static size_t grain_of(bool small)
{
    return small ? UNIT : usc_sim_page_size();
}

/* ---- lists of free blocks ---------------------------------------------------------- */

static block **list_of(const block *b)
{
    const segment *s = b->segment;
    device_state *d = usc_sim_device(s->device);
    const size_t i_class = class_floor(b->size / grain_of(s->small));
    if (s->stream < 0) return s->whole ? &d->nobodys[i_class] : NULL;
    return &d->free_lists[s->stream][s->small][i_class];
}

static void put(block *b)
{
    block **list = list_of(b);
    if (list == NULL) return;
    b->prev_free = NULL;
    b->next_free = *list;
    if (*list != NULL) (*list)->prev_free = b;
    *list = b;
}

static void take_out(block *b)
{
    block **list = list_of(b);
    if (list == NULL) return;
    if (b->prev_free != NULL)
        b->prev_free->next_free = b->next_free;
    else
        *list = b->next_free;
    if (b->next_free != NULL) b->next_free->prev_free = b->prev_free;
    b->prev_free = b->next_free = NULL;
}

static bool is_free(const block *b)
{
    return b != NULL && !b->live && !b->waits && b->n_pins == 0;
}

/* ---- segments ------------------------------------------------------------------------ */

static usc_sim_stream stream_of(const segment *s)
{
    return (usc_sim_stream){s->device, s->stream};
}

static void note_segment(usc_sim_action action, const segment *s)
{
    usc_sim_history_note(action, stream_of(s), s->base, s->size);
}

static void note_block(usc_sim_action action, const block *b)
{
    usc_sim_history_note(action, stream_of(b->segment), b->user, b->asked);
}

static void give_memory(segment *s, int64_t stream)
{
    device_state *d = usc_sim_device(s->device);
    s->stream = stream;
    s->resident = true;
    d->stats.n_segments++;
    d->stats.reserved_size += (int64_t)s->size;
    if (d->stats.reserved_size > d->stats.peak_reserved)
        d->stats.peak_reserved = d->stats.reserved_size;
    note_segment(USC_SIM_ACTION_SEGMENT_ALLOC, s);
    usc_sim_segment_sync(s);
}

static void take_memory(segment *s)
{
    device_state *d = usc_sim_device(s->device);
    take_out(s->first);
    note_segment(USC_SIM_ACTION_SEGMENT_FREE, s);
    s->stream = -1;
    d->stats.n_segments--;
    d->stats.reserved_size -= (int64_t)s->size;
    usc_sim_segment_drop_memory(s);
    put(s->first);
}

static bool is_all_free(const segment *s)
{
    return s->resident && s->first->next == NULL && is_free(s->first);
}

/* What is free here may still be in use by what its stream has to run. */
static bool is_idle(const segment *s)
{
    return usc_sim_queue_passed(stream_of(s), usc_sim_queue_ticket(stream_of(s)));
}

static bool has_room(int device, size_t size)
{
    size_t n_free, total;
    usc_sim_room(device, &n_free, &total);
    return size <= n_free;
}

/* ---- frees that other streams hold up -------------------------------------------------- */

static bool all_passed(const block *b)
{
    for (const use *u = b->uses; u != NULL; u = u->next)
        if (!usc_sim_queue_passed(u->stream, u->ticket)) return false;
    return true;
}

static block *join(block *b, block *behind)
{
    segment *s = b->segment;
    b->size += behind->size;
    b->next = behind->next;
    if (b->next != NULL) b->next->prev = b;
    if (s->small) s->units[(size_t)(behind->base - s->base) / UNIT] = NULL;
    free(behind);
    return b;
}

/* A block that a launched kernel holds stays as it is until that lets go of it. */
static block *put_joined(block *b)
{
    if (!b->segment->whole && b->n_pins == 0) {
        usc_sim_keep_drop(b);
        if (is_free(b->next)) {
            take_out(b->next);
            b = join(b, b->next);
        }
        if (is_free(b->prev)) {
            take_out(b->prev);
            b = join(b->prev, b);
        }
    }
    put(b);
    return b;
}

/* What other processes hold, too, is not handed out again. */
static void give_back_shared(block *b)
{
    if (b->n_pins > 0) return; /* usc_sim_pool_unpinned() comes here */
    put(b);
    take_memory(b->segment);
}

void usc_sim_pool_unpinned(block *b)
{
    if (!is_free(b)) return;
    if (b->segment->shared_fd >= 0) {
        give_back_shared(b);
        return;
    }
    take_out(b);
    (void)put_joined(b);
}

/* What is kept in freed whole blocks: a fifth of the most that was ever allocated, so that
 * what is reserved stays near it. */
static bool keeps_too_much(const device_state *d)
{
    const int64_t cached = d->stats.reserved_size - d->stats.allocated_size,
                  limit = d->stats.peak_size / 5;
    return cached > (limit > (int64_t)CACHE_LEAST ? limit : (int64_t)CACHE_LEAST);
}

static void complete(block *b)
{
    device_state *d = usc_sim_device(b->segment->device);
    note_block(USC_SIM_ACTION_FREE_COMPLETED, b);
    while (b->uses != NULL) {
        use *u = b->uses;
        b->uses = u->next;
        free(u);
    }
    b->waits = false;
    if (b->segment->shared_fd >= 0) {
        give_back_shared(b);
        return;
    }
    b = put_joined(b);
    if (b->segment->whole && keeps_too_much(d) && is_all_free(b->segment) &&
        is_idle(b->segment))
        take_memory(b->segment);
}

static void complete_what_passed(device_state *d)
{
    block **link = &d->waiting;
    while (*link != NULL) {
        block *b = *link;
        if (!all_passed(b)) {
            link = &b->next_free;
            continue;
        }
        *link = b->next_free;
        b->next_free = NULL;
        d->stats.waiting_size -= (int64_t)b->size;
        complete(b);
    }
}

void usc_sim_pool_collect(device_state *d)
{
    complete_what_passed(d);
    for (segment *s = d->segments; s != NULL; s = s->next)
        if (is_all_free(s) && is_idle(s)) take_memory(s);
}

void usc_sim_pool_give(block *b)
{
    device_state *d = usc_sim_device(b->segment->device);
    for (use *u = b->uses; u != NULL; u = u->next)
        u->ticket = usc_sim_queue_ticket(u->stream);
    note_block(USC_SIM_ACTION_FREE_REQUESTED, b);
    if (all_passed(b)) {
        complete(b);
        return;
    }
    b->waits = true;
    b->next_free = d->waiting;
    d->waiting = b;
    d->stats.waiting_size += (int64_t)b->size;
}

/* ---- taking -------------------------------------------------------------------------- */

/* Leaves `size` bytes in `b`; the rest becomes a free block, where there is memory for
 * its description. */
static void split(block *b, size_t size)
{
    segment *s = b->segment;
    block *rest = malloc(sizeof *rest);
    if (rest == NULL) return;
    *rest = (block){.segment = s,
                    .base = b->base + size,
                    .size = b->size - size,
                    .prev = b,
                    .next = b->next,
                    .protection = b->protection};
    if (rest->next != NULL) rest->next->prev = rest;
    b->next = rest;
    b->size = size;
    if (s->small) s->units[(size_t)(rest->base - s->base) / UNIT] = rest;
    put(rest);
}

static block *take_cached(usc_sim_stream stream, size_t i_class, bool small, bool whole)
{
    block **lists = usc_sim_device(stream.device)->free_lists[stream.id][small];
    const size_t end = whole ? i_class + 1 : N_CLASSES;
    for (size_t i = i_class; i < end; i++)
        for (block *b = lists[i]; b != NULL; b = b->next_free)
            if (b->segment->whole == whole) {
                take_out(b);
                return b;
            }
    return NULL;
}

/* Addresses whose memory was given back, before fresh ones. */
static segment *take_nobodys(device_state *d, size_t size, bool small, bool whole)
{
    size_t i_class;
    (void)class_ceiling(size / usc_sim_page_size(), &i_class);
    if (whole) {
        block *b = d->nobodys[i_class];
        if (b != NULL) take_out(b);
        return b != NULL ? b->segment : NULL;
    }
    for (segment *s = d->segments; s != NULL; s = s->next)
        if (s->stream < 0 && !s->whole && s->small == small && s->size == size) return s;
    return NULL;
}

/* A segment for large blocks has room for some of them, but is no more than an eighth of
 * what is reserved already: what nobody asks for stays little. */
static size_t large_segment(const device_state *d, size_t size)
{
    size_t needed = (size_t)d->stats.reserved_size / 8;
    if (needed > LARGE_SEGMENT) needed = LARGE_SEGMENT;
    if (needed < LEAST_LARGE_SEGMENT) needed = LEAST_LARGE_SEGMENT;
    if (needed < size) needed = size;
    return (needed + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
}

static block *take_fresh(usc_sim_stream stream, size_t size, bool small, bool whole)
{
    device_state *d = usc_sim_device(stream.device);
    size_t needed = size;
    if (!whole) needed = small ? SMALL_SEGMENT : large_segment(d, size);
    if (!has_room(stream.device, needed)) {
        usc_sim_pool_collect(d);
        d->stats.n_retries++;
        if (!has_room(stream.device, needed)) return NULL;
    }
    segment *s = take_nobodys(d, needed, small, whole);
    if (s == NULL) s = usc_sim_segment_map(stream.device, needed, small);
    if (s == NULL) return NULL;
    s->whole = whole;
    give_memory(s, stream.id);
    return s->first;
}

static usc_status refuse(usc_sim_stream stream, size_t size, usc_error *err)
{
    usc_sim_stats *s = &usc_sim_device(stream.device)->stats;
    size_t n_free, total;
    const double mib = (double)MIB;
    usc_sim_room(stream.device, &n_free, &total);
    s->n_ooms++;
    usc_sim_history_note(USC_SIM_ACTION_OOM, stream, NULL, n_free);
    return usc_error_set(
        err, USC_E_NOMEM, -1,
        "sim out of memory. Tried to allocate %.2f MiB. sim:%d has a total capacity of "
        "%.2f MiB of which %.2f MiB is free. %.2f MiB is allocated, %.2f MiB is reserved "
        "but unallocated, %.2f MiB is freed but still used by other streams.",
        (double)size / mib, stream.device, (double)total / mib, (double)n_free / mib,
        (double)s->allocated_size / mib,
        (double)(s->reserved_size - s->allocated_size) / mib,
        (double)s->waiting_size / mib);
}

static usc_status back_by_file(block *b, int fd, usc_error *err)
{
    const usc_status st = usc_sim_share_back(b->segment, fd, err);
    if (st == USC_OK) return st;
    put(b);
    take_memory(b->segment);
    return st;
}

usc_status usc_sim_pool_take(usc_sim_stream stream, size_t size, block **out,
                             usc_error *err)
{
    int fd;
    device_state *d = usc_sim_device(stream.device);
    const bool shared = usc_sim_share_wanted(&fd);
    const bool whole = shared || usc_sim_guard_now() == USC_SIM_GUARD_STRICT;
    const bool small = !whole && size <= SMALL_SIZE;
    const size_t grain = grain_of(small);
    size_t i_class;
    const size_t rounded = class_ceiling((size + grain - 1) / grain, &i_class) * grain;
    if (d->waiting != NULL) complete_what_passed(d);

    block *b = shared ? NULL : take_cached(stream, i_class, small, whole);
    if (b == NULL) b = take_fresh(stream, rounded, small, whole);
    *out = b;
    if (b == NULL) return refuse(stream, size, err);
    if (shared) return back_by_file(b, fd, err);
    /* What a launched kernel still holds stays as large as it was. */
    const size_t rest = b->size - rounded;
    if (!whole && rest >= (small ? UNIT : MIB) && b->n_pins == 0) split(b, rounded);
    return USC_OK;
}
