// SPDX-License-Identifier: Apache-2.0
// ulpscope run: runs a command with modes around it that watch while it works.
//
// As in `ulpscope capture` the command is not changed: each Python process in it enters
// the modes where torch is imported (python/ulpscope/run_modes.py) and reports
// what they found through a file; that is said once, at the end (run_told.c).
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <ulpscope/result.h>
#include <ulpscope/x/pattern.h>
#include <ulpscope/x/watch.h>

#include "capture/capture.h"
#include "cli.h"
#include "common/stop.h"
#include "run/run.h"
#include "run/run_reroute.h"

enum {
    OPT_NAN = 256,
    OPT_CHECK,
    OPT_STEPS,
    OPT_OPS,
    OPT_STEP_BY,
    OPT_DISTINCT,
    OPT_EVERY,
    OPT_BUDGET,
    OPT_FORCE,
    OPT_KEEP,
    OPT_TRACE,
    OPT_WATCH,
    OPT_WATCH_LOG,
    OPT_TENSORBOARD,
    OPT_ALLOW
};
enum { OPT_FALLBACK = 300, OPT_CAST, OPT_SUBSTITUTE, OPT_CUDA_AS };

const run_mode run_modes[] = {
    {OPT_NAN, "nan", "birth of NaN or Inf", "births of NaN or Inf",
     "the last calls are in", "overflow", "call", "operator call"},
    {OPT_CHECK, "check", "accused call", "accused calls", "all verdicts are in", "report",
     "call", "operator call"},
    {OPT_WATCH, "watch", "alarm", "alarms", "what was watched is in", "watch",
     "optimizer step", "step of an optimizer"},
    {0},
};

