// SPDX-License-Identifier: Apache-2.0
// ulpscope check: the options of a check, for one trace or for those of all ranks, and
// the report at its end. The checking is the library's (ulpscope/x/run.h).
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ulpscope/version.h>

#include "cli.h"
#include "common/hooks.h"

enum {
    OPT_VIA = 256,
    OPT_LEVEL,
    OPT_BISECT,
    OPT_OPS,
    OPT_MODULE,
    OPT_PHASE,
    OPT_STEP,
    OPT_DISTINCT,
    OPT_MEMORY,
    OPT_TIMEOUT,
    OPT_CAUSES,
    OPT_REPEAT,
    OPT_IMPORT,
    OPT_FORCE,
    OPT_FAULTS,
    OPT_BUDGET,
    OPT_STANDARD,
    OPT_COMPARE,
    OPT_SELF_TEST,
    OPT_VERBOSE,
    OPT_DEVICE
};

static const cli_entry options[] = {
    {OPT_DEVICE, "device", "DEVICE", NULL,
     "what to test: sim:0, cuda:0, npu:0, ...; or python:MODULE:FUNCTION, a Python "
     "function f(op, args, kwargs) that stands for one"},
    {OPT_VIA, "via", "COMPILER", NULL,
     "judge what torch.compile generates for DEVICE with this backend (inductor; needs a "
     "C++ compiler for --device cpu), call by call; or, with --device cpu, a runtime "
     "that is "
     "installed: executorch, iree, jax, litert, mlx, onnxruntime, openvino, tinygrad, "
     "tvm, or "
     "a package's own; NAME:OPTION as in openvino:f32"},
    {OPT_LEVEL, "level", "[call|api|module]", "call",
     "judge every operator call, every call of a Python function as a whole (captured "
     "with --level api,aten; also where --ops matches nothing else), or the forward of "
     "every module as one graph"},
    {OPT_BISECT, "bisect", NULL, NULL,
     "modules as with --level module; of one that is accused, the first operator at "
     "which "
     "DEVICE departs: the graph is cut behind fewer and fewer of its operators"},
    {OPT_OPS, "ops", "PATTERN", NULL,
     "only these operators: globs, comma-separated, ! excludes"},
    {OPT_MODULE, "module", "GLOB", NULL, "only these modules: 'layers.3.*'"},
    {OPT_PHASE, "phase", "[forward|backward|optimizer]", NULL, "only this phase"},
    {OPT_STEP, "step", "LIST", NULL, "only these steps: 2,5-8"},
    {OPT_DISTINCT, "distinct", NULL, NULL, "one call per signature and module class"},
    {'j', "jobs", "N", NULL, "worker processes (default: one per core)"},
    {OPT_MEMORY, "memory", "SIZE", NULL,
     "memory that all workers may take, 6GiB or 500MB (default 75% of what is free): who "
     "needs more than is left waits"},
    {OPT_TIMEOUT, "timeout", "S", "120", "seconds that one call may take"},
    {OPT_CAUSES, "causes", "off|S", "2",
     "seconds of CPU time for the cause of one finding"},
    {OPT_REPEAT, "repeat", "N", "2",
     "run each call N times on the device; every answer that differs in a bit is judged: "
     "intermittent where one is not acceptable"},
    {OPT_IMPORT, "import", "MODULE", NULL,
     "import this module or FILE.py first: it registers custom operators; may be "
     "repeated"},
    {'o', "out", "OUT", "ulpscope-out", "folder of the results"},
    {OPT_FORCE, "force", NULL, NULL,
     "begin anew, whatever OUT holds: another run, one cut short"},
    {OPT_FAULTS, "faults", "SPEC", NULL,
     "plant faults in the simulated device: PATTERN:KIND[:key=value]..., ';' between "
     "them, "
     "e.g. 'mm:tf32;*norm*:scale:nth=2' (docs/reference/faults.md)"},
    {OPT_BUDGET, "budget", "TIME", NULL,
     "stop after 90s, 10m or 1h, the most telling calls first: one per signature (rare "
     "operators before others), one per signature and module class, then those of the "
     "worst operators; the same command goes on with what was left out (--time is the "
     "same)"},
    {OPT_BUDGET, "time", "TIME", NULL, NULL},
    {OPT_STANDARD, "standard", "NAME", "ulpscope",
     "judge by another rule: ascend-v1, ascend-absolute, ascend-ulp, ascend-benchmark, "
     "torch-close, allclose:ATOL,RTOL, ulp:K, bitwise, cosine:X, neuron-3way, "
     "inductor-same, ggml-nmse, kernelbench"},
    {OPT_COMPARE, "compare-standards", NULL, NULL,
     "tell what each of them says of every call as well"},
    {OPT_SELF_TEST, "self-test", NULL, NULL,
     "tell what the verdict would have caught on these data, by operator"},
    {OPT_VERBOSE, "verbose", NULL, NULL, "tell where the time went, by part of the work"},
    {0}};

static const cli_entry *const all_options[] = {options, cli_report_options, NULL};

