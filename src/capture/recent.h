// SPDX-License-Identifier: Apache-2.0
// The last calls of a session that writes no trace, with their data, in memory: rows as
// the writer makes them, of which what no call of the last ones names is forgotten. They
// become a trace when they are asked for (recent_write.c). Neighbours: watch.h, writer.c.
//
// Threads: the writer's, alone.
#ifndef USC_CAPTURE_RECENT_H
#define USC_CAPTURE_RECENT_H

#include "capture/message.h"

#include <ulpscope/x/capture.h>

typedef struct usc_recent usc_recent;

/** Keeps `calls` calls and up to `bytes` bytes of tensor data: of more, those that were
 * not used for longest go first; their calls keep statistics. Rows of what lives are held
 * besides. Errors: USC_E_NOMEM. Memory: freed by usc_recent_free. */
USC_NODISCARD usc_status usc_recent_make(int64_t calls, int64_t bytes, usc_recent **out,
                                         usc_error *err);

/** Frees; NULL is allowed. */
void usc_recent_free(usc_recent *r);

/** One row each, as usc_trace_put_*: texts are copied. Errors: USC_E_NOMEM. */
USC_NODISCARD usc_status usc_recent_storage(usc_recent *r, const usc_storage_row *row,
                                            usc_error *err);
USC_NODISCARD usc_status usc_recent_version(usc_recent *r, const usc_version_row *row,
                                            usc_error *err);
/** `part`: the part of the storage that it lies in, 0: the version's own bytes. */
USC_NODISCARD usc_status usc_recent_tensor(usc_recent *r, const usc_tensor_row *row,
                                           int64_t part, usc_error *err);
USC_NODISCARD usc_status usc_recent_call(usc_recent *r, const usc_call_row *row,
                                         usc_error *err);
USC_NODISCARD usc_status usc_recent_arg(usc_recent *r, const usc_arg_row *row,
                                        usc_error *err);

/** A name, a meta key or a remark, by the kind of its message. */
USC_NODISCARD usc_status usc_recent_text(usc_recent *r, int64_t kind, int64_t id,
                                         const char *first, const char *second,
                                         usc_error *err);

/** Bytes of a version (`part` 0) or of a part of it: copied where there is room. */
USC_NODISCARD usc_status usc_recent_bytes(usc_recent *r, int64_t version, int64_t part,
                                          const void *bytes, int64_t size,
                                          usc_error *err);

/** What is held of them; NULL: nothing. Valid until the next call. */
const unsigned char *usc_recent_find(const usc_recent *r, int64_t version, int64_t part);

/** The call has ended; older ones are forgotten. */
void usc_recent_end(usc_recent *r, int64_t sequence, const char *status);

/** A storage came to its end. */
void usc_recent_gone(usc_recent *r, int64_t storage);

/** Bytes of data that are held now. */
int64_t usc_recent_held(const usc_recent *r);

/**
 * Writes the last calls as a trace into `path`, or, where that holds anything, into
 * path-2, path-3 and so on; folders above it are made. `*written`: the folder (malloc);
 * NULL: there was no call yet. After an error nothing of the trace is left.
 *
 * Errors: those of usc_trace_create and usc_trace_put_*.
 */
USC_NODISCARD usc_status usc_recent_write(usc_recent *r, const char *path, char **written,
                                          usc_error *err);

#endif
