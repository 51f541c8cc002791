// SPDX-License-Identifier: Apache-2.0
// What run_ut and run_overflow_check do: a dump becomes a trace, the trace is checked,
// the tables are made of the results. Everything lies in accuracy_checking_TIME beside
// the tables, so that a run that was cut short goes on, and whoever wants to know more
// has it.
#include "compat/compat.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <ulpscope/version.h>
#include <ulpscope/x/foreign.h>

#include "common/cli_python.h"
#include "common/hooks.h"
#include "common/scratch.h"
#include "overflow/overflow.h"

enum { STAMP = 14, REFRESH = 2 };

typedef struct precheck {
    cli_hooks hooks; /* first: hooks of a run get it as their context */
    const compat_arguments *a;
    char stamp[STAMP + 1];
    char folder[PATH_MAX - 64]; /* of the tables */
    char work[PATH_MAX], trace[PATH_MAX], results[PATH_MAX];
    char result_csv[PATH_MAX], details_csv[PATH_MAX];
    char device[64];
    time_t written; /* when the tables were made last */
    void (*tell)(void *ctx, const char *what, int64_t done, int64_t total,
                 int64_t flagged);
    usc_precheck_counts counts;
} precheck;

/* ---- names ---- */

static bool is_stamp(const char *text)
{
    for (int i = 0; i < STAMP; i++)
        if (!isdigit((unsigned char)text[i])) return false;
    return strcmp(text + STAMP, ".csv") == 0;
}

/* Folder and time of the run whose table is named. */
static bool take_csv(precheck *p, const char *csv)
{
    static const char prefix[] = "accuracy_checking_result_";
    const char *slash = strrchr(csv, '/');
    const char *name = slash != NULL ? slash + 1 : csv;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0 ||
        !is_stamp(name + sizeof prefix - 1))
        return cli_fail("-csv_path %s: it must keep its name, "
                        "accuracy_checking_result_TIME.csv",
                        csv) == 0;
    if (access(csv, R_OK) != 0)
        return cli_fail("-csv_path %s: %s", csv, strerror(errno)) == 0;
    memcpy(p->stamp, name + sizeof prefix - 1, STAMP);
    if (slash == NULL)
        strcpy(p->folder, ".");
    else
        (void)snprintf(p->folder, sizeof p->folder, "%.*s", (int)(slash - csv), csv);
    return true;
}

static bool take_now(precheck *p, const char *out)
{
    const time_t now = time(NULL);
    struct tm parts;
    (void)strftime(p->stamp, sizeof p->stamp, "%Y%m%d%H%M%S", localtime_r(&now, &parts));
    (void)snprintf(p->folder, sizeof p->folder, "%s", out != NULL ? out : ".");
    if (cli_is_folder(p->folder)) return true;
    return cli_fail("-o %s: there is no such folder", p->folder) == 0;
}

static bool name_files(precheck *p)
{
    (void)snprintf(p->work, sizeof p->work, "%s/accuracy_checking_%s", p->folder,
                   p->stamp);
    (void)snprintf(p->result_csv, sizeof p->result_csv,
                   "%s/accuracy_checking_result_%s.csv", p->folder, p->stamp);
    (void)snprintf(p->details_csv, sizeof p->details_csv,
                   "%s/accuracy_checking_details_%s.csv", p->folder, p->stamp);
    if ((size_t)snprintf(p->trace, sizeof p->trace, "%s/trace", p->work) >=
            sizeof p->trace ||
        (size_t)snprintf(p->results, sizeof p->results, "%s/results", p->work) >=
            sizeof p->results)
        return cli_fail("%s: the name is too long", p->folder) == 0;
    if (strcmp(p->a->device_type, "cpu") == 0)
        strcpy(p->device, "cpu");
    else
        (void)snprintf(p->device, sizeof p->device, "%s:%d", p->a->device_type,
                       p->a->device_id);
    return true;
}

/* ---- the parts ---- */

static usc_status make_tables(precheck *p, bool begin, usc_error *err)
{
    const usc_precheck_options o = {.trace = p->trace,
                                    .results = begin ? NULL : p->results,
                                    .result_csv = p->result_csv,
                                    .details_csv = p->details_csv,
                                    .allow = p->a->report.allow,
                                    .n_allow = p->a->report.options.n_allow};
    p->written = time(NULL);
    return usc_precheck_tables(&o, &p->counts, err);
}

/* While a check runs the tables follow it. */
static void tell(void *ctx, const char *what, int64_t done, int64_t total,
                 int64_t flagged)
{
    precheck *p = ctx;
    p->tell(ctx, what, done, total, flagged);
    if (done > 0 && time(NULL) - p->written >= REFRESH)
        (void)make_tables(p, false, NULL); /* the last ones tell what is wrong */
}

