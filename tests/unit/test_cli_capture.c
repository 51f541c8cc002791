// SPDX-License-Identifier: Apache-2.0
// What `ulpscope capture` says at the end, from what is known of the run.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka needs the four above
#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "capture/capture.h"
#include "cli.h"

#define PROGRAM "python"

static char *command[] = {PROGRAM, "train.py", NULL};

/* Sentence of a run: what conclude writes; the caller frees. */
static char *said(const capture_seen *seen, int code)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    assert_non_null(to);
    assert_int_equal(capture_conclude(seen, to), code);
    assert_int_equal(fclose(to), 0);
    return text;
}

typedef struct sentence {
    capture_seen seen;
    int code;
    const char *text;
} sentence;

static usc_steps one[] = {{1, 1}}, whole[] = {{0, 0}}, some[] = {{2, 2}, {5, 8}};
static const int64_t step_1[] = {1}, steps_2_5[] = {2, 5};

static const capture_options
    plain = {.steps = one, .n_steps = 1, .output = "t", .command = command},
    going = {.steps = one,
             .n_steps = 1,
             .output = "t",
             .command = command,
             .keep_going = true},
    first = {.steps = whole, .n_steps = 1, .output = "t", .command = command},
    more = {.steps = some,
            .n_steps = 2,
            .output = "t",
            .command = command,
            .step_by = "optimizer"},
    limit = {.steps = some,
             .n_steps = 2,
             .output = "t",
             .command = command,
             .limit = 5000000},
    matching = {
        .steps = one, .n_steps = 1, .output = "t", .command = command, .ops = "mm"};

static usc_launch_report
    done = {.world = 1,
            .finished = true,
            .counted = true,
            .n_calls = 1234,
            .bytes_written = 999600,
            .n_steps = 1,
            .step = step_1},
    ranks[] = {{.world = 2,
                .finished = true,
                .n_calls = 1,
                .n_steps = 1,
                .step = step_1,
                .whole = true,
                .n_compiled_regions = 2},
               {.rank = 1, .world = 2, .finished = true}},
    part = {.world = 1, .n_steps = 2, .step = steps_2_5, .n_steps_ended = 6},
    empty = {.world = 1, .finished = true, .n_steps = 1, .step = step_1},
    full = {.world = 1, .stopped = true, .n_steps_ended = 3, .bytes_written = 5000000},
    limited = {.world = 1,
               .stopped = true,
               .n_calls = 90,
               .n_steps = 2,
               .step = steps_2_5,
               .n_steps_ended = 6,
               .bytes_written = 5000000},
    bad = {.world = 1, .error = "disk full"},
    other = {.world = 1, .error = "x", .taken = true};

#define OF(options_, reports_, n_)                                                       \
    .options = &(options_), .reports = {.n = (n_), .report = (reports_)}
#define EXIT(code_) .status = (code_) << 8

static const sentence sentences[] = {
    {{OF(plain, &done, 1)},
     0,
     "ulpscope: captured step 1: 1,234 calls, 1 MB -> t; run ended (--keep-going to go "
     "on)\n"},
    {{OF(plain, &done, 1), EXIT(3)},
     0,
     "ulpscope: captured step 1: 1,234 calls, 1 MB -> t; run ended (--keep-going to go "
     "on)\n"},
    {{OF(going, &done, 1), EXIT(3)},
     2,
     "ulpscope: captured step 1: 1,234 calls, 1 MB -> t\n"
     "ulpscope capture: after that python failed with exit code 3\n"},
    {{OF(first, ranks, 2)},
     0,
     "ulpscope: captured step 1 on 2 ranks: 1 call, 0 B -> t; the last step ended with "
     "the "
     "program; 2 compiled regions ran and were not recorded; --no-compile sets "
     "TORCH_COMPILE_DISABLE=1 for the command\n"},
    {{OF(more, &part, 1), .holds = true},
     2,
     "ulpscope capture: python ended after 6 steps, before steps 6-8 ended; steps 2, 5 "
     "and what "
     "followed are in t, marked incomplete\n"},
    {{OF(more, &part, 1), .holds = true, .status = SIGTERM, .interrupted = SIGTERM},
     143,
     "ulpscope capture: python was killed by SIGTERM before steps 2, 5-8 were captured; "
     "steps "
     "2, 5 and what followed are in t, marked incomplete\n"},
    {{OF(plain, &full, 1), .holds = true},
     2,
     "ulpscope capture: recording stopped in step 3 after 5 MB: the limit is reached "
     "(--limit; "
     "by default 5 % of the disk stay free); what was recorded is in t, marked "
     "incomplete\n"},
    {{OF(limit, &limited, 1), EXIT(2), .holds = true},
     0,
     "ulpscope: captured steps 2, 5: 90 calls, 5 MB -> t; stopped by --limit in step 6, "
     "which is not whole\n"},
    {{OF(limit, &full, 1), EXIT(2), .holds = true},
     2,
     "ulpscope capture: recording stopped in step 3 after 5 MB: the limit is reached "
     "(--limit; "
     "by default 5 % of the disk stay free); what was recorded is in t, marked "
     "incomplete\n"},
    {{OF(plain, &bad, 1), .interrupted = SIGINT},
     2,
     "ulpscope capture: recording failed: disk full; nothing was recorded\n"},
    {{OF(plain, &other, 1)},
     2,
     "ulpscope capture: recording failed: t holds a trace that this run did not write; "
     "nothing "
     "was recorded, name another folder with -o\n"},
    {{OF(plain, &empty, 1)},
     2,
     "ulpscope capture: step 1 made no operator call; nothing was recorded\n"},
    {{OF(matching, &empty, 1)},
     2,
     "ulpscope capture: no operator call of step 1 matches --ops mm; nothing was "
     "recorded\n"},
    {{OF(plain, NULL, 0), .around.n_python = 1, .around.n_torch = 1},
     2,
     "ulpscope capture: python ended before step 1: no optimizer stepped, no data loader "
     "gave "
     "two batches; to record the whole program: --steps 0; nothing was recorded\n"},
    {{OF(more, NULL, 0), .around.n_torch = 1},
     2,
     "ulpscope capture: python ended before steps 2, 5-8: no optimizer stepped; to "
     "record the "
     "whole program: --steps 0; nothing was recorded\n"},
    {{OF(first, NULL, 0), .around.n_torch = 1},
     2,
     "ulpscope capture: python ended before step 0: it made no operator call; nothing "
     "was "
     "recorded\n"},
    {{OF(plain, NULL, 0), .around.n_python = 2},
     2,
     "ulpscope capture: the recorder found nothing to record: no process of python "
     "imported "
     "torch; nothing was recorded\n"},
    {{OF(plain, NULL, 0), .around.n_torch = 1, .around.not_started = "OSError: no"},
     2,
     "ulpscope capture: the recorder could not be started: OSError: no; nothing was "
     "recorded\n"},
};

