// SPDX-License-Identifier: Apache-2.0
// The result database: resume, refusal, rows that come back as they were put, the order
// of the walk, and a process that dies.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <sys/wait.h>
#include <ulpscope/result.h>
#include <unistd.h>

#include "result/result_parts.h"
#include "trace_sample.h"

static char *folder, out_path[600];
static const usc_run run = {.trace = "/t",
                            .trace_id = "ab",
                            .device = "sim:0",
                            .standard = "ulpscope",
                            .faults = "",
                            .options = "{}"};

static int make_folder(void **state)
{
    *state = folder = sample_folder();
    snprintf(out_path, sizeof out_path, "%s/out", folder);
    return 0;
}

#define OK(call)                                                                         \
    do {                                                                                 \
        if ((call) != USC_OK) fail_msg("%s", err.text);                                  \
    } while (0)

static usc_status put(usc_result *r, int64_t call, const char *verdict, double bits,
                      usc_error *err)
{
    const usc_metric metrics[] = {{0, "max", 2.5, NULL},
                                  {0, "sizes", (double)NAN, "[3]"}};
    const usc_result_example example = {0, 0, "[2]", (double)NAN, 1, -(double)INFINITY,
                                        7};
    const usc_result_row row = {.call = call,
                                .op = "aten::mm",
                                .verdict = verdict,
                                .bits = bits,
                                .sentence = "s",
                                .stands_for = 2,
                                .n_metrics = 2,
                                .metrics = metrics,
                                .n_examples = 1,
                                .examples = &example};
    return usc_result_put(r, &row, err);
}

static void goes_on_in_the_same_run(void **state)
{
    (void)state;
    usc_error err;
    usc_result *r;
    const int64_t *done;
    int64_t n;
    OK(usc_result_create(out_path, &run, false, &r, &err));
    OK(put(r, 5, "pass", 24, &err));
    OK(put(r, 2, "wrong", 3, &err));
    usc_result_close(r);
    OK(usc_result_create(out_path, &run, false, &r, &err));
    OK(usc_result_done(r, &done, &n, &err));
    assert_int_equal(n, 2);
    assert_int_equal(done[0], 2);
    assert_int_equal(done[1], 5);
    assert_string_equal(usc_result_get(r, "state"), "running");
    usc_result_close(r);
}

static usc_status put_searching(usc_result *r, int64_t call, usc_error *err)
{
    const usc_metric searching = {-1, USC_METRIC_SEARCHING, 1, NULL};
    const usc_result_row row = {.call = call,
                                .op = "aten::mm",
                                .verdict = "wrong",
                                .sentence = "s",
                                .n_metrics = 1,
                                .metrics = &searching};
    return usc_result_put(r, &row, err);
}

/* A cause that was still sought when a run was cut short would be lost for good. */
static void a_row_stands_once_its_cause_is_there(void **state)
{
    (void)state;
    char part_path[600];
    usc_error err;
    usc_result *r, *part;
    int64_t n;
    snprintf(part_path, sizeof part_path, "%s/part", folder);
    OK(usc_result_create(part_path, &run, false, &part, &err));
    for (int64_t call = 1; call <= 4; call++)
        OK(put_searching(part, call, &err));
    OK(put(part, 2, "wrong", 3, &err));   /* the cause came */
    OK(usc_result_settle(part, 4, &err)); /* it will not */
    usc_result_close(part);

    const int64_t *done;
    OK(usc_result_create(part_path, &run, false, &part, &err));
    OK(usc_result_done(part, &done, &n, &err));
    assert_int_equal(n, 2);
    assert_int_equal(done[0], 2);
    assert_int_equal(done[1], 4);
    usc_result_close(part);

    OK(usc_result_create(out_path, &run, false, &r, &err));
    OK(put(r, 1, "pass", 24, &err));
    OK(usc_result_adopt(r, part_path, &n, &err));
    assert_int_equal(n, 2);
    OK(usc_result_done(r, &done, &n, &err));
    assert_int_equal(n, 3); /* 1 is its own, 3 is nobody's */
    usc_result_close(r);
}

