// SPDX-License-Identifier: Apache-2.0
// One thing that is done again and again, each time with another request for memory that
// fails.
#ifndef USC_TESTS_ATTEMPT_H
#define USC_TESTS_ATTEMPT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include "alloc_fails.h"
#include "base/folder.h"
#include "report_sample.h"

#include <stdio.h>

#include <ulpscope/trace.h>
#include <ulpscope/x/generate.h>
#include <ulpscope/x/loss.h>
#include <ulpscope/x/port.h>
#include <ulpscope/x/run.h>

/* One thing that is done again and again. */
typedef struct attempt {
    const char *name;
    usc_status (*act)(struct attempt *a, usc_error *err);
    char *folder;
    char *made, *expected; /* what it gave, and without failures */
    size_t n, n_expected;
    int n_wrong;
} attempt;

static inline void keep(attempt *a, const char *bytes, size_t n)
{
    a->made = __real_realloc(a->made, a->n + n + 1);
    assert_non_null(a->made);
    memcpy(a->made + a->n, bytes, n);
    a->n += n;
    a->made[a->n] = '\0';
}

/* SQLite asks a hundred times where we ask once, and has tests of its own for that: some
 * of its requests show whether we hear it. */
enum { SQLITE_STRIDE = 29, AFTER_STRIDE = 8 };

static inline bool same(const attempt *a)
{
    return a->n == a->n_expected && memcmp(a->made, a->expected, a->n) == 0;
}

/* Where two texts part. */
static inline void tell_difference(const attempt *a)
{
    size_t at = 0;
    while (at < a->n && at < a->n_expected && a->made[at] == a->expected[at])
        at++;
    const size_t from = at > 60 ? at - 60 : 0;
    print_error("instead of\n    %.120s\nthere is\n    %.120s\n", a->expected + from,
                a->made + from);
}

static inline void try_once(attempt *a, int fail_at, bool after, bool sqlite)
{
    usc_error err = {.text = ""};
    a->n = 0;
    keep(a, "", 0);
    alloc_fails_arm(fail_at, after, sqlite);
    const usc_status st = a->act(a, &err);
    const int n_failed = alloc_fails_disarm();
    if (st == USC_OK && same(a)) return;
    if (st == USC_E_NOMEM && n_failed > 0 && strstr(err.text, "memory") != NULL) return;
    a->n_wrong++;
    print_error("%s: request %d%s%s failed: %s (%s)\n", a->name, fail_at,
                sqlite ? " of SQLite" : "", after ? " and all behind it" : "",
                usc_status_name(st), st != USC_OK ? err.text : "unnoticed");
    if (st == USC_OK) tell_difference(a);
}

/* Until nothing fails any more. */
static inline void try_requests(attempt *a, bool sqlite)
{
    usc_error err = {.text = ""};
    a->n = 0;
    keep(a, "", 0);
    alloc_fails_arm(INT32_MAX, false, sqlite);
    if (a->act(a, &err) != USC_OK) fail_msg("%s: %s", a->name, err.text);
    const int n = alloc_fails.n_requests;
    (void)alloc_fails_disarm();
    a->expected = a->made;
    a->n_expected = a->n;
    a->made = NULL;
    assert_true(n > 0);
    printf("%s: %d requests%s\n", a->name, n, sqlite ? " of SQLite" : "");
    for (int fail_at = 1; fail_at <= n; fail_at += sqlite ? SQLITE_STRIDE : 1) {
        try_once(a, fail_at, false, sqlite);
        if (fail_at % AFTER_STRIDE == 1) try_once(a, fail_at, true, sqlite);
    }
    free(a->made);
    free(a->expected);
    a->made = a->expected = NULL;
}

#endif
