// SPDX-License-Identifier: Apache-2.0
// Which run may go on in OUT/result.db and which begins anew there; making the folders
// and taking them away again. Neighbours: result_write.c (rows), result_read.c.
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "result/result_db.h"

/* The texts of `run` for as long as `r` lives. */
static usc_status keep_run(usc_result *r, const usc_run *run, usc_error *err)
{
    const char *const from[] = {run->trace,      run->trace_id, run->device,
                                run->standard,   run->faults,   run->options,
                                run->environment};
    const char **const to[] = {&r->run.trace,      &r->run.trace_id, &r->run.device,
                               &r->run.standard,   &r->run.faults,   &r->run.options,
                               &r->run.environment};
    for (size_t i = 0; i < sizeof from / sizeof from[0]; i++) {
        const char *text = from[i] != NULL ? from[i] : "";
        char *copy = usc_arena_take(&r->run_texts, strlen(text) + 1);
        if (copy == NULL)
            return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", r->folder);
        memcpy(copy, text, strlen(text) + 1);
        *to[i] = copy;
    }
    r->run.goes_on = run->goes_on;
    return USC_OK;
}

/* ---- beginning ---- */

static usc_status set_key(usc_result *r, const char *key, const char *value,
                          usc_error *err)
{
    return usc_db_put(&r->db, USC_RESULT_SQL_SET_RUN, err, "ss", key, value);
}

static usc_status put_run(usc_result *r, usc_error *err)
{
    char created[32];
    struct tm utc;
    const time_t now = time(NULL);
    usc_run_field fields[USC_N_RUN_FIELDS];
    gmtime_r(&now, &utc);
    strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", &utc);
    usc_run_fields(&r->run, fields);
    usc_status st = set_key(r, "format", "ulpscope-result", err);
    if (st == USC_OK) st = set_key(r, "created", created, err);
    if (st == USC_OK) st = set_key(r, "state", "running", err);
    for (int i = 0; i < USC_N_RUN_FIELDS && st == USC_OK; i++)
        st = set_key(r, fields[i].key, fields[i].value, err);
    return st;
}

usc_status usc_result_begin(usc_result *r, usc_error *err)
{
    static const char clear[] = "DELETE FROM metric; DELETE FROM example;"
                                "DELETE FROM verdict; DELETE FROM run";
    usc_status st = usc_db_exec(&r->db, "BEGIN", "beginning", err);
    if (st != USC_OK) return st;
    st = usc_db_exec(&r->db, clear, "clearing", err);
    if (st == USC_OK) st = put_run(r, err);
    if (st == USC_OK) st = usc_db_exec(&r->db, "COMMIT", "committing", err);
    if (st == USC_OK)
        r->stale = false;
    else
        (void)sqlite3_exec(r->db.handle, "ROLLBACK", NULL, NULL, NULL);
    return st;
}

/* ---- going on, or not ---- */

static usc_status has_value(usc_result *r, const char *key, const char *value, bool *out,
                            usc_error *err)
{
    const char *there;
    const usc_status st = usc_result_find(r, key, &there, err);
    *out = there != NULL && strcmp(there, value) == 0;
    return st;
}

/* Says what OUT holds, which is of something else altogether: of files (those have no
 * environment) or of a trace. */
static usc_status refuse_other(usc_result *r, bool finished, usc_error *err)
{
    static const char *const keys[] = {"trace", "device"};
    char text[2][160] = {"", ""};
    const char *there;
    bool files = false;
    usc_status st = has_value(r, "environment", "{}", &files, err);
    for (int i = 0; i < 2 && st == USC_OK; i++) {
        st = usc_result_find(r, keys[i], &there, err);
        if (st == USC_OK && there != NULL)
            (void)snprintf(text[i], sizeof text[i], "%s", there);
    }
    if (st != USC_OK) return st;
    const char *of = text[files ? 1 : 0], *on = text[files ? 0 : 1];
    return usc_error_set(err, USC_E_EXISTS, -1,
                         "%s: holds another run%s: a %s of %s %s %s", r->folder,
                         finished ? "" : ", which was cut short",
                         files ? "judgement" : "check", of, files ? "by" : "on", on);
}

