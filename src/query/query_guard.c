// SPDX-License-Identifier: Apache-2.0
// What a statement may do: read the views. Refused while it is prepared, so that nothing
// of a statement runs that may not; and once more by SQLite itself, which may not write.
#include <stdio.h>
#include <string.h>

#include "query/query_inside.h"

/* Tables that are made of their own arguments. */
static const char *const open_tables[] = {"json_each", "json_tree"};

static bool is_view(const char *name)
{
    int n;
    const usc_query_view *view = usc_query_views(&n);
    for (int i = 0; name != NULL && i < n; i++)
        if (sqlite3_stricmp(name, view[i].name) == 0) return true;
    for (int i = 0; name != NULL && i < 2; i++)
        if (sqlite3_stricmp(name, open_tables[i]) == 0) return true;
    return false;
}

static int refuse(usc_query *q, const char *format, const char *name)
{
    if (q->refused[0] == '\0')
        (void)snprintf(q->refused, sizeof q->refused, format, name);
    return SQLITE_DENY;
}

/* Without a column rows are only counted, of which SQLite does not tell through which
 * view; a table of WITH is named so, too. */
static int may_read(usc_query *q, const char *table, const char *column, const char *view)
{
    if (column == NULL || column[0] == '\0') return SQLITE_OK;
    if (is_view(view) || is_view(table)) return SQLITE_OK;
    return refuse(q,
                  "'%s' is no view: there are calls, tensors, modules, verdicts, "
                  "causes and ranks",
                  table);
}

static int allow(void *ctx, int action, const char *a, const char *b, const char *base,
                 const char *view)
{
    usc_query *q = ctx;
    (void)base;
    switch (action) {
    case SQLITE_SELECT:
    case SQLITE_RECURSIVE:
        return SQLITE_OK;
    case SQLITE_FUNCTION:
        return sqlite3_stricmp(b, "load_extension") == 0
                   ? refuse(q, "%s is not allowed here", b)
                   : SQLITE_OK;
    case SQLITE_READ:
        return may_read(q, a, b, view);
    case SQLITE_ATTACH:
    case SQLITE_DETACH:
        return refuse(q, "%s: nothing else can be attached here",
                      action == SQLITE_ATTACH ? "ATTACH" : "DETACH");
    case SQLITE_PRAGMA:
        return refuse(q, "PRAGMA %s is not allowed here", a);
    default:
        return refuse(q, "%s",
                      "only SELECT is allowed here: traces and results are "
                      "read, never changed");
    }
}

void usc_query_guard(usc_query *q)
{
    static const int limits[][2] = {{SQLITE_LIMIT_LENGTH, 64 << 20},
                                    {SQLITE_LIMIT_SQL_LENGTH, 100000},
                                    {SQLITE_LIMIT_EXPR_DEPTH, 200},
                                    {SQLITE_LIMIT_COMPOUND_SELECT, 200},
                                    {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000}};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        (void)sqlite3_limit(q->handle, limits[i][0], limits[i][1]);
    (void)sqlite3_db_config(q->handle, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    /* SQLite declares such a table when it is first read, which looks like writing. */
    (void)sqlite3_exec(q->handle, "SELECT 1 FROM json_each('[]'), json_tree('[]')", NULL,
                       NULL, NULL);
    (void)sqlite3_exec(q->handle, "PRAGMA query_only=ON", NULL, NULL, NULL);
    (void)sqlite3_set_authorizer(q->handle, allow, q);
}
