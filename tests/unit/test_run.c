// SPDX-License-Identifier: Apache-2.0
// The coordinator (ulpscope/x/run.h) from within: the order of a budget, memory, groups
// of findings, what computed. Whole checks: test_run_workers.c.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include <ulpscope/trace.h>
#include <ulpscope/x/run.h>

#include "run/agenda.h"
#include "run/crew.h"
#include "run/identity.h"
#include "run/known.h"
#include "run/rooms.h"
#include "trace_sample.h"

/* ---- the order of a budget ---- */

typedef struct row {
    const char *op;
    int64_t size;
    const char *class;
} row;

static usc_calls *calls_of(const row *rows, int n)
{
    usc_calls *calls = NULL;
    assert_int_equal(usc_calls_create(&calls, NULL), USC_OK);
    for (int i = 0; i < n; i++) {
        const usc_call_arg tensor = {.role = USC_ROLE_IN,
                                     .path = "args[0]",
                                     .dtype_name = "float32",
                                     .ndim = 1,
                                     .sizes = &rows[i].size,
                                     .strides = &(int64_t){1}};
        const usc_call call = {.sequence = i + 1,
                               .op = rows[i].op,
                               .args = "",
                               .module_class = rows[i].class,
                               .n_args = 1,
                               .arg = &tensor};
        assert_int_equal(usc_calls_add(calls, &call, NULL), USC_OK);
    }
    return calls;
}

static const row rows[] = {{"mm", 3, ""},       {"mm", 3, ""},   {"mm", 5, ""},
                           {"mm", 3, "Linear"}, {"gelu", 3, ""}, {"gelu", 3, ""},
                           {"softmax", 3, ""},  {"mm", 3, ""}};

enum { N_ROWS = 8 };

/* Takes all, hearing verdicts of some; the order as text. */
static void taken(double end, const char *const *verdicts, char *out)
{
    usc_pick picks[N_ROWS] = {{0}};
    int64_t index[N_ROWS];
    usc_calls *calls = calls_of(rows, N_ROWS);
    usc_agenda a = {.calls = calls, .pick = picks};
    for (int i = 0; i < N_ROWS; i++) {
        picks[i].call = i + 1;
        index[i] = i;
    }
    assert_int_equal(usc_agenda_begin(&a, index, N_ROWS, end, NULL), USC_OK);
    *out = '\0';
    while (usc_agenda_more(&a)) {
        const int64_t i = usc_agenda_take(&a);
        const size_t n = strlen(out);
        (void)snprintf(out + n, 64 - n, " %lld", (long long)i + 1);
        if (verdicts != NULL && verdicts[i] != NULL)
            usc_agenda_hear(&a, i, usc_verdict_by_text(verdicts[i]),
                            strcmp(verdicts[i], "wrong") == 0 ? 3.0 : 22.0, 1);
    }
    usc_agenda_free(&a);
    usc_calls_free(calls);
}

static void test_without_a_budget_the_order_is_that_of_the_trace(void **state)
{
    (void)state;
    char order[64];
    taken(0, NULL, order);
    assert_string_equal(order, " 1 2 3 4 5 6 7 8");
}

static void test_signatures_come_first_then_module_classes_then_the_rare(void **state)
{
    (void)state;
    static const char *const said[N_ROWS] = {[0] = "wrong", [4] = "pass", [6] = "pass"};
    char order[64];
    taken(usc_run_clock() + 100, NULL, order);
    assert_string_equal(order, " 7 5 1 3 4 6 2 8");
    taken(usc_run_clock() + 100, said, order); /* the worst operator goes on first */
    assert_string_equal(order, " 7 5 1 3 4 2 8 6");
}

/* mm: 5 s each but for the first; gelu: 1 s; of softmax nothing is known. */
static void test_what_is_left_weighs_what_its_operators_took(void **state)
{
    (void)state;
    static const double seconds[N_ROWS] = {20, 5, 5, 5, 1};
    usc_pick picks[N_ROWS] = {{0}};
    int64_t index[N_ROWS];
    usc_calls *calls = calls_of(rows, N_ROWS);
    usc_agenda a = {.calls = calls, .pick = picks};
    for (int i = 0; i < N_ROWS; i++) {
        picks[i].call = i + 1;
        index[i] = i;
    }
    assert_int_equal(usc_agenda_begin(&a, index, N_ROWS, 0, NULL), USC_OK);
    assert_true(usc_agenda_weight(&a) == N_ROWS);
    for (int i = 0; i < 5; i++)
        usc_agenda_hear(&a, usc_agenda_take(&a), USC_VERDICT_PASS, 22, seconds[i]);
    const double mean = 36.0 / 5; /* left: gelu, softmax, mm */
    assert_true(fabs(usc_agenda_weight(&a) - (1 + mean + 5) / mean) < 1e-9);
    usc_agenda_free(&a);
    usc_calls_free(calls);
}

