// SPDX-License-Identifier: Apache-2.0
// ulpscope/value.h and ulpscope/call.h: arguments out of JSON, a call in one line.
// Which calls of a list a replay takes: test_call_select.c.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <ulpscope/call.h>
#include <ulpscope/x/writing.h>

/* ---- arguments ---- */

static void test_values_are_what_the_format_says(void **state)
{
    (void)state;
    static const char text[] =
        "{\"args\": [null, true, 3, 2.0, \"a\", {\"tensor\": true}, {\"tensor\": false}, "
        "{\"float\": \"-inf\"}, {\"complex\": [1.5, \"nan\"]}, {\"dtype\": \"float32\"}, "
        "[{\"device\": \"cuda:1\"}, {\"other\": \"Thing\"}]], \"kwargs\": {\"dim\": -1}}";
    static const usc_value_kind kinds[] = {
        USC_VALUE_NONE,    USC_VALUE_BOOL,   USC_VALUE_INT,  USC_VALUE_FLOAT,
        USC_VALUE_TEXT,    USC_VALUE_TENSOR, USC_VALUE_NONE, USC_VALUE_FLOAT,
        USC_VALUE_COMPLEX, USC_VALUE_DTYPE,  USC_VALUE_LIST, USC_VALUE_INT};
    usc_arguments a;
    assert_int_equal(usc_arguments_read(text, &a, NULL), USC_OK);
    assert_int_equal(a.n, 12);
    for (int i = 0; i < 12; i++)
        assert_int_equal(a.argument[i].value.kind, kinds[i]);
    assert_true(a.argument[1].value.truth);
    assert_true(isinf(a.argument[7].value.number[0]));
    assert_true(isnan(a.argument[8].value.number[1]));
    const usc_value *list = &a.argument[10].value;
    assert_int_equal(list->n, 2);
    assert_int_equal(list->item[0].kind, USC_VALUE_DEVICE);
    assert_string_equal(list->item[0].text, "cuda:1");
    assert_int_equal(list->item[1].kind, USC_VALUE_OTHER);
    assert_string_equal(a.argument[11].name, "dim");
    assert_int_equal(a.argument[11].value.integer, -1);
    usc_arguments_free(&a);
}

static void test_what_is_no_json_is_corrupt(void **state)
{
    (void)state;
    static const char *const bad[] = {"{", "[1, 2", "{\"args\": [nan]}", "{} {}"};
    usc_arguments a;
    usc_error err;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(usc_arguments_read(bad[i], &a, &err), USC_E_CORRUPT);
        assert_int_equal(a.n, 0);
    }
    assert_int_equal(usc_arguments_read(NULL, &a, &err), USC_OK);
}

/* The one argument of a call. */
static usc_arguments read_one(const char *value)
{
    char text[8192];
    usc_arguments a;
    assert_true(snprintf(text, sizeof text, "{\"args\": [%s]}", value) <
                (int)sizeof text);
    assert_int_equal(usc_arguments_read(text, &a, NULL), USC_OK);
    assert_int_equal(a.n, 1);
    return a;
}

static void test_nothing_is_guessed_of_what_no_format_has(void **state)
{
    (void)state;
    static const char *const bad[] = {"{}",
                                      "{\"tensor\":true,\"x\":1}",
                                      "{\"tensor\":1}",
                                      "{\"tensor\":\"args[0]\"}",
                                      "{\"dtype\":7}",
                                      "{\"device\":null}",
                                      "{\"layout\":[]}",
                                      "{\"memory_format\":true}",
                                      "{\"generator\":1}",
                                      "{\"other\":{}}",
                                      "{\"float\":\"1e5x\"}",
                                      "{\"float\":true}",
                                      "{\"complex\":[1]}",
                                      "{\"complex\":[1,2,3]}",
                                      "{\"complex\":[1,\"i\"]}",
                                      "{\"complex\":{\"re\":1,\"im\":2}}",
                                      "{\"tuple\":3}",
                                      "{\"tuple\":{\"a\":1}}",
                                      "{\"slice\":[1]}",
                                      "{\"slice\":[1,2,3,4]}",
                                      "{\"dict\":[1]}",
                                      "{\"ellipsis\":false}",
                                      "{\"unheard of\":[1,{\"a\":2}]}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        usc_arguments a = read_one(bad[i]);
        assert_int_equal(a.argument[0].value.kind, USC_VALUE_OTHER);
        assert_string_equal(a.argument[0].value.text, bad[i]);
        assert_string_equal(a.argument[0].value.place, "args[0]");
        usc_arguments_free(&a);
    }
}

