// SPDX-License-Identifier: Apache-2.0
// One worker process: lines in on its standard input, lines out on a descriptor of its
// own, since operators may print. Neighbour: crew.c.
#ifndef USC_RUN_WORKER_H
#define USC_RUN_WORKER_H

#include <stdio.h>
#include <sys/types.h>

#include <ulpscope/status.h>

#include "base/line.h"

#define USC_WORKER_FD "3" /* the descriptor on which a worker answers */
#define USC_WORKER_NOTE 4 /* the file in which it keeps what it is at */
#define USC_WORKER_NOTE_SIZE 64

typedef struct usc_worker {
    pid_t process;
    int in, out; /* we write and read here; -1: closed */
    int note;    /* the file USC_WORKER_NOTE; -1: closed */
    FILE *log;   /* what it writes on its own */
    usc_line buffer;
    size_t taken; /* bytes of the buffer that were handed out */
} usc_worker;

/** Starts `command` with two more arguments: USC_WORKER_FD and `settings`. Errors:
 * USC_E_IO. */
USC_NODISCARD usc_status usc_worker_start(usc_worker *w, char *const command[],
                                          const char *settings, char *const environment[],
                                          usc_error *err);

/** Sends a line. That nobody reads it any more shows when `out` ends. */
void usc_worker_tell(usc_worker *w, const char *line);

/** Sends bytes, as a line announced them. */
void usc_worker_send(usc_worker *w, const void *bytes, size_t size);

/** Reads what is there; false once the worker is gone. */
bool usc_worker_read(usc_worker *w);

/** The next whole line that was read, without its end; NULL where there is none. Memory:
 * until the next call with `w`. */
char *usc_worker_line(usc_worker *w);

/** Reads exactly `size` bytes that follow the last line; false once the worker is gone.
 */
bool usc_worker_bytes(usc_worker *w, void *out, size_t size);

/** What the process is at, and since when (CLOCK_MONOTONIC; here seconds), as it wrote it
 * at the start of its file: "NAME NANOSECONDS\n". False where that says nothing. It is
 * read where a process died or is late, so that telling it wakes nobody. */
bool usc_worker_note(const usc_worker *w, char name[USC_WORKER_NOTE_SIZE], double *since);

/** Ends the process (at once, or once it has had time to go) and frees; its status, as
 * waitpid gives it. */
int usc_worker_end(usc_worker *w, bool kill_it);

/** How many bytes the process has written on its own. */
int64_t usc_worker_said(const usc_worker *w);

/** The last line that the process wrote on its own behind so many bytes, "" where it wrote
 * none; what is no text is left out. Before usc_worker_end. */
void usc_worker_last_words(usc_worker *w, int64_t from, char *out, size_t size);

/** How a process ended, as a clause: "died of SIGSEGV". */
void usc_worker_death(int status, char *out, size_t size);

#endif
