// SPDX-License-Identifier: Apache-2.0
// Optimizer state against its own past (track.h). A moment is a moving average of what
// the gradients are checked for, so it moves less from step to step, and the limits are
// smaller: beta of 0.9 lets the first grow by 2^3.3 in a step where a gradient grew by
// 2^6.6, of 0.999 the second.
#include "watch/track.h"

void usc_watch_moments(usc_watch_view *v)
{
    static const usc_track_spec specs[] = {
        {USC_WATCH_MOMENT1, "first moment", {4, 1.5}, 10, 0},
        {USC_WATCH_MOMENT2, "second moment", {4, 3}, 10, 0},
    };
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)
        usc_track_site(v, &specs[i]);
}
