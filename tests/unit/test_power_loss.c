// SPDX-License-Identifier: Apache-2.0
// A machine that dies while it captures. Every write of a session is kept in a journal;
// from it a disk is made as it may be found after power was lost at some point: writes
// after a file's last flush are there, lost or torn. What was flushed must be read back,
// nothing may be half there, and no byte may be another one.
#include "capture_host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

enum {
    n_calls = 120,
    flush_every = 10,
    n_points = 200,
    max_events = 20000,
    max_files = 64,
    sector = 512
};

/* ---- the journal ---- */

typedef enum what { WRITE, CUT, FLUSH, NAME, REMOVE } what;

typedef struct event {
    what what;
    int file; /* number of the file, whatever its name */
    int64_t offset, size;
    unsigned char *bytes; /* WRITE */
    char name[80];        /* NAME: from now on */
    int64_t promised;     /* calls that were flushed when it happened */
} event;

static struct {
    char folder[96];
    atomic_bool on;
    event list[max_events];
    int n, n_files;
    ino_t inode[max_files];
    int64_t promised;
} journal;

static pthread_mutex_t journal_lock = PTHREAD_MUTEX_INITIALIZER;

/* Name of an open file of the trace, without folder; NULL: another one's. */
static const char *name_of(int fd, char *path, size_t size)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, size - 1);
    if (n <= 0) return NULL;
    path[n] = '\0';
    const size_t folder = strlen(journal.folder);
    if (strncmp(path, journal.folder, folder) != 0 || path[folder] != '/') return NULL;
    return path + folder + 1;
}

static event *add(what kind, int file)
{
    assert_true(journal.n < max_events);
    event *e = &journal.list[journal.n++];
    *e = (event){.what = kind, .file = file, .promised = journal.promised};
    return e;
}

/* Number of the file with this inode, which gets a name where it is new. */
static int file_of(ino_t inode, const char *name)
{
    for (int i = 0; i < journal.n_files; i++)
        if (journal.inode[i] == inode) return i;
    assert_true(journal.n_files < max_files);
    journal.inode[journal.n_files] = inode;
    snprintf(add(NAME, journal.n_files)->name, sizeof journal.list[0].name, "%s", name);
    return journal.n_files++;
}

static void note_fd(what kind, int fd, int64_t offset, int64_t size, const void *bytes)
{
    char path[256];
    struct stat info;
    if (!atomic_load(&journal.on)) return;
    pthread_mutex_lock(&journal_lock);
    const char *name = name_of(fd, path, sizeof path);
    if (name != NULL && fstat(fd, &info) == 0) {
        event *e = add(kind, file_of(info.st_ino, name));
        e->offset = offset;
        e->size = size;
        if (bytes != NULL) {
            e->bytes = malloc((size_t)size);
            memcpy(e->bytes, bytes, (size_t)size);
        }
    }
    pthread_mutex_unlock(&journal_lock);
}

static void note_name(what kind, const char *path, const char *to)
{
    struct stat info;
    if (!atomic_load(&journal.on) || stat(path, &info) != 0) return;
    pthread_mutex_lock(&journal_lock);
    const int file = file_of(info.st_ino, strrchr(path, '/') + 1);
    event *e = add(kind, file);
    if (to != NULL) snprintf(e->name, sizeof e->name, "%s", strrchr(to, '/') + 1);
    if (kind == REMOVE) journal.inode[file] = 0; /* the number may be given again */
    pthread_mutex_unlock(&journal_lock);
}

/* These stand in front of the C library's, for SQLite too. */
USC_API ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t offset)
{
    const ssize_t n = syscall(SYS_pwrite64, fd, bytes, size, offset);
    if (n > 0) note_fd(WRITE, fd, offset, n, bytes);
    return n;
}

USC_API ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    return pwrite64(fd, bytes, size, offset);
}

USC_API int ftruncate64(int fd, off64_t size)
{
    const int result = (int)syscall(SYS_ftruncate, fd, size);
    if (result == 0) note_fd(CUT, fd, 0, size, NULL);
    return result;
}

