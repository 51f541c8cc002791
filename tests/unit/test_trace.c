// SPDX-License-Identifier: Apache-2.0
// Writing a trace and reading it back; what creating, naming and selecting refuse.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alloc_probe.h"
#include "trace_sample.h"

static char *folder, trace_path[600];

static int make_folder(void **state)
{
    *state = folder = sample_folder();
    snprintf(trace_path, sizeof trace_path, "%s/t", folder);
    return 0;
}

#define OK(call)                                                                         \
    do {                                                                                 \
        err.text[0] = '\0';                                                              \
        const usc_status st_ = (call);                                                   \
        if (st_ != USC_OK) print_error("%s: %s\n", usc_status_name(st_), err.text);      \
        assert_int_equal(st_, USC_OK);                                                   \
    } while (0)

static bool exists(const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", trace_path, name);
    return access(path, F_OK) == 0;
}

static void reads_back_what_was_written(void **state)
{
    (void)state;
    usc_error err;
    usc_trace *t;
    OK(sample_write(trace_path, NULL, 150, &err));
    OK(usc_trace_open(trace_path, NULL, &t, &err));
    for (int64_t i = 1; i <= 150; i++)
        OK(sample_verify(t, i, &err));
    assert_string_equal(usc_trace_meta(t, "format"), "ulpscope-trace");
    assert_string_equal(usc_trace_meta(t, "version"), "2");
    assert_string_equal(usc_trace_meta(t, "complete"), "1");
    assert_int_equal(strlen(usc_trace_meta(t, "id")), 32);
    assert_null(usc_trace_meta(t, "nothing"));
    usc_call call;
    OK(usc_trace_read_call(t, 9, &call, &err));
    assert_string_equal(call.op, "aten::add.Tensor");
    assert_string_equal(call.module_path, "layers.0");
    assert_int_equal(call.n_children, 1);
    assert_int_equal(usc_trace_read_call(t, 151, &call, &err), USC_E_NOT_FOUND);
    assert_int_equal(call.n_args, 0);
    usc_trace_close(t);
}

static void leaves_plain_files(void **state)
{
    (void)state;
    usc_error err;
    OK(sample_write(trace_path, NULL, 5, &err));
    assert_true(exists("trace.db"));
    assert_true(exists("tensors-00000.safetensors"));
    assert_false(exists("tensors-00000.safetensors.part"));
    assert_false(exists("trace.db-wal"));
    assert_false(exists("trace.db-shm"));
    assert_false(exists("trace.db-journal"));
}

static void rotates_shards(void **state)
{
    (void)state;
    usc_error err;
    usc_trace *t;
    const usc_trace_options small = {.shard_size = 20000};
    OK(sample_write(trace_path, &small, 60, &err));
    assert_true(exists("tensors-00003.safetensors"));
    OK(usc_trace_open(trace_path, NULL, &t, &err));
    for (int64_t i = 1; i <= 60; i++)
        OK(sample_verify(t, i, &err));
    usc_trace_close(t);
}

/* Thousands of tiny blobs use up the header, not the data. */
static void rotates_when_the_header_is_full(void **state)
{
    (void)state;
    usc_error err;
    usc_trace_writer *w;
    usc_trace *t;
    const void *data;
    int64_t blob = 0, size;
    OK(usc_trace_create(trace_path, NULL, &w, &err));
    for (int32_t i = 1; i <= 3000; i++)
        OK(usc_trace_put_blob(w, &i, sizeof i, &blob, &err));
    OK(usc_trace_finish(w, true, &err));
    assert_int_equal(blob, 3000);
    assert_true(exists("tensors-00001.safetensors"));
    OK(usc_trace_open(trace_path, NULL, &t, &err));
    OK(usc_trace_blob(t, 2999, &data, &size, &err));
    assert_int_equal(size, 4);
    assert_int_equal(*(const int32_t *)data, 2999);
    assert_int_equal(usc_trace_blob(t, 3001, &data, &size, &err), USC_E_NOT_FOUND);
    usc_trace_close(t);
}

