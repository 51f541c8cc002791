// SPDX-License-Identifier: Apache-2.0
// ulpscope bisect: which operators make the loss differ, by trials of the program in
// which some of them are computed another way. In parts: bisect.h.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <ulpscope/x/pattern.h>

#include "bisect/bisect.h"
#include "capture/capture.h"
#include "common/around.h"
#include "common/cli_python.h"
#include "common/scratch.h"
#include "common/stop.h"

enum {
    OPT_REFERENCE = 256,
    OPT_GOOD,
    OPT_LOSS,
    OPT_KEY,
    OPT_CURVE,
    OPT_NOISE,
    OPT_TO,
    OPT_SUBSTITUTE,
    OPT_OPS,
    OPT_SEED,
    OPT_DETERMINISTIC,
    OPT_LIMIT,
    OPT_WITHIN,
    OPT_TOLERANCE,
    OPT_JSON,
    OPT_FORCE
};

static const cli_entry own_options[] = {
    {OPT_REFERENCE, "reference", "FILE", NULL,
     "the loss curve that is right, in any form that ulpscope loss reads (default: the "
     "program run with all operators on the CPU)"},
    {OPT_GOOD, "good", "COMMAND", NULL,
     "a shell command that gives it, e.g. the same program with --device cpu"},
    {OPT_LOSS, "loss", "REGEX", NULL,
     "how the program prints the loss, as --regex of ulpscope loss"},
    {OPT_KEY, "key", "NAME", NULL, "what the loss is called, as --key of ulpscope loss"},
    {OPT_CURVE, "curve", "FILE", NULL,
     "the loss is not in what it prints but in this file of the folder that {trial} in "
     "COMMAND stands for"},
    {OPT_NOISE, "noise", "FILE", NULL,
     "a run like the reference with another seed: a loss is right within such noise; may "
     "be repeated"},
    {OPT_TO, "to", "[cpu|float32|float64]", "cpu", "where operators are moved to"},
    {OPT_SUBSTITUTE, "substitute", "OP=MODULE:FUNCTION", NULL,
     "compute OP by this function instead; may be repeated"},
    {OPT_OPS, "ops", "PATTERN", NULL, "only these operators are suspects"},
    {OPT_SEED, "seed", "N", NULL,
     "seed torch, NumPy and random in each trial, before the program begins"},
    {OPT_DETERMINISTIC, "deterministic", NULL, NULL,
     "deterministic algorithms of torch in each trial"},
    {OPT_WITHIN, "within", "X", "0.05",
     "a loss is right with this share of the difference left; what is left is looked "
     "into "
     "next"},
    {OPT_TOLERANCE, "tolerance", "X", "0.00005",
     "relative differences of the loss below X are none"},
    {OPT_LIMIT, "time-limit", "SECONDS", NULL, "a trial that takes longer is ended"},
    {'j', "jobs", "N", "1", "trials at a time"},
    {'o', "out", "OUT", "ulpscope-bisect", "folder of the trials"},
    {OPT_FORCE, "force", NULL, NULL, "begin anew, whatever trials the folder holds"},
    {OPT_JSON, "json", NULL, NULL, "one JSON object"},
    {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_bisect_page = {
    .command = "bisect",
    .usage = "[OPTIONS] -- COMMAND [ARGS]...",
    .about =
        "Finds the operators that make the loss of COMMAND differ from what it should "
        "be: "
        "runs it again and again with some of its operators computed on the CPU (or in "
        "float32, or by a function of yours), and names the fewest that bring the loss "
        "right. Forward, backward, optimizer and custom operators alike. COMMAND must do "
        "the "
        "same in each trial: the same data and seeds, and few steps.\n"
        "\n"
        "Each trial leaves its output and how it ended in OUT; the same command goes on "
        "where "
        "an earlier one was interrupted.\n",
    .options = options,
    .examples =
        "  ulpscope bisect -- python train.py --device npu --steps 40\n"
        "  ulpscope bisect --reference gpu.log -j 4 -- python train.py --steps 40\n"
        "  ulpscope bisect --curve loss.csv -- python train.py --log {trial}/loss.csv\n"
        "  ulpscope bisect --substitute npu::npu_rms_norm=ref:rms_norm -- python "
        "train.py\n",
    .codes = "0 no difference, 1 found, 2 not found or something went wrong, 130 "
             "interrupted",
    .stops = true,
};

static bool take_substitute(bisect_options *o)
{
    char *equals = strchr(optarg, '=');
    if (equals == NULL || equals == optarg || strchr(equals, ':') == NULL)
        return cli_fail("--substitute '%s': OP=MODULE:FUNCTION is needed", optarg) == 0;
    if (o->n_substitutes == BISECT_MOST_SUBSTITUTES)
        return cli_fail("more than %d --substitute", BISECT_MOST_SUBSTITUTES) == 0;
    *equals = '\0';
    o->substitutes[o->n_substitutes++] = (bisect_substitute){optarg, equals + 1};
    return true;
}

static bool take_share(const char *name, double *out)
{
    if (cli_real(optarg, out) && *out > 0 && *out < 1) return true;
    return cli_fail("--%s '%s': a number between 0 and 1 is needed", name, optarg) == 0;
}

static bool take_ops(bisect_options *o)
{
    usc_error err;
    o->ops = *optarg != '\0' ? optarg : NULL;
    return usc_pattern_check(optarg, &err) == USC_OK ||
           cli_fail("--ops: %s", err.text) == 0;
}

static bool take_noise(bisect_options *o)
{
    if (o->n_noise == BISECT_MOST_NOISE)
        return cli_fail("more than %d --noise", BISECT_MOST_NOISE) == 0;
    o->noise[o->n_noise++] = optarg;
    return true;
}

static bool take_jobs(bisect_options *o)
{
    if (!cli_jobs(&o->jobs)) return false;
    if (o->jobs >= 1 && o->jobs <= BISECT_MOST_JOBS) return true;
    return cli_fail("-j %d: 1 to %d", o->jobs, BISECT_MOST_JOBS) == 0;
}

static bool take(bisect_options *o, int key)
{
    switch (key) {
    case OPT_REFERENCE:
        o->reference = optarg;
        return true;
    case OPT_GOOD:
        o->good = optarg;
        return true;
    case OPT_LOSS:
        o->read.regex = optarg;
        return true;
    case OPT_KEY:
        o->read.key = optarg;
        return true;
    case OPT_CURVE:
        o->curve = optarg;
        return true;
    case OPT_NOISE:
        return take_noise(o);
    case OPT_TO:
        o->to = optarg;
        return true;
    case OPT_SUBSTITUTE:
        return take_substitute(o);
    case OPT_OPS:
        return take_ops(o);
    case OPT_SEED:
        return cli_number("--seed", optarg, &o->seed);
    case OPT_DETERMINISTIC:
        return o->deterministic = true;
    case OPT_WITHIN:
        return take_share("within", &o->within);
    case OPT_TOLERANCE:
        return take_share("tolerance", &o->tolerance);
    case OPT_LIMIT:
        return cli_number("--time-limit", optarg, &o->limit_s);
    case 'j':
        return take_jobs(o);
    case 'o':
        o->out = optarg;
        return true;
    case OPT_FORCE:
        return o->force = true;
    case OPT_JSON:
        return o->json = true;
    default:
        return false;
    }
}

static bool parse(int argc, char **argv, bisect_options *o)
{
    *o = (bisect_options){.out = "ulpscope-bisect",
                          .to = "cpu",
                          .seed = -1,
                          .limit_s = -1,
                          .jobs = 1,
                          .within = 0.05,
                          .tolerance = 5e-5};
    for (int key; (key = cli_next(&cmd_bisect_page, argc, argv)) != -1;)
        if (!take(o, key)) return false;
    o->command = argv + optind;
    const char *why = NULL;
    if (optind == argc)
        why = "no command given; put it behind --, e.g. -- python train.py";
    else if (o->reference != NULL && o->good != NULL)
        why = "--reference and --good say two things: leave out one";
    else if (o->read.key != NULL && o->read.regex != NULL)
        why = "--key and --loss say two things: leave out one";
    return why == NULL || cli_fail("%s", why) == 0;
}

/* ---- the folder ---- */

/* What makes a search another one: a line for each decisive word. */
static char *identity_of(const bisect_options *o)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (to == NULL) return NULL;
    (void)fprintf(to, "to %s\nops %s\nseed %lld\ndeterministic %d\ngood %s\n", o->to,
                  o->ops != NULL ? o->ops : "*", (long long)o->seed, o->deterministic,
                  o->good != NULL ? o->good : "");
    for (int i = 0; i < o->n_substitutes; i++)
        (void)fprintf(to, "substitute %s=%s\n", o->substitutes[i].op,
                      o->substitutes[i].function);
    for (char **word = o->command; *word != NULL; word++)
        (void)fprintf(to, "word %s\n", *word);
    return fclose(to) == 0 ? text : NULL;
}

static bool write_identity(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    bool ok = file != NULL && fputs(text, file) >= 0;
    if (file != NULL) ok &= fclose(file) == 0;
    return ok || cli_fail("%s: %s", path, strerror(errno)) == 0;
}

/* Makes OUT, or goes on in it. */
static bool take_folder(bisect_options *o)
{
    static char real[PATH_MAX];
    char path[PATH_MAX + 16], *before = NULL;
    size_t size = 0;
    if (mkdir(o->out, 0777) != 0 && errno != EEXIST)
        return cli_fail("%s: %s", o->out, strerror(errno)) == 0;
    if (realpath(o->out, real) == NULL)
        return cli_fail("%s: %s", o->out, strerror(errno)) == 0;
    (void)snprintf(path, sizeof path, "%s/search", real);
    char *now = identity_of(o);
    if (now == NULL) return cli_fail("out of memory") == 0;
    FILE *file = fopen(path, "r");
    bool same = !o->force && file != NULL && getdelim(&before, &size, '\0', file) >= 0 &&
                strcmp(before, now) == 0;
    bool ok = true;
    if (file != NULL && !same && !o->force)
        ok = cli_fail(
                 "%s holds the trials of another search; name another folder with -o, "
                 "or give --force to replace them",
                 o->out) == 0;
    if (ok && file != NULL && !same) {
        cli_scratch_remove(real);
        ok = mkdir(real, 0777) == 0 || cli_fail("%s: %s", real, strerror(errno)) == 0;
    }
    if (ok && !same) ok = write_identity(path, now);
    if (file != NULL) (void)fclose(file);
    free(before);
    free(now);
    o->out = real;
    return ok;
}

/* ---- the reference, and what there is to find ---- */

static double mean_magnitude(const usc_curve *c)
{
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++) {
        if (!isfinite(c->values[i])) continue;
        sum += fabs(c->values[i]);
        n++;
    }
    return n > 0 ? sum / (double)n : 0;
}

