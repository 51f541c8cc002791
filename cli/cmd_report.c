// SPDX-License-Identifier: Apache-2.0
// ulpscope report: the findings of one check, on the terminal and as files.
#include "cli.h"

#include <limits.h>

static const cli_entry own_options[] = {
    {'o', "out", "FILE.html", NULL, "of a trace: the page to write (default TRACE.html)"},
    {0}};

static const cli_entry *const options[] = {own_options, cli_report_options, NULL};

const cli_page cmd_report_page = {
    .command = "report",
    .usage = "OUT|TRACE [OPTIONS]",
    .about = "Reads OUT/result.db, prints the findings (worst first), and writes "
             "result.csv, details.csv, result.json and report.html into OUT. `ulpscope "
             "check` calls it at its end; it needs neither the trace nor torch.\n"
             "Of a trace that nobody has checked, also one of several ranks, it writes a "
             "page: every call in order, modules, statistics of the tensors, where NaN "
             "and Inf begin.\n",
    .options = options,
    .examples =
        "  ulpscope report ulpscope-out\n"
        "  ulpscope report ulpscope-trace   before any check: ulpscope-trace.html\n"
        "  ulpscope report ulpscope-out --allow reduced:mm,addmm,linear   TF32 is wanted "
        "there\n"
        "  ulpscope report ulpscope-out --baseline main.json --junit ulpscope.xml   in "
        "CI\n"
        "\n"
        "The last line sums it up: ... | tail -n 1 >> \"$GITHUB_STEP_SUMMARY\"\n",
    .codes =
        "1 when a call is crashed, timeout, nonfinite, wrong, reduced or intermittent "
        "and not allowed; 2 when one could not be judged and is not allowed (--allow, "
        "--min-judged), or something went wrong; else 0",
};

int cmd_report(int argc, char **argv)
{
    cli_report r;
    const char *page = NULL;
    cli_report_begin(&r);
    for (int key; (key = cli_next(&cmd_report_page, argc, argv)) != -1;)
        if (key == 'o')
            page = optarg;
        else if (!cli_report_option(&r, key))
            return CLI_TROUBLE;
    if (argc - optind != 1)
        return cli_fail(optind == argc ? "report needs the folder of a check, e.g. "
                                         "ulpscope report ulpscope-out, or a trace"
                                       : "report takes one folder");
    if (cli_is_trace(argv[optind])) return cli_trace_page(argv[optind], page);
    if (page != NULL)
        return cli_fail("-o is for the page of a trace; the files of a check are written "
                        "into its folder, and %s is no trace",
                        argv[optind]);
    char own[PATH_MAX];
    (void)snprintf(own, sizeof own, "%s/result.json", argv[optind]);
    if (r.baseline != NULL && cli_is_one_file(r.baseline, own))
        return cli_fail("--baseline %s is what this run found: all of it would be known. "
                        "Keep the result.json of an earlier run elsewhere, and name that",
                        r.baseline);
    return cli_report_ready(&r) ? cli_report_show(&r, argv[optind]) : CLI_TROUBLE;
}
