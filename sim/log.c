// SPDX-License-Identifier: Apache-2.0
// What the device tells as it happens.
#include "blocks.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { KERNELS = 1, MEMORY = 2 };

static atomic_int logged;

usc_status usc_sim_set_log(const char *words, usc_error *err)
{
    static const struct {
        const char *word;
        int bit;
    } known[] = {{"", 0}, {"kernels", KERNELS}, {"memory", MEMORY}};
    int wanted = 0;
    for (const char *at = words;; at++) {
        const size_t n = strcspn(at, ",");
        size_t i = 0;
        while (i < 3 &&
               (strlen(known[i].word) != n || strncmp(known[i].word, at, n) != 0))
            i++;
        if (i == 3)
            return usc_error_set(err, USC_E_ARG, -1,
                                 "sim: '%.60s' is not logged; kernels and memory are",
                                 at);
        wanted |= known[i].bit;
        at += n;
        if (*at == '\0') break;
    }
    atomic_store(&logged, wanted);
    return USC_OK;
}

static bool is_logged(int what)
{
    return (atomic_load_explicit(&logged, memory_order_relaxed) & what) != 0;
}

void usc_sim_log_kernel(const usc_sim_launch *l)
{
    char place[USC_SIM_PLACE_TEXT] = "";
    if (!is_logged(KERNELS)) return;
    if (l->place != NULL) l->place(l->ctx, place, sizeof place);
    const int device = l->device < 0 ? 0 : l->device;
    (void)fprintf(stderr, "ulpscope: sim:%d stream %lld: %s%s%s\n", device,
                  (long long)usc_sim_stream_current(device).id, usc_sim_get_label(),
                  place[0] != '\0' ? ", launched at " : "", place);
}

void usc_sim_log_memory(usc_sim_action action, usc_sim_stream stream, const char *address,
                        size_t size)
{
    if (!is_logged(MEMORY)) return;
    const char *label = usc_sim_get_label();
    (void)fprintf(stderr, "ulpscope: sim:%d stream %lld: %s of %zu bytes at %p, by %s\n",
                  stream.device, (long long)stream.id, usc_sim_action_name(action), size,
                  (const void *)address, label[0] != '\0' ? label : "the host");
}
