// SPDX-License-Identifier: Apache-2.0
// CSV and its like: a line of names or none, numbers in columns. Commas, semicolons or
// tabs; fields may stand in quotes.
#include <ctype.h>
#include <string.h>

#include "loss/curve.h"

enum { MOST_COLUMNS = 512 };

typedef struct cells {
    const char *at[MOST_COLUMNS];
    size_t size[MOST_COLUMNS];
    int n;
} cells;

static char separator_of(const char *line, size_t n)
{
    static const char tried[] = "\t;,";
    for (const char *c = tried; *c != '\0'; c++)
        if (memchr(line, *c, n) != NULL) return *c;
    return ',';
}

/* Takes a line apart. Quotes go; a doubled quote within a field stays doubled. */
static void split(const char *line, size_t n, char separator, cells *out)
{
    const char *at = line, *const end = line + n;
    out->n = 0;
    while (at <= end && out->n < MOST_COLUMNS) {
        const bool quoted = at < end && *at == '"';
        const char *start = at + quoted, *stop = start;
        while (stop < end && *stop != (quoted ? '"' : separator))
            stop += quoted && stop + 2 < end && stop[1] == '"' && stop[2] == '"' ? 3 : 1;
        if (stop > end) stop = end;
        while (start < stop && *start == ' ')
            start++;
        size_t size = (size_t)(stop - start);
        while (size > 0 && start[size - 1] == ' ')
            size--;
        out->at[out->n] = start;
        out->size[out->n++] = size;
        at = stop;
        while (at < end && *at != separator)
            at++;
        at++;
    }
}

static bool all_numbers(const cells *c)
{
    double value;
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        if (c->size[i] == 0) continue;
        if (!usc_curve_number(c->at[i], c->size[i], &value)) return false;
        n++;
    }
    return n > 0;
}

static bool first_line(const char *data, size_t size, const char **line, size_t *n)
{
    const char *at = data;
    while (usc_curve_line(&at, data + size, line, n))
        if (*n > 0 && **line != '#') return true;
    return false;
}

/* Whether a cell is what a line of a log holds rather than a name: {, = or : in it, or a
 * number behind a space. */
static bool is_of_log(const char *cell)
{
    for (const char *at = cell; *at != '\0'; at++)
        if (strchr("{}=:", *at) != NULL ||
            (*at == ' ' && isdigit((unsigned char)at[1]) != 0))
            return true;
    return false;
}

/* A first line of numbers alone, or of names of which one is what is looked for; of other
 * names it has to be two without spaces. */
bool usc_curve_is_table(const usc_curve_options *options, const char *data, size_t size)
{
    const char *line;
    size_t n;
    cells c;
    if (!first_line(data, size, &line, &n)) return false;
    split(line, n, separator_of(line, n), &c);
    if (all_numbers(&c)) return true;
    bool found = false;
    const bool headed = c.n > 1 && usc_curve_is_step(c.at[0], c.size[0]);
    for (int i = 0; i < c.n; i++) {
        char name[USC_CURVE_KEY];
        double value;
        if (c.size[i] >= sizeof name) continue;
        if (usc_curve_number(c.at[i], c.size[i], &value)) return false;
        memcpy(name, c.at[i], c.size[i]);
        name[c.size[i]] = '\0';
        const bool fits = usc_curve_rank(options, name) >= 0;
        if (is_of_log(name) && *line != '"' && !headed && !(fits && options->key != NULL))
            return false;
        found |= fits && (c.n > 1 || strchr(name, ' ') == NULL);
    }
    return found || (c.n >= 2 && memchr(line, ' ', n) == NULL);
}

typedef struct table {
    const char *at, *end; /* the rows */
    char separator;
    int step, loss; /* columns; -1: none */
    int n_names;    /* 0: none */
    int64_t n_long; /* rows with more cells than there are names, which are left out */
} table;

/* The columns of step and loss in a table without names: step, loss or loss alone. */
static void unnamed(usc_curve_maker *m, int n_columns, table *t)
{
    t->step = n_columns > 1 ? 0 : -1;
    t->loss = n_columns > 1 ? 1 : 0;
    usc_curve_take(m, n_columns > 1 ? "column 2" : "column 1");
    usc_curve_axis(m, "column 1", 8);
    if (n_columns > 2)
        usc_curve_note(m, "%d columns without names: taken for step, loss and more",
                       n_columns);
}

