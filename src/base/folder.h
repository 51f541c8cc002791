// SPDX-License-Identifier: Apache-2.0
// Folders that appear when they are complete: written as NAME.part beside their place.
#ifndef USC_BASE_FOLDER_H
#define USC_BASE_FOLDER_H

#include "base/path.h"

/** Removes a folder and all in it, as far as that goes; links are not followed. */
void usc_folder_remove(const char *folder);

/** Makes `folder``name` and the folders above it that are not there. Errors: USC_E_ARG
 * (too long), USC_E_IO. */
USC_NODISCARD usc_status usc_folder_make(const char *folder, const char *name,
                                         usc_error *err);

/** Flushes a folder and all below it, with whatever else waits to be written to the same
 * file system: of thousands of small files that is a fraction of what flushing each
 * takes. Errors: USC_E_IO. */
USC_NODISCARD usc_status usc_folder_flush(const char *folder, usc_error *err);

/** The name under which `out` is written until it is complete, for `part` of
 * USC_PATH_SIZE bytes. Errors: USC_E_EXISTS (`out` is there), USC_E_ARG (too long). */
USC_NODISCARD usc_status usc_folder_part(const char *out, char *part, usc_error *err);

#endif
