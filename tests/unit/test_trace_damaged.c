// SPDX-License-Identifier: Apache-2.0
// Traces with flipped and missing bytes, another database, and one of format 1. What a
// writer survives: test_trace_harm.c.
#include "trace_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sqlite3.h>
#include <sys/resource.h>

#include "trace_sample.h"

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
        TEST(never_crashes_on_damaged_files),   TEST(names_a_truncated_or_missing_shard),
        TEST(names_a_blob_whose_bytes_changed), TEST(names_a_newer_or_foreign_database),
        TEST(reads_the_trace_of_format_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
