// SPDX-License-Identifier: Apache-2.0
// ulpscope capture: runs a command and records steps of it.
//
// The command is not changed: its Python processes find a sitecustomize first
// (python/ulpscope/_bootstrap), which starts ulpscope.program.launched where torch is
// imported. Every process that recorded reports through a file (ulpscope/x/launch.h);
// this program puts the traces in their places and says in a line what came of it:
// capture.h.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ulpscope/trace.h>
#include <ulpscope/x/pattern.h>

#include "capture/capture.h"
#include "cli.h"
#include "common/around.h"
#include "common/cli_python.h"
#include "common/stop.h"

enum {
    OPT_STEPS = 256,
    OPT_DATA,
    OPT_LEVEL,
    OPT_OPS,
    OPT_LIMIT,
    OPT_FORCE,
    OPT_STEP_BY,
    OPT_NO_COMPILE,
    OPT_KEEP_GOING,
    OPT_UNTIL,
    OPT_END_RUN
};

static const cli_entry own_options[] = {
    {OPT_STEPS, "steps", "LIST", "1",
     "steps to record, from 0, e.g. 2,5-8; 0 where nothing steps: the whole program"},
    {OPT_DATA, "data", "[full|stats]", "full",
     "keep the tensors, or only statistics of them"},
    {OPT_LEVEL, "level", "[aten|api|api,aten|module]", "aten",
     "record operators, the Python functions that call them "
     "(torch.nn.functional.linear), or both, operators below their function; module: "
     "operators, and what goes into and comes out of each module, forward and backward, "
     "which ulpscope diff --module compares"},
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
    {OPT_UNTIL, "until-differs", "OTHER", NULL,
     "record from step 0 on until something differs from the trace OTHER (of steps from "
     "0; statistics will do): statistics of each step, data of the first that differs; "
     "then the run goes on unrecorded"},
    {OPT_END_RUN, "end-run", NULL, NULL,
     "with --until-differs: end the run there as well"},
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
        "  ulpscope capture --ops 'softmax,*norm*' -- python -m mypackage.train\n"
        "  ulpscope capture --until-differs trace-old -o trace-new -- python train.py\n",
    .codes =
        "0 when the steps were recorded (see them with ulpscope show), 2 when not, 128 "
        "+ n when signal n ended it",
    .stops = true,
};

static bool take_steps(capture_options *o, const char *text)
{
    usc_error err;
    free(o->steps);
    o->steps = NULL;
    if (usc_steps_read(text, &o->steps, &o->n_steps, &err) != USC_OK)
        return cli_fail("--%s", err.text) == 0;
    o->step_list = text;
    o->n_steps = capture_join_steps(o->steps, o->n_steps);
    return true;
}

static bool check_ops(const char *text)
{
    usc_error err;
    return usc_pattern_check(text, &err) == USC_OK ||
           cli_fail("--ops: %s", err.text) == 0;
}

/* OTHER from its root, for the command may go elsewhere; it is a trace, or of ranks. */
static bool take_until(capture_options *o, const char *path)
{
    char real[PATH_MAX], file[PATH_MAX + 32];
    if (realpath(path, real) == NULL)
        return cli_fail("--until-differs %s: %s", path, strerror(errno)) == 0;
    (void)snprintf(file, sizeof file, "%s/trace.db", real);
    if (!usc_trace_is_database(file) && cli_next_rank(real, -1, "trace.db") < 0)
        return cli_fail(
                   "--until-differs %s: it is no trace (ulpscope capture --data stats "
                   "--steps 0-99 makes one)",
                   path) == 0;
    o->until = strdup(real);
    return o->until != NULL || cli_fail("out of memory") == 0;
}

