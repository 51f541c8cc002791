// SPDX-License-Identifier: Apache-2.0
// What a trace survives: a writer killed at any time, a full disk, a read-only medium,
// cut and lost bytes. Damage: test_trace_damaged.c.
#include "trace_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "trace_sample.h"

/* ---- killed ---- */

#define KILL_COMMIT_MS 3
#define KILL_COMMIT_BYTES 30000

typedef struct report {
    int64_t call, ms;
} report;

static const usc_trace_options kill_options = {
    .shard_size = 200000, .commit_bytes = KILL_COMMIT_BYTES, .commit_ms = KILL_COMMIT_MS};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Writes calls until it is killed; reports each one when its tick has returned. */
static void write_forever(int to)
{
    usc_error err;
    usc_trace_writer *w;
    if (usc_trace_create(trace_path, &kill_options, &w, &err) != USC_OK) _exit(1);
    if (sample_begin(w, &err) != USC_OK) _exit(1);
    for (int64_t i = 1; i < 5000; i++) {
        if (sample_call(w, i, &err) != USC_OK) _exit(1);
        const report r = {i, now_ms()};
        if (usc_trace_tick(w, &err) != USC_OK) _exit(1);
        if (write(to, &r, sizeof r) != (ssize_t)sizeof r) _exit(1);
    }
    for (;;)
        pause();
}

/* Kills the writer after `n` reports; all reports that it sent are in `out`. */
static int64_t run_and_kill(int64_t n, report *out, int64_t capacity)
{
    int ends[2];
    int64_t seen = 0;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[0]);
        write_forever(ends[1]);
    }
    close(ends[1]);
    while (seen < n && read(ends[0], &out[seen], sizeof *out) == (ssize_t)sizeof *out)
        seen++;
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    while (seen < capacity && read(ends[0], &out[seen], sizeof *out) > 0)
        seen++;
    close(ends[0]);
    return seen;
}

/* How many calls must be there: those whose transaction was older than the window, or
 * behind which more than the promised bytes came, at the last tick that returned. */
static int64_t promised_calls(const report *r, int64_t n)
{
    int64_t promised = 0, bytes = 0;
    for (int64_t i = n - 1; i >= 0 && promised == 0; i--) {
        if (r[n - 1].ms - r[i].ms >= KILL_COMMIT_MS || bytes >= KILL_COMMIT_BYTES)
            promised = r[i].call;
        bytes += sample_size(r[i].call);
    }
    return promised;
}

static void keeps_what_it_promised_when_killed(void **state)
{
    (void)state;
    static report reports[6000];
    int64_t n_promised = 0;
    start_random();
    for (int round = 0; round < 100; round++) {
        const int64_t n = run_and_kill(random_below(300), reports, 6000);
        const int64_t promised = promised_calls(reports, n);
        n_promised += promised;
        if (n > 0) assert_true(verified_calls(trace_path) >= promised);
        sample_remove(trace_path);
    }
    assert_true(n_promised > 0);
}

/* ---- a writer that ends without finishing ---- */

static void leave_unfinished(int64_t n)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        usc_error err;
        usc_trace_writer *w;
        usc_status st = usc_trace_create(trace_path, NULL, &w, &err);
        if (st == USC_OK) st = sample_begin(w, &err);
        for (int64_t i = 1; i <= n && st == USC_OK; i++)
            st = sample_call(w, i, &err);
        if (st == USC_OK) st = usc_trace_commit(w, &err);
        if (st == USC_OK) st = sample_call(w, n + 1, &err); /* never committed */
        _exit(st == USC_OK ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
}

static bool exists(const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", trace_path, name);
    return access(path, F_OK) == 0;
}

static void is_sealed_by_the_next_open(void **state)
{
    (void)state;
    leave_unfinished(20);
    assert_true(exists("tensors-00000.safetensors.part"));
    assert_int_equal(verified_calls(trace_path), 20);
    assert_false(exists("tensors-00000.safetensors.part"));
    assert_false(exists("trace.db-wal"));
    assert_int_equal(verified_calls(trace_path), 20);
}

