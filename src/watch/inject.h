// SPDX-License-Identifier: Apache-2.0
// One line of a schedule, read (inject_read.c) and applied (inject.c).
#ifndef USC_WATCH_INJECT_H
#define USC_WATCH_INJECT_H

#include <ulpscope/x/inject.h>

#include "json/json.h"

typedef struct usc_inject_rule {
    usc_json *document; /* holds the texts */
    usc_inject_kind kind;
    int64_t line, step, n_steps, rank;
    const char *site, *name; /* PATTERNs; NULL: all */
    bool drawn;              /* no element is given: it is drawn */
    int64_t element, count, every;
    int64_t bit, n_bits; /* -1: drawn */
    uint64_t mask;       /* 0: drawn */
    int64_t value, shift;
    double factor, growth, p;
    int64_t n_calls;      /* that it was due at */
    void *kept;           /* stale: the elements of the call before */
    int64_t n_kept, size; /* how many, bytes */
} usc_inject_rule;

enum { USC_INJECT_MOST_DONE = 4096 };

struct usc_injector {
    uint64_t seed;
    usc_inject_rule *rule;
    int64_t n_rules;
    usc_injected *done; /* USC_INJECT_MOST_DONE */
    int64_t n_done;
};

/** Reads one line; what `*out` holds is freed by usc_inject_rule_free also after a
 * failure. Errors: as usc_injector_make. */
USC_NODISCARD usc_status usc_inject_read(const char *text, size_t size, int64_t line,
                                         usc_inject_rule *out, usc_error *err);

/** Frees what it holds. */
void usc_inject_rule_free(usc_inject_rule *rule);

#endif
