// SPDX-License-Identifier: Apache-2.0
// The rules of ulpscope/x/pattern.h: which operator a PATTERN selects, what is refused.
#include <ulpscope/x/pattern.h>
#include <ulpscope/x/unmatched.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct row {
    const char *pattern, *op;
    bool expected;
} row;

static void check_rows(const row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (usc_pattern_match(rows[i].pattern, rows[i].op) != rows[i].expected)
            printf("pattern '%s', operator '%s'\n",
                   rows[i].pattern != NULL ? rows[i].pattern : "NULL", rows[i].op);
        assert_int_equal(usc_pattern_match(rows[i].pattern, rows[i].op),
                         rows[i].expected);
    }
}

#define CHECK_ROWS(rows) check_rows(rows, sizeof(rows) / sizeof(rows)[0])

static void test_blank_matches_everything(void **state)
{
    (void)state;
    const row rows[] = {
        {NULL, "aten::mm", true}, {"", "aten::mm", true}, {"  ", "aten::mm", true}};
    CHECK_ROWS(rows);
}

static void test_three_ways_to_name_an_operator(void **state)
{
    (void)state;
    const row rows[] = {{"aten::add.Tensor", "aten::add.Tensor", true},
                        {"aten::add.Tensor", "aten::add.out", false},
                        {"aten::add", "aten::add.Tensor", true},
                        {"add", "aten::add.Tensor", true},
                        {"add.Tensor", "aten::add.Tensor", true},
                        {"add", "aten::add_.Tensor", false},
                        {"add", "aten::addmm", false},
                        {"aten::add", "demo::add", false},
                        {"add", "demo::add", true},
                        {"aten", "aten::add", false}};
    CHECK_ROWS(rows);
}

static void test_missing_overload_is_default(void **state)
{
    (void)state;
    const row rows[] = {{"aten::mm.default", "aten::mm", true},
                        {"aten::mm.default", "aten::mm.out", false},
                        {"mm.default", "aten::mm", true},
                        {"aten::mm", "aten::mm.default", true},
                        {"*.default", "aten::mm", true},
                        {"*.out", "aten::mm", false}};
    CHECK_ROWS(rows);
}

static void test_globs(void **state)
{
    (void)state;
    const row rows[] = {{"*", "aten::mm", true},
                        {"*mm", "aten::addmm.out", true},
                        {"*mm", "aten::mm_and_more", false},
                        {"aten::*", "aten::mm", true},
                        {"aten::*", "demo::mm", false},
                        {"*::rms_norm", "demo::rms_norm", true},
                        {"b?m", "aten::bmm", true},
                        {"b?m", "aten::baddbmm", false},
                        {"*a*b*c", "x::a1b2b3c", true},
                        {"*a*b*c", "x::a1b2b3cd", false},
                        {"m*", "my::other", false},
                        {"_fused_adam*_", "aten::_fused_adamw_.tensor_lr", true}};
    CHECK_ROWS(rows);
}

static void test_lists_and_exclusion(void **state)
{
    (void)state;
    const row rows[] = {{"mm, bmm", "aten::bmm", true},
                        {"mm,bmm", "aten::add.Tensor", false},
                        {"!mm", "aten::mm", false},
                        {"!mm", "aten::bmm", true},
                        {"aten::*, ! aten::copy_", "aten::copy_", false},
                        {"!aten::copy_,aten::*", "aten::copy_", false},
                        {"!aten::copy_,aten::*", "aten::mm", true},
                        {"!aten::copy_,aten::*", "demo::mm", false}};
    CHECK_ROWS(rows);
}

static void test_modules_are_covered(void **state)
{
    (void)state;
    const row rows[] = {{NULL, "layers.0", true},
                        {"layers.0", "layers.0", true},
                        {"layers.0", "layers.0.attn.q", true},
                        {"layers.0", "layers.01", false},
                        {"layers.0.attn", "layers.0", false},
                        {"attn", "layers.0.attn", false},
                        {"*.attn", "layers.0.attn.q", true},
                        {"layers.?", "layers.1.mlp", true},
                        {"*", "", true},
                        {"layers", "", false},
                        {"!layers.0", "layers.0.attn", false},
                        {"!layers.0", "layers.1.attn", true},
                        {"layers.*,!*.attn", "layers.0.attn.q", false},
                        {"layers.*,!*.attn", "layers.0.mlp", true}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (usc_pattern_covers(rows[i].pattern, rows[i].op) != rows[i].expected)
            fail_msg("pattern '%s', module '%s'", rows[i].pattern, rows[i].op);
}

static void test_check_accepts(void **state)
{
    (void)state;
    const char *good[] = {NULL, "", "mm", " mm , !aten::a*.b?c ", "*", "_a::b_1.Tensor"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        usc_error err;
        assert_int_equal(usc_pattern_check(good[i], &err), USC_OK);
    }
}

static void test_check_refuses_with_position(void **state)
{
    (void)state;
    const struct {
        const char *pattern;
        int where;
    } bad[] = {{"mm,,bmm", 3}, {"mm,", 3}, {"mm,!", 4},
               {"a[bc]", 1},   {"a b", 1}, {"x!", 1}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        usc_error err;
        assert_int_equal(usc_pattern_check(bad[i].pattern, &err), USC_E_ARG);
        assert_int_equal(err.where, bad[i].where);
        assert_int_equal(usc_pattern_check(bad[i].pattern, NULL), USC_E_ARG);
    }
}

static void test_likeness_of_names(void **state)
{
    (void)state;
    const struct {
        const char *a, *b;
        double like;
    } rows[] = {
        {"mm", "mm", 1},
        {"GELU", "gelu", 1},
        {"cooldowns", "cooldown", 16.0 / 17},
        {"nun", "nan", 4.0 / 6},
        {"modul", "module", 10.0 / 11},
        {"ab", "ba", 0.5},
        {"ab", "cd", 0},
        {"", "mm", 0},
        {"", "", 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_float_equal(usc_likeness(rows[i].a, rows[i].b), rows[i].like, 1e-15);
        assert_float_equal(usc_likeness(rows[i].b, rows[i].a), rows[i].like, 1e-15);
    }
    char name[200];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_float_equal(usc_likeness(name, name), 1, 0);
}

static void test_what_matches_nothing_is_named(void **state)
{
    static const char *const names[] = {"aten::mm", "aten::add.Tensor", "torch.relu"};
    static const char *const cases[][2] = {
        {"mm,add", ""},     {"mm, aten::mn ,gelu*", "'aten::mn', 'gelu*'"},
        {"*,!nothing", ""}, {"relu,aten::relu", "'aten::relu'"},
        {"", ""},           {" , ", ""},
    };
    (void)state;
    char out[32];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        usc_pattern_unmatched(cases[i][0], names, 3, out, sizeof out);
        assert_string_equal(out, cases[i][1]);
    }
    usc_pattern_unmatched(NULL, names, 3, out, sizeof out);
    assert_string_equal(out, "");
    usc_pattern_unmatched("a,b,c,d", names, 3, out, 9); /* no room for the third */
    assert_string_equal(out, "'a', 'b'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blank_matches_everything),
        cmocka_unit_test(test_three_ways_to_name_an_operator),
        cmocka_unit_test(test_missing_overload_is_default),
        cmocka_unit_test(test_globs),
        cmocka_unit_test(test_lists_and_exclusion),
        cmocka_unit_test(test_modules_are_covered),
        cmocka_unit_test(test_check_accepts),
        cmocka_unit_test(test_check_refuses_with_position),
        cmocka_unit_test(test_likeness_of_names),
        cmocka_unit_test(test_what_matches_nothing_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
