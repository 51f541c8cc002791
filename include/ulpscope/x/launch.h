// SPDX-License-Identifier: Apache-2.0
// What the processes of a command that runs under `ulpscope capture` tell the program
// that started it, and each other: a file for each in a folder, which stands whole or not
// at all. Neighbour: python/ulpscope/_launched.py writes them.
//
// Threads: safe, while nobody frees the reports at hand.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_LAUNCH_H
#define ULPSCOPE_X_LAUNCH_H

#include <ulpscope/status.h>

USC_BEGIN_DECLS

/** What one process says. */
typedef struct usc_launch_report {
    int64_t rank, world, pid;
    bool finished; /* all steps that were asked for are recorded */
    bool whole;    /* the last of them ended with the program */
    bool loose;    /* its place shows when the command is over */
    bool taken;    /* the folder is another's: nothing in it is of this run */
    bool counted;  /* it lived to tell what it recorded: */
    bool stopped;  /* at the limit */
    int64_t n_calls, n_compiled_regions, bytes_written;
    int64_t first_step_bytes,
        room; /* what a step takes and there is room for; 0: untold */
    int64_t n_steps_ended;
    int64_t n_steps; /* recorded */
    const int64_t *step;
    const char *error; /* why recording failed; NULL: it did not */
    const char *said;  /* what it has to say of what it recorded; NULL: nothing */
    int64_t said_step, said_call; /* of which step, and call of it; -1: of none */
    const char
        *place; /* of its trace: "", "rank-N" or "process-PID"; NULL: it has none */
} usc_launch_report;

typedef struct usc_launch_reports {
    int64_t n;
    usc_launch_report *report; /* by rank, then by process */
    void *memory;              /* of usc_launch_reports_free */
} usc_launch_reports;

/**
 * Reads what was reported into `folder` until now. What is not there any more, or cannot
 * be read, is nothing: a program may clear temporary files.
 *
 * Memory:  *out is freed by usc_launch_reports_free.
 * Errors:  USC_E_NOMEM; *out is empty then.
 */
USC_API USC_NODISCARD usc_status usc_launch_reports_read(const char *folder,
                                                         usc_launch_reports *out,
                                                         usc_error *err);

/** Frees; an empty one is allowed. */
USC_API void usc_launch_reports_free(usc_launch_reports *r);

/** Whether every rank has recorded its steps, short of the program's end. */
USC_API bool usc_launch_all_done(const usc_launch_reports *r);

/** Whether a process other than `pid` left a trace at `place` short of its steps. */
USC_API bool usc_launch_is_left(const usc_launch_reports *r, const char *place,
                                int64_t pid);

USC_END_DECLS
#endif
