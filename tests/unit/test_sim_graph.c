// SPDX-License-Identifier: Apache-2.0
// The rules of captures and graphs in ulpscope_sim/graph.h.
#include "sim_commands.h"
#include <ulpscope_sim/graph.h>

static usc_sim_graph *captured_on(usc_sim_stream s, int from, int to)
{
    usc_sim_graph *g;
    ok(usc_sim_capture_begin(s, NULL));
    for (int i = from; i < to; i++)
        log_on(s, i);
    ok(usc_sim_capture_end(s, &g, NULL));
    return g;
}

static void says(const usc_error *err, const char *text)
{
    if (strstr(err->text, text) == NULL) fail_msg("'%s' is not in '%s'", text, err->text);
}

static void test_what_is_captured_runs_once_a_replay(void **state)
{
    (void)state;
    const usc_sim_stream s = another();
    usc_sim_graph *g = captured_on(s, 0, 3);
    wait_for_all();
    assert_int_equal(n_logged, 0);
    assert_int_equal(usc_sim_graph_size(g), 3);
    ok(usc_sim_graph_replay(g, s, NULL));
    ok(usc_sim_graph_replay(g, s, NULL));
    wait_for_all();
    assert_int_equal(n_logged, 6);
    for (int i = 0; i < 6; i++)
        assert_int_equal(logged[i], i % 3);
    usc_sim_graph_free(g);
    usc_sim_graph_free(NULL);
}

static atomic_int n_dropped;

static void note_dropped(void *ctx)
{
    (void)ctx;
    n_dropped++;
}

static void test_commands_are_dropped_with_the_graph_and_its_replays(void **state)
{
    (void)state;
    const usc_sim_stream s = another();
    sem_t gate;
    usc_sim_graph *g;
    const usc_sim_command c = {.run = log_it, .drop = note_dropped, .ctx = &numbers[1]};
    n_dropped = 0;
    sem_init(&gate, 0, 0);
    ok(usc_sim_capture_begin(s, NULL));
    ok(usc_sim_submit(s, &c, NULL));
    ok(usc_sim_capture_end(s, &g, NULL));
    ok(submit(s, pass_gate, &gate, NULL));
    ok(usc_sim_graph_replay(g, s, NULL));
    usc_sim_graph_free(g);
    assert_int_equal(n_dropped, 0);
    sem_post(&gate);
    wait_for_all();
    assert_int_equal(n_logged, 1);
    assert_int_equal(n_dropped, 1);
}

static void test_a_stream_that_waits_for_it_is_captured_with_it(void **state)
{
    (void)state;
    const usc_sim_stream s = another(), other = another();
    usc_sim_graph *g;
    ok(usc_sim_capture_begin(s, NULL));
    log_on(s, 0);
    ok(usc_sim_stream_wait_stream(other, s, NULL));
    assert_true(usc_sim_capturing(other));
    log_on(other, 1);
    ok(usc_sim_stream_wait_stream(s, other, NULL));
    log_on(s, 2);
    ok(usc_sim_capture_end(s, &g, NULL));
    assert_false(usc_sim_capturing(other));
    assert_false(usc_sim_has_captures());
    ok(usc_sim_graph_replay(g, MAIN, NULL));
    wait_for_all();
    assert_int_equal(n_logged, 3);
    assert_int_equal(logged[1], 1);
    usc_sim_graph_free(g);
}

static void test_work_that_nobody_waits_for_is_refused(void **state)
{
    (void)state;
    const usc_sim_stream s = another(), other = another();
    usc_sim_graph *g;
    usc_error err;
    ok(usc_sim_capture_begin(s, NULL));
    ok(usc_sim_stream_wait_stream(other, s, NULL));
    log_on(other, 1);
    assert_int_equal(usc_sim_capture_end(s, &g, &err), USC_E_UNSUPPORTED);
    says(&err, "does not wait for its last command");
    assert_null(g);
    log_on(other, 2);
    wait_for_all();
    assert_int_equal(n_logged, 1);
}

static void test_what_a_capture_cannot_do_is_refused(void **state)
{
    (void)state;
    const usc_sim_stream s = another(), busy = another();
    usc_sim_graph *g;
    usc_sim_event *inside;
    usc_error err;
    sem_t gate;
    sem_init(&gate, 0, 0);
    assert_int_equal(usc_sim_capture_begin(MAIN, &err), USC_E_UNSUPPORTED);
    says(&err, "default stream");
    assert_int_equal(usc_sim_capture_begin((usc_sim_stream){7, 3}, &err), USC_E_ARG);
    assert_int_equal(usc_sim_capture_end(s, &g, &err), USC_E_ARG);
    says(&err, "no capture began");

    ok(submit(busy, pass_gate, &gate, NULL));
    assert_int_equal(usc_sim_capture_begin(busy, &err), USC_E_UNSUPPORTED);
    says(&err, "synchronize first");
    ok(usc_sim_event_create(false, &inside, NULL));
    ok(usc_sim_capture_begin(s, NULL));
    assert_int_equal(usc_sim_capture_begin(s, &err), USC_E_UNSUPPORTED);
    assert_int_equal(usc_sim_stream_synchronize(s, &err), USC_E_UNSUPPORTED);
    says(&err, "is being captured");
    assert_int_equal(usc_sim_device_synchronize(0, &err), USC_E_UNSUPPORTED);
    assert_int_equal(usc_sim_stream_wait_stream(s, busy, &err), USC_E_UNSUPPORTED);
    says(&err, "wait before the capture begins");
    ok(usc_sim_event_record(inside, s, NULL));
    assert_int_equal(usc_sim_event_synchronize(inside, &err), USC_E_UNSUPPORTED);
    assert_int_equal(usc_sim_stream_wait(usc_sim_stream_next_for_ranks(0), inside, &err),
                     USC_E_UNSUPPORTED);
    says(&err, "what ranks exchange");
    ok(usc_sim_capture_end(s, &g, NULL));
    assert_int_equal(usc_sim_stream_wait(busy, inside, &err), USC_E_UNSUPPORTED);
    says(&err, "has ended");
    usc_sim_graph_free(g);
    usc_sim_event_free(inside);
    sem_post(&gate);
    wait_for_all();
}

static void test_an_error_in_a_replay_is_told_with_its_place(void **state)
{
    (void)state;
    const usc_sim_stream s = another();
    usc_sim_graph *g;
    usc_error err;
    ok(usc_sim_capture_begin(s, NULL));
    ok(submit(s, go_wrong, "axis 2", NULL));
    log_on(s, 5);
    ok(usc_sim_capture_end(s, &g, NULL));
    ok(usc_sim_graph_replay(g, s, NULL));
    assert_int_equal(usc_sim_stream_synchronize(s, &err), USC_E_SHAPE);
    says(&err, "aten::test, launched at here.py:7: axis 2");
    assert_int_equal(n_logged, 1);
    usc_sim_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IT(test_what_is_captured_runs_once_a_replay),
        IT(test_commands_are_dropped_with_the_graph_and_its_replays),
        IT(test_a_stream_that_waits_for_it_is_captured_with_it),
        IT(test_work_that_nobody_waits_for_is_refused),
        IT(test_what_a_capture_cannot_do_is_refused),
        IT(test_an_error_in_a_replay_is_told_with_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
