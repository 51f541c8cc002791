// SPDX-License-Identifier: Apache-2.0
// What `ulpscope --version` prints.
#ifndef ULPSCOPE_CLI_VERSION_H
#define ULPSCOPE_CLI_VERSION_H

/** Prints the versions of program, library and glue; the exit code. */
int cli_version(void);

#endif
