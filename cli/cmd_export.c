// SPDX-License-Identifier: Apache-2.0
// ulpscope export: its options; the writing is the library's (ulpscope/x/foreign.h).
#include <limits.h>
#include <string.h>

#include <ulpscope/x/foreign.h>
#include <ulpscope/x/pattern.h>

#include "common/hooks.h"

enum { OPT_FORMAT = 256, OPT_OPS, OPT_PROCESS };

static const cli_entry own_options[] = {
    {OPT_FORMAT, "format", "FORMAT", NULL,
     "msprobe (default), ascend-v1, ditorch or perfetto"},
    {'o', "out", "DIR", NULL,
     "the folder to write; it must not be there yet. perfetto: the file"},
    {OPT_OPS, "ops", "PATTERN", NULL,
     "only these operators: globs, comma-separated, ! excludes"},
    {OPT_PROCESS, "process", "PID", "0",
     "ascend-v1: forward_info_PID.json; ditorch: the folder of a process"},
    {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_export_page = {
    .command = "export",
    .usage = "TRACE -o DIR [--format FORMAT] [OPTIONS]\n"
             "       ulpscope export TRACE -o FILE.json --format perfetto",
    .about =
        "Writes the calls of a trace as a dump that another tool reads:\n"
        "\n"
        "  msprobe     DIR/step0/rank0/dump.json, stack.json, construct.json, and "
        "tensors\n"
        "              as .pt in dump_tensor_data: for its acc_check and compare\n"
        "  ascend-v1   DIR/step0/forward_info_0.json, stack_info_0.json, and tensors as\n"
        "              .pt in forward_real_data: for the run_ut.py of 2023\n"
        "  ditorch     DIR/op_tools_results/op_capture_results/OP/PID/ID/TIME: for its\n"
        "              run_op_from_data.py\n"
        "  perfetto    one JSON file, of all ranks, for ui.perfetto.dev and "
        "chrome://tracing:\n"
        "              calls inside one another, modules, steps, where NaN and Inf are "
        "born.\n"
        "              A trace has no clock: one call is one microsecond\n"
        "\n"
        "Calls that another call made are left out, and so are those that the format has "
        "no name for or cannot hold (ditorch: calls without content). Files of torch are "
        "written by torch itself. See "
        "docs/reference/foreign-dumps.md.\n",
    .options = options,
    .examples = "  ulpscope export ulpscope-trace -o dump\n"
                "  ulpscope export ulpscope-trace --format perfetto -o trace.json\n"
                "  msprobe compare -tp dump/step0/rank0/dump.json -gp "
                "other/step0/rank0/dump.json\n",
    .codes = "0 exported, 2 something went wrong (nothing is left behind)",
};

static bool take_process(usc_export_options *o)
{
    int64_t n;
    if (!cli_number("--process", optarg, &n)) return false;
    if (n > INT_MAX) return cli_fail("--process %s: no such process", optarg) == 0;
    o->process = (int)n;
    return true;
}

static bool take(usc_export_options *o, int key)
{
    usc_error err;
    switch (key) {
    case 'o':
        o->out = optarg;
        return true;
    case OPT_FORMAT:
        o->format = optarg;
        return true;
    case OPT_PROCESS:
        return take_process(o);
    case OPT_OPS:
        o->ops = optarg;
        if (usc_pattern_check(optarg, &err) == USC_OK) return true;
        cli_fail("--ops: %s", err.text);
        return false;
    default:
        return false;
    }
}

static bool parse(int argc, char **argv, usc_export_options *o)
{
    *o = (usc_export_options){.format = "msprobe"};
    for (int key; (key = cli_next(&cmd_export_page, argc, argv)) != -1;)
        if (!take(o, key)) return false;
    const char *why = NULL;
    const bool events = strcmp(o->format, "perfetto") == 0;
    if (o->out == NULL)
        why = events ? "-o FILE.json is needed, the file to write"
                     : "-o DIR is needed, the folder to write";
    if (argc - optind != 1)
        why = "one trace is needed, e.g. ulpscope export ulpscope-trace -o dump";
    if (why != NULL) {
        cli_fail("%s; see ulpscope export --help", why);
        return false;
    }
    o->trace = argv[optind];
    return true;
}

static void say_counts(const usc_export_options *o, const usc_export_counts *c)
{
    char calls[32], tensors[32], content[32], left[32];
    (void)printf("%s call%s in %s (%s), %s tensor%s, %s with content\n",
                 cli_grouped(c->calls, calls), c->calls == 1 ? "" : "s", o->out,
                 o->format, cli_grouped(c->tensors, tensors), c->tensors == 1 ? "" : "s",
                 cli_grouped(c->with_content, content));
    if (c->nameless > 0)
        (void)printf("left out: %s call%s that %s cannot hold, e.g. of %s\n",
                     cli_grouped(c->nameless, left), c->nameless == 1 ? "" : "s",
                     o->format, c->first_nameless);
}

/* The whole trace, as one file. */
static int write_events(const usc_export_options *o)
{
    if (o->ops != NULL || o->process != 0)
        return cli_fail("--ops and --process are for dumps; perfetto has a search of its "
                        "own");
    if (!cli_is_trace(o->trace))
        return cli_fail("%s: there is no trace.db in it", o->trace);
    return cli_trace_events(o->trace, o->out);
}

int cmd_export(int argc, char **argv)
{
    usc_export_options o;
    usc_export_counts counts;
    usc_run_end end;
    usc_error err;
    cli_hooks hooks;
    cli_begin("export");
    if (!parse(argc, argv, &o)) return CLI_TROUBLE;
    if (strcmp(o.format, "perfetto") == 0) return write_events(&o);
    cli_hooks_begin(&hooks, "export");
    hooks.module = "ulpscope.calls.torch_files";
    const usc_status st = usc_export(&o, &hooks.hooks, &counts, &end, &err);
    cli_hooks_end(&hooks);
    if (st != USC_OK) return cli_fail("%s", err.text);
    if (end != USC_RUN_DONE) {
        (void)fprintf(stderr, "ulpscope export: interrupted; nothing was written\n");
        return CLI_INTERRUPTED;
    }
    say_counts(&o, &counts);
    const bool lacks = cli_ops_unmatched(o.trace, o.ops);
    return cli_close_output(lacks ? CLI_TROUBLE : CLI_SAME);
}