/* USC_E_EXISTS where OUT holds another run; `err` tells then which field differs. A
 * finished run is replaced by the same command, also when the trace was captured again
 * since. */
static usc_status compare_run(usc_result *r, bool finished, usc_error *err)
{
    usc_run_field fields[USC_N_RUN_FIELDS];
    usc_run_fields(&r->run, fields);
    bool same_path = false;
    usc_status st = has_value(r, "trace", r->run.trace, &same_path, err);
    for (int i = 0; i < USC_N_RUN_FIELDS && st == USC_OK; i++) {
        const char *key = fields[i].key, *is = key[strlen(key) - 1] == 's' ? "are" : "is";
        const char *there;
        if (!fields[i].compared) continue;
        if (finished && same_path && strcmp(key, "trace_id") == 0) continue;
        st = usc_result_find(r, key, &there, err);
        if (st != USC_OK) return st;
        if (there != NULL && strcmp(there, fields[i].value) == 0) continue;
        if (!same_path && strcmp(key, "trace_id") == 0)
            return refuse_other(r, finished, err);
        return usc_error_set(err, USC_E_EXISTS, -1,
                             "%s: holds another run%s: its %s %s '%.120s', not '%.120s'",
                             r->folder, finished ? "" : ", which was cut short", key, is,
                             there != NULL ? there : "", fields[i].value);
    }
    return st;
}

static usc_status has_no_verdict(usc_result *r, bool *out, usc_error *err)
{
    const int64_t *calls;
    int64_t n;
    const usc_status st = usc_result_done(r, &calls, &n, err);
    *out = st == USC_OK && n == 0;
    return st;
}

/* Goes on in the database at `path`, which exists, or marks what it holds as stale. */
static usc_status go_on(usc_result *r, const char *path, bool force, usc_error *err)
{
    bool unfinished;
    /* Refuses what is no database before SQLite would take a short file for an empty. */
    usc_status st = usc_db_unfinished(path, &unfinished, err);
    if (st == USC_OK) st = usc_db_open_writable(&r->db, &usc_result_kind, path, err);
    if (st == USC_OK) st = usc_db_check(&r->db, err);
    if (st != USC_OK) return st;
    bool finished = false, anew = false;
    st = has_value(r, "state", "done", &finished, err);
    if (st == USC_OK) st = has_no_verdict(r, &anew, err);
    anew |= force;
    if (st == USC_OK && r->run.goes_on) finished = false;
    if (st == USC_OK && !anew) st = compare_run(r, finished, err);
    r->stale = st == USC_OK && (anew || finished);
    return st;
}

static void remove_database(const char *path)
{
    static const char *const suffix[] = {"", "-wal", "-shm", "-journal"};
    char name[USC_PATH_SIZE + 16];
    for (size_t i = 0; i < sizeof suffix / sizeof suffix[0]; i++) {
        snprintf(name, sizeof name, "%s%s", path, suffix[i]);
        unlink(name);
    }
}

/* ---- the folder ---- */

/* Makes the folder and those above it that are missing; counts them. */
static usc_status make_folders(usc_result *r, usc_error *err)
{
    char path[USC_PATH_SIZE];
    snprintf(path, sizeof path, "%s", r->folder);
    for (char *at = path + 1;; at++) {
        if (*at != '/' && *at != '\0') continue;
        const char was = *at;
        *at = '\0';
        const bool made = mkdir(path, 0777) == 0;
        const int why = made ? 0 : errno; /* access() has its own */
        if (!made && why != EEXIST && !(why != ENOENT && access(path, F_OK) == 0))
            return usc_error_set(err, why == ENOENT ? USC_E_NOT_FOUND : USC_E_IO, -1,
                                 "%s: creating the folder: %s", r->folder, strerror(why));
        r->n_made += made;
        *at = was;
        if (was == '\0') return USC_OK;
    }
}

