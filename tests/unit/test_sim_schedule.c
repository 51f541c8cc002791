// SPDX-License-Identifier: Apache-2.0
// The order that a seed gives (usc_sim_schedule in ulpscope_sim/stream.h).
#include "sim_commands.h"

#include <pthread.h>

static void set_seed(uint64_t seed, double delay)
{
    usc_sim_schedule(&(usc_sim_schedule_options){.seed = seed, .delay = delay});
}

/* Two streams of three commands; `ordered`: the second begins behind the first. The order
 * comes back as digits. */
static int order_of(uint64_t seed, bool ordered)
{
    const usc_sim_stream a = {0, 1}, b = {0, 2};
    n_logged = 0;
    set_seed(seed, 0.5);
    for (int i = 0; i < 3; i++)
        log_on(a, i);
    if (ordered) ok(usc_sim_stream_wait_stream(b, a, NULL));
    for (int i = 3; i < 6; i++)
        log_on(b, i);
    wait_for_all();
    usc_sim_schedule(NULL);
    int order = 0;
    for (int i = 0; i < n_logged; i++)
        order = 10 * order + logged[i] + 1;
    return order;
}

static void test_a_seed_orders_what_is_unordered(void **state)
{
    (void)state;
    int n_other = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        const int order = order_of(seed, false);
        assert_int_equal(order, order_of(seed, false));
        n_other += order != 123456;
        assert_int_equal(order_of(seed, true), 123456);
    }
    assert_in_range(n_other, 5, 20);
}

static void test_delay_is_how_much_waits(void **state)
{
    (void)state;
    set_seed(1, 1);
    log_on(MAIN, 1);
    assert_int_equal(n_logged, 0);
    ok(usc_sim_stream_synchronize(MAIN, NULL));
    assert_int_equal(n_logged, 1);
    set_seed(1, 0);
    log_on(MAIN, 2);
    assert_int_equal(n_logged, 2);
    set_seed(1, 1);
    log_on(MAIN, 3);
    while (!usc_sim_stream_query(MAIN)) /* who asks again and again gets there */
        ;
    assert_int_equal(n_logged, 3);
    log_on(MAIN, 4);
    usc_sim_schedule(NULL); /* waits */
    assert_int_equal(n_logged, 4);
}

static void test_high_priority_begins_first(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        const usc_sim_stream low = usc_sim_stream_next(0, false);
        const usc_sim_stream high = usc_sim_stream_next(0, true);
        n_logged = 0;
        set_seed(seed, 1);
        log_on(low, 1);
        log_on(high, 2);
        log_on(high, 3);
        wait_for_all();
        assert_true(logged[0] == 2 && logged[1] == 3 && logged[2] == 1);
    }
    usc_sim_schedule(NULL);
}

static void *log_many(void *stream)
{
    for (int i = 0; i < 4; i++) {
        log_on(*(usc_sim_stream *)stream, i);
        ok(usc_sim_stream_synchronize(*(usc_sim_stream *)stream, NULL));
    }
    return NULL;
}

static void test_many_threads_use_it_at_once(void **state)
{
    (void)state;
    for (int scheduled = 0; scheduled < 2; scheduled++) {
        pthread_t threads[4];
        usc_sim_stream streams[4];
        n_logged = 0;
        if (scheduled) set_seed(3, 0.5);
        for (int i = 0; i < 4; i++) {
            streams[i] = another();
            pthread_create(&threads[i], NULL, log_many, &streams[i]);
        }
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(n_logged, 16);
    }
    usc_sim_schedule(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IT(test_a_seed_orders_what_is_unordered),
        IT(test_delay_is_how_much_waits),
        IT(test_high_priority_begins_first),
        IT(test_many_threads_use_it_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