const cli_page cmd_check_page = {
    .command = "check",
    .usage = "TRACE[#SEQUENCE] --device DEVICE [OPTIONS]",
    .about =
        "Replays every call of a trace on DEVICE in worker processes, computes what is "
        "true "
        "(float64) and what honest float32 gives on the CPU, and judges each call. A "
        "worker "
        "that crashes or hangs costs one call. Interrupted, the same command goes on "
        "where "
        "it stopped; finished, it begins anew. `ulpscope report OUT` shows what a "
        "running "
        "check has so far. Ends with the report of what was found.\n"
        "With a sequence number, one call. Where TRACE holds a trace for each rank, all "
        "are "
        "checked, OUT/rank-N each, and the exit code is the worst. Collectives are not "
        "replayed: what this rank got is judged against what all ranks gave, from the "
        "folders rank-N beside TRACE.\n"
        "`torchrun ... -m ulpscope check ...` shares the calls among its ranks: "
        "docs/reference/ranks.md.\n",
    .options = all_options,
    .examples =
        "  ulpscope check ulpscope-trace --device npu:0\n"
        "  ulpscope check ulpscope-trace --device cuda:0 --ops 'mm,addmm,bmm' "
        "--distinct\n"
        "  ulpscope check ulpscope-trace#38 --device npu:0 -o one   one finding again\n"
        "  ulpscope check ulpscope-trace --device cuda:0 --allow reduced:mm   TF32 is "
        "wanted\n"
        "  ulpscope check ulpscope-trace --device cpu --via openvino --bisect   where it "
        "departs\n"
        "  torchrun --nproc-per-node 8 -m ulpscope check ulpscope-trace --device cuda\n",
    .codes =
        "1 when a call is crashed, timeout, nonfinite, wrong, reduced or intermittent "
        "and not allowed; 2 when one could not be judged and is not allowed (--allow, "
        "--min-judged), or something went wrong; else 0",
};

typedef struct arguments {
    usc_check_options check;
    cli_report report;
    const char *imports[CLI_MAX_IMPORTS];
    const char *faults; /* NULL: not given */
    char trace[PATH_MAX];
} arguments;

/* ---- values ---- */

/* At least one. */
static bool read_count(const char *option, const char *text, int *out)
{
    int64_t n;
    if (!cli_number(option, text, &n)) return false;
    if (n >= 1 && n <= 1 << 20) {
        *out = (int)n;
        return true;
    }
    cli_fail("%s must be 1 or more", option);
    return false;
}

/* ---- options ---- */

static bool take_text(arguments *a, int key)
{
    usc_check_options *o = &a->check;
    switch (key) {
    case OPT_DEVICE:
        o->device = optarg;
        return true;
    case OPT_VIA:
        o->via = optarg;
        return true;
    case OPT_LEVEL:
        o->level = strcmp(optarg, "api") == 0      ? USC_LEVEL_API
                   : strcmp(optarg, "module") == 0 ? USC_LEVEL_MODULE
                                                   : USC_LEVEL_CALL;
        return true;
    case OPT_OPS:
        o->ops = optarg;
        return true;
    case OPT_MODULE:
        o->module = optarg;
        return true;
    case OPT_PHASE:
        o->phase = optarg;
        return true;
    case OPT_STEP:
        o->step = optarg;
        return true;
    case OPT_FAULTS:
        a->faults = optarg;
        return true;
    case OPT_STANDARD:
        o->standard = optarg;
        return true;
    case 'o':
        o->out = optarg;
        return true;
    default:
        return false;
    }
}

static bool take_flag(usc_check_options *o, int key)
{
    switch (key) {
    case OPT_BISECT:
        o->bisect = true;
        return true;
    case OPT_DISTINCT:
        o->distinct = true;
        return true;
    case OPT_FORCE:
        o->force = true;
        return true;
    case OPT_COMPARE:
        o->compare_standards = true;
        return true;
    case OPT_SELF_TEST:
        o->self_test = true;
        return true;
    case OPT_VERBOSE:
        o->verbose = true;
        return true;
    default:
        return false;
    }
}

static bool take_value(arguments *a, int key)
{
    usc_check_options *o = &a->check;
    switch (key) {
    case 'j':
        return read_count("-j", optarg, &o->jobs);
    case OPT_REPEAT:
        return read_count("--repeat", optarg, &o->repeat);
    case OPT_MEMORY:
        return cli_size("--memory", optarg, &o->memory);
    case OPT_TIMEOUT:
        return cli_seconds("timeout", optarg, false, &o->timeout);
    case OPT_CAUSES:
        return cli_seconds("causes", optarg, true, &o->causes);
    case OPT_BUDGET:
        return cli_time("--budget", optarg, &o->budget);
    case OPT_IMPORT:
        return cli_import(a->imports, &a->check.n_imports);
    default:
        return cli_report_option(&a->report, key);
    }
}

