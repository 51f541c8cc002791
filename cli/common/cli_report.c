// SPDX-License-Identifier: Apache-2.0
// The options that decide how findings are shown and what counts, and the showing: for
// every command that ends with a report.
#include "cli.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/progress.h"

enum {
    OPT_COLOR = 512,
    OPT_ALLOW,
    OPT_STRICT,
    OPT_NO_FILES,
    OPT_BASELINE,
    OPT_JUNIT,
    OPT_MIN_JUDGED,
    OPT_SORT,
    OPT_ANNOTATE
};

const cli_entry cli_report_options[] = {
    {OPT_ALLOW, "allow", "VERDICT[:PATTERN]", NULL,
     "do not let this decide the exit code; may be repeated. unjudged, unsupported: "
     "accept that nobody looked at such calls (exit code 2 else); unrecorded: that the "
     "trace lacks some that ran (compiled regions). PATTERN: globs over "
     "operators, "
     "comma-separated, ! excludes; usual or usual:PATTERN: what torch's own CPU kernel "
     "of "
     "that dtype does no better"},
    {OPT_STRICT, "strict", NULL, NULL,
     "undefined, unjudged and unsupported calls are flagged, too: exit code 1"},
    {OPT_MIN_JUDGED, "min-judged", "SHARE", "100%",
     "exit code 2 where less of the calls is judged: the rest is unjudged or "
     "unsupported, "
     "or has an output that is; what --allow names does not count"},
    {OPT_BASELINE, "baseline", "FILE", NULL,
     "flag only what is new or worse than in an earlier run: its result.db, result.json "
     "or "
     "folder"},
    {OPT_JUNIT, "junit", "FILE", NULL,
     "write JUnit XML, a test case per operator, module and shapes"},
    {OPT_ANNOTATE, "annotate", NULL, NULL,
     "print `::error` lines, which GitHub shows beside a run"},
    {OPT_SORT, "sort", "[verdict|loss]", "verdict",
     "what comes first in the table: the worst verdict, or the largest effect on the "
     "loss "
     "of the captured step"},
    {OPT_NO_FILES, "no-files", NULL, NULL, "print only"},
    {OPT_COLOR, "color", "WHEN", "auto", "auto, always or never"},
    {0}};

void cli_report_begin(cli_report *r)
{
    *r = (cli_report){.when = "auto"};
}

bool cli_report_allow(cli_report *r, const char *text)
{
    usc_error err;
    if (strcmp(text, "unrecorded") == 0) return r->options.unrecorded = true;
    if (r->options.n_allow == CLI_MAX_ALLOW) {
        cli_fail("more than %d --allow", CLI_MAX_ALLOW);
        return false;
    }
    if (usc_allow_parse(text, &r->allow[r->options.n_allow], &err) != USC_OK) {
        cli_fail("--allow: %s", err.text);
        return false;
    }
    r->options.n_allow++;
    return true;
}

bool cli_allow_one(const char *word, const char *text, const char **pattern,
                   const char *other, const char **other_pattern)
{
    char given[USC_ALLOW_WORD];
    const char *names;
    usc_error err;
    const usc_status st = usc_allow_word(text, given, &names, &err);
    const bool second = other != NULL && strcmp(given, other) == 0;
    const char **to = second ? other_pattern : pattern;
    if (!second && strcmp(given, word) != 0)
        return cli_fail("--allow '%s': %s or %s:PATTERN is needed%s%s", text, word, word,
                        other != NULL ? ", or the same with " : "",
                        other != NULL ? other : "") == 0;
    if (*to != NULL)
        return cli_fail("--allow %s is given twice: one PATTERN holds several, "
                        "comma-separated",
                        given) == 0;
    if (st != USC_OK) return cli_fail("--allow: %s", err.text) == 0;
    *to = names != NULL ? names : "*";
    return true;
}

