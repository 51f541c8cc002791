// SPDX-License-Identifier: Apache-2.0
// How rows of a query are written: a table for a terminal, CSV, or a line of JSON each.
#ifndef ULPSCOPE_CLI_SQL_H
#define ULPSCOPE_CLI_SQL_H

#include <stdbool.h>
#include <stdint.h>

#include <ulpscope/x/query.h>

typedef enum sql_form { SQL_TABLE, SQL_CSV, SQL_JSON } sql_form;

/* Rows on their way to stdout. Those of a table are kept until its end, when the widths
 * are known. */
typedef struct sql_rows {
    sql_form form;
    int64_t most; /* rows; 0: all */
    int64_t n;    /* that came */
    int n_columns;
    char **cell; /* of a table: titles, then rows */
    int64_t n_cells, room;
    bool every;     /* all views, where no question was asked */
    bool failed;    /* no memory */
    char twice[64]; /* the name that two columns have, which JSON cannot */
} sql_rows;

/** The titles and a row of usc_query_sink. */
bool sql_begin(void *rows, int n, const char *const *names);
bool sql_take(void *rows, int n, const char *const *names, const usc_query_value *values);

/** Writes what was kept; frees it. */
void sql_end(sql_rows *rows);

#endif
