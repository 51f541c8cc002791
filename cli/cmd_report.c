// SPDX-License-Identifier: Apache-2.0
// ulpscope report: the findings of one check, on the terminal and as files.
#include "cli.h"

static const cli_entry *const options[] = {cli_report_options, NULL};

const cli_page cmd_report_page = {
    .command = "report",
    .usage = "OUT [OPTIONS]",
    .about = "Reads OUT/result.db, prints the findings (worst first), and writes "
             "result.csv, details.csv, result.json and report.html into OUT. `ulpscope "
             "check` calls it at its end; it needs neither the trace nor torch.\n",
    .options = options,
    .examples =
        "  ulpscope report ulpscope-out\n"
        "  ulpscope report ulpscope-out --allow reduced:mm,addmm,linear   TF32 is wanted "
        "there\n"
        "  ulpscope report ulpscope-out --baseline main.json --junit ulpscope.xml   in "
        "CI\n"
        "\n"
        "The last line sums it up: ... | tail -n 1 >> \"$GITHUB_STEP_SUMMARY\"\n",
    .codes =
        "1 when a call is crashed, timeout, nonfinite, wrong, reduced or intermittent "
        "and not allowed; 2 when less than --min-judged was judged or something went "
        "wrong; else 0",
};

int cmd_report(int argc, char **argv)
{
    cli_report r;
    cli_report_begin(&r);
    for (int key; (key = cli_next(&cmd_report_page, argc, argv)) != -1;)
        if (!cli_report_option(&r, key)) return CLI_TROUBLE;
    if (argc - optind != 1)
        return cli_fail(optind == argc ? "report needs the folder of a check, e.g. "
                                         "ulpscope report ulpscope-out"
                                       : "report takes one folder");
    return cli_report_ready(&r) ? cli_report_show(&r, argv[optind]) : CLI_TROUBLE;
}
