// SPDX-License-Identifier: Apache-2.0
// ulpscope port: sources for CUDA under the names of another device.
#include "cli.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ulpscope/x/port.h>

enum {
    OPT_TO = 256,
    OPT_IN_PLACE,
    OPT_DRY_RUN,
    OPT_DIFF,
    OPT_MAP,
    OPT_NO_DEFAULT_MAP,
    OPT_IGNORE,
    OPT_ONLY,
    OPT_LAUNCH,
    OPT_COMMENTS,
    OPT_REPORT,
    OPT_RENAME_OWN,
    OPT_REVERT,
    OPT_FORCE,
    OPT_JSON,
    OPT_COLOR
};
enum { MOST_IGNORED = 256 };

static const cli_entry own_options[] = {
    {OPT_TO, "to", "[sim|musa|npu|xpu|cuda]", NULL,
     "the device whose names are wanted; cuda: back from musa, by the same names"},
    {'o', "out", "OUT", NULL,
     "where the port is written (default: SRC_TARGET beside the source)"},
    {OPT_IN_PLACE, "in-place", NULL, NULL, "change the source itself"},
    {OPT_REVERT, "revert", NULL, NULL, "take a port in place back, every byte of it"},
    {OPT_FORCE, "force", NULL, NULL,
     "in place also where git knows of changes that are not committed"},
    {OPT_DRY_RUN, "dry-run", NULL, NULL, "write nothing; say what would change"},
    {OPT_DIFF, "diff", NULL, NULL, "print a unified diff and write nothing"},
    {OPT_MAP, "map", "FILE", NULL,
     "names of your own that win, as JSON: {\"old\": \"new\"}"},
    {OPT_NO_DEFAULT_MAP, "no-default-map", NULL, NULL, "the names of --map alone"},
    {OPT_IGNORE, "ignore", "GLOB", NULL,
     "copy files and folders whose path below the source fits as they are; may be given "
     "again"},
    {OPT_ONLY, "only", "[cxx|python|build]", NULL,
     "port these files alone; may be given again"},
    {OPT_LAUNCH, "launch", "GLOB", NULL,
     "the Python files that load the device (default: each in which something is ported "
     "and that imports torch)"},
    {OPT_COMMENTS, "comments", NULL, NULL,
     "names in comments, too; those that speak of a licence stay"},
    {OPT_RENAME_OWN, "rename-own", NULL, NULL,
     "names that the source declares and that say cuda, too: nms_cuda"},
    {OPT_JSON, "json", NULL, NULL, "one JSON object"},
    {OPT_REPORT, "report", "[html]", NULL,
     "print all of it as one page: what is left, and each file with its diff"},
    {OPT_COLOR, "color", "WHEN", "auto", "auto, always or never: of --diff"},
    {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_port_page = {
    .command = "port",
    .usage = "SRC... --to sim|musa|npu|xpu|cuda [-o OUT | --in-place] [OPTIONS]",
    .about =
        "Writes C++ and Python for CUDA under the names of another device: whole names, "
        "never parts of words; texts and comments stay, but for headers, devices, "
        "backends and dispatch keys. What no name settles is listed for you with file, "
        "line and what to do (inline PTX, textures, a warp of 32, architecture "
        "thresholds, other vendors' branches, build files), and is not changed.\n"
        "\n"
        "Layout, line ends and encodings stay. A file that cannot be read as a source is "
        "left as it is and listed. The output appears whole or not at all.\n",
    .options = options,
    .examples = "  ulpscope port mmcv/ops/csrc --to musa --diff\n"
                "  ulpscope port mmcv/ops/csrc --to musa --ignore '*/npu' -o csrc_musa\n"
                "  ulpscope port yolo --to sim --in-place --launch train.py\n"
                "  ulpscope port yolo --revert\n",
    .codes = "0 all is ported, 1 something is left for a human, 2 something went wrong",
};

typedef struct arguments {
    usc_port_options port;
    const char *ignore[MOST_IGNORED];
    const char *color;
    bool to_given, revert, force, json, html;
} arguments;

static bool take_target(arguments *a)
{
    for (usc_port_target t = 0; t < USC_N_PORT_TARGETS; t++)
        if (strcmp(optarg, usc_port_target_text(t)) == 0) {
            a->port.target = t;
            a->to_given = true;
            return true;
        }
    return cli_fail("--to '%s': sim, musa, npu, xpu or cuda", optarg) == 0;
}

static bool take_only(arguments *a)
{
    for (usc_port_language l = USC_PORT_CXX; l < USC_N_PORT_LANGUAGES; l++)
        if (strcmp(optarg, usc_port_language_text(l)) == 0) {
            a->port.only |= 1U << l;
            return true;
        }
    return cli_fail("--only '%s': cxx, python or build", optarg) == 0;
}

static bool take_ignore(arguments *a)
{
    if (a->port.n_ignore == MOST_IGNORED)
        return cli_fail("--ignore: at most %d globs", MOST_IGNORED) == 0;
    a->ignore[a->port.n_ignore++] = optarg;
    return true;
}

static bool take_flag(arguments *a, int key)
{
    switch (key) {
    case OPT_IN_PLACE:
        return a->port.in_place = true;
    case OPT_DRY_RUN:
        return a->port.dry_run = true;
    case OPT_DIFF:
        return a->port.diff = a->port.dry_run = true;
    case OPT_RENAME_OWN:
        return a->port.rename_own = true;
    case OPT_COMMENTS:
        return a->port.comments = true;
    case OPT_NO_DEFAULT_MAP:
        return a->port.no_default_map = true;
    case OPT_REVERT:
        return a->revert = true;
    case OPT_FORCE:
        return a->force = true;
    case OPT_JSON:
        return a->json = true;
    default:
        return false;
    }
}

static bool take(arguments *a, int key)
{
    switch (key) {
    case OPT_TO:
        return take_target(a);
    case OPT_ONLY:
        return take_only(a);
    case OPT_IGNORE:
        return take_ignore(a);
    case 'o':
        a->port.out = optarg;
        return true;
    case OPT_MAP:
        a->port.map = optarg;
        return true;
    case OPT_LAUNCH:
        a->port.launch = optarg;
        return true;
    case OPT_REPORT:
        if (strcmp(optarg, "html") != 0)
            return cli_fail("--report '%s': html", optarg) == 0;
        return a->html = a->port.diff = true;
    case OPT_COLOR:
        a->color = optarg;
        return true;
    default:
        return take_flag(a, key);
    }
}

static bool parse(int argc, char **argv, arguments *a)
{
    *a = (arguments){.color = "auto"};
    for (int key; (key = cli_next(&cmd_port_page, argc, argv)) != -1;)
        if (key == '?' || !take(a, key)) return false;
    a->port.ignore = a->ignore;
    if (optind == argc)
        return cli_fail("a source is needed: a folder or a file; see ulpscope port "
                        "--help") == 0;
    if (!a->revert && !a->to_given)
        return cli_fail("--to is needed: sim, musa, npu, xpu or cuda") == 0;
    if (a->port.in_place && a->port.out != NULL)
        return cli_fail("-o and --in-place say two things: leave out one") == 0;
    if (a->json && a->html)
        return cli_fail("--json and --report say two things: leave out one") == 0;
    if (a->html && optind + 1 < argc)
        return cli_fail("--report is the page of one source; %d are given",
                        argc - optind) == 0;
    if (a->port.out != NULL && optind + 1 < argc)
        return cli_fail("-o is the place of one source; %d are given", argc - optind) ==
               0;
    if (a->port.no_default_map && a->port.map == NULL)
        return cli_fail("--no-default-map leaves no names: give --map FILE") == 0;
    return true;
}

/* ---- git */

extern char **environ;

/* Whether git knows of changes below a folder that are not committed; without git, and
 * where it knows nothing of the folder, there are none. */
static bool has_changes(const char *source)
{
    char folder[PATH_MAX];
    struct stat about;
    (void)snprintf(folder, sizeof folder, "%s", source);
    char *last = strrchr(folder, '/');
    if (stat(source, &about) == 0 && !S_ISDIR(about.st_mode))
        (void)snprintf(last != NULL ? last : folder, 2, "%s", last != NULL ? "" : ".");
    char git[] = "git", cd[] = "-C", status[] = "status", plain[] = "--porcelain",
         untracked[] = "-uno", here[] = ".";
    char *argv[] = {git, cd, folder, status, plain, untracked, here, NULL};
    int ends[2];
    pid_t child;
    posix_spawn_file_actions_t actions;
    if (pipe(ends) != 0) return false;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    (void)posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    (void)posix_spawn_file_actions_addclose(&actions, ends[0]);
    const bool started = posix_spawnp(&child, git, &actions, NULL, argv, environ) == 0;
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(ends[1]);
    char byte;
    const bool any = started && read(ends[0], &byte, 1) == 1;
    (void)close(ends[0]);
    if (started) (void)waitpid(child, NULL, 0);
    return any;
}

/* ---- showing */

static void put_diff(const char *diff, bool color)
{
    for (const char *at = diff; *at != '\0';) {
        const size_t n = strcspn(at, "\n");
        const char *code = at[0] == '+'   ? "\033[32m"
                           : at[0] == '-' ? "\033[31m"
                           : at[0] == '@' ? "\033[36m"
                                          : NULL;
        if (color && code != NULL) fputs(code, stdout);
        (void)fwrite(at, 1, n, stdout);
        if (color && code != NULL) fputs("\033[0m", stdout);
        at += n;
        if (*at == '\n') {
            (void)putchar('\n');
            at++;
        }
    }
}

/* "a.cu:12: texture: tex2D(t, x, y): read from ...", of which there may be thousands. */
static void put_one_left(FILE *to, const char *path, const usc_port_left *l)
{
    const char *texts[] = {l->construct, ": ",
                           l->excerpt,   l->excerpt[0] != '\0' ? ": " : "",
                           l->advice,    "\n"};
    fputs(path, to);
    (void)fprintf(to, ":%lld: ", (long long)l->line);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        fputs(texts[i], to);
}

/* What is left goes beside a diff to stderr, so that `patch` may read stdout. */
static void put_left(const usc_port_result *r, FILE *to)
{
    for (size_t i = 0; i < r->n_files; i++)
        for (size_t k = 0; k < r->file[i].n_left; k++) {
            const usc_port_left *l = &r->file[i].left[k];
            put_one_left(to, r->file[i].path, l);
        }
}

static void put_summary(const arguments *a, const usc_port_result *r, FILE *to)
{
    (void)fflush(stdout); /* what stands before it where both are one */
    put_left(r, to);
    (void)fprintf(
        to,
        "%lld file%s: %lld changed at %lld places, %lld renamed; %lld places "
        "left for you%s%s\n",
        (long long)r->n_seen, r->n_seen == 1 ? "" : "s", (long long)r->n_changed,
        (long long)r->n_changes, (long long)r->n_renamed, (long long)r->n_left,
        a->port.dry_run ? "; nothing was written" : ": ", a->port.dry_run ? "" : r->out);
}

static int show(const arguments *a, const usc_port_result *r)
{
    const int color = cli_color(a->color);
    usc_error err;
    if (color < 0) return CLI_TROUBLE;
    if (a->json && usc_port_json(r, &a->port, stdout, &err) != USC_OK)
        return cli_fail("%s", err.text);
    if (a->html && usc_port_html(r, &a->port, stdout, &err) != USC_OK)
        return cli_fail("%s", err.text);
    const bool page = a->json || a->html;
    if (!page && a->port.diff)
        for (size_t i = 0; i < r->n_files; i++) {
            const usc_port_file *f = &r->file[i];
            if (strcmp(f->path, f->to) != 0 && f->diff[0] == '\0')
                (void)printf("rename from %s\nrename to %s\n", f->path, f->to);
            put_diff(f->diff, color > 0);
        }
    (void)fflush(stdout);
    if (!page) put_summary(a, r, a->port.diff ? stderr : stdout);
    return r->n_left > 0 ? CLI_DIFFERS : CLI_SAME;
}

static int port_one(const arguments *a, const char *source)
{
    usc_port_result *r;
    usc_error err;
    int64_t n;
    if (a->revert) {
        if (usc_port_revert(source, &n, &err) != USC_OK) return cli_fail("%s", err.text);
        (void)printf("%s: %lld files are what they were\n", source, (long long)n);
        return CLI_SAME;
    }
    if (a->port.in_place && !a->port.dry_run && !a->force && has_changes(source))
        return cli_fail(
            "%s has changes that are not committed: commit them, or say --force", source);
    if (usc_port_tree(source, &a->port, &r, &err) != USC_OK)
        return cli_fail("%s", err.text);
    const int code = show(a, r);
    usc_port_free(r);
    return code;
}

int cmd_port(int argc, char **argv)
{
    arguments a;
    int code = CLI_SAME;
    cli_begin("port");
    if (!parse(argc, argv, &a)) return CLI_TROUBLE;
    for (int i = optind; i < argc; i++) {
        const int one = port_one(&a, argv[i]);
        if (one > code) code = one;
    }
    return cli_close_output(code);
}