static void test_a_budget_ends_with_its_time_and_tells_what_is_left(void **state)
{
    (void)state;
    char text[128];
    usc_pick picks[N_ROWS] = {{0}};
    int64_t index[N_ROWS];
    usc_calls *calls = calls_of(rows, N_ROWS);
    usc_agenda a = {.calls = calls, .pick = picks};
    for (int i = 0; i < N_ROWS; i++) {
        picks[i].call = i + 1;
        index[i] = i;
    }
    const double end = usc_run_clock() - 1;
    assert_int_equal(usc_agenda_begin(&a, index, N_ROWS, end, NULL), USC_OK);
    assert_false(usc_agenda_more(&a));
    assert_int_equal(usc_agenda_take(&a), 6);
    usc_agenda_tell_left(&a, text, sizeof text);
    assert_string_equal(text, "mm (5), gelu (2)");
    usc_agenda_free(&a);
    usc_calls_free(calls);
}

static void test_forwards_are_told_apart_by_class_and_by_what_they_take(void **state)
{
    (void)state;
    static const row mm[] = {{"mm", 8, ""}, {"mm", 8, ""}, {"mm", 8, ""}, {"mm", 9, ""}};
    static const char *const class[] = {"Block", "Block", "Head", "Block"};
    const int64_t number[] = {1, 2, 3, 4};
    usc_forward forwards[4];
    usc_pick picks[4];
    int64_t index[] = {0, 1, 2, 3}, order = 0;
    usc_calls *calls = calls_of(mm, 4);
    usc_agenda a = {.calls = calls, .pick = picks};
    for (int i = 0; i < 4; i++) {
        forwards[i] = (usc_forward){.path = "",
                                    .op = "module:m",
                                    .module_class = class[i],
                                    .n_calls = 1,
                                    .call = &number[i]};
        picks[i] = (usc_pick){.call = i + 1, .forward = &forwards[i]};
    }
    const double end = usc_run_clock() + 100;
    assert_int_equal(usc_agenda_begin(&a, index, 4, end, NULL), USC_OK);
    while (usc_agenda_more(&a))
        order = order * 10 + usc_agenda_take(&a);
    assert_int_equal(order, 2031);
    usc_agenda_free(&a);
    usc_calls_free(calls);
}

/* ---- memory ---- */

static void test_who_may_begin(void **state)
{
    (void)state;
    static const struct {
        int64_t need, held;
        bool may;
    } table[] = {{40, 0, true},   {60, 40, true},  {60, 41, false}, {100, 0, true},
                 {1, 100, false}, {100, 1, false}, {40, 60, true}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        assert_int_equal(usc_room_admits(100, table[i].need, table[i].held),
                         table[i].may);
}

static void put_file(const char *folder, const char *name, const char *text)
{
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    (void)fclose(file);
}

static void test_the_limit_of_a_control_group_counts(void **state)
{
    (void)state;
    static const char *const groups[][3] = {
        {"", "max", "5"}, {"/a", "1000", "300"}, {"/a/b", "max", "1"}};
    char *folder = sample_folder(), path[600];
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(path, sizeof path, "%s%s", folder, groups[i][0]);
        (void)mkdir(path, 0777);
        put_file(path, "memory.max", groups[i][1]);
        put_file(path, "memory.current", groups[i][2]);
    }
    put_file(folder, "groups", "0::/a/b\n");
    (void)snprintf(path, sizeof path, "%s/groups", folder);
    assert_int_equal(usc_memory_of_groups(folder, path), 700);
    put_file(folder, "groups", "0::/\n");
    assert_true(usc_memory_of_groups(folder, path) == INT64_MAX);
    assert_true(usc_memory_free() > 0);
    sample_remove(folder);
    free(folder);
}

