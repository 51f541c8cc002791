// SPDX-License-Identifier: Apache-2.0
// Threads that work for a device or a tool and not for the program: what they call is
// nobody's.
// NULL: no function takes a pointer.
// Threads: each function speaks of the thread that calls it.
#ifndef ULPSCOPE_X_ASIDE_H
#define ULPSCOPE_X_ASIDE_H

#include <ulpscope/status.h>

USC_BEGIN_DECLS

/**
 * Says whether this thread runs a kernel of a device from now on, or looks at a device's
 * memory for a tool. What it calls is recorded and rerouted by no mode, as on hardware,
 * where nobody sees inside of a kernel; what it is told of a kernel that failed, the
 * program is told as well. Returns what was said before.
 */
USC_API bool usc_set_aside(bool on);

/** Whether it was said of this thread; not of a new one. */
USC_API bool usc_is_aside(void);

USC_END_DECLS
#endif
