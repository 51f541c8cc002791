// SPDX-License-Identifier: Apache-2.0
// The folder that `ulpscope capture` writes into: taken for one capture at a time,
// replaced with --force, and at the end every trace in its place.
#include "capture/capture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ulpscope/trace.h>

#include "cli.h"

/* ---- what a trace consists of ---- */

static bool is_number(const char *text, const char *ending)
{
    const size_t n = strspn(text, "0123456789");
    return n > 0 && strcmp(text + n, ending) == 0;
}

/* A folder that holds a trace of its own. */
static bool is_inner(const char *name)
{
    return (strncmp(name, "rank-", 5) == 0 && is_number(name + 5, "")) ||
           (strncmp(name, "process-", 8) == 0 && is_number(name + 8, ""));
}

/* Goes over the parts of the traces in a folder; removes them where `removes`. False
 * after a sentence where it holds anything else; quietly where `says` is not set. */
static bool walk_parts(const char *folder, bool removes, bool says)
{
    char root[PATH_MAX], database[PATH_MAX];
    char *const roots[] = {root, NULL};
    (void)snprintf(root, sizeof root, "%s", folder);
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    bool ok = walk != NULL;
    for (FTSENT *e; ok && (e = fts_read(walk)) != NULL;) {
        if (e->fts_level == 0) continue;
        const int n = (int)(e->fts_pathlen - e->fts_namelen - 1); /* of the folder */
        const bool is_folder = e->fts_info == FTS_D || e->fts_info == FTS_DP;
        if (!(is_folder ? is_inner(e->fts_name)
                        : e->fts_info == FTS_F && usc_trace_is_file(e->fts_name))) {
            ok = false;
            if (says)
                cli_fail(
                    "%.*s holds %s, which is no part of a trace; name another folder "
                    "with -o",
                    n, e->fts_path, e->fts_name);
            continue;
        }
        (void)snprintf(database, sizeof database, "%.*s/trace.db", n, e->fts_path);
        if (!removes && !is_folder && !usc_trace_is_database(database)) {
            ok = false;
            if (says)
                cli_fail("%.*s is not a trace of ours; name another folder with -o", n,
                         e->fts_path);
        }
        if (removes && e->fts_info != FTS_D && remove(e->fts_accpath) != 0)
            ok = cli_fail("%s cannot be removed: %s", e->fts_path, strerror(errno)) == 0;
    }
    if (walk != NULL) (void)fts_close(walk);
    return ok;
}

void capture_remove(const char *path)
{
    char root[PATH_MAX];
    char *const roots[] = {root, NULL};
    (void)snprintf(root, sizeof root, "%s", path);
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    for (FTSENT *e; walk != NULL && (e = fts_read(walk)) != NULL;)
        if (e->fts_info != FTS_D) (void)remove(e->fts_accpath);
    if (walk != NULL) (void)fts_close(walk);
}

/* ---- before the command runs ---- */

static bool is_empty(const char *folder)
{
    DIR *dir = opendir(folder);
    bool empty = true;
    for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;)
        empty &= strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
    if (dir != NULL) (void)closedir(dir);
    return empty;
}

/* The folder above, which is made with all above it; false with errno. */
static bool make_above(const char *path, char *above, size_t size)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    while (n > 1 && path[n - 1] == '/')
        n--;
    if (n == 0) return snprintf(above, size, ".") > 0;
    (void)snprintf(above, size, "%.*s", (int)n, path);
    struct stat info;
    if (stat(above, &info) == 0) {
        errno = ENOTDIR;
        return S_ISDIR(info.st_mode);
    }
    char higher[PATH_MAX];
    return make_above(above, higher, sizeof higher) &&
           (mkdir(above, 0777) == 0 || errno == EEXIST);
}

bool capture_folder_check(const char *path, bool force)
{
    struct stat info;
    char above[PATH_MAX];
    const bool there = stat(path, &info) == 0;
    if (strlen(path) + NAME_MAX >= PATH_MAX)
        return cli_fail("%.40s...: a path of that length cannot be used", path) == 0;
    if (there && !S_ISDIR(info.st_mode))
        return cli_fail("%s is a file; name another folder with -o", path) == 0;
    if (there && !is_empty(path)) {
        if (force) {
            if (!walk_parts(path, false, true)) return false;
        } else {
            return cli_fail("%s exists and is not empty; %s, -o names another", path,
                            walk_parts(path, false, false)
                                ? "--force replaces the trace in it"
                                : "remove it") == 0;
        }
    }
    if (!make_above(path, above, sizeof above))
        return cli_fail("%s cannot be made (%s: %s); name another folder with -o", path,
                        strerror(errno), above) == 0;
    const char *folder = there ? path : above;
    if (access(folder, W_OK) == 0) return true;
    return cli_fail("%s: no permission to write; name another folder with -o", folder) ==
           0;
}

/* False after a sentence where another holds it; some network file systems have no locks.
 */
