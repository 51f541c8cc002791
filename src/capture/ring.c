// SPDX-License-Identifier: Apache-2.0
// Byte ring with one reader; the rules stand in ring.h. Sending takes no lock: the lock
// serves threads that sleep.
#include "capture/ring.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define ALIGN 64 /* of messages and payloads: a cache line */
#define HUGE_PAGE ((int64_t)2 << 20)
#define SMALLEST ((int64_t)64 << 10)
/* Below this the reader is left asleep: waking it costs the sender some microseconds. */
#define WORTH_WAKING ((int64_t)1 << 20)

_Static_assert(sizeof(usc_ring_message) <= ALIGN, "header fits its line");

int64_t usc_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Never later than usc_clock_ns: what it stamps is made durable a little early. */
static int64_t coarse_clock_ns(void)
{
#ifdef CLOCK_MONOTONIC_COARSE
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
#else
    return usc_clock_ns();
#endif
}

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* A host that grants no 1 GiB gets a smaller ring rather than no capture. */
static bool take_memory(usc_ring *r, int64_t size)
{
    for (; size >= SMALLEST; size /= 2) {
        const int64_t align = size >= HUGE_PAGE ? HUGE_PAGE : 4096;
        const int64_t whole = round_up(size, align);
        const size_t raw_size = (size_t)(whole + align);
        r->raw = r->alloc->resize(r->alloc->ctx, NULL, 0, raw_size);
        if (r->raw == NULL) continue;
        r->raw_size = raw_size;
        const uintptr_t at = ((uintptr_t)r->raw + (uintptr_t)align - 1) /
                             (uintptr_t)align * (uintptr_t)align;
        r->memory = (unsigned char *)r->raw + (at - (uintptr_t)r->raw);
        r->size = whole;
        return true;
    }
    return false;
}

usc_status usc_ring_make(usc_ring *r, const usc_ring_options *options, usc_error *err)
{
    memset(r, 0, sizeof *r);
    r->alloc = options->alloc;
    const int64_t size = options->size < SMALLEST ? SMALLEST : options->size;
    if (!take_memory(r, size))
        return usc_error_set(err, USC_E_NOMEM, -1, "ring of %lld bytes: no memory",
                             (long long)size);
    r->limit_bytes = options->limit_bytes;
    r->limit_ns = options->limit_ns;
    /* Advice: a kernel without huge pages serves small ones. */
    if (r->size >= HUGE_PAGE) (void)madvise(r->memory, (size_t)r->size, MADV_HUGEPAGE);
    r->warm = options->warm < r->size ? options->warm : r->size;
#ifdef MADV_POPULATE_WRITE
    if (r->warm > 0) (void)madvise(r->memory, (size_t)r->warm, MADV_POPULATE_WRITE);
#endif

    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->more, &monotonic);
    pthread_cond_init(&r->space, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return USC_OK;
}

static void free_box(usc_ring *r, usc_ring_message *m)
{
    if (m->box != NULL) r->alloc->resize(r->alloc->ctx, m->box, (size_t)m->size, 0);
    m->box = NULL;
}

void usc_ring_free(usc_ring *r)
{
    if (r->raw == NULL) return;
    bool closed = false;
    usc_ring_end(r);
    for (usc_ring_message *m; (m = usc_ring_next(r, 0, &closed)) != NULL;)
        usc_ring_done(r, m);
    if (r->open != NULL) free_box(r, r->open);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->more);
    pthread_cond_destroy(&r->space);
    r->alloc->resize(r->alloc->ctx, r->raw, r->raw_size, 0);
    memset(r, 0, sizeof *r);
}

int64_t usc_ring_largest(const usc_ring *r)
{
    return r->size / 2 - ALIGN; /* so that a wrap and the message always fit together */
}

/* ---- sending ---- */

static bool has_room(usc_ring *r, int64_t need)
{
    return r->size - (atomic_load(&r->head) - atomic_load(&r->tail)) >= need;
}

static bool is_durable(usc_ring *r, int64_t sent)
{
    return atomic_load(&r->durable) >= sent;
}

static bool keeps_promise(usc_ring *r, int64_t size)
{
    if (atomic_load(&r->sent) + size - atomic_load(&r->durable) <= r->limit_bytes)
        return true;
    const int64_t oldest = atomic_load(&r->oldest);
    return oldest == 0 || usc_clock_ns() - oldest < r->limit_ns / 2;
}

