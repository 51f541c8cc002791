// SPDX-License-Identifier: Apache-2.0
// ulpscope capture: its options, checked; the Python side (ulpscope.sources.launch) runs
// the command.
#include <string.h>

#include <ulpscope/call.h>
#include <ulpscope/pattern.h>

#include "cli.h"
#include "cli_python.h"

enum {
    OPT_STEPS = 256,
    OPT_DATA,
    OPT_OPS,
    OPT_LIMIT,
    OPT_FORCE,
    OPT_STEP_BY,
    OPT_NO_COMPILE,
    OPT_KEEP_GOING
};

static const cli_entry own_options[] = {
    {OPT_STEPS, "steps", "LIST", "1",
     "steps to record, from 0, e.g. 2,5-8; 0 where nothing steps: the whole program"},
    {OPT_DATA, "data", "[full|stats]", "full",
     "keep the tensors, or only statistics of them"},
    {OPT_OPS, "ops", "PATTERN", NULL,
     "only these operators: globs, comma-separated, ! excludes"},
    {'o', "output", "TRACE", "ulpscope-trace", "folder of the trace"},
    {OPT_LIMIT, "limit", "SIZE", NULL,
     "stop before the tensors take more, e.g. 50GB (default: leave 5 % of the disk "
     "free); "
     "the trace stays valid"},
    {OPT_FORCE, "force", NULL, NULL, "replace the trace that the folder holds"},
    {OPT_STEP_BY, "step-by", "[optimizer|dataloader|manual]", NULL,
     "what ends a step (default: the optimizer, else the data loader; manual: the "
     "program "
     "calls ulpscope.step())"},
    {OPT_NO_COMPILE, "no-compile", NULL, NULL,
     "switch torch.compile off in COMMAND (TORCH_COMPILE_DISABLE=1): calls inside "
     "compiled "
     "regions are recorded then"},
    {OPT_KEEP_GOING, "keep-going", NULL, NULL,
     "let the run go on after the last step recorded"},
    {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_capture_page = {
    .command = "capture",
    .usage = "[OPTIONS] -- COMMAND [ARGS]...",
    .about =
        "Runs COMMAND unmodified (python train.py, python -m pkg, torchrun, a shell "
        "script), "
        "records every operator call of one step, then ends the run. A step ends with "
        "the "
        "optimizer's step (of several optimizers, the one that steps first); without an "
        "optimizer the data loader counts. Step 0 begins when the first optimizer is "
        "made. A "
        "program in which nothing steps (inference) is one step: --steps 0. Each rank of "
        "a "
        "job writes TRACE/rank-N and all stop together; of several programs in a script "
        "the "
        "first to get there counts.\n",
    .options = options,
    .examples =
        "  ulpscope capture -- python train.py --lr 3e-4\n"
        "  ulpscope capture --steps 0 -- python generate.py\n"
        "  ulpscope capture --steps 0,100 --data stats -o t -- torchrun "
        "--nproc-per-node 4 train.py\n"
        "  ulpscope capture --ops 'softmax,*norm*' -- python -m mypackage.train\n",
    .codes =
        "0 when the steps were recorded (see them with ulpscope show), 2 when not, 128 "
        "+ n when signal n ended it",
    .stops = true,
};

typedef struct arguments {
    const char *steps, *data, *ops, *output, *step_by;
    int64_t limit;
    bool force, no_compile, keep_going;
} arguments;

static bool check_steps(const char *text)
{
    usc_error err;
    if (usc_steps_read(text, NULL, NULL, &err) == USC_OK) return true;
    cli_fail("--%s", err.text);
    return false;
}

static bool check_ops(const char *text)
{
    usc_error err;
    if (usc_pattern_check(text, &err) == USC_OK) return true;
    cli_fail("--ops: %s", err.text);
    return false;
}

static bool take(arguments *a, int key)
{
    switch (key) {
    case OPT_STEPS:
        a->steps = optarg;
        return check_steps(optarg);
    case OPT_DATA:
        a->data = optarg;
        return true;
    case OPT_OPS:
        a->ops = optarg;
        return check_ops(optarg);
    case 'o':
        a->output = optarg;
        return true;
    case OPT_LIMIT:
        return cli_size("--limit", optarg, &a->limit);
    case OPT_FORCE:
        a->force = true;
        return true;
    case OPT_STEP_BY:
        a->step_by = optarg;
        return true;
    case OPT_NO_COMPILE:
        a->no_compile = true;
        return true;
    case OPT_KEEP_GOING:
        a->keep_going = true;
        return true;
    default:
        return false;
    }
}

static bool parse(int argc, char **argv, arguments *a)
{
    *a = (arguments){.steps = "1", .data = "full", .output = "ulpscope-trace"};
    for (int key; (key = cli_next(&cmd_capture_page, argc, argv)) != -1;)
        if (!take(a, key)) return false;
    if (optind < argc) return true;
    cli_fail("no command given; put it behind --, e.g. -- python train.py");
    return false;
}

/* What ulpscope.sources.launch takes: values by their places, then the command. */
int cmd_capture(int argc, char **argv)
{
    arguments a;
    char limit[24];
    cli_begin("capture");
    if (!parse(argc, argv, &a)) return CLI_TROUBLE;
    (void)snprintf(limit, sizeof limit, "%lld", (long long)a.limit);
    const char *const values[] = {a.steps,
                                  a.data,
                                  a.ops != NULL ? a.ops : "",
                                  a.output,
                                  limit,
                                  a.step_by != NULL ? a.step_by : "",
                                  a.force ? "1" : "",
                                  a.no_compile ? "1" : "",
                                  a.keep_going ? "1" : ""};
    return cli_python_exec("ulpscope.sources.launch", values,
                           sizeof values / sizeof values[0], argv + optind);
}
