// SPDX-License-Identifier: Apache-2.0
// The coordinator (ulpscope/x/run.h) from within: the order of a budget, memory, groups
// of findings, what computed; and whole checks by workers that are shell scripts.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <ulpscope/trace.h>
#include <ulpscope/x/run.h>

#include "run/agenda.h"
#include "run/crew.h"
#include "run/identity.h"
#include "run/known.h"
#include "run/rooms.h"
#include "trace_sample.h"

extern char **environ;

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

/* ---- whole checks by workers that are shell scripts ---- */

typedef struct bench {
    char *folder, trace[600], out[600], said[4096];
    char *command[4];
    usc_run_hooks hooks;
    int n_asked;
} bench;

static void say(void *ctx, const char *text)
{
    bench *b = ctx;
    const size_t n = strlen(b->said);
    (void)snprintf(b->said + n, sizeof b->said - n, "%s\n", text);
}

static char *const *command(void *ctx, usc_error *err)
{
    (void)err;
    bench *b = ctx;
    b->n_asked++;
    return b->command;
}

static void begin(bench *b, const char *script)
{
    static char sh[] = "/bin/sh", flag[] = "-c";
    usc_trace_writer *w;
    memset(b, 0, sizeof *b);
    b->folder = sample_folder();
    (void)snprintf(b->trace, sizeof b->trace, "%s/trace", b->folder);
    (void)snprintf(b->out, sizeof b->out, "%s/out", b->folder);
    assert_int_equal(usc_trace_create(b->trace, NULL, &w, NULL), USC_OK);
    assert_int_equal(sample_begin(w, NULL), USC_OK);
    for (int64_t i = 1; i <= 3; i++)
        assert_int_equal(sample_call(w, i, NULL), USC_OK);
    assert_int_equal(usc_trace_finish(w, true, NULL), USC_OK);
    b->command[0] = sh;
    b->command[1] = flag;
    b->command[2] = strdup(script);
    b->hooks =
        (usc_run_hooks){.ctx = b, .command = command, .environment = environ, .say = say};
}

static usc_status check(bench *b, usc_check_options o, usc_run_end *end, usc_error *err)
{
    o.trace = b->trace;
    o.out = b->out;
    o.device = "cpu";
    o.call = -1;
    o.cores = 1;
    return usc_check_trace(&o, &b->hooks, end, err);
}

static void finish(bench *b)
{
    free(b->command[2]);
    sample_remove(b->folder);
    free(b->folder);
}

static usc_status tell_row(void *ctx, const usc_result_row *r, usc_error *err)
{
    char *text = ctx;
    const size_t n = strlen(text);
    (void)err;
    (void)snprintf(text + n, 1024 - n, "%lld %s: %s\n", (long long)r->call, r->verdict,
                   r->sentence);
    return USC_OK;
}

static void results(const bench *b, char *text)
{
    usc_result *r;
    *text = '\0';
    assert_int_equal(usc_result_open(b->out, &r, NULL), USC_OK);
    assert_int_equal(usc_result_walk(r, tell_row, text, NULL), USC_OK);
    usc_result_close(r);
}

#define READY "echo '{\"ready\": {\"who\": \"sh\"}}' >&3; "
/* Whole seconds are all that sh has. */
#define NOTE(name)                                                                       \
    "echo \"" name " $(($(cut -d. -f1 /proc/uptime) + 1))000000000\" "                   \
    "1<>/proc/self/fd/4; "
#define PASS "echo '{\"row\": {\"verdict\": \"pass\", \"sentence\": \"fine\"}}' >&3; "

static void test_any_program_that_speaks_the_protocol_is_a_worker(void **state)
{
    (void)state;
    bench b;
    usc_run_end end;
    usc_error err;
    char text[1024];
    begin(&b, READY "while read line; do " PASS "done");
    assert_int_equal(check(&b, (usc_check_options){0}, &end, &err), USC_OK);
    results(&b, text);
    assert_string_equal(text, "1 pass: fine\n2 pass: fine\n3 pass: fine\n");
    assert_non_null(strstr(b.said, "3 calls in "));
    finish(&b);
}

static void test_a_worker_that_dies_or_hangs_costs_its_call(void **state)
{
    (void)state;
    bench b;
    usc_run_end end;
    usc_error err;
    char text[1024];
    begin(&b, READY "while read line; do case $line in "
                    "*'\"call\": 1,'*) kill -SEGV $$;; "
                    "*'\"call\": 2,'*) " NOTE("reference") "exec sleep 60;; "
                                                           "esac; " PASS "done");
    const usc_check_options o = {.timeout = 0.3};
    assert_int_equal(check(&b, o, &end, &err), USC_OK);
    results(&b, text);
    assert_string_equal(
        text, "1 crashed: aten::add.Tensor: the device's process died of SIGSEGV\n"
              "2 unjudged: aten::mm: the reference took longer than 0.3 s\n"
              "3 pass: fine\n");
    finish(&b);
}

