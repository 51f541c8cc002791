// SPDX-License-Identifier: Apache-2.0
// ulpscope/call.h: which calls of a list a replay takes, on which device, of which steps;
// names that are nearly an operator's.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ulpscope/call.h>
#include <ulpscope/x/writing.h>

/* ---- calls ---- */

typedef struct row {
    int64_t sequence, parent, step;
    const char *op, *device, *args, *state, *phase, *path;
    bool composite;
    int64_t size; /* of the tensor; 0: 2 */
} row;

static usc_calls *calls_of(const row *rows, size_t n)
{
    usc_calls *calls = NULL;
    assert_int_equal(usc_calls_create(&calls, NULL), USC_OK);
    for (size_t i = 0; i < n; i++) {
        const row *r = &rows[i];
        const usc_call_arg tensor = {.role = USC_ROLE_IN,
                                     .path = "args[0]",
                                     .version = r->sequence,
                                     .device = r->device != NULL ? r->device : "cpu",
                                     .dtype_name = "float32",
                                     .ndim = 1,
                                     .sizes = &(int64_t){r->size > 0 ? r->size : 2},
                                     .strides = &(int64_t){1}};
        const usc_call call = {.sequence = r->sequence,
                               .step = r->step,
                               .parent = r->parent,
                               .op = r->op != NULL ? r->op : "aten::mm",
                               .args = r->args != NULL ? r->args : "{}",
                               .state = r->state,
                               .phase = r->phase != NULL ? r->phase : "forward",
                               .status = "ok",
                               .module_path = r->path,
                               .module_class = "M",
                               .composite = r->composite,
                               .n_args = 1,
                               .arg = &tensor};
        assert_int_equal(usc_calls_add(calls, &call, NULL), USC_OK);
    }
    return calls;
}

/* "1[2]+3 5": picks with their children and how many more they stand for. */
static void told(const usc_selection *s, char *out, size_t size)
{
    out[0] = '\0';
    for (int64_t i = 0; i < s->n; i++) {
        const usc_pick *p = &s->pick[i];
        size_t n = strlen(out);
        n += (size_t)snprintf(out + n, size - n, "%s%lld", i > 0 ? " " : "",
                              (long long)p->call);
        for (int64_t k = 0; k < p->n_children; k++)
            n += (size_t)snprintf(out + n, size - n, "[%lld]", (long long)p->child[k]);
        if (p->stands_for > 1)
            (void)snprintf(out + n, size - n, "+%lld", (long long)p->stands_for - 1);
    }
}

static void check_picks(const row *rows, size_t n, usc_select_options options,
                        const char *expected)
{
    char text[256];
    usc_selection s;
    usc_calls *calls = calls_of(rows, n);
    assert_int_equal(usc_select(calls, &options, &s, NULL), USC_OK);
    told(&s, text, sizeof text);
    assert_string_equal(text, expected);
    usc_selection_free(&s);
    usc_calls_free(calls);
}

#define PICKS(rows, expected, ...)                                                       \
    check_picks(rows, sizeof(rows) / sizeof(rows)[0], (usc_select_options){__VA_ARGS__}, \
                expected)

static const row linear[] = {{.sequence = 1, .op = "aten::linear", .composite = true},
                             {.sequence = 2, .parent = 1},
                             {.sequence = 3}};

static void test_another_device_type_gets_the_outermost_portable_call(void **state)
{
    (void)state;
    PICKS(linear, "1[2] 3", .target = "sim");
    PICKS(linear, "2 3", .target = "cpu");
    PICKS(linear, "2 3", .target = NULL);
    const int64_t below[] = {2};
    PICKS(linear, "2", .target = "sim", .wanted = below, .n_wanted = 1);
}

