// SPDX-License-Identifier: Apache-2.0
// Safetensors: what is read, that nothing is read that is not so, and what is written.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <ulpscope/safetensors.h>

#include "alloc_probe.h"
#include "trace_sample.h"

static char *folder;
static char path[512];

static int make_folder(void **state)
{
    *state = folder = sample_folder();
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
    return 0;
}

/* A file with this header and `n` bytes 0, 1, 2, ... behind it. */
static void write_file(const char *where, const char *header, size_t n)
{
    FILE *f = fopen(where, "wb");
    assert_non_null(f);
    const uint64_t size = strlen(header);
    for (int i = 0; i < 8; i++)
        fputc((int)(size >> (8 * i) & 0xff), f);
    fputs(header, f);
    for (size_t i = 0; i < n; i++)
        fputc((int)(i & 0xff), f);
    assert_int_equal(fclose(f), 0);
}

static usc_safetensors *open_file(const char *where)
{
    usc_safetensors *set = NULL;
    usc_error err;
    if (usc_safetensors_open(where, NULL, &set, &err) != USC_OK) fail_msg("%s", err.text);
    return set;
}

static void refuse(const char *header, size_t n, const char *words)
{
    usc_safetensors *set = NULL;
    usc_error err = {0};
    write_file(path, header, n);
    const usc_status st = usc_safetensors_open(path, NULL, &set, &err);
    if (st == USC_OK || set != NULL || strstr(err.text, words) == NULL ||
        strstr(err.text, path) == NULL)
        fail_msg("%s\n  gives: %s", header, err.text);
}

static void tensors_come_by_name_with_shape_dtype_and_bytes(void **state)
{
    (void)state;
    write_file(
        path,
        "{\"__metadata__\": {\"a\": \"b\"},"
        "\"w\": {\"dtype\": \"BF16\", \"shape\": [2, 3], \"data_offsets\": [4, 16]},"
        "\"b\": {\"dtype\": \"F32\", \"shape\": [], \"data_offsets\": [0, 4]},"
        "\"e\": {\"dtype\": \"I64\", \"shape\": [0, 7], \"data_offsets\": [16, 16]}}",
        16);
    usc_safetensors *set = open_file(path);
    assert_int_equal(usc_safetensors_count(set), 3);
    assert_string_equal(usc_safetensors_at(set, 0)->name, "b");
    const usc_safetensor *w = usc_safetensors_find(set, "w");
    assert_int_equal(w->tensor.dtype, USC_BF16);
    assert_int_equal(w->tensor.ndim, 2);
    assert_int_equal(w->tensor.sizes[1], 3);
    assert_int_equal(w->tensor.strides[0], 3);
    assert_int_equal(((const unsigned char *)w->tensor.data)[0], 4);
    assert_int_equal(usc_safetensors_find(set, "b")->tensor.ndim, 0);
    assert_int_equal(usc_safetensors_find(set, "e")->bytes, 0);
    assert_null(usc_safetensors_find(set, "__metadata__"));
    assert_null(usc_safetensors_find(set, "x"));
    assert_null(usc_safetensors_at(set, 3));
    assert_null(usc_safetensors_at(set, -1));
    usc_safetensors_close(set);
}

static void an_unknown_dtype_is_kept_as_bytes(void **state)
{
    (void)state;
    write_file(path,
               "{\"w\": {\"dtype\": \"F4_X\", \"shape\": [9], \"data_offsets\": [0, 5]}}",
               5);
    usc_safetensors *set = open_file(path);
    const usc_safetensor *w = usc_safetensors_at(set, 0);
    assert_int_equal(w->tensor.dtype, USC_DTYPE_NONE);
    assert_string_equal(w->dtype_name, "F4_X");
    assert_int_equal(w->bytes, 5);
    const usc_tensor bytes = usc_safetensor_bytes(w);
    assert_int_equal(bytes.dtype, USC_U8);
    assert_int_equal(bytes.ndim, 1);
    assert_int_equal(bytes.sizes[0], 5); /* not the nine elements of its shape */
    assert_ptr_equal(bytes.data, w->tensor.data);
    usc_safetensors_close(set);
}

/* The data of a file whose header has an odd length lie at odd places. */
static void data_are_aligned_wherever_the_header_ends(void **state)
{
    (void)state;
    char header[128];
    for (int pad = 0; pad < 8; pad++) {
        snprintf(
            header, sizeof header,
            "{\"w\": {\"dtype\": \"F64\", \"shape\": [2], \"data_offsets\": [0, 16]}}%*s",
            pad, "");
        write_file(path, header, 16);
        usc_safetensors *set = open_file(path);
        const usc_tensor *t = &usc_safetensors_at(set, 0)->tensor;
        assert_int_equal((uintptr_t)t->data % sizeof(double), 0);
        assert_int_equal(((const unsigned char *)t->data)[15], 15);
        usc_safetensors_close(set);
    }
}