static bool take_trace(arguments *a, const char *text)
{
    if ((size_t)snprintf(a->trace, sizeof a->trace, "%s", text) >= sizeof a->trace)
        return cli_fail("%s: the name is too long", text) == 0;
    a->check.trace = a->trace;
    (void)cli_split_call(a->trace, &a->check.call);
    return true;
}

static bool is_python(const char *device)
{
    return strncmp(device, "python:", 7) == 0;
}

/* What two options say together; a sentence or NULL. */
static const char *contradiction(const arguments *a)
{
    const usc_check_options *o = &a->check;
    if (o->device == NULL) return "--device DEVICE is needed, e.g. --device npu:0";
    if (o->device[0] == '\0') return "--device names no device";
    if (a->faults != NULL && a->faults[0] != '\0' && !cli_same_type(o->device, "sim"))
        return "--faults: only the simulated device has planted faults; use --device "
               "sim:0";
    if (o->via != NULL && o->via[0] != '\0' && is_python(o->device))
        return "--via: torch.compile needs a device that torch knows, e.g. --device cpu";
    if (o->level == USC_LEVEL_MODULE && is_python(o->device))
        return "--level module: a callable computes single operators; name a device that "
               "torch knows, e.g. --device cpu";
    if (o->bisect && o->level == USC_LEVEL_API)
        return "--bisect cuts the forward of a module; leave out --level api";
    if (o->level == USC_LEVEL_MODULE && o->self_test)
        return "--self-test is about single calls; leave out --level module";
    return NULL;
}

/* Refuses what would be refused when all the work is done. */
static bool check_late(const arguments *a)
{
    usc_error err;
    usc_standard standard;
    const usc_check_options *o = &a->check;
    if (o->standard != NULL &&
        usc_standard_parse(o->standard, &standard, &err) != USC_OK) {
        cli_fail("--standard: %s", err.text);
        return false;
    }
    if (o->step != NULL && usc_steps_read(o->step, NULL, NULL, &err) != USC_OK) {
        cli_fail("--step: '%s' is no list of steps; write 2 or 2,5-8", o->step);
        return false;
    }
    return cli_report_reachable(&a->report);
}

static bool parse(int argc, char **argv, arguments *a)
{
    *a = (arguments){
        .check = {.out = "ulpscope-out", .call = -1, .causes = USC_RUN_CAUSES}};
    cli_report_begin(&a->report);
    for (int key; (key = cli_next(&cmd_check_page, argc, argv)) != -1;)
        if (!take_text(a, key) && !take_flag(&a->check, key) && !take_value(a, key))
            return false;
    if (a->check.bisect && a->check.level == USC_LEVEL_CALL)
        a->check.level = USC_LEVEL_MODULE;
    const char *why = contradiction(a);
    if (argc - optind != 1)
        why = argc == optind ? "a trace is needed, e.g. ulpscope check ulpscope-trace "
                               "--device npu:0"
                             : "one trace is needed, and nothing else without a dash";
    if (why != NULL) {
        cli_fail("%s; see ulpscope check --help", why);
        return false;
    }
    a->check.imports = a->imports;
    a->check.faults = a->faults;
    return take_trace(a, argv[optind]) && check_late(a) && cli_report_ready(&a->report);
}

/* ---- doing it ---- */

static int check_one(const usc_check_options *o, const cli_report *report)
{
    usc_error err;
    usc_run_end end;
    cli_hooks hooks;
    cli_shares *shares = cli_shares_found();
    char name[32] = "check";
    if (shares != NULL) {
        (void)snprintf(name, sizeof name, "check: rank %d", shares->ranks.rank);
        shares->area = o->out;
    }
    cli_hooks_begin(&hooks, name);
    hooks.hooks.ranks = shares != NULL ? &shares->ranks : NULL;
    const bool other = shares != NULL && shares->ranks.rank > 0;
    if (other) { /* one rank tells */
        hooks.hooks.progress = NULL;
        cli_progress_end(&hooks.progress);
    }
    const usc_status st = usc_check_trace(o, &hooks.hooks, &end, &err);
    cli_hooks_end(&hooks);
    if (shares != NULL) cli_shares_leave(shares, o->out);
    if (st != USC_OK) return cli_fail("%s", err.text);
    if (end == USC_RUN_INTERRUPTED) return CLI_INTERRUPTED;
    return other ? CLI_SAME : cli_report_show(report, o->out);
}

int cmd_check(int argc, char **argv)
{
    arguments a;
    cli_begin("check");
    if (!parse(argc, argv, &a)) return CLI_TROUBLE;
    a.check.cores = cli_cores();
    a.check.threads = cli_threads();
    a.check.version = USC_VERSION;
    if (!cli_faults(a.check.device, a.faults, &a.check.faults)) return CLI_TROUBLE;
    cli_shares *shares = cli_shares_found();
    if (shares != NULL) cli_shares_divide(shares, &a.check);
    if (cli_next_rank(a.check.trace, -1, "trace.db") >= 0)
        return cli_check_ranks(&a.check, &a.report, check_one);
    return check_one(&a.check, &a.report);
}
