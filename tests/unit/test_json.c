// SPDX-License-Identifier: Apache-2.0
// JSON from anywhere: what is no JSON is told with its place, and so is a value of
// another kind than the one asked for.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "json/json.h"

static usc_json *parsed(const char *text)
{
    usc_json *root;
    usc_error err;
    if (usc_json_parse(text, strlen(text), "f.json", "no list", &root, &err) != USC_OK)
        fail_msg("%s", err.text);
    return root;
}

static void what_is_no_json_is_told_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *say;
        int64_t where;
    } bad[] = {
        {"", "line 1, column 0", 0},
        {"{\"a\": 1,\n \"b\": }", "line 2, column 7", 16},
        {"[1] x", "end of file expected near 'x'", 5},
        {"{\"a\": 1, \"a\": 2}", "duplicate object key", 12},
        {"[99999999999999999999]", "too big integer", 21},
        {"[1e999]", "real number overflow", 6},
        {"[NaN]", "invalid token near 'NaN'", 4},
        {"[\"a\\u0000b\"]", "\\u0000 is not allowed", 11},
        {"[\"\xff\"]", "unable to decode byte 0xff", 2},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        usc_json *root;
        usc_error err;
        assert_int_equal(usc_json_parse(bad[i].text, strlen(bad[i].text), "f.json",
                                        "no list", &root, &err),
                         USC_E_CORRUPT);
        assert_null(root);
        if (strstr(err.text, bad[i].say) == NULL || err.where != bad[i].where)
            fail_msg("%s (at %lld)", err.text, (long long)err.where);
        assert_int_equal(strncmp(err.text, "f.json: no list: line ", 22), 0);
    }
}

static void too_deep_nesting_is_refused(void **state)
{
    (void)state;
    static char deep[100000];
    usc_json *root;
    usc_error err;
    memset(deep, '[', sizeof deep);
    assert_int_equal(usc_json_parse(deep, sizeof deep, "f", "no list", &root, &err),
                     USC_E_CORRUPT);
    assert_non_null(strstr(err.text, "maximum parsing depth"));
}

static void values_come_by_kind(void **state)
{
    (void)state;
    usc_json *root =
        parsed("{\"t\":\"x\",\"i\":-9223372036854775808,\"r\":0.5,\"y\":true,"
               "\"one\":1,\"l\":[1,\"b\"],\"o\":{\"k\":null},\"n\":null}");
    usc_error err;
    usc_json_taker t = {.name = "f.json", .err = &err};
    assert_string_equal(usc_json_text(&t, root, "t", ""), "x");
    assert_true(usc_json_integer(&t, root, "i", 0) == INT64_MIN);
    assert_true(usc_json_number(&t, root, "r", 0) == 0.5);
    assert_true(usc_json_number(&t, root, "one", 0) == 1);
    assert_true(usc_json_flag(&t, root, "y") && usc_json_flag(&t, root, "one"));
    assert_int_equal(usc_json_size(usc_json_list(&t, root, "l")), 2);
    assert_non_null(usc_json_object(&t, root, "o"));
    /* Null, missing, and asked of nothing: the default. */
    assert_string_equal(usc_json_text(&t, root, "n", "d"), "d");
    assert_int_equal(usc_json_integer(&t, root, "q", 7), 7);
    assert_int_equal(usc_json_integer(&t, NULL, "q", 7), 7);
    assert_null(usc_json_list(&t, root, "n"));
    assert_int_equal(t.status, USC_OK);
    usc_json_free(root);
}

static void the_first_value_of_another_kind_is_named(void **state)
{
    (void)state;
    usc_json *root = parsed("{\"a\":\"1\",\"b\":[],\"c\":1.5}");
    usc_error err;
    usc_json_taker t = {.name = "f.json", .place = "calls[3]", .err = &err};
    assert_int_equal(usc_json_integer(&t, root, "c", 4), 4);
    assert_null(usc_json_list(&t, root, "a"));
    assert_false(usc_json_flag(&t, root, "b"));
    assert_int_equal(t.status, USC_E_CORRUPT);
    assert_string_equal(err.text, "f.json: calls[3].c is no integer");
    usc_json_taker quiet = {.name = "f.json"};
    assert_string_equal(usc_json_text(&quiet, root, "b", "d"), "d");
    assert_int_equal(quiet.status, USC_E_CORRUPT);
    usc_json_free(root);
}

static void lists_and_objects_are_walked_and_printed(void **state)
{
    (void)state;
    usc_arena arena = {.alloc = usc_libc_alloc};
    usc_json *root = parsed("{ \"z\" : [ \"\\u00e9\", 2, 0.1 ], \"a\" : { } }");
    const char *key;
    const usc_json *value;
    char keys[8] = "";
    for (void *at = NULL; usc_json_next(root, &at, &key, &value);)
        strcat(keys, key);
    assert_string_equal(keys, "za");
    const usc_json *z = usc_json_get(root, "z");
    int64_t two;
    assert_string_equal(usc_json_as_text(usc_json_item(z, 0)), "\xc3\xa9");
    assert_true(usc_json_as_integer(usc_json_item(z, 1), &two) && two == 2);
    assert_false(usc_json_as_integer(usc_json_item(z, 2), &two));
    assert_null(usc_json_as_text(usc_json_item(z, 1)));
    assert_null(usc_json_item(z, 3));
    assert_false(usc_json_is_object(z));
    assert_string_equal(usc_json_print(z, &arena),
                        "[\"\xc3\xa9\",2,0.10000000000000001]");
    usc_json_free(root);
    usc_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_json_is_told_with_its_place),
        cmocka_unit_test(too_deep_nesting_is_refused),
        cmocka_unit_test(values_come_by_kind),
        cmocka_unit_test(the_first_value_of_another_kind_is_named),
        cmocka_unit_test(lists_and_objects_are_walked_and_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
