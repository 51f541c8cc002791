// SPDX-License-Identifier: Apache-2.0
// Blocks whose memory other processes hold, too: each is a mapping of its own, whole, over a
// file without a name, whatever the guard. Neighbour: pool.c, which asks for one where this
// thread has said so, and gives its memory back as soon as it is free.
#include "blocks.h"

#include <ulpscope_sim/share.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static _Thread_local int wanted = USC_SIM_SHARE_NOT;

void usc_sim_share_next(int fd)
{
    wanted = fd;
}

bool usc_sim_share_wanted(int *fd)
{
    *fd = wanted;
    wanted = USC_SIM_SHARE_NOT;
    return *fd != USC_SIM_SHARE_NOT;
}

/* All of it at once: a page that is lacking later would be a signal and no sentence. */
static usc_status new_file(size_t size, int *out, usc_error *err)
{
    const int fd = memfd_create("ulpscope-sim", MFD_CLOEXEC);
    const int problem = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)size);
    *out = fd;
    if (problem == 0) return USC_OK;
    if (fd >= 0) close(fd);
    return usc_error_set(err, USC_E_IO, -1,
                         "sim: %zu bytes of shared memory: %s; free memory or open files",
                         size, strerror(problem));
}

static usc_status their_file(int fd, size_t size, int *out, usc_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || (size_t)st.st_size != size)
        return usc_error_set(err, USC_E_SHAPE, -1,
                             "sim: file %d is not the shared memory of a block of %zu "
                             "bytes",
                             fd, size);
    *out = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (*out >= 0) return USC_OK;
    return usc_error_set(err, USC_E_IO, -1, "sim: shared memory: %s; close files",
                         strerror(errno));
}

static usc_status map(segment *s, int file, usc_error *err)
{
    const int flags = MAP_SHARED | MAP_FIXED;
    if (mmap(s->base, s->size, PROT_NONE, flags, file, 0) != MAP_FAILED) return USC_OK;
    return usc_error_set(err, USC_E_IO, -1, "sim: shared memory: %s", strerror(errno));
}

usc_status usc_sim_share_back(segment *s, int fd, usc_error *err)
{
    int file = -1;
    use *own = malloc(sizeof *own);
    if (own == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "sim: no memory to share a block");
    usc_status st = fd == USC_SIM_SHARE_NEW ? new_file(s->size, &file, err)
                                            : their_file(fd, s->size, &file, err);
    if (st == USC_OK) {
        st = map(s, file, err);
        if (st != USC_OK) close(file);
    }
    if (st != USC_OK) {
        free(own);
        return st;
    }
    s->shared_fd = file;
    s->theirs = fd != USC_SIM_SHARE_NEW;
    s->first->protection = PROT_NONE;
    /* What its own stream has to run may use it still when it is freed: that is waited for,
     * since nobody gets it again from the cache of that stream. */
    *own = (use){.stream = {s->device, s->stream}, .next = s->first->uses};
    s->first->uses = own;
    return USC_OK;
}

void usc_sim_share_drop(segment *s)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    /* Where this fails the old mapping stays, closed, and is used by nobody. */
    if (mmap(s->base, s->size, PROT_NONE, flags, -1, 0) != MAP_FAILED)
        s->first->protection = PROT_NONE;
    close(s->shared_fd);
    s->shared_fd = -1;
    s->theirs = false;
}

int usc_sim_shared_fd(const void *address)
{
    usc_sim_memory_lock();
    const block *b = usc_sim_block_of(address);
    const int fd =
        b != NULL && b->live && b->user == address ? b->segment->shared_fd : -1;
    usc_sim_memory_unlock();
    return fd;
}

bool usc_sim_may_move(const void *address)
{
    usc_sim_memory_lock();
    const block *b = usc_sim_block_of(address);
    const bool may = b != NULL && b->live && b->user == address && b->n_pins == 0;
    usc_sim_memory_unlock();
    return may;
}
