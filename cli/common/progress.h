// SPDX-License-Identifier: Apache-2.0
// Progress of a long run on standard error: one line that is drawn again on a terminal, a
// line every few seconds elsewhere. A thread of its own sees to it that none of what runs
// between beginning and end is silent for long, whatever it calls.
#ifndef ULPSCOPE_CLI_PROGRESS_H
#define ULPSCOPE_CLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cli_progress {
    const char *command; /* "check" */
    const char *what;    /* what is being done, as the library says it */
    int64_t first;       /* done before */
    double start, shown; /* clock, at the first that was done here, at the last line */
    int64_t done, total, flagged;
    double expected;     /* calls as those so far took that are left; 0: as counted */
    int64_t operators;   /* of drawn cases: those that had one; 0: calls of a trace */
    double begun, moved; /* clock, at its beginning, where something was done last */
    bool terminal, drawn, waited;
    bool starts; /* whoever works waits for others, who have not begun */
} cli_progress;

/** Seconds of a clock that only goes forward. */
double cli_now(void);

/** The clock when this was asked for the first time: where the command began. */
double cli_progress_clock(void);

/** Begins: whoever waits is told for how long the command has run. One at a time; `p` must
 * stay where it is until the end. */
void cli_progress_begin(cli_progress *p, const char *command);

/** The same of what mostly takes no time: nothing is drawn before it has taken a while. */
void cli_progress_read(cli_progress *p, const char *command);

/** Ends it; what was drawn is gone. Twice is allowed. */
void cli_progress_end(cli_progress *p);

/** Takes the line of whatever runs from the terminal, for who writes there. */
void cli_progress_hide(void);

/** A sentence of its own, as a line. */
void cli_progress_say(cli_progress *p, const char *text);

/** Tells that `done` of `total` are done; prints where it is time to. */
void cli_progress_tell(cli_progress *p, const char *what, int64_t done, int64_t total,
                       int64_t flagged);

/** Nothing happened for a while: tells that workers start, where none has done anything,
 * and else how far it is, each with the seconds since. */
void cli_progress_wait(cli_progress *p);

/** Whether that is due at a time, and the line. */
bool cli_progress_waits(const cli_progress *p, double now, char *out, size_t size);

/** The line at a time: how far it is, and how long it takes once that is known. */
void cli_progress_text(const cli_progress *p, double now, char *out, size_t size);

/** A number with commas between thousands. */
const char *cli_grouped(int64_t n, char out[32]);

#endif
