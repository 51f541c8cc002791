// SPDX-License-Identifier: Apache-2.0
// ulpscope compat: the faces of other tools. Neighbours: compat_check.c (what they do),
// compat_install.c (the folder that stands for their package).
#include "compat/compat.h"

#include <string.h>

#include <ulpscope/x/pattern.h>

enum {
    OPT_FORWARD = 256,
    OPT_BACKWARD,
    OPT_SAVE,
    OPT_CSV,
    OPT_ON,
    OPT_OPS,
    OPT_ERRORS,
    OPT_VIA,
    OPT_STRICT,
    OPT_ALLOW
};

static const cli_entry own_options[] = {
    {OPT_FORWARD, "forward", "FILE", NULL, "forward_info_PID.json, by any name"},
    {OPT_FORWARD, "forward_input_file", "FILE", NULL, "the same"},
    {OPT_BACKWARD, "backward", "FILE", NULL, "backward_info_PID.json"},
    {OPT_BACKWARD, "backward_input_file", "FILE", NULL, "the same"},
    {OPT_SAVE, "save_error_data", NULL, NULL,
     "keep inputs and outputs of the calls that fail"},
    {'o', "out_path", "DIR", "./", "where the tables are written, or the shim folder"},
    {'j', "jit_compile", NULL, NULL, "what torch.compile makes of the calls (--via)"},
    {'d', "device", "ID", "0", "number of the device"},
    {OPT_CSV, "csv_path", "FILE", NULL,
     "accuracy_checking_result_TIME.csv of a run that was cut short: goes on with it"},
    {OPT_CSV, "result_csv_path", "FILE", NULL, "the same"},
    {OPT_ON, "device-type", "TYPE", "cpu", "npu, cuda, musa, sim, cpu"},
    {OPT_VIA, "via", "COMPILER", "inductor",
     "what -j compiles with, as in ulpscope check"},
    {OPT_OPS, "ops", "PATTERN", NULL, "only these, as in ulpscope check"},
    {OPT_STRICT, "strict", NULL, NULL,
     "1 also for APIs that pass the precheck's rule and not our verdict, or are skipped"},
    {OPT_ALLOW, "allow", "VERDICT[:PATTERN]", NULL,
     "unjudged or unsupported: accept that nobody looked at such APIs (exit code 2 "
     "else); "
     "PATTERN as in ulpscope check; may be repeated"},
    {OPT_ERRORS, "error-data", "DIR", NULL, "where -save_error_data writes (default ./)"},
    {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_compat_page = {
    .command = "compat",
    .usage = "install api_accuracy_checker|torch_musa [-o DIR]\n"
             "       ulpscope compat run_ut -forward FILE [OPTIONS]\n"
             "       ulpscope compat run_overflow_check -forward FILE [OPTIONS]",
    .about =
        "The Ascend precheck (api_accuracy_checker) by its own names, on any device.\n"
        " install             writes a folder whose package is ours by the name of "
        "theirs,\n"
        "                     and prints the line that puts it on PYTHONPATH; "
        "torch_musa: "
        "the\n"
        "                     debugging tools, SimplePorting, musa-converter, "
        "musify-text\n"
        " run_ut              judges every API of a dump: two tables, and our own "
        "verdict "
        "in\n"
        "                     further columns\n"
        " run_overflow_check  says of every API whether its overflow is normal\n"
        "The scripts of the package (run_ut.py, run_overflow_check.py) call these with "
        "the "
        "device that torch has. See docs/how-to/migrate-msprobe.md.\n",
    .options = options,
    .examples = "  ulpscope compat install api_accuracy_checker -o ~/shim\n"
                "  eval \"$(ulpscope compat install torch_musa -o ~/shim)\"\n"
                "  python -m ulpscope.compat.api_accuracy_checker.run_ut.run_ut -forward "
                "step1/forward_info_7.json\n",
    .codes =
        "0 every API passes, or the folder is written; 1 one fails; 2 something went "
        "wrong, or an API could not be judged and is not allowed",
    .one_dash = true,
};

static bool take_device(compat_arguments *a)
{
    int64_t n;
    if (!cli_number("-d", optarg, &n)) return false;
    if (n > 9999) return cli_fail("-d %s: there is no such device", optarg) == 0;
    a->device_id = (int)n;
    return true;
}

static bool take(compat_arguments *a, int key)
{
    switch (key) {
    case OPT_FORWARD:
        a->forward = optarg;
        return true;
    case OPT_BACKWARD:
        a->backward = optarg;
        return true;
    case OPT_SAVE:
        a->save_errors = true;
        return true;
    case 'o':
        a->out = optarg;
        return true;
    case 'j':
        a->compiled = true;
        return true;
    case 'd':
        return take_device(a);
    case OPT_CSV:
        a->csv = optarg;
        return true;
    case OPT_ON:
        a->device_type = optarg;
        return true;
    case OPT_VIA:
        a->via = optarg;
        return true;
    case OPT_OPS:
        a->ops = optarg;
        return true;
    case OPT_STRICT:
        a->strict = true;
        return true;
    case OPT_ALLOW:
        return cli_report_allow(&a->report, optarg);
    case OPT_ERRORS:
        a->error_data = optarg;
        return true;
    default:
        return false;
    }
}

int cmd_compat(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const compat_arguments *);
    } parts[] = {{"install", compat_install},
                 {"run_ut", compat_run_ut},
                 {"run_overflow_check", compat_run_overflow}};
    compat_arguments a = {.device_type = "cpu", .via = "inductor", .backward = ""};
    cli_begin("compat");
    cli_report_begin(&a.report);
    for (int key; (key = cli_next(&cmd_compat_page, argc, argv)) != -1;)
        if (!take(&a, key)) return CLI_TROUBLE;
    const char *part = optind < argc ? argv[optind] : "";
    a.name = optind + 1 < argc ? argv[optind + 1] : NULL;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (strcmp(part, parts[i].name) != 0) continue;
        if (argc - optind > 2 || (i > 0 && a.name != NULL))
            return cli_fail("'%s' is too much; see ulpscope compat --help",
                            argv[argc - 1]);
        if (i > 0 && a.forward == NULL)
            return cli_fail("-forward FILE is needed, forward_info_PID.json of a dump");
        a.report.options.allow = a.report.allow;
        return parts[i].run(&a);
    }
    return cli_fail(
        "'%s' is none of install, run_ut and run_overflow_check; see ulpscope "
        "compat --help",
        part);
}
