// SPDX-License-Identifier: Apache-2.0
// A result database that another process is writing: its writer locks it for itself alone
// (db/db.c), so the file and its journal are copied, and the copy is read.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "result/result_db.h"

/* What the journal begins with; salts in it change when its frames are written anew. */
typedef struct journal_head {
    unsigned char bytes[32];
    ssize_t n;
} journal_head;

enum { N_TRIES = 40, WAIT_MS = 25 };

static void nap(void)
{
    const struct timespec time = {.tv_nsec = WAIT_MS * 1000000L};
    (void)nanosleep(&time, NULL);
}

static bool read_head(const char *path, journal_head *out)
{
    memset(out, 0, sizeof *out);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    out->n = pread(fd, out->bytes, sizeof out->bytes, 0);
    (void)close(fd);
    return out->n >= 0;
}

static bool write_all(int fd, const char *bytes, ssize_t n)
{
    while (n > 0) {
        const ssize_t put = write(fd, bytes, (size_t)n);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        bytes += put;
        n -= put;
    }
    return true;
}

/* `wrong` tells a place that cannot be written, say a full disk, from a source that went.
 */
static bool copy_file(const char *from, const char *to, usc_error *wrong)
{
    static const size_t size = (size_t)1 << 20;
    char *buffer = malloc(size);
    const int in = open(from, O_RDONLY | O_CLOEXEC);
    const int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool ok = buffer != NULL && in >= 0 && out >= 0;
    for (ssize_t n = 1; ok && n > 0;) {
        n = read(in, buffer, size);
        if (n < 0 && errno == EINTR) continue;
        ok = n >= 0;
        if (ok && !write_all(out, buffer, n)) {
            ok = false;
            (void)usc_error_set(wrong, USC_E_IO, -1, "%s: %s", to, strerror(errno));
        }
    }
    if (in >= 0) (void)close(in);
    if (out >= 0) (void)close(out);
    free(buffer);
    return ok;
}

/* The database first, then the journal. Pages that the writer moves from the journal into
 * the database meanwhile are in both, as long as the journal was not begun anew. */
static bool copy_both(const char *path, const char *to, usc_error *wrong)
{
    char journal[USC_PATH_SIZE + 8], journal_to[USC_PATH_SIZE + 8];
    journal_head before, after;
    snprintf(journal, sizeof journal, "%s-wal", path);
    snprintf(journal_to, sizeof journal_to, "%s-wal", to);
    return read_head(journal, &before) && copy_file(path, to, wrong) &&
           copy_file(journal, journal_to, wrong) && read_head(journal, &after) &&
           before.n == after.n && memcmp(before.bytes, after.bytes, 32) == 0;
}

static bool make_place(char *out, size_t size)
{
    static const char *const places[] = {"/tmp", "/var/tmp", "/dev/shm", "."};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const int n = snprintf(out, size, "%s/ulpscope-XXXXXX", places[i]);
        if (n > 0 && (size_t)n < size && mkdtemp(out) != NULL) return true;
    }
    return false;
}

static void remove_place(const char *place, const char *copy)
{
    char journal[USC_PATH_SIZE + 8];
    snprintf(journal, sizeof journal, "%s-wal", copy);
    (void)unlink(copy);
    (void)unlink(journal);
    (void)rmdir(place);
}

usc_status usc_result_open_copy(usc_db *db, const char *path, usc_error *err)
{
    char place[USC_PATH_SIZE - 16], copy[USC_PATH_SIZE];
    usc_error wrong = {0};
    usc_status st = USC_E_BUSY;
    if (!make_place(place, sizeof place))
        return usc_error_set(err, USC_E_IO, -1,
                             "%s: in use by another process, and there is no place for a "
                             "copy in /tmp: %s",
                             path, strerror(errno));
    snprintf(copy, sizeof copy, "%s/result.db", place);
    for (int i = 0; i < N_TRIES && st == USC_E_BUSY && wrong.status == USC_OK; i++) {
        if (i > 0) nap();
        if (copy_both(path, copy, &wrong))
            st = usc_db_open_readable(db, &usc_result_kind, copy, true, err);
    }
    if (wrong.status != USC_OK)
        st = usc_error_set(err, USC_E_IO, -1, "%s", wrong.text);
    else if (st == USC_E_BUSY)
        st = usc_error_set(err, st, -1, "%s: in use by another process", path);
    remove_place(place, copy); /* SQLite has both open */
    return st;
}