static bool read_files(bisect_run *r)
{
    const bisect_options *o = r->options;
    usc_error err;
    if (o->reference != NULL &&
        usc_curve_read(o->reference, &o->read, &r->reference, &err) != USC_OK)
        return cli_fail("%s", err.text) == 0;
    for (int i = 0; i < o->n_noise; i++)
        if (usc_curve_read(o->noise[i], &o->read, &r->noise[i], &err) != USC_OK)
            return cli_fail("%s", err.text) == 0;
    return true;
}

/* A trial without which there is nothing to compare; false after a sentence. */
static bool run_needed(bisect_run *r, bisect_kind kind, bisect_trial *t)
{
    *t = (bisect_trial){.kind = kind};
    if (!bisect_run_trials(r, t, 1)) return false;
    bisect_say_trial(r, t, 0);
    return t->why[0] == '\0' ||
           cli_fail("that trial is needed: without it nothing can be told; see %s/output",
                    t->folder) == 0;
}

/* Runs what the reference and the operators are taken from. With --reference or --good,
 * or where operators move elsewhere than to the CPU, that is one more trial. */
static bool find_reference(bisect_run *r)
{
    const bisect_options *o = r->options;
    const bool plain_cpu =
        strcmp(o->to, "cpu") == 0 && o->ops == NULL && o->n_substitutes == 0;
    bisect_trial t = {0};
    bool ok = true;
    if (r->reference == NULL) {
        ok = run_needed(r, o->good != NULL ? BISECT_GOOD : BISECT_CPU, &t);
        r->reference = t.curve;
        t.curve = NULL;
        if (ok && o->good == NULL && plain_cpu) ok = bisect_take_operators(r, &t);
        bisect_trial_free(&t);
    }
    if (ok) r->level = mean_magnitude(r->reference);
    r->limit = o->tolerance * r->level;
    if (ok && r->n_operators == 0) {
        ok = run_needed(r, BISECT_ALL, &t);
        r->best = t.distance;
        ok = ok && bisect_take_operators(r, &t);
        bisect_trial_free(&t);
    }
    return ok;
}

