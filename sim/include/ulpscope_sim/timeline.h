// SPDX-License-Identifier: Apache-2.0
// When commands ran, for a profiler. While it is on, each command of a stream leaves a
// span; what runs at the call is told by usc_sim_timeline_end().
//
// Threads: every function is safe to call from any thread.
#ifndef ULPSCOPE_SIM_TIMELINE_H
#define ULPSCOPE_SIM_TIMELINE_H

#include <ulpscope_sim/stream.h>

USC_BEGIN_DECLS

typedef struct usc_sim_launched {
    uint64_t caller; /* as the launching thread said; 0: it said nothing */
    int64_t time;    /* nanoseconds since 1970; 0 where nothing was kept */
    int64_t thread;  /* native number */
} usc_sim_launched;

typedef struct usc_sim_span {
    char name[64];
    usc_sim_stream stream;
    int64_t begin, end; /* nanoseconds since 1970 */
    usc_sim_launched launched;
} usc_sim_span;

/** On: what was kept is dropped, and spans are kept from now on. Off: what is kept stays. */
USC_API void usc_sim_timeline_set_on(bool on);

/** Who this thread launches for from now on; returns what was said before. */
USC_API uint64_t usc_sim_timeline_set_caller(uint64_t caller);

/** A launch by this thread, now. */
USC_API usc_sim_launched usc_sim_timeline_launched(void);

/** Whose launch this thread runs; returns what was said before. */
USC_API usc_sim_launched usc_sim_timeline_set_launched(usc_sim_launched launched);

/** The time, or 0 where nothing is kept. */
USC_API int64_t usc_sim_timeline_begin(void);

/** Keeps a span from `begin` to now; none where `begin` is 0 or there is no memory. */
USC_API void usc_sim_timeline_end(const char *name, usc_sim_stream stream, int64_t begin);

/** The i-th span; false behind the last. */
USC_API bool usc_sim_timeline_get(size_t i, usc_sim_span *out);

USC_END_DECLS
#endif
