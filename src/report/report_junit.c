// SPDX-License-Identifier: Apache-2.0
// JUnit XML as Jenkins, GitLab and others read it: one suite, a test case per operator,
// module, phase and arguments, so that a case keeps its name from run to run.
#include "base/utf8.h"
#include "report/report_cases.h"

#include <string.h>

#define NS 1e9

enum outcome { PASSED, FAILED, SKIPPED };

/* XML 1.0 has no way to write most control characters: they become U+FFFD. */
static void put_xml(usc_out *o, const char *text)
{
    while (*text != '\0') {
        uint32_t code;
        const size_t n = usc_utf8_next(text, &code);
        const bool space = n > 0 && (code == '\n' || code == '\t' || code == '\r');
        if (space)
            usc_out_format(o, "&#%u;", (unsigned)code);
        else if (n == 0 || code < 0x20 || code == 0xfffe || code == 0xffff)
            usc_out_text(o, "\xef\xbf\xbd");
        else if (code == '<' || code == '>' || code == '&' || code == '"' || code == '\'')
            usc_out_format(o, "&#%u;", (unsigned)code);
        else
            usc_out_bytes(o, text, n);
        text += n > 0 ? n : 1;
    }
}

static void attribute(usc_out *o, const char *name, const char *value)
{
    usc_out_format(o, " %s=\"", name);
    put_xml(o, value);
    usc_out_text(o, "\"");
}

static bool fails(const usc_case_row *row, const usc_report_options *options)
{
    return !row->known && usc_report_finding_counts(row->finding, options);
}

static bool skipped(const usc_case_row *row)
{
    const usc_verdict v = row->finding->verdict;
    return v == USC_VERDICT_UNDEFINED || usc_verdict_missing(v);
}

/* The worst row that decides comes first; a case where nothing was judged is skipped. */
static enum outcome outcome_of(const usc_report_case *c,
                               const usc_report_options *options,
                               const usc_case_row **row)
{
    for (*row = c->rows; *row != NULL; *row = (*row)->next)
        if (fails(*row, options)) return FAILED;
    *row = c->rows;
    if (*row != NULL && c->n_pass == 0 && skipped(*row)) return SKIPPED;
    return PASSED;
}

static void put_case_name(usc_out *o, const usc_report_case *c)
{
    usc_out_text(o, "    <testcase classname=\"");
    if (c->module[0] != '\0') {
        put_xml(o, c->module);
    } else {
        usc_out_text(o, "(");
        put_xml(o, c->phase[0] != '\0' ? c->phase : "root");
        usc_out_text(o, ")");
    }
    usc_out_text(o, "\" name=\"");
    put_xml(o, c->op);
    usc_out_text(o, "(");
    put_xml(o, c->args);
    usc_out_text(o, ")");
    if (c->module[0] != '\0' && c->phase[0] != '\0') {
        usc_out_text(o, " ");
        put_xml(o, c->phase);
    }
    usc_out_format(o, "\" time=\"%.6f\"", (double)c->t_total / NS);
}

static void put_failure(usc_out *o, const usc_report_case *c, const usc_case_row *worst,
                        const usc_report_options *options)
{
    usc_out_text(o, ">\n      <failure");
    attribute(o, "type", usc_verdict_text(worst->finding->verdict));
    attribute(o, "message", worst->sentence);
    usc_out_text(o, ">");
    for (const usc_case_row *row = c->rows; row != NULL; row = row->next) {
        if (!fails(row, options)) continue;
        usc_out_format(o, "call %lld: %s: ", (long long)row->call,
                       usc_verdict_text(row->finding->verdict));
        put_xml(o, row->sentence);
        if (row->source.file[0] != '\0') {
            usc_out_text(o, ", at ");
            put_xml(o, row->source.file);
            usc_out_format(o, ":%lld", (long long)row->source.line);
        }
        usc_out_text(o, "\n");
    }
    usc_out_text(o, "</failure>\n    </testcase>\n");
}

static void put_case(usc_out *o, const usc_report_case *c,
                     const usc_report_options *options)
{
    const usc_case_row *row;
    const enum outcome outcome = outcome_of(c, options, &row);
    put_case_name(o, c);
    if (outcome == FAILED) {
        put_failure(o, c, row, options);
    } else if (outcome == SKIPPED) {
        usc_out_text(o, ">\n      <skipped");
        attribute(o, "message", row->sentence);
        usc_out_text(o, "/>\n    </testcase>\n");
    } else {
        usc_out_text(o, "/>\n");
    }
}

static void put_counts(usc_out *o, const usc_report *r, const usc_report_options *options)
{
    int64_t n[3] = {0};
    for (const usc_report_case *c = r->cases; c != NULL; c = c->next) {
        const usc_case_row *row;
        if (c->n > 0) n[outcome_of(c, options, &row)]++;
    }
    usc_out_format(o, " tests=\"%lld\" failures=\"%lld\" errors=\"0\"",
                   (long long)(n[PASSED] + n[FAILED] + n[SKIPPED]), (long long)n[FAILED]);
    usc_out_format(o, " skipped=\"%lld\" time=\"%.6f\"", (long long)n[SKIPPED],
                   (double)r->times.total / NS);
}

usc_status usc_report_junit(usc_report *report, const usc_report_options *options,
                            const usc_sink *sink, usc_error *err)
{
    const usc_status st = usc_cases_fill(report, err);
    if (st != USC_OK) return st;
    usc_out o;
    usc_out_begin(&o, sink, err);
    usc_out_text(&o, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                     "<testsuites>\n  <testsuite id=\"0\" package=\"ulpscope\"");
    attribute(&o, "name", usc_report_run(report, "device"));
    /* UTC without its Z, as the schema has it */
    const char *created = usc_report_run(report, "created");
    usc_out_text(&o, " timestamp=\"");
    usc_out_bytes(&o, created, strcspn(created, "Z"));
    usc_out_text(&o, "\" hostname=\"localhost\"");
    put_counts(&o, report, options);
    usc_out_text(&o, ">\n    <properties>\n");
    static const char *const keys[] = {"trace", "device", "standard", "faults"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        usc_out_format(&o, "      <property name=\"%s\"", keys[i]);
        attribute(&o, "value", usc_report_run(report, keys[i]));
        usc_out_text(&o, "/>\n");
    }
    usc_out_text(&o, "    </properties>\n");
    for (const usc_report_case *c = report->cases; c != NULL; c = c->next)
        if (c->n > 0) put_case(&o, c, options);
    usc_out_text(&o, "    <system-out/>\n    <system-err/>\n"
                     "  </testsuite>\n</testsuites>\n");
    return usc_out_end(&o);
}
