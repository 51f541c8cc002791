// SPDX-License-Identifier: Apache-2.0
// See env_around.h. Neighbours: around.h (how the command's processes find us),
// python/ulpscope/program/env_facts.py (what they write).
#include "env/env_around.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "capture/capture.h"
#include "cli.h"
#include "common/around.h"

static bool write_families(const char *reports, const char *const *families)
{
    char path[PATH_MAX + 16];
    (void)snprintf(path, sizeof path, "%s/families", reports);
    FILE *file = fopen(path, "w");
    bool ok = file != NULL;
    for (; ok && *families != NULL; families++)
        ok = fprintf(file, "%s\n", *families) >= 0;
    if (file != NULL) ok &= fclose(file) == 0;
    return ok || cli_fail("%s: %s", path, strerror(errno)) == 0;
}

/* The first by rank, then by process. False: none told. */
static bool read_told(const char *reports, char *out, size_t size)
{
    char pattern[PATH_MAX + 16];
    glob_t found = {0};
    size_t n = 0;
    (void)snprintf(pattern, sizeof pattern, "%s/facts-*", reports);
    FILE *file =
        glob(pattern, 0, NULL, &found) == 0 ? fopen(found.gl_pathv[0], "r") : NULL;
    if (file != NULL) {
        n = fread(out, 1, size - 1, file);
        (void)fclose(file);
    }
    out[n] = '\0';
    globfree(&found);
    return n > 0;
}

static bool never(void *ctx)
{
    (void)ctx;
    return false;
}

static int say_untold(const char *reports, char *const *command)
{
    around_seen seen;
    around_read(reports, &seen);
    fputs("ulpscope env: nothing was told: ", stderr);
    if (seen.not_started != NULL)
        fputs(seen.not_started, stderr);
    else if (!around_put_unseen(stderr, &seen, command, "ULPSCOPE_ENV"))
        fputs("no process that had torch ended by Python's own exit", stderr);
    fputc('\n', stderr);
    free(seen.not_started);
    return CLI_TROUBLE;
}

int env_around(char **command, const char *const *families, char *out, size_t size)
{
    static cli_python python;
    char reports[PATH_MAX];
    capture_child child;
    usc_error err;
    int code = CLI_TROUBLE;
    if (!capture_can_run(command[0])) return CLI_TROUBLE;
    if (!cli_python_find(&python, &err)) return cli_fail("%s", err.text);
    if (!around_make_reports(reports)) return CLI_TROUBLE;
    if (write_families(reports, families) &&
        around_set_environment(&python, "ULPSCOPE_ENV", reports) &&
        capture_child_start(&child, command)) {
        const int status = capture_child_wait(&child, never, NULL);
        code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        if (!read_told(reports, out, size)) code = say_untold(reports, command);
    }
    capture_remove(reports);
    return code;
}
