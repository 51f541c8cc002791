// SPDX-License-Identifier: Apache-2.0
// ulpscope pack: its options; the packing is the library's (ulpscope/x/run.h).
#include "common/hooks.h"

enum { OPT_OPS = 256, OPT_DISTINCT, OPT_IMPORT };

static const cli_entry own_options[] = {
    {'o', "out", "PACK", NULL, "the folder to write; it must not be there yet"},
    {OPT_OPS, "ops", "PATTERN", NULL,
     "only these operators: globs, comma-separated, ! excludes"},
    {OPT_DISTINCT, "distinct", NULL, NULL, "one call per signature and module class"},
    {'j', "jobs", "N", NULL,
     "worker processes (default: one per core, fewer for few calls)"},
    {OPT_IMPORT, "import", "MODULE", NULL,
     "import this module or FILE.py first: it registers custom operators; may be "
     "repeated"},
    {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_pack_page = {
    .command = "pack",
    .usage = "TRACE -o PACK [OPTIONS]",
    .about =
        "Writes, for every call of a trace, its inputs and what its outputs must be, as "
        "safetensors files that need neither torch nor this trace: for a compiler, an "
        "RTL "
        "simulation, firmware. Feed the inputs to the device, save what it gives, and "
        "have "
        "it judged with `ulpscope judge PACK OUTPUTS`: the verdicts are those of "
        "`ulpscope "
        "check`.\n"
        "\n"
        "  PACK/pack.json     the calls: operator, arguments, names of inputs and "
        "outputs\n"
        "  PACK/inputs/N.safetensors     the inputs of call N, as they were captured\n"
        "  PACK/operands/N.safetensors   truth, yardstick and sensitivities: for the "
        "judge\n",
    .options = options,
    .examples = "  ulpscope pack ulpscope-trace -o pack --distinct\n"
                "  ulpscope pack ulpscope-trace -o pack --ops 'mm,addmm,bmm,*softmax*'\n",
    .codes = "0 written, 2 something went wrong",
};

typedef struct arguments {
    usc_pack_run_options pack;
    const char *imports[CLI_MAX_IMPORTS];
} arguments;

static bool take(arguments *a, int key)
{
    switch (key) {
    case 'o':
        a->pack.out = optarg;
        return true;
    case OPT_OPS:
        a->pack.ops = optarg;
        return true;
    case OPT_DISTINCT:
        a->pack.distinct = true;
        return true;
    case OPT_IMPORT:
        return cli_import(a->imports, &a->pack.n_imports);
    case 'j':
        return cli_jobs(&a->pack.jobs);
    default:
        return false;
    }
}

static bool parse(int argc, char **argv, arguments *a)
{
    *a = (arguments){.pack = {.cores = cli_cores()}};
    a->pack.imports = a->imports;
    for (int key; (key = cli_next(&cmd_pack_page, argc, argv)) != -1;)
        if (!take(a, key)) return false;
    const char *why = NULL;
    if (a->pack.out == NULL) why = "-o PACK is needed, the folder to write";
    if (argc - optind != 1)
        why = "one trace is needed, e.g. ulpscope pack ulpscope-trace -o pack";
    if (why != NULL) {
        cli_fail("%s; see ulpscope pack --help", why);
        return false;
    }
    a->pack.trace = argv[optind];
    return true;
}

int cmd_pack(int argc, char **argv)
{
    arguments a;
    usc_error err;
    usc_run_end end;
    cli_hooks hooks;
    cli_begin("pack");
    if (!parse(argc, argv, &a)) return CLI_TROUBLE;
    cli_hooks_begin(&hooks, "pack");
    const usc_status st = usc_pack_trace(&a.pack, &hooks.hooks, &end, &err);
    cli_hooks_end(&hooks);
    if (st != USC_OK) return cli_fail("%s", err.text);
    if (end == USC_RUN_DONE && cli_ops_unmatched(a.pack.trace, a.pack.ops))
        return CLI_TROUBLE;
    if (end == USC_RUN_DONE) {
        cli_next_is("compute what %s/pack.json lists, then ulpscope judge %s OUTPUTS",
                    a.pack.out, a.pack.out);
        return CLI_SAME;
    }
    (void)fprintf(stderr, "ulpscope pack: interrupted; nothing was written\n");
    return CLI_INTERRUPTED;
}