static bool take(capture_options *o, int key)
{
    switch (key) {
    case OPT_STEPS:
        return take_steps(o, optarg);
    case OPT_DATA:
        o->data = optarg;
        return true;
    case OPT_LEVEL:
        o->level = optarg;
        return true;
    case OPT_OPS:
        o->ops = *optarg != '\0' ? optarg : NULL;
        return check_ops(optarg);
    case 'o':
        o->output = optarg;
        return true;
    case OPT_LIMIT:
        return cli_size("--limit", optarg, &o->limit);
    case OPT_FORCE:
        o->force = true;
        return true;
    case OPT_STEP_BY:
        o->step_by = optarg;
        return true;
    case OPT_NO_COMPILE:
        o->no_compile = true;
        return true;
    case OPT_KEEP_GOING:
        o->keep_going = true;
        return true;
    case OPT_UNTIL:
        return take_until(o, optarg);
    case OPT_END_RUN:
        o->end_run = true;
        return true;
    default:
        return false;
    }
}

/* What --until-differs leaves no choice of. */
static bool settle_until(capture_options *o)
{
    if (o->until == NULL && o->end_run)
        return cli_fail("--end-run is about --until-differs, which is not given") == 0;
    if (o->until == NULL) return true;
    if (o->chosen != NULL)
        return cli_fail(
                   "--until-differs records statistics of all steps from 0 on, and data "
                   "of the first that differs: leave out %s",
                   o->chosen) == 0;
    o->data = "stats";
    o->keep_going = !o->end_run;
    return take_steps(o, "0");
}

static bool parse(int argc, char **argv, capture_options *o)
{
    *o = (capture_options){.data = "full", .level = "aten", .output = "ulpscope-trace"};
    if (!take_steps(o, "1")) return false;
    for (int key; (key = cli_next(&cmd_capture_page, argc, argv)) != -1;) {
        if (key == OPT_STEPS || key == OPT_DATA || key == OPT_KEEP_GOING)
            o->chosen = key == OPT_STEPS  ? "--steps"
                        : key == OPT_DATA ? "--data"
                                          : "--keep-going, as it does";
        if (!take(o, key)) return false;
    }
    if (!settle_until(o)) return false;
    o->command = argv + optind;
    if (optind < argc) return true;
    return cli_fail("no command given; put it behind --, e.g. -- python train.py") == 0;
}

/* ---- before the command runs ---- */

/* What is to be recorded, for ulpscope.program.launched: values by their places, a zero
 * behind each. Not in the environment, of which one variable has room for 128 kB. */
static bool write_options(const capture_options *o, const char *reports,
                          const char *trace)
{
    char path[PATH_MAX + 16], limit[24];
    (void)snprintf(path, sizeof path, "%s/options", reports);
    (void)snprintf(limit, sizeof limit, "%lld", (long long)o->limit);
    const char *const values[] = {o->step_list,
                                  o->data,
                                  o->ops != NULL ? o->ops : "",
                                  limit,
                                  o->step_by != NULL ? o->step_by : "",
                                  o->keep_going ? "1" : "",
                                  o->level,
                                  trace,
                                  o->until != NULL ? o->until : ""};
    FILE *file = fopen(path, "w");
    bool ok = file != NULL;
    for (size_t i = 0; ok && i < sizeof values / sizeof values[0]; i++)
        ok = fputs(values[i], file) >= 0 && fputc('\0', file) == 0;
    if (file != NULL) ok &= fclose(file) == 0;
    return ok || cli_fail("%s: %s", path, strerror(errno)) == 0;
}

/* ---- the run ---- */

typedef struct run {
    const capture_options *options;
    char reports[PATH_MAX];
    bool said_rate;
} run;

/* Five times a second: whether every rank has recorded its steps. */
static bool is_over(void *ctx)
{
    run *r = ctx;
    usc_launch_reports now;
    if (usc_launch_reports_read(r->reports, &now, NULL) != USC_OK) return false;
    capture_say_rate(&now, &r->said_rate, stderr);
    const bool done = usc_launch_all_done(&now);
    usc_launch_reports_free(&now);
    return done && !r->options->keep_going;
}