/* 0: there is a difference, and moving all mends it; else the exit code. */
static int find_difference(bisect_run *r)
{
    bisect_trial t = {.kind = BISECT_SOME};
    t.moved = calloc((size_t)r->n_operators, sizeof *t.moved);
    if (t.moved == NULL) return cli_fail("out of memory");
    const bool ran = bisect_run_trials(r, &t, 1);
    if (ran) bisect_say_trial(r, &t, 0);
    r->plain = t.distance;
    const bool good = t.good;
    bisect_trial_free(&t);
    if (!ran) return CLI_TROUBLE;
    if (good) {
        (void)bisect_say_same(r);
        return CLI_DIFFERS;
    }
    if (r->best > r->limit && !(r->best < r->plain / 2))
        return cli_fail(
            "the loss does not come right: %.3g %% off as it is, %.3g %% with all "
            "operators %s; what differs is something else, such as data, random "
            "numbers or what runs outside of operators",
            100 * r->plain / r->level, 100 * r->best / r->level,
            bisect_place(r->options));
    if (isfinite(r->plain))
        r->limit = fmax(r->limit, r->best + r->options->within * (r->plain - r->best));
    else
        r->limit = fmax(r->limit, 2 * r->best);
    return 0;
}

static int search(bisect_run *r)
{
    if (!read_files(r) || !find_reference(r)) return CLI_TROUBLE;
    const int code = find_difference(r);
    if (code == CLI_DIFFERS) return CLI_SAME;
    if (code != 0) return code;
    const int found = bisect_search(r);
    return found == CLI_SAME ? bisect_say_found(r) : found;
}

