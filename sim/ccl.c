// SPDX-License-Identifier: Apache-2.0
// A communicator of simccl: its shared memory, how ranks meet, and what is said of one
// that does not come.
#include "ccl_shared.h"

#include "streams.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PREFIX "ulpscope-simccl-"
#define SLOTS_MAX ((size_t)64 << 20) /* of all ranks */
#define HALF_MAX ((size_t)1 << 20)
#define CHANNELS_MAX ((size_t)8 << 20) /* of all pairs */
#define PIECE_MAX ((size_t)128 << 10)
#define N_SPINS 200
#define LOOK_NS 20000000 /* while waiting: for who is gone, for an abort */

const char *usc_ccl_kind_name(usc_ccl_kind kind)
{
    static const char *const names[] = {
#define NAME(id, name) name,
        USC_CCL_KIND_LIST(NAME)
#undef NAME
    };
    return (unsigned)kind < USC_CCL_N_KINDS ? names[kind] : "";
}

const char *usc_ccl_op_name(usc_ccl_op op)
{
    static const char *const names[] = {
#define NAME(id, name) name,
        USC_CCL_OP_LIST(NAME)
#undef NAME
    };
    return (unsigned)op < USC_CCL_N_OPS ? names[op] : "";
}

void usc_ccl_set_timeout(usc_ccl *c, int64_t timeout_ns)
{
    c->timeout_ns = timeout_ns;
}

void usc_ccl_new_name(char name[USC_CCL_NAME_TEXT])
{
    uint64_t drawn[2] = {(uint64_t)usc_sim_now(), (uint64_t)getpid()};
    (void)!getrandom(drawn, sizeof drawn, GRND_NONBLOCK);
    snprintf(name, USC_CCL_NAME_TEXT, "/" PREFIX "%016llx%016llx",
             (unsigned long long)drawn[0], (unsigned long long)drawn[1]);
}

/* ---- where things lie ------------------------------------------------------------ */

static size_t up(size_t size, size_t to)
{
    return (size + to - 1) / to * to;
}

static size_t at_most(size_t size, size_t least, size_t most)
{
    size = size / 4096 * 4096;
    return size < least ? least : size > most ? most : size;
}

static void lay_out(usc_ccl *c)
{
    const size_t n = (size_t)c->size;
    c->half_size = at_most(SLOTS_MAX / (2 * n), (size_t)64 << 10, HALF_MAX);
    c->piece_size = at_most(CHANNELS_MAX / (2 * n * n), 4096, PIECE_MAX);
    c->announced_size = up(sizeof(ccl_announced) + 2 * n * sizeof(uint64_t), 64);
    c->channel_size = up(sizeof(ccl_channel), 64) + 2 * c->piece_size;
    c->announced_at = up(sizeof(ccl_shared), 64) + n * sizeof(ccl_place);
    c->slots_at = up(c->announced_at + 2 * n * c->announced_size, 4096);
    c->channels_at = c->slots_at + n * 2 * c->half_size;
    c->mapped_size = up(c->channels_at + n * n * c->channel_size, 4096);
}

ccl_place *ccl_place_of(const usc_ccl *c, int rank)
{
    return (ccl_place *)(c->base + up(sizeof(ccl_shared), 64)) + rank;
}

ccl_announced *ccl_announced_of(const usc_ccl *c, int rank, uint64_t n_calls)
{
    const size_t i = (size_t)(n_calls & 1) * (size_t)c->size + (size_t)rank;
    return (ccl_announced *)(c->base + c->announced_at + i * c->announced_size);
}

char *ccl_half_of(const usc_ccl *c, int rank, unsigned chunk)
{
    return c->base + c->slots_at + (2 * (size_t)rank + (chunk & 1)) * c->half_size;
}

ccl_channel *ccl_channel_of(const usc_ccl *c, int from, int to)
{
    const size_t i = (size_t)from * (size_t)c->size + (size_t)to;
    return (ccl_channel *)(c->base + c->channels_at + i * c->channel_size);
}

char *ccl_channel_half(const usc_ccl *c, ccl_channel *ch, unsigned piece)
{
    return (char *)ch + up(sizeof *ch, 64) + (piece & 1) * c->piece_size;
}

/* ---- who is there ---------------------------------------------------------------- */

/* Each rank holds a lock on its own byte of the file: the system takes it back when the
 * process ends, however it ends, and a forked child has none. */
static bool lock_byte(int fd, int rank)
{
    struct flock l = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    return fcntl(fd, F_SETLK, &l) == 0;
}

static bool byte_is_locked(int fd, int rank)
{
    struct flock l = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    return fcntl(fd, F_GETLK, &l) != 0 || l.l_type != F_UNLCK;
}