/* Parts of a blob are what was written, and are refused where any byte of it is not. */
static void reads_parts_of_a_blob(void **state)
{
    (void)state;
    usc_error err;
    usc_trace_writer *w;
    usc_trace *t;
    unsigned char bytes[5000], part[5000] = {0};
    char hash[33];
    int64_t blob;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 37);
    OK(usc_trace_create(trace_path, NULL, &w, &err));
    OK(usc_trace_put_blob(w, bytes, sizeof bytes, &blob, &err));
    OK(usc_trace_finish(w, true, &err));
    OK(usc_trace_open(trace_path, NULL, &t, &err));
    OK(usc_trace_read_blob(t, blob, 4097, 800, part, &err));
    assert_memory_equal(part, bytes + 4097, 800);
    OK(usc_trace_read_blob(t, blob, 0, sizeof bytes, part, &err));
    assert_memory_equal(part, bytes, sizeof bytes);
    OK(usc_trace_read_blob(t, blob, sizeof bytes, 0, part, &err));
    const int64_t bad[][2] = {{-1, 1}, {0, 5001}, {5000, 1}, {0, -1}, {INT64_MAX, 1}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(usc_trace_read_blob(t, blob, bad[i][0], bad[i][1], part, &err),
                         USC_E_ARG);
    assert_int_equal(usc_trace_read_blob(t, blob + 1, 0, 1, part, &err), USC_E_NOT_FOUND);
    usc_trace_hash(bytes, 0, hash);
    assert_string_equal(hash,
                        "99aa06d3014798d86001c324468d497f"); /* xxh3-128 of nothing */
    usc_trace_close(t);

    char path[1024];
    snprintf(path, sizeof path, "%s/tensors-00000.safetensors", trace_path);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    fputc(bytes[4999] ^ 1, f);
    fclose(f);
    OK(usc_trace_open(trace_path, NULL, &t, &err));
    assert_int_equal(usc_trace_read_blob(t, blob, 0, 10, part, &err), USC_E_CORRUPT);
    assert_int_equal(usc_trace_read_blob(t, blob, 0, 5000, part, &err), USC_E_CORRUPT);
    usc_trace_close(t);
}

static void stores_equal_bytes_once(void **state)
{
    (void)state;
    usc_error err;
    usc_trace_writer *w;
    int64_t a, b, c;
    OK(usc_trace_create(trace_path, NULL, &w, &err));
    OK(usc_trace_put_blob(w, "same", 4, &a, &err));
    OK(usc_trace_put_blob(w, "other", 5, &b, &err));
    OK(usc_trace_put_blob(w, "same", 4, &c, &err));
    assert_int_equal(a, c);
    assert_int_not_equal(a, b);
    OK(usc_trace_finish(w, true, &err));
}

static int64_t count(usc_trace *t, usc_trace_filter filter)
{
    usc_error err;
    const int64_t *found;
    int64_t n;
    OK(usc_trace_select(t, &filter, &found, &n, &err));
    for (int64_t i = 1; i < n; i++)
        assert_true(found[i - 1] < found[i]);
    return n;
}

static void selects(void **state)
{
    (void)state;
    usc_error err;
    usc_trace *t;
    const int64_t *found;
    int64_t n;
    OK(sample_write(trace_path, NULL, 250, &err));
    OK(usc_trace_open(trace_path, NULL, &t, &err));
    OK(usc_trace_select(t, NULL, &found, &n, &err));
    assert_int_equal(n, 250);
    assert_int_equal(count(t, (usc_trace_filter){.step = -1, .ops = "mm"}), 125);
    assert_int_equal(count(t, (usc_trace_filter){.step = -1, .ops = "!aten::mm"}), 125);
    assert_int_equal(count(t, (usc_trace_filter){.step = 1}), 100);
    assert_int_equal(count(t, (usc_trace_filter){.step = -1, .module = "layers.*"}), 125);
    assert_int_equal(count(t, (usc_trace_filter){.step = -1, .module = "x*"}), 0);
    assert_int_equal(count(t, (usc_trace_filter){.step = -1, .phase = "backward"}), 0);
    assert_int_equal(count(t, (usc_trace_filter){.step = -1, .top_only = true}), 225);
    const usc_trace_filter bad = {.ops = "a,,b", .step = -1};
    assert_int_equal(usc_trace_select(t, &bad, &found, &n, &err), USC_E_ARG);
    usc_trace_close(t);
}

static void refuses_a_folder_in_use(void **state)
{
    (void)state;
    usc_error err;
    usc_trace_writer *w;
    OK(sample_write(trace_path, NULL, 1, &err));
    assert_int_equal(usc_trace_create(trace_path, NULL, &w, &err), USC_E_EXISTS);
    assert_null(w);
    assert_non_null(strstr(err.text, "holds a trace"));
    assert_int_equal(usc_trace_create(folder, NULL, &w, &err), USC_E_EXISTS);
    snprintf(trace_path, sizeof trace_path, "%s/no/such", folder);
    assert_int_equal(usc_trace_create(trace_path, NULL, &w, &err), USC_E_NOT_FOUND);
}

