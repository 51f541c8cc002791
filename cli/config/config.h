// SPDX-License-Identifier: Apache-2.0
// Defaults of a project: ulpscope.toml, or [tool.ulpscope] of pyproject.toml, in the
// folder where the program is started or the nearest above it. They become words of the
// command line, before those that were typed. docs/how-to/defaults.md
#ifndef ULPSCOPE_CLI_CONFIG_H
#define ULPSCOPE_CLI_CONFIG_H

#include "cli.h"

/* One value, as it is or as one element of an array. */
typedef struct cli_default {
    const char *command; /* whose option it is; NULL: of every command that has it */
    char *name;          /* "fail-on" */
    char *text;          /* "true" and "false" where is_bool; NULL: an empty array */
    int line;
    bool is_bool, again; /* again: a further element of the array before it */
} cli_default;

typedef struct cli_config {
    char *path;   /* as it is shown: relative where it lies in the working folder;
                      NULL: there is none */
    char *passed; /* one that was not read, for it is another user's; NULL: none */
    cli_default *defaults;
    size_t n, size;
} cli_config;

/** Once, before all else here: the pages of all commands, NULL behind them. */
void cli_config_begin(const cli_page *const *pages);

/** One of these pages; NULL: no such command. */
const cli_page *cli_config_page(const char *command);

/** Says that there is no such command, with the nearest there is: CLI_TROUBLE. */
int cli_config_no_command(const char *command);

/**
 * Finds and reads the file, and holds every name in it to what the commands have:
 * false after a sentence on stderr. Variable ULPSCOPE_CONFIG: the file to read, or "off".
 * Freed by cli_config_free, also after a failure.
 */
bool cli_config_read(cli_config *out);

void cli_config_free(cli_config *config);

/** The first default that a command takes for an option, the command's own before that of
 * all; NULL: none. */
const cli_default *cli_config_of(const cli_config *config, const cli_page *page,
                                 const cli_entry *option);

/** The next element of the array that `d` is of; NULL behind the last. */
const cli_default *cli_config_next(const cli_config *config, const cli_default *d);

/**
 * The words of a command line with the defaults of options that were not typed, which
 * are told on stderr: NULL after a sentence there. `*argc` words, NULL behind them, in
 * one piece of memory that lives as long as the program; `argv` itself where nothing is
 * to be added.
 */
char **cli_config_apply(const cli_page *page, int *argc, char **argv);

#endif
