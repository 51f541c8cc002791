// SPDX-License-Identifier: Apache-2.0
// Pinned host memory: ordinary memory that remembers that it is pinned.
#include <ulpscope_sim/sim.h>

#include <pthread.h>
#include <stdlib.h>

/* Pinned blocks are few and long-lived: a list does. */
typedef struct pinned {
    char *at;
    size_t size;
    struct pinned *next;
} pinned;

static pinned *list;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void *usc_sim_host_malloc(size_t size)
{
    pinned *entry = malloc(sizeof *entry);
    void *at = NULL;
    if (entry == NULL || posix_memalign(&at, 64, size > 0 ? size : 1) != 0) {
        free(entry);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    *entry = (pinned){.at = at, .size = size, .next = list};
    list = entry;
    pthread_mutex_unlock(&lock);
    return at;
}

void usc_sim_host_free(void *block)
{
    if (block == NULL) return;
    pthread_mutex_lock(&lock);
    pinned **link = &list;
    while (*link != NULL && (*link)->at != block)
        link = &(*link)->next;
    pinned *found = *link;
    if (found != NULL) *link = found->next;
    pthread_mutex_unlock(&lock);
    if (found != NULL) free(found->at);
    free(found);
}

bool usc_sim_is_pinned(const void *address)
{
    const uintptr_t a = (uintptr_t)address;
    bool yes = false;
    pthread_mutex_lock(&lock);
    for (const pinned *p = list; p != NULL && !yes; p = p->next)
        yes = a >= (uintptr_t)p->at && a - (uintptr_t)p->at < p->size;
    pthread_mutex_unlock(&lock);
    return yes;
}
