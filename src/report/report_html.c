// SPDX-License-Identifier: Apache-2.0
// report.html: the page in report.html, with report.css and report.js beside it (embedded
// at build time by cmake/embed.cmake) and the data as JSON that report.js shows.
#include "report/report_json.h"

#include <string.h>

/* Made by cmake/embed.cmake. */
extern const char usc_page_html[], usc_page_css[], usc_page_js[];

typedef struct rows {
    usc_out *o;
    usc_report *r;
    bool any;
} rows;

static usc_status brief_row(void *ctx, const usc_result_row *row, usc_error *err)
{
    (void)err;
    rows *w = ctx;
    usc_out_text(w->o, w->any ? ",\n{" : "\n{");
    w->any = true;
    usc_json_brief(w->o, row);
    usc_out_text(w->o, "}");
    return w->o->status;
}

/* One element per call: a page of 5,000 calls parses the details of a call only when
 * somebody opens it. */
static usc_status details_row(void *ctx, const usc_result_row *row, usc_error *err)
{
    (void)err;
    rows *w = ctx;
    usc_out_format(w->o, "<script type=\"application/json\" id=\"data-%lld\">{",
                   (long long)row->call);
    w->o->in_script = true;
    usc_json_details(w->o, w->r, row);
    w->o->in_script = false;
    usc_out_text(w->o, "}</script>\n");
    return w->o->status;
}

static usc_status data(usc_out *o, usc_report *r)
{
    rows w = {.o = o, .r = r};
    usc_out_text(o, "<script type=\"application/json\" id=\"data\">");
    o->in_script = true;
    usc_out_text(o, "{");
    usc_status st = usc_json_head(o, r);
    if (st != USC_OK) return st;
    usc_out_text(o, ",\n\"calls\": [");
    st = usc_result_walk(r->result, brief_row, &w, o->err);
    if (st != USC_OK) return st;
    usc_out_text(o, "]}");
    o->in_script = false;
    usc_out_text(o, "</script>\n");
    return usc_result_walk(r->result, details_row, &w, o->err);
}

/* The page holds marks such as {{css}}. */
static usc_status mark(usc_out *o, usc_report *r, const char *name, size_t n)
{
    if (n == 3 && memcmp(name, "css", n) == 0)
        usc_out_text(o, usc_page_css);
    else if (n == 2 && memcmp(name, "js", n) == 0)
        usc_out_text(o, usc_page_js);
    else if (n == 6 && memcmp(name, "device", n) == 0)
        usc_out_html(o, usc_report_run(r, "device"));
    else if (n == 4 && memcmp(name, "data", n) == 0)
        return data(o, r);
    return o->status;
}

usc_status usc_report_html(usc_report *report, const usc_sink *sink, usc_error *err)
{
    usc_out o;
    usc_out_begin(&o, sink, err);
    const char *rest = usc_page_html;
    for (const char *open; (open = strstr(rest, "{{")) != NULL;) {
        usc_out_bytes(&o, rest, (size_t)(open - rest));
        const char *close = strstr(open, "}}");
        const char *name = open + 2;
        const usc_status st = mark(&o, report, name, (size_t)(close - name));
        if (st != USC_OK) return st;
        rest = close + 2;
    }
    usc_out_text(&o, rest);
    return usc_out_end(&o);
}