/* It may be the current folder, a mount point or a link, and have modes of its own. */
static void uses_an_empty_folder_as_it_is(void **state)
{
    (void)state;
    usc_error err;
    usc_trace_writer *w;
    struct stat before, after;
    char link_path[sizeof trace_path + 8];
    snprintf(link_path, sizeof link_path, "%s-link", trace_path);
    assert_int_equal(mkdir(trace_path, 0700), 0);
    assert_int_equal(chmod(trace_path, 02770), 0);
    assert_int_equal(symlink(trace_path, link_path), 0);
    assert_int_equal(stat(trace_path, &before), 0);
    OK(usc_trace_create(link_path, NULL, &w, &err));
    OK(usc_trace_finish(w, true, &err));
    assert_int_equal(stat(trace_path, &after), 0);
    assert_int_equal(after.st_ino, before.st_ino);
    assert_int_equal(after.st_mode & 07777, 02770);
    assert_int_equal(usc_trace_create(link_path, NULL, &w, &err), USC_E_EXISTS);
    assert_int_equal(unlink(link_path), 0);
}

static void refuses_an_id_used_twice(void **state)
{
    (void)state;
    usc_error err;
    usc_trace_writer *w;
    usc_trace *t;
    OK(usc_trace_create(trace_path, NULL, &w, &err));
    OK(sample_begin(w, &err));
    OK(sample_call(w, 1, &err));
    OK(usc_trace_commit(w, &err));
    assert_int_equal(sample_begin(w, &err), USC_E_ARG);
    assert_int_equal(sample_call(w, 2, &err), USC_E_ARG); /* the same error again */
    assert_int_equal(usc_trace_finish(w, true, &err), USC_E_ARG);
    OK(usc_trace_open(trace_path, NULL, &t, &err));
    OK(sample_verify(t, 1, &err));
    assert_string_equal(usc_trace_meta(t, "complete"), "0");
    usc_trace_close(t);
}

static void is_busy_while_written(void **state)
{
    (void)state;
    usc_error err;
    usc_trace_writer *w;
    usc_trace *t;
    OK(usc_trace_create(trace_path, NULL, &w, &err));
    OK(sample_begin(w, &err));
    assert_int_equal(usc_trace_open(trace_path, NULL, &t, &err), USC_E_BUSY);
    assert_null(t);
    OK(sample_call(w, 1, &err));
    OK(usc_trace_finish(w, false, &err));
    OK(usc_trace_open(trace_path, NULL, &t, &err));
    OK(sample_verify(t, 1, &err));
    assert_string_equal(usc_trace_meta(t, "complete"), "0");
    usc_trace_close(t);
}

static void names_what_is_missing(void **state)
{
    (void)state;
    usc_error err;
    usc_trace *t;
    assert_int_equal(usc_trace_open(trace_path, NULL, &t, &err), USC_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "no such folder"));
    assert_int_equal(usc_trace_open(folder, NULL, &t, &err), USC_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "no trace.db"));
}

static void keeps_statistics(void **state)
{
    (void)state;
    usc_error err;
    usc_trace_writer *w;
    usc_trace *t;
    usc_call call;
    static usc_stats stats;
    stats = (usc_stats){.n = 3, .n_nan = 1, .min = -1.5, .max = 2, .mean = (double)NAN};
    stats.histogram[1][150] = 2;
    const usc_storage_row storage = {1, "cuda:0", 12};
    const usc_version_row version = {1, 1, 0, 0, 0};
    const usc_tensor_row tensor = {
        .id = 1, .version = 1, .dtype_name = "float32", .stats = &stats};
    const usc_call_row row = {.sequence = 1, .op = 1, .args = "{}", .status = "ok"};
    const usc_arg_row arg = {1, USC_ROLE_MUTATED, "kwargs.out", 1};
    OK(usc_trace_create(trace_path, NULL, &w, &err));
    OK(sample_begin(w, &err));
    OK(usc_trace_put_storage(w, &storage, &err));
    OK(usc_trace_put_version(w, &version, &err));
    OK(usc_trace_put_tensor(w, &tensor, &err));
    OK(usc_trace_put_call(w, &row, &err));
    OK(usc_trace_put_arg(w, &arg, &err));
    OK(usc_trace_put_note(w, 1, "schema-lie", "It writes its input.", &err));
    OK(usc_trace_finish(w, true, &err));
    OK(usc_trace_open(trace_path, NULL, &t, &err));
    OK(usc_trace_read_call(t, 1, &call, &err));
    assert_int_equal(call.arg[0].ndim, 0);
    assert_int_equal(call.arg[0].blob, 0);
    assert_int_equal(call.arg[0].role, USC_ROLE_MUTATED);
    assert_non_null(strstr(call.arg[0].stats, "\"min\":-1.5,\"max\":2,\"mean\":null"));
    assert_non_null(strstr(call.arg[0].stats, "\"neg\":{\"0\":2}"));
    usc_trace_close(t);
}

