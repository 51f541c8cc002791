// SPDX-License-Identifier: Apache-2.0
// Trials of `ulpscope bisect`: a process each, told by ULPSCOPE_REROUTE which operators
// to compute another way (python/ulpscope/program/trial.py). A trial has a folder in OUT,
// named for what it moves: `reroute`, `output`, and once it ended `outcome`, which stands
// whole or not at all. So the same command goes on where an earlier one was killed.
#include "bisect/bisect.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/progress.h"
#include "common/stop.h"

enum { LOOK_NS = 20000000, GRACE_S = 5 };

/* ---- what a trial is ---- */

static const char *function_of(const bisect_options *o, const char *op)
{
    for (int i = 0; i < o->n_substitutes; i++)
        if (strcmp(o->substitutes[i].op, op) == 0) return o->substitutes[i].function;
    return NULL;
}

static void put_moved(FILE *to, const bisect_options *o, const char *ops)
{
    const bool cpu = strcmp(o->to, "cpu") == 0;
    (void)fprintf(to, "{\"do\": \"%s\"", cpu ? "fallback" : "cast");
    cli_put_member(to, "ops", ops);
    if (!cpu) cli_put_member(to, "dtype", o->to);
    (void)fputc('}', to);
}

static void put_substitute(FILE *to, const char *op, const char *function)
{
    (void)fputs("{\"do\": \"substitute\"", to);
    cli_put_member(to, "ops", op);
    cli_put_member(to, "with", function);
    (void)fputc('}', to);
}

/* The rows of a set: one for all that are moved alike, one for each that is substituted,
 * which stand behind it: the last one that matches counts. */
static void put_some(FILE *to, const bisect_run *r, const bool *moved)
{
    char *ops = NULL;
    size_t size = 0;
    int n = 0, n_rows = 0;
    FILE *names = open_memstream(&ops, &size);
    for (int i = 0; names != NULL && i < r->n_operators; i++)
        if (moved[i] && function_of(r->options, r->operators[i].name) == NULL)
            (void)fprintf(names, "%s%s", n++ > 0 ? "," : "", r->operators[i].name);
    if (names != NULL) (void)fclose(names);
    if (n > 0) put_moved(to, r->options, ops);
    n_rows += n > 0;
    free(ops);
    for (int i = 0; i < r->n_operators; i++) {
        const char *function = function_of(r->options, r->operators[i].name);
        if (!moved[i] || function == NULL) continue;
        if (n_rows++ > 0) (void)fputs(", ", to);
        put_substitute(to, r->operators[i].name, function);
    }
}

static void put_all(FILE *to, const bisect_options *o)
{
    put_moved(to, o, o->ops != NULL ? o->ops : "*");
    for (int i = 0; i < o->n_substitutes; i++) {
        (void)fputs(", ", to);
        put_substitute(to, o->substitutes[i].op, o->substitutes[i].function);
    }
}

/* The value of ULPSCOPE_REROUTE; the caller's. */
static char *reroute_of(const bisect_run *r, const bisect_trial *t)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (to == NULL) return NULL;
    (void)fputc('[', to);
    if (t->kind == BISECT_SOME) put_some(to, r, t->moved);
    if (t->kind == BISECT_ALL) put_all(to, r->options);
    if (t->kind == BISECT_CPU) (void)fputs("{\"do\": \"fallback\", \"ops\": \"*\"}", to);
    (void)fputc(']', to);
    if (fclose(to) == 0) return text;
    free(text);
    return NULL;
}

/* FNV-1a: names of folders, not secrets. */
static unsigned long long hash_of(const char *text)
{
    unsigned long long hash = 0xcbf29ce484222325;
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3;
    return hash;
}

static void place(const bisect_run *r, bisect_trial *t, const char *reroute)
{
    if (t->kind == BISECT_GOOD)
        (void)snprintf(t->folder, sizeof t->folder, "%s/good", r->options->out);
    else
        (void)snprintf(t->folder, sizeof t->folder, "%s/trial-%016llx", r->options->out,
                       hash_of(reroute));
}

