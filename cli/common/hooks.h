// SPDX-License-Identifier: Apache-2.0
// What a run of the library (ulpscope/x/run.h) needs of a program: the interpreter of its
// workers, messages, progress, and Ctrl-C.
#ifndef ULPSCOPE_CLI_HOOKS_H
#define ULPSCOPE_CLI_HOOKS_H

#include <ulpscope/x/run.h>

#include "cli.h"
#include "common/cli_python.h"
#include "common/progress.h"

typedef struct cli_hooks {
    usc_run_hooks hooks;
    cli_python python;
    const char *module; /* that a worker runs; NULL: ulpscope.worker */
    char *command[4];
    cli_progress progress;
} cli_hooks;

/** Fills the hooks for a command; from here on SIGINT and SIGTERM only ask to stop. */
void cli_hooks_begin(cli_hooks *h, const char *command);

/** Ends that; what progress drew is gone. */
void cli_hooks_end(cli_hooks *h);

/** Cores that this process may use. */
int cli_cores(void);

/** Threads of each worker that OMP_NUM_THREADS asks for; 0: it does not. */
int cli_threads(void);

/* The other ranks of a check that torchrun started (shares.c); NULL: there are none. */
typedef struct cli_shares {
    usc_run_ranks ranks;
    int in, out;        /* the Python process that started us: ulpscope.shares */
    int local, n_local; /* place among the ranks of this machine */
    const char *area;   /* OUT of the check in work: what a share is a share of */
    char device[256];   /* this rank's, where the option names none of several */
} cli_shares;

cli_shares *cli_shares_found(void);

/** Divides what this machine has among its ranks, and takes this rank's device. */
void cli_shares_divide(cli_shares *s, usc_check_options *o);

/** Nothing more comes from here for this OUT. */
void cli_shares_leave(cli_shares *s, const char *out);

/** Checks every rank of a job with `check`, whose options differ in folders and files;
 * the worst exit code. */
int cli_check_ranks(const usc_check_options *options, const cli_report *report,
                    int (*check)(const usc_check_options *, const cli_report *));

#endif
