// SPDX-License-Identifier: Apache-2.0
// What stays open from one command of a stream to the next, under the guard `pages`: to change
// who may touch a page costs as much as a small kernel, and the next command often has the
// same ones. With the last command that is queued everything is closed, so that a host that
// has waited finds it so.
#include "blocks.h"

#define MOST_KEPT 64

static block *kept[MOST_KEPT];
static size_t n_kept;
static _Thread_local bool keeps;

static void close_kept(block *b)
{
    b->kept = false;
    usc_sim_block_count(b, -1, 0);
}

/* All are counted first: pages that they share change once. */
void usc_sim_keep_drop_all(void)
{
    block *all[MOST_KEPT];
    const size_t n = n_kept;
    for (size_t i = 0; i < n; i++) {
        all[i] = kept[i];
        close_kept(all[i]);
    }
    n_kept = 0;
    for (size_t i = 0; i < n; i++)
        (void)usc_sim_block_protect(all[i]);
}

void usc_sim_keep(block *b)
{
    const bool pages = usc_sim_guard_now() == USC_SIM_GUARD_PAGES;
    if (!keeps || b->kept || !pages || b->segment->whole) return;
    if (n_kept == MOST_KEPT) usc_sim_keep_drop_all();
    kept[n_kept++] = b;
    b->kept = true;
    usc_sim_block_count(b, 1, 0);
}

void usc_sim_keep_drop(block *b)
{
    if (!b->kept) return;
    size_t i = 0;
    while (kept[i] != b)
        i++;
    kept[i] = kept[--n_kept];
    close_kept(b);
    (void)usc_sim_block_protect(b);
}

void usc_sim_keep_begin(bool more)
{
    keeps = more;
}

void usc_sim_keep_end(bool more)
{
    keeps = false;
    if (more || usc_sim_get_guard() != USC_SIM_GUARD_PAGES) return;
    usc_sim_memory_lock();
    usc_sim_keep_drop_all();
    usc_sim_memory_unlock();
}