static void test_calls_that_are_not_portable_are_replaced_by_those_below(void **state)
{
    (void)state;
    static const row cast[] = {{.sequence = 1,
                                .composite = true,
                                .state = "{\"autocast\": {\"cpu\": \"bfloat16\"}}"},
                               {.sequence = 2, .parent = 1}};
    static const row other[] = {{.sequence = 1,
                                 .composite = true,
                                 .args = "{\"args\": [{\"other\": \"ScriptObject\"}]}"},
                                {.sequence = 2, .parent = 1}};
    static const row named[] = {
        {.sequence = 1, .composite = true, .args = "{\"kwargs\": {\"other\": 1}}"},
        {.sequence = 2, .parent = 1}};
    static const row function[] = {{.sequence = 1,
                                    .op = "torch.mm",
                                    .composite = true,
                                    .state = "{\"autocast\": {\"cpu\": \"bfloat16\"}}"},
                                   {.sequence = 2, .parent = 1}};
    PICKS(cast, "2", .target = "sim");
    PICKS(function, "1[2]", .target = "sim"); /* it is replayed under autocast */
    PICKS(other, "2", .target = "sim");
    PICKS(named, "1[2]", .target = "sim"); /* an argument of that name was kept */
}

static void test_the_hosts_own_calls_are_left_alone(void **state)
{
    (void)state;
    static const row two[] = {{.sequence = 1, .device = "cuda:0"}, {.sequence = 2}};
    static const row made[] = {
        {.sequence = 1, .args = "{\"kwargs\": {\"device\": {\"device\": \"cuda:0\"}}}"},
        {.sequence = 2}};
    PICKS(two, "1", .target = "npu");
    PICKS(made, "1", .target = "npu"); /* the device that an argument names counts */
}

static void test_waits_give_nothing_of_their_own(void **state)
{
    (void)state;
    static const row waits[] = {{.sequence = 1, .op = "c10d::barrier"},
                                {.sequence = 2, .op = "_c10d_functional::wait_tensor"},
                                {.sequence = 3, .op = "c10d::allreduce_"}};
    PICKS(waits, "3", .target = "cpu");
}

static void test_distinct_takes_one_of_each_signature(void **state)
{
    (void)state;
    static const row rows[] = {{.sequence = 1},
                               {.sequence = 2},
                               {.sequence = 3, .size = 5},
                               {.sequence = 4, .args = "{\"args\": [1]}"},
                               {.sequence = 5, .op = "aten::add"},
                               {.sequence = 6}};
    PICKS(rows, "1+2 3 4 5", .target = "cpu", .distinct = true);
}

static void test_backward_calls_belong_to_their_forward_call(void **state)
{
    (void)state;
    static const row rows[] = {
        {.sequence = 1, .op = "aten::gelu"},
        {.sequence = 2, .op = "my::op"},
        {.sequence = 3, .phase = "backward", .state = "{\"forward\": 1}"},
        {.sequence = 4, .phase = "backward", .op = "my::op_backward"}};
    usc_selection s;
    usc_calls *calls = calls_of(rows, 4);
    const usc_select_options options = {.target = "cpu"};
    assert_int_equal(usc_select(calls, &options, &s, NULL), USC_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(s.pick[i].n_backward, 1);
        assert_int_equal(s.pick[i].backward[0].of, i + 1);
        assert_int_equal(s.pick[i].backward[0].n, 1);
        assert_int_equal(s.pick[i].backward[0].call[0], i + 3);
    }
    assert_int_equal(s.pick[2].n_backward, 0);
    usc_selection_free(&s);
    usc_calls_free(calls);
}

static void test_a_module_is_the_run_of_its_calls(void **state)
{
    (void)state;
    static const row rows[] = {{.sequence = 1, .path = "a.b"},
                               {.sequence = 2, .path = "a.c"},
                               {.sequence = 3, .path = "d"},
                               {.sequence = 4, .path = "a.b"},
                               {.sequence = 5, .phase = "backward", .path = "a.b"}};
    static const struct {
        const char *path;
        int64_t n;
    } expected[] = {{"", 4}, {"a", 2}, {"a.b", 1}, {"a.c", 1}, {"d", 1}, {"a.b", 1}};
    usc_selection s;
    usc_calls *calls = calls_of(rows, 5);
    const usc_select_options options = {.target = "cpu", .level = USC_LEVEL_MODULE};
    assert_int_equal(usc_select(calls, &options, &s, NULL), USC_OK);
    assert_int_equal(s.n, 6);
    int64_t numbers = 0;
    for (int64_t i = 0; i < s.n; i++) {
        assert_string_equal(s.pick[i].forward->path, expected[i].path);
        assert_int_equal(s.pick[i].forward->n_calls, expected[i].n);
        numbers |= (int64_t)1 << s.pick[i].call;
    }
    assert_int_equal(__builtin_popcountll((unsigned long long)numbers), 6);
    usc_selection_free(&s);
    usc_calls_free(calls);
}

