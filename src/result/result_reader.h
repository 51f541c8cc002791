// SPDX-License-Identifier: Apache-2.0
// What a report asks of a result database beside <ulpscope/result.h>.
#ifndef USC_RESULT_READER_H
#define USC_RESULT_READER_H

#include <ulpscope/result.h>

/** What a walk leaves out, for readers that do not need it. */
typedef enum usc_result_parts {
    USC_RESULT_ALL,
    USC_RESULT_LEAN, /* no examples */
    USC_RESULT_BARE  /* neither examples nor metrics */
} usc_result_parts;

/**
 * Opens a result database by its own path, whatever its name, and changes nothing about
 * it: what a killed writer left in its journal is read too.
 * Errors: USC_E_NOT_FOUND, USC_E_CORRUPT, USC_E_VERSION, USC_E_IO, USC_E_NOMEM.
 */
USC_NODISCARD usc_status usc_result_open_file(const char *path, usc_result **out,
                                              usc_error *err);

/** Calls `each` for every key of table run. What it gets is valid inside the call only;
 * its status ends the walk. Errors: as usc_result_walk. */
USC_NODISCARD usc_status usc_result_walk_run(
    usc_result *r,
    usc_status (*each)(void *ctx, const char *key, const char *value, usc_error *err),
    void *ctx, usc_error *err);

/** usc_result_walk over part of what there is. */
USC_NODISCARD usc_status usc_result_walk_parts(
    usc_result *r, usc_result_parts parts,
    usc_status (*each)(void *ctx, const usc_result_row *row, usc_error *err), void *ctx,
    usc_error *err);

#endif