static void remove_folders(const char *folder, int n)
{
    char path[USC_PATH_SIZE];
    snprintf(path, sizeof path, "%s", folder);
    while (n > 0) {
        char *end = path + strlen(path);
        while (end > path + 1 && end[-1] == '/')
            *--end = '\0';
        if (rmdir(path) != 0) return;
        n--;
        char *slash = strrchr(path, '/');
        if (slash == NULL || slash == path) return;
        *slash = '\0';
    }
}

/* A trace's folder is no place for results: the next capture would refuse it. */
static usc_status refuse_trace(const char *folder, usc_error *err)
{
    char path[USC_PATH_SIZE];
    const usc_status st = usc_path_join(path, folder, "trace.db", err);
    if (st != USC_OK || access(path, F_OK) != 0) return st;
    return usc_error_set(err, USC_E_ARG, -1,
                         "%s: a trace is in it; name another folder for the results",
                         folder);
}

static usc_status open_run(usc_result *r, bool force, usc_error *err)
{
    char path[USC_PATH_SIZE];
    usc_status st = usc_path_join(path, r->folder, "result.db", err);
    if (st == USC_OK && access(path, F_OK) != 0) st = refuse_trace(r->folder, err);
    if (st == USC_OK) st = make_folders(r, err);
    if (st != USC_OK) return st;
    if (access(path, F_OK) == 0) {
        st = go_on(r, path, force, err);
        if (!force || (st != USC_E_CORRUPT && st != USC_E_VERSION)) return st;
        usc_db_close(&r->db);
        remove_database(path);
    }
    st = usc_db_create(&r->db, &usc_result_kind, path, err);
    r->created = st == USC_OK;
    return st == USC_OK ? usc_result_begin(r, err) : st;
}

usc_status usc_result_create(const char *out_folder, const usc_run *run, bool force,
                             usc_result **out, usc_error *err)
{
    assert(out_folder && run);
    assert(out);
    const usc_alloc *alloc = &usc_libc_alloc;
    *out = NULL;
    usc_result *r = alloc->resize(alloc->ctx, NULL, 0, sizeof *r);
    if (r == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "%s: no memory", out_folder);
    *r = (usc_result){.arena = {.alloc = *alloc},
                      .value = {.alloc = *alloc},
                      .run_texts = {.alloc = *alloc}};
    const int n = snprintf(r->folder, sizeof r->folder, "%s", out_folder);
    usc_status st = USC_OK;
    if (n < 0 || n >= USC_PATH_SIZE)
        st = usc_error_set(err, USC_E_ARG, -1, "path too long: %.64s...", out_folder);
    if (st == USC_OK && n == 0)
        st = usc_error_set(err, USC_E_ARG, -1, "the folder has no name");
    if (st == USC_OK) st = keep_run(r, run, err);
    if (st == USC_OK) st = open_run(r, force, err);
    r->writable = r->db.handle != NULL; /* also a refused one is closed as a plain file */
    if (st == USC_OK) {
        *out = r;
        r = NULL;
    }
    usc_result_discard(r);
    return st;
}

void usc_result_discard(usc_result *r)
{
    if (r == NULL) return;
    char path[USC_PATH_SIZE], folder[USC_PATH_SIZE];
    bool ours = false;
    if (r->created) (void)!has_no_verdict(r, &ours, NULL);
    const int n_made = r->n_made;
    const bool named = usc_path_join(path, r->folder, "result.db", NULL) == USC_OK;
    snprintf(folder, sizeof folder, "%s", r->folder);
    usc_result_close(r);
    if (ours && named) remove_database(path);
    remove_folders(folder, n_made);
}
