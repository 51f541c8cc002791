// SPDX-License-Identifier: Apache-2.0
// The table for a terminal: what its sections share. report_table.c draws findings and
// summary, report_table_more.c what only some runs have.
#ifndef USC_REPORT_TABLE_H
#define USC_REPORT_TABLE_H

#include "report/report_model.h"

enum { USC_TABLE_LABEL = 12 };

typedef struct usc_table {
    usc_out *o;
    usc_report *r;
    const usc_report_options *options;
    int width;
    int column; /* where the next character goes */
} usc_table;

/** Switches to a colour by its ANSI code, where colours are wanted; "0": back. */
void usc_table_color(const usc_table *t, const char *code);
const char *usc_table_verdict_color(usc_verdict v);

void usc_table_new_line(usc_table *t, int indent);
void usc_table_put(usc_table *t, const char *bytes, size_t n);

/** Words from the current column on; further lines start at `indent`. */
void usc_table_wrap(usc_table *t, const char *words, int indent);

/** A text in a column of its own width, to the right of it or to the left. */
void usc_table_cell(usc_table *t, const char *bytes, int width, bool right);

/** The name before a line of the summary, and such a line. */
void usc_table_label(usc_table *t, const char *name);
void usc_table_line(usc_table *t, const char *name, const char *words);

/** Calls with NaN or Inf among their inputs; nothing where there are none. */
void usc_table_odd_inputs(usc_table *t);

/** Calls of which much of an output was excused; nothing where there are none. */
void usc_table_excused(usc_table *t);

/** Passes with few of float32's bits; nothing where there are none. */
void usc_table_low(usc_table *t);

/** After `check --self-test`: the smallest error that a pass would not have hidden. */
void usc_table_self_test(usc_table *t);

/** After `check --compare-standards`. */
void usc_table_standards(usc_table *t);

/** Where the time went; of what ran elsewhere (files, a live check) how long it took. */
void usc_table_time(usc_table *t);

#endif
