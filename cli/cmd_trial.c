// SPDX-License-Identifier: Apache-2.0
// ulpscope trial: whether all of this works on a device that nobody here has seen. Each
// row is a process of its own, of a command of this program or of
// python/ulpscope/device_trial.py: what crashes or hangs costs its row.
#include "cli.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ulpscope/version.h>

#include "common/cli_python.h"
#include "common/progress.h"
#include "common/scratch.h"
#include "common/stop.h"

enum { OPT_DEVICE = 256, OPT_TIME, OPT_ONLY, OPT_IMPORT, OPT_JSON, OPT_FORCE };

static const cli_entry own_options[] = {
    {OPT_DEVICE, "device", "DEVICE", NULL,
     "the device to try: cuda:0, npu:0, sim:0, cpu"},
    {'o', "out", "OUT", "ulpscope-trial", "folder of what the trial writes"},
    {OPT_TIME, "time", "TIME", "10m", "all of it ends within 90s, 10m or 1h"},
    {OPT_ONLY, "only", "ROWS", NULL,
     "only these rows, comma-separated: device,watch; and those whose files they read"},
    {OPT_IMPORT, "import", "MODULE", NULL,
     "import this module or FILE.py first: it registers the device; may be repeated"},
    {OPT_FORCE, "force", NULL, NULL, "begin anew, whatever OUT holds"},
    {OPT_JSON, "json", NULL, NULL, "one JSON object, and no table"},
    {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_trial_page = {
    .command = "trial",
    .usage = "--device DEVICE [OPTIONS]",
    .about =
        "For a new device, driver or torch: does every tool of this program work there? "
        "A small transformer trains on DEVICE; it is captured, replayed, judged while it "
        "trains, tracked for NaN, timed, watched, compared with the CPU, and random "
        "calls "
        "are drawn. A row each:\n works       it does what it is for\n"
        " works less  it does, but for what the row says\n"
        " does not    it fails, and how\n"
        " not tried   there is no second device, no time, or an earlier row failed\n"
        "That an operator of the device is wrong is no fault of a row: it tells how many "
        "were accused, and OUT/checked and OUT/fuzzed have them. OUT/trial.json and "
        "OUT/env.json hold no data of yours: they are what to send with a question.\n",
    .options = options,
    .examples = "  ulpscope trial --device cuda:0\n"
                "  ulpscope trial --device npu:0 --time 3m -o trial-npu\n"
                "  ulpscope trial --device xyz:0 --import ./xyz_torch.py --json\n",
    .codes = "0 nothing fails, 1 something does not work, 2 there is no such device",
};

typedef enum state { WORKS, LESS, DOES_NOT, NOT_TRIED } state;
static const char *const state_names[] = {"works", "works less", "does not", "not tried"};

enum { MOST_WORDS = 14, TEXT = 512, NAME = 32 };

/* A row: "@device", "@python", "@self" and "@time" stand for what they name; THING of
 * device_trial.py, or words of a command. */
typedef struct row {
    const char *name, *thing;
    const char *words[MOST_WORDS];
    const char *tells; /* stands in the line that says how it went; NULL: the last one */
    bool takes_imports;
    bool may_flag;  /* 1 is no failure */
    unsigned needs; /* bits of the rows whose files it reads */
    int limit_s;
} row;

enum { CAPTURED = 1, JUDGED = 2, ON_CPU = 4, FUZZ_S = 60 };

#define TRAIN "--", "@python", "-m", "ulpscope.device_trial", "train"
static const row rows[] = {
    {.name = "device", .thing = "able", .limit_s = 600},
    {.name = "capture",
     .words = {"capture", "--steps", "0", "-o", "trace", TRAIN, "@device"},
     .limit_s = 300},
    {.name = "replay and judge",
     .words = {"check", "trace", "--device", "@device", "-o", "checked"},
     .tells = " flagged",
     .takes_imports = true,
     .may_flag = true,
     .needs = 1u << CAPTURED,
     .limit_s = 300},
    {.name = "coverage",
     .words = {"coverage", "trace", "--device", "@device"},
     .tells = " natively",
     .takes_imports = true,
     .may_flag = true,
     .needs = 1u << CAPTURED,
     .limit_s = 120},
    {.name = "capture on the cpu",
     .words = {"capture", "--steps", "0", "-o", "trace-cpu", TRAIN, "cpu"},
     .limit_s = 120},
    {.name = "diff with the cpu",
     .words = {"diff", "trace-cpu", "trace"},
     .may_flag = true,
     .needs = 1u << CAPTURED | 1u << ON_CPU,
     .limit_s = 120},
    {.name = "judge a kernel", .thing = "kernel", .limit_s = 120},
    {.name = "live check", .thing = "live", .limit_s = 240},
    {.name = "nan tracker", .thing = "nan", .limit_s = 120},
    {.name = "time operators", .thing = "times", .limit_s = 120},
    {.name = "substitution", .thing = "swap", .limit_s = 120},
    {.name = "watch", .thing = "weeks", .limit_s = 120},
    {.name = "cost of capture", .thing = "cost", .limit_s = 120},
    {.name = "two devices", .thing = "ranks", .limit_s = 240},
    {.name = "random calls",
     .words = {"fuzz", "--device", "@device", "--time", "@time", "-o", "fuzzed",
               "--allow", "reduced:usual"},
     .tells = " flagged",
     .takes_imports = true,
     .may_flag = true,
     .limit_s = 400},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

typedef struct outcome {
    state state;
    double seconds;
    char text[TEXT];
} outcome;

typedef struct trial {
    const char *device, *imports[CLI_MAX_IMPORTS], *out;
    bool left_out[N_ROWS]; /* by --only */
    int n_imports;
    double time;
    bool json, force;
    char self[PATH_MAX], fuzz_time[16];
    cli_python python;
    outcome outcome[N_ROWS];
    bool no_device;
} trial;

/* ---- one row ---- */

/* A row's name as a word. */
static void name_of(const row *r, char out[NAME])
{
    (void)snprintf(out, NAME, "%s", r->name);
    for (char *c = out; *c != '\0'; c++)
        if (*c == ' ') *c = '-';
}

static const char *word_of(const trial *t, const char *word)
{
    if (strcmp(word, "@device") == 0) return t->device;
    if (strcmp(word, "@python") == 0) return t->python.program;
    if (strcmp(word, "@time") == 0) return t->fuzz_time;
    return word;
}

/* The words of a row's process; how many. */
static int words_of(const trial *t, const row *r, const char **words)
{
    int n = 0;
    if (r->thing != NULL) {
        const char *const first[] = {t->python.program, "-m", "ulpscope.device_trial",
                                     r->thing, t->device};
        for (size_t i = 0; i < sizeof first / sizeof first[0]; i++)
            words[n++] = first[i];
        for (int i = 0; i < t->n_imports; i++)
            words[n++] = t->imports[i];
        return n;
    }
    words[n++] = t->self;
    for (int i = 0; r->words[i] != NULL; i++)
        words[n++] = word_of(t, r->words[i]);
    for (int i = 0; i < t->n_imports && r->takes_imports; i++) {
        words[n++] = "--import";
        words[n++] = t->imports[i];
    }
    return n;
}

/* What a process of a row writes stands in OUT/NAME.out and OUT/NAME.err; by what it holds
 * as 3, cli_run sees how long it lives. */
static int run(const trial *t, const char *name, const char *const *words, int n,
               double limit_s)
{
    static const char script[] =
        "cd \"$1\" && n=$2 && shift 2 && exec \"$@\" 3>&1 >\"$n.out\" 2>\"$n.err\"";
    const char *const first[] = {"sh", "-c", script, "sh", t->out, name};
    enum { N_FIRST = sizeof first / sizeof first[0] };
    char **argv = calloc((size_t)n + N_FIRST + 1, sizeof *argv), unread[8];
    bool ok = argv != NULL;
    for (int i = 0; ok && i < n + N_FIRST; i++)
        ok = (argv[i] = strdup(i < N_FIRST ? first[i] : words[i - N_FIRST])) != NULL;
    const int code =
        ok ? cli_run(argv, (int)(limit_s * 1000), true, unread, sizeof unread) : -1;
    for (int i = 0; argv != NULL && i < n + N_FIRST; i++)
        free(argv[i]);
    free(argv);
    return code;
}

/* The last line of a file of a row that begins with `mark`, behind it, and has `tells` in
 * it (NULL: any that says something); false for none. */
static bool last_line(const trial *t, const char *name, const char *end, const char *mark,
                      const char *tells, char out[TEXT])
{
    char path[PATH_MAX + 64], line[4096];
    (void)snprintf(path, sizeof path, "%s/%s.%s", t->out, name, end);
    FILE *from = fopen(path, "r");
    out[0] = '\0';
    while (from != NULL && fgets(line, sizeof line, from) != NULL) {
        line[strcspn(line, "\r\n")] = '\0';
        const size_t skip = strlen(mark);
        if (strncmp(line, mark, skip) == 0 && line[skip] != '\0' &&
            (tells == NULL || strstr(line, tells) != NULL))
            (void)snprintf(out, TEXT, "%.*s", TEXT - 1, line + skip);
    }
    if (from != NULL) (void)fclose(from);
    return out[0] != '\0';
}

static void fail(const trial *t, const char *name, int code, double limit_s, outcome *o)
{
    char said[TEXT];
    o->state = DOES_NOT;
    if (code == -2)
        (void)snprintf(o->text, TEXT, "no end within %.0f s", limit_s);
    else if (code > 128)
        (void)snprintf(o->text, TEXT, "it died of signal %d (%s)", code - 128,
                       strsignal(code - 128));
    else if (last_line(t, name, "err", "", NULL, said) ||
             last_line(t, name, "out", "", NULL, said))
        (void)snprintf(o->text, TEXT, "%s", said);
    else
        (void)snprintf(o->text, TEXT, "exit code %d, without a word", code);
}

/* A thing of device_trial.py says its own state: "STATE<tab>SENTENCE". */
static void take_thing(trial *t, const char *name, int code, double limit_s, outcome *o)
{
    char said[TEXT];
    if (code != 0 || !last_line(t, name, "out", "ulpscope trial: ", NULL, said)) {
        fail(t, name, code, limit_s, o);
        return;
    }
    char *tab = strchr(said, '\t');
    if (tab == NULL) tab = said + strlen(said);
    if (*tab == '\t') *tab++ = '\0';
    (void)snprintf(o->text, TEXT, "%s", tab);
    t->no_device |= strcmp(said, "no device") == 0;
    o->state = DOES_NOT;
    for (int i = 0; i <= NOT_TRIED; i++)
        if (strcmp(said, state_names[i]) == 0) o->state = (state)i;
}

/* Whether a command answers that it could not judge, or compare, all: its last line. */
static bool is_not_told(const trial *t, const char *name, int code)
{
    char said[TEXT];
    return code == CLI_TROUBLE &&
           (last_line(t, name, "out", "", "hence exit code 2", said) ||
            last_line(t, name, "out", "not told: ", NULL, said));
}

static void take_command(const trial *t, const row *r, const char *name, int code,
                         double limit_s, outcome *o)
{
    const bool less = is_not_told(t, name, code);
    if (code != 0 && !(code == 1 && r->may_flag) && !less) {
        fail(t, name, code, limit_s, o);
        return;
    }
    o->state = less ? LESS : WORKS;
    if (!last_line(t, name, "out", "", r->tells, o->text))
        (void)last_line(t, name, "err", "", NULL, o->text);
    static const char own[] = "ulpscope: ";
    if (strncmp(o->text, own, sizeof own - 1) == 0)
        memmove(o->text, o->text + sizeof own - 1, strlen(o->text + sizeof own - 1) + 1);
}

static void try_row(trial *t, int k, double left_s)
{
    const row *r = &rows[k];
    outcome *o = &t->outcome[k];
    if (t->no_device || left_s < 5) {
        *o = (outcome){.state = NOT_TRIED};
        (void)snprintf(o->text, TEXT, "%s", "no time was left (--time)");
        return;
    }
    for (int i = 0; i < k; i++) {
        if ((r->needs >> i & 1u) == 0 || t->outcome[i].state < DOES_NOT) continue;
        o->state = NOT_TRIED;
        (void)snprintf(o->text, TEXT, "it needs what '%s' leaves", rows[i].name);
        return;
    }
    const double limit_s = r->limit_s < left_s ? r->limit_s : left_s;
    char name[NAME];
    name_of(r, name);
    (void)snprintf(t->fuzz_time, sizeof t->fuzz_time, "%.0f",
                   FUZZ_S < limit_s / 2 ? FUZZ_S : limit_s / 2);
    const char *words[MOST_WORDS + 2 * CLI_MAX_IMPORTS + 8];
    const int n = words_of(t, r, words);
    const double began = cli_now();
    (void)fprintf(stderr, "ulpscope trial: %d of %d, %s\n", k + 1, N_ROWS, r->name);
    const int code = run(t, name, words, n, limit_s);
    o->seconds = cli_now() - began;
    if (r->thing != NULL)
        take_thing(t, name, code, limit_s, o);
    else
        take_command(t, r, name, code, limit_s, o);
}

/* ---- telling ---- */

static void put_json(const trial *t, FILE *to)
{
    (void)fputs("{\"version\": 1, \"device\": ", to);
    cli_put_text(to, t->device);
    (void)fputs(", \"ulpscope\": ", to);
    cli_put_text(to, usc_version());
    (void)fputs(", \"rows\": [", to);
    const char *comma = "";
    for (int i = 0; i < N_ROWS; i++) {
        if (t->left_out[i]) continue;
        (void)fprintf(to, "%s\n  {\"row\": ", comma);
        comma = ",";
        cli_put_text(to, rows[i].name);
        (void)fprintf(to, ", \"state\": \"%s\", \"seconds\": %.1f, \"text\": ",
                      state_names[t->outcome[i].state], t->outcome[i].seconds);
        cli_put_text(to, t->outcome[i].text);
        (void)fputc('}', to);
    }
    (void)fputs("\n]}\n", to);
}

static bool write_json(const trial *t)
{
    char path[PATH_MAX + 32];
    (void)snprintf(path, sizeof path, "%s/trial.json", t->out);
    FILE *to = fopen(path, "w");
    if (to == NULL) return cli_fail("%s: %s", path, strerror(errno)) == 0;
    put_json(t, to);
    const bool bad = ferror(to) != 0;
    if (fclose(to) != 0 || bad) return cli_fail("%s: %s", path, strerror(errno)) == 0;
    return true;
}

static void tell_row(const trial *t, int k)
{
    const outcome *o = &t->outcome[k];
    (void)printf("%-10s  %-18s  %s", state_names[o->state], rows[k].name, o->text);
    if (o->state != NOT_TRIED) (void)printf(" (%.0f s)", o->seconds);
    (void)putchar('\n');
    (void)fflush(stdout);
}

static void tell_end(const trial *t, const int n[])
{
    (void)printf("\non %s: %d work, %d work less, %d do not, %d not tried\n", t->device,
                 n[WORKS], n[LESS], n[DOES_NOT], n[NOT_TRIED]);
    (void)printf("files       %s/trial.json, %s/env.json (what to send with a question), "
                 "and what each row wrote\n",
                 t->out, t->out);
    if (!t->left_out[JUDGED])
        (void)printf("next        ulpscope report %s/checked\n", t->out);
}

/* ---- the command ---- */

static bool begin_out(const trial *t)
{
    char path[PATH_MAX + 32];
    (void)snprintf(path, sizeof path, "%s/trial.json", t->out);
    if (access(path, F_OK) == 0 || t->force) cli_scratch_remove(t->out);
    if (mkdir(t->out, 0777) == 0) return true;
    if (errno == EEXIST)
        return cli_fail("'%s' is there and holds no trial; give another folder with -o, "
                        "or --force to remove it",
                        t->out) == 0;
    return cli_fail("%s: %s", t->out, strerror(errno)) == 0;
}

static int try_all(trial *t)
{
    const double end = cli_now() + t->time;
    int n[NOT_TRIED + 1] = {0};
    cli_stop_begin();
    for (int i = 0; i < N_ROWS && cli_stop_asked() == 0 && !t->no_device; i++) {
        if (t->left_out[i]) continue;
        try_row(t, i, end - cli_now());
        if (cli_stop_asked() != 0) break;
        n[t->outcome[i].state]++;
        if (!t->json && !t->no_device) tell_row(t, i);
    }
    if (cli_stop_asked() != 0) {
        (void)fputs("ulpscope trial: interrupted\n", stderr);
        return CLI_INTERRUPTED;
    }
    if (t->no_device) return cli_fail("%s", t->outcome[0].text);
    const char *env[] = {t->self, "env", "-o", "env.json", "--json"};
    (void)run(t, "env", env, (int)(sizeof env / sizeof env[0]), 120);
    if (!write_json(t)) return CLI_TROUBLE;
    if (t->json)
        put_json(t, stdout);
    else
        tell_end(t, n);
    return cli_close_output(n[DOES_NOT] > 0 ? CLI_DIFFERS : CLI_SAME);
}

/* A file stays the same one for what runs in OUT; freed by nobody, as argv is. */
static void make_absolute(const char **name)
{
    char *path = access(*name, R_OK) == 0 ? realpath(*name, NULL) : NULL;
    if (path != NULL) *name = path;
}

/* Leaves out the rows that a list does not name; false after a sentence. */
static bool take_only(trial *t, const char *list)
{
    for (int i = 0; i < N_ROWS; i++)
        t->left_out[i] = true;
    for (const char *at = list; *at != '\0';) {
        const size_t n = strcspn(at, ",");
        bool found = false;
        for (int i = 0; i < N_ROWS; i++) {
            char name[NAME];
            name_of(&rows[i], name);
            if (strlen(name) != n || strncmp(name, at, n) != 0) continue;
            t->left_out[i] = false;
            found = true;
        }
        if (!found) {
            cli_fail("--only: there is no row '%.*s'; there are:", (int)n, at);
            for (int i = 0; i < N_ROWS; i++) {
                char name[NAME];
                name_of(&rows[i], name);
                (void)fprintf(stderr, " %s", name);
            }
            (void)fputc('\n', stderr);
            return false;
        }
        at += n + (at[n] == ',');
    }
    for (int i = 0; i < N_ROWS * N_ROWS; i++)
        if (!t->left_out[i / N_ROWS] && (rows[i / N_ROWS].needs >> i % N_ROWS & 1u) != 0)
            t->left_out[i % N_ROWS] = false;
    return true;
}

static bool take(trial *t, int key)
{
    switch (key) {
    case OPT_DEVICE:
        t->device = optarg;
        return true;
    case 'o':
        t->out = optarg;
        return true;
    case OPT_TIME:
        return cli_time("--time", optarg, &t->time);
    case OPT_ONLY:
        return take_only(t, optarg);
    case OPT_IMPORT:
        if (!cli_import(t->imports, &t->n_imports)) return false;
        make_absolute(&t->imports[t->n_imports - 1]);
        return true;
    case OPT_FORCE:
        return t->force = true;
    case OPT_JSON:
        return t->json = true;
    default:
        return false;
    }
}

int cmd_trial(int argc, char **argv)
{
    enum { TEN_MINUTES = 600 };
    cli_begin("trial");
    static trial t;
    t = (trial){.out = "ulpscope-trial", .time = TEN_MINUTES};
    for (int key; (key = cli_next(&cmd_trial_page, argc, argv)) != -1;)
        if (!take(&t, key)) return CLI_TROUBLE;
    if (optind != argc)
        return cli_fail("trial takes no argument '%s'; name a device with --device",
                        argv[optind]);
    if (setenv("ULPSCOPE_CONFIG", "off", 1) != 0) /* its commands are all that it types */
        return cli_fail("no memory");
    if (t.device == NULL || t.device[0] == '\0')
        return cli_fail("no device; for example: ulpscope trial --device cuda:0");
    usc_error err;
    if (!cli_own_program(t.self, sizeof t.self))
        return cli_fail("/proc/self/exe: %s", strerror(errno));
    if (!cli_python_find(&t.python, &err)) return cli_fail("%s", err.text);
    if (!begin_out(&t)) return CLI_TROUBLE;
    return try_all(&t);
}