static void a_folder_is_one_set(void **state)
{
    (void)state;
    char other[512];
    usc_safetensors *set = NULL;
    usc_error err;
    assert_int_equal(usc_safetensors_open(folder, NULL, &set, &err), USC_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "*.safetensors"));
    write_file(path,
               "{\"a\": {\"dtype\": \"U8\", \"shape\": [1], \"data_offsets\": [0, 1]}}",
               1);
    snprintf(other, sizeof other, "%s/y.safetensors", folder);
    write_file(other,
               "{\"b\": {\"dtype\": \"U8\", \"shape\": [1], \"data_offsets\": [0, 1]}}",
               1);
    set = open_file(folder);
    assert_int_equal(usc_safetensors_count(set), 2);
    usc_safetensors_close(set);
    write_file(other,
               "{\"a\": {\"dtype\": \"U8\", \"shape\": [1], \"data_offsets\": [0, 1]}}",
               1);
    assert_int_equal(usc_safetensors_open(folder, NULL, &set, &err), USC_E_CORRUPT);
    assert_non_null(strstr(err.text, "a stands twice"));
}

static void what_is_not_so_is_refused_by_name(void **state)
{
    (void)state;
#define ENTRY(name, dtype, shape, offsets)                                               \
    "\"" name "\": {\"dtype\": " dtype ", \"shape\": " shape                             \
    ", \"data_offsets\": " offsets "}"
    refuse("", 4, "no JSON object");
    refuse("[1]", 4, "no JSON object");
    refuse("{\"a\": ", 4, "no JSON object");
    refuse("{\"a\": 3}", 4, "missing or of another kind");
    refuse("{" ENTRY("a", "7", "[1]", "[0, 4]") "}", 4, "another kind");
    refuse("{" ENTRY("a", "\"F32\"", "[1]", "[0, 8]") "}", 4, "cut off");
    refuse("{" ENTRY("a", "\"F32\"", "[1]", "[4, 0]") "}", 8, "cut off");
    refuse("{" ENTRY("a", "\"F32\"", "[1]", "[-4, 0]") "}", 8, "cut off");
    refuse("{" ENTRY("a", "\"F32\"", "[1]", "[0]") "}", 8, "another kind");
    refuse("{" ENTRY("a", "\"F32\"", "[1]", "[0, 4, 8]") "}", 8, "another kind");
    refuse("{" ENTRY("a", "\"F32\"", "[1]", "[0, 4.0]") "}", 8, "another kind");
    refuse("{" ENTRY("a", "\"F32\"", "[1]", "[0, \"4\"]") "}", 8, "another kind");
    refuse("{" ENTRY("a", "\"F32\"", "[2]", "[0, 4]") "}", 8, "4 bytes, but 2 elements");
    refuse("{" ENTRY("a", "\"F32\"", "[-1]", "[0, 4]") "}", 8, "another kind");
    refuse("{" ENTRY("a", "\"F32\"", "[1.5]", "[0, 4]") "}", 8, "another kind");
    refuse("{" ENTRY("a", "\"F32\"", "3", "[0, 4]") "}", 8, "another kind");
    refuse("{" ENTRY("a", "\"F32\"", "[4294967296, 4294967296, 4]", "[0, 4]") "}", 8,
           "impossible shape");
    refuse("{" ENTRY("a", "\"F32\"", "[2305843009213693952, 2]", "[0, 0]") "}", 8,
           "elements of F32");
    refuse("{" ENTRY("a", "\"F32\"", "[99999999999999999999]", "[0, 4]") "}", 8,
           "too big integer");
    refuse("{" ENTRY("a", "\"F32\"", "[1]", "[0, 4]") "," ENTRY("b", "\"F32\"", "[1]",
                                                                "[2, 6]") "}",
           8, "lie over each other");
    refuse("{" ENTRY("a", "\"F32\"", "[1]", "[0, 4]") "," ENTRY("a", "\"F32\"", "[1]",
                                                                "[4, 8]") "}",
           8, "duplicate object key");
    refuse(
        "{" ENTRY("a", "\"F32\"",
                  "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
                  "[0, 4]") "}",
        8, "33 axes");
}