static const cli_entry own_options[] = {
    {OPT_NAN, "nan", NULL, NULL,
     "say where NaN and Inf are born: forward, backward, optimizer"},
    {OPT_KEEP, "keep", "CALLS", NULL,
     "--nan: hold the last so many calls with their data, and write them as a trace "
     "where "
     "the first NaN or Inf is born or the command dies"},
    {OPT_TRACE, "trace", "TRACE", "ulpscope-nan",
     "--keep: folder of that trace; where it holds anything TRACE-2, and so on"},
    {OPT_CHECK, "check", NULL, NULL,
     "judge every call behind the step, as ulpscope check does, by what the run itself "
     "got"},
    {OPT_DISTINCT, "distinct", NULL, NULL,
     "--check: of each step one call of each operator, form and argument"},
    {OPT_EVERY, "every", "N", NULL, "--check: each N-th step"},
    {OPT_BUDGET, "budget", "SECONDS", NULL,
     "--check: seconds of judging, or below 1 the share of the time"},
    {'o', "out", "OUT", "ulpscope-out",
     "--check: folder of the results, for ulpscope report; those of an earlier run "
     "--check are replaced"},
    {OPT_FORCE, "force", NULL, NULL, "--check: replace results of any other kind, too"},
    {OPT_ALLOW, "allow", "unjudged[:PATTERN]", NULL,
     "--check: accept that nobody could judge these calls, which is exit code 2 else "
     "(what "
     "--budget leaves out is accepted). PATTERN: as in --ops"},
    {OPT_FALLBACK, "fallback", "PATTERN", NULL,
     "compute these operators on the CPU instead"},
    {OPT_CAST, "cast", "PATTERN=DTYPE", NULL, "compute them in another dtype"},
    {OPT_SUBSTITUTE, "substitute", "OP=MODULE:FUNCTION", NULL,
     "compute them by a Python function"},
    {OPT_CUDA_AS, "cuda-as", "[sim|musa|npu|xpu]", NULL,
     "give the command this device where it asks for cuda"},
    {OPT_WATCH, "watch", "=CONFIG", NULL,
     "watch a run of weeks for silent corruption; CONFIG: k:v,k:v, e.g. "
     "weights_every:1,matmul_every:100,audit:100,action:stop; without it what "
     "NPU_ASD_CONFIG says"},
    {OPT_WATCH_LOG, "watch-log", "FILE", NULL,
     "--watch: file for the numbers that were watched, for ulpscope watch"},
    {OPT_TENSORBOARD, "tensorboard", "DIR", NULL,
     "--watch, --check: write the numbers of each step there, for TensorBoard"},
    {OPT_STEPS, "steps", "LIST", NULL,
     "watch these steps alone, from 0, e.g. 2,5-8 (default: all)"},
    {OPT_OPS, "ops", "PATTERN", NULL,
     "only these operators: globs, comma-separated, ! excludes"},
    {OPT_STEP_BY, "step-by", "[optimizer|dataloader|manual]", NULL,
     "what ends a step (default: the optimizer, else the data loader; manual: the "
     "program calls ulpscope.step())"},
    {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_run_page = {
    .command = "run",
    .usage = "--nan|--check|--watch [OPTIONS] -- COMMAND [ARGS]...",
    .about =
        "Runs COMMAND unmodified (python train.py, python -m pkg, torchrun, a shell "
        "script) to its end and watches its operator calls meanwhile. What was found is "
        "said at the end, of all ranks. Should watching fail, the command goes on "
        "without.\n"
        "\n"
        "Of the environment: TORCH_MUSA_OP_DEBUG=1, with _LEVEL, _LENGTH, _LIST or "
        "_BLACK_LIST and _DIR, has each call written into _DIR/observed.jsonl.\n",
    .options = options,
    .examples =
        "  ulpscope run --nan -- python train.py --lr 3e-4\n"
        "  ulpscope run --nan --steps 100-200 -- torchrun --nproc-per-node 4 train.py\n"
        "  ulpscope run --nan --keep 1000 --trace last -- python train.py\n"
        "  ulpscope run --check --distinct -- python train.py\n"
        "  ulpscope run --check --every 100 -o out -- torchrun --nproc-per-node 4 "
        "train.py\n"
        "  ulpscope run --watch -- torchrun --nproc-per-node 4 train.py\n"
        "  ulpscope run --watch=matmul_every:100,action:stop -- python train.py\n"
        "  ulpscope run --fallback 'aten::mm' -- python train.py\n"
        "  ulpscope run --cuda-as sim -- python train.py\n"
        "  ulpscope run --nan --ops '*softmax*,mm' -- python -m mypackage.train\n",
    .codes =
        "0 nothing found, 1 found, 2 something went wrong, also where no call was seen "
        "that could be watched, or one could not be judged and is not allowed; where "
        "COMMAND failed its own, 128 + n when signal n "
        "ended "
        "it",
    .stops = true,
};

typedef struct run_options {
    const run_mode *mode[RUN_MAX_MODES];
    int n_modes;
    const char *steps, *ops, *step_by; /* NULL where not given */
    const char *distinct, *every, *budget, *out, *force, *keep, *trace, *allow;
    const char *watch, *watch_log, *tensorboard, *cuda_as;
    bool quiet;     /* what was found is not said */
    char **command; /* ends with NULL */
} run_options;

static bool check_steps(const char *text)
{
    usc_error err;
    usc_steps *steps = NULL;
    size_t n;
    const bool ok = usc_steps_read(text, &steps, &n, &err) == USC_OK;
    free(steps);
    return ok || cli_fail("--%s", err.text) == 0;
}

static bool check_ops(const char *text)
{
    usc_error err;
    return usc_pattern_check(text, &err) == USC_OK ||
           cli_fail("--ops: %s", err.text) == 0;
}

static bool check_every(const char *text)
{
    int64_t n;
    if (!cli_number("--every", text, &n)) return false;
    return n >= 1 || cli_fail("--every must be 1 or more") == 0;
}

static bool check_budget(const char *text)
{
    double seconds;
    if (cli_real(text, &seconds) && seconds > 0) return true;
    return cli_fail(
               "--budget: '%s' is no time; write 600 for ten minutes of judging, 0.2 "
               "for a fifth of the time",
               text) == 0;
}

static bool check_keep(const char *text)
{
    int64_t n;
    if (!cli_number("--keep", text, &n)) return false;
    return n >= 1 || cli_fail("--keep must be 1 or more") == 0;
}

/* CONFIG, or what stands for it: refused here, before the command is started. */
static bool check_watch(const char *text)
{
    const char *asd = getenv("NPU_ASD_CONFIG");
    const bool is_asd = text == NULL && asd != NULL && *asd != '\0';
    const char *mode = text != NULL ? strstr(text, "mode:asd") : NULL;
    usc_watch_config config;
    usc_error err;
    usc_watch_config_init(&config,
                          is_asd || mode != NULL ? USC_WATCH_ASD : USC_WATCH_SOUND);
    const char *given = is_asd ? asd : text != NULL ? text : "";
    if (usc_watch_config_parse(&config, given, &err) == USC_OK) return true;
    return cli_fail("%s: %s", is_asd ? "NPU_ASD_CONFIG" : "--watch", err.text) == 0;
}

static bool has_mode(const run_options *o, int key)
{
    for (int i = 0; i < o->n_modes; i++)
        if (o->mode[i]->key == key) return true;
    return false;
}

static bool fail_idle(const char *option, const char *with)
{
    return cli_fail("%s goes with %s; see ulpscope run --help", option, with) == 0;
}

/* Options of what is not asked for. */
static bool check_idle(const run_options *o)
{
    const struct {
        int of;
        const char *with, *value, *option;
    } options_of[] = {
        {OPT_CHECK, "--check", o->distinct, "--distinct"},
        {OPT_CHECK, "--check", o->every, "--every"},
        {OPT_CHECK, "--check", o->budget, "--budget"},
        {OPT_CHECK, "--check", o->out, "-o"},
        {OPT_CHECK, "--check", o->force, "--force"},
        {OPT_CHECK, "--check", o->allow, "--allow"},
        {OPT_NAN, "--nan", o->keep, "--keep"},
        {OPT_NAN, "--nan", o->trace, "--trace"},
        {OPT_WATCH, "--watch", o->watch_log, "--watch-log"},
    };
    for (size_t i = 0; i < sizeof options_of / sizeof options_of[0]; i++)
        if (options_of[i].value != NULL && !has_mode(o, options_of[i].of))
            return fail_idle(options_of[i].option, options_of[i].with);
    if (o->tensorboard != NULL && !has_mode(o, OPT_CHECK) && !has_mode(o, OPT_WATCH))
        return fail_idle("--tensorboard", "--watch or --check");
    return o->trace == NULL || o->keep != NULL || fail_idle("--trace", "--keep CALLS");
}

static void take_mode(run_options *o, int key)
{
    for (int i = 0; i < o->n_modes; i++)
        if (o->mode[i]->key == key) return;
    for (const run_mode *m = run_modes; m->key != 0; m++)
        if (m->key == key) o->mode[o->n_modes++] = m;
}

static bool take(run_options *o, int key)
{
    switch (key) {
    case OPT_FALLBACK:
        return run_reroute_take("fallback", optarg);
    case OPT_CAST:
        return run_reroute_take("cast", optarg);
    case OPT_SUBSTITUTE:
        return run_reroute_take("substitute", optarg);
    case OPT_STEPS:
        o->steps = optarg;
        return check_steps(optarg);
    case OPT_OPS:
        o->ops = *optarg != '\0' ? optarg : NULL;
        return check_ops(optarg);
    case OPT_STEP_BY:
        o->step_by = optarg;
        return true;
    case OPT_DISTINCT:
        o->distinct = "1";
        return true;
    case OPT_EVERY:
        o->every = optarg;
        return check_every(optarg);
    case OPT_BUDGET:
        o->budget = optarg;
        return check_budget(optarg);
    case OPT_FORCE:
        o->force = "1";
        return true;
    case OPT_ALLOW:
        return cli_allow_one("unjudged", optarg, &o->allow, NULL, NULL);
    case OPT_KEEP:
        o->keep = optarg;
        return check_keep(optarg);
    case OPT_TRACE:
        o->trace = optarg;
        return true;
    case OPT_WATCH:
        take_mode(o, key);
        o->watch = optarg;
        return check_watch(optarg);
    case OPT_CUDA_AS:
        o->cuda_as = optarg;
        return true;
    case OPT_TENSORBOARD:
        o->tensorboard = optarg;
        return cli_makeable("--tensorboard", optarg);
    case OPT_WATCH_LOG:
        o->watch_log = optarg;
        return cli_writable("--watch-log", optarg);
    case 'o':
        o->out = optarg;
        return true;
    case '?':
        return false;
    default:
        take_mode(o, key);
        return true;
    }
}

/* Whether torch_musa's variable asks for the calls in files: program/observing.py. */
static bool is_observed(void)
{
    static const char *const yes[] = {"1", "on", "true", "yes"};
    const char *given = getenv("TORCH_MUSA_OP_DEBUG");
    for (size_t i = 0; given != NULL && i < sizeof yes / sizeof yes[0]; i++)
        if (strcasecmp(given, yes[i]) == 0) return true;
    return false;
}

/* What a check of a trace took hours for is not replaced without a word. */
static bool may_write(const run_options *o)
{
    usc_error err;
    for (int i = 0; i < o->n_modes; i++) {
        const char *out = o->out != NULL ? o->out : "ulpscope-out";
        if (o->mode[i]->key != OPT_CHECK) continue;
        if (!cli_makeable("-o", out)) return false;
        if (o->force != NULL) continue;
        if (usc_result_claim(out, "live: ", &err) == USC_OK) continue;
        return cli_fail("%s; name another folder with -o, or --force to replace it",
                        err.text) == 0;
    }
    return true;
}

/* Who sets torch_npu's variable expects somebody to read it. */
static void tell_idle_asd(const run_options *o)
{
    const char *asd = getenv("NPU_ASD_CONFIG");
    if (asd != NULL && *asd != '\0' && !has_mode(o, OPT_WATCH))
        (void)fprintf(stderr, "ulpscope run: NPU_ASD_CONFIG is set, and nothing watches "
                              "by it: add --watch\n");
}

static bool parse(int argc, char **argv, run_options *o)
{
    *o = (run_options){0};
    for (int key; (key = cli_next(&cmd_run_page, argc, argv)) != -1;)
        if (!take(o, key)) return false;
    o->command = argv + optind;
    if (optind == argc)
        return cli_fail("no command given; put it behind --, e.g. -- python train.py") ==
               0;
    if (o->n_modes > 0 && !check_idle(o)) return false;
    tell_idle_asd(o);
    return o->n_modes > 0 || run_reroute_any() || is_observed() || o->cuda_as != NULL ||
           cli_fail("what is it to watch? ulpscope run --nan -- %s ...; see ulpscope run "
                    "--help",
                    o->command[0]) == 0;
}

/* What is to be watched, for ulpscope.run_modes: names and values in turn, a zero
 * behind each. */
static bool write_options(const run_options *o, const char *reports)
{
    char path[PATH_MAX + 16];
    (void)snprintf(path, sizeof path, "%s/options", reports);
    const char *const words[][2] = {{"steps", o->steps},
                                    {"ops", o->ops},
                                    {"step_by", o->step_by},
                                    {"distinct", o->distinct},
                                    {"every", o->every},
                                    {"budget", o->budget},
                                    {"allow", o->allow},
                                    {"out", o->out},
                                    {"keep", o->keep},
                                    {"trace", o->trace},
                                    {"force", o->force},
                                    {"watch", o->watch},
                                    {"watch_log", o->watch_log},
                                    {"cuda_as", o->cuda_as},
                                    {"tensorboard", o->tensorboard}};
    FILE *file = fopen(path, "w");
    bool ok = file != NULL;
    for (size_t i = 0; ok && i < sizeof words / sizeof words[0]; i++)
        if (words[i][1] != NULL)
            ok = fprintf(file, "%s%c%s%c", words[i][0], 0, words[i][1], 0) >= 0;
    for (int i = 0; ok && i < o->n_modes; i++)
        ok = fprintf(file, "mode%c%s%c", 0, o->mode[i]->name, 0) >= 0;
    if (file != NULL) ok &= fclose(file) == 0;
    return ok || cli_fail("%s: %s", path, strerror(errno)) == 0;
}

static bool never(void *ctx)
{
    (void)ctx;
    return false;
}

/* Says in one piece what came of it: others write to stderr, too. `quiet`: where it came
 * to nothing alone. */
static int conclude(const run_seen *seen, bool quiet)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (to == NULL) return cli_fail("out of memory");
    const int code = run_conclude(seen, to);
    const bool came = code == CLI_SAME || code == CLI_DIFFERS;
    if (fclose(to) == 0 && !(quiet && came)) (void)fputs(text, stderr);
    free(text);
    return code;
}

static int run_command(const run_options *o, const char *reports)
{
    capture_child child;
    run_seen seen = {.n_modes = o->n_modes,
                     .command = o->command,
                     .reports = reports,
                     .steps = o->steps,
                     .ops = o->ops};
    memcpy(seen.mode, o->mode, sizeof seen.mode);
    around_tell_start(o->command, "to its end", "");
    if (!capture_child_start(&child, o->command)) return CLI_TROUBLE;
    seen.status = capture_child_wait(&child, never, NULL);
    around_read(reports, &seen.around);
    const int code = conclude(&seen, o->quiet);
    if (code == CLI_DIFFERS && seen.status == 0 && has_mode(o, OPT_NAN) &&
        o->keep == NULL)
        cli_next_around("ulpscope run --nan --keep 1000 --", o->command,
                        " ; ulpscope overflow ulpscope-nan");
    free(seen.around.not_started);
    return code;
}

static int run(const run_options *o)
{
    static cli_python python;
    char reports[PATH_MAX];
    usc_error err;
    if (!capture_can_run(o->command[0])) return CLI_TROUBLE;
    cli_stop_begin();
    if (!cli_python_find(&python, &err)) return cli_fail("%s", err.text);
    const int code = cli_stop_asked() == 0 ? around_build_glue(&python) : CLI_SAME;
    if (cli_stop_asked() != 0) {
        if (code != CLI_INTERRUPTED) (void)cli_fail("interrupted; nothing was run");
        return 128 + cli_stop_asked();
    }
    if (code != 0) return code;
    if (!around_make_reports(reports)) return CLI_TROUBLE;
    int end = CLI_TROUBLE;
    if (write_options(o, reports) && run_reroute_set() &&
        around_set_environment(&python, "ULPSCOPE_RUN", reports))
        end = run_command(o, reports);
    capture_remove(reports);
    return end;
}

int run_watched(const char *config, const char *log, char **command)
{
    run_options o = {
        .watch = config, .watch_log = log, .command = command, .quiet = true};
    take_mode(&o, OPT_WATCH);
    return check_watch(config) ? run(&o) : CLI_TROUBLE;
}

int cmd_run(int argc, char **argv)
{
    run_options o;
    cli_begin("run");
    return parse(argc, argv, &o) && may_write(&o) ? run(&o) : CLI_TROUBLE;
}
