// SPDX-License-Identifier: Apache-2.0
// Gradients against their own past (track.h). False alarms:
// docs/reference/watch-reference.md has the count on clean streams that are hard. A
// factor below `least` is nothing that training does not do by itself: a peak of 2^1.5
// times the usual, a tensor that leaves the others by 2^6, the norm of all of them one
// that grows by as much.
#include "watch/track.h"

void usc_watch_temporal(usc_watch_view *v)
{
    static const usc_track_spec specs[] = {
        {USC_WATCH_GRAD, "gradient", {6, 1.5}, 10, 6},
        {USC_WATCH_REDUCED, "reduced gradient", {6, 1.5}, 10, 6},
        {USC_WATCH_LOSS, "loss", {10, 10}, 10, 0},
    };
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)
        usc_track_site(v, &specs[i]);
}
