// SPDX-License-Identifier: Apache-2.0
// The rules of command queues in ulpscope_sim/stream.h. No device memory is touched here,
// so that this runs under TSan, too.
#include "sim_commands.h"
#include <ulpscope/x/aside.h>
#include <ulpscope_sim/profile.h>

#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static usc_sim_event *event_of(bool timing)
{
    usc_sim_event *e;
    ok(usc_sim_event_create(timing, &e, NULL));
    return e;
}

/* ---- streams --------------------------------------------------------------------- */

static void test_a_stream_keeps_its_order_and_runs_later(void **state)
{
    (void)state;
    sem_t gate;
    sem_init(&gate, 0, 0);
    ok(submit(MAIN, pass_gate, &gate, NULL));
    for (int i = 0; i < 8; i++)
        log_on(MAIN, i);
    assert_false(usc_sim_stream_query(MAIN));
    assert_int_equal(n_logged, 0);
    sem_post(&gate);
    ok(usc_sim_stream_synchronize(MAIN, NULL));
    assert_true(usc_sim_stream_query(MAIN));
    assert_int_equal(n_logged, 8);
    for (int i = 0; i < 8; i++)
        assert_int_equal(logged[i], i);
}

static void test_streams_run_side_by_side(void **state)
{
    (void)state;
    sem_t gate;
    sem_init(&gate, 0, 0);
    ok(submit(another(), pass_gate, &gate, NULL)); /* ends only if the next one runs */
    ok(submit(another(), open_gate, &gate, NULL));
    wait_for_all();
}

static void test_waiting_for_one_stream_is_not_waiting_for_all(void **state)
{
    (void)state;
    sem_t gate;
    const usc_sim_stream a = another(), b = another();
    sem_init(&gate, 0, 0);
    ok(submit(a, pass_gate, &gate, NULL));
    log_on(b, 1);
    ok(usc_sim_stream_synchronize(b, NULL));
    ok(usc_sim_device_synchronize(1, NULL));
    assert_false(usc_sim_stream_query(a));
    sem_post(&gate);
    wait_for_all();
}

static void test_pools_and_the_current_stream(void **state)
{
    (void)state;
    const usc_sim_stream low = usc_sim_stream_next(1, false);
    const usc_sim_stream high = usc_sim_stream_next(1, true);
    assert_true(low.device == 1 && low.id != 0 && high.id != low.id);
    assert_true(usc_sim_stream_is_high(high) && !usc_sim_stream_is_high(low));
    for (int i = 1; i < USC_SIM_POOL_STREAMS; i++)
        assert_int_not_equal(usc_sim_stream_next(1, false).id, low.id);
    assert_int_equal(usc_sim_stream_next(1, false).id, low.id);

    assert_int_equal(usc_sim_stream_current(1).id, 0);
    usc_sim_stream_set_current(low);
    assert_int_equal(usc_sim_stream_current(1).id, low.id);
    assert_int_equal(usc_sim_stream_current(0).id, 0);
    usc_sim_stream_set_current((usc_sim_stream){1, 0});
}

static void *other_threads_stream(void *id)
{
    *(int64_t *)id = usc_sim_stream_current(0).id;
    return NULL;
}

static void test_each_thread_has_its_own_current_stream(void **state)
{
    (void)state;
    pthread_t thread;
    int64_t id = -1;
    usc_sim_stream_set_current(another());
    pthread_create(&thread, NULL, other_threads_stream, &id);
    pthread_join(thread, NULL);
    assert_int_equal(id, 0);
    usc_sim_stream_set_current(MAIN);
}

static void test_what_is_not_there_is_refused(void **state)
{
    (void)state;
    usc_error err;
    const usc_sim_stream none[] = {
        {-1, 0}, {usc_sim_device_count(), 0}, {0, -1}, {0, 1000}};
    usc_sim_event *e = event_of(false);
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        assert_false(usc_sim_stream_exists(none[i]));
        assert_int_equal(submit(none[i], log_it, numbers, &err), USC_E_ARG);
        assert_int_equal(usc_sim_stream_synchronize(none[i], &err), USC_E_ARG);
        assert_int_equal(usc_sim_event_record(e, none[i], &err), USC_E_ARG);
        assert_int_equal(usc_sim_stream_wait(none[i], e, &err), USC_E_ARG);
        assert_int_equal(usc_sim_stream_wait_stream(none[i], MAIN, &err), USC_E_ARG);
        assert_int_equal(usc_sim_stream_wait_stream(MAIN, none[i], &err), USC_E_ARG);
        usc_sim_stream_set_current(none[i]);
        assert_true(usc_sim_stream_query(none[i]));
    }
    assert_int_equal(usc_sim_device_synchronize(-2, &err), USC_E_ARG);
    assert_int_equal(usc_sim_device_synchronize(usc_sim_device_count(), &err), USC_E_ARG);
    usc_sim_event_free(e);
}

