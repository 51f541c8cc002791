// SPDX-License-Identifier: Apache-2.0
// Status list, errors, checked arithmetic, hashes, and the probe that other tests use.
#include "alloc_probe.h"
#include "base/arena.h"
#include "base/checked.h"
#include "base/cpu_probe.h"
#include "base/float_env.h"
#include "base/hash.h"
#include "base/line.h"
#include "base/number.h"
#include "json/json.h"

#include <signal.h>
#include <ulpscope/status.h>

// cmocka wants these in front of it
#include <setjmp.h>
#include <stdarg.h>
// and then itself
#include <cmocka.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <float.h>
#include <math.h>

static void test_every_status_has_name_and_text(void **state)
{
    (void)state;
#define CHECK(id, value, text_of)                                                        \
    assert_int_equal(USC_##id, value);                                                   \
    assert_string_equal(usc_status_name(USC_##id), #id);                                 \
    assert_string_equal(usc_status_text(USC_##id), text_of);
    USC_STATUS_LIST(CHECK)
#undef CHECK
}

static void test_unlisted_status_is_unknown(void **state)
{
    (void)state;
    assert_string_equal(usc_status_text((usc_status)-1), "unknown status");
    assert_string_equal(usc_status_text((usc_status)99), "unknown status");
    assert_string_equal(usc_status_name((usc_status)99), "E_UNKNOWN");
    assert_non_null(strstr(usc_status_advice(USC_E_CORRUPT), "capture it or copy it"));
    assert_string_equal(usc_status_advice(USC_OK), "");
}

static void test_signals_have_names_on_every_c_library(void **state)
{
    (void)state;
    assert_string_equal(usc_signal_name(SIGSEGV), "SEGV");
    assert_string_equal(usc_signal_name(SIGKILL), "KILL");
    assert_string_equal(usc_signal_name(SIGXFSZ), "XFSZ");
    assert_null(usc_signal_name(0));
    assert_null(usc_signal_name(-1));
    assert_null(usc_signal_name(4096));
}

static void test_error_set_fills_and_cuts(void **state)
{
    (void)state;
    usc_error err = {0};
    assert_int_equal(usc_error_set(&err, USC_E_SHAPE, 2, "axis %d: %d", 2, 64),
                     USC_E_SHAPE);
    assert_int_equal(err.status, USC_E_SHAPE);
    assert_int_equal(err.where, 2);
    assert_string_equal(err.text, "axis 2: 64");
    assert_int_equal(usc_error_set(NULL, USC_E_IO, -1, "nobody looks"), USC_E_IO);

    char big[2 * USC_ERROR_TEXT];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    (void)usc_error_set(&err, USC_E_ARG, -1, "%s", big);
    assert_int_equal(strlen(err.text), USC_ERROR_TEXT - 1);
}

static void test_checked_i64(void **state)
{
    (void)state;
    int64_t out;
    assert_true(usc_add_i64(INT64_MAX - 1, 1, &out) && out == INT64_MAX);
    assert_false(usc_add_i64(INT64_MAX, 1, &out));
    assert_int_equal(out, 0);
    assert_false(usc_add_i64(INT64_MIN, -1, &out));
    assert_true(usc_mul_i64(-3, 4, &out) && out == -12);
    assert_true(usc_mul_i64(INT64_MIN, 1, &out) && out == INT64_MIN);
    assert_false(usc_mul_i64(INT64_MIN, -1, &out));
    assert_false(usc_mul_i64((int64_t)1 << 32, (int64_t)1 << 31, &out));
    assert_int_equal(out, 0);
}

/* Values published with xxHash, seed 0: a trace must be checkable with other tools. */
/* The test's own copy of xxHash has the plain build's flags: long inputs, which take
 * another build where the CPU has it, must hash the same. */
static void test_hashes_are_the_same_on_every_cpu(void **state)
{
    (void)state;
    unsigned char bytes[5000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * i >> 3);
    for (size_t size = 0; size < sizeof bytes; size += size < 600 ? 1 : 97) {
        const XXH128_hash_t expect = XXH3_128bits(bytes + 1, size);
        const usc_hash128 got = usc_hash_bytes(bytes + 1, size);
        assert_true(got.low == expect.low64 && got.high == expect.high64);
        assert_true(usc_hash64_bytes(bytes + 1, size) == XXH3_64bits(bytes + 1, size));
    }
}

static void test_hashes_are_standard_xxh3(void **state)
{
    (void)state;
    assert_true(usc_hash64_bytes(NULL, 0) == 0x2d06800538d394c2u);
    const usc_hash128 empty = usc_hash_bytes("", 0);
    assert_true(empty.low == 0x6001c324468d497fu && empty.high == 0x99aa06d3014798d8u);
    const usc_hash128 a = usc_hash_bytes("abc", 3);
    const usc_hash128 b = usc_hash_bytes("abd", 3);
    assert_true(a.low != b.low && a.high != b.high);
}

static void test_libc_alloc(void **state)
{
    (void)state;
    char *p = usc_libc_alloc.resize(NULL, NULL, 0, 10);
    assert_non_null(p);
    memcpy(p, "123456789", 10);
    p = usc_libc_alloc.resize(NULL, p, 10, 1000);
    assert_string_equal(p, "123456789");
    assert_null(usc_libc_alloc.resize(NULL, p, 1000, 0));
}

static void test_alloc_probe_counts_and_fails(void **state)
{
    (void)state;
    alloc_probe probe;
    const usc_alloc *alloc = alloc_probe_bind(&probe, 2);
    void *p = alloc->resize(alloc->ctx, NULL, 0, 100);
    assert_non_null(p);
    assert_null(alloc->resize(alloc->ctx, p, 100, 200));
    assert_int_equal(probe.live_bytes, 100);
    p = alloc->resize(alloc->ctx, p, 100, 300);
    assert_int_equal(probe.live_bytes, 300);
    assert_int_equal(probe.n_wrong_sizes, 0);
    assert_null(alloc->resize(alloc->ctx, p, 299, 0));
    assert_int_equal(probe.n_wrong_sizes, 1);
    assert_int_equal(probe.live_bytes, 0);
    assert_int_equal(probe.n_requests, 3);
}

#if defined(__SSE2__)
#include <xmmintrin.h>

static void test_float_env_undoes_flush_to_zero(void **state)
{
    (void)state;
    const unsigned int before = _mm_getcsr();
    _mm_setcsr(before | 0x8040u);
    volatile float tiny = FLT_MIN;
    const usc_float_env env = usc_float_env_enter();
    const float kept = tiny * 0.5f;
    usc_float_env_leave(env);
    const unsigned int after = _mm_getcsr();
    _mm_setcsr(before);
    assert_true((after & 0x8040u) == 0x8040u);
    assert_true(kept > 0.0f);
}
#endif

/* One writer of JSON strings: what is no UTF-8 is replaced, or kept for Python. */
static void json_strings_are_escaped(void **state)
{
    (void)state;
    static const struct {
        const char *text, *kept, *quoted; /* NULL: no text */
    } rows[] = {
        {"", "\"\"", "\"\""},
        {"a\"b\\c", "\"a\\\"b\\\\c\"", "\"a\\\"b\\\\c\""},
        {"\n\x01\x7f", "\"\\u000a\\u0001\\u007f\"", "\"\\u000a\\u0001\\u007f\""},
        {"\xc3\xa9\xf0\x9f\x98\x80", "\"\xc3\xa9\xf0\x9f\x98\x80\"",
         "\"\xc3\xa9\xf0\x9f\x98\x80\""},
        {"a\xff", "\"a\\udcff\"", NULL},
        {"\xc0\x80", "\"\\udcc0\\udc80\"", NULL},            /* too long a form of 0 */
        {"\xed\xa0\x80", "\"\\udced\\udca0\\udc80\"", NULL}, /* a surrogate */
        {"\xe2\x82", "\"\\udce2\\udc82\"", NULL},            /* cut */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        usc_line line = {0};
        usc_arena arena = {.alloc = usc_libc_alloc};
        usc_line_json(&line, rows[i].text);
        assert_string_equal(line.text, rows[i].kept);
        const char *quoted = usc_json_quoted(rows[i].text, &arena);
        if (rows[i].quoted != NULL)
            assert_string_equal(quoted, rows[i].quoted);
        else
            assert_null(quoted);
        assert_false(arena.failed);
        usc_line_free(&line);
        usc_arena_free(&arena);
    }
}

static void numbers_are_as_short_as_they_can_be(void **state)
{
    (void)state;
    static const struct {
        double number;
        const char *text;
    } rows[] = {
        {0, "0.0"},
        {-0.0, "-0.0"},
        {2, "2.0"},
        {-20, "-20.0"},
        {0.1, "0.1"},
        {0.1 + 0.2, "0.30000000000000004"},
        {1e-4, "0.0001"},
        {1e-5, "1e-05"},
        {1.5e-7, "1.5e-07"},
        {123456789012345680.0, "1.2345678901234568e+17"},
        {1e15, "1000000000000000.0"},
        {1e16, "1e+16"},
        {1e22, "1e+22"},
        {DBL_MAX, "1.7976931348623157e+308"},
        {5e-324, "5e-324"},
        {0.08838834764831845, "0.08838834764831845"},
        {(double)INFINITY, "inf"},
        {-(double)INFINITY, "-inf"},
        {(double)NAN, "nan"},
        {-(double)NAN, "nan"},
    };
    char text[USC_NUMBER_SIZE];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        usc_number_text(rows[i].number, text);
        assert_string_equal(text, rows[i].text);
    }
    for (uint64_t i = 0; i < 20000; i++) {
        double number, back;
        const uint64_t bits = XXH3_64bits(&i, sizeof i);
        memcpy(&number, &bits, sizeof number);
        if (i % 2 == 0) number = (double)(int64_t)(bits >> 34) / 1000.0;
        usc_number_text(number, text);
        back = usc_parse_number(text, NULL);
        assert_true(isnan(number) ? isnan(back)
                                  : memcmp(&back, &number, sizeof back) == 0);
    }
}

/* Whether the system names all of these, in its line of flags. */
static bool system_names(const char *const *words)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (file == NULL) skip();
    char line[16384] = "";
    while (fgets(line, sizeof line, file) != NULL && strncmp(line, "flags", 5) != 0) {
    }
    (void)fclose(file);
    line[strcspn(line, "\n")] = ' ';
    bool all = true;
    for (; *words != NULL; words++) {
        char word[32];
        snprintf(word, sizeof word, " %s ", *words);
        all = all && strstr(line, word) != NULL;
    }
    return all;
}

static void test_the_processor_has_what_the_system_names(void **state)
{
    (void)state;
#if !defined(__x86_64__)
    assert_false(usc_cpu_has_avx2() || usc_cpu_has_avx512());
    skip(); /* what emulates this processor may show the names of the one below it */
#endif
    const char *const avx2[] = {"avx2", "fma", "f16c", "popcnt", NULL};
    const char *const avx512[] = {"avx2",     "fma",      "f16c",     "avx512f",
                                  "avx512bw", "avx512dq", "avx512vl", NULL};
    assert_int_equal(usc_cpu_has_avx2(), system_names(avx2));
    assert_int_equal(usc_cpu_has_avx512(), system_names(avx512));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_processor_has_what_the_system_names),
        cmocka_unit_test(json_strings_are_escaped),
        cmocka_unit_test(numbers_are_as_short_as_they_can_be),
        cmocka_unit_test(test_every_status_has_name_and_text),
        cmocka_unit_test(test_unlisted_status_is_unknown),
        cmocka_unit_test(test_signals_have_names_on_every_c_library),
        cmocka_unit_test(test_error_set_fills_and_cuts),
        cmocka_unit_test(test_checked_i64),
        cmocka_unit_test(test_hashes_are_standard_xxh3),
        cmocka_unit_test(test_hashes_are_the_same_on_every_cpu),
        cmocka_unit_test(test_libc_alloc),
        cmocka_unit_test(test_alloc_probe_counts_and_fails),
#if defined(__SSE2__)
        cmocka_unit_test(test_float_env_undoes_flush_to_zero),
#endif
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
