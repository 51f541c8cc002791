// SPDX-License-Identifier: Apache-2.0
// The Python side: which interpreter, and running it.
#ifndef ULPSCOPE_CLI_PYTHON_H
#define ULPSCOPE_CLI_PYTHON_H

#include <limits.h>

#include <ulpscope/status.h>

typedef struct cli_python {
    char program[PATH_MAX];
    char package[PATH_MAX]; /* the folder of its package ulpscope */
} cli_python;

/**
 * The interpreter that has the package ulpscope: $ULPSCOPE_PYTHON, else python3 beside
 * this program, else the one it was built with, else python3 of PATH. False after a set
 * error (NULL is allowed).
 */
bool cli_python_find(cli_python *out, usc_error *err);

/** Where this program lies; false, with errno, where the system does not tell. */
bool cli_own_program(char *path, size_t size);

/** Replaces this process by `PYTHON -m MODULE WORDS...` (which end with NULL); returns
 * (2) on failure. */
int cli_python_exec(const char *module, const char *const *words);

/**
 * Runs `argv` and collects its standard output (cut to `size`). Its exit code, 128 + n
 * after signal n, -1 where it did not start, -2 after `timeout_ms`.
 *
 * Its messages are dropped, and so is Ctrl-C; unless it `talks`: what asks to stop
 * (stop.h) is then a SIGINT to it, which it gets once it unblocks that.
 */
int cli_run(char *const argv[], int timeout_ms, bool talks, char *output, size_t size);

#endif
