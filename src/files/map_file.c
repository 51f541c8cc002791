// SPDX-License-Identifier: Apache-2.0
// Maps files; see map_file.h.
#include "files/map_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

usc_status usc_map_file(const char *path, void **bytes, int64_t *size, usc_error *err)
{
    struct stat info;
    *bytes = NULL;
    *size = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return usc_error_set(err, errno == ENOENT ? USC_E_NOT_FOUND : USC_E_IO, -1,
                             "%s: %s", path, strerror(errno));
    usc_status st = USC_OK;
    void *map = MAP_FAILED;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        st = usc_error_set(err, USC_E_IO, -1, "%s: no plain file", path);
    else if (info.st_size == 0)
        st = usc_error_set(err, USC_E_CORRUPT, 0, "%s: the file is empty", path);
    else
        map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (st == USC_OK && map == MAP_FAILED)
        st =
            usc_error_set(err, USC_E_IO, -1, "%s: mapping it: %s", path, strerror(errno));
    (void)close(fd);
    if (st != USC_OK) return st;
    *bytes = map;
    *size = info.st_size;
    return USC_OK;
}