static void a_finished_run_goes_on_where_it_is_asked_to(void **state)
{
    (void)state;
    usc_error err;
    usc_result *r;
    const int64_t *done;
    int64_t n;
    for (int goes_on = 1; goes_on >= 0; goes_on--) {
        usc_run again = run;
        again.goes_on = goes_on != 0;
        OK(usc_result_create(out_path, &run, true, &r, &err));
        OK(put(r, 5, "pass", 24, &err));
        OK(usc_result_set(r, "state", "done", &err));
        usc_result_close(r);
        OK(usc_result_create(out_path, &again, false, &r, &err));
        OK(usc_result_done(r, &done, &n, &err));
        assert_int_equal(n, goes_on);
        usc_result_close(r);
        again.trace_id = "cd"; /* of another run it is not asked */
        if (goes_on)
            assert_int_equal(usc_result_create(out_path, &again, false, &r, &err),
                             USC_E_EXISTS);
    }
}

static void refuses_each_other_run(void **state)
{
    (void)state;
    usc_error err;
    usc_result *r;
    OK(usc_result_create(out_path, &run, false, &r, &err));
    OK(put(r, 5, "pass", 24, &err));
    usc_result_close(r);
    usc_run others[5] = {run, run, run, run, run};
    others[0].trace_id = "cd";
    others[1].device = "cuda:0";
    others[2].standard = "allclose";
    others[3].faults = "tf32";
    others[4].options = "{\"ops\": \"mm\"}";
    static const char *const field[] = {"trace_id", "device", "standard", "faults",
                                        "options"};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(usc_result_create(out_path, &others[i], false, &r, &err),
                         USC_E_EXISTS);
        assert_null(r);
        assert_non_null(strstr(err.text, field[i]));
    }
    OK(usc_result_create(out_path, &others[1], true, &r, &err));
    assert_string_equal(usc_result_get(r, "device"), "cuda:0");
    usc_result_close(r);
}

static void tells_what_a_run_may_replace(void **state)
{
    (void)state;
    usc_error err;
    usc_result *r;
    char rank[700], file[700];
    snprintf(rank, sizeof rank, "%s/rank-1", out_path);
    snprintf(file, sizeof file, "%s/file", out_path);
    OK(usc_result_claim(out_path, "live: ", &err)); /* nothing there */
    usc_run live = run;
    live.trace = "live: train.py";
    OK(usc_result_create(rank, &live, false, &r, &err));
    OK(put(r, 5, "pass", 24, &err));
    usc_result_close(r);
    OK(usc_result_claim(out_path, "live: ", &err));
    OK(usc_result_create(rank, &run, true, &r, &err));
    OK(put(r, 5, "pass", 24, &err));
    usc_result_close(r);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(usc_result_claim(i == 0 ? rank : out_path, "live: ", &err),
                         USC_E_EXISTS);
        assert_non_null(strstr(err.text, "another run, of the trace '/t'"));
    }
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(usc_result_claim(file, "live: ", &err), USC_E_EXISTS);
}

static void replaces_a_run_that_came_to_nothing(void **state)
{
    (void)state;
    usc_error err;
    usc_result *r;
    usc_run other = run;
    other.device = "cuda:0";
    OK(usc_result_create(out_path, &run, false, &r, &err));
    usc_result_close(r);
    OK(usc_result_create(out_path, &other, false, &r, &err));
    assert_string_equal(usc_result_get(r, "device"), "cuda:0");
    usc_result_close(r);
}

static int64_t n_done(usc_result *r)
{
    const int64_t *done;
    int64_t n = -1;
    return usc_result_done(r, &done, &n, NULL) == USC_OK ? n : -1;
}

static void finish(const usc_run *what, int64_t n_rows)
{
    usc_error err;
    usc_result *r;
    OK(usc_result_create(out_path, what, false, &r, &err));
    for (int64_t i = 1; i <= n_rows; i++)
        OK(put(r, i, "pass", 24, &err));
    OK(usc_result_set(r, "state", "done", &err));
    usc_result_close(r);
}

static void begins_anew_where_a_run_was_finished(void **state)
{
    (void)state;
    usc_error err;
    usc_result *r;
    usc_run again = run, other = run;
    again.trace_id = "captured anew";
    other.options = "{\"ops\": \"mm\"}";
    finish(&run, 3);
    assert_int_equal(usc_result_create(out_path, &other, false, &r, &err), USC_E_EXISTS);
    OK(usc_result_create(out_path, &run, false, &r, &err));
    assert_int_equal(n_done(r), 0);
    assert_null(usc_result_get(r, "state"));
    usc_result_close(r); /* it came to nothing: what was there is still there */
    OK(usc_result_open(out_path, &r, &err));
    assert_int_equal(n_done(r), 3);
    assert_string_equal(usc_result_get(r, "state"), "done");
    usc_result_close(r);
    OK(usc_result_create(out_path, &again, false, &r, &err));
    OK(put(r, 9, "wrong", 2, &err));
    assert_int_equal(n_done(r), 1);
    assert_string_equal(usc_result_get(r, "state"), "running");
    assert_string_equal(usc_result_get(r, "trace_id"), "captured anew");
    usc_result_close(r);
}

