// SPDX-License-Identifier: Apache-2.0
// The storages that a session knows: identity, generation, what their bytes hashed to
// when they were taken. Used under the session's lock. Neighbour: take.c.
#ifndef USC_CAPTURE_STORAGE_MAP_H
#define USC_CAPTURE_STORAGE_MAP_H

#include "capture/content.h"

#include <ulpscope/x/capture.h>

#include <stdatomic.h>

/* A view of the current generation that has its row already. */
typedef struct usc_known_tensor {
    uint64_t key;
    int64_t id;
} usc_known_tensor;

/* Bytes of the current generation that were fetched and kept; whoever comes later to the
 * same ones finds them here. */
typedef struct usc_part {
    int64_t id, from, to;
} usc_part;

typedef struct usc_known_stats {
    uint64_t key;
    usc_stats stats;
} usc_known_stats;

typedef struct usc_known_range {
    uint64_t key;
    usc_range range;
} usc_known_range;

typedef struct usc_storage {
    void *address, *held;
    int64_t id, size;
    int64_t generation, version; /* version: id of its row */
    int64_t writer;              /* call that wrote this generation; 0: from outside */
    int64_t last_call;           /* the last one that used it */
    int64_t checked_call, checked_from, checked_to; /* bytes known to be unchanged */
    bool readable;
    bool told; /* that it is not, by a note */
    struct usc_storage *next_dead;
    usc_content content;
    usc_known_tensor *tensors; /* of this generation */
    int64_t n_tensors, max_tensors;
    usc_part *parts; /* of this generation, of storages that must be fetched */
    int64_t n_parts, max_parts;
    usc_known_stats *stats; /* of this generation, without data only */
    int64_t n_stats, max_stats;
    usc_known_range *ranges; /* in their place where a session is watched */
    int64_t n_ranges, max_ranges;
} usc_storage;

typedef struct usc_storage_map {
    const usc_alloc *alloc;
    const usc_capture_hooks *hooks;
    usc_storage **slots; /* open addressing by address */
    int64_t n, n_slots;
    int64_t swept;                   /* slot at which the dead were looked for last */
    usc_storage *dead;               /* forgotten, not yet released */
    usc_storage *spare;              /* released, to be used again */
    _Atomic(usc_storage *) returned; /* the same, put there without the lock */
} usc_storage_map;

/** The living storage at `address`; NULL where there is none (a dead one there is
 * forgotten). */
usc_storage *usc_storage_find(usc_storage_map *m, void *address);

/** Adds and holds a storage that is not there; NULL: no memory. Forgets dead ones. */
usc_storage *usc_storage_add(usc_storage_map *m, void *address);

/** Forgets a storage; its hold is released by usc_storage_bury. */
void usc_storage_forget(usc_storage_map *m, usc_storage *s);

/** Takes the list of the forgotten, for usc_storage_bury: to be called without the
 * session's lock, since a hold's release may run the host program's code. */
usc_storage *usc_storage_take_dead(usc_storage_map *m);
void usc_storage_bury(usc_storage_map *m, usc_storage *dead);

/** Drops what belonged to the old generation only. */
void usc_storage_renew(usc_storage_map *m, usc_storage *s);

/** Remembers a tensor row of this generation; false: no memory. */
bool usc_storage_add_tensor(usc_storage_map *m, usc_storage *s, uint64_t key, int64_t id);

/** Remembers a part of this generation; false: no memory. */
bool usc_storage_add_part(usc_storage_map *m, usc_storage *s, usc_part part);

/** Room for statistics of this generation under `key`; NULL: no memory. */
usc_stats *usc_storage_add_stats(usc_storage_map *m, usc_storage *s, uint64_t key);

/** The same for a range. */
usc_range *usc_storage_add_range(usc_storage_map *m, usc_storage *s, uint64_t key);

/** Forgets everything. */
void usc_storage_map_free(usc_storage_map *m);

#endif
