// SPDX-License-Identifier: Apache-2.0
// ulpscope sql: a question in SQL to a trace or to the results of a check.
#include "cli.h"
#include "common/stop.h"
#include "sql/sql.h"

#include <string.h>

enum { OPT_JSON = 256, OPT_CSV, OPT_LIMIT };
enum { MOST_IN_TABLE = 1000 };

static const cli_entry own_options[] = {
    {OPT_JSON, "json", NULL, NULL, "one JSON object per row and line"},
    {OPT_CSV, "csv", NULL, NULL, "CSV with a line of titles"},
    {OPT_LIMIT, "limit", "N", NULL,
     "at most N rows (default 1,000 of a table, all as JSON and CSV)"},
    {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_sql_page = {
    .command = "sql",
    .usage = "TRACE|OUT [SELECT] [OPTIONS]",
    .about =
        "Runs one SELECT (SQLite's) over six views that stay as they are: calls, "
        "tensors, modules, verdicts, causes, ranks. Of results, OUT, also the trace that "
        "they are of is there, where it still is in its place. Of a folder with rank-0, "
        "rank-1, ... all ranks are. Nothing is written, whatever the statement says; "
        "Ctrl-C ends it.\n"
        "\n"
        "Without a SELECT: the views, their columns, and how many rows they have. "
        "docs/reference/sql.md has ten questions as they are asked.\n",
    .options = options,
    .examples =
        "  ulpscope sql ulpscope-out 'select op, verdict, count(*) from verdicts group "
        "by "
        "1, 2'\n"
        "  ulpscope sql ulpscope-trace 'select * from tensors where n_nan > 0 limit 5'\n"
        "  ulpscope sql ulpscope-out --csv 'select * from causes' > causes.csv\n",
    .codes =
        "0 rows were shown, or there is none, 2 something went wrong, 130 interrupted",
};

typedef struct arguments {
    const char *folder, *sql;
    sql_rows rows;
    int64_t limit; /* -1: not given */
} arguments;

static bool parse(int argc, char **argv, arguments *a)
{
    *a = (arguments){.limit = -1};
    for (int key; (key = cli_next(&cmd_sql_page, argc, argv)) != -1;)
        switch (key) {
        case OPT_JSON:
            a->rows.form = SQL_JSON;
            break;
        case OPT_CSV:
            a->rows.form = SQL_CSV;
            break;
        case OPT_LIMIT:
            if (!cli_number("--limit", optarg, &a->limit)) return false;
            break;
        default:
            return false;
        }
    const int n = argc - optind;
    if (n < 1 || n > 2)
        return cli_fail(
                   n < 1 ? "sql needs a trace or the results of a check, e.g. "
                           "ulpscope sql ulpscope-out 'select * from causes'"
                         : "sql takes one folder and one SELECT: put it in quotes") == 0;
    a->folder = argv[optind];
    a->sql = n == 2 ? argv[optind + 1] : NULL;
    a->rows.most = a->limit >= 0               ? a->limit
                   : a->rows.form == SQL_TABLE ? MOST_IN_TABLE
                                               : 0;
    return true;
}

/* A trace, results, or either of each rank. */
static usc_status add_all(usc_query *q, const char *folder, usc_error *err)
{
    static const char *const files[] = {"result.db", "trace.db"};
    for (int i = 0; i < 2; i++) {
        long rank = cli_next_rank(folder, -1, files[i]);
        if (rank < 0) continue;
        for (; rank >= 0; rank = cli_next_rank(folder, rank, files[i])) {
            char path[PATH_MAX];
            if (snprintf(path, sizeof path, "%s/rank-%ld", folder, rank) >= PATH_MAX)
                return usc_error_set(err, USC_E_RANGE, -1, "%s: too long", folder);
            const usc_status st = usc_query_add(q, path, rank, err);
            if (st != USC_OK) return st;
        }
        return USC_OK;
    }
    return usc_query_add(q, folder, 0, err);
}

static bool stop(void *ctx)
{
    (void)ctx;
    return cli_stop_asked() != 0;
}

static int run(usc_query *q, const char *sql, sql_rows *rows)
{
    usc_error err;
    usc_query_end end;
    const usc_query_sink sink = {
        .ctx = rows, .begin = sql_begin, .row = sql_take, .stop = stop};
    const usc_status st = usc_query_run(q, sql, &sink, &end, &err);
    sql_end(rows);
    (void)fflush(stdout);
    if (st != USC_OK && err.where >= 0)
        return cli_fail("%s, at '%.20s'", err.text, sql + err.where);
    if (st != USC_OK) return cli_fail("%s", err.text);
    if (rows->failed) return cli_fail("out of memory; --csv keeps no rows");
    if (rows->twice[0] != '\0')
        return cli_fail("two columns are called '%s', which JSON cannot say: name one of "
                        "them with AS",
                        rows->twice);
    if (end.stopped) {
        (void)cli_fail("interrupted after %lld rows", (long long)end.n_rows);
        return CLI_INTERRUPTED;
    }
    if (end.more && rows->form == SQL_TABLE)
        (void)fprintf(stderr, "ulpscope: there are more rows (--limit)\n");
    if (end.no_results && !rows->every)
        (void)fprintf(stderr,
                      "ulpscope: a trace holds no verdicts: ulpscope check judges "
                      "it; ask the folder of its results\n");
    return cli_close_output(end.no_results && !rows->every ? CLI_TROUBLE : CLI_SAME);
}

/* The views and their columns, where no question is asked. */
static int show_views(usc_query *q, sql_form form)
{
    char sql[8192] = "";
    size_t n = 0;
    int n_views;
    const usc_query_view *view = usc_query_views(&n_views);
    for (int i = 0; i < n_views; i++)
        n += (size_t)snprintf(sql + n, sizeof sql - n,
                              "%sSELECT '%s' AS \"view\", (SELECT count(*) FROM %s) AS "
                              "\"rows\", '%s' AS \"a row is\"",
                              i > 0 ? " UNION ALL " : "", view[i].name, view[i].name,
                              view[i].about);
    sql_rows rows = {.form = form, .every = true};
    const int code = run(q, sql, &rows);
    for (int i = 0; code == CLI_SAME && form == SQL_TABLE && i < n_views; i++)
        (void)printf("\n%s: %s\n", view[i].name, view[i].columns);
    return code == CLI_SAME ? cli_close_output(CLI_SAME) : code;
}

int cmd_sql(int argc, char **argv)
{
    arguments a;
    usc_error err;
    usc_query *q = NULL;
    if (!parse(argc, argv, &a)) return CLI_TROUBLE;
    usc_status st = usc_query_open(&q, &err);
    if (st == USC_OK) st = add_all(q, a.folder, &err);
    int code = CLI_TROUBLE;
    if (st != USC_OK) {
        (void)cli_fail("%s", err.text);
    } else {
        if (usc_query_lacks(q) != NULL)
            (void)fprintf(
                stderr,
                "ulpscope: the trace %s is not there: tensors has no rows, calls "
                "those that were judged\n",
                usc_query_lacks(q));
        cli_stop_begin();
        code = a.sql != NULL ? run(q, a.sql, &a.rows) : show_views(q, a.rows.form);
        cli_stop_end();
    }
    usc_query_close(q);
    return code;
}
