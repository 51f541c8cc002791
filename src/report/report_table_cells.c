// SPDX-License-Identifier: Apache-2.0
// What a table on a terminal is made of: colours, cells, lines that wrap. Neighbours:
// report_table.c and report_table_more.c, which fill it.
#include <string.h>

#include "report/report_table.h"

void usc_table_color(const usc_table *t, const char *code)
{
    if (t->options->color) usc_out_format(t->o, "\033[%sm", code);
}

const char *usc_table_verdict_color(usc_verdict v)
{
    if (v == USC_VERDICT_REDUCED || v == USC_VERDICT_INTERMITTENT) return "1;33";
    return usc_verdict_flagged(v) ? "1;31" : "2";
}

void usc_table_new_line(usc_table *t, int indent)
{
    usc_out_text(t->o, "\n");
    usc_out_spaces(t->o, indent);
    t->column = indent;
}

void usc_table_put(usc_table *t, const char *bytes, size_t n)
{
    usc_out_terminal(t->o, bytes, n);
    t->column += usc_utf8_width(bytes, n);
}

/* Words from the current column on; further lines start at `indent`. */
void usc_table_wrap(usc_table *t, const char *words, int indent)
{
    bool first = words[0] != ' '; /* a space in front parts them from what stands there */
    while (*words != '\0') {
        const size_t n = strcspn(words, " \n");
        const int width = usc_utf8_width(words, n);
        if (n > 0 && !first && t->column + 1 + width > t->width) {
            usc_table_new_line(t, indent);
            first = true;
        }
        if (n > 0) {
            if (!first) usc_table_put(t, " ", 1);
            usc_table_put(t, words, n);
            first = false;
        }
        words += n + (words[n] != '\0' ? 1 : 0);
    }
}

void usc_table_cell(usc_table *t, const char *bytes, int width, bool right)
{
    const int gap = width - usc_utf8_width(bytes, strlen(bytes));
    if (right && gap > 0) usc_out_spaces(t->o, gap);
    usc_out_terminal(t->o, bytes, strlen(bytes));
    if (!right && gap > 0) usc_out_spaces(t->o, gap);
    t->column += gap > 0 ? width : width - gap;
}

void usc_table_label(usc_table *t, const char *name)
{
    t->column = 0;
    usc_table_color(t, "2");
    usc_table_cell(t, name, USC_TABLE_LABEL, false);
    usc_table_color(t, "0");
}

void usc_table_line(usc_table *t, const char *name, const char *words)
{
    usc_table_label(t, name);
    usc_table_wrap(t, words, USC_TABLE_LABEL);
    usc_out_text(t->o, "\n");
}
