// SPDX-License-Identifier: Apache-2.0
// Who runs on a thread, as text. Each different text is kept once, for good: blocks point
// to them, and a program has as many as it has places that launch an operator.
#include "blocks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define N_CHAINS 1024

typedef struct kept_label {
    struct kept_label *next;
    char text[];
} kept_label;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static kept_label *chains[N_CHAINS];
static _Thread_local const char *now = "";

static size_t chain_of(const char *text, size_t n)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return (size_t)(hash % N_CHAINS);
}

static bool is(const char *kept, const char *text, size_t n)
{
    return strncmp(kept, text, n) == 0 && kept[n] == '\0';
}

/* The host's where there is no memory for another one. */
static const char *keep(const char *text, size_t n)
{
    kept_label **chain = &chains[chain_of(text, n)];
    for (const kept_label *l = *chain; l != NULL; l = l->next)
        if (is(l->text, text, n)) return l->text;
    kept_label *made = malloc(sizeof *made + n + 1);
    if (made == NULL) return "";
    memcpy(made->text, text, n);
    made->text[n] = '\0';
    made->next = *chain;
    *chain = made;
    return made->text;
}

void usc_sim_set_label(const char *text)
{
    if (text == NULL || text[0] == '\0') {
        now = "";
        return;
    }
    const size_t n = strnlen(text, USC_SIM_LABEL_TEXT - 1);
    if (is(now, text, n)) return;
    pthread_mutex_lock(&lock);
    now = keep(text, n);
    pthread_mutex_unlock(&lock);
}

const char *usc_sim_get_label(void)
{
    return now;
}
