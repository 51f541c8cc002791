// SPDX-License-Identifier: Apache-2.0
// Inside of a query: a database in memory of its own, to which the files are attached:
// t0, t1, ... traces, o0, o1, ... results.
#ifndef USC_QUERY_INSIDE_H
#define USC_QUERY_INSIDE_H

#include <ulpscope/x/query.h>

#include "base/path.h"
#include "db/db.h"

enum { USC_QUERY_MOST = 64 };

typedef struct usc_query_member {
    int64_t rank;
    int trace, results; /* number of what is attached; -1: none */
    char trace_path[USC_PATH_SIZE], results_path[USC_PATH_SIZE];
} usc_query_member;

struct usc_query {
    sqlite3 *handle;
    usc_query_member member[USC_QUERY_MOST];
    int n, n_traces, n_results;
    bool made;  /* the views are there */
    bool asked; /* for verdicts, and there are no results */
    char lacks[USC_PATH_SIZE];
    char refused[160]; /* why the statement may not be prepared */
    const usc_query_sink *sink;
};

/** Makes the views of all members. Errors: USC_E_NOMEM, USC_E_CORRUPT. */
USC_NODISCARD usc_status usc_query_make_views(usc_query *q, usc_error *err);

/** From here on nothing but the views is read, and nothing written. */
void usc_query_guard(usc_query *q);

/** Sets `err` from what SQLite said last. */
usc_status usc_query_error(usc_query *q, const char *doing, usc_error *err);

#endif