/* ---- files ---- */

static void file_of(const bisect_trial *t, const char *name, char path[PATH_MAX + 64])
{
    (void)snprintf(path, PATH_MAX + 64, "%s/%s", t->folder, name);
}

static bool write_file(const bisect_trial *t, const char *name, const char *text)
{
    char path[PATH_MAX + 64], part[PATH_MAX + 64];
    file_of(t, name, path);
    file_of(t, "part", part);
    FILE *file = fopen(part, "w");
    bool ok = file != NULL && fputs(text, file) >= 0;
    if (file != NULL) ok &= fclose(file) == 0;
    ok = ok && rename(part, path) == 0;
    return ok || cli_fail("%s: %s", path, strerror(errno)) == 0;
}

static bool read_outcome(bisect_trial *t)
{
    char path[PATH_MAX + 64];
    int late = 0;
    file_of(t, "outcome", path);
    FILE *file = fopen(path, "r");
    if (file == NULL) return false;
    t->old = fscanf(file, "status %d late %d seconds %lf", &t->status, &late,
                    &t->seconds) == 3;
    t->late = late != 0;
    (void)fclose(file);
    /* Without these nothing can be told: one that failed gets another chance. */
    const bool needed = t->kind != BISECT_SOME;
    if (needed && (t->late || t->status != 0)) t->old = t->late = false;
    return t->old;
}

/* ---- processes ---- */

/* The command with the trial's folder in place of {trial}; the caller's. */
static char **command_of(const bisect_options *o, const bisect_trial *t)
{
    size_t n = 0;
    while (o->command[n] != NULL)
        n++;
    char **words = calloc(n + 1, sizeof *words);
    bool ok = words != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        const char *mark = strstr(o->command[i], "{trial}");
        if (mark == NULL)
            words[i] = strdup(o->command[i]);
        else if (asprintf(&words[i], "%.*s%s%s", (int)(mark - o->command[i]),
                          o->command[i], t->folder, mark + 7) < 0)
            words[i] = NULL;
        ok = words[i] != NULL;
    }
    return ok ? words : NULL;
}

static void free_words(char **words)
{
    for (size_t i = 0; words != NULL && words[i] != NULL; i++)
        free(words[i]);
    free(words);
}

static bool set_environment(const bisect_run *r, const bisect_trial *t,
                            const char *reroute)
{
    const char *before = getenv("PYTHONPATH");
    const bool has = before != NULL && *before != '\0';
    char *path = NULL;
    bool ok = true;
    if (t->kind == BISECT_GOOD) return true;
    if (r->bootstrap != NULL)
        ok = asprintf(&path, "%s%s%s", r->bootstrap, has ? ":" : "", has ? before : "") >=
                 0 &&
             setenv("PYTHONPATH", path, 1) == 0;
    ok = ok && setenv("ULPSCOPE_BISECT", t->folder, 1) == 0 &&
         setenv("ULPSCOPE_REROUTE", reroute, 1) == 0;
    if (r->options->deterministic && getenv("CUBLAS_WORKSPACE_CONFIG") == NULL)
        ok = ok && setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 1) == 0;
    free(path);
    return ok;
}

/* In the child: its output goes to a file, what it starts is in its group. */
static void become(const bisect_run *r, const bisect_trial *t, const char *reroute,
                   char **words)
{
    char path[PATH_MAX + 64];
    file_of(t, "output", path);
    const int out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)setpgid(0, 0);
    cli_stop_end();
    (void)signal(SIGXFSZ, SIG_DFL);
    if (out < 0 || in < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0 ||
        !set_environment(r, t, reroute))
        _exit(CLI_TROUBLE);
    if (t->kind == BISECT_GOOD)
        (void)execl("/bin/sh", "sh", "-c", r->options->good, (char *)NULL);
    else
        (void)execvp(words[0], words);
    (void)fprintf(stderr, "ulpscope bisect: cannot run %s: %s\n", words[0],
                  strerror(errno));
    _exit(127);
}

