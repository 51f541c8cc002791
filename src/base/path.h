// SPDX-License-Identifier: Apache-2.0
// Paths of files in folders.
#ifndef USC_BASE_PATH_H
#define USC_BASE_PATH_H

#include <ulpscope/status.h>

#define USC_PATH_SIZE 4096

/** `folder`/`name` into `out` of USC_PATH_SIZE bytes. Errors: USC_E_ARG (too long). */
USC_NODISCARD usc_status usc_path_join(char *out, const char *folder, const char *name,
                                       usc_error *err);

#endif