static void test_arguments_have_the_form_of_arguments(void **state)
{
    (void)state;
    static const char *const bad[][2] = {{"[]", "they are no object"},
                                         {"{\"args\": {\"a\": 1}}", "args is no list"},
                                         {"{\"args\": 1}", "args is no list"},
                                         {"{\"kwargs\": [1]}", "kwargs is no object"}};
    usc_arguments a;
    usc_error err;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(usc_arguments_read(bad[i][0], &a, &err), USC_E_CORRUPT);
        assert_non_null(strstr(err.text, bad[i][1]));
        assert_true(a.n == 0 && a.memory == NULL);
    }
    assert_int_equal(usc_arguments_read("{\"args\": null}", &a, &err), USC_OK);
    usc_arguments_free(&a);
}

static void test_what_is_nested_too_deep_is_not_kept(void **state)
{
    (void)state;
    static const char *const forms[][3] = {{"[", "]", "args[0][0]"},
                                           {"{\"tuple\": [", "]}", "args[0][0]"},
                                           {"{\"dict\": {\"a\": ", "}}", "args[0].a"}};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        for (int depth = 99; depth <= 101; depth++) {
            char text[8192] = "";
            for (int k = 0; k < depth; k++)
                strcat(text, forms[i][0]);
            strcat(text, "{\"tensor\": true}");
            for (int k = 0; k < depth; k++)
                strcat(text, forms[i][1]);
            usc_arguments a = read_one(text);
            const usc_value *v = &a.argument[0].value;
            while (v->n > 0)
                v = v->kind == USC_VALUE_MAP ? &v->member[0].value : v->item;
            assert_int_equal(v->kind, depth < 100 ? USC_VALUE_TENSOR : USC_VALUE_OTHER);
            assert_memory_equal(v->place, forms[i][2], strlen(forms[i][2]));
            usc_arguments_free(&a);
        }
}

static void test_a_tensor_knows_its_place(void **state)
{
    (void)state;
    usc_arguments a;
    assert_int_equal(
        usc_arguments_read("{\"args\": [1, [{\"tensor\": true}, {\"dict\": {\"x\": "
                           "{\"tuple\": [{\"tensor\": true}]}}}]], "
                           "\"kwargs\": {\"out\": {\"tensor\": true}}}",
                           &a, NULL),
        USC_OK);
    const usc_value *list = &a.argument[1].value;
    assert_string_equal(list->item[0].place, "args[1][0]");
    assert_string_equal(list->item[1].member[0].value.item[0].place, "args[1][1].x[0]");
    assert_string_equal(a.argument[2].value.place, "kwargs.out");
    usc_arguments_free(&a);
}

static void test_what_is_written_is_what_was_read(void **state)
{
    (void)state;
    static const char text[] =
        "{\"args\": [null, true, -3, -9223372036854775808, 2.0, 1e-05, 1e+300, "
        "0.30000000000000004, \"a\\\"\\u0001\\\\\", {\"tensor\": true}, {\"float\": "
        "\"-inf\"}, "
        "{\"complex\": [1.5, \"nan\"]}, {\"dtype\": \"float32\"}, [], [[1, 2], "
        "{\"device\": \"cuda:1\"}], {\"tuple\": [{\"ellipsis\": true}]}, {\"slice\": "
        "[null, 2, "
        "{\"tensor\": true}]}, {\"dict\": {\"a\": {\"other\": \"X\"}, \"b\": 1}}, "
        "{\"generator\": \"cpu\"}, {\"layout\": \"strided\"}, {\"memory_format\": "
        "\"p\"}], "
        "\"kwargs\": {\"dim\": -1, \"out\": {\"tensor\": true}}}";
    usc_arguments a;
    usc_writing w = {0};
    assert_int_equal(usc_arguments_read(text, &a, NULL), USC_OK);
    assert_string_equal(usc_writing_arguments(&w, &a), text);
    w.places = true;
    const char *placed = usc_writing_arguments(&w, &a);
    assert_non_null(strstr(placed, "{\"tensor\": \"args[9]\"}, {\"float\""));
    assert_non_null(strstr(placed, "\"out\": {\"tensor\": \"kwargs.out\"}}}"));
    w.most = 40;
    assert_null(usc_writing_arguments(&w, &a));
    usc_arguments_free(&a);
    usc_writing_free(&w);
}

