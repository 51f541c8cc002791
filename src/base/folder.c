// SPDX-License-Identifier: Apache-2.0
// Making, flushing and removing folders.
#include "base/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void usc_folder_remove(const char *folder)
{
    char path[USC_PATH_SIZE];
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (usc_path_join(path, folder, e->d_name, NULL) != USC_OK) continue;
        if (unlink(path) != 0) usc_folder_remove(path);
    }
    if (dir != NULL) (void)closedir(dir);
    (void)rmdir(folder);
}

usc_status usc_folder_make(const char *folder, const char *name, usc_error *err)
{
    char path[USC_PATH_SIZE];
    if (snprintf(path, sizeof path, "%s%s", folder, name) >= (int)sizeof path)
        return usc_error_set(err, USC_E_ARG, -1, "path too long: %.64s...", folder);
    for (char *at = path + 1;; at++) {
        if (*at != '/' && *at != '\0') continue;
        const char was = *at;
        *at = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return usc_error_set(err, USC_E_IO, -1,
                                 "%s: %s; nothing was written: make room, or name "
                                 "another folder with -o",
                                 path, strerror(errno));
        *at = was;
        if (was == '\0') return USC_OK;
    }
}

usc_status usc_folder_part(const char *out, char *part, usc_error *err)
{
    size_t n = strlen(out);
    while (n > 1 && out[n - 1] == '/')
        n--;
    if (access(out, F_OK) == 0)
        return usc_error_set(err, USC_E_EXISTS, -1,
                             "%s is there already; name another folder with -o", out);
    if (snprintf(part, USC_PATH_SIZE, "%.*s.part", (int)n, out) >= USC_PATH_SIZE)
        return usc_error_set(err, USC_E_ARG, -1, "path too long: %.64s...", out);
    return USC_OK;
}

usc_status usc_folder_flush(const char *folder, usc_error *err)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool flushed = fd >= 0 && syncfs(fd) == 0;
    usc_status st = USC_OK;
    if (!flushed)
        st = usc_error_set(err, USC_E_IO, -1, "%s: %s", folder, strerror(errno));
    if (fd >= 0) (void)close(fd);
    return st;
}
