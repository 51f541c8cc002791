// SPDX-License-Identifier: Apache-2.0
// Faults of ulpscope_sim/fault.h: their conditions, lines of JSON, known bugs.
#include "sim_faults.h"

#include <stdio.h>
#include <string.h>

static bool has_mask(const void *ctx, const char *argument)
{
    (void)ctx;
    return strcmp(argument, "mask") == 0;
}

static void test_conditions(void **state)
{
    (void)state;
    const usc_sim_call plain = {"aten::mm", 3, USC_F32, .n_columns = 33, .n = 100};
    usc_sim_call other = plain;
    other.strided = other.has_last = true;
    other.dtype = USC_BF16;
    other.stream = 4;
    other.n_columns = 64;
    other.n = 1000;
    other.given = has_mask;
    static const struct {
        const char *text;
        bool of_plain, of_other;
    } rows[] = {
        {"mm:nan:stream=3", true, false},
        {"mm:nan:dtype=*float16", false, true},
        {"mm:nan:layout=strided", false, true},
        {"mm:nan:layout=channels_last", false, true},
        {"mm:nan:remainder=32", true, false},
        {"mm:nan:more=100", false, true},
        {"mm:nan:argument=mask", false, true},
        {"mm:nan:step=0", true, true},
        {"mm:nan:step=1", false, false},
        {"mm:nan:rank=0", true, true},
        {"mm:nan:rank=5", false, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        usc_sim_fault *hits;
        planted(rows[i].text);
        const bool a = usc_sim_fault_select(&plain, &hits) == 1;
        free(hits);
        const bool b = usc_sim_fault_select(&other, &hits) == 1;
        free(hits);
        if (a != rows[i].of_plain || b != rows[i].of_other)
            fail_msg("%s: %d, %d", rows[i].text, a, b);
    }
    usc_sim_fault_set_step(1);
    usc_sim_fault_set_rank(5);
    planted("mm:nan:step=1:rank=5");
    assert_int_equal(n_hits("aten::mm"), 1);
    usc_sim_fault_set_step(0);
    usc_sim_fault_set_rank(0);
}

static void test_as_many_as_one_likes(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++)
        plant("mm:offset");
    assert_int_equal(n_hits("aten::mm"), 300);
    assert_true(usc_sim_fault_concerns("aten::mm"));
    assert_false(usc_sim_fault_concerns("aten::bmm"));
}

static void test_lines_of_json(void **state)
{
    (void)state;
    usc_sim_fault f;
    usc_error err;
    const char *lines =
        "# what broke\n\n"
        "{\"ops\": \"aten::mm\", \"kind\": \"scale\", \"output\": 1, \"params\": "
        "{\"factor\": 2.5}, \"when\": {\"nth\": 3, \"p\": 0.5, \"seed\": 7, \"step\": 2, "
        "\"rank\": 1, \"stream\": 4, \"dtype\": \"float32\"}, \"where\": {\"index\": -2, "
        "\"tile\": 3, \"tile_size\": 64, \"lane\": 5, \"lanes\": 16}}\r\n"
        "  {\"bug\": \"mps_topk_over_16\"}";
    assert_int_equal(usc_sim_fault_plant_lines(lines, "f.jsonl", NULL, &err), USC_OK);
    assert_true(usc_sim_fault_get(0, &f));
    assert_int_equal(f.kind, USC_SIM_FAULT_SCALE);
    assert_true(f.output == 1 && f.params[0] >= 2.5 && f.nth == 3 && f.seed == 7);
    assert_true(f.step == 2 && f.rank == 1 && f.stream == 4 && f.p < 0.6);
    assert_true(f.has_index && f.index == -2 && f.tile == 3 && f.tile_size == 64);
    assert_true(f.lane == 5 && f.lanes == 16);
    assert_string_equal(f.dtype, "float32");
    assert_true(usc_sim_fault_get(1, &f));
    assert_int_equal(f.kind, USC_SIM_FAULT_ROW_TAIL);
    assert_false(usc_sim_fault_get(2, &f));
}

static void test_a_wrong_line_is_told_with_its_number(void **state)
{
    (void)state;
    static const struct {
        const char *line, *said;
    } rows[] = {
        {"{\"ops\": \"mm\", \"kind\": \"scael\"}",
         "no kind 'scael'; the nearest is 'scale'"},
        {"{\"ops\": \"mm\", \"kind\": \"scale\", \"params\": {\"faktor\": 1}}",
         "the nearest is 'factor'"},
        {"{\"ops\": \"mm\", \"kind\": \"nan\", \"when\": {\"stp\": 1}}",
         "the nearest is 'step'"},
        {"{\"ops\": \"mm\", \"kind\": \"nan\", \"where\": {\"lanes\": 0}}",
         "not a whole number in its range"},
        {"{\"ops\": \"mm\", \"kind\": \"nan\", \"where\": 3}", "not an object"},
        {"{\"ops\": \"mm\", \"kind\": \"nan\", \"when\": {\"nth\": [1]}}",
         "not a number or a text"},
        {"{\"ops\": \"mm\", \"kind\": \"crash\", \"params\": {\"n\": 1}}",
         "crash has no parameters"},
        {"{\"ops\": \"mm\", \"kind\": \"nan\", \"wen\": {}}", "ops, kind, output"},
        {"{\"ops\": \"mm\", \"kind\": \"ignored\"}", "which argument"},
        {"{\"bug\": \"mps_topk\"}", "the nearest is 'mps_topk_over_16'"},
        {"{\"kind\": \"nan\"}", "PATTERN"},
        {"[1]", "no object"},
        {"{\"ops\": \"mm\"", "no fault"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[300];
        usc_error err;
        usc_sim_fault f;
        (void)snprintf(text, sizeof text, "{\"ops\": \"mm\", \"kind\": \"nan\"}\n#\n%s\n",
                       rows[i].line);
        assert_int_equal(usc_sim_fault_plant_lines(text, "f.jsonl", NULL, &err),
                         USC_E_ARG);
        if (strstr(err.text, "f.jsonl:3: ") != err.text ||
            strstr(err.text, rows[i].said) == NULL || err.where != 3)
            fail_msg("%s: %s", rows[i].line, err.text);
        assert_false(usc_sim_fault_get(0, &f)); /* all or none */
    }
}

static void test_known_bugs_can_all_be_planted(void **state)
{
    (void)state;
    const char *name, *faults, *link;
    usc_error err;
    for (size_t i = 0; usc_sim_bug(i, &name, &faults, &link); i++) {
        char text[100];
        (void)snprintf(text, sizeof text, "bug:%s", name);
        if (usc_sim_fault_plant(text, NULL, &err) != USC_OK) fail_msg("%s", err.text);
        assert_true(strncmp(link, "https://", 8) == 0);
    }
    assert_int_equal(usc_sim_fault_plant("bug:nothing_alike", NULL, NULL), USC_E_ARG);
    assert_int_equal(usc_sim_fault_plant("@/no/such/file", NULL, NULL), USC_E_IO);
}

#define TEST(name) cmocka_unit_test_teardown(name, clear)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_conditions),
        TEST(test_as_many_as_one_likes),
        TEST(test_lines_of_json),
        TEST(test_a_wrong_line_is_told_with_its_number),
        TEST(test_known_bugs_can_all_be_planted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
