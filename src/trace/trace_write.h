// SPDX-License-Identifier: Apache-2.0
// What capture may do with a writer besides ulpscope/trace.h: store bytes whose hash it
// knows already, and ask first whether they are there.
#ifndef USC_TRACE_WRITE_H
#define USC_TRACE_WRITE_H

#include <ulpscope/trace.h>

#include "base/hash.h"

/** Id of the blob with this content, 0 where there is none yet. */
int64_t usc_trace_find_blob(const usc_trace_writer *w, usc_hash128 hash, int64_t size);

/** usc_trace_put_blob for bytes whose usc_hash_bytes() the caller has computed. */
USC_NODISCARD usc_status usc_trace_put_hashed_blob(usc_trace_writer *w, usc_hash128 hash,
                                                   const void *data, int64_t size,
                                                   int64_t *blob, usc_error *err);

#endif