/* ---- a machine that died: rows are on the disk, bytes not all ---- */

/* Calls are in several shards, all committed, the last shard open. */
static void die_with_the_machine(int64_t n)
{
    const usc_trace_options options = {.shard_size = 8000};
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        usc_error err;
        usc_trace_writer *w;
        usc_status st = usc_trace_create(trace_path, &options, &w, &err);
        if (st == USC_OK) st = sample_begin(w, &err);
        for (int64_t i = 1; i <= n && st == USC_OK; i++)
            st = sample_call(w, i, &err);
        const usc_step_row step = {0, 1, n, true};
        if (st == USC_OK) st = usc_trace_put_step(w, &step, &err);
        if (st == USC_OK) st = usc_trace_commit(w, &err);
        _exit(st == USC_OK ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
}

typedef enum damage { ZERO_TAIL, ZERO_HEAD, CUT, SHORTER_THAN_HEADER, GONE } damage;

/* A shard is named by its number; the one with .part is the last. */
static void harm_shard(int index, bool part, damage what)
{
    char path[700];
    struct stat info;
    static const char zero[4096];
    snprintf(path, sizeof path, "%s/tensors-%05d.safetensors%s", trace_path, index,
             part ? ".part" : "");
    const int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &info), 0);
    if (what == ZERO_TAIL)
        assert_int_equal(pwrite(fd, zero, 4096, info.st_size - 4096), 4096);
    if (what == ZERO_HEAD) assert_int_equal(pwrite(fd, zero, 64, 262144), 64);
    if (what == CUT) assert_int_equal(ftruncate(fd, info.st_size - 100), 0);
    if (what == SHORTER_THAN_HEADER) assert_int_equal(ftruncate(fd, 1000), 0);
    if (what == GONE) assert_int_equal(unlink(path), 0);
    close(fd);
}

static void cut_the_journal(int64_t keep_of_100)
{
    char path[700];
    struct stat info;
    snprintf(path, sizeof path, "%s/trace.db-wal", trace_path);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(truncate(path, info.st_size * keep_of_100 / 100), 0);
}

/* Every call before the first lost one is whole, and the trace says what is not. */
static void is_cut_and_says_so(int64_t n, int64_t n_kept)
{
    char said[64];
    usc_error err = {0};
    usc_trace *t;
    assert_int_equal(verified_calls(trace_path), n_kept);
    assert_int_equal(usc_trace_open(trace_path, NULL, &t, &err), USC_OK);
    assert_string_equal(usc_trace_meta(t, "complete"), "0");
    const char *lost = usc_trace_meta(t, "lost");
    assert_non_null(lost);
    snprintf(said, sizeof said, "calls from %lld on were not yet on disk",
             (long long)n_kept + 1);
    assert_non_null(strstr(lost, said));
    snprintf(said, sizeof said, "%lld lost, %lld kept", (long long)(n - n_kept),
             (long long)n_kept);
    assert_non_null(strstr(usc_trace_meta(t, "lost"), said));
    usc_trace_close(t);
    assert_false(exists("trace.db-wal"));
}

/* The shards of 40 calls begin with calls 1, 22, 31 and 38. */
static void loses_only_what_was_not_on_disk(void **state)
{
    (void)state;
    static const struct {
        int shard;
        bool part;
        damage what;
        int64_t n_kept;
    } cases[] = {
        {3, true, ZERO_TAIL, 37},
        {3, true, ZERO_HEAD, 37},
        {3, true, CUT, 39},
        {3, true, GONE, 37},
        {3, true, SHORTER_THAN_HEADER, 37},
        {2, false, GONE, 30},
        {2, false, CUT, 36},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        die_with_the_machine(40);
        harm_shard(cases[i].shard, cases[i].part, cases[i].what);
        is_cut_and_says_so(40, cases[i].n_kept);
        sample_remove(trace_path);
    }
}

