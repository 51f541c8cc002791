// SPDX-License-Identifier: Apache-2.0
// A session that writes no trace: rows as the writer makes them become calls again, which
// are handed over when they end. Holds the rows of storages that live, of calls that are
// open, and names. See usc_capture_watch. Neighbour: writer.c.
//
// Threads: the writer's, alone.
#ifndef USC_CAPTURE_WATCH_H
#define USC_CAPTURE_WATCH_H

#include <ulpscope/x/capture.h>

typedef struct usc_watcher usc_watcher;

/** Errors: USC_E_NOMEM. Memory: freed by usc_watcher_free. */
USC_NODISCARD usc_status usc_watcher_make(const usc_capture_watch *watch,
                                          usc_watcher **out, usc_error *err);

/** Frees; NULL is allowed. */
void usc_watcher_free(usc_watcher *w);

/** One row each, as usc_trace_put_*: texts are copied. Errors: USC_E_NOMEM. */
USC_NODISCARD usc_status usc_watcher_storage(usc_watcher *w, const usc_storage_row *row,
                                             usc_error *err);
USC_NODISCARD usc_status usc_watcher_version(usc_watcher *w, const usc_version_row *row,
                                             usc_error *err);
/** `range` is copied, too; NULL: nothing is known of its elements. */
USC_NODISCARD usc_status usc_watcher_tensor(usc_watcher *w, const usc_tensor_row *row,
                                            const usc_range *range, usc_error *err);
USC_NODISCARD usc_status usc_watcher_call(usc_watcher *w, const usc_call_row *row,
                                          usc_error *err);
/** `look`, `view`: usc_arg_message. */
USC_NODISCARD usc_status usc_watcher_arg(usc_watcher *w, const usc_arg_row *row,
                                         int64_t look, uint64_t view, usc_error *err);

/** What a name is of. */
typedef enum usc_watched_name {
    USC_WATCHED_OP,
    USC_WATCHED_MODULE,
    USC_WATCHED_STACK,
    USC_N_WATCHED_NAMES
} usc_watched_name;

USC_NODISCARD usc_status usc_watcher_name(usc_watcher *w, usc_watched_name of, int64_t id,
                                          const char *text, usc_error *err);

/** The call has ended: it is handed over, in its turn and when its looks have come.
 * Errors: those of usc_capture_watch.call. */
USC_NODISCARD usc_status usc_watcher_end(usc_watcher *w, int64_t sequence,
                                         const char *status, usc_error *err);

/** What became known of a look. Errors: USC_E_NOMEM. */
USC_NODISCARD usc_status usc_watcher_looked(usc_watcher *w, const usc_looked *row,
                                            usc_error *err);

/** Hands over the calls whose looks have come; `all`: also the others, without. Errors:
 * those of usc_capture_watch.call. */
USC_NODISCARD usc_status usc_watcher_hand_over(usc_watcher *w, bool all, usc_error *err);

/** A storage came to its end. */
void usc_watcher_gone(usc_watcher *w, int64_t storage);

#endif
