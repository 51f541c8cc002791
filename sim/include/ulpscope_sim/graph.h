// SPDX-License-Identifier: Apache-2.0
// Graphs: what a program submits to a stream is kept, and not run, from the beginning of a
// capture to its end, and run as often as it is replayed. Streams that wait for an event of
// the captured stream are captured with it; their commands are kept in the order in which
// they were submitted, which is one that the events allow.
//
// Threads: every function is safe to call from any thread.
#ifndef ULPSCOPE_SIM_GRAPH_H
#define ULPSCOPE_SIM_GRAPH_H

#include <ulpscope_sim/stream.h>

USC_BEGIN_DECLS

typedef struct usc_sim_graph usc_sim_graph;

/**
 * From now on what is submitted to `stream` is kept. Until the end nobody may wait for a
 * stream that is captured, and it may wait only for what was captured with it.
 *
 * Errors:  USC_E_ARG for no such stream; USC_E_UNSUPPORTED for a default stream, one for
 *          ranks, one that is captured already, and one that still has work.
 */
USC_API USC_NODISCARD usc_status usc_sim_capture_begin(usc_sim_stream stream,
                                                       usc_error *err);

/**
 * Ends the capture that began with `stream`.
 *
 * Memory:  give *out back with usc_sim_graph_free(); the commands' `drop` is called then,
 *          once all replays have ended. Their `run` is called once a replay.
 * Errors:  USC_E_ARG where no capture began with `stream`; USC_E_UNSUPPORTED where a
 *          stream that was captured with it has work that `stream` does not wait for.
 *          *out is NULL then, and the capture is over.
 */
USC_API USC_NODISCARD usc_status usc_sim_capture_end(usc_sim_stream stream,
                                                     usc_sim_graph **out, usc_error *err);

/** Whether a stream is being captured. */
USC_API bool usc_sim_capturing(usc_sim_stream stream);

/** Whether any is. Costs one atomic load. */
USC_API bool usc_sim_has_captures(void);

/** How many commands a graph has. */
USC_API size_t usc_sim_graph_size(const usc_sim_graph *graph);

/** Puts all commands of a graph at the end of a stream's queue. Errors: as
 * usc_sim_submit(); those before the one that could not be queued run. */
USC_API USC_NODISCARD usc_status usc_sim_graph_replay(usc_sim_graph *graph,
                                                      usc_sim_stream stream,
                                                      usc_error *err);

/** NULL is allowed; replays under way end first, and nobody waits for them here. */
USC_API void usc_sim_graph_free(usc_sim_graph *graph);

USC_END_DECLS
#endif
