// SPDX-License-Identifier: Apache-2.0
// What a trace survives: a writer killed at any time, a full disk, a read-only medium,
// flipped and missing bytes; and that a trace of format 1 stays readable.
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

static char *folder, trace_path[600];
static uint64_t random_state;

static int make_folder(void **state)
{
    *state = folder = sample_folder();
    snprintf(trace_path, sizeof trace_path, "%s/t", folder);
    return 0;
}

static void start_random(void)
{
    const char *given = getenv("ULPSCOPE_TEST_SEED");
    random_state = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    print_message("ULPSCOPE_TEST_SEED=%llu\n", (unsigned long long)random_state);
}

static int64_t random_below(int64_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((random_state >> 33) % (uint64_t)n);
}

/* Number of whole calls 1..n of a trace that must open. */
static int64_t verified_calls(const char *path)
{
    usc_error err = {0};
    usc_trace *t;
    const int64_t *found;
    int64_t n;
    if (usc_trace_open(path, NULL, &t, &err) != USC_OK) fail_msg("%s", err.text);
    assert_int_equal(usc_trace_select(t, NULL, &found, &n, &err), USC_OK);
    for (int64_t i = 1; i <= n; i++)
        if (sample_verify(t, i, &err) != USC_OK) fail_msg("%s", err.text);
    usc_trace_close(t);
    return n;
}

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

/* ---- damage ---- */

typedef struct bytes {
    unsigned char *at;
    size_t n;
} bytes;

static bytes load(const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", trace_path, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    bytes b = {.at = malloc(1 << 20)};
    b.n = fread(b.at, 1, 1 << 20, f);
    fclose(f);
    return b;
}

static void store(const char *name, bytes b, size_t n)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", trace_path, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b.at, 1, n, f), n);
    fclose(f);
}

/* Reads everything; a failure must come with a sentence. */
static usc_status read_all(void)
{
    usc_error err = {0};
    usc_trace *t = NULL;
    const int64_t *found = NULL;
    int64_t n = 0;
    usc_status st = usc_trace_open(trace_path, NULL, &t, &err);
    if (st == USC_OK) st = usc_trace_select(t, NULL, &found, &n, &err);
    for (int64_t i = 1; i <= 40 && st == USC_OK; i++) {
        usc_call call;
        const void *data;
        int64_t size, sum = 0;
        st = usc_trace_read_call(t, i, &call, &err);
        for (int k = 0; k < call.n_args && st == USC_OK; k++) {
            st = usc_trace_blob(t, call.arg[k].blob, &data, &size, &err);
            for (int64_t b = 0; st == USC_OK && b < size; b++)
                sum += ((const unsigned char *)data)[b];
            if (st == USC_OK) st = usc_trace_read_call(t, i, &call, &err);
        }
        assert_true(sum >= 0);
    }
    if (st != USC_OK) assert_true(err.text[0] != '\0');
    usc_trace_close(t);
    return st;
}

static void never_crashes_on_damaged_files(void **state)
{
    (void)state;
    usc_error err;
    static const char *const names[] = {"trace.db", "tensors-00000.safetensors"};
    int n_refused = 0;
    start_random();
    assert_int_equal(sample_write(trace_path, NULL, 40, &err), USC_OK);
    const bytes whole[] = {load(names[0]), load(names[1])};
    for (int round = 0; round < 300; round++) {
        const int which = round % 4 == 3;
        bytes damaged = {.at = malloc(whole[which].n), .n = whole[which].n};
        memcpy(damaged.at, whole[which].at, damaged.n);
        if (random_below(5) == 0) {
            damaged.n = (size_t)random_below((int64_t)damaged.n);
        } else {
            const int64_t flips = 1 + random_below(20);
            for (int64_t i = 0; i < flips; i++)
                damaged.at[random_below((int64_t)damaged.n)] ^=
                    (unsigned char)(1 + random_below(255));
        }
        store(names[which], damaged, damaged.n);
        n_refused += read_all() != USC_OK;
        free(damaged.at);
        for (int i = 0; i < 2; i++)
            store(names[i], whole[i], whole[i].n);
    }
    assert_true(n_refused > 30);
    free(whole[0].at);
    free(whole[1].at);
}

static void names_a_truncated_or_missing_shard(void **state)
{
    (void)state;
    usc_error err;
    usc_trace *t;
    assert_int_equal(sample_write(trace_path, NULL, 40, &err), USC_OK);
    bytes shard = load("tensors-00000.safetensors");
    store("tensors-00000.safetensors", shard, shard.n - 1);
    assert_int_equal(usc_trace_open(trace_path, NULL, &t, &err), USC_E_CORRUPT);
    assert_non_null(strstr(err.text, "tensors-00000.safetensors: truncated"));
    char path[700];
    snprintf(path, sizeof path, "%s/tensors-00000.safetensors", trace_path);
    unlink(path);
    assert_int_equal(usc_trace_open(trace_path, NULL, &t, &err), USC_E_CORRUPT);
    assert_non_null(strstr(err.text, "No such file"));
    free(shard.at);
}

static void names_a_blob_whose_bytes_changed(void **state)
{
    (void)state;
    usc_error err;
    usc_trace *t;
    const void *data;
    int64_t size;
    assert_int_equal(sample_write(trace_path, NULL, 40, &err), USC_OK);
    bytes shard = load("tensors-00000.safetensors");
    shard.at[shard.n - 1] ^= 1;
    store("tensors-00000.safetensors", shard, shard.n);
    free(shard.at);
    assert_int_equal(usc_trace_open(trace_path, NULL, &t, &err), USC_OK);
    int n_refused = 0;
    usc_status st = USC_OK;
    for (int64_t blob = 1; st != USC_E_NOT_FOUND; blob++) {
        st = usc_trace_blob(t, blob, &data, &size, &err);
        if (st != USC_E_CORRUPT) continue;
        n_refused++;
        assert_null(data);
        assert_non_null(strstr(err.text, "tensors-00000.safetensors: the bytes of blob"));
    }
    assert_int_equal(n_refused, 1);
    usc_trace_close(t);
}

static void patch_db(const char *sql)
{
    char path[700];
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/trace.db", trace_path);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void names_a_newer_or_foreign_database(void **state)
{
    (void)state;
    usc_error err;
    usc_trace *t;
    assert_int_equal(sample_write(trace_path, NULL, 3, &err), USC_OK);
    patch_db("PRAGMA user_version=7");
    assert_int_equal(usc_trace_open(trace_path, NULL, &t, &err), USC_E_VERSION);
    assert_non_null(strstr(err.text, "format 7; this program knows up to 2"));
    patch_db("PRAGMA user_version=1; PRAGMA application_id=5");
    assert_int_equal(usc_trace_open(trace_path, NULL, &t, &err), USC_E_CORRUPT);
    const bytes text = {.at = (unsigned char[]){"hello, this is no database"}, .n = 26};
    store("trace.db", text, text.n);
    assert_int_equal(usc_trace_open(trace_path, NULL, &t, &err), USC_E_CORRUPT);
    assert_non_null(strstr(err.text, "not a SQLite database"));
}

static void reads_the_trace_of_format_1(void **state)
{
    (void)state;
    assert_int_equal(verified_calls(USC_TEST_DATA "/golden/trace-v1"), 12);
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
        TEST(never_crashes_on_damaged_files),
        TEST(names_a_truncated_or_missing_shard),
        TEST(names_a_blob_whose_bytes_changed),
        TEST(names_a_newer_or_foreign_database),
        TEST(reads_the_trace_of_format_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
