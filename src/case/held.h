// SPDX-License-Identifier: Apache-2.0
// Bringing outputs to what they are held to. Neighbours: held.c (which is which),
// held_order.c, held_gauge.c.
#ifndef USC_CASE_HELD_H
#define USC_CASE_HELD_H

#include <ulpscope/x/held.h>

#include "base/arena.h"

/** The output "out[i]"; NULL where there is none. */
usc_held *usc_held_find(usc_held *outputs, int n, int i);

bool usc_held_alike(const usc_tensor *a, const usc_tensor *b);

/** Elements; 0 where that cannot be said. */
int64_t usc_held_count(const usc_tensor *t);

/** Where the arena has no room nothing is changed, which its `failed` tells. */
void usc_held_in_order(const usc_freedom *what, usc_held *outputs, int n, usc_arena *a);
void usc_held_in_gauge(const usc_freedom *what, usc_held *outputs, int n, usc_arena *a);

#endif
