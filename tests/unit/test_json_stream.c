// SPDX-License-Identifier: Apache-2.0
// Objects read member by member: what Python writes, and where a file stops being one.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "trace_sample.h"
#include "json/json_stream.h"

static char *folder;
static char path[600];

static int make_folder(void **state)
{
    *state = folder = sample_folder();
    snprintf(path, sizeof path, "%s/d.json", folder);
    return 0;
}

static void write_file(const char *text, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* All of a file as text, members of "in" one by one: key=value; */
static usc_status walk(const char *text, int64_t limit, usc_line *out, usc_error *err)
{
    usc_json_stream s = {0};
    usc_arena arena = {.alloc = usc_libc_alloc};
    const char *key;
    write_file(text, strlen(text));
    usc_status st = usc_json_stream_open(&s, path, limit, err);
    while (st == USC_OK && (st = usc_json_stream_next(&s, &key, err)) == USC_OK) {
        usc_json *value = NULL;
        if (key == NULL && s.level == 0) break;
        usc_line_text(out, key != NULL ? key : ">");
        if (key == NULL || strcmp(key, "skip") == 0) continue;
        if (strcmp(key, "in") == 0) {
            usc_line_text(out, "<");
            st = usc_json_stream_enter(&s, err);
            continue;
        }
        st = usc_json_stream_value(&s, &value, err);
        if (st == USC_OK)
            usc_line_add(out, "=%s;", usc_json_print(usc_json_item(value, 0), &arena));
        usc_json_free(value);
    }
    usc_json_stream_close(&s);
    usc_arena_free(&arena);
    return st;
}

static void assert_walk(const char *text, const char *wanted)
{
    usc_line out = {0};
    usc_error err;
    if (walk(text, 1000, &out, &err) != USC_OK) fail_msg("%s: %s", text, err.text);
    assert_string_equal(out.text != NULL ? out.text : "", wanted);
    usc_line_free(&out);
}

static void members_come_one_by_one(void **state)
{
    (void)state;
    assert_walk("{}", "");
    assert_walk(" {\"a\": 1, \"b\": [1, {\"x\": \"}\\\"\"}]}\n",
                "a=1;b=[1,{\"x\":\"}\\\"\"}];");
    assert_walk("{\"in\": {\"k\": null, \"skip\": [\"]\"], \"l\": true}, \"z\": {}}",
                "in<k=null;skipl=true;>z={};");
    assert_walk("{\"in\": {}, \"in\": {\"\\u00e9\": \"\"}}", "in<>in<\xc3\xa9=\"\";>");
}

static void numbers_that_json_lacks_are_read(void **state)
{
    (void)state;
    assert_walk("{\"a\": [NaN, Infinity, -Infinity, -0.5, \"NaN\"]}",
                "a=[\"nan\",\"inf\",\"-inf\",-0.5,\"NaN\"];");
    assert_walk("{\"a\": NaN, \"b\": 9223372036854775807, \"c\": 18446744073709551615}",
                "a=\"nan\";b=9223372036854775807;c=1.8446744073709552e19;");
}

static void a_cut_file_is_told_from_one_that_is_no_json(void **state)
{
    (void)state;
    static const char whole[] = "{\"in\": {\"k\": [1, \"a b\", NaN]}, \"z\": 1}";
    for (size_t n = 0; n < sizeof whole - 1; n++) {
        char text[sizeof whole];
        usc_line out = {0};
        usc_error err;
        memcpy(text, whole, n);
        text[n] = '\0';
        assert_int_equal(walk(text, 1000, &out, &err), USC_E_CORRUPT);
        if (strstr(err.text, "it was cut off") == NULL &&
            strstr(err.text, "is no JSON") == NULL) /* a word that was cut */
            fail_msg("%s: %s", text, err.text);
        usc_line_free(&out);
    }
    static const struct {
        const char *text, *say;
    } bad[] = {
        {"[1]", "an object is expected, not '['"},
        {"{\"a\" 1}", "':' is expected, not '1'"},
        {"{\"a\": 1 \"b\": 2}", "',' or '}' is expected"},
        {"{\"a\": 1,}", "a name is expected, not '}'"},
        {"{\"a\": 1} x", "the end of the file is expected, not 'x'"},
        {"{\"a\": [1 2]}", "the value of 'a' is no JSON"},
        {"{\"a\": [1}}", "the value of 'a' is no JSON"},
        {"{\"a\": ]}", "a value is expected, not ']'"},
        {"{\"a\": nan}", "the value of 'a' is no JSON"},
        {"{\"in\": 1}", "an object is expected, not '1'"},
        {"{\"a\": \x01}", "a byte"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        usc_line out = {0};
        usc_error err;
        assert_int_equal(walk(bad[i].text, 1000, &out, &err), USC_E_CORRUPT);
        if (strstr(err.text, bad[i].say) == NULL)
            fail_msg("%s: %s", bad[i].text, err.text);
        usc_line_free(&out);
    }
}

static void one_member_is_bounded_and_the_file_is_not(void **state)
{
    (void)state;
    usc_line text = {0}, out = {0};
    usc_error err;
    usc_line_text(&text, "{");
    for (int i = 0; i < 2000; i++)
        usc_line_add(&text, "%s\"k%d\": \"0123456789\"", i > 0 ? "," : "", i);
    usc_line_text(&text, "}");
    assert_int_equal(walk(text.text, 64, &out, &err), USC_OK);
    usc_line_clear(&out);
    assert_int_equal(walk("{\"a\": 1, \"b\": \"0123456789\"}", 10, &out, &err),
                     USC_E_RANGE);
    assert_non_null(strstr(err.text, "the value of 'b' has more than 10 bytes"));
    usc_line_clear(&text);
    usc_line_text(&text, "{\"a\": ");
    for (int i = 0; i < 100000; i++)
        usc_line_text(&text, "[");
    assert_int_equal(walk(text.text, 1 << 20, &out, &err), USC_E_CORRUPT);
    usc_line_free(&text);
    usc_line_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_come_one_by_one),
        cmocka_unit_test(numbers_that_json_lacks_are_read),
        cmocka_unit_test(a_cut_file_is_told_from_one_that_is_no_json),
        cmocka_unit_test(one_member_is_bounded_and_the_file_is_not),
    };
    return cmocka_run_group_tests(tests, make_folder, sample_teardown);
}
