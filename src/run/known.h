// SPDX-License-Identifier: Apache-2.0
// What is known of the causes of groups of findings that are alike. The coordinator keeps
// it for all of its workers, so that a group costs one search, not one for each of them.
#ifndef USC_RUN_KNOWN_H
#define USC_RUN_KNOWN_H

#include "base/arena.h"
#include "base/keys.h"
#include "base/line.h"

typedef struct usc_known_group usc_known_group;

typedef struct usc_known {
    usc_arena arena;
    usc_keys groups; /* hash of a name -> usc_known_group */
    usc_known_group *last;
    bool failed; /* no memory at some time: somebody was not told */
} usc_known;

/** Who is told what: `line` answers the worker of number `who`. */
typedef struct usc_known_hearer {
    void *ctx;
    void (*tell)(void *ctx, int who, const char *line);
} usc_known_hearer;

void usc_known_begin(usc_known *k);
void usc_known_free(usc_known *k);

/**
 * Worker `who` has heard the first `heard` causes of a group: it is told those that came
 * since, or that it is to search, which at most `most` do in turn. Where another one
 * searches, it is told when that has ended.
 */
void usc_known_ask(usc_known *k, int who, const char *group, int64_t heard, int64_t most,
                   const usc_known_hearer *to);

/** A search ended, with "" where it found nothing. */
void usc_known_found(usc_known *k, const char *group, const char *cause,
                     const usc_known_hearer *to);

/** A worker is gone: it asks no more, and its search has ended. */
void usc_known_gone(usc_known *k, int who, const usc_known_hearer *to);

#endif
