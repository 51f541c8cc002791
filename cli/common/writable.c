// SPDX-License-Identifier: Apache-2.0
// Whether what is to be written at the end can be: asked before hours of work. Nothing is
// left behind.
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool cli_writable(const char *option, const char *path)
{
    struct stat info;
    const bool there = stat(path, &info) == 0;
    const int flags = O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC; /* a pipe may wait */
    const int file = open(path, flags, 0666);
    const int why = errno;
    if (file >= 0) (void)close(file);
    if (file >= 0 && !there) (void)unlink(path);
    return file >= 0 || why == ENXIO ||
           cli_fail("%s %s: %s", option, path, strerror(why)) == 0;
}

bool cli_makeable(const char *option, const char *folder)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s", folder) >= sizeof path) return true;
    for (char *at = path + 1;; at++) { /* the first that is missing shows it */
        if (*at != '/' && *at != '\0') continue;
        const char was = *at;
        *at = '\0';
        if (mkdir(path, 0777) == 0) return rmdir(path) == 0;
        const int why = errno;
        if (why != EEXIST && access(path, F_OK) != 0)
            return cli_fail("%s %s: %s", option, folder, strerror(why)) == 0;
        *at = was;
        if (was == '\0') return true;
    }
}
