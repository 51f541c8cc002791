// SPDX-License-Identifier: Apache-2.0
// Rows as a table, as CSV and as JSON.
#include "sql/sql.h"

#include "cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ulpscope/report.h>

enum { WIDEST = 72, IN_TABLE = 5, EXACT = 6 }; /* of a table digits are fewer */

/* A value as text: NULL is "", a number has digits enough to be that very number, from
 * `digits` on. */
static void text_of(const usc_query_value *v, int digits, char *buffer, size_t size,
                    const char **out)
{
    *out = buffer;
    buffer[0] = '\0';
    if (v->type == USC_QUERY_TEXT)
        *out = v->text;
    else if (v->type == USC_QUERY_INTEGER)
        (void)snprintf(buffer, size, "%" PRId64, v->integer);
    else if (v->type == USC_QUERY_REAL && isinf(v->real))
        (void)snprintf(buffer, size, v->real > 0 ? "inf" : "-inf");
    else if (v->type == USC_QUERY_REAL)
        for (; digits <= 17; digits++) {
            (void)snprintf(buffer, size, "%.*g", digits, v->real);
            if (digits == IN_TABLE || strtod(buffer, NULL) == v->real) break;
        }
}

/* ---- CSV ---- */

static void put_field(const char *text, bool first)
{
    if (!first) putchar(',');
    if (strpbrk(text, ",\"\r\n") == NULL) {
        (void)fputs(text, stdout);
        return;
    }
    putchar('"');
    for (; *text != '\0'; text++) {
        if (*text == '"') putchar('"');
        putchar(*text);
    }
    putchar('"');
}

static void put_csv(int n, const usc_query_value *values)
{
    char buffer[32];
    const char *text;
    for (int i = 0; i < n; i++) {
        text_of(&values[i], EXACT, buffer, sizeof buffer, &text);
        put_field(text, i == 0);
    }
    (void)fputs("\r\n", stdout);
}

/* ---- JSON ---- */

static bool names_differ(sql_rows *r, int n, const char *const *names)
{
    for (int i = 1; i < n; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(names[i], names[k]) == 0) {
                (void)snprintf(r->twice, sizeof r->twice, "%s", names[i]);
                return false;
            }
    return true;
}

static void put_json(int n, const char *const *names, const usc_query_value *values)
{
    char buffer[32];
    const char *text;
    for (int i = 0; i < n; i++) {
        const usc_query_value *v = &values[i];
        (void)fputs(i == 0 ? "{" : ", ", stdout);
        cli_put_text(stdout, names[i]);
        (void)fputs(": ", stdout);
        text_of(v, EXACT, buffer, sizeof buffer, &text);
        if (v->type == USC_QUERY_NULL)
            (void)fputs("null", stdout);
        else if (v->type == USC_QUERY_TEXT ||
                 (v->type == USC_QUERY_REAL && isinf(v->real)))
            cli_put_text(stdout, text);
        else
            (void)fputs(text, stdout);
    }
    (void)puts("}");
}

/* ---- table ---- */

/* Columns that a text takes, in UTF-8. */
static int columns_of(const char *text)
{
    int n = 0;
    for (; *text != '\0'; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

/* Whether a control character begins here, of one byte or (C1) of two. */
static bool steers(const char *at)
{
    const unsigned char a = (unsigned char)at[0], b = (unsigned char)at[1];
    return a < ' ' || a == 127 || (a == 0xc2 && b >= 0x80 && b < 0xa0);
}

/* Keeps a text for a cell: on one line, cut where it is long, and without anything that
 * steers a terminal. */
static void keep(sql_rows *r, const char *text)
{
    if (r->n_cells == r->room) {
        const int64_t room = r->room > 0 ? 2 * r->room : 1024;
        char **cell = realloc(r->cell, (size_t)room * sizeof *cell);
        if (cell == NULL) r->failed = true;
        if (cell == NULL) return;
        r->cell = cell;
        r->room = room;
    }
    size_t n = 0, columns = 0;
    for (; text[n] != '\0'; n++)
        if (((unsigned char)text[n] & 0xc0) != 0x80 && ++columns > WIDEST) break;
    char *out = malloc(n + 4);
    if (out == NULL) r->failed = true;
    if (out == NULL) return;
    for (size_t i = 0; i < n; i++)
        out[i] =
            steers(text + i) || (i > 0 && text[i - 1] == '\xc2' && steers(text + i - 1))
                ? ' '
                : text[i];
    (void)snprintf(out + n, 4, "%s", text[n] != '\0' ? "..." : "");
    r->cell[r->n_cells++] = out;
}

static void keep_row(sql_rows *r, int n, const usc_query_value *values)
{
    char buffer[32];
    const char *text;
    for (int i = 0; i < n; i++) {
        text_of(&values[i], IN_TABLE, buffer, sizeof buffer, &text);
        keep(r, text);
    }
}

static void put_table(const sql_rows *r)
{
    for (int64_t at = 0; at + r->n_columns <= r->n_cells; at += r->n_columns) {
        for (int i = 0; i < r->n_columns; i++) {
            int width = 0;
            for (int64_t k = i; k < r->n_cells; k += r->n_columns) {
                const int own = columns_of(r->cell[k]);
                if (own > width) width = own;
            }
            const char *text = r->cell[at + i];
            const int pad = i + 1 < r->n_columns ? width - columns_of(text) + 2 : 0;
            (void)printf("%s%*s", text, pad, "");
        }
        putchar('\n');
    }
}

/* ---- all of them ---- */

bool sql_begin(void *rows, int n, const char *const *names)
{
    sql_rows *r = rows;
    r->n_columns = n;
    if (r->form == SQL_JSON) return names_differ(r, n, names);
    for (int i = 0; i < n; i++)
        if (r->form == SQL_CSV)
            put_field(names[i], i == 0);
        else
            keep(r, names[i]);
    if (r->form == SQL_CSV) (void)fputs("\r\n", stdout);
    return true;
}

bool sql_take(void *rows, int n, const char *const *names, const usc_query_value *values)
{
    sql_rows *r = rows;
    if (r->most > 0 && r->n == r->most) return false;
    if (r->form == SQL_JSON)
        put_json(n, names, values);
    else if (r->form == SQL_CSV)
        put_csv(n, values);
    else
        keep_row(r, n, values);
    r->n++;
    return !r->failed;
}

void sql_end(sql_rows *r)
{
    if (r->form == SQL_TABLE && !r->failed && r->n_columns > 0) put_table(r);
    for (int64_t i = 0; i < r->n_cells; i++)
        free(r->cell[i]);
    free(r->cell);
    r->cell = NULL;
    r->n_cells = 0;
}
