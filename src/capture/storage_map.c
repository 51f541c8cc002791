// SPDX-License-Identifier: Apache-2.0
// Map from addresses to storages; see storage_map.h.
#include "capture/storage_map.h"

#include <string.h>

#define SWEEP_SLOTS 4

static uint64_t slot_index(const usc_storage_map *m, const void *address)
{
    /* Fibonacci hashing: addresses share their low bits. */
    const uint64_t h = (uint64_t)(uintptr_t)address * 0x9E3779B97F4A7C15u;
    return (h >> 20) & ((uint64_t)m->n_slots - 1);
}

static usc_storage **slot_for(const usc_storage_map *m, const void *address)
{
    uint64_t i = slot_index(m, address);
    while (m->slots[i] != NULL && m->slots[i]->address != address)
        i = (i + 1) & ((uint64_t)m->n_slots - 1);
    return &m->slots[i];
}

static bool is_alive(const usc_storage_map *m, const usc_storage *s)
{
    return m->hooks->alive == NULL || m->hooks->alive(m->hooks->ctx, s->held);
}

static void free_array(const usc_storage_map *m, void *array, int64_t n, size_t size)
{
    if (array != NULL) m->alloc->resize(m->alloc->ctx, array, (size_t)n * size, 0);
}

static void release(const usc_storage_map *m, usc_storage *s)
{
    if (s->held != NULL && m->hooks->release != NULL)
        m->hooks->release(m->hooks->ctx, s->held);
    s->held = NULL;
}

/* Frees and forgets all but the record and the lists that most storages have. */
static void empty(const usc_storage_map *m, usc_storage *s)
{
    usc_content_free(&s->content, m->alloc);
    free_array(m, s->parts, s->max_parts, sizeof *s->parts);
    free_array(m, s->stats, s->max_stats, sizeof *s->stats);
    *s = (usc_storage){.tensors = s->tensors,
                       .max_tensors = s->max_tensors,
                       .ranges = s->ranges,
                       .max_ranges = s->max_ranges};
}

static void free_storage(const usc_storage_map *m, usc_storage *s)
{
    release(m, s);
    empty(m, s);
    free_array(m, s->tensors, s->max_tensors, sizeof *s->tensors);
    free_array(m, s->ranges, s->max_ranges, sizeof *s->ranges);
    m->alloc->resize(m->alloc->ctx, s, sizeof *s, 0);
}

/* A record that was used before, or a new one; NULL: no memory. Most calls make a storage
 * that lives for a few calls only. */
static usc_storage *make_storage(usc_storage_map *m)
{
    if (m->spare == NULL) m->spare = atomic_exchange(&m->returned, NULL);
    usc_storage *s = m->spare;
    if (s != NULL) {
        m->spare = s->next_dead;
        s->next_dead = NULL;
        return s;
    }
    s = m->alloc->resize(m->alloc->ctx, NULL, 0, sizeof *s);
    if (s != NULL) *s = (usc_storage){0};
    return s;
}

usc_storage *usc_storage_find(usc_storage_map *m, void *address)
{
    if (m->n_slots == 0) return NULL;
    usc_storage *s = *slot_for(m, address);
    if (s == NULL || is_alive(m, s)) return s;
    usc_storage_forget(m, s);
    return NULL;
}

/* Moves all storages into `n_slots` new slots. */
static bool rebuild(usc_storage_map *m, int64_t n_slots)
{
    usc_storage **const old = m->slots;
    const int64_t n_old = m->n_slots;
    const size_t size = (size_t)n_slots * sizeof(usc_storage *);
    void *slots = m->alloc->resize(m->alloc->ctx, NULL, 0, size);
    if (slots == NULL) return false;
    memset(slots, 0, size);
    m->slots = slots;
    m->n_slots = n_slots;
    for (int64_t i = 0; i < n_old; i++)
        if (old[i] != NULL) *slot_for(m, old[i]->address) = old[i];
    free_array(m, (void *)old, n_old, sizeof(usc_storage *));
    return true;
}

/* A storage that died holds host memory (its record) through our hold, in the middle of
 * blocks that the program would join and use again: let go, a few slots at a time. */
static void sweep(usc_storage_map *m)
{
    for (int n = 0; n < SWEEP_SLOTS;) {
        m->swept = (m->swept + 1) & (m->n_slots - 1);
        usc_storage *s = m->slots[m->swept];
        if (s != NULL && !is_alive(m, s)) usc_storage_forget(m, s);
        n++;
    }
}

