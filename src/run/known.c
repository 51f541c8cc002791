// SPDX-License-Identifier: Apache-2.0
// Causes by group, who searches for which, and who waits for it.
#include "run/known.h"

#include <string.h>

typedef struct text_item {
    struct text_item *next;
    char text[];
} text_item;

/* One that waits for a search of another. */
typedef struct waiting {
    struct waiting *next;
    int who;
    int64_t heard, most;
} waiting;

struct usc_known_group {
    usc_known_group *before;
    text_item *first, **end; /* causes, in the order in which they came */
    int64_t searches;
    int busy; /* who searches, -1: nobody */
    waiting *waits;
};

void usc_known_begin(usc_known *k)
{
    *k = (usc_known){.arena = {.alloc = usc_libc_alloc}};
}

void usc_known_free(usc_known *k)
{
    usc_arena_free(&k->arena);
    usc_keys_free(&k->groups);
    k->last = NULL;
}

static usc_known_group *group_of(usc_known *k, const char *name)
{
    const usc_hash128 key = usc_key_of(name);
    const int64_t *there = usc_keys_find(&k->groups, key);
    if (there != NULL) return (usc_known_group *)(intptr_t)*there;
    usc_known_group *g = usc_arena_take(&k->arena, sizeof *g);
    k->failed |= g == NULL;
    if (g == NULL) return NULL;
    *g = (usc_known_group){.before = k->last, .busy = -1};
    g->end = &g->first;
    k->last = g;
    (void)usc_keys_put(&k->groups, key, (int64_t)(intptr_t)g);
    k->failed |= k->groups.failed;
    return g;
}

static void answer(usc_known *k, const usc_known_hearer *to, int who,
                   const text_item *causes, bool search)
{
    usc_line line = {0};
    usc_line_text(&line, "{\"causes\": [");
    for (const text_item *c = causes; c != NULL; c = c->next) {
        if (c != causes) usc_line_text(&line, ", ");
        usc_line_json(&line, c->text);
    }
    usc_line_add(&line, "], \"search\": %s}\n", search ? "true" : "false");
    k->failed |= line.failed;
    if (!line.failed) to->tell(to->ctx, who, line.text);
    usc_line_free(&line);
}

/* Whether the asker was told something; else it has to wait. */
static bool ask(usc_known *k, usc_known_group *g, int who, int64_t heard, int64_t most,
                const usc_known_hearer *to)
{
    const text_item *rest = g->first;
    for (int64_t i = 0; i < heard && rest != NULL; i++)
        rest = rest->next;
    if (rest == NULL && g->searches < most && g->busy >= 0) return false;
    const bool search = rest == NULL && g->searches < most;
    if (search) {
        g->busy = who;
        g->searches++;
    }
    answer(k, to, who, rest, search);
    return true;
}

static void let_wait(usc_known *k, usc_known_group *g, waiting w)
{
    waiting **end = &g->waits;
    while (*end != NULL)
        end = &(*end)->next;
    waiting *item = usc_arena_take(&k->arena, sizeof *item);
    k->failed |= item == NULL;
    if (item == NULL) return;
    *item = w;
    item->next = NULL;
    *end = item;
}

void usc_known_ask(usc_known *k, int who, const char *group, int64_t heard, int64_t most,
                   const usc_known_hearer *to)
{
    usc_known_group *g = group_of(k, group);
    if (g != NULL && !ask(k, g, who, heard, most, to))
        let_wait(k, g, (waiting){.who = who, .heard = heard, .most = most});
}

static void end_search(usc_known *k, usc_known_group *g, const char *cause,
                       const usc_known_hearer *to)
{
    const size_t n = strlen(cause);
    g->busy = -1;
    text_item *item = n > 0 ? usc_arena_take(&k->arena, sizeof *item + n + 1) : NULL;
    k->failed |= n > 0 && item == NULL;
    if (item != NULL) {
        item->next = NULL;
        memcpy(item->text, cause, n + 1);
        *g->end = item;
        g->end = &item->next;
    }
    waiting *waits = g->waits;
    g->waits = NULL;
    for (; waits != NULL; waits = waits->next)
        if (!ask(k, g, waits->who, waits->heard, waits->most, to)) let_wait(k, g, *waits);
}

void usc_known_found(usc_known *k, const char *group, const char *cause,
                     const usc_known_hearer *to)
{
    usc_known_group *g = group_of(k, group);
    if (g != NULL) end_search(k, g, cause, to);
}

void usc_known_gone(usc_known *k, int who, const usc_known_hearer *to)
{
    for (usc_known_group *g = k->last; g != NULL; g = g->before) {
        waiting **at = &g->waits;
        while (*at != NULL)
            if ((*at)->who == who)
                *at = (*at)->next;
            else
                at = &(*at)->next;
    }
    for (usc_known_group *g = k->last; g != NULL; g = g->before)
        if (g->busy == who) end_search(k, g, "", to);
}