/* "50%" or "50"; none of it for 0. */
static bool set_min_judged(cli_report *r, const char *text)
{
    int64_t percent = 0;
    char number[16] = "";
    const size_t n = strlen(text), cut = n > 0 && text[n - 1] == '%' ? n - 1 : n;
    if (cut > 0 && cut < 4) memcpy(number, text, cut);
    if (strspn(number, "0123456789") != strlen(number) || number[0] == '\0' ||
        (percent = atoi(number)) > 100) {
        cli_fail("--min-judged '%s': a share from 0%% to 100%% is needed", text);
        return false;
    }
    r->options.min_judged = percent > 0 ? (double)percent / 100 : -1;
    return true;
}

bool cli_report_option(cli_report *r, int option)
{
    switch (option) {
    case OPT_COLOR:
        r->when = optarg;
        return true;
    case OPT_STRICT:
        r->options.strict = true;
        return true;
    case OPT_NO_FILES:
        r->options.no_files = true;
        return true;
    case OPT_BASELINE:
        r->baseline = optarg;
        return true;
    case OPT_JUNIT:
        r->junit = optarg;
        return true;
    case OPT_ANNOTATE:
        r->annotate = true;
        return true;
    case OPT_MIN_JUDGED:
        return set_min_judged(r, optarg);
    case OPT_SORT:
        r->options.by_loss = strcmp(optarg, "loss") == 0;
        return true;
    case OPT_ALLOW:
        return cli_report_allow(r, optarg);
    default:
        return false;
    }
}

bool cli_report_ready(cli_report *r)
{
    const int color = cli_color(r->when);
    r->options.color = color == 1;
    r->options.width = cli_width();
    r->options.allow = r->allow;
    return color >= 0;
}

/* The folder that a file is to lie in. */
static void folder_of(const char *file, char *out, size_t size)
{
    const char *slash = strrchr(file, '/');
    (void)snprintf(out, size, "%.*s",
                   slash == NULL   ? 1
                   : slash == file ? 1
                                   : (int)(slash - file),
                   slash == NULL ? "." : file);
}

bool cli_report_reachable(const cli_report *r)
{
    char folder[PATH_MAX];
    if (r->junit != NULL) {
        folder_of(r->junit, folder, sizeof folder);
        if (!cli_is_folder(folder)) {
            cli_fail("--junit %s: there is no folder %s", r->junit, folder);
            return false;
        }
    }
    if (r->baseline != NULL && access(r->baseline, F_OK) != 0) {
        cli_fail("--baseline: there is no %s", r->baseline);
        return false;
    }
    return true;
}

/* The files that the options ask for. */
static usc_status write_files(usc_report *report, const cli_report *r, usc_error *err)
{
    usc_status st = USC_OK;
    usc_report_mark(report, &r->options);
    if (r->baseline != NULL) st = usc_report_baseline(report, r->baseline, err);
    if (st == USC_OK && !r->options.no_files) st = usc_report_write_files(report, err);
    if (st == USC_OK && r->junit != NULL)
        st = usc_report_write_junit(report, &r->options, r->junit, err);
    return st;
}

/* What is printed; the files are there by then. */
static usc_status render(usc_report *report, const cli_report *r, usc_error *err)
{
    const usc_sink sink = usc_sink_stream(stdout);
    usc_status st = USC_OK;
    if (r->annotate) st = usc_report_annotations(report, &r->options, &sink, err);
    return st == USC_OK ? usc_report_table(report, &r->options, &sink, err) : st;
}

static int with_report(const cli_report *r, const char *out, bool show)
{
    usc_error err;
    usc_report *report = NULL;
    cli_progress reads; /* of many thousand rows: seconds */
    cli_progress_read(&reads, "report");
    usc_status st = usc_report_open(out, NULL, &report, &err);
    if (st == USC_OK) st = write_files(report, r, &err);
    cli_progress_end(&reads);
    if (st == USC_OK && show) st = render(report, r, &err);
    const int code = st == USC_OK
                         ? cli_close_output(usc_report_exit_code(report, &r->options))
                         : cli_fail("%s", err.text);
    usc_report_close(report);
    return code;
}