USC_API int ftruncate(int fd, off_t size)
{
    return ftruncate64(fd, size);
}

USC_API int posix_fallocate64(int fd, off64_t offset, off64_t size)
{
    return ftruncate64(fd, offset + size) == 0 ? 0 : errno;
}

USC_API int posix_fallocate(int fd, off_t offset, off_t size)
{
    return posix_fallocate64(fd, offset, size);
}

/* The journal alone is what counts as a disk here: nothing is waited for. */
USC_API int fsync(int fd)
{
    note_fd(FLUSH, fd, 0, 0, NULL);
    return 0;
}

USC_API int fdatasync(int fd)
{
    return fsync(fd);
}

USC_API int rename(const char *from, const char *to)
{
    note_name(NAME, from, to);
    return (int)syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
}

USC_API int unlink(const char *path)
{
    note_name(REMOVE, path, NULL);
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

/* ---- the run ---- */

/* Bytes of call `i`, which no other call has. */
static int64_t fill(float *a, int i)
{
    const int64_t n = 200 + i * 37 % 5000;
    for (int64_t k = 0; k < n; k++)
        a[k] = (float)(i * 8192 + k);
    return 4 * n;
}

static void flush_all(host *h)
{
    usc_error err = {0};
    if (usc_capture_flush(h->c, &err) != USC_OK) fail_msg("%s", err.text);
    DIR *dir = opendir(h->path);
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", h->path, e->d_name);
        const int fd = e->d_name[0] != '.' ? open(path, O_RDWR) : -1;
        if (fd < 0) continue;
        (void)fsync(fd);
        close(fd);
    }
    closedir(dir);
}

static void capture_calls(host *h)
{
    float *a = malloc(5200 * sizeof *a);
    host_prepare(h);
    h->options.trace.shard_size = 256 << 10;
    snprintf(journal.folder, sizeof journal.folder, "%s", h->path);
    atomic_store(&journal.on, true);
    host_open(h);
    host_storage s; /* which the session lets go of when it is closed */
    for (int i = 1; i <= n_calls; i++) {
        s = host_memory(a, fill(a, i));
        assert_int_equal(host_use(h, host_whole(h, &s)), i);
        s.dead = true; /* a new one of the same address */
        if (i % flush_every != 0) continue;
        flush_all(h);
        pthread_mutex_lock(&journal_lock);
        journal.promised = i;
        pthread_mutex_unlock(&journal_lock);
    }
    assert_int_equal(usc_capture_close(h->c, true, NULL), USC_OK);
    atomic_store(&journal.on, false);
    free(a);
}

/* ---- the disk afterwards ---- */

static uint64_t random_state;

static uint64_t draw(uint64_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % n;
}

typedef struct disk_file {
    char name[80];
    unsigned char *bytes;
    int64_t size;
    bool gone;
} disk_file;

static void set_size(disk_file *f, int64_t size)
{
    f->bytes = realloc(f->bytes, (size_t)size + 1);
    if (size > f->size) memset(f->bytes + f->size, 0, (size_t)(size - f->size));
    f->size = size;
}

/* A write that is torn ends after some sector, or begins after it. */
static void apply_write(disk_file *f, const event *e, bool torn)
{
    int64_t from = 0, to = e->size;
    const int64_t cut = (int64_t)draw((uint64_t)(e->size / sector) + 1) * sector;
    if (torn && draw(2) == 0)
        to = cut;
    else if (torn)
        from = cut;
    if (e->offset + to > f->size) set_size(f, e->offset + to);
    if (to > from)
        memcpy(f->bytes + e->offset + from, e->bytes + from, (size_t)(to - from));
}

static void apply(disk_file *f, const event *e, bool torn)
{
    if (e->what == WRITE) apply_write(f, e, torn);
    if (e->what == CUT) set_size(f, e->size);
    if (e->what == NAME) snprintf(f->name, sizeof f->name, "%s", e->name);
    if (e->what == REMOVE) f->gone = true;
}

