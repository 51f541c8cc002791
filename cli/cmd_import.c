// SPDX-License-Identifier: Apache-2.0
// ulpscope import: its options; the reading is the library's (ulpscope/x/foreign.h).
#include <string.h>

#include <ulpscope/x/foreign.h>

#include "common/hooks.h"

enum { OPT_DEVICE = 256, OPT_RANK, OPT_SKIP_DAMAGED };

static const cli_entry own_options[] = {
    {'o', "out", "TRACE", NULL, "the trace to write, a folder that is not there yet"},
    {OPT_DEVICE, "device", "DEVICE", NULL,
     "on which the dump was taken, e.g. npu:0, cuda:0, cpu: msprobe's do not say "
     "(default: npu:0; of ditorch what it says)"},
    {OPT_RANK, "rank", "N", NULL, "which process, where the dump has several"},
    {OPT_SKIP_DAMAGED, "skip-damaged", NULL, NULL,
     "where a tensor's file is missing or is not what the dump says, keep its statistics "
     "and go on; of ditorch, leave out the call whose arguments cannot be read"},
    {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_import_page = {
    .command = "import",
    .usage = "DUMP -o TRACE [OPTIONS]",
    .about =
        "Makes a trace of another tool's dump, which is then shown, checked and reported "
        "like any other. DUMP is a folder, or the JSON file in it:\n"
        "\n"
        "  msprobe        dump_path, its step0, or step0/rank0: dump.json, stack.json,\n"
        "                 construct.json, tensors as .pt or .npy, or statistics alone\n"
        "  ascend-v1      the folder of forward_info_PID.json, or that file, of the "
        "tool\n"
        "                 before it: calls without results\n"
        "  ditorch        op_tools_results, or op_capture_results in it\n"
        "\n"
        "Backward passes of functions become calls, too. A dump of statistics becomes "
        "calls without content, for which check makes "
        "stand-ins. Files of torch (.pt, .pth) are opened with "
        "torch.load(weights_only=True): "
        "what needs more is refused, never unpickled. A dump of any size is read call by "
        "call. See docs/reference/foreign-dumps.md.\n",
    .options = options,
    .examples = "  ulpscope import dump_path/step0 -o trace --rank 0\n"
                "  ulpscope show trace --ops '*linear*'\n"
                "  ulpscope check trace --device npu:0\n",
    .codes = "0 imported, 2 something went wrong (no trace is left behind)",
};

static bool take(usc_import_options *o, int key)
{
    switch (key) {
    case 'o':
        o->trace = optarg;
        return true;
    case OPT_DEVICE:
        o->device = optarg;
        return true;
    case OPT_RANK:
        o->rank = optarg;
        return true;
    case OPT_SKIP_DAMAGED:
        o->skip_damaged = true;
        return true;
    default:
        return false;
    }
}

static bool parse(int argc, char **argv, usc_import_options *o)
{
    *o = (usc_import_options){0};
    for (int key; (key = cli_next(&cmd_import_page, argc, argv)) != -1;)
        if (!take(o, key)) return false;
    const char *why = NULL;
    if (o->trace == NULL) why = "-o TRACE is needed, the folder to write";
    if (argc - optind != 1)
        why = "one dump is needed, e.g. ulpscope import step0 -o trace";
    if (why != NULL) {
        cli_fail("%s; see ulpscope import --help", why);
        return false;
    }
    o->dump = argv[optind];
    return true;
}

static const char *counted(int64_t n, const char *what, char out[64])
{
    char number[32];
    (void)snprintf(out, 64, "%s %s%s", cli_grouped(n, number), what, n == 1 ? "" : "s");
    return out;
}

static void say_counts(const usc_import_options *o, const usc_import_counts *c)
{
    char calls[64], steps[64], tensors[64], text[64];
    (void)printf("%s of %s in %s (%s), %s", counted(c->calls, "call", calls),
                 counted(c->steps, "step", steps), o->trace, c->format,
                 counted(c->tensors, "tensor", tensors));
    if (c->with_content < c->tensors)
        (void)printf(", %s of them as statistics",
                     cli_grouped(c->tensors - c->with_content, text));
    (void)putchar('\n');
    if (c->modules > 0)
        (void)printf("left out: %s of nn.Modules: the calls inside them are judged\n",
                     counted(c->modules, "call", text));
    if (c->others > 0)
        (void)printf("left out: what is no call of an API, %s\n",
                     counted(c->others, "time", text));
    if (c->damaged > 0)
        (void)printf("skipped: %s that cannot be read; the first: %s\n",
                     counted(c->damaged, "file", text), c->first_damage);
}

int cmd_import(int argc, char **argv)
{
    usc_import_options o;
    usc_import_counts counts;
    usc_run_end end;
    usc_error err;
    cli_hooks hooks;
    cli_begin("import");
    if (!parse(argc, argv, &o)) return CLI_TROUBLE;
    cli_hooks_begin(&hooks, "import");
    hooks.module = "ulpscope.calls.torch_files";
    const usc_status st = usc_import(&o, &hooks.hooks, &counts, &end, &err);
    cli_hooks_end(&hooks);
    if (st != USC_OK) return cli_fail("%s", err.text);
    if (end != USC_RUN_DONE) {
        (void)fprintf(stderr, "ulpscope import: interrupted; nothing was written\n");
        return CLI_INTERRUPTED;
    }
    say_counts(&o, &counts);
    const int code = cli_close_output(CLI_SAME);
    if (code == CLI_SAME) cli_next_is("ulpscope check %s --device DEVICE", o.trace);
    return code;
}
