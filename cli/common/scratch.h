// SPDX-License-Identifier: Apache-2.0
// Folders for what a command needs while it runs.
#ifndef ULPSCOPE_CLI_SCRATCH_H
#define ULPSCOPE_CLI_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>

/** Makes a fresh folder, NAME-XXXXXX, below the one for temporary files; false after a
 * sentence. */
bool cli_scratch_make(const char *name, char *out, size_t size);

/** Removes a folder and all in it; links are not followed. */
void cli_scratch_remove(const char *folder);

#endif