static void test_a_text_that_is_no_utf8_is_not_kept(void **state)
{
    (void)state;
    usc_writing w = {0};
    usc_writing_begin(&w);
    usc_writing_value(&w, &(usc_value){.kind = USC_VALUE_TEXT, .text = "a\xff"});
    usc_writing_names(&w);
    assert_string_equal(usc_writing_end(&w),
                        "{\"args\": [{\"other\": \"str\"}], \"kwargs\": {}}");
    usc_writing_free(&w);
}

static void test_a_call_in_one_line(void **state)
{
    (void)state;
    static const char args[] = "{\"args\": [{\"tensor\": true}, [1, 2, 3, 4, 5], 2.0, "
                               "{\"dtype\": \"int8\"}, true], "
                               "\"kwargs\": {\"eps\": 1e-05, \"out\": null}}";
    const usc_call_arg tensor = {.role = USC_ROLE_IN,
                                 .path = "args[0]",
                                 .ndim = 2,
                                 .dtype_name = "float32",
                                 .sizes = (int64_t[]){6, 8}};
    const usc_call call = {.op = "aten::x", .args = args, .n_args = 1, .arg = &tensor};
    char text[404];
    assert_int_equal(usc_call_summary(&call, text, sizeof text, NULL), USC_OK);
    assert_string_equal(text, "float32[6, 8], [1, 2, 3, 4, ...], 2.0, int8, True, "
                              "eps=1e-05, out=None");
    assert_int_equal(usc_call_summary(&call, text, 9, NULL), USC_OK);
    assert_string_equal(text, "float32[");
}

static void test_a_state_is_read_with_maps(void **state)
{
    (void)state;
    static const char text[] = "{\"grad\": true, \"autocast\": {\"cpu\": \"bfloat16\"}, "
                               "\"rng\": {\"seed\": 5, \"at\": [1, {}]}}";
    usc_arguments a;
    usc_error err;
    assert_int_equal(usc_members_read(text, &a, &err), USC_OK);
    assert_int_equal(a.n, 3);
    assert_string_equal(a.argument[0].name, "grad");
    assert_int_equal(a.argument[0].value.kind, USC_VALUE_BOOL);
    const usc_value *cast = &a.argument[1].value, *rng = &a.argument[2].value;
    assert_int_equal(cast->kind, USC_VALUE_MAP); /* no dtype, as in arguments */
    assert_string_equal(cast->member[0].name, "cpu");
    assert_string_equal(cast->member[0].value.text, "bfloat16");
    assert_int_equal(rng->n, 2);
    const usc_value *at = &rng->member[1].value;
    assert_int_equal(at->kind, USC_VALUE_LIST);
    assert_true(at->item[1].kind == USC_VALUE_MAP && at->item[1].n == 0);
    usc_arguments_free(&a);
    assert_int_equal(usc_members_read("[[\"a.py\", 3, \"f\"]]", &a, &err), USC_OK);
    assert_true(a.n == 1 && a.argument[0].name == NULL && a.argument[0].value.n == 3);
    usc_arguments_free(&a);
    assert_int_equal(usc_members_read("[{\"cpu\": 1}]", &a, &err), USC_OK);
    assert_int_equal(a.argument[0].value.kind, USC_VALUE_MAP);
    usc_arguments_free(&a);
    assert_int_equal(usc_members_read("{\"x\": ", &a, &err), USC_E_CORRUPT);
    assert_int_equal(usc_members_read("", &a, &err), USC_OK);
    usc_arguments_free(&a);
}

