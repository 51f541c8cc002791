// SPDX-License-Identifier: Apache-2.0
// ulpscope judge: verdicts on outputs that lie in files.
#include "cli.h"

#include <string.h>

#include <ulpscope/pack.h>

enum { OPT_SCALE = 256, OPT_STANDARD, OPT_FORCE };

static const cli_entry own_options[] = {
    {OPT_SCALE, "scale", "FILE", NULL,
     "scales: safetensors with the same names and shapes"},
    {OPT_STANDARD, "standard", "NAME", "ulpscope", "the rule to judge by"},
    {'o', "out", "OUT", "ulpscope-out", "folder of the results"},
    {OPT_FORCE, "force", NULL, NULL, "replace results of another run in OUT"},
    {0}};

static const cli_entry *const options[] = {own_options, cli_report_options, NULL};

const cli_page cmd_judge_page = {
    .command = "judge",
    .usage = "PACK OUTPUTS [OPTIONS]\n"
             "       ulpscope judge DEVICE.safetensors REFERENCE.safetensors [--scale S] "
             "[OPTIONS]",
    .about =
        "Judges what some device gave without asking the device: RTL simulation, "
        "firmware, "
        "a compiler's dump. Needs neither torch nor the trace. Writes the same results "
        "and "
        "the same report as `ulpscope check`.\n"
        "\n"
        "PACK is a folder that `ulpscope pack` wrote. Read the inputs of each call in "
        "PACK/inputs, compute, and save the outputs under the names of PACK/pack.json, "
        "e.g. "
        "\"12/out[0]\", in OUTPUTS: one safetensors file, or a folder of them.\n"
        "\n"
        "Without a pack, two files of equally named tensors are compared, the references "
        "in "
        "float64 (or float32). Then nobody knows how an operator reacts to its inputs: "
        "errors count relative to |reference|, or to a larger scale of yours (the sum of "
        "the magnitudes that are added up, for instance).\n",
    .options = options,
    .examples =
        "  ulpscope judge pack rtl-outputs -o rtl-verdicts\n"
        "  ulpscope judge dump.safetensors truth.safetensors --scale sums.safetensors\n",
    .codes = "1 when a call is flagged and not allowed; 2 when nothing was judged or "
             "something went wrong; else 0",
};

typedef struct judge_arguments {
    usc_pack_options options;
    cli_report report;
    const char *first, *second;
} judge_arguments;

static bool parse(int argc, char **argv, judge_arguments *a)
{
    *a = (judge_arguments){.options = {.out = "ulpscope-out"}};
    cli_report_begin(&a->report);
    for (int option; (option = cli_next(&cmd_judge_page, argc, argv)) != -1;) {
        if (option == 'o')
            a->options.out = optarg;
        else if (option == OPT_SCALE)
            a->options.scale = optarg;
        else if (option == OPT_STANDARD)
            a->options.standard = optarg;
        else if (option == OPT_FORCE)
            a->options.force = true;
        else if (!cli_report_option(&a->report, option))
            return false;
    }
    if (argc - optind != 2) {
        cli_fail("judge needs two arguments: PACK OUTPUTS, or DEVICE.safetensors "
                 "REFERENCE.safetensors; see ulpscope judge --help");
        return false;
    }
    a->first = argv[optind];
    a->second = argv[optind + 1];
    return cli_report_ready(&a->report);
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
    const bool pack = cli_is_folder(a.first);
    if (pack && a.options.scale != NULL)
        return cli_fail(
            "--scale is for two files; a pack knows the scale of each output");
    const usc_status st = pack ? usc_pack_judge(a.first, a.second, &a.options, &err)
                               : usc_pair_judge(a.first, a.second, &a.options, &err);
    if (st != USC_OK) return cli_fail("%s%s", err.text, next_step(st));
    return cli_report_show(&a.report, a.options.out);
}
