// SPDX-License-Identifier: Apache-2.0
// Reports of a captured command's processes: read whatever lies beside them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka needs the four above
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ulpscope/x/launch.h>

static char folder[] = "/tmp/usc-launch-XXXXXX";

static void put(const char *name, const char *text)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fputs(text, file);
    (void)fclose(file);
}

static void drop(const char *name)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    (void)unlink(path);
}

static usc_launch_reports read_all(void)
{
    usc_launch_reports r;
    usc_error err;
    assert_int_equal(usc_launch_reports_read(folder, &r, &err), USC_OK);
    return r;
}

static void a_report_is_read_whole(void **state)
{
    (void)state;
    put("run-7.json",
        "{\"rank\": 1, \"world\": 2, \"pid\": 7, \"finished\": false, \"whole\": false, "
        "\"loose\": true, \"taken\": false, \"counts\": {\"calls\": 5, "
        "\"bytes_written\": 9, "
        "\"compiled_regions\": 3, \"stopped\": true, \"other\": [1]}, \"error\": "
        "\"why\", "
        "\"steps\": [2, 5], \"steps_ended\": 6, \"place\": \"process-7\", "
        "\"first_step_bytes\": 4, \"room\": 8}");
    usc_launch_reports r = read_all();
    assert_int_equal(r.n, 1);
    const usc_launch_report *one = r.report;
    assert_true(one->rank == 1 && one->world == 2 && one->pid == 7 && one->loose);
    assert_true(!one->finished && !one->whole && !one->taken && one->counted);
    assert_true(one->stopped && one->n_calls == 5 && one->bytes_written == 9);
    assert_true(one->n_compiled_regions == 3 && one->first_step_bytes == 4);
    assert_true(one->room == 8 && one->n_steps_ended == 6 && one->n_steps == 2);
    assert_true(one->step[0] == 2 && one->step[1] == 5);
    assert_string_equal(one->error, "why");
    assert_string_equal(one->place, "process-7");
    assert_true(usc_launch_is_left(&r, "process-7", 8));
    assert_false(usc_launch_is_left(&r, "process-7", 7)); /* its own */
    assert_false(usc_launch_is_left(&r, "process-70", 8));
    r.report[0].finished = true;
    assert_false(usc_launch_is_left(&r, "process-7", 8)); /* it has all its steps */
    usc_launch_reports_free(&r);
    drop("run-7.json");
}

static void what_is_no_report_is_nothing(void **state)
{
    (void)state;
    put("options", "1");
    put("python-3", "");
    put("run-1.part", "{\"rank\": 0}");
    put("run-2.json", "{\"rank\": ");
    put("run-3.json", "[1]");
    put("run-4.json", "{\"rank\": \"none\"}");
    put("run-5.json",
        "{\"rank\": 3, \"counts\": null, \"place\": null, \"error\": null}");
    put("run-6.json", "{\"rank\": 2, \"steps\": [1, \"x\"]}");
    usc_launch_reports r = read_all();
    assert_int_equal(r.n, 2);
    assert_true(r.report[0].rank == 2 && r.report[0].n_steps == 1);
    assert_true(r.report[1].rank == 3 && !r.report[1].counted);
    assert_true(r.report[1].place == NULL && r.report[1].error == NULL);
    assert_false(usc_launch_all_done(&r));
    usc_launch_reports_free(&r);
    static const char *const names[] = {"options",    "python-3",   "run-1.part",
                                        "run-2.json", "run-3.json", "run-4.json",
                                        "run-5.json", "run-6.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        drop(names[i]);
    usc_error err;
    assert_int_equal(usc_launch_reports_read("/no/such/folder", &r, &err), USC_OK);
    assert_int_equal(r.n, 0);
    usc_launch_reports_free(&r);
}

/* All ranks must have recorded their steps; one that ended with the program is no sign.
 */
static void a_job_is_done_once_every_rank_is(void **state)
{
    (void)state;
    static const struct {
        usc_launch_report report[3];
        int64_t n;
        bool done;
    } cases[] = {
        {{{0}}, 0, false},
        {{{.world = 1, .finished = true}}, 1, true},
        {{{.world = 1, .finished = true, .whole = true}}, 1, false},
        {{{.world = 2, .finished = true}}, 1, false},
        {{{.world = 2, .finished = true}, {.rank = 1, .world = 2}}, 2, false},
        {{{.world = 2, .finished = true}, {.rank = 1, .world = 2, .finished = true}},
         2,
         true},
        {{{.world = 1}, {.world = 2, .finished = true}, {.world = 2, .finished = true}},
         3,
         true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        usc_launch_report report[3];
        memcpy(report, cases[i].report, sizeof report);
        const usc_launch_reports list = {.n = cases[i].n, .report = report};
        assert_int_equal(usc_launch_all_done(&list), cases[i].done);
    }
}

static void reports_come_by_rank_and_process(void **state)
{
    (void)state;
    char name[32], text[64];
    for (int pid = 40; pid > 0; pid--) {
        (void)snprintf(name, sizeof name, "run-%d.json", pid);
        (void)snprintf(text, sizeof text, "{\"rank\": %d, \"pid\": %d}", pid % 3, pid);
        put(name, text);
    }
    usc_launch_reports r = read_all();
    assert_int_equal(r.n, 40);
    for (int64_t i = 1; i < r.n; i++) {
        const usc_launch_report *a = &r.report[i - 1], *b = &r.report[i];
        assert_true(a->rank < b->rank || (a->rank == b->rank && a->pid < b->pid));
    }
    usc_launch_reports_free(&r);
    for (int pid = 40; pid > 0; pid--) {
        (void)snprintf(name, sizeof name, "run-%d.json", pid);
        drop(name);
    }
}

static int make(void **state)
{
    (void)state;
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int clear(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_is_read_whole),
        cmocka_unit_test(what_is_no_report_is_nothing),
        cmocka_unit_test(a_job_is_done_once_every_rank_is),
        cmocka_unit_test(reports_come_by_rank_and_process),
    };
    return cmocka_run_group_tests(tests, make, clear);
}