/* ---- what a user asks for ---- */

static void test_names_that_are_nearly_an_operators(void **state)
{
    (void)state;
    static const row rows[] = {{.sequence = 1, .op = "aten::mm"},
                               {.sequence = 2, .op = "aten::addmm"},
                               {.sequence = 3, .op = "aten::gelu"},
                               {.sequence = 4, .op = "aten::add.Tensor"},
                               {.sequence = 5, .op = "aten::add_.Tensor"}};
    static const char *const asked[][2] = {
        {"torch.mm", "aten::mm"}, {"aten.addmm.default", "aten::addmm"},
        {"GELU", "aten::gelu"},   {"gleu", "aten::gelu"},
        {"nosuchthing", ""},      {"add", "aten::add.Tensor,aten::add_.Tensor"}};
    usc_calls *calls = calls_of(rows, 5);
    char likely[128];
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        usc_calls_likely(calls, asked[i][0], likely, sizeof likely);
        assert_string_equal(likely, asked[i][1]);
    }
    usc_calls_free(calls);
}

static void test_steps(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } bad[] = {{"3-1", "the range 3-1 runs backwards"},
               {"x", "'x' is neither a number nor a range"},
               {"", "'' is neither a number nor a range"},
               {"1,,2", "'' is neither a number nor a range"},
               {"1 2", "'1 2' is neither a number nor a range"},
               {"0-99999999999", "more than 1,000,000 steps"}};
    usc_steps *steps;
    size_t n;
    usc_error err;
    assert_int_equal(usc_steps_read("2, 5 - 8", &steps, &n, &err), USC_OK);
    assert_int_equal(n, 2);
    assert_int_equal(steps[0].first + steps[0].last, 4);
    assert_int_equal(steps[1].first * 10 + steps[1].last, 58);
    free(steps);
    assert_int_equal(usc_steps_read("1,2,3", NULL, NULL, &err), USC_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(usc_steps_read(bad[i].text, &steps, &n, &err), USC_E_ARG);
        assert_non_null(strstr(err.text, bad[i].error));
    }
}

static void test_wanted_is_near_a_call_and_in_its_steps(void **state)
{
    (void)state;
    static const row rows[] = {{.sequence = 1, .composite = true},
                               {.sequence = 2, .parent = 1, .step = 3},
                               {.sequence = 4, .parent = 2, .step = 4},
                               {.sequence = 5, .step = 3}};
    usc_calls *calls = calls_of(rows, 4);
    const int64_t all[] = {1, 2, 4, 5};
    const usc_steps three = {3, 3};
    int64_t out[4], n;
    usc_wanted w = {.matching = all, .n_matching = 4, .call = 1};
    usc_calls_wanted(calls, &w, out, &n);
    assert_int_equal(n, 3);
    w.call = -1;
    w.steps = &three;
    w.n_steps = 1;
    usc_calls_wanted(calls, &w, out, &n);
    assert_int_equal(n, 2);
    assert_int_equal(out[1], 5);
    usc_calls_free(calls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_another_device_type_gets_the_outermost_portable_call),
        cmocka_unit_test(test_calls_that_are_not_portable_are_replaced_by_those_below),
        cmocka_unit_test(test_the_hosts_own_calls_are_left_alone),
        cmocka_unit_test(test_waits_give_nothing_of_their_own),
        cmocka_unit_test(test_distinct_takes_one_of_each_signature),
        cmocka_unit_test(test_backward_calls_belong_to_their_forward_call),
        cmocka_unit_test(test_a_module_is_the_run_of_its_calls),
        cmocka_unit_test(test_names_that_are_nearly_an_operators),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_wanted_is_near_a_call_and_in_its_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