static void force_begins_anew_what_was_cut_short(void **state)
{
    (void)state;
    usc_error err;
    usc_result *r;
    OK(usc_result_create(out_path, &run, false, &r, &err));
    OK(put(r, 5, "pass", 24, &err));
    usc_result_close(r);
    OK(usc_result_create(out_path, &run, true, &r, &err));
    assert_int_equal(n_done(r), 0);
    OK(usc_result_set(r, "seconds", "1", &err));
    usc_result_close(r);
    OK(usc_result_open(out_path, &r, &err));
    assert_int_equal(n_done(r), 0);
    usc_result_close(r);
}

static void leaves_nothing_where_it_is_discarded(void **state)
{
    (void)state;
    usc_error err;
    usc_result *r;
    char deep[700];
    snprintf(deep, sizeof deep, "%s/b/c/", out_path);
    OK(usc_result_create(deep, &run, false, &r, &err));
    usc_result_discard(r);
    assert_int_equal(usc_result_open(out_path, &r, &err), USC_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "no such folder"));
    OK(usc_result_create(deep, &run, false, &r, &err));
    OK(put(r, 5, "pass", 24, &err));
    usc_result_discard(r);
    OK(usc_result_create(deep, &run, false, &r, &err));
    usc_result_discard(r);
    OK(usc_result_open(deep, &r, &err));
    assert_int_equal(n_done(r), 1);
    usc_result_close(r);
    usc_result_discard(NULL);
}

/* A process that puts a row whenever `go` has a byte for it, and says so. */
static pid_t writer_of(const int go[2], const int works[2])
{
    usc_error err;
    usc_result *r;
    char byte;
    const pid_t child = fork();
    if (child != 0) return child;
    close(go[1]);
    usc_status st = usc_result_create(out_path, &run, false, &r, &err);
    for (int64_t i = 1; st == USC_OK && read(go[0], &byte, 1) == 1; i++) {
        for (int64_t row = 100 * i; row < 100 * i + 50 && st == USC_OK; row++)
            st = put(r, row, "pass", 24, &err);
        if (write(works[1], &byte, 1) != 1) break;
    }
    _exit(st == USC_OK ? 0 : 1);
}

static void is_read_while_another_process_writes(void **state)
{
    (void)state;
    usc_error err;
    usc_result *r;
    int go[2], works[2], status;
    char byte = '.';
    assert_int_equal(pipe(go) | pipe(works), 0);
    const pid_t child = writer_of(go, works);
    for (int i = 1; i <= 40; i++) { /* past what the journal holds before it is emptied */
        assert_int_equal(write(go[1], &byte, 1), 1);
        assert_int_equal(read(works[0], &byte, 1), 1);
        if (i % 8 != 1) continue;
        OK(usc_result_open(out_path, &r, &err));
        assert_true(usc_result_live(r));
        assert_int_equal(n_done(r), 50 * i);
        usc_result_close(r);
    }
    usc_result *other;
    assert_int_equal(usc_result_create(out_path, &run, false, &other, &err), USC_E_BUSY);
    assert_int_equal(usc_result_create(out_path, &run, true, &other, &err), USC_E_BUSY);
    close(go[0]);
    close(go[1]);
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    OK(usc_result_open(out_path, &r, &err));
    assert_false(usc_result_live(r));
    assert_int_equal(n_done(r), 2000);
    usc_result_close(r);
    close(works[0]);
    close(works[1]);
}

static void loses_no_row_when_the_process_dies(void **state)
{
    (void)state;
    usc_error err;
    usc_result *r;
    const int64_t *done;
    int64_t n;
    int status;
    const pid_t child = fork();
    if (child == 0) {
        usc_status st = usc_result_create(out_path, &run, false, &r, &err);
        for (int64_t i = 1; i <= 30 && st == USC_OK; i++)
            st = put(r, i, "pass", 24, &err);
        _exit(st == USC_OK ? 0 : 1);
    }
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    OK(usc_result_open(out_path, &r, &err));
    OK(usc_result_done(r, &done, &n, &err));
    assert_int_equal(n, 30);
    usc_result_close(r);
}

typedef struct seen {
    int64_t calls[8];
    int n;
} seen;

