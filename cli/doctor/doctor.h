// SPDX-License-Identifier: Apache-2.0
// What `ulpscope doctor` finds, check by check. Neighbours: cmd_doctor.c (the command),
// doctor_machine.c (what the system tells), doctor_python.c (what Python answers),
// doctor_words.c (what an error message means), doctor_symbols.c (what a library lacks).
#ifndef ULPSCOPE_CLI_DOCTOR_H
#define ULPSCOPE_CLI_DOCTOR_H

#include <ulpscope/api.h>

#include "cli.h"

enum { DOCTOR_TEXT = 700 };

typedef struct doctor_finding {
    const char *check; /* "torch": one word */
    bool wrong;
    char text[DOCTOR_TEXT]; /* what is, or what is wrong */
    char mend[DOCTOR_TEXT]; /* the command that mends it; "" where all is well */
} doctor_finding;

typedef struct doctor {
    const char *device; /* NULL: none was named */
    const char *imports[CLI_MAX_IMPORTS];
    const char *library, *source; /* of --symbols and --source; NULL: not given */
    int n_imports, n, room;
    doctor_finding *finding;
} doctor;

/** Adds that something is well. */
void doctor_fine(doctor *d, const char *check, const char *format, ...) USC_PRINTF(3, 4);

/** Adds that something is wrong; `mend` is filled in by the caller. */
doctor_finding *doctor_wrong(doctor *d, const char *check, const char *format, ...)
    USC_PRINTF(3, 4);

/** Sets what mends a finding. */
void doctor_mend(doctor_finding *f, const char *format, ...) USC_PRINTF(2, 3);

/** Clock, folders, limits, threads, locale. */
void doctor_machine(doctor *d);

/** Python, torch, the extension, the glue, what is imported, the device. */
void doctor_python(doctor *d);

/** Each symbol that a library lacks: its plain name, and where it is defined. Returns the
 * exit code of what could not be looked at (2), or 0. */
int doctor_symbols(doctor *d);

/* What a message of the loader tells. */
typedef enum doctor_load {
    DOCTOR_LOAD_OTHER,
    DOCTOR_LOAD_LIBRARY, /* a library that is not found: `name` */
    DOCTOR_LOAD_SYMBOL,  /* a symbol that nobody has: `name` */
    DOCTOR_LOAD_VERSION, /* a version of a system library that is too old here: `name` */
    DOCTOR_LOAD_FILE     /* a file that is no library for this machine: `name` */
} doctor_load;

/** What a message of the loader is about. */
doctor_load doctor_load_read(const char *message, char *name, size_t size);

/** The folder below the usual ones that holds a file of this name; false for none. */
bool doctor_find_library(const char *name, char *folder, size_t size);

#endif