static void write_file(const char *folder, const disk_file *f)
{
    char path[256];
    snprintf(path, sizeof path, "%.128s/%.79s", folder, f->name);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    if (f->size > 0) /* no bytes, no address of them */
        assert_int_equal(fwrite(f->bytes, 1, (size_t)f->size, out), f->size);
    fclose(out);
}

/* The folder as it may be found where power was lost before event `n`: names come and go
 * in the order in which they were given, as file systems keep it. `spared`: a flushed
 * write that is lost all the same; -1: none. */
static void make_disk(const char *folder, int n, int spared)
{
    static disk_file files[max_files];
    int flushed[max_files];
    for (int i = 0; i < journal.n_files; i++) {
        files[i] = (disk_file){.size = 0};
        flushed[i] = -1;
    }
    for (int i = 0; i < n; i++)
        if (journal.list[i].what == FLUSH) flushed[journal.list[i].file] = i;
    for (int i = 0; i < n; i++) {
        const event *e = &journal.list[i];
        const bool named = e->what == NAME || e->what == REMOVE;
        const uint64_t luck = named || i <= flushed[e->file] ? 0 : draw(3);
        if (luck < 2 && i != spared) apply(&files[e->file], e, luck == 1);
    }
    assert_int_equal(mkdir(folder, 0777), 0);
    for (int i = 0; i < journal.n_files; i++) {
        if (files[i].name[0] != '\0' && !files[i].gone) write_file(folder, &files[i]);
        free(files[i].bytes);
    }
}

/* Calls that a reader finds; each must have its bytes. -1: it cannot be opened. */
static int64_t calls_kept(const char *folder, float *a, usc_error *err)
{
    usc_trace *t = NULL;
    int64_t n = 0;
    if (usc_trace_open(folder, NULL, &t, err) != USC_OK) return -1;
    usc_call call;
    while (usc_trace_read_call(t, n + 1, &call, NULL) == USC_OK) {
        if (call.n_args == 0) break; /* its results and status come in a later commit */
        const int64_t size = fill(a, (int)++n);
        host_assert_bytes(t, &call.arg[0], a, size);
    }
    usc_trace_close(t);
    return n;
}

static void remove_folder(const char *folder)
{
    char command[160];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

static void test_what_was_flushed_survives_the_machine(void **state)
{
    (void)state;
    host h;
    float *a = malloc(5200 * sizeof *a);
    char folder[128];
    capture_calls(&h);
    random_state = (uint64_t)time(NULL);
    print_message("seed %llu, %d events\n", (unsigned long long)random_state, journal.n);
    snprintf(folder, sizeof folder, "%s/disk", h.folder);
    for (int i = 0; i < n_points; i++) {
        const int at = 1 + (int)draw((uint64_t)journal.n);
        const int64_t promised = journal.list[at - 1].promised;
        make_disk(folder, at, -1);
        usc_error err = {0};
        const int64_t kept = calls_kept(folder, a, &err);
        if (kept < promised && promised > 0) /* before that not even a trace is there */
            fail_msg("before event %d: %lld calls of %lld %s", at, (long long)kept,
                     (long long)promised, err.text);
        remove_folder(folder);
    }
    free(a);
    host_stop(&h, NULL);
}

/* The net above holds: a flushed blob that is not there costs its call. */
static void test_a_lost_flush_would_be_noticed(void **state)
{
    (void)state;
    float *a = malloc(5200 * sizeof *a);
    char folder[] = "/tmp/usc-disk-XXXXXX", disk[64];
    int blob = 0, at = 0;
    assert_non_null(mkdtemp(folder));
    snprintf(disk, sizeof disk, "%s/disk", folder);
    while (journal.list[at].promised < 2 * flush_every)
        at++;
    for (int i = 0; i < at; i++)
        if (journal.list[i].what == WRITE && journal.list[i].offset > 0 &&
            journal.list[i].promised == 0 && journal.list[i].size == fill(a, 5))
            blob = i;
    assert_int_not_equal(blob, 0);
    make_disk(disk, at, blob);
    assert_int_equal(calls_kept(disk, a, NULL), 4);
    free(a);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_flushed_survives_the_machine),
        cmocka_unit_test(test_a_lost_flush_would_be_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
