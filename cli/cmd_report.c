// SPDX-License-Identifier: Apache-2.0
// ulpscope report: the findings of one check, on the terminal and as files.
#include "cli.h"

const char cmd_report_help[] =
    "usage: ulpscope report OUT [--color auto|always|never] [--no-files]\n"
    "                       [--allow VERDICT[:PATTERN]]... [--strict] [--min-judged "
    "SHARE]\n"
    "                       [--baseline FILE] [--junit FILE] [--annotate]\n"
    "                       [--sort verdict|loss]\n"
    "\n"
    "Reads OUT/result.db, prints the findings (worst first), and writes result.csv,\n"
    "details.csv, result.json and report.html into OUT. `ulpscope check` calls it at "
    "its\n"
    "end; it needs neither the trace nor torch.\n"
    "\n"
    "  --allow VERDICT[:PATTERN]  do not let this decide the exit code; may be "
    "repeated.\n"
    "                             PATTERN: globs over operators, comma-separated, ! "
    "excludes;\n"
    "                             usual or usual:PATTERN: what torch's own CPU kernel "
    "of\n"
    "                             that dtype does no better\n"
    "  --strict                   undefined, unjudged and unsupported calls are flagged "
    "too\n"
    "  --min-judged SHARE         exit code 2 where less of the calls is judged (50%): "
    "the\n"
    "                             rest is undefined, unjudged or unsupported\n"
    "  --baseline FILE            flag only what is new or worse than in an earlier run: "
    "its\n"
    "                             result.db, result.json or folder\n"
    "  --junit FILE               write JUnit XML, a test case per operator, module and "
    "shapes\n"
    "  --annotate                 print `::error` lines, which GitHub shows beside a "
    "run\n"
    "  --sort verdict|loss        what comes first in the table: the worst verdict "
    "(default),\n"
    "                             or the largest effect on the loss of the captured "
    "step\n"
    "  --no-files                 print only\n"
    "  --color WHEN               auto (default), always or never\n"
    "\n"
    "examples:\n"
    "  ulpscope report ulpscope-out\n"
    "  ulpscope report ulpscope-out --allow reduced:mm,addmm,linear   TF32 is wanted "
    "there\n"
    "  ulpscope report ulpscope-out --baseline main.json --junit ulpscope.xml   in CI\n"
    "\n"
    "The last line sums it up: ... | tail -n 1 >> \"$GITHUB_STEP_SUMMARY\"\n"
    "\n"
    "exit code: 1 when a call is crashed, timeout, nonfinite, wrong, reduced or\n"
    "intermittent and not allowed; 2 when less than --min-judged was judged or "
    "something\n"
    "went wrong; else 0\n";

int cmd_report(int argc, char **argv)
{
    static const struct option longs[] = {CLI_REPORT_OPTIONS, {0}};
    cli_report r;
    cli_report_begin(&r);
    for (int option; (option = cli_option(argc, argv, ":", longs)) != -1;)
        if (!cli_report_option(&r, option)) return CLI_TROUBLE;
    if (argc - optind != 1)
        return cli_fail(optind == argc ? "report needs the folder of a check, e.g. "
                                         "ulpscope report ulpscope-out"
                                       : "report takes one folder");
    return cli_report_ready(&r) ? cli_report_show(&r, argv[optind]) : CLI_TROUBLE;
}
