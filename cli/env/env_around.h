// SPDX-License-Identifier: Apache-2.0
// `ulpscope env -- COMMAND`: what a process of the command tells as it ends.
#ifndef ULPSCOPE_CLI_ENV_AROUND_H
#define ULPSCOPE_CLI_ENV_AROUND_H

#include <stddef.h>

/**
 * Runs a command; `out` gets what its first process with torch (of a job: rank 0) told as
 * it ended, as ulpscope.program.env_facts writes it: of variables those that begin with
 * one of `families`, which end with NULL. The exit code: the command's own, 128 + n after
 * signal n; 2 after a sentence where nothing was told.
 */
int env_around(char **command, const char *const *families, char *out, size_t size);

#endif
