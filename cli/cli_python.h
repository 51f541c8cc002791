// SPDX-License-Identifier: Apache-2.0
// The Python side: which interpreter, and running it.
#ifndef ULPSCOPE_CLI_PYTHON_H
#define ULPSCOPE_CLI_PYTHON_H

#include <stdbool.h>
#include <stddef.h>

/**
 * The interpreter that has the package ulpscope: $ULPSCOPE_PYTHON, else python3 beside
 * this program, else the one it was built with, else python3 of PATH. False after a
 * sentence on stderr.
 */
bool cli_python_find(char *path, size_t size);

/** Replaces this process by `PYTHON -m MODULE argv[1] ...`; returns (2) on failure. */
int cli_python_exec(const char *module, int argc, char **argv);

/**
 * Runs `argv` and collects its standard output (cut to `size`); its messages are dropped.
 * Its exit code, 128 + n after signal n, -1 where it did not start, -2 after
 * `timeout_ms`.
 */
int cli_run(char *const argv[], int timeout_ms, char *output, size_t size);

#endif