/* Says in one piece what came of it: others write to stderr, too. */
static int conclude(capture_seen *seen)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (to == NULL) return cli_fail("out of memory");
    const int code = capture_conclude(seen, to);
    if (fclose(to) == 0) (void)fputs(text, stderr);
    free(text);
    return code;
}

static void say_next(const capture_options *o)
{
    if (o->until != NULL)
        cli_next_is("ulpscope diff %s %s", o->until, o->output);
    else if (strcmp(o->level, "module") == 0)
        cli_next_is("ulpscope diff --module OTHER %s, of another run", o->output);
    else if (strcmp(o->data, "stats") == 0)
        cli_next_is("ulpscope coverage %s --device DEVICE", o->output);
    else
        cli_next_is("ulpscope check %s --device DEVICE", o->output);
}

/* Runs the command into a folder that is taken. */
static int run_into(run *r, capture_folder *folder)
{
    capture_child child;
    const capture_options *o = r->options;
    capture_seen seen = {.options = o};
    around_tell_start(o->command,
                      o->until != NULL ? "until something differs from "
                      : strpbrk(o->step_list, "-,:") != NULL ? "to record steps "
                                                             : "to record step ",
                      o->until != NULL ? o->until : o->step_list);
    if (!write_options(r->options, r->reports, folder->real) ||
        !capture_child_start(&child, r->options->command)) {
        capture_folder_leave(folder);
        return CLI_TROUBLE;
    }
    seen.status = capture_child_wait(&child, is_over, r);
    seen.interrupted = child.interrupted;
    usc_error err = {0};
    const usc_status st = usc_launch_reports_read(r->reports, &seen.reports, &err);
    capture_say_rate(&seen.reports, &r->said_rate, stderr);
    seen.holds = capture_folder_settle(folder, &seen.reports);
    capture_folder_drop_empty(folder, &seen.reports);
    capture_folder_leave(folder);
    around_read(r->reports, &seen.around);
    const int code = st == USC_OK ? conclude(&seen) : cli_fail("%s", err.text);
    if (code == CLI_SAME) say_next(r->options);
    usc_launch_reports_free(&seen.reports);
    free(seen.around.not_started);
    return code;
}

static int interrupted(bool is_said)
{
    if (!is_said) (void)cli_fail("interrupted; nothing was recorded");
    return 128 + cli_stop_asked();
}

static int capture(const capture_options *o)
{
    static cli_python python;
    run r = {.options = o};
    capture_folder folder;
    usc_error err;
    if (!capture_can_run(o->command[0]) || !capture_folder_check(o->output, o->force))
        return CLI_TROUBLE;
    cli_stop_begin();
    if (!cli_python_find(&python, &err)) return cli_fail("%s", err.text);
    const int code = cli_stop_asked() == 0 ? around_build_glue(&python) : CLI_SAME;
    if (cli_stop_asked() != 0) return interrupted(code == CLI_INTERRUPTED);
    if (code != 0) return code;
    if (!around_make_reports(r.reports)) return CLI_TROUBLE;
    int end = CLI_TROUBLE;
    if (around_set_environment(&python, "ULPSCOPE_CAPTURE", r.reports) &&
        (!o->no_compile || setenv("TORCH_COMPILE_DISABLE", "1", 1) == 0) &&
        capture_folder_take(&folder, o->output, o->force))
        end = run_into(&r, &folder);
    if (end == CLI_SAME && cli_ops_unmatched(o->output, o->ops)) end = CLI_TROUBLE;
    capture_remove(r.reports);
    return end;
}

int cmd_capture(int argc, char **argv)
{
    capture_options o;
    cli_begin("capture");
    const int code = parse(argc, argv, &o) ? capture(&o) : CLI_TROUBLE;
    free(o.steps);
    free((void *)(uintptr_t)o.until);
    return code;
}