/* Every request in turn gets no memory: a status, nothing leaked, files still sound. */
static void survives_each_failed_allocation(void **state)
{
    (void)state;
    usc_error err;
    int n_failed = 0;
    for (int n = 1;; n++) {
        alloc_probe probe;
        const usc_trace_options options = {.alloc = alloc_probe_bind(&probe, n),
                                           .shard_size = 4000};
        snprintf(trace_path, sizeof trace_path, "%s/t%d", folder, n);
        const usc_status st = sample_write(trace_path, &options, 30, &err);
        assert_int_equal(probe.live_bytes, 0);
        assert_int_equal(probe.n_wrong_sizes, 0);
        if (st == USC_OK && probe.n_requests < n) break;
        assert_int_equal(st, USC_E_NOMEM);
        n_failed++;
    }
    assert_true(n_failed >= 4);
    n_failed = 0;
    for (int n = 1;; n++) {
        alloc_probe probe;
        usc_trace *t = NULL;
        const int64_t *found;
        int64_t n_found;
        usc_status st = usc_trace_open(trace_path, alloc_probe_bind(&probe, n), &t, &err);
        if (st == USC_OK) st = sample_verify(t, 6, &err);
        if (st == USC_OK) st = usc_trace_select(t, NULL, &found, &n_found, &err);
        usc_trace_close(t);
        assert_int_equal(probe.live_bytes, 0);
        assert_int_equal(probe.n_wrong_sizes, 0);
        if (st == USC_OK && probe.n_requests < n) break;
        assert_int_equal(st, USC_E_NOMEM);
        n_failed++;
    }
    assert_true(n_failed >= 3);
}

static void tells_its_files_without_opening_them(void **state)
{
    (void)state;
    static const char *const ours[] = {"trace.db",
                                       "trace.db-wal",
                                       "trace.db-journal",
                                       "trace.db-shm",
                                       "tensors-00000.safetensors",
                                       "tensors-12.safetensors.part"},
                             *const others[] = {"trace.db-",
                                                "trace.db.bak",
                                                "trace",
                                                "",
                                                "tensors-.safetensors",
                                                "tensors-1.st",
                                                "tensors-1x.safetensors",
                                                "notes",
                                                "my-trace.db"};
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        assert_true(usc_trace_is_file(ours[i]));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_false(usc_trace_is_file(others[i]));
    char path[256];
    usc_error err;
    OK(sample_write(trace_path, NULL, 2, &err));
    (void)snprintf(path, sizeof path, "%.200s/trace.db", trace_path);
    assert_true(usc_trace_is_database(path));
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    (void)fseek(file, 71, SEEK_SET);
    (void)fputc('R', file); /* "ULPR": a result */
    (void)fflush(file);
    assert_false(usc_trace_is_database(path));
    (void)fseek(file, 71, SEEK_SET);
    (void)fputc('T', file);
    (void)fclose(file);
    assert_true(usc_trace_is_database(path));
    assert_int_equal(truncate(path, 71), 0);
    assert_false(usc_trace_is_database(path));
    (void)unlink(path);
    assert_false(usc_trace_is_database(path));
}

/* With arguments PATH N it writes a trace of N calls, for tests/py/test_trace_format.py
 * and for tests/golden/trace-v1. */
int main(int argc, char **argv)
{
    if (argc == 3) {
        usc_error err;
        const usc_trace_options options = {.shard_size = 40000};
        const usc_status st = sample_write(argv[1], &options, atoll(argv[2]), &err);
        if (st != USC_OK) print_error("%s\n", err.text);
        return st == USC_OK ? 0 : 2;
    }
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, sample_teardown)
    const struct CMUnitTest tests[] = {
        TEST(reads_back_what_was_written),
        TEST(tells_its_files_without_opening_them),
        TEST(leaves_plain_files),
        TEST(rotates_shards),
        TEST(rotates_when_the_header_is_full),
        TEST(reads_parts_of_a_blob),
        TEST(stores_equal_bytes_once),
        TEST(selects),
        TEST(refuses_a_folder_in_use),
        TEST(uses_an_empty_folder_as_it_is),
        TEST(refuses_an_id_used_twice),
        TEST(is_busy_while_written),
        TEST(names_what_is_missing),
        TEST(keeps_statistics),
        TEST(survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