static void free_run(bisect_run *r)
{
    for (int i = 0; i < r->n_operators; i++)
        free(r->operators[i].name);
    free(r->operators);
    free(r->guilty);
    free(r->without);
    free(r->bootstrap);
    usc_curve_free(r->reference);
    for (int i = 0; i < BISECT_MOST_NOISE; i++)
        usc_curve_free(r->noise[i]);
}

static int bisect(bisect_options *o)
{
    static cli_python python;
    bisect_run r = {.options = o};
    usc_error err;
    if (!capture_can_run(o->command[0]) || !take_folder(o)) return CLI_TROUBLE;
    cli_stop_begin();
    if (!cli_python_find(&python, &err)) return cli_fail("%s", err.text);
    int code = cli_stop_asked() == 0 ? around_build_glue(&python) : CLI_SAME;
    if (code == 0 && asprintf(&r.bootstrap, "%s/_bootstrap", python.package) < 0)
        code = cli_fail("out of memory");
    if (code == 0) code = search(&r);
    free_run(&r);
    return cli_stop_asked() != 0 ? 128 + cli_stop_asked() : code;
}

int cmd_bisect(int argc, char **argv)
{
    bisect_options o;
    cli_begin("bisect");
    return parse(argc, argv, &o) ? bisect(&o) : CLI_TROUBLE;
}
