// SPDX-License-Identifier: Apache-2.0
// The six views, made of the tables of all that is attached. A change of a table changes
// what stands here and nothing that a user types.
#include <string.h>

#include <ulpscope/result.h>
#include <ulpscope/verdict.h>

#include "query/query_inside.h"

static const usc_query_view views[] = {
#define USC_QUERY_VIEW(name, columns, about) {name, columns, about},
    USC_QUERY_VIEW_LIST(USC_QUERY_VIEW)
#undef USC_QUERY_VIEW
};
enum { N_VIEWS = sizeof views / sizeof views[0] };

const usc_query_view *usc_query_views(int *n)
{
    *n = N_VIEWS;
    return views;
}

/* 1 for what makes a check exit with 1. */
#define FLAGGED(column) "CASE " column USC_VERDICT_LIST(FLAGGED_WHEN) " ELSE 0 END"
#define FLAGGED_WHEN(id, text, flagged) " WHEN '" text "' THEN " #flagged

/* Rows that stand, as src/result reads them. */
#define STANDING                                                                         \
    " WHERE v.call NOT IN (SELECT call FROM o%d.metric WHERE name = "                    \
    "'" USC_METRIC_SEARCHING "')"
#define METRIC(name, how)                                                                \
    "(SELECT " how "(x.value) FROM o%d.metric x WHERE x.call = v.call AND x.name = "     \
    "'" name "')"
#define STAT(key)                                                                        \
    "CASE WHEN json_valid(t.stats) THEN json_extract(t.stats, '$." key "') END"

static void calls_of_trace(sqlite3_str *s, int64_t rank, int k)
{
    sqlite3_str_appendf(
        s,
        "SELECT %lld, c.sequence, c.step, c.phase, o.name, m.path, m.class, c.parent, "
        "c.thread, c.status, c.args, f.frames FROM t%d.call c LEFT JOIN t%d.op o ON "
        "o.id = c.op LEFT JOIN t%d.module m ON m.id = c.module LEFT JOIN t%d.stack f ON "
        "f.id = c.stack",
        rank, k, k, k, k);
}

/* What results tell of the calls of a trace that is gone. */
static void calls_of_results(sqlite3_str *s, int64_t rank, int k)
{
    sqlite3_str_appendf(s,
                        "SELECT %lld, v.call, v.step, v.phase, v.op, nullif(v.module, "
                        "''), nullif(v.module_class, ''), NULL, NULL, NULL, v.args, "
                        "v.stack FROM o%d.verdict v" STANDING,
                        rank, k, k);
}

static void tensors_of_trace(sqlite3_str *s, int64_t rank, int k)
{
    static const char *const first[] = {"n", "min", "max", "mean", "l2", "n_nan"},
                             *const last[] = {"n_zero", "n_subnormal"};
    sqlite3_str_appendf(s,
                        "SELECT %lld, a.call, a.role, a.path, t.dtype, t.sizes, "
                        "t.strides, s.device, s.bytes, v.call",
                        rank);
    for (size_t i = 0; i < sizeof first / sizeof first[0]; i++)
        sqlite3_str_appendf(s, ", " STAT("%s"), first[i]);
    sqlite3_str_appendall(s, ", " STAT("n_pos_inf") " + " STAT("n_neg_inf"));
    for (size_t i = 0; i < sizeof last / sizeof last[0]; i++)
        sqlite3_str_appendf(s, ", " STAT("%s"), last[i]);
    sqlite3_str_appendf(s,
                        " FROM t%d.arg a LEFT JOIN t%d.tensor t ON t.id = a.tensor "
                        "LEFT JOIN t%d.version v ON v.id = t.version "
                        "LEFT JOIN t%d.storage s ON s.id = v.storage",
                        k, k, k, k);
}

static void modules_of_trace(sqlite3_str *s, int64_t rank, int k)
{
    sqlite3_str_appendf(s,
                        "SELECT %lld, m.path, m.class, count(c.sequence), "
                        "min(c.sequence), max(c.sequence) FROM t%d.module m LEFT JOIN "
                        "t%d.call c ON c.module = m.id GROUP BY m.id",
                        rank, k, k);
}

static void modules_of_results(sqlite3_str *s, int64_t rank, int k)
{
    sqlite3_str_appendf(s,
                        "SELECT %lld, v.module, v.module_class, count(*), min(v.call), "
                        "max(v.call) FROM o%d.verdict v WHERE v.module <> '' GROUP BY "
                        "v.module, v.module_class",
                        rank, k);
}

static void verdicts_of_results(sqlite3_str *s, int64_t rank, int k)
{
    sqlite3_str_appendf(
        s,
        "SELECT %lld, v.call, v.step, v.phase, v.op, nullif(v.culprit, "
        "''), "
        "nullif(v.module, ''), nullif(v.module_class, ''), "
        "v.verdict, " FLAGGED(
            "v.verdict") ", v.bits, v.bound, "
                         "v.yardstick_bits, " METRIC(
                             "loss", "max") ", nullif(v.cause, "
                                            "''), "
                                            "nullif(v.sentence,"
                                            " ''), "
                                            "nullif(v.notes, "
                                            "''), "
                                            "nullif(v.output, "
                                            "''), "
                                            "v.n_elements,"
                                            " " METRIC("excused", "sum") ", "
                                                                         "v."
                                                                         "stands_"
                                                                         "for, "
                                                                         "v.t_"
                                                                         "device,"
                                                                         " v.t_"
                                                                         "referen"
                                                                         "ce, "
                                                                         "v.t_"
                                                                         "total "
                                                                         "FROM "
                                                                         "o%d."
                                                                         "verdict"
                                                                         " "
                                                                         "v" STANDING,
        rank, k, k, k, k);
}

