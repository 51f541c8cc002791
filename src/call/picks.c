// SPDX-License-Identifier: Apache-2.0
// Lists of calls that are taken. Neighbours: select.c and forwards.c, which fill them.
#include "call/picks.h"

#include <stdlib.h>

bool usc_numbers_add(usc_numbers *list, int64_t value, usc_arena *arena)
{
    if ((size_t)list->n == list->room) {
        void *more =
            usc_arena_grow(arena, list->at, list->room, &list->room, sizeof *list->at);
        if (more == NULL) return false;
        list->at = more;
    }
    list->at[list->n++] = value;
    return true;
}

usc_pick *usc_picks_add(usc_picks *p, int64_t call)
{
    if ((size_t)p->n == p->room) {
        void *more =
            usc_arena_grow(p->arena, p->pick, p->room, &p->room, sizeof *p->pick);
        if (more == NULL) return NULL;
        p->pick = more;
    }
    p->pick[p->n] = (usc_pick){.call = call, .stands_for = 1};
    return &p->pick[p->n++];
}

static int compare_numbers(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static bool is_among(int64_t value, const int64_t *list, int64_t n)
{
    return n > 0 &&
           bsearch(&value, list, (size_t)n, sizeof *list, compare_numbers) != NULL;
}

bool usc_picks_wants(const usc_picks *p, int64_t call)
{
    return is_among(call, p->options->wanted, p->options->n_wanted);
}

void usc_picks_first(usc_picks *p, usc_hash128 (*key_of)(const usc_picks *p, int64_t i))
{
    usc_keys seen = {0};
    int64_t n = 0;
    for (int64_t i = 0; i < p->n; i++) {
        const int64_t first = usc_keys_put(&seen, key_of(p, i), n);
        if (first == n)
            p->pick[n++] = p->pick[i];
        else
            p->pick[first].stands_for++;
    }
    p->arena->failed |= seen.failed;
    p->n = n;
    usc_keys_free(&seen);
}
