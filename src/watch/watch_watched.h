// SPDX-License-Identifier: Apache-2.0
// Which detectors had something to look at.
#ifndef USC_WATCH_WATCHED_H
#define USC_WATCH_WATCHED_H

#include <ulpscope/x/watch.h>

#include "base/line.h"

/* Rows of a log by site; of those that tell of elements, not of a value alone. */
typedef struct usc_watched {
    int64_t n_rows[USC_N_WATCH_SITES], n_whole[USC_N_WATCH_SITES];
} usc_watched;

/** Counts rows. */
void usc_watched_take(usc_watched *w, const usc_watch_row *rows, size_t n);

/** Names, to `watched`, the detectors that had rows, and to `unwatched` those of mode
 * sound, and those asked for, that had none, with why. False: none had any. */
bool usc_watched_say(const usc_watched *w, const usc_watch_config *config,
                     int64_t n_steps, usc_line *watched, usc_line *unwatched);

#endif