static void each_run_is_told_in_its_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sentences / sizeof sentences[0]; i++) {
        char *text = said(&sentences[i].seen, sentences[i].code);
        assert_string_equal(text, sentences[i].text);
        free(text);
    }
}

/* Bytes as people read them, by the line that tells what a step takes. */
static void sizes_have_three_digits(void **state)
{
    (void)state;
    static const struct {
        int64_t bytes;
        const char *text;
    } cases[] = {{1, "1 B"},
                 {999, "999 B"},
                 {1000, "1 kB"},
                 {999499, "999 kB"},
                 {999500, "1 MB"},
                 {12345678, "12.3 MB"},
                 {1500000000, "1.5 GB"},
                 {1234567890123, "1,235 GB"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        usc_launch_report told = {.first_step_bytes = cases[i].bytes,
                                  .room = 2000 * cases[i].bytes};
        const usc_launch_reports list = {.n = 1, .report = &told};
        char *text = NULL, start[80];
        size_t size = 0;
        bool is_said = false;
        FILE *to = open_memstream(&text, &size);
        capture_say_rate(&list, &is_said, to);
        capture_say_rate(&list, &is_said, to); /* once */
        assert_int_equal(fclose(to), 0);
        (void)snprintf(start, sizeof start, "ulpscope: the first step took %s; there is ",
                       cases[i].text);
        assert_memory_equal(text, start, strlen(start));
        assert_non_null(strstr(text, ", about 2,000 more such steps\n"));
        assert_ptr_equal(strchr(text, '\n'), text + size - 1);
        free(text);
    }
}

static void steps_are_joined_where_they_touch(void **state)
{
    (void)state;
    usc_steps steps[] = {{9, 9}, {1, 4}, {5, 5}, {3, 4}, {11, 12}};
    const usc_steps expected[] = {{1, 5}, {9, 9}, {11, 12}};
    assert_int_equal(capture_join_steps(steps, 5), 3);
    assert_memory_equal(steps, expected, sizeof expected);
    assert_int_equal(capture_join_steps(NULL, 0), 0);
}

static void flags_that_keep_the_recorder_out_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        char flag;
    } cases[] = {{"python -I x.py", 'I'},
                 {"python3.11 -uE x.py", 'E'},
                 {"/usr/bin/python -W ignore -S x", 'S'},
                 {"env A=1 python -I x.py", 'I'},
                 {"python x.py -I", 0},
                 {"python -m pkg -E", 0},
                 {"python -c E", 0},
                 {"python -X importtime x.py", 0},
                 {"ls -I", 0},
                 {"python -WI x", 0},
                 {"python -W", 0},
                 {"python", 0},
                 {"python -", 0},
                 {"python --check-hash-based-pycs always -I x", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *words[8] = {NULL}, text[64];
        size_t n = 0;
        (void)snprintf(text, sizeof text, "%s", cases[i].words);
        for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " "))
            words[n++] = word;
        assert_int_equal(around_ignoring_flag(words), cases[i].flag);
    }
}

static void test_what_ranks_have_in_common_stays(void **state)
{
    static const char *const cases[][3] = {
        {"'a', 'b*', 'c'", "'a', 'b*', 'c'", "'a', 'b*', 'c'"},
        {"'a', 'b*', 'c'", "'c', 'a'", "'a', 'c'"},
        {"'a', 'b*', 'c'", "'b*'", "'b*'"},
        {"'a', 'b*', 'c'", "'ab*', 'cc'", ""},
        {"'mm'", "", ""},
        {"", "'mm'", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char list[32];
        (void)strcpy(list, cases[i][0]);
        cli_keep_common(list, cases[i][1]);
        assert_string_equal(list, cases[i][2]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_ranks_have_in_common_stays),
        cmocka_unit_test(each_run_is_told_in_its_sentence),
        cmocka_unit_test(sizes_have_three_digits),
        cmocka_unit_test(steps_are_joined_where_they_touch),
        cmocka_unit_test(flags_that_keep_the_recorder_out_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
