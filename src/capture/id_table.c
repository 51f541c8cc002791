// SPDX-License-Identifier: Apache-2.0
// Nodes by id; see id_table.h.
#include "capture/id_table.h"

#include <stdbool.h>
#include <stdlib.h>

/* Ids are given in turn: their low bits are spread. */
static usc_id_node **head_of(const usc_id_table *t, int64_t id)
{
    return &t->head[(uint64_t)id & (t->size - 1)];
}

static bool grow(usc_id_table *t)
{
    usc_id_table larger = {.n = t->n, .size = t->size > 0 ? 2 * t->size : 256};
    larger.head = calloc(larger.size, sizeof *larger.head);
    if (larger.head == NULL) return false;
    for (size_t i = 0; i < t->size; i++)
        for (usc_id_node *at = t->head[i], *next; at != NULL; at = next) {
            next = at->next;
            at->next = *head_of(&larger, at->id);
            *head_of(&larger, at->id) = at;
        }
    free(t->head);
    *t = larger;
    return true;
}

void *usc_id_find(const usc_id_table *t, int64_t id)
{
    usc_id_node *at = t->size > 0 ? *head_of(t, id) : NULL;
    while (at != NULL && at->id != id)
        at = at->next;
    return at;
}

void *usc_id_add(usc_id_table *t, int64_t id, size_t size)
{
    if (t->n >= t->size && !grow(t)) return NULL;
    usc_id_node *made = calloc(1, size);
    if (made == NULL) return NULL;
    made->id = id;
    made->next = *head_of(t, id);
    *head_of(t, id) = made;
    t->n++;
    return made;
}

void usc_id_drop(usc_id_table *t, int64_t id)
{
    if (t->size == 0) return;
    usc_id_node **at = head_of(t, id);
    while (*at != NULL && (*at)->id != id)
        at = &(*at)->next;
    usc_id_node *gone = *at;
    if (gone == NULL) return;
    *at = gone->next;
    free(gone);
    t->n--;
}

void usc_id_empty(usc_id_table *t)
{
    for (size_t i = 0; i < t->size; i++)
        for (usc_id_node *at = t->head[i], *next; at != NULL; at = next) {
            next = at->next;
            free(at);
        }
    free(t->head);
    *t = (usc_id_table){0};
}