static void clear_folder(const bisect_trial *t)
{
    char path[PATH_MAX + 64];
    static const char *const names[] = {"output", "outcome", "operators", "failed"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        file_of(t, names[i], path);
        (void)unlink(path);
    }
}

static bool start(bisect_run *r, bisect_trial *t, const char *reroute)
{
    char settings[64];
    if (mkdir(t->folder, 0777) != 0 && errno != EEXIST)
        return cli_fail("%s: %s", t->folder, strerror(errno)) == 0;
    clear_folder(t);
    (void)snprintf(settings, sizeof settings, "%lld %d\n", (long long)r->options->seed,
                   r->options->deterministic);
    if (!write_file(t, "reroute", reroute) || !write_file(t, "settings", settings))
        return false;
    char **words = command_of(r->options, t);
    if (words == NULL) return cli_fail("out of memory") == 0;
    (void)fflush(NULL);
    t->began = cli_now();
    t->pid = fork();
    if (t->pid == 0) become(r, t, reroute, words);
    if (t->pid > 0) (void)setpgid(t->pid, t->pid);
    free_words(words);
    if (t->pid > 0) return true;
    t->pid = 0;
    return cli_fail("no process can be started: %s", strerror(errno)) == 0;
}

static void end_group(const bisect_trial *t, int number)
{
    if (t->pid > 0) (void)kill(-t->pid, number);
}

/* Takes the end of a trial, if it came. */
static bool look(const bisect_run *r, bisect_trial *t)
{
    char text[96];
    int status = 0;
    const double age = cli_now() - t->began, limit = (double)r->options->limit_s;
    if (limit > 0 && age > limit) {
        t->late = true;
        end_group(t, age > limit + GRACE_S ? SIGKILL : SIGTERM);
    }
    if (waitpid(t->pid, &status, WNOHANG) == 0) return false;
    end_group(t, SIGKILL); /* what it left running */
    t->pid = 0;
    t->seconds = age;
    t->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    (void)snprintf(text, sizeof text, "status %d late %d seconds %.3f\n", t->status,
                   t->late, t->seconds);
    if (cli_stop_asked() == 0) (void)write_file(t, "outcome", text);
    return true;
}

static void stop_all(bisect_trial *trials, int n)
{
    const struct timespec grace = {.tv_sec = 1};
    for (int i = 0; i < n; i++)
        end_group(&trials[i], SIGTERM);
    (void)nanosleep(&grace, NULL);
    for (int i = 0; i < n; i++) {
        end_group(&trials[i], SIGKILL);
        if (trials[i].pid > 0) (void)waitpid(trials[i].pid, NULL, 0);
        trials[i].pid = 0;
    }
}

/* ---- what it gave ---- */

/* Where operators could not be moved as they should, the loss tells nothing of them. */
static void read_failure(bisect_trial *t)
{
    char path[PATH_MAX + 64], line[160];
    file_of(t, "failed", path);
    FILE *file = fopen(path, "r");
    if (file == NULL) return;
    if (fgets(line, sizeof line, file) == NULL) (void)strcpy(line, "no reason is known");
    line[strcspn(line, "\n")] = '\0';
    (void)snprintf(t->why, sizeof t->why, "could not move its operators: %s", line);
    (void)fclose(file);
}

static void read_curve(const bisect_run *r, bisect_trial *t)
{
    usc_error err;
    char path[PATH_MAX + 64];
    const char *curve = r->options->curve;
    if (t->late)
        (void)snprintf(t->why, sizeof t->why, "not done in %lld s; --time-limit sets it",
                       (long long)r->options->limit_s);
    else if (t->status > 128)
        (void)snprintf(t->why, sizeof t->why, "ended by signal %d", t->status - 128);
    else if (t->status != 0)
        (void)snprintf(t->why, sizeof t->why, "failed with exit code %d", t->status);
    if (t->why[0] == '\0') read_failure(t);
    if (t->why[0] != '\0') return;
    file_of(t, curve != NULL ? curve : "output", path);
    if (usc_curve_read(path, &r->options->read, &t->curve, &err) != USC_OK)
        (void)snprintf(t->why, sizeof t->why, "%s", err.text);
}

