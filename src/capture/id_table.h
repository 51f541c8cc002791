// SPDX-License-Identifier: Apache-2.0
// Nodes by id, for ids that are given in turn. Neighbours: watch.c, looked.c.
#ifndef USC_CAPTURE_ID_TABLE_H
#define USC_CAPTURE_ID_TABLE_H

#include <stddef.h>
#include <stdint.h>

/* What stands in a table begins with it. */
typedef struct usc_id_node {
    int64_t id;
    struct usc_id_node *next;
} usc_id_node;

/* Zero is an empty one. */
typedef struct usc_id_table {
    usc_id_node **head;
    size_t n, size; /* size: 0 or a power of two */
} usc_id_table;

/** NULL: there is none. */
void *usc_id_find(const usc_id_table *t, int64_t id);

/** A zeroed node of `size` bytes, whose id is not there yet; NULL: no memory. */
void *usc_id_add(usc_id_table *t, int64_t id, size_t size);

/** Frees it; not there: does nothing. */
void usc_id_drop(usc_id_table *t, int64_t id);

/** Frees all of them. */
void usc_id_empty(usc_id_table *t);

#endif
