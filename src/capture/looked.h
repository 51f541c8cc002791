// SPDX-License-Identifier: Apache-2.0
// What was looked at where it lies: ranges by number as they come, and what each storage
// showed last, which tells a write that nobody announced. Neighbour: watch.c.
#ifndef USC_CAPTURE_LOOKED_H
#define USC_CAPTURE_LOOKED_H

#include "capture/id_table.h"

#include <ulpscope/x/capture.h>

/* Zero is one that knows nothing. */
typedef struct usc_looked_list {
    usc_id_table ranges;   /* by number, until they are taken */
    usc_id_table storages; /* what they showed last */
    int64_t n_unseen;      /* writes */
} usc_looked_list;

/** Keeps what came. Errors: USC_E_NOMEM. */
USC_NODISCARD usc_status usc_looked_put(usc_looked_list *l, const usc_looked *row,
                                        usc_error *err);

/** Whether the range of a number has come. */
bool usc_looked_has(const usc_looked_list *l, int64_t look);

/** Takes the range of a number; false: it is not known. */
bool usc_looked_take(usc_looked_list *l, int64_t look, usc_range *out);

/**
 * The version that an argument is of: its own, or, where its elements are others than at
 * the last look at this view of that version, one that nobody else has. Where they are
 * the same `range` becomes what they were then, which may have been counted. NULL: they
 * were not looked at. In the order in which calls ended.
 */
int64_t usc_looked_version(usc_looked_list *l, const usc_call_arg *arg, uint64_t view,
                           usc_range *range);

/** A storage came to its end. */
void usc_looked_gone(usc_looked_list *l, int64_t storage);

void usc_looked_free(usc_looked_list *l);

#endif
