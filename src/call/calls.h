// SPDX-License-Identifier: Apache-2.0
// The list of calls from within: what was found out of each when it was added.
// Neighbours: calls.c (fills it), select.c, forwards.c (read it).
#ifndef USC_CALL_CALLS_H
#define USC_CALL_CALLS_H

#include <ulpscope/call.h>

#include "base/arena.h"
#include "base/keys.h"

enum { MAX_DEVICE_TYPES = 63 };

typedef struct usc_call_facts {
    uint64_t devices;  /* bit i: a tensor or argument on device type i */
    bool portable;     /* can be replayed as a whole */
    int64_t forward;   /* the forward call of a backward one; 0: not told */
    usc_hash128 views; /* of operator, autocast, arguments, inputs; not the module */
} usc_call_facts;

struct usc_calls {
    usc_arena arena;
    int64_t n;
    size_t call_room, fact_room;
    usc_call *call;
    usc_call_facts *fact;
    usc_keys texts; /* hash of a text -> its only copy */
    usc_keys views; /* likewise of sizes or strides */
    int n_types;
    const char *type[MAX_DEVICE_TYPES];
};

/** Index of a call by its number, -1 where there is none. */
int64_t usc_calls_index(const usc_calls *calls, int64_t sequence);

/** What makes two calls the same: operator, dtypes, shapes, strides, other arguments;
 * with `classes` the module class too. Zero where there is no such call. */
usc_hash128 usc_calls_key(const usc_calls *calls, int64_t sequence, bool classes);

#endif
