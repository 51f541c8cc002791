// SPDX-License-Identifier: Apache-2.0
// `ulpscope run` in parts: its modes are one table (cmd_run.c), what the processes of the
// command found is read and said by run_told.c.
#ifndef ULPSCOPE_CLI_RUN_H
#define ULPSCOPE_CLI_RUN_H

#include <stdio.h>

#include "common/around.h"

/* What can watch a command. A row here, an option of that name in cmd_run.c and a row of
 * MODES in python/ulpscope/run_modes.py are a mode. */
typedef struct run_mode {
    int key;                   /* of its option */
    const char *name;          /* of its option, and in the reports */
    const char *one, *all;     /* what it finds: "birth of NaN or Inf", "births ..." */
    const char *kept, *reader; /* what it leaves in a folder; the command that reads it */
    const char *unit;          /* what it counts: "call" */
    const char *none;          /* what it saw none of where it counted none */
} run_mode;

extern const run_mode run_modes[];
enum { RUN_MAX_MODES = 8 };

/* All that is known of a run that is over. */
typedef struct run_seen {
    const run_mode *mode[RUN_MAX_MODES]; /* that were asked for */
    int n_modes;
    char *const *command;
    const char *reports;     /* folder */
    const char *steps, *ops; /* that were asked for; NULL: all */
    int status;              /* of the command, as waitpid gives it */
    around_seen around;
} run_seen;

/**
 * Says what was found, mode by mode and rank by rank. The exit code: the command's own
 * where it failed by itself; else 2 where a mode did not work, 1 where something was
 * found, 0.
 */
int run_conclude(const run_seen *seen, FILE *to);

/** As `ulpscope run --watch=CONFIG --watch-log LOG -- COMMAND`, but what was found is not
 * said. Its exit code. */
int run_watched(const char *config, const char *log, char **command);

#endif
