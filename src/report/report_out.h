// SPDX-License-Identifier: Apache-2.0
// A buffered writer over a sink, and the escaping of each format. Errors stick: the first
// one is kept and everything after it is dropped, so that renderers check once, at the
// end.
#ifndef USC_REPORT_OUT_H
#define USC_REPORT_OUT_H

#include <stdarg.h>

#include <ulpscope/report.h>

typedef struct usc_out {
    const usc_sink *sink;
    usc_error *err;
    usc_status status;
    bool in_script; /* JSON inside HTML: '<' is written as \u003c */
    size_t n;
    char bytes[4096];
} usc_out;

void usc_out_begin(usc_out *o, const usc_sink *sink, usc_error *err);

/** Hands over what is buffered; the first error, if any. */
USC_NODISCARD usc_status usc_out_end(usc_out *o);

void usc_out_bytes(usc_out *o, const char *bytes, size_t n);
void usc_out_text(usc_out *o, const char *text);
void usc_out_spaces(usc_out *o, int n);
void usc_out_format(usc_out *o, const char *format, ...) USC_PRINTF(2, 3);

/** The shortest decimal text that reads back as `v`; "nan", "inf", "-inf". */
void usc_out_number(usc_out *o, double v);

void usc_out_json(usc_out *o, const char *text);

/** A number, or the strings "nan", "inf", "-inf", which JSON has no number for. */
void usc_out_json_number(usc_out *o, double v);

void usc_out_csv(usc_out *o, const char *text);

/** Text between tags or in a quoted attribute. */
void usc_out_html(usc_out *o, const char *text);

/* Text made piece by piece, to be measured before it is shown. Cut when it is full. */
typedef struct usc_text {
    size_t n;
    char bytes[4096];
} usc_text;

/** A sink that appends to `text`, which starts zeroed and stays NUL-terminated. */
usc_sink usc_text_sink(usc_text *text);

/** Columns that the first `n` bytes of `text` take on a terminal. */
int usc_utf8_width(const char *text, size_t n);

/** Text for a terminal: control characters and bad bytes become '?'. */
void usc_out_terminal(usc_out *o, const char *text, size_t n);

#endif