/* ---- events ---------------------------------------------------------------------- */

static void test_an_event_orders_two_streams(void **state)
{
    (void)state;
    sem_t gate;
    const usc_sim_stream a = another(), b = another();
    usc_sim_event *e = event_of(false);
    sem_init(&gate, 0, 0);
    ok(submit(a, pass_gate, &gate, NULL));
    log_on(a, 1);
    ok(usc_sim_event_record(e, a, NULL));
    ok(usc_sim_stream_wait(b, e, NULL));
    log_on(b, 2);
    assert_false(usc_sim_event_query(e));
    assert_int_equal(n_logged, 0);
    sem_post(&gate);
    ok(usc_sim_event_synchronize(e, NULL));
    assert_true(usc_sim_event_query(e));
    wait_for_all();
    assert_true(n_logged == 2 && logged[0] == 1 && logged[1] == 2);
    usc_sim_event_free(e);
}

static void test_who_waits_holds_what_the_event_stood_for(void **state)
{
    (void)state;
    sem_t first, second;
    const usc_sim_stream a = another(), b = another(), c = another();
    usc_sim_event *e = event_of(false);
    sem_init(&first, 0, 0);
    sem_init(&second, 0, 0);
    ok(submit(a, pass_gate, &first, NULL));
    ok(usc_sim_event_record(e, a, NULL));
    ok(usc_sim_stream_wait(b, e, NULL));
    ok(submit(c, pass_gate, &second, NULL));
    ok(usc_sim_event_record(e, c, NULL)); /* b waits for a, not for c */
    usc_sim_event_free(e);
    log_on(b, 3);
    sem_post(&first);
    ok(usc_sim_stream_synchronize(b, NULL));
    assert_int_equal(n_logged, 1);
    sem_post(&second);
    wait_for_all();
}

static void test_an_event_that_was_never_recorded_holds_nobody(void **state)
{
    (void)state;
    double ms;
    usc_error err;
    usc_sim_event *e = event_of(true), *other = event_of(true), *plain = event_of(false);
    assert_true(usc_sim_event_query(e));
    ok(usc_sim_event_synchronize(e, NULL));
    ok(usc_sim_stream_wait(MAIN, e, NULL));
    ok(usc_sim_event_record(other, MAIN, NULL));
    assert_int_equal(usc_sim_event_elapsed(e, other, &ms, &err), USC_E_ARG);
    assert_non_null(strstr(err.text, "recorded"));
    ok(usc_sim_event_record(plain, MAIN, NULL));
    assert_int_equal(usc_sim_event_elapsed(plain, other, &ms, &err), USC_E_ARG);
    assert_non_null(strstr(err.text, "timing"));
    usc_sim_event_free(e);
    usc_sim_event_free(other);
    usc_sim_event_free(plain);
    usc_sim_event_free(NULL);
}

static void test_time_is_the_devices(void **state)
{
    (void)state;
    sem_t gate;
    double ms, none;
    usc_error err;
    usc_sim_event *from = event_of(true), *to = event_of(true);
    sem_init(&gate, 0, 0);
    ok(usc_sim_event_record(from, MAIN, NULL));
    ok(submit(MAIN, pass_gate, &gate, NULL));
    ok(usc_sim_event_record(to, MAIN, NULL));
    assert_int_equal(usc_sim_event_elapsed(from, to, &none, &err), USC_E_ARG);
    assert_non_null(strstr(err.text, "ended"));
    sem_post(&gate);
    ok(usc_sim_event_synchronize(to, NULL));
    ok(usc_sim_event_elapsed(from, to, &ms, &err));
    assert_true(ms > 0);
    ok(usc_sim_event_elapsed(to, from, &none, &err));
    assert_true(none == -ms);
    usc_sim_event_free(from);
    usc_sim_event_free(to);
}