static bool lock(const char *path, int folder)
{
    if (flock(folder, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK && errno != EACCES) return true;
    return cli_fail("%s: another capture is writing into it; name another folder with -o",
                    path) == 0;
}

bool capture_folder_take(capture_folder *f, const char *path, bool force)
{
    *f = (capture_folder){.path = path, .lock = -1};
    f->made = mkdir(path, 0777) == 0;
    f->lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = true;
    if (f->lock < 0 || realpath(path, f->real) == NULL)
        ok = cli_fail("%s cannot be used: %s; name another folder with -o", path,
                      strerror(errno)) == 0;
    else if (!lock(path, f->lock))
        ok = false;
    else if (!is_empty(path) && !force)
        ok = cli_fail("%s: another capture has written into it meanwhile; name another "
                      "folder with -o",
                      path) == 0;
    else if (!is_empty(path))
        ok = walk_parts(path, false, true) && walk_parts(path, true, true);
    if (!ok) capture_folder_leave(f);
    return ok;
}

void capture_folder_leave(capture_folder *f)
{
    if (f->made) (void)rmdir(f->path); /* it stays if it holds something */
    if (f->lock >= 0) (void)close(f->lock);
    f->lock = -1;
}

/* ---- after it ---- */

/* How many calls a trace holds, 0 where it cannot be read. */
static int64_t calls_in(const char *path)
{
    const usc_trace_filter all = {.step = -1};
    const int64_t *sequences;
    int64_t n = 0;
    usc_trace *trace = NULL;
    if (usc_trace_open(path, NULL, &trace, NULL) == USC_OK &&
        usc_trace_select(trace, &all, &sequences, &n, NULL) != USC_OK)
        n = 0;
    usc_trace_close(trace);
    return n;
}

static bool has_place(const capture_folder *f, const usc_launch_report *r, char *path,
                      const char *file)
{
    return r->place != NULL &&
           snprintf(path, PATH_MAX, "%s/%s%s", f->real, r->place, file) < PATH_MAX;
}

/* What decides between the traces of one rank; without calls there is none to keep. */
static bool is_better(const usc_launch_report *a, const usc_launch_report *b)
{
    if (a->n_calls == 0) return false;
    if (b == NULL) return true;
    const bool a_steps = a->finished && !a->whole, b_steps = b->finished && !b->whole;
    return a_steps != b_steps ? a_steps : a->n_calls > b->n_calls;
}

/* Puts a trace where that of its rank is kept: TRACE itself, or TRACE/rank-N. */
static void place(const capture_folder *f, const char *from, int64_t rank, int64_t world)
{
    char to[32];
    if (world > 1) {
        (void)snprintf(to, sizeof to, "rank-%lld", (long long)rank);
        (void)renameat(AT_FDCWD, from, f->lock, to);
        return;
    }
    for (int last = 0; last < 2; last++) { /* a trace is there once its trace.db is */
        DIR *dir = opendir(from);
        for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;)
            if (e->d_name[0] != '.' && (strcmp(e->d_name, "trace.db") == 0) == last)
                (void)renameat(dirfd(dir), e->d_name, f->lock, e->d_name);
        if (dir != NULL) (void)closedir(dir);
    }
    (void)rmdir(from);
}

/* Whether a process recorded without knowing its place; `path` is where. */
static bool is_loose(const capture_folder *f, const usc_launch_report *r, char *path)
{
    return r->loose && has_place(f, r, path, "") && is_inner(r->place) &&
           cli_is_folder(path);
}

/* The best trace of that rank; NULL where none is worth keeping. */
static const usc_launch_report *best_of(const capture_folder *f,
                                        const usc_launch_reports *reports, int64_t rank,
                                        int64_t world)
{
    char path[PATH_MAX];
    const usc_launch_report *best = NULL;
    for (int64_t i = 0; i < reports->n; i++) {
        const usc_launch_report *r = &reports->report[i];
        if (r->rank == rank && r->world == world && is_loose(f, r, path) &&
            is_better(r, best))
            best = r;
    }
    return best;
}

/* The size of the job; calls of a process that did not live to tell are counted. */
static int64_t world_of(const capture_folder *f, usc_launch_reports *reports)
{
    int64_t world = 1;
    char path[PATH_MAX];
    for (int64_t i = 0; i < reports->n; i++) {
        usc_launch_report *r = &reports->report[i];
        if (!is_loose(f, r, path)) continue;
        if (r->world > world) world = r->world;
        if (!r->counted) r->n_calls = calls_in(path);
        r->counted = true;
    }
    return world;
}

bool capture_folder_settle(const capture_folder *f, usc_launch_reports *reports)
{
    char path[PATH_MAX];
    const int64_t world = world_of(f, reports);
    bool *kept = calloc((size_t)reports->n + 1, sizeof *kept), any_kept = false;
    for (int64_t i = 0; kept != NULL && i < reports->n; i++) {
        const usc_launch_report *r = &reports->report[i];
        kept[i] = is_loose(f, r, path) && best_of(f, reports, r->rank, world) == r;
        any_kept |= kept[i];
    }
    int64_t n = 0;
    bool holds = false;
    for (int64_t i = 0; kept != NULL && i < reports->n; i++) {
        usc_launch_report r = reports->report[i];
        if (kept[i]) {
            (void)is_loose(f, &r, path);
            place(f, path, r.rank, world);
            holds = true;
        } else if (is_loose(f, &r, path)) {
            capture_remove(path);
            r.place = NULL;
        } else {
            holds |= has_place(f, &r, path, "/trace.db") && access(path, F_OK) == 0;
        }
        if (!r.loose || r.place != NULL || (!any_kept && r.error != NULL))
            reports->report[n++] = r;
    }
    if (kept != NULL) reports->n = n;
    free(kept);
    return holds;
}

void capture_folder_drop_empty(const capture_folder *f, const usc_launch_reports *reports)
{
    bool any = false;
    for (int64_t i = 0; i < reports->n; i++)
        any |= !reports->report[i].finished || reports->report[i].n_calls > 0;
    if (reports->n > 0 && !any) (void)walk_parts(f->real, true, false);
}
