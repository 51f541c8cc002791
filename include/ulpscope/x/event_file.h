// SPDX-License-Identifier: Apache-2.0
// Records of TensorBoard's event files, written: numbers of one step under their names.
// Framing: TFRecord (length, masked CRC-32C of it, bytes, masked CRC-32C of them); bytes:
// the protocol buffer Event (wall_time 1, step 2, file_version 3, summary 5).
// Neighbour: loss.h reads them.
//
// Threads: safe.
// NULL: where a contract says so.
#ifndef ULPSCOPE_X_EVENT_FILE_H
#define ULPSCOPE_X_EVENT_FILE_H

#include <ulpscope/api.h>

USC_BEGIN_DECLS

/** A number and its name, UTF-8; it is stored as a float32, as TensorBoard has it. */
typedef struct usc_scalar {
    const char *name;
    double value;
} usc_scalar;

/**
 * Writes one record: of `n` numbers at a step, `wall` seconds since 1970; of none that
 * with which a file begins. `scalars` may be NULL where n is 0, `out` where size is 0.
 *
 * Memory:  allocates nothing. Returns the bytes of the whole record; where these are more
 * than `size`, nothing of use stands in `out`.
 */
USC_API size_t usc_event_record(double wall, int64_t step, const usc_scalar *scalars,
                                size_t n, void *out, size_t size);

USC_END_DECLS
#endif
