// SPDX-License-Identifier: Apache-2.0
// May a run that cannot go on where another one stopped take a folder OUT for its own?
// Neighbour: result_run.c, which asks the same of runs that can.
#include <assert.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "result/result_db.h"

/* One folder. USC_OK where there are no results in it. */
static usc_status claim(const char *folder, const char *kind, usc_error *err)
{
    usc_result *r = NULL;
    const char *trace = NULL;
    char path[USC_PATH_SIZE];
    struct stat found;
    usc_status st = usc_path_join(path, folder, "result.db", err);
    if (st != USC_OK || stat(path, &found) != 0) return st;
    st = usc_result_open(folder, &r, err);
    if (st == USC_OK) st = usc_result_find(r, "trace", &trace, err);
    const bool ours = trace != NULL && strncmp(trace, kind, strlen(kind)) == 0;
    if (st == USC_OK && !ours)
        st = usc_error_set(err, USC_E_EXISTS, -1,
                           "%s: holds the results of another run, of the trace '%.120s'",
                           folder, trace != NULL ? trace : "");
    usc_result_close(r);
    return st;
}

/* The folders of ranks in it. */
static usc_status claim_ranks(const char *folder, const char *kind, usc_error *err)
{
    usc_status st = USC_OK;
    char path[USC_PATH_SIZE];
    DIR *dir = opendir(folder);
    for (const struct dirent *e; st == USC_OK && dir != NULL && (e = readdir(dir));) {
        if (strncmp(e->d_name, "rank-", 5) != 0) continue;
        st = usc_path_join(path, folder, e->d_name, err);
        if (st == USC_OK) st = claim(path, kind, err);
    }
    if (dir != NULL) (void)closedir(dir);
    return st;
}

usc_status usc_result_claim(const char *out_folder, const char *kind, usc_error *err)
{
    assert(out_folder && kind);
    struct stat found;
    if (stat(out_folder, &found) != 0) return USC_OK;
    if (!S_ISDIR(found.st_mode))
        return usc_error_set(err, USC_E_EXISTS, -1, "%s: is a file, not a folder",
                             out_folder);
    const usc_status st = claim(out_folder, kind, err);
    return st == USC_OK ? claim_ranks(out_folder, kind, err) : st;
}
