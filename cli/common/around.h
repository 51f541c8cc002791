// SPDX-License-Identifier: Apache-2.0
// A command with us around it: its Python processes find our sitecustomize first
// (python/ulpscope/_bootstrap), which starts what they are to do where torch is imported,
// and leaves word of each process in a folder. The command itself: capture_child.c.
#ifndef ULPSCOPE_CLI_AROUND_H
#define ULPSCOPE_CLI_AROUND_H

#include <stdbool.h>
#include <stdio.h>

#include "common/cli_python.h"

/* How far the command's processes came. */
typedef struct around_seen {
    int n_python, n_torch; /* processes that came so far */
    char *not_started;     /* why one could not be recorded; NULL: none said so; the
                              caller frees */
} around_seen;

/** Compiles the glue ahead, where torch is beside our Python: the run does not wait then,
 * and ranks do not compete. The exit code; what is wrong is said. */
int around_build_glue(const cli_python *python);

/** Makes a folder for the reports, in the one for temporary files. False after a
 * sentence. */
bool around_make_reports(char path[PATH_MAX]);

/** Sets the environment in which every Python process starts our sitecustomize;
 * `variable` says what for, and where to report. False after a sentence. */
bool around_set_environment(const cli_python *python, const char *variable,
                            const char *reports);

/** Says on a terminal what is started, and what for: some programs say nothing for long. */
void around_tell_start(char *const *command, const char *purpose, const char *steps);

/** Reads the marks that the processes left. */
void around_read(const char *reports, around_seen *out);

/** Writes why no process was reached at all, as a clause; false where one was. */
bool around_put_unseen(FILE *to, const around_seen *s, char *const *command,
                       const char *variable);

/** The flag by which a Python in the command leaves PYTHONPATH or sites alone: 'I', 'E'
 * or 'S'; 0 where none does. Words behind the script are the script's. */
char around_ignoring_flag(char *const *command);

#endif
