// SPDX-License-Identifier: Apache-2.0
// Two traces of one step, recorded side by side: what one kept of tensors goes into the
// other. Neighbour: trace.h.
//
// Threads: any thread, while nobody else has either folder open.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_TRACE_TAKE_H
#define ULPSCOPE_X_TRACE_TAKE_H

#include <ulpscope/trace.h>

USC_BEGIN_DECLS

/**
 * Takes over what the trace in folder `from` kept of tensors: it holds one step, recorded
 * side by side with the trace in `folder`, which holds statistics alone. What is left in
 * `from` is no trace any more.
 *
 * Memory:  keeps nothing.
 * Errors:  USC_E_ARG where that is not the same step, or `folder` has data; those of
 *          opening both; USC_E_IO.
 */
USC_API USC_NODISCARD usc_status usc_trace_take_data(const char *folder, const char *from,
                                                     int64_t step, usc_error *err);

USC_END_DECLS
#endif
