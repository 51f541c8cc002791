// SPDX-License-Identifier: Apache-2.0
// Outputs that are brought to the order and the gauge of what they are held to.
// Neighbours: held.h.
#include "case/held.h"

#include <assert.h>
#include <string.h>

struct usc_held_room {
    usc_arena arena;
};

/* ---- decompositions ---- */

#define SIDES(first, first_rows, second, second_rows)                                    \
    .n_sides = 2, .side = {first, second}, .rows = {first_rows, second_rows}
#define SVD SIDES(0, false, 2, true), .values = 1, .null = true
#define EIGH .n_sides = 1, .side = {1}, .values = 0
#define QR SIDES(0, false, 1, true), .values = -1

static const usc_gauge gauges[] = {
    {.name = "_linalg_svd", SVD},
    {.name = "linalg_svd", SVD},
    {.name = "svd", SIDES(0, false, 2, false), .values = 1, .null = true},
    {.name = "_linalg_eigh", EIGH},
    {.name = "linalg_eigh", EIGH},
    {.name = "linalg_eig", EIGH, .unordered = true},
    {.name = "linalg_qr", QR},
    {.name = "qr", QR},
};

const usc_gauge *usc_gauge_by_name(const char *name)
{
    assert(name != NULL);
    for (size_t i = 0; i < sizeof gauges / sizeof gauges[0]; i++)
        if (strcmp(gauges[i].name, name) == 0) return &gauges[i];
    return NULL;
}

usc_status usc_held_bring(const usc_freedom *what, usc_held *outputs, int n,
                          const usc_alloc *alloc, usc_held_room **keep, usc_error *err)
{
    assert(what && outputs && keep);
    *keep = NULL;
    if (!what->unsorted && what->gauge == NULL) return USC_OK;
    if (alloc == NULL) alloc = &usc_libc_alloc;
    usc_held_room *room = alloc->resize(alloc->ctx, NULL, 0, sizeof *room);
    if (room == NULL) return usc_no_memory("outputs", err);
    *room = (struct usc_held_room){.arena.alloc = *alloc};
    if (what->unsorted) usc_held_in_order(what, outputs, n, &room->arena);
    if (what->gauge != NULL) usc_held_in_gauge(what, outputs, n, &room->arena);
    if (!room->arena.failed) {
        *keep = room;
        return USC_OK;
    }
    usc_held_free(room);
    return usc_no_memory("outputs", err);
}

void usc_held_free(usc_held_room *keep)
{
    if (keep == NULL) return;
    const usc_alloc alloc = keep->arena.alloc;
    usc_arena_free(&keep->arena);
    (void)alloc.resize(alloc.ctx, keep, sizeof *keep, 0);
}