static bool finish(bisect_run *r, bisect_trial *t)
{
    r->n_trials++;
    r->n_old += t->old;
    if (!t->old) r->spent_s += t->seconds;
    read_curve(r, t);
    r->n_failed += t->why[0] != '\0';
    return bisect_weigh(r, t);
}

/* Waits until fewer than `most` trials run. */
static bool wait_for(bisect_run *r, bisect_trial *trials, int n, int most)
{
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    for (;;) {
        int running = 0;
        for (int i = 0; i < n; i++) {
            if (trials[i].pid == 0) continue;
            if (!look(r, &trials[i]))
                running++;
            else if (cli_stop_asked() == 0 && !finish(r, &trials[i]))
                return false;
        }
        if (cli_stop_asked() != 0) {
            stop_all(trials, n);
            return cli_fail("interrupted; the same command goes on in %s",
                            r->options->out) == 0;
        }
        if (running < most) return true;
        bisect_say_running(r, trials, n, cli_now());
        (void)nanosleep(&pause, NULL);
    }
}

bool bisect_run_trials(bisect_run *r, bisect_trial *trials, int n)
{
    bool ok = true;
    for (int i = 0; i < n && ok; i++) {
        char *reroute = reroute_of(r, &trials[i]);
        if (reroute == NULL) return cli_fail("out of memory") == 0;
        place(r, &trials[i], reroute);
        if (read_outcome(&trials[i]))
            ok = finish(r, &trials[i]);
        else
            ok =
                wait_for(r, trials, i, r->options->jobs) && start(r, &trials[i], reroute);
        free(reroute);
    }
    ok = ok && wait_for(r, trials, n, 1);
    if (!ok) stop_all(trials, n);
    return ok;
}

void bisect_trial_free(bisect_trial *t)
{
    usc_curve_free(t->curve);
    free(t->moved);
    *t = (bisect_trial){0};
}

/* ---- operators ---- */

static int by_name(const void *a, const void *b)
{
    const bisect_operator *p = a, *q = b;
    return strcmp(p->name, q->name);
}

bool bisect_take_operators(bisect_run *r, const bisect_trial *t)
{
    char path[PATH_MAX + 64], name[256];
    long long n_calls;
    file_of(t, "operators", path);
    FILE *file = fopen(path, "r");
    while (file != NULL && fscanf(file, "%255s %lld", name, &n_calls) == 2) {
        bisect_operator *more =
            realloc(r->operators, ((size_t)r->n_operators + 1) * sizeof *more);
        if (more == NULL) break;
        r->operators = more;
        more[r->n_operators] = (bisect_operator){strdup(name), n_calls};
        r->n_operators += more[r->n_operators].name != NULL;
    }
    if (file != NULL) (void)fclose(file);
    if (r->n_operators == 0 && strcmp(r->options->to, "cpu") != 0)
        return cli_fail(
                   "the program used no operator that --to %s changes: where it computes "
                   "in that dtype already, try --to float64 or leave --to out. Its "
                   "output "
                   "is in %s/output",
                   r->options->to, t->folder) == 0;
    if (r->n_operators == 0)
        return cli_fail(
                   "the program used no operator that could be moved; does it run on "
                   "the device, with torch of this Python? Its output is in %s/output",
                   t->folder) == 0;
    qsort(r->operators, (size_t)r->n_operators, sizeof *r->operators, by_name);
    r->guilty = calloc((size_t)r->n_operators, sizeof *r->guilty);
    r->without = calloc((size_t)r->n_operators, sizeof *r->without);
    return (r->guilty != NULL && r->without != NULL) || cli_fail("out of memory") == 0;
}