static bool may_send(usc_ring *r, int64_t need)
{
    return has_room(r, need) && keeps_promise(r, need);
}

static bool is_drained(usc_ring *r, int64_t head)
{
    return atomic_load(&r->tail) >= head;
}

/* Sleeps until test(r, n); the reader broadcasts whenever a test may turn true. */
static void wait_for(usc_ring *r, bool (*test)(usc_ring *, int64_t), int64_t n)
{
    if (test(r, n)) return;
    pthread_mutex_lock(&r->lock);
    atomic_fetch_add(&r->n_waiters, 1);
    while (!test(r, n)) {
        r->hurry = true;
        pthread_cond_signal(&r->more);
        pthread_cond_wait(&r->space, &r->lock);
    }
    atomic_fetch_sub(&r->n_waiters, 1);
    pthread_mutex_unlock(&r->lock);
}

/* The same, on account of a call. */
static void hold_up(usc_ring *r, bool (*test)(usc_ring *, int64_t), int64_t n)
{
    if (test(r, n)) return;
    const int64_t start = usc_clock_ns();
    wait_for(r, test, n);
    atomic_fetch_add(&r->wait_ns, usc_clock_ns() - start);
}

static usc_ring_message *message_at(usc_ring *r, int64_t position)
{
    return (usc_ring_message *)(void *)(r->memory + position % r->size);
}

/* Bytes to leave unused before a message of `need`: up to the end of the memory where it
 * does not fit there, or where starting over saves touching new pages (each costs more
 * than the bytes that fit in it) because at least half of those in use are free again. */
static int64_t bytes_to_skip(usc_ring *r, int64_t need)
{
    const int64_t head = atomic_load(&r->head), i = head % r->size;
    if (i + need > r->size) return r->size - i;
    if (i + need <= r->warm) return 0;
    const int64_t tail = atomic_load(&r->tail), waiting = head - tail;
    if (waiting <= i / 2 && i - waiting >= need) return r->size - i;
    r->warm = i + need;
    return 0;
}

void *usc_ring_start(usc_ring *r, int64_t kind, int64_t size)
{
    if (r->open != NULL) free_box(r, r->open);
    r->open = NULL;
    void *box = NULL;
    if (size > usc_ring_largest(r)) {
        box = r->alloc->resize(r->alloc->ctx, NULL, 0, (size_t)size);
        if (box == NULL) return NULL;
    }
    const int64_t need = ALIGN + (box != NULL ? 0 : round_up(size, ALIGN));
    const int64_t skip = bytes_to_skip(r, need);
    hold_up(r, may_send, skip + need);
    if (skip > 0) {
        *message_at(r, atomic_load(&r->head)) = (usc_ring_message){
            .kind = USC_RING_WRAP, .advance = skip, .stamp = coarse_clock_ns()};
        atomic_fetch_add(&r->head, skip);
    }
    r->open = message_at(r, atomic_load(&r->head));
    *r->open =
        (usc_ring_message){.kind = kind, .advance = need, .size = size, .box = box};
    return usc_ring_payload(r->open);
}

void usc_ring_send(usc_ring *r, int64_t extra)
{
    usc_ring_message *m = r->open;
    r->open = NULL;
    m->weight = m->size + extra;
    m->stamp = coarse_clock_ns();
    const int64_t sent = atomic_load(&r->sent) + m->weight;
    const int64_t held = sent - atomic_load(&r->read);
    /* There is one sender at a time: no need to add in one go, which takes ten times as
     * long. */
    atomic_store_explicit(&r->sent, sent, memory_order_release);
    if (held > atomic_load(&r->peak))
        atomic_store_explicit(&r->peak, held, memory_order_relaxed);
    atomic_store_explicit(&r->head, atomic_load(&r->head) + m->advance,
                          memory_order_release);
    if (held < WORTH_WAKING) return;
    atomic_thread_fence(memory_order_seq_cst); /* the head before the question */
    if (atomic_load(&r->asleep)) {
        pthread_mutex_lock(&r->lock);
        pthread_cond_signal(&r->more);
        pthread_mutex_unlock(&r->lock);
    }
}