bool ccl_rank_lives(const usc_ccl *c, int rank)
{
    const int pid = atomic_load(&ccl_place_of(c, rank)->pid);
    return pid == 0 || pid == getpid() || byte_is_locked(c->fd, rank);
}

/* What ranks that were killed before all had met have left behind. */
static void sweep(void)
{
    DIR *dir = opendir("/dev/shm");
    const struct dirent *e;
    while (dir != NULL && (e = readdir(dir)) != NULL) {
        char name[sizeof e->d_name + 1];
        struct stat st;
        /* One that is young is never opened: its lock may be this process's own, which
         * closing the file would give back, or not be taken yet. */
        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0 ||
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
            time(NULL) - st.st_mtime < 60)
            continue;
        snprintf(name, sizeof name, "/%s", e->d_name);
        const int fd = shm_open(name, O_RDWR | O_CLOEXEC, 0);
        if (fd >= 0 && !byte_is_locked(fd, 0)) shm_unlink(name);
        if (fd >= 0) close(fd);
    }
    if (dir != NULL) closedir(dir);
}

/* ---- waiting --------------------------------------------------------------------- */

void ccl_wake(atomic_uint *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void usc_ccl_abort(usc_ccl *c, const char *why)
{
    ccl_shared *s = ccl_shared_of(c);
    unsigned none = 0;
    if (!atomic_compare_exchange_strong(&s->aborted, &none, 1)) return;
    snprintf(s->why, sizeof s->why, "%s", why);
    atomic_store(&s->aborted, 2);
    for (int i = 0; i < c->size; i++) {
        ccl_wake(&ccl_place_of(c, i)->arrived);
        for (int k = 0; k < c->size; k++) {
            ccl_wake(&ccl_channel_of(c, i, k)->written);
            ccl_wake(&ccl_channel_of(c, i, k)->read);
        }
    }
}

usc_status ccl_alive(const usc_ccl *c, usc_error *err)
{
    if (getpid() != c->pid)
        return usc_error_set(err, USC_E_UNSUPPORTED, -1,
                             "simccl: a communicator cannot be used in a forked child; "
                             "start children with 'spawn'");
    if (atomic_load(&ccl_shared_of(c)->aborted) != 2) return USC_OK;
    return usc_error_set(err, USC_E_IO, -1, "simccl: %s", ccl_shared_of(c)->why);
}

/* Where a rank is, in words: " (it is at broadcast number 6)". */
static void write_place(const usc_ccl *c, int rank, char *out, size_t size)
{
    const ccl_place *p = ccl_place_of(c, rank);
    const uint64_t n = atomic_load(&p->n_calls);
    if (atomic_load(&p->pid) == 0)
        snprintf(out, size, "it never joined");
    else if (n == 0)
        snprintf(out, size, "it has begun no collective yet");
    else
        snprintf(out, size, "the last it has begun is %s number %llu",
                 usc_ccl_kind_name((usc_ccl_kind)atomic_load(&p->kind)),
                 (unsigned long long)n);
}

static usc_status tell_missing(usc_ccl *c, int whose, const char *doing, bool gone,
                               usc_error *err)
{
    char at[128], why[CCL_WHY_TEXT];
    write_place(c, whose, at, sizeof at);
    if (gone)
        snprintf(why, sizeof why,
                 "rank %d has ended and cannot come to %s, where rank %d waits; %s",
                 whose, doing, c->rank, at);
    else
        snprintf(why, sizeof why,
                 "rank %d has not come to %s within %.3g s, where rank %d waits; %s",
                 whose, doing, 1e-9 * (double)c->timeout_ns, c->rank, at);
    usc_ccl_abort(c, why);
    return ccl_alive(c, err);
}

static bool reached(const atomic_uint *word, unsigned goal)
{
    return (int)(atomic_load_explicit(word, memory_order_acquire) - goal) >= 0;
}

usc_status ccl_await(usc_ccl *c, atomic_uint *word, unsigned goal, int whose,
                     const char *doing, usc_error *err)
{
    for (int i = 0; i < N_SPINS; i++)
        if (reached(word, goal)) return USC_OK;
    const int64_t start = usc_sim_now();
    const struct timespec look = {.tv_nsec = LOOK_NS};
    for (;;) {
        const unsigned now = atomic_load(word);
        if ((int)(now - goal) >= 0) return USC_OK;
        const usc_status st = ccl_alive(c, err);
        if (st != USC_OK) return st;
        const bool gone = !ccl_rank_lives(c, whose);
        /* It may have done its part and ended since. */
        if (reached(word, goal)) return USC_OK;
        if (gone || (c->timeout_ns > 0 && usc_sim_now() - start > c->timeout_ns))
            return tell_missing(c, whose, doing, gone, err);
        (void)syscall(SYS_futex, word, FUTEX_WAIT, now, &look, NULL, 0);
    }
}

usc_status ccl_meet(usc_ccl *c, const char *doing, usc_error *err)
{
    atomic_uint *mine = &ccl_place_of(c, c->rank)->arrived;
    const unsigned goal = ++c->n_met;
    atomic_store_explicit(mine, goal, memory_order_release);
    ccl_wake(mine);
    usc_status st = USC_OK;
    for (int i = 0; st == USC_OK && i < c->size; i++)
        if (i != c->rank)
            st = ccl_await(c, &ccl_place_of(c, i)->arrived, goal, i, doing, err);
    return st;
}

/* ---- opening --------------------------------------------------------------------- */

static usc_status no_room(const usc_ccl *c, int problem, usc_error *err)
{
    return usc_error_set(
        err, USC_E_IO, -1,
        "simccl: %zu MiB of shared memory for %d ranks: %s; make room in "
        "/dev/shm (in a container: --shm-size)",
        c->mapped_size >> 20, c->size, strerror(problem));
}

static usc_status make_memory(usc_ccl *c, const char *name, usc_error *err)
{
    sweep();
    c->fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (c->fd < 0) return no_room(c, errno, err);
    (void)lock_byte(c->fd, 0);
    const int problem = posix_fallocate(c->fd, 0, (off_t)c->mapped_size);
    if (problem == 0) return USC_OK;
    shm_unlink(name);
    return no_room(c, problem, err);
}

/* Rank 0 may not have made it yet. */
static usc_status find_memory(usc_ccl *c, const char *name, usc_error *err)
{
    const int64_t start = usc_sim_now();
    const struct timespec little = {.tv_nsec = 2000000};
    struct stat st;
    for (;;) {
        c->fd = shm_open(name, O_RDWR | O_CLOEXEC, 0);
        if (c->fd >= 0 && fstat(c->fd, &st) == 0 && (size_t)st.st_size >= c->mapped_size)
            return lock_byte(c->fd, c->rank) ? USC_OK : no_room(c, errno, err);
        if (c->fd >= 0) close(c->fd);
        c->fd = -1;
        if (c->timeout_ns > 0 && usc_sim_now() - start > c->timeout_ns)
            return usc_error_set(err, USC_E_IO, -1,
                                 "simccl: rank 0 has not opened the communicator within "
                                 "%.3g s, where rank %d waits",
                                 1e-9 * (double)c->timeout_ns, c->rank);
        nanosleep(&little, NULL);
    }
}

static usc_status map_and_meet(usc_ccl *c, usc_error *err)
{
    void *base = mmap(NULL, c->mapped_size, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
    if (base == MAP_FAILED) return no_room(c, errno, err);
    c->base = base;
    atomic_store(&ccl_place_of(c, c->rank)->pid, getpid());
    return ccl_meet(c, "the opening of the communicator", err);
}

usc_status usc_ccl_open(const usc_ccl_options *o, usc_ccl **out, usc_error *err)
{
    *out = NULL;
    if (o->size < 1 || o->size > USC_CCL_MAX_RANKS || o->rank < 0 || o->rank >= o->size ||
        o->name[0] != '/')
        return usc_error_set(
            err, USC_E_ARG, -1,
            "simccl: rank %d of %d under the name '%s'; ranks are 0 to %d", o->rank,
            o->size, o->name, USC_CCL_MAX_RANKS - 1);
    usc_ccl *c = calloc(1, sizeof *c);
    if (c == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1,
                             "simccl: no memory for a communicator");
    *c = (usc_ccl){
        .rank = o->rank,
        .size = o->size,
        .fd = -1,
        .pid = getpid(),
    };
    c->timeout_ns = o->timeout_ns;
    lay_out(c);
    usc_status st =
        o->rank == 0 ? make_memory(c, o->name, err) : find_memory(c, o->name, err);
    if (st == USC_OK) st = map_and_meet(c, err);
    if (o->rank == 0 && c->fd >= 0) shm_unlink(o->name);
    if (st == USC_OK)
        *out = c;
    else
        usc_ccl_close(c);
    return st;
}

void usc_ccl_close(usc_ccl *c)
{
    if (c == NULL) return;
    if (c->base != NULL) munmap(c->base, c->mapped_size);
    if (c->fd >= 0) close(c->fd);
    free(c->last.at);
    free(c);
}