/* Whether something stands in a row behind the last name. */
static bool is_long(const table *t, const cells *c)
{
    for (int i = t->n_names; t->n_names > 0 && i < c->n; i++)
        if (c->size[i] > 0) return true;
    return false;
}

static bool next_row(table *t, cells *c)
{
    const char *line;
    size_t n;
    while (usc_curve_line(&t->at, t->end, &line, &n)) {
        if (n == 0 || *line == '#') continue;
        split(line, n, t->separator, c);
        if (!is_long(t, c)) return true;
        t->n_long++;
    }
    return false;
}

static void tell_long(usc_curve_maker *m, const table *t)
{
    if (t->n_long == 0 || m->status != USC_OK) return;
    if (m->n == 0)
        m->status =
            usc_error_set(m->err, USC_E_RANGE, -1,
                          "%s: rows hold more than the %d cells that the first line "
                          "names, as decimal commas between commas give; write it "
                          "with decimal points, or with ; between cells",
                          m->name, t->n_names);
    else
        usc_curve_note(m,
                       "%lld rows hold more cells than the first line names and are left "
                       "out",
                       (long long)t->n_long);
}

/* Offers what lies under the names; of names that do not fit, the names. How many rows are
 * too long. */
static int64_t offer_all(usc_curve_maker *m, const cells *names, table rows)
{
    cells c;
    double value;
    while (m->status == USC_OK && next_row(&rows, &c))
        for (int i = 0; i < names->n && i < c.n; i++)
            if (c.size[i] > 0 && i != rows.step &&
                usc_curve_number(c.at[i], c.size[i], &value))
                usc_curve_offer(m, names->at[i], names->size[i], value);
    return rows.n_long;
}

/* W&B gives each run a step of its own beside the common one: "run 7 - _step". */
static bool is_step_column(const char *name, size_t n, bool counter)
{
    char text[USC_CURVE_KEY];
    if (n >= sizeof text) return false;
    memcpy(text, name, n);
    text[n] = '\0';
    const char *bare = usc_curve_bare(text);
    return counter ? usc_curve_is_counter(bare, strlen(bare))
                   : usc_curve_is_step(bare, strlen(bare));
}

static void named(usc_curve_maker *m, const cells *names, table *t)
{
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < names->n && t->step < 0; i++)
            if (is_step_column(names->at[i], names->size[i], k == 1)) t->step = i;
    if (t->step >= 0) usc_curve_axis(m, names->at[t->step], names->size[t->step]);
    const int64_t n_long = offer_all(m, names, *t);
    usc_curve_choose(m);
    for (int i = 0; i < names->n && t->loss < 0; i++)
        if (usc_curve_is_key(m, names->at[i], names->size[i])) t->loss = i;
    if (t->loss < 0) t->n_long = n_long;
}

static void take_rows(usc_curve_maker *m, table *t)
{
    cells c;
    double value;
    long long n_empty = 0;
    while (m->status == USC_OK && next_row(t, &c)) {
        int64_t number = USC_NO_STEP;
        const bool there = t->loss < c.n && c.size[t->loss] > 0;
        if (!there || !usc_curve_number(c.at[t->loss], c.size[t->loss], &value)) {
            n_empty += there;
            continue;
        }
        if (t->step >= 0 && t->step < c.n)
            (void)usc_curve_step(c.at[t->step], c.size[t->step], &number);
        usc_curve_printed(m, c.at[t->loss], c.size[t->loss]);
        usc_curve_add(m, number, value);
    }
    if (n_empty > 0)
        usc_curve_note(m, "%lld rows hold no number as '%s' and are left out", n_empty,
                       m->key);
}

void usc_curve_table(usc_curve_maker *m, const char *data, size_t size)
{
    const char *line;
    size_t n;
    cells c;
    m->form = "CSV";
    if (!first_line(data, size, &line, &n)) return;
    table t = {data, data + size, separator_of(line, n), -1, -1, 0, 0};
    split(line, n, t.separator, &c);
    if (all_numbers(&c)) {
        unnamed(m, c.n, &t);
    } else {
        t.at = line + n;
        t.n_names = c.n;
        named(m, &c, &t);
    }
    if (t.loss >= 0) take_rows(m, &t);
    tell_long(m, &t);
}
