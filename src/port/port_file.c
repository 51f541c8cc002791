// SPDX-License-Identifier: Apache-2.0
// Files read and written. Neighbours: port_write.c and port_in_place.c, which say where.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "port/port_tree.h"

static usc_status refused(const char *path, usc_error *err)
{
    return usc_error_set(err, USC_E_IO, -1, "%s: %s", path, strerror(errno));
}

usc_status usc_port_read(const char *path, usc_arena *arena, char **bytes, size_t *size,
                         struct stat *about, usc_error *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, about) != 0) {
        const usc_status st = refused(path, err);
        if (fd >= 0) (void)close(fd);
        return st;
    }
    *size = 0;
    const size_t room = (size_t)about->st_size;
    usc_status st = USC_OK;
    *bytes = usc_arena_take(arena, room + 1);
    if (*bytes == NULL) st = usc_no_memory(path, err);
    while (st == USC_OK && *size < room) {
        const ssize_t n = read(fd, *bytes + *size, room - *size);
        if (n < 0 && errno != EINTR) st = refused(path, err);
        if (n == 0) break;
        if (n > 0) *size += (size_t)n;
    }
    if (st == USC_OK) (*bytes)[*size] = '\0';
    (void)close(fd);
    return st;
}

usc_status usc_port_write_file(const char *path, const char *bytes, size_t size,
                               mode_t mode, usc_error *err)
{
    struct stat about;
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode & 0777);
    if (fd < 0) return refused(path, err);
    usc_status st = USC_OK;
    for (size_t at = 0; at < size && st == USC_OK;) {
        const ssize_t n = write(fd, bytes + at, size - at);
        if (n < 0 && errno != EINTR) st = refused(path, err);
        if (n > 0) at += (size_t)n;
    }
    /* the umask may have taken what the source's file allows */
    if (st == USC_OK && fstat(fd, &about) == 0 &&
        (about.st_mode & 0777) != (mode & 0777) && fchmod(fd, mode & 0777) != 0)
        st = refused(path, err);
    if (close(fd) != 0 && st == USC_OK) st = refused(path, err);
    if (st != USC_OK) (void)unlink(path);
    return st;
}

usc_status usc_port_write(const char *path, const char *bytes, size_t size, mode_t mode,
                          usc_error *err)
{
    char part[USC_PATH_SIZE];
    if (snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part)
        return usc_error_set(err, USC_E_ARG, -1, "path too long: %.64s...", path);
    usc_status st = usc_port_write_file(part, bytes, size, mode, err);
    if (st == USC_OK && rename(part, path) != 0) {
        st = refused(path, err);
        (void)unlink(part);
    }
    return st;
}