static void test_a_stream_waits_for_a_stream(void **state)
{
    (void)state;
    sem_t gate;
    const usc_sim_stream a = another(), b = another();
    sem_init(&gate, 0, 0);
    ok(submit(a, pass_gate, &gate, NULL));
    log_on(a, 4);
    ok(usc_sim_stream_wait_stream(b, a, NULL));
    ok(usc_sim_stream_wait_stream(b, b, NULL));
    log_on(b, 5);
    sem_post(&gate);
    wait_for_all();
    assert_true(n_logged == 2 && logged[0] == 4 && logged[1] == 5);
}

/* ---- errors ---------------------------------------------------------------------- */

static void test_an_error_is_told_once_at_the_next_wait(void **state)
{
    (void)state;
    usc_error err;
    char first[] = "sizes 3 and 4", second[] = "never told";
    ok(submit(MAIN, go_wrong, first, &err));
    ok(submit(MAIN, go_wrong, second, &err));
    log_on(MAIN, 1); /* runs nevertheless */
    assert_int_equal(usc_sim_stream_synchronize(MAIN, &err), USC_E_SHAPE);
    assert_string_equal(err.text, "aten::test, launched at here.py:7: sizes 3 and 4");
    assert_int_equal(err.where, 2);
    assert_int_equal(n_logged, 1);
    ok(usc_sim_stream_synchronize(MAIN, &err));

    usc_sim_event *e = event_of(false);
    ok(submit(MAIN, go_wrong, first, &err));
    ok(usc_sim_event_record(e, MAIN, NULL));
    assert_int_equal(usc_sim_event_synchronize(e, &err), USC_E_SHAPE);
    ok(submit(MAIN, go_wrong, first, &err));
    assert_int_equal(usc_sim_device_synchronize(0, &err), USC_E_SHAPE);
    ok(usc_sim_device_synchronize(0, &err));
    usc_sim_event_free(e);
}

static void test_a_tool_is_told_of_an_error_and_the_program_as_well(void **state)
{
    (void)state;
    usc_error err;
    char text[] = "sizes 3 and 4";
    ok(submit(MAIN, go_wrong, text, &err));
    assert_false(usc_set_aside(true));
    assert_int_equal(usc_sim_stream_synchronize(MAIN, &err), USC_E_SHAPE);
    assert_true(usc_set_aside(false));
    assert_int_equal(usc_sim_stream_synchronize(MAIN, &err), USC_E_SHAPE);
    ok(usc_sim_stream_synchronize(MAIN, &err));
}

static usc_status wait_inside(void *ctx, usc_error *err)
{
    (void)ctx;
    return usc_sim_stream_synchronize((usc_sim_stream){1, 0}, err);
}

static void test_a_command_that_waits_is_refused(void **state)
{
    (void)state;
    usc_error err;
    ok(submit(MAIN, wait_inside, NULL, &err));
    assert_int_equal(usc_sim_stream_synchronize(MAIN, &err), USC_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "waits for a stream"));
}

/* ---- launch blocking --------------------------------------------------------------- */

static usc_status note_thread(void *thread, usc_error *err)
{
    (void)err;
    *(pthread_t *)thread = pthread_self();
    return USC_OK;
}

static void test_launch_blocking_runs_in_step(void **state)
{
    (void)state;
    usc_error err;
    pthread_t thread;
    char why[] = "no";
    usc_sim_set_launch_blocking(true);
    assert_true(usc_sim_launch_blocking());
    ok(submit(MAIN, note_thread, &thread, &err));
    assert_true(pthread_equal(thread, pthread_self()));
    assert_true(usc_sim_stream_query(MAIN));
    assert_int_equal(submit(MAIN, go_wrong, why, &err), USC_E_SHAPE); /* its own error */
    assert_string_equal(err.text, "aten::test, launched at here.py:7: no");
    ok(usc_sim_stream_synchronize(MAIN, &err));
    usc_sim_set_launch_blocking(false);
}

static void test_launch_blocking_waits_for_what_is_pending(void **state)
{
    (void)state;
    sem_t gate;
    char why[] = "no";
    const usc_sim_stream a = another(), b = another();
    sem_init(&gate, 0, 0);
    ok(submit(a, pass_gate, &gate, NULL));
    log_on(a, 1);
    ok(submit(b, open_gate, &gate, NULL));
    usc_sim_set_launch_blocking(true);
    log_on(a, 2);
    assert_true(n_logged == 2 && logged[1] == 2);
    assert_int_equal(submit(a, go_wrong, why, NULL), USC_E_SHAPE);
    usc_sim_set_launch_blocking(false);
    wait_for_all();
}

