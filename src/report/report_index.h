// SPDX-License-Identifier: Apache-2.0
// A hash index over nodes of a report, so that finding one among 100,000 takes no walk.
#ifndef USC_REPORT_INDEX_H
#define USC_REPORT_INDEX_H

#include "report/report_model.h"

/** Continues the hash `h` (0 first) with `n` bytes. */
uint64_t usc_index_hash(uint64_t h, const void *bytes, size_t n);

/** The same with a text; NULL is "". */
uint64_t usc_index_hash_text(uint64_t h, const char *text);

/** The latest node with that hash, NULL if none: the caller compares what it is. */
usc_indexed *usc_index_first(const usc_index *index, uint64_t hash);

/** The next node with the same hash. */
usc_indexed *usc_index_next(const usc_indexed *node);

/** Adds a node. Errors: USC_E_NOMEM. */
USC_NODISCARD usc_status usc_index_add(usc_report *r, usc_index *index, usc_indexed *node,
                                       uint64_t hash, usc_error *err);

#endif