void usc_ring_drain(usc_ring *r)
{
    hold_up(r, is_drained, atomic_load(&r->head));
}

void usc_ring_flush(usc_ring *r)
{
    wait_for(r, is_durable, atomic_load(&r->sent));
}

void usc_ring_end(usc_ring *r)
{
    pthread_mutex_lock(&r->lock);
    r->closing = true;
    pthread_cond_signal(&r->more);
    pthread_mutex_unlock(&r->lock);
}

/* ---- reading ---- */

static void tell_waiters(usc_ring *r)
{
    if (atomic_load(&r->n_waiters) == 0) return;
    pthread_mutex_lock(&r->lock);
    pthread_cond_broadcast(&r->space);
    pthread_mutex_unlock(&r->lock);
}

static bool is_empty(usc_ring *r)
{
    return atomic_load(&r->head) == atomic_load(&r->tail);
}

/* Sleeps until something is there, somebody is in a hurry, or the time is over; returns
 * whether nothing more will come. */
static bool sleep_reader(usc_ring *r, int64_t wait_ns)
{
    const int64_t until = usc_clock_ns() + wait_ns;
    const struct timespec at = {.tv_sec = until / 1000000000,
                                .tv_nsec = until % 1000000000};
    pthread_mutex_lock(&r->lock);
    atomic_store(&r->asleep, true);
    if (is_empty(r) && !r->hurry && !r->closing && wait_ns > 0)
        pthread_cond_timedwait(&r->more, &r->lock, &at);
    atomic_store(&r->asleep, false);
    r->hurry = false; /* whoever still waits will say so again */
    const bool closed = r->closing && is_empty(r);
    pthread_mutex_unlock(&r->lock);
    return closed;
}

usc_ring_message *usc_ring_next(usc_ring *r, int64_t wait_ns, bool *closed)
{
    *closed = false;
    if (is_empty(r)) *closed = sleep_reader(r, wait_ns);
    while (!is_empty(r)) {
        usc_ring_message *m = message_at(r, atomic_load(&r->tail));
        if (m->kind != USC_RING_WRAP) {
            if (atomic_load(&r->oldest) == 0) atomic_store(&r->oldest, m->stamp);
            return m;
        }
        atomic_fetch_add(&r->tail, m->advance);
        tell_waiters(r);
    }
    return NULL;
}

void *usc_ring_payload(usc_ring_message *m)
{
    return m->box != NULL ? m->box : (unsigned char *)m + ALIGN;
}

void usc_ring_done(usc_ring *r, usc_ring_message *m)
{
    const int64_t advance = m->advance;
    const int64_t tail = atomic_load(&r->tail) + advance;
    atomic_store_explicit(&r->read, atomic_load(&r->read) + m->weight,
                          memory_order_release);
    free_box(r, m);
    atomic_store(&r->tail, tail);
    /* Not for every message: whoever waits for room would wake up in vain. */
    if (tail - r->told < r->size / 8 && !is_empty(r)) return;
    r->told = tail;
    tell_waiters(r);
}

static bool is_old(const usc_ring *r, int64_t stamp)
{
    return usc_clock_ns() - stamp >= r->limit_ns / 2;
}

bool usc_ring_due(usc_ring *r)
{
    const int64_t oldest = atomic_load(&r->oldest);
    if (oldest == 0) return false;
    /* Half of the promise, so that the work itself still fits into the other half. */
    if (atomic_load(&r->read) - atomic_load(&r->durable) >= r->limit_bytes / 2)
        return true;
    if (is_empty(r)) return atomic_load(&r->n_waiters) > 0 || is_old(r, oldest);
    /* To a reader that lags each message is old: one commit for each would never let it
     * catch up. */
    return is_old(r, oldest) && usc_clock_ns() - r->made_durable >= r->limit_ns / 4;
}

void usc_ring_durable(usc_ring *r)
{
    /* In this order: a sender that looks in between waits rather than sends. */
    atomic_store(&r->durable, atomic_load(&r->read));
    r->made_durable = usc_clock_ns();
    atomic_store(&r->oldest,
                 is_empty(r) ? 0 : message_at(r, atomic_load(&r->tail))->stamp);
    tell_waiters(r);
}