static void loses_whole_commits_where_the_journal_is_torn(void **state)
{
    (void)state;
    for (int64_t part = 0; part <= 100; part += 10) {
        die_with_the_machine(40);
        cut_the_journal(part);
        const int64_t n = verified_calls(trace_path);
        assert_true(n == 0 || n == 40);
        if (part == 100) assert_int_equal(n, 40);
        sample_remove(trace_path);
    }
}

/* Run as another user, to whom nothing there may be written. */
static void reads_without_writing(int64_t n)
{
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(chmod(trace_path, 0555), 0);
    const pid_t child = fork();
    if (child == 0) {
        usc_error err = {0};
        usc_trace *t = NULL;
        if (seteuid(65534) != 0) _exit(3);
        usc_status st = usc_trace_open(trace_path, NULL, &t, &err);
        const int64_t *found;
        int64_t n_found = 0;
        if (st == USC_OK) st = usc_trace_select(t, NULL, &found, &n_found, &err);
        if (st == USC_OK && n_found != n) _exit(2);
        for (int64_t i = 1; i <= n && st == USC_OK; i++)
            st = sample_verify(t, i, &err);
        if (st != USC_OK) print_error("%s\n", err.text);
        _exit(st == USC_OK ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    assert_true(exists("trace.db-wal"));
}

static void is_read_as_it_stands_where_nothing_can_be_written(void **state)
{
    (void)state;
    if (geteuid() != 0) skip();
    leave_unfinished(20);
    reads_without_writing(20);
    assert_true(exists("tensors-00000.safetensors.part"));
}

static void is_cut_in_memory_where_nothing_can_be_written(void **state)
{
    (void)state;
    if (geteuid() != 0) skip();
    die_with_the_machine(40);
    harm_shard(3, true, ZERO_TAIL);
    reads_without_writing(37);
    assert_true(exists("tensors-00003.safetensors.part"));
}

/* ---- disk full ---- */

/* 0: failed as it should, naming the file; the limit dies with this process. */
static int fill_the_disk(void)
{
    const struct rlimit limit = {700 * 1024, 700 * 1024};
    usc_error err = {0}, again = {0};
    usc_trace_writer *w;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    usc_status st = usc_trace_create(trace_path, &kill_options, &w, &err);
    if (st != USC_OK || sample_begin(w, &err) != USC_OK) return 1;
    for (int64_t i = 1; i < 5000 && st == USC_OK; i++) {
        st = sample_call(w, i, &err);
        if (st == USC_OK) st = usc_trace_tick(w, &err);
    }
    const usc_status after = usc_trace_commit(w, &again);
    const usc_status end = usc_trace_finish(w, true, &again);
    if (st != USC_E_IO || after != USC_E_IO || end != USC_E_IO) return 2;
    return strstr(err.text, trace_path) != NULL && strcmp(err.text, again.text) == 0 ? 0
                                                                                     : 3;
}

static void keeps_what_was_committed_when_the_disk_is_full(void **state)
{
    (void)state;
    const pid_t child = fork();
    if (child == 0) _exit(fill_the_disk());
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    assert_true(verified_calls(trace_path) > 10);
    usc_error err;
    usc_trace *t;
    assert_int_equal(usc_trace_open(trace_path, NULL, &t, &err), USC_OK);
    assert_string_equal(usc_trace_meta(t, "complete"), "0");
    usc_trace_close(t);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, sample_teardown)
    const struct CMUnitTest tests[] = {
        TEST(keeps_what_it_promised_when_killed),
        TEST(is_sealed_by_the_next_open),
        TEST(loses_only_what_was_not_on_disk),
        TEST(loses_whole_commits_where_the_journal_is_torn),
        TEST(is_read_as_it_stands_where_nothing_can_be_written),
        TEST(is_cut_in_memory_where_nothing_can_be_written),
        TEST(keeps_what_was_committed_when_the_disk_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
