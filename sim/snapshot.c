// SPDX-License-Identifier: Apache-2.0
// What lies in device memory, and what has happened there of late.
#include "blocks.h"
#include "streams.h"

#include <stdlib.h>
#include <string.h>

static usc_sim_action_info *kept; /* a ring */
static size_t n_kept, n_most, i_next;

static const char *const action_names[] = {
#define NAME(id, name) name,
    USC_SIM_ACTION_LIST(NAME)
#undef NAME
};

const char *usc_sim_action_name(usc_sim_action action)
{
    return (size_t)action < sizeof action_names / sizeof action_names[0]
               ? action_names[action]
               : "";
}

static void tell(const segment *s, void (*visit)(void *, const usc_sim_block_info *),
                 void *ctx)
{
    for (const block *b = s->first; b != NULL; b = b->next) {
        const usc_sim_block_info info = {
            .device = s->device,
            .stream = s->stream,
            .segment = (uintptr_t)s->base,
            .address = (uintptr_t)(b->live ? b->user : b->base),
            .segment_size = s->size,
            .size = b->size,
            .asked = b->live ? b->asked : 0,
            .live = b->live,
            .waits = b->waits,
            .small = s->small,
            .allocated = b->allocated,
        };
        visit(ctx, &info);
    }
}

void usc_sim_snapshot(void (*visit)(void *ctx, const usc_sim_block_info *info), void *ctx)
{
    usc_sim_memory_lock();
    for (int i = 0; i < USC_SIM_MOST_DEVICES; i++)
        for (const segment *s = usc_sim_device(i)->segments; s != NULL; s = s->next)
            if (s->resident) tell(s, visit, ctx);
    usc_sim_memory_unlock();
}

void usc_sim_history_note(usc_sim_action action, usc_sim_stream stream,
                          const char *address, size_t size)
{
    usc_sim_log_memory(action, stream, address, size);
    if (n_most == 0) return;
    usc_sim_action_info *info = &kept[i_next];
    i_next = (i_next + 1) % n_most;
    if (n_kept < n_most) n_kept++;
    *info = (usc_sim_action_info){.action = action,
                                  .device = stream.device,
                                  .stream = stream.id,
                                  .address = (uintptr_t)address,
                                  .size = size,
                                  .time = usc_sim_now(),
                                  .label = usc_sim_get_label()};
}

usc_status usc_sim_history_start(size_t n_max, usc_error *err)
{
    usc_sim_action_info *ring = n_max > 0 ? calloc(n_max, sizeof *ring) : NULL;
    usc_sim_memory_lock();
    free(kept);
    kept = ring;
    n_most = ring != NULL ? n_max : 0;
    n_kept = i_next = 0;
    usc_sim_memory_unlock();
    if (n_max > 0 && ring == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "sim: no memory for %zu actions",
                             n_max);
    return USC_OK;
}

bool usc_sim_history_get(size_t i, usc_sim_action_info *out)
{
    usc_sim_memory_lock();
    const bool there = i < n_kept;
    memset(out, 0, sizeof *out);
    if (there) *out = kept[(i_next + n_most - n_kept + i) % n_most];
    usc_sim_memory_unlock();
    return there;
}