static void test_tuples_slices_and_dicts_are_values(void **state)
{
    (void)state;
    usc_arguments a;
    usc_error err;
    assert_int_equal(
        usc_arguments_read("{\"args\": [{\"tuple\": [1, {\"ellipsis\": true}]}, "
                           "{\"slice\": [null, 2, {\"tensor\": true}]}, "
                           "{\"dict\": {\"a\": {\"dtype\": \"int8\"}}}]}",
                           &a, &err),
        USC_OK);
    assert_int_equal(a.n, 3);
    const usc_value *v = &a.argument[0].value;
    assert_int_equal(v->kind, USC_VALUE_TUPLE);
    assert_true(usc_value_has_items(v) && v->n == 2);
    assert_int_equal(v->item[1].kind, USC_VALUE_ELLIPSIS);
    v = &a.argument[1].value;
    assert_true(v->kind == USC_VALUE_SLICE && v->n == 3);
    assert_int_equal(v->item[2].kind, USC_VALUE_TENSOR);
    v = &a.argument[2].value;
    assert_true(v->kind == USC_VALUE_MAP && v->n == 1 && !usc_value_has_items(v));
    assert_string_equal(v->member[0].name, "a");
    assert_int_equal(v->member[0].value.kind, USC_VALUE_DTYPE);
    usc_arguments_free(&a);
}

static void test_values_are_written_as_people_do(void **state)
{
    (void)state;
    static const struct {
        usc_value value;
        const char *text;
    } cases[] = {
        {{.kind = USC_VALUE_NONE}, "None"},
        {{.kind = USC_VALUE_TENSOR}, "None"},
        {{.kind = USC_VALUE_BOOL, .truth = true}, "True"},
        {{.kind = USC_VALUE_BOOL}, "False"},
        {{.kind = USC_VALUE_INT, .integer = INT64_MIN}, "-9223372036854775808"},
        {{.kind = USC_VALUE_FLOAT, .number = {2}}, "2.0"},
        {{.kind = USC_VALUE_FLOAT, .number = {0.1}}, "0.1"},
        {{.kind = USC_VALUE_FLOAT, .number = {1e300}}, "1e+300"},
        {{.kind = USC_VALUE_FLOAT, .number = {0.1 + 0.2}}, "0.30000000000000004"},
        {{.kind = USC_VALUE_FLOAT, .number = {-1.0 / 0.0}}, "-inf"},
        {{.kind = USC_VALUE_COMPLEX, .number = {1, -0.5}}, "1.0-0.5j"},
        {{.kind = USC_VALUE_COMPLEX, .number = {0, 3}}, "0.0+3.0j"},
        {{.kind = USC_VALUE_DTYPE, .text = "float32"}, "float32"},
        {{.kind = USC_VALUE_ELLIPSIS}, "..."},
        {{.kind = USC_VALUE_LIST}, ""},
        {{.kind = USC_VALUE_TUPLE}, ""},
        {{.kind = USC_VALUE_SLICE}, ""},
        {{.kind = USC_VALUE_MAP}, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[64];
        usc_value_text(&cases[i].value, text, sizeof text);
        assert_string_equal(text, cases[i].text);
        usc_value_text(&cases[i].value, text, 3);
        assert_true(strlen(text) < 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_what_the_format_says),
        cmocka_unit_test(test_a_state_is_read_with_maps),
        cmocka_unit_test(test_tuples_slices_and_dicts_are_values),
        cmocka_unit_test(test_values_are_written_as_people_do),
        cmocka_unit_test(test_what_is_no_json_is_corrupt),
        cmocka_unit_test(test_nothing_is_guessed_of_what_no_format_has),
        cmocka_unit_test(test_arguments_have_the_form_of_arguments),
        cmocka_unit_test(test_what_is_nested_too_deep_is_not_kept),
        cmocka_unit_test(test_a_tensor_knows_its_place),
        cmocka_unit_test(test_what_is_written_is_what_was_read),
        cmocka_unit_test(test_a_text_that_is_no_utf8_is_not_kept),
        cmocka_unit_test(test_a_call_in_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
