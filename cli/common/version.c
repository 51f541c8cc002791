// SPDX-License-Identifier: Apache-2.0
// `ulpscope --version`: program, library and what is compiled of the glue to torch, told
// from names in the cache (ulpscope.program.glue makes them): loading torch takes
// seconds.
#include "common/version.h"

#include "cli.h"

#include <ulpscope/version.h>

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const glues[] = {"intercept", "sim", "simccl"};
static const char begin[] = "torch-", ours[] = "-ulpscope-" USC_VERSION "-";

/* Where the glue is kept; false where there is no home and no name for another place. */
static bool cache_of(char *path, size_t size)
{
    const char *named = getenv("ULPSCOPE_CACHE"), *home = getenv("HOME");
    if (named != NULL && named[0] != '\0')
        return (size_t)snprintf(path, size, "%s", named) < size;
    return home != NULL && home[0] != '\0' &&
           (size_t)snprintf(path, size, "%s/.cache/ulpscope", home) < size;
}

/* The torch that a folder's glue is for; false where it is of another version of ours. */
static bool torch_of(const char *name, char *torch, size_t size)
{
    const char *end = strstr(name, ours);
    if (strncmp(name, begin, sizeof begin - 1) != 0 || end == NULL) return false;
    const int length = (int)(end - name) - (int)(sizeof begin - 1);
    return (size_t)snprintf(torch, size, "%.*s", length, name + sizeof begin - 1) < size;
}

/* The newest folder below `cache` that holds the glue `name`; false where none does. */
static bool newest(const char *cache, const char *name, char *folder, size_t size)
{
    DIR *dir = opendir(cache);
    if (dir == NULL) return false;
    time_t last = 0;
    bool found = false;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        char torch[256], path[PATH_MAX];
        struct stat at;
        if (!torch_of(e->d_name, torch, sizeof torch)) continue;
        const int n =
            snprintf(path, sizeof path, "%s/%s/usc_glue_%s.so", cache, e->d_name, name);
        if (n >= (int)sizeof path || stat(path, &at) != 0) continue;
        if (found && at.st_mtime < last) continue;
        found = (size_t)snprintf(folder, size, "%s", e->d_name) < size;
        last = at.st_mtime;
    }
    (void)closedir(dir);
    return found;
}

int cli_version(void)
{
    char cache[PATH_MAX];
    const bool has_cache = cache_of(cache, sizeof cache);
    puts("ulpscope " USC_VERSION);
    (void)printf("library        %s\n", usc_version());
    for (size_t i = 0; i < sizeof glues / sizeof glues[0]; i++) {
        char folder[NAME_MAX + 1], torch[256];
        (void)printf("glue %-9s ", glues[i]);
        if (has_cache && newest(cache, glues[i], folder, sizeof folder) &&
            torch_of(folder, torch, sizeof torch))
            (void)printf(USC_VERSION " for torch %s in %s/%s\n", torch, cache, folder);
        else
            puts("not compiled yet");
    }
    return cli_close_output(CLI_SAME);
}
