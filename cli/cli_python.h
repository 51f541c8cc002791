// SPDX-License-Identifier: Apache-2.0
// The Python side: which interpreter, and running it.
#ifndef ULPSCOPE_CLI_PYTHON_H
#define ULPSCOPE_CLI_PYTHON_H

#include <ulpscope/status.h>

/**
 * The interpreter that has the package ulpscope: $ULPSCOPE_PYTHON, else python3 beside
 * this program, else the one it was built with, else python3 of PATH. False after a set
 * error (NULL is allowed).
 */
bool cli_python_find(char *path, size_t size, usc_error *err);

/** Replaces this process by `PYTHON -m MODULE VALUES... WORDS...` (the latter end with
 * NULL); returns (2) on failure. */
int cli_python_exec(const char *module, const char *const *values, size_t n_values,
                    char **words);

/**
 * Runs `argv` and collects its standard output (cut to `size`); its messages are dropped.
 * Its exit code, 128 + n after signal n, -1 where it did not start, -2 after
 * `timeout_ms`.
 */
int cli_run(char *const argv[], int timeout_ms, char *output, size_t size);

#endif
