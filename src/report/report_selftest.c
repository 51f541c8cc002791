// SPDX-License-Identifier: Apache-2.0
// The self-test of a check, out of its JSON.
#include "report/report_selftest.h"

#include <math.h>
#include <sqlite3.h>
#include <string.h>

static const char sql[] =
    "SELECT key, value ->> '$.skipped', value ->> '$.bits.noise', "
    "value ->> '$.bits.element', value ->> '$.bits.factor', "
    "json_array_length(value, '$.caught'), json_array_length(value, '$.unseen'), "
    "(SELECT group_concat(u.value, '; ') FROM json_each(j.value, '$.unseen') AS u), "
    "json_type(value, '$.bits') FROM json_each(?1) AS j "
    "WHERE json_valid(?1) AND j.type = 'object' ORDER BY key";

static double bits_at(sqlite3_stmt *s, int column)
{
    return sqlite3_column_type(s, column) == SQLITE_NULL
               ? (double)NAN
               : sqlite3_column_double(s, column);
}

static int64_t passes_of(const usc_report *r, const char *op)
{
    for (const usc_op_sum *s = r->ops; s != NULL; s = s->next)
        if (strcmp(s->op, op) == 0) return s->n[USC_VERDICT_PASS];
    return 0;
}

static usc_status add(usc_report *r, sqlite3_stmt *s, usc_self_test ***end,
                      usc_error *err)
{
    usc_self_test *t = usc_report_take(r, sizeof *t);
    if (t == NULL) return usc_report_no_memory(r, err);
    const bool probed = sqlite3_column_type(s, 8) != SQLITE_NULL;
    t->op = usc_report_keep(r, (const char *)sqlite3_column_text(s, 0));
    t->skipped =
        usc_report_keep(r, probed ? "" : (const char *)sqlite3_column_text(s, 1));
    t->unseen = usc_report_keep(r, (const char *)sqlite3_column_text(s, 7));
    if (t->op == NULL || t->skipped == NULL || t->unseen == NULL)
        return usc_report_no_memory(r, err);
    if (!probed && t->skipped[0] == '\0') t->skipped = "not probed";
    t->noise = bits_at(s, 2);
    t->element = bits_at(s, 3);
    t->factor = bits_at(s, 4);
    t->n_caught = sqlite3_column_int(s, 5);
    t->n_unseen = sqlite3_column_int(s, 6);
    t->n_pass = passes_of(r, t->op);
    **end = t;
    *end = &t->next;
    return USC_OK;
}

usc_status usc_report_read_self_test(usc_report *r, usc_error *err)
{
    sqlite3_stmt *s = NULL;
    const char *json = usc_report_keep(r, usc_report_run(r, "self_test"));
    if (json == NULL) return usc_report_no_memory(r, err);
    if (json[0] == '\0') return USC_OK;
    usc_status st = USC_OK;
    usc_self_test **end = &r->self_test;
    if (sqlite3_prepare_v2(r->json_db, sql, -1, &s, NULL) == SQLITE_OK) {
        (void)sqlite3_bind_text(s, 1, json, -1, SQLITE_STATIC);
        while (st == USC_OK && sqlite3_step(s) == SQLITE_ROW)
            st = add(r, s, &end, err);
    }
    (void)sqlite3_finalize(s);
    return st;
}
