// SPDX-License-Identifier: Apache-2.0
// The options that decide how findings are shown and what counts, and the showing: for
// every command that ends with a report.
#include "cli.h"

#include <string.h>

void cli_report_begin(cli_report *r)
{
    *r = (cli_report){.when = "auto"};
}

static bool add_allow(cli_report *r, const char *text)
{
    usc_error err;
    if (r->options.n_allow == CLI_MAX_ALLOW) {
        cli_fail("more than %d --allow", CLI_MAX_ALLOW);
        return false;
    }
    if (usc_allow_parse(text, &r->allow[r->options.n_allow], &err) != USC_OK) {
        cli_fail("--allow: %s", err.text);
        return false;
    }
    r->options.n_allow++;
    return true;
}

static bool set_order(cli_report *r, const char *by)
{
    r->options.by_loss = strcmp(by, "loss") == 0;
    if (r->options.by_loss || strcmp(by, "verdict") == 0) return true;
    cli_fail("--sort: '%s' is no order; try verdict or loss", by);
    return false;
}

bool cli_report_option(cli_report *r, int option)
{
    switch (option) {
    case 'c':
        r->when = optarg;
        return true;
    case 's':
        r->options.strict = true;
        return true;
    case 'n':
        r->options.no_files = true;
        return true;
    case 'b':
        r->baseline = optarg;
        return true;
    case 'j':
        r->junit = optarg;
        return true;
    case 'g':
        r->annotate = true;
        return true;
    case 'r':
        return set_order(r, optarg);
    case 'a':
        return add_allow(r, optarg);
    default:
        return false;
    }
}

bool cli_report_ready(cli_report *r)
{
    const int color = cli_color(r->when);
    r->options.color = color == 1;
    r->options.width = cli_width();
    r->options.allow = r->allow;
    return color >= 0;
}

/* Everything that the options ask for, the files first. */
static usc_status render(usc_report *report, const cli_report *r, usc_error *err)
{
    const usc_sink sink = usc_sink_stream(stdout);
    usc_status st = USC_OK;
    if (r->baseline != NULL) st = usc_report_baseline(report, r->baseline, err);
    if (st == USC_OK && !r->options.no_files) st = usc_report_write_files(report, err);
    if (st == USC_OK && r->junit != NULL)
        st = usc_report_write_junit(report, &r->options, r->junit, err);
    if (st == USC_OK && r->annotate)
        st = usc_report_annotations(report, &r->options, &sink, err);
    return st == USC_OK ? usc_report_table(report, &r->options, &sink, err) : st;
}

int cli_report_show(const cli_report *r, const char *out)
{
    usc_error err;
    usc_report *report = NULL;
    usc_status st = usc_report_open(out, NULL, &report, &err);
    if (st == USC_OK) st = render(report, r, &err);
    const int code = st == USC_OK
                         ? cli_close_output(usc_report_exit_code(report, &r->options))
                         : cli_fail("%s", err.text);
    usc_report_close(report);
    return code;
}
