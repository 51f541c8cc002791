// SPDX-License-Identifier: Apache-2.0
// ulpscope report: the findings of one check, on the terminal and as files.
#include "cli.h"

#include <string.h>

const char cmd_report_help[] =
    "usage: ulpscope report OUT [--color auto|always|never] [--no-files]\n"
    "                       [--allow VERDICT[:PATTERN]]... [--strict]\n"
    "                       [--baseline FILE] [--junit FILE] [--annotate]\n"
    "\n"
    "Reads OUT/result.db, prints the findings (worst first), and writes result.csv,\n"
    "details.csv, result.json and report.html into OUT. `ulpscope check` calls it at "
    "its\n"
    "end; it needs neither the trace nor torch.\n"
    "\n"
    "  --allow VERDICT[:PATTERN]  do not let this decide the exit code; may be "
    "repeated.\n"
    "                             PATTERN: globs over operators, comma-separated, ! "
    "excludes\n"
    "  --strict                   unjudged and unsupported calls count as flagged too\n"
    "  --baseline FILE            flag only what is new or worse than in an earlier run: "
    "its\n"
    "                             result.db, result.json or folder\n"
    "  --junit FILE               write JUnit XML, a test case per operator, module and "
    "shapes\n"
    "  --annotate                 print `::error` lines, which GitHub shows beside a "
    "run\n"
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
    "intermittent and not allowed; 2 when nothing was judged or something went wrong; "
    "else 0\n";

enum { MAX_ALLOW = 64 };

typedef struct report_arguments {
    usc_report_options options;
    usc_allow allow[MAX_ALLOW];
    const char *out, *baseline, *junit;
    bool annotate;
} report_arguments;

static bool add_allow(report_arguments *a, const char *text)
{
    usc_error err;
    if (a->options.n_allow == MAX_ALLOW) {
        cli_fail("more than %d --allow", MAX_ALLOW);
        return false;
    }
    if (usc_allow_parse(text, &a->allow[a->options.n_allow], &err) != USC_OK) {
        cli_fail("--allow: %s", err.text);
        return false;
    }
    a->options.n_allow++;
    return true;
}

static bool parse(int argc, char **argv, report_arguments *a)
{
    static const struct option longs[] = {{"color", required_argument, NULL, 'c'},
                                          {"allow", required_argument, NULL, 'a'},
                                          {"strict", no_argument, NULL, 's'},
                                          {"no-files", no_argument, NULL, 'n'},
                                          {"baseline", required_argument, NULL, 'b'},
                                          {"junit", required_argument, NULL, 'j'},
                                          {"annotate", no_argument, NULL, 'g'},
                                          {0}};
    const char *when = "auto";
    *a = (report_arguments){0};
    for (int option; (option = cli_option(argc, argv, ":", longs)) != -1;) {
        switch (option) {
        case 'c':
            when = optarg;
            break;
        case 's':
            a->options.strict = true;
            break;
        case 'n':
            a->options.no_files = true;
            break;
        case 'b':
            a->baseline = optarg;
            break;
        case 'j':
            a->junit = optarg;
            break;
        case 'g':
            a->annotate = true;
            break;
        case 'a':
            if (!add_allow(a, optarg)) return false;
            break;
        default:
            return false;
        }
    }
    if (argc - optind != 1) {
        cli_fail(optind == argc ? "report needs the folder of a check, e.g. ulpscope "
                                  "report ulpscope-out"
                                : "report takes one folder");
        return false;
    }
    a->out = argv[optind];
    const int color = cli_color(when);
    a->options.color = color == 1;
    a->options.width = cli_width();
    a->options.allow = a->allow;
    return color >= 0;
}

/* Everything that the options ask for, the files first. */
static usc_status render(usc_report *report, const report_arguments *a, usc_error *err)
{
    const usc_sink sink = usc_sink_stream(stdout);
    usc_status st = USC_OK;
    if (a->baseline != NULL) st = usc_report_baseline(report, a->baseline, err);
    if (st == USC_OK && !a->options.no_files) st = usc_report_write_files(report, err);
    if (st == USC_OK && a->junit != NULL)
        st = usc_report_write_junit(report, &a->options, a->junit, err);
    if (st == USC_OK && a->annotate)
        st = usc_report_annotations(report, &a->options, &sink, err);
    return st == USC_OK ? usc_report_table(report, &a->options, &sink, err) : st;
}

int cmd_report(int argc, char **argv)
{
    report_arguments a;
    if (!parse(argc, argv, &a)) return CLI_TROUBLE;

    usc_error err;
    usc_report *report = NULL;
    usc_status st = usc_report_open(a.out, NULL, &report, &err);
    if (st == USC_OK) st = render(report, &a, &err);
    const int code = st == USC_OK
                         ? cli_close_output(usc_report_exit_code(report, &a.options))
                         : cli_fail("%s", err.text);
    usc_report_close(report);
    return code;
}
