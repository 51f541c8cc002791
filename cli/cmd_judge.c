// SPDX-License-Identifier: Apache-2.0
// ulpscope judge: verdicts on outputs that lie in files.
#include "cli.h"

#include <string.h>
#include <sys/stat.h>

#include <ulpscope/pack.h>

const char cmd_judge_help[] =
    "usage: ulpscope judge PACK OUTPUTS [OPTIONS]\n"
    "       ulpscope judge DEVICE.safetensors REFERENCE.safetensors [--scale S] "
    "[OPTIONS]\n"
    "\n"
    "Judges what some device gave without asking the device: RTL simulation, firmware, "
    "a\n"
    "compiler's dump. Needs neither torch nor the trace. Writes the same results and "
    "the\n"
    "same report as `ulpscope check`.\n"
    "\n"
    "PACK is a folder that `ulpscope pack` wrote. Read the inputs of each call in\n"
    "PACK/inputs, compute, and save the outputs under the names of PACK/pack.json, e.g.\n"
    "\"12/out[0]\", in OUTPUTS: one safetensors file, or a folder of them.\n"
    "\n"
    "Without a pack, two files of equally named tensors are compared, the references in\n"
    "float64 (or float32). Then nobody knows how an operator reacts to its inputs: "
    "errors\n"
    "count relative to |reference|, or to a larger scale of yours (the sum of the\n"
    "magnitudes that are added up, for instance).\n"
    "\n"
    "  --scale FILE       scales: safetensors with the same names and shapes\n"
    "  --standard NAME    the rule to judge by (default ulpscope)\n"
    "  -o OUT             folder of the results (default ulpscope-out)\n"
    "  --force            replace results of another run in OUT\n"
    "  --allow VERDICT[:PATTERN], --strict, --baseline FILE, --junit FILE, --annotate,\n"
    "  --no-files, --color WHEN   as for ulpscope report\n"
    "\n"
    "examples:\n"
    "  ulpscope judge pack rtl-outputs -o rtl-verdicts\n"
    "  ulpscope judge dump.safetensors truth.safetensors --scale sums.safetensors\n"
    "\n"
    "exit code: 1 when a call is flagged and not allowed; 2 when nothing was judged or\n"
    "something went wrong; else 0\n";

typedef struct judge_arguments {
    usc_pack_options options;
    cli_report report;
    const char *first, *second;
} judge_arguments;

static bool parse(int argc, char **argv, judge_arguments *a)
{
    static const struct option longs[] = {{"scale", required_argument, NULL, 'S'},
                                          {"standard", required_argument, NULL, 'N'},
                                          {"force", no_argument, NULL, 'F'},
                                          CLI_REPORT_OPTIONS,
                                          {0}};
    *a = (judge_arguments){.options = {.out = "ulpscope-out"}};
    cli_report_begin(&a->report);
    for (int option; (option = cli_option(argc, argv, ":o:", longs)) != -1;) {
        if (option == 'o')
            a->options.out = optarg;
        else if (option == 'S')
            a->options.scale = optarg;
        else if (option == 'N')
            a->options.standard = optarg;
        else if (option == 'F')
            a->options.force = true;
        else if (!cli_report_option(&a->report, option))
            return false;
    }
    if (argc - optind != 2) {
        cli_fail("judge needs two arguments: PACK OUTPUTS, or DEVICE.safetensors "
                 "REFERENCE.safetensors; see ulpscope help judge");
        return false;
    }
    a->first = argv[optind];
    a->second = argv[optind + 1];
    return cli_report_ready(&a->report);
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static const char *next_step(usc_status status)
{
    if (status == USC_E_EXISTS)
        return "; name another folder with -o, or --force to replace it";
    return "";
}

int cmd_judge(int argc, char **argv)
{
    judge_arguments a;
    usc_error err;
    if (!parse(argc, argv, &a)) return CLI_TROUBLE;
    const bool pack = is_folder(a.first);
    if (pack && a.options.scale != NULL)
        return cli_fail(
            "--scale is for two files; a pack knows the scale of each output");
    const usc_status st = pack ? usc_pack_judge(a.first, a.second, &a.options, &err)
                               : usc_pair_judge(a.first, a.second, &a.options, &err);
    if (st != USC_OK) return cli_fail("%s%s", err.text, next_step(st));
    return cli_report_show(&a.report, a.options.out);
}
