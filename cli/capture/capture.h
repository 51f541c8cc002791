// SPDX-License-Identifier: Apache-2.0
// `ulpscope capture` in parts: the folder that it writes into (capture_folder.c), the
// command that it runs (capture_child.c), and what it says at the end (capture_words.c).
// What the command's processes report: ulpscope/x/launch.h.
#ifndef ULPSCOPE_CLI_CAPTURE_H
#define ULPSCOPE_CLI_CAPTURE_H

#include <limits.h>
#include <signal.h>
#include <stdio.h>

#include <ulpscope/call.h>
#include <ulpscope/x/launch.h>

#include "common/around.h"

/* What was asked for. */
typedef struct capture_options {
    const char *step_list; /* as it was written */
    usc_steps *steps;      /* the same: ascending, apart from each other */
    size_t n_steps;
    const char *data, *level, *ops, *output,
        *step_by;  /* ops, step_by: NULL where not given */
    int64_t limit; /* 0: none */
    bool force, no_compile, keep_going, end_run;
    const char *chosen; /* an option that goes without --until-differs alone; or NULL */
    const char
        *until;     /* a trace, from its root: goes on until something differs from it */
    char **command; /* ends with NULL */
} capture_options;

/* ---- the folder ---- */

/* TRACE, taken for one capture at a time. */
typedef struct capture_folder {
    const char *path;
    char real[PATH_MAX];
    bool made; /* by us: it goes away if it stays empty */
    int lock;
} capture_folder;

/** Whether that folder can be used; makes those above it. False after a sentence. */
bool capture_folder_check(const char *path, bool force);

/** Makes it where it is not there and takes it; what it held goes away only here. False
 * after a sentence; capture_folder_leave is then not needed. */
bool capture_folder_take(capture_folder *f, const char *path, bool force);

/**
 * Moves traces that their processes could not place to where they belong: of each rank
 * the one of its steps, else the one with the most calls. The others go, and their
 * reports. True where a trace is there afterwards.
 */
bool capture_folder_settle(const capture_folder *f, usc_launch_reports *reports);

/** Removes traces in which there is no call, where all that were written are such: an
 * empty one would be in the way of the next capture. */
void capture_folder_drop_empty(const capture_folder *f,
                               const usc_launch_reports *reports);

void capture_folder_leave(capture_folder *f);

/** Removes a folder with all that it holds, as far as it can. */
void capture_remove(const char *path);

/* ---- the command ---- */

/* The command, with our signals passed on to it. */
typedef struct capture_child {
    pid_t pid;
    bool own_group;
    int interrupted; /* the last signal that was meant to end us; 0: none came */
    sigset_t ours, before;
} capture_child;

/** Whether a command of that name can be run; false after a sentence. */
bool capture_can_run(const char *name);

/** Starts the command; false after a sentence. */
bool capture_child_start(capture_child *c, char **command);

/** Waits for it; returns what waitpid says. Five times a second `is_over` is asked; once
 * it was, the command has a grace to end by itself. Signals stay blocked from then on:
 * what was recorded is brought into order whatever comes. */
int capture_child_wait(capture_child *c, bool (*is_over)(void *ctx), void *ctx);

/* ---- what is said ---- */

/* All that is known of a run that is over. */
typedef struct capture_seen {
    const capture_options *options;
    usc_launch_reports reports;
    int status;      /* of the command, as waitpid gives it */
    int interrupted; /* as in capture_child */
    bool holds;      /* TRACE holds a trace */
    around_seen around;
} capture_seen;

/** Says what came of it in a line, or two; returns the exit code. */
int capture_conclude(const capture_seen *seen, FILE *to);

/** Says once what a step takes (*said), as soon as a process has told. */
void capture_say_rate(const usc_launch_reports *reports, bool *said, FILE *to);

/** Sorts ranges of steps and joins those that touch; returns how many are left. */
size_t capture_join_steps(usc_steps *steps, size_t n);

#endif
