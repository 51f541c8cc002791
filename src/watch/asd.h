// SPDX-License-Identifier: Apache-2.0
// What asd.c and asd_strikes.c share.
#ifndef USC_WATCH_ASD_H
#define USC_WATCH_ASD_H

#include "watch/track.h"
#include "watch/watch_state.h"

typedef struct usc_asd_anomaly {
    double seconds, value, previous, average;
    int64_t calls, normal, tensor;
    char name[96]; /* cut; kept, since a tensor may have another number after a restart */
    bool counted, struck;
} usc_asd_anomaly;

/** Cooldown and strikes of one rank. */
void usc_asd_count(usc_watch_view *v, int32_t rank, const usc_asd_anomaly *found);

/** Switches the checksum of matmuls on and off, over all ranks. */
void usc_asd_checksum(usc_watch_view *v);

size_t usc_asd_rank_size(const usc_watch_config *config);

/** Whether bytes from outside are what is kept of a rank. */
bool usc_asd_rank_sound(const usc_watch_config *config, const void *rank);

#endif