static int import_dump(precheck *p)
{
    const usc_import_options o = {.dump = p->a->forward,
                                  .trace = p->trace,
                                  .device = p->device,
                                  .backward = p->a->backward};
    usc_import_counts counts;
    usc_run_end end = USC_RUN_DONE;
    usc_error err;
    struct stat info;
    if (stat(p->trace, &info) == 0) return CLI_SAME;
    cli_hooks_begin(&p->hooks, "compat");
    p->hooks.module = "ulpscope.calls.torch_files";
    const usc_status st = usc_import(&o, &p->hooks.hooks, &counts, &end, &err);
    cli_hooks_end(&p->hooks);
    if (st != USC_OK) return cli_fail("%s", err.text);
    return end == USC_RUN_DONE ? CLI_SAME : CLI_INTERRUPTED;
}

static int check(precheck *p, bool tables)
{
    usc_run_end end = USC_RUN_DONE;
    usc_error err;
    usc_check_options o = {.trace = p->trace,
                           .out = p->results,
                           .device = p->device,
                           .via = p->a->compiled ? p->a->via : NULL,
                           .compared = "ascend-v1",
                           .ops = p->a->ops,
                           .call = -1,
                           .causes = tables ? USC_RUN_CAUSES : 0,
                           .cores = cli_cores(),
                           .threads = cli_threads(),
                           .version = USC_VERSION};
    if (!cli_faults(p->device, NULL, &o.faults)) return CLI_TROUBLE;
    cli_hooks_begin(&p->hooks, "compat");
    p->tell = p->hooks.hooks.progress;
    if (tables) p->hooks.hooks.progress = tell;
    usc_status st = usc_check_trace(&o, &p->hooks.hooks, &end, &err);
    if (st == USC_E_CORRUPT) { /* killed while the file of results was made */
        o.force = true;
        st = usc_check_trace(&o, &p->hooks.hooks, &end, &err);
    }
    cli_hooks_end(&p->hooks);
    if (st != USC_OK) return cli_fail("%s", err.text);
    return end == USC_RUN_DONE ? CLI_SAME : CLI_INTERRUPTED;
}

/* A run that is done has nothing to go on with: what it found stays as it is. */
static bool is_done(const precheck *p)
{
    char *inputs = NULL;
    const usc_check_state state = usc_check_state_of(p->results, &inputs);
    free(inputs);
    return state == USC_CHECK_DONE;
}

/* ---- data of the calls that fail ---- */

typedef struct failing {
    FILE *to;
    int64_t n;
} failing;

/* A line for the process that writes them. */
static usc_status name_failing(void *ctx, const usc_precheck_call *call, usc_error *err)
{
    failing *f = ctx;
    (void)err;
    if (strcmp(call->word, "FALSE") != 0 && !usc_verdict_flagged(call->verdict))
        return USC_OK;
    f->n++;
    (void)fprintf(f->to, "%lld ", (long long)call->sequence);
    for (const char *c = call->name; *c != '\0'; c++)
        (void)putc(*c == '*' || *c == '/' ? '.' : *c, f->to);
    (void)fprintf(f->to, ".%s\n", call->backward ? "backward" : "forward");
    return USC_OK;
}

