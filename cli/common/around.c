// SPDX-License-Identifier: Apache-2.0
// What `ulpscope capture` and `ulpscope run` put around a command before it starts, and
// find when it is over.
#include "common/around.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "common/stop.h"

int around_build_glue(const cli_python *python)
{
    static const char *const words[] = {"-m", "ulpscope.program.started",
                                        "ulpscope.program.glue", "intercept"};
    enum { N_WORDS = sizeof words / sizeof words[0] };
    char *argv[N_WORDS + 2] = {strdup(python->program)}, unread[8];
    for (size_t i = 0; i < N_WORDS; i++)
        argv[i + 1] = strdup(words[i]);
    int code = cli_run(argv, INT_MAX, true, unread, sizeof unread);
    for (size_t i = 0; i < N_WORDS + 1; i++)
        free(argv[i]);
    if (code != 0 && code != CLI_TROUBLE && cli_stop_asked() == 0)
        code = CLI_SAME; /* of its own kind; the run will tell whether it matters */
    return code;
}

bool around_make_reports(char path[PATH_MAX])
{
    const char *const folders[] = {getenv("TMPDIR"), getenv("TEMP"), getenv("TMP"),
                                   "/tmp", "/var/tmp"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        if (folders[i] == NULL || folders[i][0] == '\0') continue;
        char made[PATH_MAX]; /* the command may leave the folder that it is relative to */
        const int n = snprintf(made, sizeof made, "%s/ulpscope-XXXXXX", folders[i]);
        if ((size_t)n < sizeof made && mkdtemp(made) != NULL)
            return realpath(made, path) != NULL;
    }
    return cli_fail(
               "no folder for temporary files can be made: %s; set TMPDIR to one that "
               "can be written",
               strerror(errno)) == 0;
}

bool around_set_environment(const cli_python *python, const char *variable,
                            const char *reports)
{
    const char *before = getenv("PYTHONPATH");
    const bool has_path = before != NULL && *before != '\0';
    char *path = NULL;
    const bool ok = asprintf(&path, "%s/_bootstrap%s%s", python->package,
                             has_path ? ":" : "", has_path ? before : "") >= 0 &&
                    setenv("PYTHONPATH", path, 1) == 0 &&
                    setenv(variable, reports, 1) == 0;
    free(path);
    return ok || cli_fail("out of memory") == 0;
}

void around_read(const char *reports, around_seen *out)
{
    char path[PATH_MAX + NAME_MAX + 2] = "";
    *out = (around_seen){0};
    DIR *dir = opendir(reports);
    for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        out->n_python += strncmp(e->d_name, "python-", 7) == 0;
        out->n_torch += strncmp(e->d_name, "torch-", 6) == 0;
        if (strncmp(e->d_name, "failed-", 7) == 0)
            (void)snprintf(path, sizeof path, "%s/%s", reports, e->d_name);
    }
    if (dir != NULL) (void)closedir(dir);
    FILE *file = path[0] != '\0' ? fopen(path, "r") : NULL;
    size_t size = 0;
    if (file != NULL && getdelim(&out->not_started, &size, '\0', file) < 0) {
        free(out->not_started);
        out->not_started = NULL;
    }
    if (file != NULL) (void)fclose(file);
}
