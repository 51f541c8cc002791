// SPDX-License-Identifier: Apache-2.0
// Names that a source declares itself, of all its files; those of C++ and of Python apart.
#ifndef USC_PORT_OWN_H
#define USC_PORT_OWN_H

#include "port/port_job.h"

typedef struct usc_port_own_name {
    bool there;      /* stands somewhere as a name */
    bool declared;   /* by the source */
    const char *why; /* it stays; NULL: it is renamed */
} usc_port_own_name;

/** Zero it to begin. */
struct usc_port_own {
    usc_keys known;
    usc_port_own_name *name;
    size_t n, size;
    bool failed; /* no memory at some time */
};

/** Learns from a file that was cut. */
void usc_port_own_learn(usc_port_job *job, usc_port_own *own, bool python);

/** Renames in a file what can be renamed in all of them, and leaves the others. */
void usc_port_own_apply(usc_port_job *job, bool python);

/** A word with the target's name in place of the source's; the same word where it has none. */
const char *usc_port_own_part(usc_port_job *job, const char *word);

/** What a name becomes; NULL: stays. */
const char *usc_port_own_to(usc_port_job *job, const char *word, bool python);

void usc_port_own_free(usc_port_own *own);

#endif