/* ---- interrupted waits -------------------------------------------------------------- */

static atomic_int n_asked;

static bool at_the_second(void)
{
    return atomic_fetch_add(&n_asked, 1) == 1;
}

static void test_a_wait_ends_where_the_program_says_so(void **state)
{
    (void)state;
    usc_error err;
    sem_t gate;
    sem_init(&gate, 0, 0);
    n_asked = 0;
    usc_sim_event *e = event_of(false);
    ok(submit(MAIN, pass_gate, &gate, NULL));
    ok(usc_sim_event_record(e, MAIN, NULL));
    assert_false(usc_sim_was_interrupted());
    usc_sim_on_wait(at_the_second);
    assert_int_equal(usc_sim_stream_synchronize(MAIN, &err), USC_E_IO);
    assert_non_null(strstr(err.text, "interrupted"));
    assert_int_equal(n_asked, 2);
    assert_true(usc_sim_was_interrupted());
    n_asked = 0;
    assert_int_equal(usc_sim_event_synchronize(e, &err), USC_E_IO);
    n_asked = 0;
    assert_int_equal(usc_sim_device_synchronize(-1, &err), USC_E_IO);
    usc_sim_set_launch_blocking(true); /* its error has no room any more when it ends */
    n_asked = 0;
    char why[] = "no";
    assert_int_equal(submit(MAIN, go_wrong, why, &err), USC_E_IO);
    usc_sim_set_launch_blocking(false);
    usc_sim_on_wait(NULL);
    sem_post(&gate);
    assert_int_equal(usc_sim_stream_synchronize(MAIN, &err), USC_E_SHAPE); /* told now */
    ok(usc_sim_stream_synchronize(MAIN, &err));
    usc_sim_event_free(e);
}

static void test_a_kernel_that_hangs_lets_go(void **state)
{
    (void)state;
    n_asked = 0;
    usc_sim_on_wait(at_the_second);
    usc_sim_hang();
    assert_int_equal(n_asked, 2);
    usc_sim_on_wait(NULL);
}

/* ---- copies, forks ------------------------------------------------------------------ */

static void test_a_copy_takes_its_turn(void **state)
{
    (void)state;
    sem_t gate;
    char from[] = "before", to[sizeof from] = "";
    sem_init(&gate, 0, 0);
    ok(submit(MAIN, pass_gate, &gate, NULL));
    ok(usc_sim_copy(MAIN, to, from, sizeof from, NULL));
    memcpy(from, "behind", sizeof from); /* what a program does that forgot to wait */
    sem_post(&gate);
    ok(usc_sim_stream_synchronize(MAIN, NULL));
    assert_string_equal(to, "behind");
}

static void test_a_forked_child_is_refused(void **state)
{
    (void)state;
    usc_error err;
    log_on(MAIN, 1);
    wait_for_all();
    const pid_t child = fork();
    if (child == 0) {
        const usc_status st = submit(MAIN, log_it, numbers, &err);
        _exit(st == USC_E_UNSUPPORTED && strstr(err.text, "forked") != NULL &&
                      usc_sim_device_synchronize(-1, &err) == USC_OK
                  ? 0
                  : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IT(test_a_stream_keeps_its_order_and_runs_later),
        IT(test_streams_run_side_by_side),
        IT(test_waiting_for_one_stream_is_not_waiting_for_all),
        IT(test_pools_and_the_current_stream),
        IT(test_each_thread_has_its_own_current_stream),
        IT(test_what_is_not_there_is_refused),
        IT(test_an_event_orders_two_streams),
        IT(test_who_waits_holds_what_the_event_stood_for),
        IT(test_an_event_that_was_never_recorded_holds_nobody),
        IT(test_time_is_the_devices),
        IT(test_a_stream_waits_for_a_stream),
        IT(test_an_error_is_told_once_at_the_next_wait),
        IT(test_a_tool_is_told_of_an_error_and_the_program_as_well),
        IT(test_a_command_that_waits_is_refused),
        IT(test_launch_blocking_runs_in_step),
        IT(test_launch_blocking_waits_for_what_is_pending),
        IT(test_a_wait_ends_where_the_program_says_so),
        IT(test_a_kernel_that_hangs_lets_go),
        IT(test_a_copy_takes_its_turn),
        IT(test_a_forked_child_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