static void put_rank(sqlite3_str *s, const usc_query_member *m)
{
    const int t = m->trace, o = m->results;
    sqlite3_str_appendf(s, "SELECT %lld, %Q, %Q, ", m->rank,
                        m->trace_path[0] != '\0' ? m->trace_path : NULL,
                        m->results_path[0] != '\0' ? m->results_path : NULL);
    static const char *const keys[] = {"device", "standard", "state"};
    for (int i = 0; i < 3; i++)
        o < 0 ? sqlite3_str_appendall(s, "NULL, ")
              : sqlite3_str_appendf(s, "(SELECT value FROM o%d.run WHERE key = '%s'), ",
                                    o, keys[i]);
    if (t >= 0)
        sqlite3_str_appendf(
            s, "(SELECT count(*) FROM t%d.step), (SELECT count(*) FROM t%d.call), ", t,
            t);
    else
        sqlite3_str_appendf(s,
                            "(SELECT count(DISTINCT step) FROM o%d.verdict), "
                            "(SELECT count(*) FROM o%d.verdict), ",
                            o, o);
    if (o >= 0)
        sqlite3_str_appendf(s,
                            "(SELECT count(*) FROM o%d.verdict v" STANDING "), "
                            "(SELECT coalesce(sum(" FLAGGED(
                                "v.verdict") "), 0) FROM o%d.verdict v" STANDING ")",
                            o, o, o, o);
    else
        sqlite3_str_appendall(s, "0, 0");
}

static const char causes[] =
    "SELECT rank, cause, op, verdict, count(*), min(bits), max(loss), min(call) FROM "
    "verdicts WHERE cause IS NOT NULL GROUP BY rank, cause, op, verdict";

/* What one member adds to a view; false: nothing. */
static bool put_part(sqlite3_str *s, const char *view, const usc_query_member *m)
{
    const bool gone = m->trace < 0;
    if (strcmp(view, "calls") == 0)
        gone ? calls_of_results(s, m->rank, m->results)
             : calls_of_trace(s, m->rank, m->trace);
    else if (strcmp(view, "modules") == 0)
        gone ? modules_of_results(s, m->rank, m->results)
             : modules_of_trace(s, m->rank, m->trace);
    else if (strcmp(view, "tensors") == 0 && !gone)
        tensors_of_trace(s, m->rank, m->trace);
    else if (strcmp(view, "verdicts") == 0 && m->results >= 0)
        verdicts_of_results(s, m->rank, m->results);
    else if (strcmp(view, "ranks") == 0)
        put_rank(s, m);
    else
        return false;
    return true;
}

/* Notes that a statement asked for verdicts where there are none, however it asked. */
static void note_asked(sqlite3_context *context, int n, sqlite3_value **values)
{
    usc_query *q = sqlite3_user_data(context);
    (void)n;
    (void)values;
    q->asked = true;
    sqlite3_result_int(context, 0);
}

/* A row of NULLs that never comes: a view of nothing has its columns all the same. */
static void put_nothing(sqlite3_str *s, const usc_query_view *view)
{
    const char *columns = view->columns;
    sqlite3_str_appendall(s, "SELECT NULL");
    for (const char *p = columns; *p != '\0'; p++)
        if (*p == ',') sqlite3_str_appendall(s, ", NULL");
    sqlite3_str_appendall(s, strcmp(view->name, "verdicts") == 0 ? " WHERE usc_asked()"
                                                                 : " WHERE 0");
}

static char *text_of(const usc_query *q, const usc_query_view *view)
{
    sqlite3_str *s = sqlite3_str_new(q->handle);
    sqlite3_str_appendf(s, "CREATE TEMP VIEW %s(%s) AS ", view->name, view->columns);
    int n = 0;
    if (strcmp(view->name, "causes") == 0) {
        sqlite3_str_appendall(s, causes);
        n = 1;
    }
    for (int i = 0; i < q->n; i++) {
        sqlite3_str *part = sqlite3_str_new(q->handle);
        const bool has = put_part(part, view->name, &q->member[i]);
        char *text = sqlite3_str_finish(part);
        if (has && text != NULL)
            sqlite3_str_appendf(s, "%s%s", n++ > 0 ? " UNION ALL " : "", text);
        sqlite3_free(text);
    }
    if (n == 0) put_nothing(s, view);
    return sqlite3_str_finish(s);
}

usc_status usc_query_make_views(usc_query *q, usc_error *err)
{
    if (sqlite3_create_function(q->handle, "usc_asked", 0, SQLITE_UTF8, q, note_asked,
                                NULL, NULL) != SQLITE_OK)
        return usc_query_error(q, "making the views", err);
    for (int i = 0; i < N_VIEWS; i++) {
        char *text = text_of(q, &views[i]);
        if (text == NULL) return usc_error_set(err, USC_E_NOMEM, -1, "out of memory");
        const int code = sqlite3_exec(q->handle, text, NULL, NULL, NULL);
        sqlite3_free(text);
        if (code != SQLITE_OK) return usc_query_error(q, "making the views", err);
    }
    q->made = true;
    return USC_OK;
}