static void test_a_worker_that_cannot_start_ends_the_run_and_touches_nothing(void **state)
{
    (void)state;
    bench b;
    usc_run_end end;
    usc_error err;
    begin(&b, "echo no such library >&2; exit 3");
    assert_int_not_equal(check(&b, (usc_check_options){0}, &end, &err), USC_OK);
    assert_string_equal(err.text,
                        "a worker left with exit code 3 while starting: no such "
                        "library");
    assert_int_not_equal(access(b.out, F_OK), 0);
    finish(&b);
    begin(&b, "echo '{\"fatal\": \"no device here\"}' >&3; cat");
    assert_int_not_equal(check(&b, (usc_check_options){0}, &end, &err), USC_OK);
    assert_string_equal(err.text, "no device here");
    finish(&b);
    begin(&b, READY "read line; echo 'not ours' >&3; cat");
    assert_int_equal(check(&b, (usc_check_options){0}, &end, &err), USC_E_CORRUPT);
    finish(&b);
}

/* It answers the first worker alone, which dies at its second call. */
static void test_a_device_that_is_lost_ends_the_run_and_loses_nothing(void **state)
{
    (void)state;
    bench b;
    usc_run_end end;
    usc_error err;
    char text[1024], script[1024];
    begin(&b, "");
    (void)snprintf(script, sizeof script,
                   "mkdir %s.met 2>&- && answers=true || answers=false; "
                   "echo '{\"ready\": {\"who\": \"sh\"}, \"answers\": '$answers'}' >&3; "
                   "read line; " PASS
                   "read line; echo 'it burns\033[0m' >&2; kill -ABRT $$",
                   b.out);
    free(b.command[2]);
    b.command[2] = strdup(script);
    assert_int_equal(check(&b, (usc_check_options){0}, &end, &err), USC_E_ARG);
    assert_string_equal(err.text,
                        "the device is lost: it answered when this began, and does not "
                        "any more, in a new process, too; ulpscope doctor looks for what "
                        "is missing; the results so far are safe, the same command goes "
                        "on from there");
    results(&b, text);
    assert_string_equal(text, "2 crashed: aten::mm: the device's process died of "
                              "SIGABRT; it last wrote: it burns[0m\n1 pass: fine\n");
    (void)snprintf(script, sizeof script, "%s.met", b.out);
    assert_int_equal(rmdir(script), 0);
    finish(&b);
}

static bool stop_at_once(void *ctx)
{
    return ((bench *)ctx)->n_asked > 0;
}

static void test_what_is_refused_or_stopped_starts_no_worker_in_vain(void **state)
{
    (void)state;
    bench b;
    usc_run_end end;
    usc_error err;
    begin(&b, READY "while read line; do " PASS "done");
    const usc_check_options none = {.ops = "aten::bmm"};
    assert_int_equal(check(&b, none, &end, &err), USC_E_NOT_FOUND);
    assert_int_equal(b.n_asked, 0);
    b.hooks.stopped = stop_at_once;
    assert_int_equal(check(&b, (usc_check_options){0}, &end, &err), USC_OK);
    assert_int_equal(end, USC_RUN_INTERRUPTED);
    assert_int_not_equal(access(b.out, F_OK), 0);
    finish(&b);
}

static void test_a_run_that_was_cut_short_goes_on(void **state)
{
    (void)state;
    bench b;
    usc_run_end end;
    usc_error err;
    char text[1024];
    begin(&b, READY "read line; " PASS
                    "read line; echo '{\"fatal\": \"out of order\"}' >&3; cat");
    assert_int_not_equal(check(&b, (usc_check_options){0}, &end, &err), USC_OK);
    free(b.command[2]);
    b.command[2] = strdup("echo '{\"ready\": {\"who\": \"bash\"}}' >&3; cat");
    assert_int_equal(check(&b, (usc_check_options){0}, &end, &err), USC_E_EXISTS);
    assert_non_null(strstr(err.text, "since then: who was 'sh' and is 'bash'; --force"));
    free(b.command[2]);
    b.command[2] = strdup(READY "while read line; do " PASS "done");
    assert_int_equal(check(&b, (usc_check_options){0}, &end, &err), USC_OK);
    assert_non_null(strstr(b.said, "resuming: 1 of 3 calls done"));
    results(&b, text);
    assert_string_equal(text, "1 pass: fine\n2 pass: fine\n3 pass: fine\n");
    char *inputs;
    assert_int_equal(usc_check_state_of(b.out, &inputs), USC_CHECK_DONE);
    assert_string_equal(inputs, "{\"who\":\"sh\"}");
    free(inputs);
    finish(&b);
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
        cmocka_unit_test(test_any_program_that_speaks_the_protocol_is_a_worker),
        cmocka_unit_test(test_a_worker_that_dies_or_hangs_costs_its_call),
        cmocka_unit_test(
            test_a_worker_that_cannot_start_ends_the_run_and_touches_nothing),
        cmocka_unit_test(test_a_device_that_is_lost_ends_the_run_and_loses_nothing),
        cmocka_unit_test(test_what_is_refused_or_stopped_starts_no_worker_in_vain),
        cmocka_unit_test(test_a_run_that_was_cut_short_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