static void a_length_that_cannot_be_is_refused(void **state)
{
    (void)state;
    usc_safetensors *set = NULL;
    usc_error err;
    static const unsigned char lengths[][8] = {
        {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
        {0, 0, 0, 0, 0, 0, 0, 0x80},
        {9, 0, 0, 0, 0, 0, 0, 0}};
    for (size_t i = 0; i < 3; i++) {
        FILE *f = fopen(path, "wb");
        fwrite(lengths[i], 1, 8, f);
        fputs("{}      ", f);
        fclose(f);
        assert_int_equal(usc_safetensors_open(path, NULL, &set, &err), USC_E_CORRUPT);
        assert_non_null(strstr(err.text, "cut off"));
    }
    FILE *f = fopen(path, "wb"); /* sparse: a header of 200 MB is refused, not read */
    fwrite((unsigned char[]){0, 0xc2, 0xeb, 0x0b, 0, 0, 0, 0}, 1, 8, f);
    assert_int_equal(fseek(f, 200000100, SEEK_SET), 0);
    fputc(0, f);
    fclose(f);
    assert_int_equal(usc_safetensors_open(path, NULL, &set, &err), USC_E_CORRUPT);
    assert_non_null(strstr(err.text, "100 MB"));
    f = fopen(path, "wb");
    fclose(f);
    assert_int_equal(usc_safetensors_open(path, NULL, &set, &err), USC_E_CORRUPT);
    assert_int_equal(usc_safetensors_open("/nonexistent", NULL, &set, &err),
                     USC_E_NOT_FOUND);
    assert_int_equal(usc_safetensors_open("/dev/null", NULL, &set, &err), USC_E_IO);
}

/* Whatever bytes change, the file is read or refused; what is read stays inside it. */
static void never_crashes_on_damaged_files(void **state)
{
    (void)state;
    static const char header[] =
        "{\"__metadata__\":{\"k\":\"v\"},"
        "\"w\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[8,20]},"
        "\"b\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}}";
    static const char marks[] = "{}[]\",:0123456789-.eE\\ntfu \x80\xff";
    unsigned char whole[512], bytes[512];
    write_file(path, header, 20);
    FILE *f = fopen(path, "rb");
    const size_t n = fread(whole, 1, sizeof whole, f);
    fclose(f);
    uint64_t seed = 20250801;
    int n_read = 0;
    for (int round = 0; round < 4000; round++) {
        memcpy(bytes, whole, n);
        size_t cut = n;
        for (int k = 0; k < 1 + round % 3; k++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
            const size_t at = (seed >> 33) % n;
            bytes[at] = round % 2 == 0
                            ? (unsigned char)(seed >> 20)
                            : (unsigned char)marks[(seed >> 20) % (sizeof marks - 1)];
            if (round % 7 == 0) cut = at;
        }
        f = fopen(path, "wb");
        fwrite(bytes, 1, cut, f);
        fclose(f);
        usc_safetensors *set = NULL;
        usc_error err;
        if (usc_safetensors_open(path, NULL, &set, &err) != USC_OK) continue;
        n_read++;
        volatile unsigned sum = 0; /* touch every byte: a sanitizer watches */
        for (int64_t i = 0; i < usc_safetensors_count(set); i++) {
            const usc_safetensor *t = usc_safetensors_at(set, i);
            for (int64_t b = 0; b < t->bytes; b++)
                sum += ((const unsigned char *)t->tensor.data)[b];
        }
        (void)sum;
        usc_safetensors_close(set);
    }
    assert_true(n_read > 100); /* changes in data and names leave it readable */
}

static void no_memory_is_said_and_nothing_leaks(void **state)
{
    (void)state;
    write_file(
        path, "{\"w\": {\"dtype\": \"F64\", \"shape\": [2], \"data_offsets\": [0, 16]}} ",
        16);
    for (int fail_at = 1;; fail_at++) {
        alloc_probe probe;
        usc_safetensors *set = NULL;
        usc_error err;
        const usc_status st =
            usc_safetensors_open(path, alloc_probe_bind(&probe, fail_at), &set, &err);
        usc_safetensors_close(set);
        assert_int_equal(probe.live_bytes, 0);
        assert_int_equal(probe.n_wrong_sizes, 0);
        if (st == USC_OK) break;
        assert_int_equal(st, USC_E_NOMEM);
        assert_true(fail_at < 100);
    }
}

/* ---- writing ---- */

static usc_tensor view_of(const void *data, usc_dtype dtype, int64_t rows,
                          int64_t columns)
{
    usc_tensor t;
    assert_int_equal(
        usc_tensor_make(&t, data, dtype, 2, (const int64_t[]){rows, columns}, NULL),
        USC_OK);
    return t;
}

static void what_is_written_is_read_again(void **state)
{
    (void)state;
    const float f[6] = {1, 2, 3, 4, 5, 6};
    const double d[2] = {7, 8};
    const uint8_t b[3] = {9, 10, 11};
    usc_tensor turned = view_of(f, USC_F32, 3, 2);
    turned.strides[0] = 1;
    turned.strides[1] = 3;
    const usc_named_tensor all[] = {{"b \"\n\xc3\xa9", view_of(b, USC_U8, 1, 3)},
                                    {"f", view_of(f, USC_F32, 2, 3)},
                                    {"turned", turned},
                                    {"d", view_of(d, USC_F64, 1, 2)},
                                    {"empty", view_of(f, USC_F32, 0, 5)},
                                    {"single", {.data = f, .dtype = USC_F32}}};
    for (int64_t n = 0; n <= 6; n++) {
        const bool put = n % 2 == 1; /* not flushed: the same file */
        assert_int_equal(
            (put ? usc_safetensors_put : usc_safetensors_write)(path, all, n, NULL, NULL),
            USC_OK);
        usc_safetensors *set = open_file(path);
        assert_int_equal(usc_safetensors_count(set), n);
        for (int64_t i = 0; i < n; i++) {
            const usc_safetensor *t = usc_safetensors_find(set, all[i].name);
            assert_non_null(t);
            assert_int_equal(t->tensor.dtype, all[i].tensor.dtype);
            assert_int_equal(t->tensor.ndim, all[i].tensor.ndim);
        }
        if (n == 6) {
            assert_memory_equal(usc_safetensors_find(set, "f")->tensor.data, f, sizeof f);
            const float expected[6] = {1, 4, 2, 5, 3, 6};
            assert_memory_equal(usc_safetensors_find(set, "turned")->tensor.data,
                                expected, sizeof expected);
            assert_memory_equal(usc_safetensors_find(set, all[0].name)->tensor.data, b,
                                3);
        }
        usc_safetensors_close(set);
    }
}

static void what_cannot_be_written_leaves_nothing(void **state)
{
    (void)state;
    const float f[2] = {1, 2};
    char part[600];
    usc_error err;
    const usc_tensor t = view_of(f, USC_F32, 1, 2);
    usc_tensor none = t, bad = t;
    none.dtype = USC_DTYPE_NONE;
    bad.sizes[0] = -1;
    const struct {
        const char *path;
        usc_named_tensor both[2];
        usc_status status;
        const char *words;
    } table[] = {
        {path, {{"a", t}, {"a", t}}, USC_E_ARG, "two tensors have the name a"},
        {path, {{"a", t}, {"__metadata__", t}}, USC_E_ARG, "no tensor's name"},
        {path, {{"a", t}, {"\xff", t}}, USC_E_ARG, "no tensor's name"},
        {path, {{"a", t}, {"b", none}}, USC_E_DTYPE, "b has no dtype"},
        {path, {{"a", t}, {"b", bad}}, USC_E_SHAPE, "negative"},
        {"/nonexistent/x", {{"a", t}, {"b", t}}, USC_E_IO, "/nonexistent/x: No such"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        assert_int_equal(
            usc_safetensors_write(table[i].path, table[i].both, 2, NULL, &err),
            table[i].status);
        if (strstr(err.text, table[i].words) == NULL) fail_msg("%s", err.text);
    }
    snprintf(part, sizeof part, "%s.part", path);
    assert_null(fopen(path, "rb"));
    assert_null(fopen(part, "rb"));
}

static void writing_without_memory_is_said(void **state)
{
    (void)state;
    const float f[6] = {1, 2, 3, 4, 5, 6};
    usc_named_tensor one = {"f", view_of(f, USC_F32, 2, 3)};
    one.tensor.strides[1] = 0;
    for (int fail_at = 1;; fail_at++) {
        alloc_probe probe;
        const usc_status st =
            usc_safetensors_write(path, &one, 1, alloc_probe_bind(&probe, fail_at), NULL);
        assert_int_equal(probe.live_bytes, 0);
        if (st == USC_OK) break;
        assert_int_equal(st, USC_E_NOMEM);
        assert_true(fail_at < 20);
    }
}

static void a_folder_is_flushed_or_named(void **state)
{
    (void)state;
    usc_error err;
    assert_int_equal(usc_folder_flush(folder, &err), USC_OK);
    assert_int_equal(usc_folder_flush("/nowhere/at/all", &err), USC_E_IO);
    assert_non_null(strstr(err.text, "/nowhere/at/all"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, sample_teardown)
    const struct CMUnitTest tests[] = {
        TEST(tensors_come_by_name_with_shape_dtype_and_bytes),
        TEST(an_unknown_dtype_is_kept_as_bytes),
        TEST(data_are_aligned_wherever_the_header_ends),
        TEST(a_folder_is_one_set),
        TEST(what_is_not_so_is_refused_by_name),
        TEST(a_length_that_cannot_be_is_refused),
        TEST(never_crashes_on_damaged_files),
        TEST(no_memory_is_said_and_nothing_leaks),
        TEST(what_is_written_is_read_again),
        TEST(what_cannot_be_written_leaves_nothing),
        TEST(writing_without_memory_is_said),
        TEST(a_folder_is_flushed_or_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