/* Starts the process that writes them, its standard input being `list`; its exit code. */
static int write_failing(const precheck *p, FILE *list, const char *folder)
{
    static const char module[] = "ulpscope.compat.api_accuracy_checker.run_ut.error_data";
    const char *const words[] = {p->trace, p->device, folder, NULL};
    int status = 0;
    rewind(list);
    const pid_t child = fork();
    if (child == 0) {
        if (dup2(fileno(list), STDIN_FILENO) < 0) _exit(CLI_TROUBLE);
        _exit(cli_python_exec(module, words));
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : CLI_TROUBLE;
}

static int save_errors(const precheck *p)
{
    char folder[PATH_MAX];
    usc_error err;
    const char *base = p->a->error_data != NULL ? p->a->error_data : "./";
    const size_t n_base = strlen(base);
    const char *slash = n_base > 0 && base[n_base - 1] == '/' ? "" : "/";
    const usc_precheck_options o = {.trace = p->trace, .results = p->results};
    if ((size_t)snprintf(folder, sizeof folder, "%s%sut_error_data%s", base, slash,
                         p->stamp) >= sizeof folder ||
        (mkdir(folder, 0777) != 0 && errno != EEXIST))
        return cli_fail("%s: %s", folder, strerror(errno));
    failing f = {.to = tmpfile()};
    if (f.to == NULL) return cli_fail("no temporary file can be made");
    const usc_status st = usc_precheck_walk(&o, name_failing, &f, &err);
    int code = st == USC_OK ? CLI_SAME : cli_fail("%s", err.text);
    (void)fflush(f.to);
    if (code == CLI_SAME && f.n > 0) code = write_failing(p, f.to, folder);
    (void)fclose(f.to);
    (void)printf("%lld failing call%s: %s\n", (long long)f.n, f.n == 1 ? "" : "s",
                 folder);
    return code;
}

/* ---- run_ut ---- */

/* What passes the precheck's rule and not ours is told last, where everybody reads. */
static void tell_accused(const precheck *p)
{
    const usc_precheck_counts *c = &p->counts;
    const char *comma = "";
    if (c->accused == 0) return;
    (void)printf("%lld of those that do not fail %s accused by our verdict (",
                 (long long)c->accused, c->accused == 1 ? "is" : "are");
    for (int v = 0; v < USC_N_VERDICTS; v++) {
        if (c->by[v] == 0) continue;
        (void)printf("%s%lld %s", comma, (long long)c->by[v],
                     usc_verdict_text((usc_verdict)v));
        comma = ", ";
    }
    (void)printf("), e.g. %s%s\n", c->first_accused,
                 p->a->strict ? "" : "; with --strict that is exit code 1");
}

static int code_of(const precheck *p)
{
    const usc_precheck_counts *c = &p->counts;
    const int64_t n = c->failed + (p->a->strict ? c->accused + c->skipped : 0);
    if (n > 0) return CLI_DIFFERS;
    if (c->open > 0) return CLI_TROUBLE;
    if (c->passed > 0 || c->accused > 0) return CLI_SAME;
    return cli_fail("%s", c->total > 0 ? "no API could be judged"
                                       : "no API was checked: none is in the dump, or "
                                         "white_list leaves none");
}

static int finish(precheck *p)
{
    usc_error err;
    const usc_status st = make_tables(p, false, &err);
    if (st != USC_OK) return cli_fail("%s", err.text);
    const usc_precheck_counts *c = &p->counts;
    char fail[48];
    (void)snprintf(fail, sizeof fail, "%lld fail", (long long)c->failed);
    (void)printf("%lld APIs%s: %lld pass, %s, %lld skipped\n%s\n%s\n"
                 "more: ulpscope report %s\n",
                 (long long)c->total, c->accused > 0 ? " by the precheck's rule" : "",
                 (long long)c->passed,
                 c->accused > 0 && c->failed == 0 ? "none fails" : fail,
                 (long long)c->skipped, p->result_csv, p->details_csv, p->results);
    int saved = p->a->save_errors ? save_errors(p) : CLI_SAME;
    if (saved == CLI_SAME) saved = cli_report_unjudged(&p->a->report, p->results, stdout);
    tell_accused(p);
    return cli_close_output(saved != CLI_SAME ? saved : code_of(p));
}

int compat_run_ut(const compat_arguments *a)
{
    precheck p = {.a = a};
    usc_error err;
    int code = CLI_SAME;
    if (!(a->csv != NULL ? take_csv(&p, a->csv) : take_now(&p, a->out)) ||
        !name_files(&p))
        return CLI_TROUBLE;
    if (a->csv == NULL && access(p.result_csv, F_OK) == 0)
        return cli_fail("%s is there: name it with -csv_path to go on with it",
                        p.result_csv);
    if (a->csv == NULL && make_tables(&p, true, &err) != USC_OK)
        return cli_fail("%s", err.text);
    if (mkdir(p.work, 0777) != 0 && errno != EEXIST)
        return cli_fail("%s: %s", p.work, strerror(errno));
    if (!is_done(&p)) {
        code = import_dump(&p);
        if (code == CLI_SAME) code = check(&p, true);
    }
    if (code == CLI_SAME) code = finish(&p);
    if (code == CLI_INTERRUPTED)
        (void)fprintf(stderr, "ulpscope compat: interrupted; -csv_path %s goes on\n",
                      p.result_csv);
    return code;
}

/* ---- run_overflow_check ---- */

typedef struct overflows {
    int64_t n_abnormal, n_untold;
} overflows;

static usc_status say_overflow(void *ctx, const usc_precheck_call *call, usc_error *err)
{
    overflows *o = ctx;
    const overflow_evidence evidence = {.verdict = call->verdict,
                                        .sentence = call->sentence,
                                        .n_nan_inf = call->n_nan_inf};
    const char *why;
    const overflow_told told = overflow_tell(&evidence, &why);
    (void)err;
    o->n_abnormal += told == OVERFLOW_ABNORMAL;
    o->n_untold += told == OVERFLOW_UNTOLD;
    (void)printf("%s%s: %s: %s\n", call->name, call->backward ? " backward" : "",
                 overflow_text(told), why);
    return USC_OK;
}

int compat_run_overflow(const compat_arguments *a)
{
    precheck p = {.a = a};
    overflows found = {0};
    usc_error err;
    if (!take_now(&p, ".") || !name_files(&p) ||
        !cli_scratch_make("ulpscope-overflow", p.work, sizeof p.work))
        return CLI_TROUBLE;
    (void)snprintf(p.trace, sizeof p.trace, "%.*s/trace", PATH_MAX - 16, p.work);
    (void)snprintf(p.results, sizeof p.results, "%.*s/results", PATH_MAX - 16, p.work);
    int code = import_dump(&p);
    if (code == CLI_SAME) code = check(&p, false);
    if (code == CLI_SAME) {
        const usc_precheck_options o = {.trace = p.trace, .results = p.results};
        if (usc_precheck_walk(&o, say_overflow, &found, &err) != USC_OK)
            code = cli_fail("%s", err.text);
    }
    cli_scratch_remove(p.work);
    if (code != CLI_SAME) return code;
    return cli_close_output(found.n_abnormal > 0 ? CLI_DIFFERS
                            : found.n_untold > 0 ? CLI_TROUBLE
                                                 : CLI_SAME);
}
