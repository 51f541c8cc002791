// SPDX-License-Identifier: Apache-2.0
// A selection while it is made. Neighbours: select.c (calls), forwards.c (modules).
#ifndef USC_CALL_PICKS_H
#define USC_CALL_PICKS_H

#include "call/calls.h"

/* Numbers that grow in an arena. */
typedef struct usc_numbers {
    int64_t n;
    int64_t *at;
    size_t room;
} usc_numbers;

typedef struct usc_picks {
    const usc_calls *calls;
    const usc_select_options *options;
    usc_arena *arena;
    int64_t n;
    usc_pick *pick;
    size_t room;
} usc_picks;

/** Adds a number; false where there is no memory (arena->failed). */
bool usc_numbers_add(usc_numbers *list, int64_t value, usc_arena *arena);

/** Adds a pick; NULL where there is no memory. Memory: until the next one is added. */
usc_pick *usc_picks_add(usc_picks *p, int64_t call);

/** Whether a number is among those asked for. */
bool usc_picks_wants(const usc_picks *p, int64_t call);

/** Keeps the first pick of each key, standing for all of them. */
void usc_picks_first(usc_picks *p, usc_hash128 (*key_of)(const usc_picks *p, int64_t i));

/** The forwards of modules among the calls that were picked, in their place. */
void usc_picks_forwards(usc_picks *p);

#endif