static usc_status see(void *ctx, const usc_result_row *row, usc_error *err)
{
    seen *s = ctx;
    (void)err;
    s->calls[s->n++] = row->call;
    assert_string_equal(row->op, "aten::mm");
    assert_string_equal(row->culprit, "");
    assert_int_equal(row->stands_for, 2);
    assert_int_equal(row->n_metrics, 2);
    assert_string_equal(row->metrics[0].name, "max");
    assert_null(row->metrics[0].text);
    assert_true(isnan(row->metrics[1].value));
    assert_string_equal(row->metrics[1].text, "[3]");
    assert_int_equal(row->n_examples, 1);
    assert_true(isnan(row->examples[0].device));
    assert_true(isinf(row->examples[0].yardstick));
    return USC_OK;
}

static usc_status stop(void *ctx, const usc_result_row *row, usc_error *err)
{
    ++*(int *)ctx;
    return usc_error_set(err, USC_E_ARG, row->call, "enough");
}

static void walks_the_worst_first(void **state)
{
    (void)state;
    usc_error err;
    usc_result *r;
    seen s = {.n = 0};
    int n_stopped = 0;
    OK(usc_result_create(out_path, &run, false, &r, &err));
    OK(put(r, 1, "pass", 20, &err));
    OK(put(r, 2, "wrong", 9, &err));
    OK(put(r, 3, "wrong", 4, &err));
    OK(put(r, 4, "crashed", (double)NAN, &err));
    OK(put(r, 5, "pass", 20, &err));
    OK(put(r, 5, "reduced", 11, &err)); /* replaces */
    OK(put(r, 6, "wrong", (double)NAN, &err));
    usc_result_close(r);
    OK(usc_result_open(out_path, &r, &err));
    OK(usc_result_walk(r, see, &s, &err));
    const int64_t wanted[] = {4, 3, 2, 6, 5, 1};
    assert_int_equal(s.n, 6);
    assert_memory_equal(s.calls, wanted, sizeof wanted);
    assert_int_equal(usc_result_walk(r, stop, &n_stopped, &err), USC_E_ARG);
    assert_int_equal(n_stopped, 1);
    usc_result_close(r);
}

static void refuses_an_unknown_verdict(void **state)
{
    (void)state;
    usc_error err;
    usc_result *r;
    OK(usc_result_create(out_path, &run, false, &r, &err));
    assert_int_equal(put(r, 1, "fine", 24, &err), USC_E_ARG);
    OK(put(r, 1, "pass", 24, &err));
    usc_result_close(r);
}

static void names_what_is_missing_or_damaged(void **state)
{
    (void)state;
    usc_error err;
    usc_result *r;
    char path[700];
    assert_int_equal(usc_result_open(out_path, &r, &err), USC_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "no such folder"));
    assert_int_equal(usc_result_open(folder, &r, &err), USC_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "no result.db"));
    snprintf(path, sizeof path, "%s/result.db", folder);
    FILE *f = fopen(path, "wb");
    fputs("this was a database once upon a time", f);
    fclose(f);
    assert_int_equal(usc_result_open(folder, &r, &err), USC_E_CORRUPT);
    assert_int_equal(usc_result_create(folder, &run, false, &r, &err), USC_E_CORRUPT);
    assert_non_null(strstr(err.text, "result.db"));
    OK(usc_result_create(folder, &run, true, &r, &err));
    usc_result_close(r);
}

static void writes_nothing_into_a_trace(void **state)
{
    (void)state;
    usc_error err;
    usc_result *r;
    char path[700];
    snprintf(path, sizeof path, "%s/trace.db", folder);
    FILE *f = fopen(path, "wb");
    fclose(f);
    assert_int_equal(usc_result_create(folder, &run, true, &r, &err), USC_E_ARG);
    assert_non_null(strstr(err.text, "a trace is in it; name another folder"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, sample_teardown)
    const struct CMUnitTest tests[] = {
        TEST(goes_on_in_the_same_run),
        TEST(refuses_each_other_run),
        TEST(a_row_stands_once_its_cause_is_there),
        TEST(a_finished_run_goes_on_where_it_is_asked_to),
        TEST(tells_what_a_run_may_replace),
        TEST(replaces_a_run_that_came_to_nothing),
        TEST(begins_anew_where_a_run_was_finished),
        TEST(force_begins_anew_what_was_cut_short),
        TEST(leaves_nothing_where_it_is_discarded),
        TEST(is_read_while_another_process_writes),
        TEST(loses_no_row_when_the_process_dies),
        TEST(walks_the_worst_first),
        TEST(refuses_an_unknown_verdict),
        TEST(names_what_is_missing_or_damaged),
        TEST(writes_nothing_into_a_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