static int show_one(const cli_report *r, const char *out)
{
    return with_report(r, out, true);
}

int cli_report_write(const cli_report *r, const char *out)
{
    return with_report(r, out, false);
}

int cli_report_unjudged(const cli_report *r, const char *out, FILE *to)
{
    usc_error err;
    usc_report *report = NULL;
    const usc_sink sink = usc_sink_stream(to);
    usc_status st = usc_report_open(out, NULL, &report, &err);
    if (st == USC_OK && r->baseline != NULL)
        st = usc_report_baseline(report, r->baseline, &err);
    if (st == USC_OK) st = usc_report_unjudged(report, &r->options, &sink, &err);
    usc_report_close(report);
    return st == USC_OK ? CLI_SAME : cli_fail("%s", err.text);
}

/* The number of "rank-N"; -1 for other names. */
static long rank_of(const char *name)
{
    char *end = NULL;
    if (strncmp(name, "rank-", 5) != 0 || name[5] < '0' || name[5] > '9') return -1;
    const long n = strtol(name + 5, &end, 10);
    return *end == '\0' ? n : -1;
}

static bool holds(const char *folder, const char *name, const char *file)
{
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s%s%s/%s", folder,
                           name[0] != '\0' ? "/" : "", name, file);
    return n > 0 && (size_t)n < sizeof path && access(path, F_OK) == 0;
}

long cli_next_rank(const char *folder, long last, const char *file)
{
    long found = -1;
    if (holds(folder, "", file)) return -1;
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        const long n = rank_of(e->d_name);
        if (n > last && (found < 0 || n < found) && holds(folder, e->d_name, file))
            found = n;
    }
    if (dir != NULL) (void)closedir(dir);
    return found;
}

/* "ulpscope.xml" as "ulpscope.rank-3.xml": each rank has its own. */
static void file_of_rank(const char *file, long rank, char *out, size_t size)
{
    const char *slash = strrchr(file, '/');
    const char *dot = strrchr(slash != NULL ? slash : file, '.');
    const size_t stem = dot != NULL ? (size_t)(dot - file) : strlen(file);
    (void)snprintf(out, size, "%.*s.rank-%ld%s", (int)stem, file, rank,
                   dot != NULL ? dot : "");
}

void cli_report_of_rank(const cli_report *r, long rank, cli_rank_report *out)
{
    char name[32];
    out->report = *r;
    out->report.options.allow = out->report.allow;
    (void)snprintf(name, sizeof name, "rank-%ld", rank);
    if (r->junit != NULL) {
        file_of_rank(r->junit, rank, out->junit, sizeof out->junit);
        out->report.junit = out->junit;
    }
    if (r->baseline != NULL && holds(r->baseline, name, "result.db")) {
        (void)snprintf(out->baseline, sizeof out->baseline, "%s/%s", r->baseline, name);
        out->report.baseline = out->baseline;
    }
}

static int show_rank(const cli_report *r, const char *out, long rank)
{
    char folder[PATH_MAX];
    cli_rank_report one;
    (void)snprintf(folder, sizeof folder, "%s/rank-%ld", out, rank);
    cli_report_of_rank(r, rank, &one);
    (void)printf("rank-%ld\n\n", rank);
    return show_one(&one.report, folder);
}

int cli_report_show(const cli_report *r, const char *out)
{
    long rank = cli_next_rank(out, -1, "result.db");
    if (rank < 0) return show_one(r, out);
    int worst = CLI_SAME;
    while (rank >= 0) {
        const int code = show_rank(r, out, rank);
        if (code > worst) worst = code;
        rank = cli_next_rank(out, rank, "result.db");
        if (rank >= 0) putchar('\n');
    }
    return worst;
}