/* ---- groups of findings ---- */

static char heard[4][128];

static void hear_answer(void *ctx, int who, const char *line)
{
    (void)ctx;
    (void)snprintf(heard[who], sizeof heard[who], "%s", line);
}

#define SEARCH "{\"causes\": [], \"search\": true}\n"
#define NOTHING "{\"causes\": [], \"search\": false}\n"
#define KNOWN "{\"causes\": [\"a \\\"b\\\"\"], \"search\": false}\n"

static void test_a_group_costs_one_search(void **state)
{
    (void)state;
    const usc_known_hearer to = {.tell = hear_answer};
    usc_known k;
    usc_known_begin(&k);
    memset(heard, 0, sizeof heard);
    usc_known_ask(&k, 0, "g", 0, 2, &to);
    usc_known_ask(&k, 1, "g", 0, 2, &to);
    usc_known_ask(&k, 2, "other", 0, 2, &to);
    assert_string_equal(heard[0], SEARCH);
    assert_string_equal(heard[1], ""); /* waits */
    assert_string_equal(heard[2], SEARCH);
    usc_known_found(&k, "g", "a \"b\"", &to);
    assert_string_equal(heard[1], KNOWN);
    usc_known_ask(&k, 1, "g", 1, 2, &to); /* not this one's: it searches, the last time */
    assert_string_equal(heard[1], SEARCH);
    usc_known_found(&k, "g", "", &to);
    usc_known_ask(&k, 3, "g", 1, 2, &to);
    assert_string_equal(heard[3], NOTHING);
    usc_known_free(&k);
}

static void test_who_waits_for_one_that_dies_searches_itself(void **state)
{
    (void)state;
    const usc_known_hearer to = {.tell = hear_answer};
    usc_known k;
    usc_known_begin(&k);
    memset(heard, 0, sizeof heard);
    for (int who = 0; who < 3; who++)
        usc_known_ask(&k, who, "g", 0, 3, &to);
    usc_known_gone(&k, 1, &to); /* waits no more */
    usc_known_gone(&k, 0, &to);
    assert_string_equal(heard[1], "");
    assert_string_equal(heard[2], SEARCH);
    usc_known_free(&k);
}

/* ---- what computed ---- */

static void test_what_changed_is_named(void **state)
{
    (void)state;
    static const char *const facts[][3] = {
        {"{\"torch\":\"1\"}", "{\"torch\":\"1\"}", ""},
        {"{\"torch\":\"1\"}", "{\"torch\":\"2\"}", "torch was '1' and is '2'"},
        {"{\"file /a/b.so\":\"x\"}", "{}", "b.so is not loaded"},
        {"{}", "{\"file /a/b.so\":\"x\"}", "b.so was not loaded"},
        {"{\"driver\":\"x\"}", "{}", "driver is not known"},
        {"{\"a\":\"1\",\"b\":\"1\",\"c\":\"1\",\"d\":\"1\"}",
         "{\"d\":\"1\",\"file z\":\"1\"}",
         "a is not known, b is not known, c is not known, and 1 more"}};
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        usc_json *sides[2];
        char text[400];
        for (int k = 0; k < 2; k++)
            assert_int_equal(usc_json_parse(facts[i][k], strlen(facts[i][k]), "facts", "",
                                            &sides[k], NULL),
                             USC_OK);
        assert_true(usc_identity_difference(sides[0], sides[1], text, sizeof text));
        assert_string_equal(text, facts[i][2]);
        usc_json_free(sides[0]);
        usc_json_free(sides[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_a_budget_the_order_is_that_of_the_trace),
        cmocka_unit_test(test_signatures_come_first_then_module_classes_then_the_rare),
        cmocka_unit_test(test_what_is_left_weighs_what_its_operators_took),
        cmocka_unit_test(test_a_budget_ends_with_its_time_and_tells_what_is_left),
        cmocka_unit_test(test_forwards_are_told_apart_by_class_and_by_what_they_take),
        cmocka_unit_test(test_who_may_begin),
        cmocka_unit_test(test_the_limit_of_a_control_group_counts),
        cmocka_unit_test(test_a_group_costs_one_search),
        cmocka_unit_test(test_who_waits_for_one_that_dies_searches_itself),
        cmocka_unit_test(test_what_changed_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