usc_storage *usc_storage_add(usc_storage_map *m, void *address)
{
    if (m->n_slots > 0) sweep(m);
    if (2 * (m->n + 1) > m->n_slots && !rebuild(m, m->n_slots > 0 ? 2 * m->n_slots : 256))
        return NULL;
    usc_storage *s = make_storage(m);
    if (s == NULL) return NULL;
    s->address = address;
    if (m->hooks->hold != NULL) s->held = m->hooks->hold(m->hooks->ctx, address);
    *slot_for(m, address) = s;
    m->n++;
    return s;
}

void usc_storage_forget(usc_storage_map *m, usc_storage *s)
{
    const uint64_t mask = (uint64_t)m->n_slots - 1;
    uint64_t hole = (uint64_t)(slot_for(m, s->address) - m->slots);
    /* Backward shift: later ones of the same run move up, so no tombstones are needed. */
    for (uint64_t i = (hole + 1) & mask; m->slots[i] != NULL; i = (i + 1) & mask) {
        const uint64_t home = slot_index(m, m->slots[i]->address);
        if (((i - home) & mask) < ((i - hole) & mask)) continue;
        m->slots[hole] = m->slots[i];
        hole = i;
    }
    m->slots[hole] = NULL;
    m->n--;
    s->next_dead = m->dead;
    m->dead = s;
}

usc_storage *usc_storage_take_dead(usc_storage_map *m)
{
    usc_storage *dead = m->dead;
    m->dead = NULL;
    return dead;
}

void usc_storage_bury(usc_storage_map *m, usc_storage *dead)
{
    while (dead != NULL) {
        usc_storage *s = dead;
        dead = s->next_dead;
        release(m, s);
        empty(m, s);
        s->next_dead = atomic_load(&m->returned);
        while (!atomic_compare_exchange_weak(&m->returned, &s->next_dead, s))
            continue;
    }
}

void usc_storage_renew(usc_storage_map *m, usc_storage *s)
{
    (void)m;
    s->n_tensors = 0; /* the arrays stay for the next generation */
    s->n_parts = 0;
    s->n_stats = 0;
    s->n_ranges = 0;
}

/* Room for one more element; NULL: no memory. */
static void *grow(usc_storage_map *m, void *array, int64_t *max, size_t size)
{
    const int64_t next = *max > 0 ? 2 * *max : 1; /* most storages have one view */
    void *bigger =
        m->alloc->resize(m->alloc->ctx, array, (size_t)*max * size, (size_t)next * size);
    if (bigger != NULL) *max = next;
    return bigger;
}

bool usc_storage_add_tensor(usc_storage_map *m, usc_storage *s, uint64_t key, int64_t id)
{
    if (s->n_tensors == s->max_tensors) {
        void *bigger = grow(m, s->tensors, &s->max_tensors, sizeof *s->tensors);
        if (bigger == NULL) return false;
        s->tensors = bigger;
    }
    s->tensors[s->n_tensors++] = (usc_known_tensor){.key = key, .id = id};
    return true;
}

bool usc_storage_add_part(usc_storage_map *m, usc_storage *s, usc_part part)
{
    if (s->n_parts == s->max_parts) {
        void *bigger = grow(m, s->parts, &s->max_parts, sizeof *s->parts);
        if (bigger == NULL) return false;
        s->parts = bigger;
    }
    s->parts[s->n_parts++] = part;
    return true;
}

usc_stats *usc_storage_add_stats(usc_storage_map *m, usc_storage *s, uint64_t key)
{
    if (s->n_stats == s->max_stats) {
        void *bigger = grow(m, s->stats, &s->max_stats, sizeof *s->stats);
        if (bigger == NULL) return NULL;
        s->stats = bigger;
    }
    usc_known_stats *known = &s->stats[s->n_stats++];
    known->key = key;
    return &known->stats;
}

usc_range *usc_storage_add_range(usc_storage_map *m, usc_storage *s, uint64_t key)
{
    if (s->n_ranges == s->max_ranges) {
        void *bigger = grow(m, s->ranges, &s->max_ranges, sizeof *s->ranges);
        if (bigger == NULL) return NULL;
        s->ranges = bigger;
    }
    usc_known_range *known = &s->ranges[s->n_ranges++];
    known->key = key;
    return &known->range;
}

void usc_storage_map_free(usc_storage_map *m)
{
    usc_storage_bury(m, usc_storage_take_dead(m));
    while (m->spare != NULL || atomic_load(&m->returned) != NULL)
        free_storage(m, make_storage(m));
    for (int64_t i = 0; i < m->n_slots; i++)
        if (m->slots[i] != NULL) free_storage(m, m->slots[i]);
    free_array(m, (void *)m->slots, m->n_slots, sizeof(usc_storage *));
    m->slots = NULL;
    m->n = m->n_slots = 0;
}
